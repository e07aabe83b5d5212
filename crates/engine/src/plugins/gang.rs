//! `gang`: jobs start with their minimums or not at all (Volcano ed72c7c81, pkg/scheduler/plugins/gang).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::job_tallies::{JOB_TALLIES, JobTallies, JobTally};
use crate::model::{ClusterState, JobRecord, Problem, StatusCounts, TaskStatus};
use crate::plugin::{
    GroupOpinion, JobObjection, JobOpinion, OrderKey, OrderKeyMeanings, OrderKeyPart, Plugin, PluginContext, PluginDef,
    PluginHooks, TaskGroup, VictimQuery,
};
use crate::plugin_state::PluginState;
use crate::policy::{Compatibility, DiagnosticReport, PluginArguments, PluginSwitches, ReleaseRules};

/// Registry entry of the plugin.
pub(super) const DEF: PluginDef = PluginDef {
    families: &["order", "victims"],
    marks_unready_jobs: true,
    order_keys: OrderKeyMeanings {
        jobs: &[OrderKeyPart::flag("ready")],
        queues: &[],
    },
    ..PluginDef::new(NAME, compile)
};

pub(super) const NAME: &str = "gang";

/// Reason code of a job with too few tasks of a role or a group.
const TOO_FEW_OF_TASK: &str = "NotEnoughPodsOfTask";
/// Reason of a job that has too few tasks.
const TOO_FEW: &str = "NotEnoughTasks";

/// Compiled plugin.
#[derive(Debug)]
struct GangPlugin {
    rules: ReleaseRules,
}

fn compile(
    arguments: &PluginArguments,
    compatibility: Compatibility,
    report: &mut DiagnosticReport,
) -> Arc<dyn Plugin> {
    arguments.warn_unknown(report, NAME, &[], |_| false);
    Arc::new(GangPlugin {
        rules: compatibility.release().rules(),
    })
}

/// Job with the numbers of its tasks.
#[derive(Clone, Copy, Debug)]
struct CountedJob<'a> {
    job: &'a JobRecord,
    tally: &'a JobTally,
}

/// Ready tasks of a role or a group, including pending tasks without requests.
fn ready(counts: &StatusCounts) -> i64 {
    counts.ready() + counts.without_requests()
}

/// Ready tasks, and tasks that wait for resources that are being released.
fn pipelined(counts: &StatusCounts) -> i64 {
    ready(counts) + counts.of(TaskStatus::Pipelined)
}

impl CountedJob<'_> {
    fn min_available(&self) -> i64 {
        self.job.min_member.into()
    }

    /// Least numbers by role; none if the job starts with fewer tasks than their sum.
    fn role_minimums(&self) -> &[(Arc<str>, i32)] {
        let roles = self.job.gang.as_ref().map_or(&[][..], |gang| &gang.min_task_member);
        // The reference sums in 32 bits.
        let sum = roles.iter().fold(0_i32, |sum, (_, least)| sum.wrapping_add(*least));
        if self.job.min_member < sum { &[] } else { roles }
    }

    fn has_roles(&self, count: fn(&StatusCounts) -> i64) -> bool {
        let mut roles = self.role_minimums().iter();
        roles.all(|(role, least)| self.tally.of_role(role, count) >= i64::from(*least))
    }

    fn has_valid_roles(&self) -> bool {
        let mut roles = self.role_minimums().iter().filter(|(_, least)| *least != 0);
        roles.all(|(role, least)| {
            let count = self.tally.of_role(role, StatusCounts::valid);
            count > 0 && count >= i64::from(*least)
        })
    }

    /// Size and number of groups by policy. If two policies have the same name, the last number applies.
    fn group_minimums(&self) -> BTreeMap<&str, (i64, i64)> {
        let policies = self.job.gang.iter().flat_map(|gang| &gang.sub_groups);
        let mut minimums: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
        for policy in policies {
            let size = policy.size.unwrap_or(1).into();
            let least = policy.min_groups.unwrap_or(0).into();
            minimums.entry(&policy.name).or_insert((size, least)).1 = least;
        }
        minimums
    }

    /// True if every policy has enough groups with enough tasks.
    fn has_groups(&self, count: fn(&StatusCounts) -> i64) -> bool {
        let mut minimums = self.group_minimums().into_iter().filter(|(_, (_, least))| *least != 0);
        minimums.all(|(policy, (size, least))| {
            let groups = self.tally.groups_of(policy).filter(|counts| count(counts) >= size);
            i64::try_from(groups.count()).unwrap_or(i64::MAX) >= least
        })
    }

    fn has_valid_groups(&self) -> bool {
        let mut minimums = self.group_minimums().into_iter();
        minimums.all(|(policy, (_, least))| {
            i64::try_from(self.tally.groups_of(policy).count()).unwrap_or(i64::MAX) >= least
        })
    }

    fn group_opinion(&self, group: &str) -> GroupOpinion {
        let size = self.job.gang.as_ref().map_or(1, |gang| gang.group_size(group)).into();
        let has = |count: fn(&StatusCounts) -> i64| self.tally.of_group(group, count) >= size;
        GroupOpinion {
            ready: Some(has(ready)),
            pipelined: Some(if has(pipelined) { 1 } else { -1 }),
        }
    }

    /// True if the number of tasks alone is enough, ignoring roles. Such a job is served after other jobs.
    fn has_enough_ready(&self) -> bool {
        ready(&self.tally.tasks) >= self.min_available()
    }

    fn objection(&self) -> Option<JobObjection> {
        let object = |reason, message: String| Some(JobObjection { reason, message });
        if !self.has_valid_roles() {
            let message = "Not enough valid pods of each task for gang-scheduling";
            return object(TOO_FEW_OF_TASK, message.to_owned());
        }
        if !self.has_valid_groups() {
            let message = "Not enough valid subGroups of each task for gang-scheduling";
            return object(TOO_FEW_OF_TASK, message.to_owned());
        }
        let (valid, min) = (self.tally.tasks.valid(), self.min_available());
        if valid < min {
            let message = format!("Not enough valid tasks for gang-scheduling, valid: {valid}, min: {min}");
            return object(TOO_FEW, message);
        }
        None
    }

    fn opinion(&self) -> JobOpinion {
        let tasks = &self.tally.tasks;
        let is_ready = self.has_roles(ready) && self.has_groups(ready) && self.has_enough_ready();
        let is_pipelined =
            self.has_roles(pipelined) && self.has_groups(pipelined) && pipelined(tasks) >= self.min_available();
        let waiting = tasks.of(TaskStatus::Pipelined);
        let started = waiting + tasks.ready();
        JobOpinion {
            objection: self.objection(),
            ready: Some(is_ready),
            pipelined: Some(if is_pipelined { 1 } else { -1 }),
            starving: Some(started < self.min_available()),
        }
    }
}

fn with_tally<T>(context: PluginContext<'_>, job: &JobRecord, ask: impl FnOnce(CountedJob<'_>) -> T) -> T {
    let none = JobTally::default();
    let tally = JobTallies::of_job(context, &job.name).unwrap_or(&none);
    ask(CountedJob { job, tally })
}

impl Plugin for GangPlugin {
    fn hooks(&self) -> PluginHooks {
        PluginHooks {
            order: true,
            victims: true,
            job_state: true,
            shared_state: Some(JOB_TALLIES),
            ..PluginHooks::default()
        }
    }

    fn build_state(&self, cluster_state: &ClusterState, _: &PluginSwitches) -> Option<Arc<dyn PluginState>> {
        Some(Arc::new(JobTallies::of(cluster_state)))
    }

    fn job_keys(&self, context: PluginContext<'_>, jobs: &[Arc<str>]) -> Option<Vec<OrderKey>> {
        let key = |name: &Arc<str>| {
            let stored = context.cluster_state.jobs().get(name);
            let ready = stored.is_some_and(|stored| with_tally(context, &stored.record, |job| job.has_enough_ready()));
            Ok(vec![f64::from(u8::from(ready))])
        };
        Some(jobs.iter().map(key).collect())
    }

    fn job_opinion(&self, context: PluginContext<'_>, job: &JobRecord) -> JobOpinion {
        with_tally(context, job, |job| job.opinion())
    }

    fn group_opinion(&self, context: PluginContext<'_>, group: TaskGroup<'_>) -> GroupOpinion {
        with_tally(context, group.job, |job| job.group_opinion(group.name))
    }

    fn group_key(&self, context: PluginContext<'_>, group: TaskGroup<'_>) -> Option<Vec<f64>> {
        let ready = self.group_opinion(context, group).ready?;
        Some(vec![f64::from(u8::from(ready))])
    }

    fn victims(&self, context: PluginContext<'_>, query: &VictimQuery<'_>) -> Result<Option<Vec<bool>>, Problem> {
        if query.kind.is_of_gangs() {
            return Ok(self.rules.has_gang_actions.then(|| vec![true; query.candidates.len()]));
        }
        self.rules.check_orphans(context.cluster_state, query.candidates)?;
        // Number of tasks that each job has left above its minimum.
        let mut spare: BTreeMap<&str, i64> = BTreeMap::new();
        let mut may_go = |job: &str| {
            let stored = context.cluster_state.jobs().get(job)?;
            let spare = spare.entry(&stored.record.name).or_insert_with(|| {
                with_tally(context, &stored.record, |job| {
                    job.tally.tasks.ready() - job.min_available()
                })
            });
            *spare -= 1;
            Some(*spare >= 0)
        };
        let chosen = query.candidates.iter().map(|task| may_go(&task.job).unwrap_or(false));
        Ok(Some(chosen.collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::queue_accounts::testing::cluster::{amounts, cluster_state, job, put_job, put_task, task};
    use super::*;
    use crate::model::{JobPhase, TaskRecord};
    use crate::plugin::{EvictionOrder, VictimKind};
    use crate::policy::{CompileOptions, compile as compile_policy};

    /// Number of two running tasks that may go, of a job that starts with so many and has one more task that succeeded.
    fn victims(min_member: i32, compatibility: Compatibility) -> usize {
        let mut state = cluster_state(&[(8000, 8000, -1)]);
        put_job(
            &mut state,
            JobRecord {
                min_member,
                ..job("ns/j", "q", None, JobPhase::Running)
            },
        );
        let (running, cpu) = (TaskStatus::Running, amounts(1000, 0, -1));
        let all = [("ns/a", running), ("ns/b", running), ("ns/c", TaskStatus::Succeeded)];
        for (name, status) in all {
            put_task(&mut state, task(name, "ns/j", &cpu, status));
        }
        let candidates = ["ns/a", "ns/b"].map(|name| state.tasks().get(name).unwrap().record.clone());
        let candidates: Vec<&TaskRecord> = candidates.iter().collect();
        let name = compatibility.name();
        let document =
            format!("actions: allocate\ntiers:\n- plugins: [{{name: gang}}]\npumice: {{compatibility: {name}}}\n");
        let policy = compile_policy(&document, &CompileOptions::default()).unwrap().policy;
        let context = PluginContext {
            cluster_state: &state,
            plugin_states: &policy.compute_plugin_states(&state),
            now: None,
            after_release: false,
        };
        let query = VictimQuery {
            kind: VictimKind::Reclaim,
            preemptor: &task("ns/p", "ns/other", &cpu, TaskStatus::Pending),
            candidates: &candidates,
            eviction_order: EvictionOrder::default(),
        };
        let plugin = policy.registered(NAME).unwrap().victims.clone().unwrap();
        let may_go = plugin.victims(context, &query).unwrap().unwrap();
        may_go.iter().filter(|may| **may).count()
    }

    #[test]
    fn a_gang_gives_up_what_is_above_its_minimum() {
        for compatibility in Compatibility::KINDS {
            let given_up = [0, 2, 3, 4].map(|min_member| victims(min_member, compatibility));
            assert_eq!(given_up, [2, 1, 0, 0], "one that succeeded counts as held");
        }
    }
}
