//! Numbers of tasks of jobs by status, role and group: the state of plugins that evaluate gangs.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::held_bytes::held_bytes;
use crate::model::{ClusterState, Problem, SortedTable, StatusCounts, TaskRecord};
use crate::plugin::PluginContext;
use crate::plugin_state::{PlacementEvent, PluginState, PluginStateChange};

/// Numbers of tasks of one job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct JobTally {
    /// All tasks.
    pub(super) tasks: StatusCounts,
    /// Tasks by role, for roles that have a name.
    roles: BTreeMap<Arc<str>, StatusCounts>,
    /// Tasks by group. Tasks without a group are not included.
    groups: BTreeMap<Arc<str>, StatusCounts>,
}

held_bytes! { JobTally { roles, groups; tasks } }

impl JobTally {
    fn change(&mut self, task: &TaskRecord, joins: bool) {
        self.tasks.change(task, joins);
        for (by_name, name) in [(&mut self.roles, task.role()), (&mut self.groups, task.sub_group())] {
            if name.is_empty() {
                continue;
            }
            if !by_name.contains_key(name) {
                by_name.insert(Arc::from(name), StatusCounts::default());
            }
            if let Some(counts) = by_name.get_mut(name) {
                counts.change(task, joins);
                if counts.total() == 0 {
                    by_name.remove(name);
                }
            }
        }
    }

    /// Number of tasks of a role, by a count. The empty role represents tasks without a role.
    pub(super) fn of_role(&self, role: &str, count: impl Fn(&StatusCounts) -> i64) -> i64 {
        if role.is_empty() {
            return count(&self.tasks) - self.roles.values().map(&count).sum::<i64>();
        }
        self.roles.get(role).map_or(0, count)
    }

    /// Number of tasks of a group, by a count. The empty group represents tasks without a policy.
    pub(super) fn of_group(&self, group: &str, count: impl Fn(&StatusCounts) -> i64) -> i64 {
        if group.is_empty() {
            return count(&self.tasks) - self.groups.values().map(&count).sum::<i64>();
        }
        self.groups.get(group).map_or(0, count)
    }

    /// Groups of a policy.
    pub(super) fn groups_of<'a>(&'a self, policy: &'a str) -> impl Iterator<Item = &'a StatusCounts> {
        let of_policy = move |name: &str| name.rsplit_once('/').is_some_and(|(own, _)| own == policy);
        self.groups
            .iter()
            .filter(move |(name, _)| of_policy(name))
            .map(|(_, counts)| counts)
    }
}

/// Name of the state in a set of plugin states. No plugin can have it.
pub(super) const JOB_TALLIES: &str = "jobs' tallies";

/// Number of tasks of a job that have succeeded, hold resources, or wait for resources that are being released. `None`: no
/// plugin of the policy counts them, or the job has no tasks.
pub(crate) fn started_tasks(context: PluginContext<'_>, job: &str) -> Option<usize> {
    let tasks = &JobTallies::of_job(context, job)?.tasks;
    usize::try_from(tasks.started()).ok()
}

/// Tallies of all jobs that have tasks: one state for all plugins that read it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct JobTallies {
    jobs: SortedTable<Arc<JobTally>>,
}

held_bytes! { JobTallies { jobs } }

impl JobTallies {
    /// Tally of a job in the state of a context; `None`: the job has no tasks.
    pub(super) fn of_job<'a>(context: PluginContext<'a>, job: &str) -> Option<&'a JobTally> {
        context.plugin_states.get::<Self>(JOB_TALLIES)?.get(job)
    }

    /// Tallies of a cluster state.
    pub(super) fn of(cluster_state: &ClusterState) -> Self {
        let mut jobs: BTreeMap<&Arc<str>, JobTally> = BTreeMap::new();
        for (_, stored) in cluster_state.tasks().iter() {
            let task = &stored.record;
            if !task.job.is_empty() {
                jobs.entry(&task.job).or_default().change(task, true);
            }
        }
        let mut tallies = Self::default();
        for (job, tally) in jobs {
            tallies.jobs.insert(Arc::clone(job), Arc::new(tally));
        }
        tallies
    }

    /// Tally of a job.
    pub(super) fn get(&self, job: &str) -> Option<&JobTally> {
        self.jobs.get(job).map(|tally| &**tally)
    }

    /// Adds a task to its job, or removes it.
    fn change(&mut self, task: &TaskRecord, joins: bool) {
        if task.job.is_empty() {
            return;
        }
        if let Some(tally) = self.jobs.get_mut(&task.job) {
            let tally = Arc::make_mut(tally);
            tally.change(task, joins);
            if tally.tasks.total() == 0 {
                self.jobs.remove(&task.job);
            }
            return;
        }
        let mut tally = JobTally::default();
        tally.change(task, joins);
        if tally.tasks.total() > 0 {
            self.jobs.insert(Arc::clone(&task.job), Arc::new(tally));
        }
    }

    /// Replaces a task's record before a change by its record after the change.
    fn transfer(&mut self, before: &TaskRecord, after: &TaskRecord) {
        let same_job = before.job == after.job;
        if let Some(tally) = self.jobs.get_mut(&after.job).filter(|_| same_job) {
            let tally = Arc::make_mut(tally);
            // The new one first, so that a role with one task keeps its place.
            tally.change(after, true);
            tally.change(before, false);
            return;
        }
        self.change(after, true);
        self.change(before, false);
    }
}

impl PluginState for JobTallies {
    fn apply(&mut self, change: &PluginStateChange<'_>) -> Result<Vec<Arc<str>>, Problem> {
        match change {
            PluginStateChange::Events(_, events) => {
                for (moved, _) in events.iter().filter_map(PlacementEvent::moved_task) {
                    (0..moved.count()).for_each(|_| self.transfer(moved.before, moved.after));
                }
            }
            PluginStateChange::Step(changes) => {
                for task in changes.tasks() {
                    if let Some(after) = task.after {
                        self.change(after, true);
                    }
                    if let Some(before) = task.before {
                        self.change(before, false);
                    }
                }
            }
        }
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::{GangMember, NodeSlot, ResourceAmounts, ResourceId, StateDiff, TaskFields, TaskStatus};
    use crate::plugin_state::TaskTransition;

    fn task(number: u8, kind: u8, status: u8) -> TaskRecord {
        let statuses = [
            TaskStatus::Pending,
            TaskStatus::Allocated,
            TaskStatus::Pipelined,
            TaskStatus::Running,
            TaskStatus::Releasing,
            TaskStatus::Succeeded,
        ];
        let names = ["", "a", "b"];
        let name = |at: u8| Arc::from(names[usize::from(at) % 3]);
        let gang = GangMember {
            role: name(kind),
            sub_group: if kind.is_multiple_of(2) {
                Arc::default()
            } else {
                format!("p/{}", kind % 3).into()
            },
            ..GangMember::default()
        };
        let cpu = i64::from(kind % 4);
        TaskRecord::from(TaskFields {
            name: format!("ns/t{number}").into(),
            job: name(number / 2),
            status: statuses[usize::from(status) % 6],
            requests: ResourceAmounts::from_iter([(ResourceId::CPU, cpu), (ResourceId::PODS, 1)]),
            gang: gang.into_field(),
            ..TaskFields::default()
        })
    }

    proptest! {
        /// Tallies after incremental changes equal recomputed tallies.
        #[test]
        fn tallies_follow_changes(steps in prop::collection::vec((0_u8..8, 0_u8..12, 0_u8..7, 0_u8..2), 1..40)) {
            let mut state = ClusterState::new(Arc::new(SortedTable::<NodeSlot>::default()), 0);
            let (mut advanced, mut applied) = (JobTallies::default(), JobTallies::default());
            for (number, kind, status, removed) in steps {
                let old = state.clone();
                let after = task(number, kind, status);
                let before = old.tasks().get(&after.name).map(|stored| stored.record.clone());
                if status == 6 && removed == 0 {
                    state.remove_task(&after.name);
                    if let Some(before) = &before {
                        applied.change(before, false);
                    }
                } else if let Some(before) = before.filter(|before| before.job == after.job) {
                    let moved = TaskTransition::new(&before, &after, "");
                    applied.apply(&PluginStateChange::Events(&state, &[PlacementEvent::Allocate(moved)])).unwrap();
                    state.put_task(after, &"s".into());
                } else {
                    applied.change(&after, true);
                    state.put_task(after, &"s".into());
                }
                advanced.apply(&PluginStateChange::Step(StateDiff { old: &old, new: &state })).unwrap();
                let again = JobTallies::of(&state);
                prop_assert_eq!(&advanced, &again);
                prop_assert_eq!(&applied, &again);
            }
        }
    }

    #[test]
    fn tasks_without_a_role_are_the_rest() {
        let mut tally = JobTally::default();
        for kind in 0..3 {
            tally.change(&task(kind, kind, 3), true);
        }
        assert_eq!(
            ["", "a", "b", "c"].map(|role| tally.of_role(role, StatusCounts::ready)),
            [1, 1, 1, 0]
        );
    }
}
