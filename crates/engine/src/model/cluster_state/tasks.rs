//! Tasks of a cluster state. Each task is charged to its node and to the holdings of its job.

use std::sync::Arc;

use super::{ClusterState, slot_position};
use crate::model::{NodeSlot, NodeUsage, ResourceAmounts, ResourceTotals, StoredRecord, TaskRecord, TaskStatus};

impl ClusterState {
    /// Puts a task, replacing the one of its name, and updates its node and its job.
    pub fn put_task(&mut self, mut record: TaskRecord, source: &Arc<str>) {
        self.assumed.remove(&record.name);
        self.share_names(&mut record);
        self.count_task(&record, true);
        self.count_pod(&record, true);
        let stored = self.store_record(record, source);
        if let Some(old) = self.tasks.insert(Arc::clone(&stored.record.name), stored) {
            self.count_task(&old.record, false);
            self.count_pod(&old.record, false);
        }
    }

    /// Puts a task, replacing the one of its name, and updates its job but no node. For cycles under `compatibility:
    /// upstream`, whose nodes have task copies of their own.
    pub(crate) fn set_task(&mut self, record: TaskRecord) {
        let Some(old) = self.tasks.get(&record.name).cloned() else {
            return;
        };
        if record.status.is_allocated() {
            self.count_in_job(&record.job, &record.requests, true);
        }
        if old.record.status.is_allocated() {
            self.count_in_job(&old.record.job, &old.record.requests, false);
        }
        self.count_pod(&record, true);
        self.count_pod(&old.record, false);
        let stored = StoredRecord {
            record,
            ..StoredRecord::clone(&old)
        };
        if let Some(place) = self.tasks.get_mut(&stored.record.name) {
            *place = Arc::new(stored);
        }
    }

    /// Sets the status of a task that holds resources to another status that holds them. Nothing else changes. Returns
    /// the task. `None`: the task does not exist or holds nothing.
    pub(crate) fn set_holding_status(&mut self, name: &str, status: TaskStatus) -> Option<&TaskRecord> {
        debug_assert!(status.is_allocated(), "the task keeps its resources");
        let stored = self.tasks.get_mut(name)?;
        if !stored.record.status.is_allocated() {
            return None;
        }
        let stored = Arc::make_mut(stored);
        stored.record.status = status;
        Some(&stored.record)
    }

    /// Removes a task, and updates its node and its job.
    pub fn remove_task(&mut self, name: &str) -> bool {
        let Some(old) = self.tasks.remove(name) else {
            return false;
        };
        self.assumed.remove(name);
        self.count_task(&old.record, false);
        self.count_pod(&old.record, false);
        true
    }

    /// Adds a task's requests to the holdings of its job, or subtracts them.
    pub(crate) fn count_in_job(&mut self, job: &Arc<str>, requests: &ResourceAmounts, add: bool) {
        // Tasks without requests leave no trace in the totals.
        if job.is_empty() || requests.is_empty() {
            return;
        }
        if let Some(totals) = self.allocated.get_mut(job) {
            let own = Arc::make_mut(totals);
            own.count_all(requests, add);
            if own.is_empty() {
                self.allocated.remove(job);
            }
            return;
        }
        debug_assert!(add, "took away what was never added");
        let mut totals = ResourceTotals::default();
        totals.add(requests);
        if !totals.is_empty() {
            self.allocated.insert(Arc::clone(job), Arc::new(totals));
        }
    }

    /// Shares a task's names with earlier records of the task, its job and its node.
    fn share_names(&self, task: &mut TaskRecord) {
        fn take(own: &mut Arc<str>, known: Option<&Arc<str>>) {
            if let Some(known) = known.filter(|known| *known == own) {
                *own = Arc::clone(known);
            }
        }
        if let Some(old) = self.tasks.get(&task.name) {
            let old = &old.record;
            task.name = Arc::clone(&old.name);
            take(&mut task.job, Some(&old.job));
            take(&mut task.node, Some(&old.node));
            if task.uid == old.uid {
                task.uid = old.uid.clone();
            }
            if task.shape == old.shape {
                task.shape = Arc::clone(&old.shape);
            }
            if task.job == old.job && task.node == old.node {
                return;
            }
        }
        if !task.job.is_empty() {
            let known = self.allocated.get_key(&task.job);
            let known = known.or_else(|| self.jobs.get_key(&task.job));
            take(&mut task.job, known);
        }
        if !task.node.is_empty() {
            let known = self.node_by_name(&task.node).map(|entry| &entry.record.name);
            take(&mut task.node, known);
        }
    }

    /// Adds a task to its node and its job, or removes it.
    fn count_task(&mut self, task: &TaskRecord, add: bool) {
        if task.status.is_allocated() {
            self.count_in_job(&task.job, &task.requests, add);
        }
        if task.node.is_empty() || !task.status.is_on_node() {
            return;
        }
        let change = |usage: &mut NodeUsage| usage.count_task(task, add);
        if let Some(slot) = self.slot_of(&task.node) {
            return self.change_usage(slot, task, change);
        }
        let mut usage = self.orphan_usage.remove(&task.node).unwrap_or_default();
        change(Arc::make_mut(&mut usage));
        if !usage.is_empty() {
            self.orphan_usage.insert(Arc::clone(&task.node), usage);
        }
    }

    /// Adds a hypothetical task to a node only.
    pub(crate) fn count_on_node(&mut self, slot: NodeSlot, task: &TaskRecord) {
        self.change_usage(slot, task, |usage| usage.count_task(task, true));
    }

    /// Changes the usage of a node by a task.
    fn change_usage(&mut self, slot: NodeSlot, task: &TaskRecord, change: impl FnOnce(&mut NodeUsage)) {
        let (chunk, offset) = slot_position(slot);
        let chunk = self.chunks.get_mut(chunk).map(Arc::make_mut);
        let Some(chunk) = chunk else { return };
        if let Some(mut entry) = chunk.take_entry(offset) {
            change(&mut Arc::make_mut(&mut entry).usage);
            chunk.change_usage(offset, entry, &task.requests);
        }
    }
}
