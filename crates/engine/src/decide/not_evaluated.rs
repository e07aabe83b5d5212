//! Constraints that a decision does not take into account: unserved plugins, and fields that no record carries.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crate::model::constraints::{ConstraintKind, ConstraintSet, PodAffinityTerm, PodConstraints};
use crate::model::{ClusterState, NodeSlot, PodIdentity, TaskRecord, UnevaluatedFields};
use crate::policy::{DecisionKind, Policy};

/// Kind of a constraint. Lists are sorted in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConstraintSubject {
    /// A plugin of the policy.
    Policy,
    /// A field of a task.
    Task,
    /// A field of nodes.
    Nodes,
}

impl fmt::Display for ConstraintSubject {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Policy => "policy",
            Self::Task => "task",
            Self::Nodes => "nodes",
        })
    }
}

/// Constraint that a decision does not take into account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotEvaluated {
    /// Carrier of the constraint.
    pub subject: ConstraintSubject,
    /// Name of the plugin or field.
    pub name: Arc<str>,
    /// Number of tasks or nodes with the field; 0 for a plugin.
    pub count: u32,
    /// Sentence: the effect that the plugin or field would have had.
    pub effect: &'static str,
}

/// Unserved plugins of a policy that would take part in a decision of this kind.
pub fn not_evaluated_of_policy(policy: &Policy, kind: DecisionKind) -> Vec<NotEvaluated> {
    let unserved = policy.unserved_plugins().iter();
    let named = unserved.filter(|plugin| plugin.takes_part_in(kind));
    named
        .map(|plugin| NotEvaluated {
            subject: ConstraintSubject::Policy,
            name: Arc::clone(&plugin.name),
            count: 0,
            effect: plugin.effect,
        })
        .collect()
}

/// Plugins of a policy that wait for labels which the records of a cluster state lack.
pub fn not_evaluated_for_labels(policy: &Policy, cluster_state: &ClusterState) -> Vec<NotEvaluated> {
    let waiting = policy.without_labels(cluster_state);
    waiting
        .map(|plugin| NotEvaluated {
            subject: ConstraintSubject::Policy,
            name: Arc::clone(&plugin.name),
            count: 0,
            effect: "The plugin waits for labels of records that the server did not keep before the policy read them.",
        })
        .collect()
}

/// Fields of tasks that a policy does not evaluate, and fields that need namespaces which the cluster state does not
/// have.
pub fn not_evaluated_of_tasks<'a>(
    tasks: impl IntoIterator<Item = (UnevaluatedTask<'a>, usize)>,
    cluster_state: &ClusterState,
    evaluated: ConstraintSet,
) -> Vec<NotEvaluated> {
    let mut counts = FieldCounts::default();
    for (UnevaluatedTask { fields, constrained }, number) in tasks {
        let constraints = constrained.and_then(|task| task.constraints.as_deref());
        let kinds = constraints.into_iter().flat_map(PodConstraints::kinds);
        let is_open = |term: &PodAffinityTerm| {
            let pod = constrained.filter(|_| term.needs_namespaces()).map(PodIdentity::of);
            pod.is_some_and(|pod| cluster_state.leaves_open(term, &pod))
        };
        let is_known = |kind| evaluated.contains(kind) && !constraints.is_some_and(|own| own.has_term(kind, is_open));
        let left_out = kinds.filter(|kind| !is_known(*kind));
        let left_out = left_out.map(|kind| -> &'a str { kind.name() });
        let named = fields.iter().map(|name| -> &'a str { name });
        counts.add(named.chain(left_out).collect(), number);
    }
    counts.list(ConstraintSubject::Task, task_field_effect)
}

/// Fields of a task that its sender named, and its constraints.
#[derive(Clone, Copy, Debug)]
pub struct UnevaluatedTask<'a> {
    /// Named fields.
    pub fields: &'a UnevaluatedFields,
    /// Task whose constraints a policy may evaluate; `None`: they are not in question.
    pub constrained: Option<&'a TaskRecord>,
}

impl<'a> UnevaluatedTask<'a> {
    /// Fields of a task.
    pub fn of(task: &'a TaskRecord) -> Self {
        Self {
            fields: &task.shape.unevaluated_fields,
            constrained: Some(task),
        }
    }
}

/// Fields of nodes in these slots that a policy does not evaluate. Without a node that has such a field, no slot is read.
pub fn not_evaluated_of_nodes(
    cluster_state: &ClusterState,
    slots: impl IntoIterator<Item = NodeSlot>,
    evaluated: ConstraintSet,
) -> Vec<NotEvaluated> {
    if !cluster_state.has_unevaluated_nodes() {
        return Vec::new();
    }
    let entries = slots
        .into_iter()
        .filter_map(|slot| cluster_state.unevaluated_node(slot));
    let nodes = entries.map(|entry| (&entry.record.unevaluated_fields, entry.record.has_rejecting_taint()));
    not_evaluated_of_node_fields(nodes, evaluated)
}

/// Fields of nodes, given node by node: the named ones, and whether it has a taint that keeps pods away.
pub fn not_evaluated_of_node_fields<'a>(
    nodes: impl IntoIterator<Item = (&'a UnevaluatedFields, bool)>,
    evaluated: ConstraintSet,
) -> Vec<NotEvaluated> {
    let mut counts = FieldCounts::default();
    for (fields, tainted) in nodes {
        let tainted = tainted && !evaluated.contains(ConstraintKind::Taints);
        let taints = tainted.then(|| ConstraintKind::Taints.name());
        let named = fields.iter().map(|name| -> &'a str { name });
        counts.add(named.chain(taints).collect(), 1);
    }
    counts.list(ConstraintSubject::Nodes, node_field_effect)
}

/// Numbers of carriers by the name of the field.
#[derive(Default)]
struct FieldCounts<'a>(BTreeMap<&'a str, usize>);

impl<'a> FieldCounts<'a> {
    /// Adds to the number of tasks or nodes with these fields.
    fn add(&mut self, names: BTreeSet<&'a str>, number: usize) {
        for name in names {
            let count = self.0.entry(name).or_default();
            *count = count.saturating_add(number);
        }
    }

    fn list(self, subject: ConstraintSubject, effect: fn(&str) -> &'static str) -> Vec<NotEvaluated> {
        let listed = self.0.into_iter().map(|(name, count)| NotEvaluated {
            subject,
            name: name.into(),
            count: u32::try_from(count).unwrap_or(u32::MAX),
            effect: effect(name),
        });
        listed.collect()
    }
}

fn task_field_effect(name: &str) -> &'static str {
    match name {
        "dependsOn" => "The pod starts only after pods of other roles of its job; Volcano's controller makes it then.",
        "devices" => "Shares of devices may reject nodes and change scores.",
        "hostPorts" => "A host port may reject nodes on which the port is in use.",
        "ownerSelector" => {
            "The pod may belong to a Service or a workload whose record is missing: default spread constraints may change scores."
        }
        "nodeAffinity" => "Node affinity may reject nodes and change scores.",
        "nodeSelector" => "A node selector may reject nodes without its labels.",
        "podAffinity" => "Pod affinity may reject nodes and change scores.",
        "podAntiAffinity" => "Pod anti-affinity may reject nodes and change scores.",
        "resources" => "Some amounts of the pod cannot be read; it may take more than its record says.",
        "resourceClaims" => "A resource claim may reject nodes without free devices for it.",
        "topologySpreadConstraints" => "Topology spread constraints may reject nodes and change scores.",
        "volumes" => "Volumes may reject nodes that cannot attach them.",
        _ => "Pumice does not know this field; its effect is unknown.",
    }
}

fn node_field_effect(name: &str) -> &'static str {
    match name {
        "taints" => "A taint may reject tasks that do not tolerate it.",
        _ => "Pumice does not know this field; its effect is unknown.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::constraints::{LabelSelector, PodAffinityTerm, PodTerms};
    use crate::model::constraints::{NodeProperties, PreferredTerm, Taint, TaintEffect};
    use crate::model::{NamespaceRecord, NodeRecord, SortedTable, TaskFields};

    fn fields(names: &[&str]) -> UnevaluatedFields {
        names.iter().map(|name| Arc::from(*name)).collect()
    }

    fn empty_state() -> ClusterState {
        ClusterState::new(Arc::new(SortedTable::<NodeSlot>::default()), 0)
    }

    fn task_with(constraints: PodConstraints) -> TaskRecord {
        let fields = TaskFields {
            name: "web/pod".into(),
            constraints: Some(Arc::new(constraints)),
            ..TaskFields::default()
        };
        fields.into()
    }

    #[test]
    fn fields_are_counted_by_name() {
        let (both, one) = (fields(&["volumes", "nodeSelector"]), fields(&["volumes"]));
        let none = UnevaluatedFields::default();
        let task = |fields| UnevaluatedTask {
            fields,
            constrained: None,
        };
        let state = empty_state();
        let tasks = [(task(&both), 2), (task(&none), 7), (task(&one), 3)];
        let found = not_evaluated_of_tasks(tasks, &state, ConstraintSet::NONE);
        let found: Vec<_> = found.iter().map(|own| (&*own.name, own.count)).collect();
        assert_eq!(found, [("nodeSelector", 2), ("volumes", 5)]);
        assert_eq!(
            not_evaluated_of_tasks([(task(&none), 1)], &state, ConstraintSet::NONE),
            []
        );
    }

    #[test]
    fn terms_that_need_labels_of_namespaces_are_named() {
        let none = UnevaluatedFields::default();
        let evaluated = ConstraintSet::NONE.with(ConstraintKind::PodAffinity);
        let mut state = empty_state();
        let named = |state: &ClusterState, namespaces: &[&str]| {
            let match_labels = namespaces.iter().map(|name| ((*name).into(), "v".into()));
            let term = PodAffinityTerm {
                label_selector: Some(LabelSelector::default()),
                namespace_selector: Some(LabelSelector {
                    match_labels: match_labels.collect(),
                    ..LabelSelector::default()
                }),
                ..PodAffinityTerm::default()
            };
            let attracts = PodTerms {
                required: vec![term],
                ..PodTerms::default()
            };
            let constraints = PodConstraints {
                pod_affinity: attracts,
                ..PodConstraints::default()
            };
            let task = task_with(constraints);
            let task = UnevaluatedTask {
                fields: &none,
                constrained: Some(&task),
            };
            not_evaluated_of_tasks([(task, 1)], state, evaluated).len()
        };
        assert_eq!((named(&state, &[]), named(&state, &["team"])), (0, 1));
        // The labels of the pod's own namespace decide whether it may be the first of its group.
        let own = NamespaceRecord {
            name: "web".into(),
            ..NamespaceRecord::default()
        };
        state.put_namespace(own, &Arc::default());
        assert_eq!(named(&state, &["team"]), 0);
    }

    #[test]
    fn constraints_are_named_unless_the_policy_evaluates_them() {
        let constraints = PodConstraints {
            required_node_terms: Some(Vec::new()),
            preferred_node_terms: vec![PreferredTerm::default()],
            node_selector: [("a".into(), "b".into())].into(),
            ..PodConstraints::default()
        };
        let named = fields(&["nodeSelector"]);
        let task = task_with(constraints);
        let task = UnevaluatedTask {
            fields: &named,
            constrained: Some(&task),
        };
        let state = empty_state();
        let found = |evaluated| -> Vec<(Arc<str>, u32)> {
            let found = not_evaluated_of_tasks([(task, 2)], &state, evaluated).into_iter();
            found.map(|own| (own.name, own.count)).collect()
        };
        let both = [("nodeAffinity".into(), 2), ("nodeSelector".into(), 2)];
        assert_eq!(found(ConstraintSet::NONE), both);
        let some = ConstraintSet::NONE
            .with(ConstraintKind::NodeAffinity)
            .with(ConstraintKind::NodeSelector);
        // The sender did not send its selector, whatever the policy evaluates.
        assert_eq!(found(some), both);
        assert_eq!(
            found(some.with(ConstraintKind::PreferredNodeAffinity)),
            [("nodeSelector".into(), 2)]
        );
    }

    #[test]
    fn taints_are_named_unless_the_policy_evaluates_them_or_another_field_carries_them() {
        let node = |key: &str, effect, unschedulable, ready| NodeRecord {
            unschedulable,
            ready: Some(ready),
            properties: Some(Arc::new(NodeProperties {
                taints: vec![Taint {
                    key: key.into(),
                    value: Arc::default(),
                    effect,
                }],
                ..NodeProperties::default()
            })),
            ..NodeRecord::default()
        };
        let cordon = "node.kubernetes.io/unschedulable";
        let not_ready = "node.kubernetes.io/not-ready";
        for (node, named) in [
            (node("gpu", TaintEffect::NoSchedule, false, true), true),
            (node("gpu", TaintEffect::NoExecute, true, false), true),
            (node("gpu", TaintEffect::PreferNoSchedule, false, true), false),
            (node(cordon, TaintEffect::NoSchedule, true, true), false),
            (node(cordon, TaintEffect::NoSchedule, false, true), true),
            (node(not_ready, TaintEffect::NoExecute, false, false), false),
            (node(not_ready, TaintEffect::NoExecute, false, true), true),
        ] {
            assert_eq!(node.has_rejecting_taint(), named, "{node:?}");
            let found = |evaluated| {
                let fields = [(&node.unevaluated_fields, node.has_rejecting_taint())];
                not_evaluated_of_node_fields(fields, evaluated).len()
            };
            assert_eq!(found(ConstraintSet::NONE), usize::from(named));
            assert_eq!(found(ConstraintSet::NONE.with(ConstraintKind::Taints)), 0);
        }
    }

    #[test]
    fn nodes_with_the_field_are_counted_among_those_given() {
        let mut index = SortedTable::default();
        for slot in 0..600_u32 {
            index.insert(format!("n{slot}").into(), slot);
        }
        let mut state = ClusterState::new(Arc::new(index), 1);
        for slot in 0..600_u32 {
            let record = NodeRecord {
                name: format!("n{slot}").into(),
                unevaluated_fields: fields(if slot % 3 == 0 { &["taints"] } else { &[] }),
                ..Default::default()
            };
            state.put_node(Arc::new(record), &Arc::default());
        }
        let counted = |slots: std::ops::Range<u32>| {
            let found = not_evaluated_of_nodes(&state, slots, ConstraintSet::NONE);
            found.iter().map(|own| own.count).sum::<u32>()
        };
        assert_eq!((counted(0..600), counted(299..302), counted(1..3)), (200, 1, 0));
        assert_eq!(counted(1_000..2_000), 0);
    }
}
