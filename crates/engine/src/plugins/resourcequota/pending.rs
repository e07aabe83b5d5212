//! Minimums of jobs that may start and that no quota counts yet, because their pods do not exist.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::job_tallies::JobTallies;
use super::compared_name;
use crate::held_bytes::held_bytes;
use crate::model::resource_name::{AmountUnit, ResourceKind};
use crate::model::{ClusterState, ExactQuantities, JobPhase, JobRecord, Problem, SortedTable, StateDiff, namespace_of};
use crate::plugin_state::{PlacementEvent, PluginState, PluginStateChange};
use crate::policy::Compatibility;

/// Minimum resources of a job by the names that quotas compare; `None`: it has none.
pub(super) fn minimum(
    cluster_state: &ClusterState,
    job: &JobRecord,
    compatibility: Compatibility,
) -> Option<ExactQuantities> {
    let written = job.min_resources.as_ref()?;
    let exact = job.gang.as_ref().map(|gang| &gang.exact_minimum);
    let counted = written.iter().filter_map(|(id, amount)| {
        let name = cluster_state.resources().shared_name(id)?;
        let one = match ResourceKind::of(name).unit() {
            AmountUnit::Milli => 1_000_000,
            AmountUnit::Whole => 1_000_000_000,
        };
        let is_exact = exact.is_none_or(|exact| exact.get(name).is_none());
        is_exact.then(|| (name, i128::from(amount) * one))
    });
    let mut own = ExactQuantities::default();
    let exact = exact.into_iter().flat_map(ExactQuantities::iter);
    // Volcano's controllers write `cpu` and `requests.cpu`: the larger amount is compared.
    for (name, amount) in counted.chain(exact) {
        let compared = compared_name(name, compatibility);
        let known = own.get(compared);
        let more = known.map_or(amount, |known| (amount - known).max(0));
        if *compared == **name {
            own.add(name, more);
        } else {
            own.add(&Arc::from(compared), more);
        }
    }
    Some(own)
}

/// State of the plugin.
///
/// Under `upstream` these are the jobs that were enqueued since the state was computed: what earlier cycles enqueued is
/// forgotten. Under `corrected` each job in phase Inqueue counts until its first pod exists, once.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PendingMinimums {
    compatibility: Compatibility,
    /// Numbers of tasks of jobs, under `corrected`.
    tallies: JobTallies,
    /// Minimums of jobs with a reservation, and under `corrected` of jobs in phase Inqueue.
    jobs: SortedTable<Arc<ExactQuantities>>,
    /// Minimums of jobs that were enqueued since, in order; under `corrected` until the next admission or until the job is
    /// enqueued for good.
    tentative: Arc<Vec<(Arc<str>, Arc<ExactQuantities>)>>,
    /// Sums of all of them by namespace, without amounts of 0.
    namespaces: SortedTable<Arc<ExactQuantities>>,
}

held_bytes! { PendingMinimums { tallies, jobs, tentative, namespaces; compatibility } }

impl PendingMinimums {
    /// State of a cluster state.
    pub(super) fn of(cluster_state: &ClusterState, compatibility: Compatibility) -> Self {
        let mut state = Self {
            compatibility,
            ..Self::default()
        };
        if compatibility == Compatibility::Corrected {
            state.tallies = JobTallies::of(cluster_state);
            for (job, _) in cluster_state.jobs().iter() {
                state.update_job(cluster_state, job);
            }
        }
        for (job, _) in cluster_state.reservations().iter() {
            state.update_job(cluster_state, job);
        }
        state
    }

    /// Pending amount of a name in the namespace of a job. Under `corrected` the job itself does not count.
    pub(super) fn pending_beside(&self, job: &JobRecord, name: &str) -> i128 {
        let sum = self.namespaces.get(namespace_of(&job.name));
        let sum = sum.and_then(|sum| sum.get(name)).unwrap_or(0);
        if self.compatibility.is_upstream() {
            return sum;
        }
        let stored = self.jobs.get(&job.name).into_iter();
        let tentative = self.tentative.iter().filter(|(own, _)| *own == job.name);
        let own = stored.chain(tentative.map(|(_, own)| own));
        sum - own.filter_map(|own| own.get(name)).sum::<i128>()
    }

    /// Counts a permitted job; under `corrected` until the next admission.
    pub(super) fn enqueue_tentatively(&mut self, cluster_state: &ClusterState, job: &JobRecord) {
        let is_counted = self.jobs.contains(&job.name) || self.tentative.iter().any(|(own, _)| *own == job.name);
        if self.compatibility == Compatibility::Corrected && is_counted {
            return;
        }
        if let Some(own) = minimum(cluster_state, job, self.compatibility) {
            self.add(&job.name, &own, true);
            Arc::make_mut(&mut self.tentative).push((Arc::clone(&job.name), Arc::new(own)));
        }
    }

    /// Ends what is counted of jobs that were not enqueued. Under `upstream` they all stay, as in the reference.
    pub(super) fn end_tentative(&mut self) {
        if self.compatibility == Compatibility::Corrected {
            self.end_tentative_of(None);
        }
    }

    /// Ends what was counted of a job since the state was computed. `None`: of all jobs.
    fn end_tentative_of(&mut self, job: Option<&str>) {
        let is_one = |own: &Arc<str>| job.is_none_or(|job| **own == *job);
        if self.tentative.iter().any(|(own, _)| is_one(own)) {
            let all = std::mem::take(&mut self.tentative);
            let (ended, left): (Vec<_>, Vec<_>) = all.iter().cloned().partition(|(own, _)| is_one(own));
            self.tentative = Arc::new(left);
            for (own, minimum) in &ended {
                self.add(own, minimum, false);
            }
        }
    }

    /// Adds a minimum to the sum of the job's namespace, or takes it off.
    fn add(&mut self, job: &str, minimum: &ExactQuantities, joins: bool) {
        let namespace = namespace_of(job);
        let sum = self.namespaces.get(namespace);
        let mut sum = sum.map_or_else(ExactQuantities::default, |sum| ExactQuantities::clone(sum));
        for (name, amount) in minimum.iter() {
            sum.add(name, if joins { amount } else { -amount });
        }
        let sum: ExactQuantities = sum
            .iter()
            .filter(|(_, amount)| *amount != 0)
            .map(|(name, amount)| (Arc::clone(name), amount))
            .collect();
        if sum.is_empty() {
            self.namespaces.remove(namespace);
        } else {
            self.namespaces.insert(Arc::from(namespace), Arc::new(sum));
        }
    }

    /// Minimum of a stored job that counts by its phase, or by its reservation.
    fn counted(&self, cluster_state: &ClusterState, name: &str) -> Option<ExactQuantities> {
        let job = &cluster_state.jobs().get(name)?.record;
        let is_corrected = self.compatibility == Compatibility::Corrected;
        let waits = is_corrected && job.phase == JobPhase::Inqueue;
        let has_pods = is_corrected && self.tallies.get(name).is_some();
        let counts = (waits || cluster_state.reservations().contains(name)) && !has_pods;
        counts
            .then(|| minimum(cluster_state, job, self.compatibility))
            .flatten()
    }

    /// Counts a job again.
    fn update_job(&mut self, cluster_state: &ClusterState, job: &Arc<str>) {
        let own = self.counted(cluster_state, job).map(Arc::new);
        if let Some(own) = &own {
            self.add(job, own, true);
        }
        let before = match own {
            Some(own) => self.jobs.insert(Arc::clone(job), own),
            None => self.jobs.remove(job),
        };
        if let Some(before) = before {
            self.add(job, &before, false);
        }
    }

    /// Follows the step to a newer cluster state.
    fn step(&mut self, changes: &StateDiff<'_>) {
        self.end_tentative_of(None);
        let same = |one: &Arc<_>, other: &Arc<_>| Arc::ptr_eq(one, other) || one == other;
        let rows = changes.old.reservations().differences(changes.new.reservations(), same);
        let mut jobs: BTreeSet<&Arc<str>> = rows.into_iter().map(|(job, _, _)| job).collect();
        jobs.extend(changes.jobs().into_iter().map(|job| job.name));
        if self.compatibility == Compatibility::Corrected {
            for task in changes.tasks() {
                let records = [task.before, task.after].into_iter().flatten();
                jobs.extend(records.map(|record| &record.job).filter(|job| !job.is_empty()));
            }
        }
        for job in jobs {
            self.update_job(changes.new, job);
        }
    }
}

impl PluginState for PendingMinimums {
    fn apply(&mut self, change: &PluginStateChange<'_>) -> Result<Vec<Arc<str>>, Problem> {
        let (cluster_state, events) = match change {
            PluginStateChange::Events(cluster_state, events) => (cluster_state, events),
            PluginStateChange::Step(changes) => {
                if self.compatibility == Compatibility::Corrected {
                    self.tallies.apply(change)?;
                }
                self.step(changes);
                return Ok(Vec::new());
            }
        };
        for event in *events {
            match event {
                PlacementEvent::Enqueue(job) if self.compatibility.is_upstream() => {
                    let is_new = self.tentative.iter().all(|(own, _)| **own != **job);
                    if let Some(stored) = cluster_state.jobs().get(job).filter(|_| is_new) {
                        self.enqueue_tentatively(cluster_state, &stored.record);
                    }
                }
                PlacementEvent::Enqueue(job) => {
                    self.end_tentative_of(Some(job));
                    self.update_job(cluster_state, &Arc::from(*job));
                }
                PlacementEvent::Dequeue(job) => {
                    self.end_tentative_of(Some(job));
                    self.update_job(cluster_state, job);
                }
                PlacementEvent::Reserve(job) => self.update_job(cluster_state, job),
                // A placement makes no pod.
                PlacementEvent::Allocate(_) | PlacementEvent::Pipeline(_) | PlacementEvent::Deallocate(_) => {}
            }
        }
        Ok(Vec::new())
    }
}
