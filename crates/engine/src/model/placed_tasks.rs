//! Placement of many tasks at once: the result equals placing one after the other, but each chunk, node and job changes
//! once.

use std::sync::Arc;

use super::amounts::{ResourceAmounts, ResourceTotals};
use super::chunk::NodeChunk;
use super::cluster_state::ClusterState;
use super::mask::CHUNK_SIZE;
use super::records::{TaskRecord, TaskStatus};
use super::stored::{NodeSlot, StoredRecord};
use super::table::TableCursor;
use super::uniform_arrival::UniformArrival;
use crate::devices::DeviceMask;

/// Task that was assigned to a node. Before, it had no node or was not charged to the node.
#[derive(Clone, Debug)]
pub(crate) struct PlacedTask {
    /// Record before the placement.
    pub(crate) before: Arc<StoredRecord<TaskRecord>>,
    /// Record after the placement.
    pub(crate) after: Arc<StoredRecord<TaskRecord>>,
    /// Slot of the node.
    pub(crate) slot: NodeSlot,
}

impl ClusterState {
    /// Sets status and node of a task that is not charged to any node. [`Self::count_placed`] then charges it to the
    /// node and its job. The task was found at the cursor. `None`: the node does not exist, and nothing changes.
    pub(crate) fn assign_node(
        &mut self,
        before: Arc<StoredRecord<TaskRecord>>,
        status: TaskStatus,
        (slot, devices): (NodeSlot, DeviceMask),
        near: &TableCursor,
    ) -> Option<PlacedTask> {
        let node = Arc::clone(&self.node(slot)?.record.name);
        let mut record = TaskRecord {
            node,
            status,
            ..before.record.clone()
        };
        if before.record.device_request().is_some() {
            record.assign_devices(self.devices_for(&before.record, slot, status, devices));
        }
        let after = Arc::new(StoredRecord {
            record,
            source: before.source.clone(),
        });
        *self.tasks.found_mut(near)? = Arc::clone(&after);
        if !self.assumed.is_empty() {
            self.assumed.remove(&after.record.name);
        }
        Some(PlacedTask { before, after, slot })
    }

    /// Charges placed tasks to their nodes and to the holdings of their jobs.
    pub(crate) fn count_placed(&mut self, arrivals: &[PlacedTask]) {
        for arrival in arrivals {
            self.count_pod(&arrival.after.record, true);
        }
        for of_job in arrivals.chunk_by(|one, next| one.after.record.job == next.after.record.job) {
            self.count_batch_in_job(of_job);
        }
        let mut kinds = Vec::new();
        let mut comers: Vec<NodeArrival<'_>> = Vec::with_capacity(arrivals.len());
        for alike in arrivals.chunk_by(PlacedTask::is_uniform_with) {
            let kind = kinds.len();
            kinds.extend(alike.first().map(|first| UniformArrival::of(&first.after.record)));
            comers.extend(alike.iter().map(|arrival| NodeArrival {
                slot: arrival.slot,
                arrival_index: kind,
                task: &arrival.after.record,
            }));
        }
        comers.sort_unstable_by_key(|comer| (comer.slot, comer.arrival_index));
        let chunk_of = |comer: &NodeArrival<'_>| comer.slot as usize / CHUNK_SIZE;
        for of_chunk in comers.chunk_by(|one, next| chunk_of(one) == chunk_of(next)) {
            let number = of_chunk.first().map_or(0, chunk_of);
            let Some(chunk) = self.chunks.get_mut(number).map(Arc::make_mut) else {
                continue;
            };
            for of_node in of_chunk.chunk_by(|one, next| one.slot == next.slot) {
                chunk.add_tasks(of_node, &kinds);
            }
        }
    }

    /// Adds tasks of one job to the job's holdings.
    fn count_batch_in_job(&mut self, arrivals: &[PlacedTask]) {
        let Some(job) = arrivals.first().map(|first| &first.after.record.job) else {
            return;
        };
        if job.is_empty() {
            return;
        }
        let mut totals = self
            .allocated
            .get(job)
            .map(|held| ResourceTotals::clone(held))
            .unwrap_or_default();
        for arrival in arrivals
            .iter()
            .filter(|arrival| arrival.after.record.status.is_allocated())
        {
            totals.add(&arrival.after.record.requests);
        }
        // Tasks without requests leave no trace in the totals.
        if !totals.is_empty() {
            self.allocated.insert(Arc::clone(job), Arc::new(totals));
        }
    }
}

impl PlacedTask {
    /// True if both tasks change a node's usage equally.
    fn is_uniform_with(&self, other: &Self) -> bool {
        let (one, other) = (&self.after.record, &other.after.record);
        one.status == other.status && Arc::ptr_eq(&one.shape, &other.shape)
    }
}

/// Task that is charged to a node.
#[derive(Clone, Copy, Debug)]
struct NodeArrival<'a> {
    slot: NodeSlot,
    /// Index of the task's kind. Tasks of one kind change a node's usage equally.
    arrival_index: usize,
    task: &'a TaskRecord,
}

impl NodeChunk {
    /// Charges tasks to their common node.
    fn add_tasks(&mut self, comers: &[NodeArrival<'_>], kinds: &[UniformArrival]) {
        let Some(offset) = comers.first().map(|first| first.slot as usize % CHUNK_SIZE) else {
            return;
        };
        let Some(mut entry) = self.take_entry(offset) else {
            return;
        };
        let own = Arc::make_mut(&mut entry);
        for comer in comers {
            own.usage.count_task(comer.task, true);
        }
        if own.upstream.is_some() {
            return self.set_entry(offset, Some(entry));
        }
        let join = |alike: &[NodeArrival<'_>]| {
            let kind = alike.first().and_then(|first| kinds.get(first.arrival_index));
            let times = u32::try_from(alike.len()).ok();
            kind.zip(times)
                .is_some_and(|(kind, times)| self.add_uniform(offset, kind, times))
        };
        if comers
            .chunk_by(|one, next| one.arrival_index == next.arrival_index)
            .all(join)
        {
            return self.restore_entry(offset, entry);
        }
        // The columns do not show the integers exactly.
        let ids = comers.iter().flat_map(|comer| comer.task.requests.iter());
        let amounts: ResourceAmounts = ids.map(|(id, _)| (id, 0)).collect();
        self.change_usage(offset, entry, &amounts);
    }
}
