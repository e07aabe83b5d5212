//! Many tasks that are given nodes together: as if one were put after the other, but each chunk, node and job is changed
//! once.

use std::sync::Arc;

use super::amounts::{Amounts, Totals};
use super::chunk::{CHUNK, Chunk};
use super::joining::Joining;
use super::records::{TaskRecord, TaskStatus};
use super::stored::Stored;
use super::table::Near;
use super::view::{Slot, View};

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
        let mut kinds = Vec::new();
        let mut comers: Vec<Comer<'_>> = Vec::with_capacity(arrivals.len());
        for alike in arrivals.chunk_by(Arrival::counts_like) {
            let kind = kinds.len();
            kinds.extend(alike.first().map(|first| Joining::of(&first.after.record)));
            comers.extend(alike.iter().map(|arrival| Comer {
                slot: arrival.slot,
                kind,
                task: &arrival.after.record,
            }));
        }
        comers.sort_unstable_by_key(|comer| (comer.slot, comer.kind));
        let chunk_of = |comer: &Comer<'_>| comer.slot as usize / CHUNK;
        for of_chunk in comers.chunk_by(|one, next| chunk_of(one) == chunk_of(next)) {
            let number = of_chunk.first().map_or(0, chunk_of);
            let Some(chunk) = self.chunks.get_mut(number).map(Arc::make_mut) else {
                continue;
            };
            for of_node in of_chunk.chunk_by(|one, next| one.slot == next.slot) {
                chunk.take_in(of_node, &kinds);
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

impl Arrival {
    /// True if both count alike on a node.
    fn counts_like(&self, other: &Self) -> bool {
        let (one, other) = (&self.after.record, &other.after.record);
        one.status == other.status && Arc::ptr_eq(&one.shape, &other.shape)
    }
}

/// A task on its way to a node.
#[derive(Clone, Copy, Debug)]
struct Comer<'a> {
    slot: Slot,
    /// Which kind it is of: tasks of one kind count alike.
    kind: usize,
    task: &'a TaskRecord,
}

impl Chunk {
    /// Counts tasks on the node that they all come to.
    fn take_in(&mut self, comers: &[Comer<'_>], kinds: &[Joining]) {
        let Some(offset) = comers.first().map(|first| first.slot as usize % CHUNK) else {
            return;
        };
        let Some(mut entry) = self.take_entry(offset) else {
            return;
        };
        let own = Arc::make_mut(&mut entry);
        for comer in comers {
            own.usage.add(comer.task);
        }
        if own.upstream.is_some() {
            return self.set_entry(offset, Some(entry));
        }
        let join = |alike: &[Comer<'_>]| {
            let kind = alike.first().and_then(|first| kinds.get(first.kind));
            let times = u32::try_from(alike.len()).ok();
            kind.zip(times)
                .is_some_and(|(kind, times)| self.join(offset, kind, times))
        };
        if comers.chunk_by(|one, next| one.kind == next.kind).all(join) {
            return self.put_back(offset, entry);
        }
        // Columns do not tell all of it.
        let ids = comers.iter().flat_map(|comer| comer.task.requests.iter());
        let amounts: Amounts = ids.map(|(id, _)| (id, 0)).collect();
        self.change_usage(offset, entry, &amounts);
    }
}
