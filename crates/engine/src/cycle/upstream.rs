//! Changes with exactly the reference's effect (Volcano ed72c7c81, framework/statement.go and session.go), mistakes
//! included: a node has task copies and an idle vector of its own, and no change checks the status before.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{ChangeOutcome, CycleState, NodeChangeRules, Problem, RequestEffect, SessionChange, TaskPlacement};
use crate::devices::DeviceMask;
use crate::held_bytes::held_bytes;
use crate::model::{
    ClusterState, ErrorCode, NodeEntry, NodeVector, ResourceAmounts, ResourceId, SortedTable, StoredRecord, TaskRecord,
    TaskStatus, UpstreamNode,
};

/// Copy of a task on a node.
#[derive(Clone, Debug)]
pub(super) struct CopiedTask {
    /// Name of the node.
    pub(super) node: Arc<str>,
    /// Status of the copy.
    pub(super) status: TaskStatus,
    /// Devices that the node counts for it.
    devices: DeviceMask,
}

held_bytes! { CopiedTask { node; status, devices } }

impl CopiedTask {
    fn of(record: &TaskRecord, node: &Arc<str>) -> Self {
        Self {
            node: Arc::clone(node),
            status: record.status,
            devices: record.device_request().map_or(0, |request| request.assigned),
        }
    }

    /// Task as the node counts it.
    fn counted(&self, record: &TaskRecord) -> TaskRecord {
        let mut counted = TaskRecord {
            status: self.status,
            ..record.clone()
        };
        counted.assign_devices(self.devices);
        counted
    }
}

/// One copy for each reader that has counted the task.
type TaskCopies = Vec<CopiedTask>;

type WideAmounts = BTreeMap<ResourceId, i128>;

/// State that the reference has besides the tasks.
#[derive(Clone, Debug)]
pub(super) struct UpstreamState {
    /// The state at the beginning.
    initial_state: ClusterState,
    /// Copies of changed tasks.
    pub(super) copies: SortedTable<Arc<TaskCopies>>,
    rules: NodeChangeRules,
}

impl UpstreamState {
    pub(super) fn new(initial_state: ClusterState, rules: NodeChangeRules) -> Self {
        Self {
            initial_state,
            rules,
            copies: SortedTable::default(),
        }
    }

    pub(super) fn copies(&self, cluster_state: &ClusterState, task: &str) -> TaskCopies {
        if let Some(copies) = self.copies.get(task) {
            return TaskCopies::clone(copies);
        }
        let Some(stored) = self.initial_state.tasks().get(task) else {
            return Vec::new();
        };
        let record = &stored.record;
        let on_node = record.status.is_on_node() && cluster_state.slot_of(&record.node).is_some();
        if on_node {
            vec![CopiedTask::of(record, &record.node)]
        } else {
            Vec::new()
        }
    }

    pub(super) fn apply(
        &mut self,
        state: &mut CycleState,
        change: &SessionChange,
        field: &str,
        outcome: &mut ChangeOutcome,
    ) -> Result<(), Problem> {
        let refused = match change {
            SessionChange::Allocate(to) => self.place_or_roll_back(state, to, TaskStatus::Allocated, outcome),
            SessionChange::Pipeline(to) => self.place_or_roll_back(state, to, TaskStatus::Pipelined, outcome),
            SessionChange::Evict(task) => self
                .change_status(state, task, TaskStatus::Releasing, outcome)
                .map(|()| None),
            SessionChange::Unevict(task) => self
                .change_status(state, task, TaskStatus::Running, outcome)
                .map(|()| None),
            SessionChange::Unallocate(task) | SessionChange::Unpipeline(task) | SessionChange::BindFailed(task) => {
                self.withdraw(state, task, outcome).map(|()| None)
            }
            SessionChange::JobEnqueued(_) | SessionChange::Savepoint(_) | SessionChange::RollbackTo(_) => Ok(None),
        };
        match refused {
            Ok(None) => Ok(()),
            Ok(Some(rejection)) => {
                let message = format!("{rejection}; as in the reference, the task lost its place and is Pending");
                outcome
                    .warnings
                    .push(Problem::new(ErrorCode::PlaceRejected, field, message));
                Ok(())
            }
            Err(panic) => Err(Problem::new(ErrorCode::ReferencePanics, field, panic)),
        }
    }

    /// Allocate and Pipeline as a Statement performs them: a rejected placement is rolled back, and events fire for
    /// both steps.
    fn place_or_roll_back(
        &mut self,
        state: &mut CycleState,
        to: &TaskPlacement,
        status: TaskStatus,
        outcome: &mut ChangeOutcome,
    ) -> Result<Option<String>, String> {
        let before = stored_task(state, &to.task);
        let refused = self.add_to_node(state, to, status, outcome).err();
        notify_moved(state, RequestEffect::Allocate, before.as_deref(), &to.card, outcome)?;
        if refused.is_some() {
            self.withdraw(state, &to.task, outcome)?;
        }
        Ok(refused)
    }

    /// Allocate and Pipeline as a Session performs them: a rejected placement stays half done, without an event.
    pub(super) fn place(
        &mut self,
        state: &mut CycleState,
        to: &TaskPlacement,
        status: TaskStatus,
        outcome: &mut ChangeOutcome,
    ) -> Result<(), String> {
        if state.cluster_state.slot_of(&to.node).is_none() {
            set_task(state, &to.task, status, Some(&to.node));
            return Err(format!("there is no node `{}`", to.node));
        }
        let before = stored_task(state, &to.task);
        self.add_to_node(state, to, status, outcome)?;
        notify_moved(state, RequestEffect::Allocate, before.as_deref(), &to.card, outcome)
    }

    fn add_to_node(
        &mut self,
        state: &mut CycleState,
        to: &TaskPlacement,
        status: TaskStatus,
        outcome: &mut ChangeOutcome,
    ) -> Result<(), String> {
        let Some(record) = self.start_change(state, &to.task, status, Some(to), outcome) else {
            return Ok(());
        };
        self.add_copy(state, &record, &to.node)
    }

    /// Gives a task a status, and a node and devices if it is placed. The record is the task's new one; its copies are
    /// kept as they were before. `None`: there is no such task.
    fn start_change(
        &mut self,
        state: &mut CycleState,
        task: &Arc<str>,
        status: TaskStatus,
        to: Option<&TaskPlacement>,
        outcome: &mut ChangeOutcome,
    ) -> Option<TaskRecord> {
        let copies = self.copies(&state.cluster_state, task);
        set_task(state, task, status, to.map(|to| &to.node));
        if let Some(to) = to {
            assign_devices(state, to, status);
        }
        let record = stored_task(state, task)?.record.clone();
        state.touch(&[&record.node], &record.job, outcome);
        self.copies.insert(Arc::clone(task), Arc::new(copies));
        Some(record)
    }

    /// Evict and unevict: the status changes, the node stays.
    fn change_status(
        &mut self,
        state: &mut CycleState,
        task: &Arc<str>,
        status: TaskStatus,
        outcome: &mut ChangeOutcome,
    ) -> Result<(), String> {
        let before = stored_task(state, task);
        let Some(record) = self.start_change(state, task, status, None, outcome) else {
            return Ok(());
        };
        if state.cluster_state.slot_of(&record.node).is_some() {
            self.remove_copy(state, &record, &record.node);
            let release = self.rules.compatibility.release().rules();
            if status == TaskStatus::Running && self.rules.moves_pods && release.loses_unevicted_pods {
                lose_pod(&mut state.cluster_state, &record);
            }
            self.add_copy(state, &record, &record.node)?;
        }
        let step = if status == TaskStatus::Running {
            RequestEffect::Allocate
        } else {
            RequestEffect::Deallocate
        };
        notify_moved(state, step, before.as_deref(), "", outcome)
    }

    /// Unallocate and unpipeline.
    fn withdraw(&mut self, state: &mut CycleState, task: &Arc<str>, outcome: &mut ChangeOutcome) -> Result<(), String> {
        let before = stored_task(state, task);
        let Some(record) = self.start_change(state, task, TaskStatus::Pending, None, outcome) else {
            return Ok(());
        };
        self.remove_copy(state, &record, &record.node);
        self.forget_lost(&mut state.cluster_state, &record);
        notify_moved(state, RequestEffect::Deallocate, before.as_deref(), "", outcome)?;
        set_task(state, task, TaskStatus::Pending, Some(&Arc::default()));
        take_devices(state, task);
        Ok(())
    }

    /// Forgets that a pod which leaves its node was not seen there: it is not seen wherever it comes.
    fn forget_lost(&self, cluster_state: &mut ClusterState, task: &TaskRecord) {
        let is_lost = |entry: &Arc<NodeEntry>| {
            let own = entry.upstream.as_ref();
            own.is_some_and(|own| own.lost_pods.contains(&task.name))
        };
        if self.rules.moves_pods || !cluster_state.node_by_name(&task.node).is_some_and(is_lost) {
            return;
        }
        cluster_state.change_node(&task.node, |entry| {
            if let Some(own) = &mut entry.upstream {
                Arc::make_mut(own).lost_pods.retain(|pod| *pod != task.name);
            }
        });
    }

    /// Counts a task in its status on the node, or stops counting it.
    fn change_node(&self, cluster_state: &mut ClusterState, node: &str, task: &TaskRecord, joins: bool) {
        cluster_state.change_node(node, |entry| change_entry(entry, task, joins, self.rules.moves_pods));
    }

    fn add_copy(&mut self, state: &mut CycleState, task: &TaskRecord, node: &Arc<str>) -> Result<(), String> {
        if state.cluster_state.slot_of(node).is_none() {
            return Err(format!("there is no node `{node}`"));
        }
        let mut copies = self.copies(&state.cluster_state, &task.name);
        if copies.iter().any(|copy| copy.node == *node) {
            return Err(format!("task `{}` is already on node `{node}`", task.name));
        }
        self.change_node(&mut state.cluster_state, node, task, true);
        copies.push(CopiedTask::of(task, node));
        self.copies.insert(Arc::clone(&task.name), Arc::new(copies));
        Ok(())
    }

    fn remove_copy(&mut self, state: &mut CycleState, task: &TaskRecord, node: &str) {
        let mut copies = self.copies(&state.cluster_state, &task.name);
        let Some(at) = copies.iter().position(|copy| *copy.node == *node) else {
            return;
        };
        let counted = copies.remove(at).counted(task);
        self.change_node(&mut state.cluster_state, node, &counted, false);
        self.copies.insert(Arc::clone(&task.name), Arc::new(copies));
    }
}

/// Gives a task that was placed its devices. The reference has none, so nothing else changes.
fn assign_devices(state: &mut CycleState, to: &TaskPlacement, status: TaskStatus) {
    let cluster_state = &mut state.cluster_state;
    let stored = cluster_state.tasks().get(&to.task);
    let asks = stored.filter(|stored| stored.record.device_request().is_some());
    let Some((mut record, slot)) = asks
        .map(|stored| stored.record.clone())
        .zip(cluster_state.slot_of(&to.node))
    else {
        return;
    };
    record.assign_devices(cluster_state.devices_for(&record, slot, status, to.devices));
    cluster_state.set_task(record);
}

/// Takes the devices of a task that lost its place.
fn take_devices(state: &mut CycleState, task: &str) {
    let stored = state.cluster_state.tasks().get(task);
    if let Some(mut record) = stored
        .filter(|stored| stored.record.device_request().is_some())
        .map(|stored| stored.record.clone())
    {
        record.assign_devices(0);
        state.cluster_state.set_task(record);
    }
}

fn stored_task(state: &CycleState, task: &str) -> Option<Arc<StoredRecord<TaskRecord>>> {
    state.cluster_state.tasks().get(task).cloned()
}

/// Reports a task's change. Events fire for any former status of the task. An error is a panic of the reference.
fn notify_moved(
    state: &mut CycleState,
    step: RequestEffect,
    before: Option<&StoredRecord<TaskRecord>>,
    card: &str,
    outcome: &mut ChangeOutcome,
) -> Result<(), String> {
    let Some(before) = before else { return Ok(()) };
    state
        .notify_moved(step, &before.record, card, outcome)
        .map_err(|problem| problem.message)
}

/// Sets the status, and the node if one is given, of the task alone; its job is updated.
fn set_task(state: &mut CycleState, task: &str, status: TaskStatus, node: Option<&Arc<str>>) {
    let Some(stored) = state.cluster_state.tasks().get(task) else {
        return;
    };
    let node = Arc::clone(node.unwrap_or(&stored.record.node));
    let record = TaskRecord {
        node,
        status,
        ..stored.record.clone()
    };
    state.cluster_state.set_task(record);
}

type SumFn = fn(&mut WideAmounts, &ResourceAmounts);

/// Notes that a pod stays off its node for Kubernetes' filters and scores.
fn lose_pod(cluster_state: &mut ClusterState, task: &TaskRecord) {
    cluster_state.change_node(&task.node, |entry| {
        let own = entry.upstream.take();
        let mut own = own.unwrap_or_else(|| Arc::new(initial_vectors(entry)));
        add_lost(Arc::make_mut(&mut own), &task.name);
        entry.upstream = Some(own);
    });
}

fn add_lost(vectors: &mut UpstreamNode, pod: &Arc<str>) {
    if !vectors.lost_pods.contains(pod) {
        vectors.lost_pods.push(Arc::clone(pod));
    }
}

/// Counts a task in its status in a node's entry, or stops counting it: whoever reads the status reads that of the copy.
pub(super) fn change_entry(entry: &mut NodeEntry, task: &TaskRecord, joins: bool, moves_pods: bool) {
    let (forward, back): (SumFn, SumFn) = if joins { (add, subtract) } else { (subtract, add) };
    entry.usage.devices.count_task(task, joins);
    let (requests, status) = (&task.requests, task.status);
    let mut own = entry
        .upstream
        .take()
        .unwrap_or_else(|| Arc::new(initial_vectors(entry)));
    let vectors = Arc::make_mut(&mut own);
    if joins && matches!(status, TaskStatus::Allocated | TaskStatus::Pipelined) {
        if moves_pods {
            vectors.lost_pods.retain(|pod| *pod != task.name);
        } else {
            add_lost(vectors, &task.name);
        }
    }
    // A lost pod counts as one that is being released.
    let pod_status = if vectors.lost_pods.contains(&task.name) {
        TaskStatus::Releasing
    } else if status == TaskStatus::Releasing && !moves_pods {
        TaskStatus::Running
    } else {
        status
    };
    // An eviction takes the pod off for filters of Kubernetes, although the columns show it until it is gone.
    if pod_status == TaskStatus::Releasing {
        vectors.pod_sums.take_off(task, joins);
    } else {
        vectors.pod_sums.count_task(task, joins);
        vectors.pods += if joins { 1 } else { -1 };
        vectors.ports.count_task(task, joins);
    }
    if status != TaskStatus::Pipelined {
        vectors.kubernetes_delta.count_task(task, joins);
    }
    match status {
        TaskStatus::Pipelined => forward(&mut vectors.pipelined, requests),
        TaskStatus::Releasing => {
            back(&mut vectors.idle, requests);
            forward(&mut vectors.used, requests);
            forward(&mut vectors.releasing, requests);
        }
        TaskStatus::Pending
        | TaskStatus::Allocated
        | TaskStatus::Binding
        | TaskStatus::Bound
        | TaskStatus::Running
        | TaskStatus::Succeeded
        | TaskStatus::Failed
        | TaskStatus::Unknown => {
            back(&mut vectors.idle, requests);
            forward(&mut vectors.used, requests);
        }
    }
    entry.upstream = Some(own);
}

/// Vectors of a node at the beginning. Idle has no scalar where allocatable has none.
fn initial_vectors(entry: &NodeEntry) -> UpstreamNode {
    let all = |vector| -> WideAmounts {
        entry
            .resources()
            .filter_map(|id| entry.exact(id, vector).map(|amount| (id, amount)))
            .collect()
    };
    let (mut idle, used) = (all(NodeVector::Allocatable), all(NodeVector::Used));
    let scalars = idle.keys().any(|id| is_scalar(*id));
    for (id, amount) in &used {
        if scalars || !is_scalar(*id) {
            *idle.entry(*id).or_default() -= amount;
        }
    }
    let pods = |vector| entry.exact(ResourceId::PODS, vector).unwrap_or(0);
    UpstreamNode {
        pods: pods(NodeVector::Used) + pods(NodeVector::Pipelined),
        ports: entry.usage.ports.clone(),
        idle,
        used,
        releasing: all(NodeVector::Releasing),
        pipelined: all(NodeVector::Pipelined),
        kubernetes_delta: entry.kubernetes_delta(),
        pod_sums: entry.pod_sum_delta().clone(),
        lost_pods: Vec::new(),
    }
}

fn is_scalar(id: ResourceId) -> bool {
    id != ResourceId::CPU && id != ResourceId::MEMORY
}

fn add(total: &mut WideAmounts, requests: &ResourceAmounts) {
    for (id, amount) in requests.iter() {
        *total.entry(id).or_default() += i128::from(amount);
    }
}

/// Subtracts requests from a total. Scalars are skipped if the total has none.
fn subtract(total: &mut WideAmounts, requests: &ResourceAmounts) {
    let scalars = total.keys().any(|id| is_scalar(*id));
    for (id, amount) in requests.iter().filter(|(id, _)| scalars || !is_scalar(*id)) {
        *total.entry(id).or_default() -= i128::from(amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cycle::{SchedulingCycle, assume};
    use crate::decide::tests::fixtures;
    use crate::model::{NodeRecord, ResourceTable};
    use crate::plugin_state::PluginStates;
    use crate::policy::Compatibility;

    const RULES: NodeChangeRules = NodeChangeRules {
        compatibility: Compatibility::UPSTREAM,
        moves_pods: false,
    };

    #[test]
    fn a_pod_that_is_not_seen_is_noted_once_and_until_it_leaves() {
        let nodes = ["a", "b"].map(|name| NodeRecord {
            name: name.into(),
            ..NodeRecord::default()
        });
        let mut state = fixtures::cluster_state(ResourceTable::default(), nodes.to_vec());
        let task = fixtures::task(ResourceAmounts::from_iter([(ResourceId::CPU, 500)]), &[]);
        state.put_task(task.clone(), &Arc::from("test"));
        let mut cycle = SchedulingCycle::new(state, RULES, PluginStates::default());
        let name = &task.name;
        let allocate = SessionChange::Allocate(TaskPlacement {
            task: Arc::clone(name),
            node: "a".into(),
            card: Arc::default(),
            devices: 0,
        });
        let lost = |cycle: &SchedulingCycle| {
            let own = cycle.cluster_state().node_by_name("a").unwrap().upstream.clone();
            own.unwrap_or_default().lost_pods.clone()
        };
        for _ in 0..3 {
            cycle.apply(std::slice::from_ref(&allocate)).unwrap();
            assert_eq!(lost(&cycle), [Arc::clone(name)]);
            for change in [SessionChange::Evict, SessionChange::Unevict] {
                cycle.apply(&[change(Arc::clone(name))]).unwrap();
                assert_eq!(lost(&cycle), [Arc::clone(name)]);
            }
            cycle.apply(&[SessionChange::Unallocate(Arc::clone(name))]).unwrap();
            assert_eq!(lost(&cycle), []);
        }
        let mut entry = NodeEntry::clone(cycle.cluster_state().node_by_name("b").unwrap());
        let placed = TaskRecord {
            status: TaskStatus::Allocated,
            ..task.clone()
        };
        (0..3).for_each(|_| assume(&mut entry, &placed, RULES));
        assert_eq!(entry.upstream.unwrap().lost_pods, [Arc::clone(name)]);
    }
}
