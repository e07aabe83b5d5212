//! State of the plugin: what the cluster has and uses, and what enqueued jobs are promised.
//!
//! Under `upstream` placements of a cycle change nothing before the next snapshot, as in a session of the reference; under
//! `corrected` the state follows them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::queue_accounts::IntegerAmounts;
use super::nodes::{has_scalars, requests_without_room, resources_of};
use crate::model::{
    ClusterState, JobPhase, JobRecord, NodeChunk, NodeVector, Problem, ResourceId, ResourceTotals, ResourceVector,
    SortedTable, StateDiff, TaskRecord, TaskStatus,
};
use crate::plugin_state::{PlacementEvent, PluginState, TaskTransition, older_as};
use crate::policy::Compatibility;

/// Resource that the reference leaves out of what a job still needs.
const LEFT_OUT: &str = "ephemeral-storage";

/// State of the plugin.
#[derive(Clone, Debug)]
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

impl PartialEq for OvercommitState {
    fn eq(&self, other: &Self) -> bool {
        let own = (
            &self.total,
            self.scalar_nodes,
            &self.used,
            &self.unknown,
            &self.inqueue,
            &self.tentative,
        );
        own == (
            &other.total,
            other.scalar_nodes,
            &other.used,
            &other.unknown,
            &other.inqueue,
            &other.tentative,
        ) && self.binding.iter().eq(other.binding.iter())
            && self.jobs.iter().eq(other.jobs.iter())
            && self.gated.iter().eq(other.gated.iter())
    }
}

impl OvercommitState {
    /// State of a cluster state.
    pub(super) fn of(cluster_state: &ClusterState, factor: f64, compatibility: Compatibility) -> Self {
        let mut state = Self {
            factor,
            compatibility,
            total: IntegerAmounts::default(),
            scalar_nodes: 0,
            used: IntegerAmounts::default(),
            binding: SortedTable::default(),
            unknown: IntegerAmounts::default(),
            inqueue: IntegerAmounts::default(),
            jobs: SortedTable::default(),
            gated: SortedTable::default(),
            tentative: Arc::default(),
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
            for id in resources_of(entry) {
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
        if task.job.is_empty() || !task.has_foreign_gate() {
            return;
        }
        if !self.gated.contains(&task.job) {
            self.gated.insert(Arc::clone(&task.job), Arc::default());
        }
        if let Some(totals) = self.gated.get_mut(&task.job) {
            let totals = Arc::make_mut(totals);
            if joins {
                totals.add(&task.requests);
            } else {
                totals.subtract(&task.requests);
            }
            if totals.is_empty() {
                self.gated.remove(&task.job);
            }
        }
    }

    /// Amounts without the requests of gated tasks, if these request more than pods. Scalars that no gated task requests stay.
    fn ungated(&self, job: &str, amounts: IntegerAmounts) -> IntegerAmounts {
        let gated = self.gated.get(job).map(|totals| IntegerAmounts::from(&**totals));
        match gated {
            Some(gated) if gated.iter().any(|(id, _)| id != ResourceId::PODS) => {
                let mut left = amounts.above(&gated);
                left.add(&amounts.negative_beside(&gated, ResourceId::MEMORY));
                left
            }
            _ => amounts,
        }
    }

    /// Amounts that a job is promised by its phase, or by the ledger.
    fn promise_of(&self, cluster_state: &ClusterState, name: &str) -> IntegerAmounts {
        let stored = cluster_state.jobs().get(name).map(|stored| &stored.record);
        let in_session = |job: &&JobRecord| cluster_state.queues().contains(&job.queue);
        if let Some(job) = stored.filter(in_session).filter(|job| job.min_resources.is_some()) {
            let holding = cluster_state.job_allocated(name).map_or(0, ResourceTotals::records);
            match job.phase {
                JobPhase::Inqueue if self.compatibility == Compatibility::Upstream => return self.reserve_of(job),
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
        let names = cluster_state.resources();
        let known = row
            .amounts
            .iter()
            .filter_map(|(name, amount)| Some((names.get(name)?, *amount)));
        let promised: IntegerAmounts = known.collect();
        promised.above(&held(cluster_state, name))
    }

    /// Amounts of a job's minimum that it does not hold yet, without those of gated tasks.
    fn rest(&self, cluster_state: &ClusterState, job: &JobRecord) -> IntegerAmounts {
        let (minimum, held) = (self.minimum(job), held(cluster_state, &job.name));
        let mut rest = minimum.above(&held);
        // A scalar that the job does not hold counts as it is written.
        rest.add(&minimum.negative_beside(&held, ResourceId::PODS));
        if let (Compatibility::Upstream, Some(id)) = (self.compatibility, cluster_state.resources().get(LEFT_OUT)) {
            rest.change(id, -rest.get(id));
        }
        self.ungated(&job.name, rest)
    }

    /// Least that a job needs. Negative amounts count under `upstream` only.
    fn minimum(&self, job: &JobRecord) -> IntegerAmounts {
        job.min_resources
            .as_ref()
            .map_or_else(IntegerAmounts::default, |min| match self.compatibility {
                Compatibility::Upstream => IntegerAmounts::from(min),
                Compatibility::Corrected => IntegerAmounts::from(&min.without_negatives()),
            })
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
            let is_counted = task.status.is_used()
                && cluster_state
                    .node_by_name(&task.node)
                    .is_some_and(|node| node.record.is_ready(self.compatibility));
            if is_counted {
                self.used.add_record(&task.requests, if joins { 1 } else { -1 });
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
    fn apply(&mut self, cluster_state: &ClusterState, event: &PlacementEvent<'_>) -> Result<Vec<Arc<str>>, Problem> {
        match event {
            PlacementEvent::Allocate(moved) | PlacementEvent::Pipeline(moved) | PlacementEvent::Deallocate(moved) => {
                if self.compatibility == Compatibility::Corrected {
                    self.move_task(cluster_state, moved);
                    self.update_job(cluster_state, &moved.after.job);
                }
            }
            PlacementEvent::Enqueue(job) => {
                self.release_tentative_of(job);
                self.update_job(cluster_state, &Arc::from(*job));
            }
            PlacementEvent::Dequeue(job) | PlacementEvent::Reserve(job) => self.update_job(cluster_state, job),
        }
        Ok(Vec::new())
    }

    fn apply_repeated(
        &mut self,
        cluster_state: &ClusterState,
        event: &PlacementEvent<'_>,
        times: u64,
    ) -> Result<(), Problem> {
        if let (Some(moved), Compatibility::Corrected) = (event.counted_task(), self.compatibility) {
            // The nodes are not named, but ready, as those of all placements.
            for (task, sign) in [(moved.before, -1), (moved.after, 1)] {
                if task.status.is_used() {
                    self.used.add_record(&task.requests, i128::from(times) * sign);
                }
            }
            self.update_job(cluster_state, &moved.after.job);
        }
        Ok(())
    }

    /// The promise to a job is computed once for its tasks: it depends on what the job holds after all of them.
    fn apply_batch(
        &mut self,
        cluster_state: &ClusterState,
        events: &[PlacementEvent<'_>],
    ) -> Result<BTreeSet<Arc<str>>, Problem> {
        for of_job in events.chunk_by(PlacementEvent::counts_same_job) {
            let Some(first) = of_job.first().and_then(PlacementEvent::counted_task) else {
                for event in of_job {
                    self.apply(cluster_state, event)?;
                }
                continue;
            };
            if self.compatibility == Compatibility::Corrected {
                for moved in of_job.iter().filter_map(PlacementEvent::counted_task) {
                    self.move_task(cluster_state, moved);
                }
                self.update_job(cluster_state, &first.after.job);
            }
        }
        Ok(BTreeSet::new())
    }

    fn advance(&self, changes: &StateDiff<'_>) -> Option<Arc<dyn PluginState>> {
        let appeared = |queue: crate::model::RecordChange<'_, _>| queue.before.is_none() || queue.after.is_none();
        if changes.queues().into_iter().any(appeared) {
            // Jobs count only in queues that exist.
            return None;
        }
        let mut state = self.clone();
        state.release_tentative();
        let (old, new) = (changes.old.chunks(), changes.new.chunks());
        for number in 0..old.len().max(new.len()) {
            let (old, new) = (old.get(number), new.get(number));
            let shared = old.zip(new).is_some_and(|(old, new)| Arc::ptr_eq(old, new));
            for (chunk, joins) in [(new, true), (old, false)] {
                if let (false, Some(chunk)) = (shared, chunk) {
                    state.add_chunk(chunk, joins);
                }
            }
        }
        let mut jobs: BTreeSet<&Arc<str>> = changes.jobs().into_iter().map(|job| job.name).collect();
        for task in changes.tasks() {
            for (record, joins) in [(task.before, false), (task.after, true)] {
                if let Some(record) = record {
                    state.note_binding(record, joins);
                }
                if let Some(record) = record.filter(|record| !record.job.is_empty()) {
                    state.count_gated(record, joins);
                    jobs.insert(&record.job);
                }
            }
        }
        state.unknown = requests_without_room(changes.new, &state.binding);
        let same = |one: &Arc<_>, other: &Arc<_>| Arc::ptr_eq(one, other) || one == other;
        let rows = changes.old.reservations().differences(changes.new.reservations(), same);
        jobs.extend(rows.into_iter().map(|(job, _, _)| job));
        for job in jobs {
            state.update_job(changes.new, job);
        }
        Some(Arc::new(state))
    }

    fn held_bytes(&self, older: Option<&dyn PluginState>) -> usize {
        let older = older_as::<Self>(older);
        let (jobs, gated) = older
            .map(|older| (older.jobs.clone(), older.gated.clone()))
            .unwrap_or_default();
        let sums = [&self.total, &self.used, &self.inqueue];
        let mut sum = size_of::<Self>()
            + sums.map(IntegerAmounts::held_bytes).iter().sum::<usize>()
            + self.binding.len() * size_of::<(Arc<str>, ())>()
            + self.jobs.unshared_bytes(&jobs)
            + self.gated.unshared_bytes(&gated);
        self.jobs.unshared_entries(&jobs, |own, before| {
            if !before.is_some_and(|before| Arc::ptr_eq(before, own)) {
                sum += size_of::<IntegerAmounts>() + own.held_bytes();
            }
        });
        self.gated.unshared_entries(&gated, |own, before| {
            if !before.is_some_and(|before| Arc::ptr_eq(before, own)) {
                sum += size_of::<ResourceTotals>() + own.iter().count() * size_of::<(ResourceId, i128)>();
            }
        });
        sum
    }

    fn copy(&self) -> Arc<dyn PluginState> {
        Arc::new(self.clone())
    }
}
