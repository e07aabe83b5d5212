//! Constraints that a result does not take into account, as messages.

use crate::server::pb;
use pumice_engine::decide::{
    self, AdmitQuery, AdmitSubject, ConstraintSubject, NodeQuery, NotEvaluated, PlaceGroup, PlacedGroup, VictimGroup,
};
use pumice_engine::model::{ClusterState, NodeSlot, TaskRecord};
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
pub fn of_policy(policy: &Policy, kind: DecisionKind) -> Vec<pb::NotEvaluated> {
    messages(&decide::not_evaluated_of_policy(policy, kind))
}

/// Fields of these nodes, each node given once.
pub(super) fn of_nodes(cluster_state: &ClusterState, nodes: &[NodeSlot]) -> Vec<pb::NotEvaluated> {
    messages(&decide::not_evaluated_of_nodes(cluster_state, nodes.iter().copied()))
}

fn of_task(task: &TaskRecord) -> Vec<pb::NotEvaluated> {
    messages(&decide::not_evaluated_of_tasks([(&task.unevaluated_fields, 1)]))
}

/// Puts the fields of a question's task before those of nodes, in the place of another task's.
pub(super) fn put_task(item: &mut Vec<pb::NotEvaluated>, query: &NodeQuery, number: usize) {
    let Some(Ok(asked)) = query.tasks.get(number) else {
        return;
    };
    if item.is_empty() && asked.task.unevaluated_fields.is_empty() {
        return;
    }
    let of_task_fields = ConstraintSubject::Task.to_string();
    item.retain(|constraint| constraint.subject != of_task_fields);
    item.splice(0..0, of_task(&asked.task));
}

/// Fields of the tasks of a group and of the nodes chosen for them.
pub(super) fn of_group(asked: &PlaceGroup, placed: &PlacedGroup, state: &ClusterState) -> Vec<pb::NotEvaluated> {
    let fields = asked.unevaluated.iter().map(|(fields, count)| (fields, *count));
    let mut all = messages(&decide::not_evaluated_of_tasks(fields));
    if state.has_unevaluated_nodes() {
        let mut nodes: Vec<NodeSlot> = placed.allocated.iter().chain(&placed.pipelined).copied().collect();
        nodes.sort_unstable();
        nodes.dedup();
        all.extend(of_nodes(state, &nodes));
    }
    all
}

/// Fields of the tasks among the subjects of a question, item by item.
pub fn of_subjects(query: &AdmitQuery) -> Vec<Vec<pb::NotEvaluated>> {
    let of_subject = |item: &Result<AdmitSubject, _>| match item {
        Ok(AdmitSubject::Task(task)) => of_task(task),
        Ok(AdmitSubject::Job(_)) | Err(_) => Vec::new(),
    };
    query.items.iter().map(of_subject).collect()
}

/// Fields of the preemptor and of the node of a group.
pub(super) fn of_victim_group(group: &VictimGroup, cluster_state: &ClusterState) -> Vec<pb::NotEvaluated> {
    let mut all = of_task(&group.preemptor);
    let slot = cluster_state.slot_of(&group.node);
    all.extend(of_nodes(cluster_state, slot.as_slice()));
    all
}
