//! Many tasks that are given nodes together: as if one were put after the other, but each chunk, node and job is changed
//! once.

use std::sync::Arc;

use smallvec::SmallVec;

use super::amounts::{ResourceId, Totals};
use super::chunk::{CHUNK, Chunk, Vector};
use super::records::{TaskRecord, TaskStatus};
use super::stored::Stored;
use super::table::Near;
use super::view::{Slot, View};
use super::whole::{Whole, beside};

/// A task that was given a node. It had none, or was not counted there.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    /// Its record before.
    pub(crate) before: Arc<Stored<TaskRecord>>,
    /// Its record now.
    pub(crate) after: Arc<Stored<TaskRecord>>,
    /// The node.
    pub(crate) slot: Slot,
}

impl View {
    /// Gives a task that counts nowhere a status and a node that is there; what both hold follows with [`Self::arrive`].
    /// `None`: there is no such task or no such node, and nothing changes.
    pub(crate) fn seat(&mut self, task: &str, status: TaskStatus, slot: Slot, near: &mut Near) -> Option<Arrival> {
        let node = Arc::clone(&self.node(slot)?.record.name);
        let place = self.tasks.get_mut_near(task, near)?;
        let before = Arc::clone(place);
        let after = Arc::new(Stored {
            record: TaskRecord {
                node,
                status,
                ..before.record.clone()
            },
            source: before.source.clone(),
            invalid: before.invalid.clone(),
        });
        *place = Arc::clone(&after);
        if !self.assumed.is_empty() {
            self.assumed.remove(task);
        }
        Some(Arrival { before, after, slot })
    }

    /// Counts tasks where they have been seated: on their nodes, and in what their jobs hold.
    pub(crate) fn arrive(&mut self, arrivals: &[Arrival]) {
        for of_job in arrivals.chunk_by(|one, next| one.after.record.job == next.after.record.job) {
            self.job_takes(of_job);
        }
        let mut by_slot: Vec<&Arrival> = arrivals.iter().collect();
        // Nodes keep the order in which their tasks came.
        by_slot.sort_by_key(|arrival| arrival.slot);
        let chunk_of = |arrival: &Arrival| arrival.slot as usize / CHUNK;
        for of_chunk in by_slot.chunk_by(|one, next| chunk_of(one) == chunk_of(next)) {
            let number = of_chunk.first().map_or(0, |first| chunk_of(first));
            let Some(chunk) = self.chunks.get_mut(number).map(Arc::make_mut) else {
                continue;
            };
            for of_node in of_chunk.chunk_by(|one, next| one.slot == next.slot) {
                chunk.take_in(of_node);
            }
        }
    }

    /// Counts tasks of one job in what it holds.
    fn job_takes(&mut self, arrivals: &[Arrival]) {
        let Some(job) = arrivals.first().map(|first| &first.after.record.job) else {
            return;
        };
        if job.is_empty() {
            return;
        }
        let mut totals = self
            .allocated
            .get(job)
            .map(|held| Totals::clone(held))
            .unwrap_or_default();
        for arrival in arrivals
            .iter()
            .filter(|arrival| arrival.after.record.status.is_allocated())
        {
            totals.add(&arrival.after.record.requests);
        }
        // Tasks that ask for nothing leave no trace in the totals.
        if !totals.is_empty() {
            self.allocated.insert(Arc::clone(job), Arc::new(totals));
        }
    }
}

impl Chunk {
    /// Counts tasks on the node that they all arrive at.
    fn take_in(&mut self, arrivals: &[&Arrival]) {
        let Some(offset) = arrivals.first().map(|first| first.slot as usize % CHUNK) else {
            return;
        };
        let Some(mut entry) = self.take_entry(offset) else {
            return;
        };
        let own = Arc::make_mut(&mut entry);
        let mut ids: SmallVec<[ResourceId; 8]> = SmallVec::new();
        // Pods without requests of cpu and memory count some in Kubernetes.
        ids.extend([ResourceId::CPU, ResourceId::MEMORY]);
        for arrival in arrivals {
            let task = &arrival.after.record;
            own.usage.add(task);
            ids.extend(task.requests.iter().map(|(id, _)| id));
        }
        if own.upstream.is_some() {
            return self.set_entry(offset, Some(entry));
        }
        ids.sort_unstable();
        ids.dedup();
        let surplus = entry.surplus();
        for id in ids {
            let used = entry.value(id, Vector::Used);
            let counted = beside(id, used, entry.whole_used(id, &surplus));
            self.set_whole(id, Whole::Requested, offset, counted);
            self.set_value(id, Vector::Used, offset, used);
            self.set_value(id, Vector::Pipelined, offset, entry.value(id, Vector::Pipelined));
        }
        self.put_back(offset, entry);
    }
}
