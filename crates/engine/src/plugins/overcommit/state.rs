//! State of the plugin: what the cluster has and uses, and what enqueued jobs are promised.
//!
//! Under `upstream` placements of a cycle change nothing before the next snapshot, as in a session of the reference; under
//! `corrected` the state follows them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::queue_accounts::{IntegerAmounts, JobRules};
use super::nodes::{has_scalars, requests_without_room};
use crate::held_bytes::held_bytes;
use crate::model::{
    ClusterState, JobPhase, JobRecord, NodeChunk, NodeVector, Problem, RecordChange, ResourceId, ResourceTotals,
    ResourceVector, SortedTable, StateDiff, TaskRecord, TaskStatus,
};
use crate::plugin_state::{PlacementEvent, PluginState, PluginStateChange, TaskTransition};
use crate::policy::Compatibility;

/// State of the plugin.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OvercommitState {
    factor: f64,
    compatibility: Compatibility,
    /// Sum over ready nodes.
    total: IntegerAmounts,
    /// Number of ready nodes that have a scalar resource.
    scalar_nodes: u32,
    /// Sum over ready nodes.
    used: IntegerAmounts,
    /// Names of tasks in Binding, under `upstream`: its nodes know only those for which they had room.
    binding: SortedTable<()>,
    /// Requests of those without room.
    unknown: IntegerAmounts,
    /// Amounts promised to all jobs, with the tentative ones.
    inqueue: IntegerAmounts,
    /// Amounts promised to jobs, by job.
    jobs: SortedTable<Arc<IntegerAmounts>>,
    /// Requests of tasks with a foreign scheduling gate, by job.
    gated: SortedTable<Arc<ResourceTotals>>,
    /// Amounts promised since the state was computed, in the order of the promises; under `corrected` until the next
    /// admission, unless the job is enqueued.
    tentative: Arc<Vec<(Arc<str>, IntegerAmounts)>>,
}

held_bytes! {
    OvercommitState {
        total, used, binding, unknown, inqueue, jobs, gated, tentative; factor, compatibility, scalar_nodes
    }
}

impl OvercommitState {
    /// State of a cluster state.
    pub(super) fn of(cluster_state: &ClusterState, factor: f64, compatibility: Compatibility) -> Self {
        let mut state = Self {
            factor,
            compatibility,
            ..Self::default()
        };
        for chunk in cluster_state.chunks().iter() {
            state.add_chunk(chunk, true);
        }
        for (_, stored) in cluster_state.tasks().iter() {
            state.count_gated(&stored.record, true);
            state.note_binding(&stored.record, true);
        }
        state.unknown = requests_without_room(cluster_state, &state.binding);
        for (job, _) in cluster_state.jobs().iter() {
            state.update_job(cluster_state, job);
        }
        for (job, _) in cluster_state.reservations().iter() {
            state.update_job(cluster_state, job);
        }
        state
    }

    /// Amounts that are not used of the total, times the factor; may be negative.
    pub fn idle(&self) -> ResourceVector {
        let mut idle = ResourceVector::from(&self.total);
        idle.scale(self.factor);
        let mut used = self.used.clone();
        used.subtract(&self.unknown);
        // The reference subtracts scalars from scalars only.
        let all = self.scalar_nodes > 0 || self.compatibility == Compatibility::Corrected;
        for (id, used) in used.iter().filter(|(id, _)| all || *id <= ResourceId::MEMORY) {
            idle.set(id, idle.amount(id) - used as f64);
        }
        idle
    }

    /// Factor of the total.
    pub fn factor(&self) -> f64 {
        self.factor
    }

    /// Amounts of all ready nodes.
    pub fn total(&self) -> ResourceVector {
        ResourceVector::from(&self.total)
    }

    /// Amounts promised to jobs.
    pub fn inqueue(&self) -> ResourceVector {
        ResourceVector::from(&self.inqueue)
    }

    /// Amounts that would be promised with a job. Under `corrected` what the job has already counts once.
    pub(super) fn inqueue_with(&self, cluster_state: &ClusterState, job: &JobRecord) -> ResourceVector {
        let mut sum = self.inqueue.clone();
        let mut asked = self.minimum(job);
        if self.compatibility == Compatibility::Corrected {
            asked = asked.above(&held(cluster_state, &job.name));
            sum.subtract(&self.promised(&job.name));
        }
        sum.add(&asked);
        let mut needed = ResourceVector::from(&sum);
        // What negative promises make up for is 0, and still there: a vector without scalars fits whatever its request.
        for (id, _) in asked.iter() {
            needed.set(id, needed.amount(id));
        }
        needed
    }

    /// Amounts that a job is promised when it is enqueued.
    pub(super) fn reserve_of(&self, job: &JobRecord) -> IntegerAmounts {
        self.ungated(&job.name, self.minimum(job))
    }

    /// Promises a permitted job its minimum; under `corrected` until the next admission.
    pub(super) fn enqueue_tentatively(&mut self, cluster_state: &ClusterState, job: &JobRecord) {
        let mut promise = self.reserve_of(job);
        if self.compatibility == Compatibility::Corrected {
            promise = promise.above(&held(cluster_state, &job.name));
            promise = promise.above(&self.promised(&job.name));
        }
        self.inqueue.add(&promise);
        Arc::make_mut(&mut self.tentative).push((Arc::clone(&job.name), promise));
    }

    /// Ends the promises to jobs that were not enqueued. Under `upstream` they all stay, as in the reference.
    pub(super) fn end_tentative(&mut self) {
        if self.compatibility == Compatibility::Corrected {
            self.release_tentative();
        }
    }

    fn release_tentative(&mut self) {
        for (_, promise) in std::mem::take(&mut self.tentative).iter() {
            self.inqueue.subtract(promise);
        }
    }

    fn release_tentative_of(&mut self, job: &str) {
        if self.tentative.iter().any(|(own, _)| **own == *job) {
            let list = std::mem::take(&mut self.tentative);
            let (own, others): (Vec<_>, Vec<_>) = list.iter().cloned().partition(|(own, _)| **own == *job);
            self.tentative = Arc::new(others);
            for (_, promise) in own {
                self.inqueue.subtract(&promise);
            }
        }
    }

    /// All that a job is promised.
    fn promised(&self, job: &str) -> IntegerAmounts {
        let mut promised = self
            .jobs
            .get(job)
            .map(|own| IntegerAmounts::clone(own))
            .unwrap_or_default();
        for (_, tentative) in self.tentative.iter().filter(|(own, _)| **own == *job) {
            promised.add(tentative);
        }
        promised
    }

    fn add_chunk(&mut self, chunk: &NodeChunk, joins: bool) {
        for entry in chunk.live().iter().filter_map(|offset| chunk.entry(offset)) {
            if !entry.record.is_ready(self.compatibility) {
                continue;
            }
            let scalars = u32::from(has_scalars(entry));
            self.scalar_nodes = if joins {
                self.scalar_nodes.saturating_add(scalars)
            } else {
                self.scalar_nodes.saturating_sub(scalars)
            };
            for id in entry.resources().collect::<BTreeSet<ResourceId>>() {
                let sums = [
                    (NodeVector::Allocatable, &mut self.total),
                    (NodeVector::Used, &mut self.used),
                ];
                for (vector, sum) in sums {
                    let amount = entry.exact(id, vector).unwrap_or(0);
                    sum.change(id, if joins { amount } else { -amount });
                }
            }
        }
    }

    /// Notes that a task is in Binding, or no longer.
    fn note_binding(&mut self, task: &TaskRecord, joins: bool) {
        if self.compatibility == Compatibility::Corrected || task.status != TaskStatus::Binding {
            return;
        }
        if joins {
            self.binding.insert(Arc::clone(&task.name), ());
        } else {
            self.binding.remove(&task.name);
        }
    }

    /// Counts the requests of a task with a foreign gate in its job, or stops counting them.
    fn count_gated(&mut self, task: &TaskRecord, joins: bool) {
        if task.job.is_empty() || !task.is_withheld(self.compatibility.release().rules().counts_queue_gated) {
            return;
        }
        if !self.gated.contains(&task.job) {
            self.gated.insert(Arc::clone(&task.job), Arc::default());
        }
        if let Some(totals) = self.gated.get_mut(&task.job) {
            let totals = Arc::make_mut(totals);
            totals.count_all(&task.requests, joins);
            if totals.is_empty() {
                self.gated.remove(&task.job);
            }
        }
    }

    /// Amounts without the requests of a job's gated tasks.
    fn ungated(&self, job: &str, amounts: IntegerAmounts) -> IntegerAmounts {
        match self.gated.get(job) {
            Some(gated) => amounts.ungated(&IntegerAmounts::from(&**gated)),
            None => amounts,
        }
    }

    /// Amounts that a job is promised by its phase, or by the ledger.
    fn promise_of(&self, cluster_state: &ClusterState, name: &str) -> IntegerAmounts {
        let stored = cluster_state.jobs().get(name).map(|stored| &stored.record);
        let in_session = |job: &&JobRecord| cluster_state.queues().contains(&job.queue);
        if let Some(job) = stored.filter(in_session).filter(|job| job.min_resources.is_some()) {
            let holding = cluster_state.job_allocated(name).map_or(0, ResourceTotals::records);
            match job.phase {
                JobPhase::Inqueue if self.compatibility.is_upstream() => return self.reserve_of(job),
                JobPhase::Inqueue => return self.rest(cluster_state, job),
                JobPhase::Running if i64::from(holding) >= i64::from(job.min_member) => {
                    return self.rest(cluster_state, job);
                }
                JobPhase::Unspecified
                | JobPhase::Pending
                | JobPhase::Running
                | JobPhase::Unknown
                | JobPhase::Completed => {}
            }
        }
        let Some(row) = cluster_state.reservations().get(name) else {
            return IntegerAmounts::default();
        };
        let promised = IntegerAmounts::of_names(cluster_state.resources(), &row.amounts);
        promised.above(&held(cluster_state, name))
    }

    /// Amounts of a job's minimum that it does not hold yet, without those of gated tasks.
    fn rest(&self, cluster_state: &ClusterState, job: &JobRecord) -> IntegerAmounts {
        let rules = JobRules::of(self.compatibility, cluster_state.resources());
        let rest = rules.rest(&self.minimum(job), &held(cluster_state, &job.name));
        self.ungated(&job.name, rest)
    }

    fn minimum(&self, job: &JobRecord) -> IntegerAmounts {
        let rules = JobRules {
            compatibility: self.compatibility,
            left_out: None,
        };
        rules.minimum(job).unwrap_or_default()
    }

    /// Computes the promise to a job again.
    fn update_job(&mut self, cluster_state: &ClusterState, job: &Arc<str>) {
        let promise = self.promise_of(cluster_state, job);
        self.inqueue.add(&promise);
        let before = if promise.is_empty() {
            self.jobs.remove(job)
        } else {
            self.jobs.insert(Arc::clone(job), Arc::new(promise))
        };
        if let Some(before) = before {
            self.inqueue.subtract(&before);
        }
    }

    /// Follows a task of a cycle, without the promise to its job.
    fn move_task(&mut self, cluster_state: &ClusterState, moved: &TaskTransition<'_>) {
        for (task, joins) in [(moved.before, false), (moved.after, true)] {
            let is_ready = || {
                let node = cluster_state.node_by_name(&task.node);
                node.is_some_and(|node| node.record.is_ready(self.compatibility))
            };
            // Repeated tasks name no nodes, but every placement is on a ready node.
            if task.status.is_used() && (moved.repeated.is_some() || is_ready()) {
                let times = i128::from(moved.count());
                self.used.add_record(&task.requests, if joins { times } else { -times });
            }
            self.count_gated(task, joins);
        }
    }
}

fn held(cluster_state: &ClusterState, job: &str) -> IntegerAmounts {
    cluster_state
        .job_allocated(job)
        .map(IntegerAmounts::from)
        .unwrap_or_default()
}

impl PluginState for OvercommitState {
    /// The promise to a job is computed once for its tasks: it depends on what the job holds after all of them.
    fn apply(&mut self, change: &PluginStateChange<'_>) -> Result<Vec<Arc<str>>, Problem> {
        let (cluster_state, events) = match change {
            PluginStateChange::Events(cluster_state, events) => (cluster_state, events),
            PluginStateChange::Step(changes) => {
                self.step(changes)?;
                return Ok(Vec::new());
            }
        };
        for of_job in events.chunk_by(PlacementEvent::moves_same_job) {
            let mut tasks = of_job.iter().filter_map(PlacementEvent::moved_task).peekable();
            if let Some((first, _)) = tasks.peek().copied() {
                if self.compatibility == Compatibility::Corrected {
                    tasks.for_each(|(moved, _)| self.move_task(cluster_state, &moved));
                    self.update_job(cluster_state, &first.after.job);
                }
                continue;
            }
            for event in of_job {
                match event {
                    PlacementEvent::Enqueue(job) => {
                        self.release_tentative_of(job);
                        self.update_job(cluster_state, &Arc::from(*job));
                    }
                    PlacementEvent::Dequeue(job) | PlacementEvent::Reserve(job) => self.update_job(cluster_state, job),
                    PlacementEvent::Allocate(_) | PlacementEvent::Pipeline(_) | PlacementEvent::Deallocate(_) => {}
                }
            }
        }
        Ok(Vec::new())
    }
}

impl OvercommitState {
    /// Steps to the newer cluster state.
    fn step(&mut self, changes: &StateDiff<'_>) -> Result<(), Problem> {
        let appeared = |queue: RecordChange<'_, _>| queue.before.is_none() || queue.after.is_none();
        if changes.queues().into_iter().any(appeared) {
            // Jobs count only in queues that exist.
            return Err(PluginStateChange::unfollowed());
        }
        self.release_tentative();
        let (old, new) = (changes.old.chunks(), changes.new.chunks());
        for number in 0..old.len().max(new.len()) {
            let (old, new) = (old.get(number), new.get(number));
            let shared = old.zip(new).is_some_and(|(old, new)| Arc::ptr_eq(old, new));
            for (chunk, joins) in [(new, true), (old, false)] {
                if let (false, Some(chunk)) = (shared, chunk) {
                    self.add_chunk(chunk, joins);
                }
            }
        }
        let mut jobs: BTreeSet<&Arc<str>> = changes.jobs().into_iter().map(|job| job.name).collect();
        let tasks = changes.tasks();
        for task in &tasks {
            for (record, joins) in [(task.before, false), (task.after, true)] {
                if let Some(record) = record {
                    self.note_binding(record, joins);
                }
                if let Some(record) = record.filter(|record| !record.job.is_empty()) {
                    self.count_gated(record, joins);
                    jobs.insert(&record.job);
                }
            }
        }
        self.unknown = requests_without_room(changes.new, &self.binding);
        let same = |one: &Arc<_>, other: &Arc<_>| Arc::ptr_eq(one, other) || one == other;
        let rows = changes.old.reservations().differences(changes.new.reservations(), same);
        jobs.extend(rows.into_iter().map(|(job, _, _)| job));
        for job in jobs {
            self.update_job(changes.new, job);
        }
        Ok(())
    }
}
