//! State of the plugin: the buckets of the jobs with a topology.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::affinities::{AFFINITY, ANTI_AFFINITY, TASK_ORDER};
use super::buckets::JobBuckets;
use crate::held_bytes::held_bytes;
use crate::model::{ClusterState, JobRecord, Problem, SortedTable, StateDiff, TaskRecord, find_text};
use crate::plugin_state::{PlacementEvent, PluginState, PluginStateChange};
use crate::policy::Compatibility;

/// Buckets by job.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TopologyJobs {
    compatibility: Compatibility,
    jobs: SortedTable<Arc<JobBuckets>>,
    /// True if the buckets followed events of a session.
    has_events: bool,
}

held_bytes! { TopologyJobs { jobs; compatibility, has_events } }

/// True if a job has one of the annotations.
pub(super) fn has_annotation(job: &JobRecord) -> bool {
    let mut names = [AFFINITY, ANTI_AFFINITY, TASK_ORDER].into_iter();
    names.any(|name| find_text(&job.annotations, name).is_some())
}

impl TopologyJobs {
    /// State of a cluster state.
    pub(super) fn of(cluster_state: &ClusterState, compatibility: Compatibility) -> Self {
        let mut state = Self {
            compatibility,
            ..Self::default()
        };
        let jobs = cluster_state.jobs().iter();
        let annotated = jobs
            .filter(|(_, stored)| has_annotation(&stored.record))
            .map(|(name, _)| name);
        state.build(cluster_state, annotated.collect());
        state
    }

    /// Makes the buckets of these jobs again.
    fn build(&mut self, cluster_state: &ClusterState, jobs: BTreeSet<&Arc<str>>) {
        let mut tasks: BTreeMap<&Arc<str>, Vec<&TaskRecord>> = jobs.into_iter().map(|job| (job, Vec::new())).collect();
        if tasks.is_empty() {
            return;
        }
        for (_, stored) in cluster_state.tasks().iter() {
            if let Some(of_job) = tasks.get_mut(&stored.record.job) {
                of_job.push(&stored.record);
            }
        }
        for (name, tasks) in tasks {
            let job = cluster_state.jobs().get(name);
            match job.and_then(|job| JobBuckets::of(&job.record, &tasks, self.compatibility)) {
                Some(buckets) => drop(self.jobs.insert(Arc::clone(name), Arc::new(buckets))),
                None => drop(self.jobs.remove(name)),
            }
        }
    }

    /// Buckets of a job; `None`: it has no topology.
    pub(super) fn job(&self, name: &str) -> Option<&JobBuckets> {
        self.jobs.get(name).map(|job| &**job)
    }

    /// Follows the step to a newer cluster state.
    ///
    /// # Errors
    /// The state followed events of a session, which the step ends.
    fn step(&mut self, changes: &StateDiff<'_>) -> Result<(), Problem> {
        if self.has_events {
            return Err(PluginStateChange::unfollowed());
        }
        let is_annotated = |job: &Arc<str>| {
            let stored = changes.new.jobs().get(job);
            self.jobs.contains(job) || stored.is_some_and(|stored| has_annotation(&stored.record))
        };
        let mut jobs: BTreeSet<&Arc<str>> = changes.jobs().into_iter().map(|job| job.name).collect();
        for task in changes.tasks() {
            jobs.extend(
                [task.before, task.after]
                    .into_iter()
                    .flatten()
                    .map(|record| &record.job),
            );
        }
        jobs.retain(|job| is_annotated(job));
        self.build(changes.new, jobs);
        Ok(())
    }
}

impl PluginState for TopologyJobs {
    fn apply(&mut self, change: &PluginStateChange<'_>) -> Result<Vec<Arc<str>>, Problem> {
        let events = match change {
            PluginStateChange::Events(_, events) => *events,
            PluginStateChange::Step(changes) => {
                self.step(changes)?;
                return Ok(Vec::new());
            }
        };
        let compatibility = self.compatibility;
        for (moved, joins) in events.iter().filter_map(PlacementEvent::moved_task) {
            // The reference has no handler of withdrawn tasks.
            if !joins && compatibility.is_upstream() {
                continue;
            }
            if let Some(job) = self.jobs.get_mut(&moved.after.job) {
                self.has_events = true;
                let job = Arc::make_mut(job);
                if joins {
                    job.place(moved.after, compatibility);
                } else {
                    job.withdraw(moved.before, moved.after, compatibility);
                }
            }
        }
        Ok(Vec::new())
    }
}
