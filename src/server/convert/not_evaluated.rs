//! Constraints that a result does not take into account, as messages.

use std::sync::Arc;

use crate::server::pb;
use pumice_engine::decide::{
    self, AdmitQuery, AdmitSubject, ConstraintSubject, NodeQuery, NotEvaluated, PlaceGroup, PlacedGroup,
    UnevaluatedTask, VictimGroup,
};
use pumice_engine::model::constraints::ConstraintSet;
use pumice_engine::model::{ClusterState, NodeSlot, TaskRecord, UnevaluatedFields};
use pumice_engine::plugin::DecisionTime;
use pumice_engine::policy::{DecisionKind, Policy};

fn messages(constraints: &[NotEvaluated]) -> Vec<pb::NotEvaluated> {
    let message = |constraint: &NotEvaluated| {
        let NotEvaluated {
            subject,
            name,
            count,
            effect,
        } = constraint;
        pb::NotEvaluated {
            subject: subject.to_string(),
            name: name.to_string(),
            count: *count,
            effect: (*effect).to_owned(),
        }
    };
    constraints.iter().map(message).collect()
}

/// Unserved plugins of a policy that would take part in a decision of this kind.
pub(crate) fn of_policy(policy: &Policy, kind: DecisionKind) -> Vec<pb::NotEvaluated> {
    messages(&decide::not_evaluated_of_policy(policy, kind))
}

/// Plugins of a policy that compare with the time, where a decision of this kind depends on it and the request gives none.
fn of_time(policy: &Policy, kind: DecisionKind) -> Vec<pb::NotEvaluated> {
    let effects = policy.time_effects().filter(|(_, own)| own.decisions.contains(&kind));
    effects.map(|(name, own)| of_plugin(name, own.effect)).collect()
}

fn of_plugin(name: &Arc<str>, effect: &str) -> pb::NotEvaluated {
    pb::NotEvaluated {
        subject: ConstraintSubject::Policy.to_string(),
        name: name.to_string(),
        count: 0,
        effect: effect.to_owned(),
    }
}

/// Plugins of a policy that do not fully apply to a decision of this kind, sorted by name. A plugin is listed if it is
/// not implemented, if it waits for labels, if it needs the time and the request has none, or if the state has none of the
/// records that it reads. For example, `sla` in a request without `now`. If the request names plugins, only named plugins
/// are listed, and not because they are not implemented.
pub(crate) fn of_decision(
    policy: &Policy,
    kind: DecisionKind,
    plugins: &[Arc<str>],
    cluster_state: Option<&ClusterState>,
    now: Option<DecisionTime>,
) -> Vec<pb::NotEvaluated> {
    // Neither admission nor an order reads labels.
    let with_labels = cluster_state.filter(|_| !matches!(kind, DecisionKind::Admit | DecisionKind::Order));
    let for_labels = |state| messages(&decide::not_evaluated_for_labels(policy, state));
    let mut all = with_labels.map(for_labels).unwrap_or_default();
    if now.is_none() {
        all.extend(of_time(policy, kind));
    }
    let absent = cluster_state
        .into_iter()
        .flat_map(|state| policy.absent_inputs(state, kind));
    all.extend(absent.map(|(name, effect)| of_plugin(name, effect)));
    if plugins.is_empty() {
        all.extend(of_policy(policy, kind));
    } else {
        all.retain(|own| plugins.iter().any(|plugin| **plugin == *own.name));
    }
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}

/// Cluster state and policy of a decision, by which its results name what they leave out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EvaluatedState<'a> {
    /// Cluster state with the records of the evaluated fields.
    pub(crate) cluster_state: &'a ClusterState,
    /// Constraints that the plugins evaluate which take part.
    pub(crate) evaluated: ConstraintSet,
}

impl<'a> EvaluatedState<'a> {
    /// State under a policy, for a decision of `plugins`. Empty: all plugins that are switched on.
    pub(crate) fn new(cluster_state: &'a ClusterState, policy: &Policy, plugins: &[Arc<str>]) -> Self {
        Self {
            cluster_state,
            evaluated: policy.evaluated_constraints(plugins),
        }
    }

    /// Unevaluated fields of these nodes. Each node must occur once.
    pub(super) fn of_nodes(self, nodes: &[NodeSlot]) -> Vec<pb::NotEvaluated> {
        let nodes = nodes.iter().copied();
        messages(&decide::not_evaluated_of_nodes(
            self.cluster_state,
            nodes,
            self.evaluated,
        ))
    }

    /// Fields of a task.
    pub(super) fn of_task(self, task: &TaskRecord) -> Vec<pb::NotEvaluated> {
        let task = UnevaluatedTask::of(task);
        messages(&decide::not_evaluated_of_tasks(
            [(task, 1)],
            self.cluster_state,
            self.evaluated,
        ))
    }

    /// Puts the fields of a query's task before the fields of nodes, replacing the fields of another task.
    pub(super) fn put_task(self, item: &mut Vec<pb::NotEvaluated>, query: &NodeQuery, number: usize) {
        let Some(Ok(asked)) = query.tasks.get(number) else {
            return;
        };
        let own = self.of_task(&asked.task);
        if item.is_empty() && own.is_empty() {
            return;
        }
        let of_task_fields = ConstraintSubject::Task.to_string();
        item.retain(|constraint| constraint.subject != of_task_fields);
        item.splice(0..0, own);
    }

    /// Fields of the tasks of a group and of the nodes chosen for them; `None`: the group has a problem.
    pub(super) fn of_group(self, asked: &PlaceGroup, placed: Option<&PlacedGroup>) -> Vec<pb::NotEvaluated> {
        let named = asked.unevaluated.iter().map(|(fields, count)| {
            let task = UnevaluatedTask {
                fields,
                constrained: None,
            };
            (task, *count)
        });
        let none = UnevaluatedFields::default();
        let equal = UnevaluatedTask {
            fields: &none,
            constrained: Some(&asked.task),
        };
        let tasks = named.chain([(equal, asked.count)]);
        let mut all = messages(&decide::not_evaluated_of_tasks(
            tasks,
            self.cluster_state,
            self.evaluated,
        ));
        if let Some(placed) = placed.filter(|_| self.cluster_state.has_unevaluated_nodes()) {
            let mut nodes: Vec<NodeSlot> = placed.allocated.iter().chain(&placed.pipelined).copied().collect();
            nodes.sort_unstable();
            nodes.dedup();
            all.extend(self.of_nodes(&nodes));
        }
        all
    }

    /// Fields of the tasks among the subjects of a question, item by item.
    pub(crate) fn of_subjects(self, query: &AdmitQuery) -> Vec<Vec<pb::NotEvaluated>> {
        let of_subject = |item: &Result<AdmitSubject, _>| match item {
            Ok(AdmitSubject::Task(task)) => self.of_task(task),
            Ok(AdmitSubject::Job(_)) | Err(_) => Vec::new(),
        };
        query.items.iter().map(of_subject).collect()
    }

    /// Fields of the preemptor and of the node of a group.
    pub(super) fn of_victim_group(self, group: &VictimGroup) -> Vec<pb::NotEvaluated> {
        let mut all = self.of_task(&group.preemptor);
        let slot = self.cluster_state.slot_of(&group.node);
        all.extend(self.of_nodes(slot.as_slice()));
        all
    }
}
