//! Constraints that a decision does not take into account: unserved plugins, and fields that no record carries.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::model::{ClusterState, NodeSlot, UnevaluatedFields};
use crate::policy::{DecisionKind, Policy};

/// Carrier of a constraint. The order is that of lists.
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

/// Fields of tasks, given each with the number of tasks that have it.
pub fn not_evaluated_of_tasks<'a>(
    tasks: impl IntoIterator<Item = (&'a UnevaluatedFields, usize)>,
) -> Vec<NotEvaluated> {
    let tasks = tasks.into_iter().filter(|(fields, _)| !fields.is_empty());
    list(ConstraintSubject::Task, task_field_effect, tasks)
}

/// Fields of nodes in these slots. Without a node that has such a field, no slot is read.
pub fn not_evaluated_of_nodes(
    cluster_state: &ClusterState,
    slots: impl IntoIterator<Item = NodeSlot>,
) -> Vec<NotEvaluated> {
    if !cluster_state.has_unevaluated_nodes() {
        return Vec::new();
    }
    let entries = slots
        .into_iter()
        .filter_map(|slot| cluster_state.unevaluated_node(slot));
    not_evaluated_of_node_fields(entries.map(|entry| &entry.record.unevaluated_fields))
}

/// Fields of nodes, given node by node.
pub fn not_evaluated_of_node_fields<'a>(nodes: impl IntoIterator<Item = &'a UnevaluatedFields>) -> Vec<NotEvaluated> {
    let nodes = nodes.into_iter().map(|fields| (fields, 1));
    list(ConstraintSubject::Nodes, node_field_effect, nodes)
}

fn list<'a>(
    subject: ConstraintSubject,
    effect: fn(&str) -> &'static str,
    carriers: impl Iterator<Item = (&'a UnevaluatedFields, usize)>,
) -> Vec<NotEvaluated> {
    let mut counts: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
    for (fields, number) in carriers {
        for name in fields.iter() {
            let count = counts.entry(name).or_default();
            *count = count.saturating_add(number);
        }
    }
    counts
        .into_iter()
        .map(|(name, count)| NotEvaluated {
            subject,
            name: Arc::clone(name),
            count: u32::try_from(count).unwrap_or(u32::MAX),
            effect: effect(name),
        })
        .collect()
}

fn task_field_effect(name: &str) -> &'static str {
    match name {
        "hostPorts" => "A host port may reject nodes on which the port is in use.",
        "nodeAffinity" => "Node affinity may reject nodes and change scores.",
        "nodeSelector" => "A node selector may reject nodes without its labels.",
        "podAffinity" => "Pod affinity may reject nodes and change scores.",
        "podAntiAffinity" => "Pod anti-affinity may reject nodes and change scores.",
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
    use crate::model::SortedTable;

    fn fields(names: &[&str]) -> UnevaluatedFields {
        names.iter().map(|name| Arc::from(*name)).collect()
    }

    #[test]
    fn fields_are_counted_by_name() {
        let (both, one) = (fields(&["volumes", "nodeSelector"]), fields(&["volumes"]));
        let none = UnevaluatedFields::default();
        let found = not_evaluated_of_tasks([(&both, 2), (&none, 7), (&one, 3)]);
        let found: Vec<_> = found.iter().map(|own| (&*own.name, own.count)).collect();
        assert_eq!(found, [("nodeSelector", 2), ("volumes", 5)]);
        assert_eq!(not_evaluated_of_tasks([(&none, 1)]), []);
    }

    #[test]
    fn nodes_with_the_field_are_counted_among_those_given() {
        let mut index = SortedTable::default();
        for slot in 0..600_u32 {
            index.insert(format!("n{slot}").into(), slot);
        }
        let mut state = ClusterState::new(Arc::new(index), 1);
        for slot in 0..600_u32 {
            let record = crate::model::NodeRecord {
                name: format!("n{slot}").into(),
                unevaluated_fields: fields(if slot % 3 == 0 { &["taints"] } else { &[] }),
                ..Default::default()
            };
            state.put_node(Arc::new(record), &Arc::default());
        }
        let counted = |slots: std::ops::Range<u32>| {
            let found = not_evaluated_of_nodes(&state, slots);
            found.iter().map(|own| own.count).sum::<u32>()
        };
        assert_eq!((counted(0..600), counted(299..302), counted(1..3)), (200, 1, 0));
        assert_eq!(counted(1_000..2_000), 0);
    }
}
