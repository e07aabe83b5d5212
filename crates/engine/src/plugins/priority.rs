//! `priority`: jobs and tasks of higher priority are served first, and only tasks of lower priority are evicted
//! (Volcano ed72c7c81, pkg/scheduler/plugins/priority).

use std::sync::Arc;

use super::job_tallies::{JOB_TALLIES, JobTallies};
use crate::model::{ClusterState, JobRecord, Problem, TaskRecord, TaskStatus};
use crate::plugin::{
    JobOpinion, OrderKey, OrderKeyMeanings, OrderKeyPart, Plugin, PluginContext, PluginDef, PluginHooks, TaskGroup,
    VictimKind, VictimQuery,
};
use crate::plugin_state::PluginState;
use crate::policy::{Compatibility, DiagnosticReport, PluginArguments, PluginSwitches};

/// Registry entry of the plugin.
pub(super) const DEF: PluginDef = PluginDef {
    families: &["order", "victims"],
    order_keys: OrderKeyMeanings {
        jobs: &[OrderKeyPart::PRIORITY],
        queues: &[],
    },
    ..PluginDef::new(NAME, compile)
};

const NAME: &str = "priority";

/// Compiled plugin.
#[derive(Debug)]
struct Priority {
    compatibility: Compatibility,
}

fn compile(
    arguments: &PluginArguments,
    compatibility: Compatibility,
    report: &mut DiagnosticReport,
) -> Arc<dyn Plugin> {
    arguments.warn_unknown(report, NAME, &[], |_| false);
    Arc::new(Priority { compatibility })
}

/// Key of a priority: larger ones come first.
fn key_of(priority: i32) -> Vec<f64> {
    vec![0.0 - f64::from(priority)]
}

fn job_of<'a>(cluster_state: &'a ClusterState, task: &TaskRecord) -> Option<&'a JobRecord> {
    cluster_state.jobs().get(&task.job).map(|stored| &stored.record)
}

impl Plugin for Priority {
    fn hooks(&self) -> PluginHooks {
        PluginHooks {
            order: true,
            victims: true,
            job_state: true,
            task_order: true,
            shared_state: Some(JOB_TALLIES),
            ..PluginHooks::default()
        }
    }

    fn build_state(&self, cluster_state: &ClusterState, _: &PluginSwitches) -> Option<Arc<dyn PluginState>> {
        Some(Arc::new(JobTallies::of(cluster_state)))
    }

    fn job_keys(&self, context: PluginContext<'_>, jobs: &[Arc<str>]) -> Option<Vec<OrderKey>> {
        let priority = |name: &Arc<str>| {
            let stored = context.cluster_state.jobs().get(name);
            stored.map_or(0, |stored| stored.record.priority)
        };
        Some(jobs.iter().map(|name| Ok(key_of(priority(name)))).collect())
    }

    fn task_keys(&self, _: PluginContext<'_>, tasks: &[&TaskRecord]) -> Option<Vec<OrderKey>> {
        Some(tasks.iter().map(|task| Ok(key_of(task.priority))).collect())
    }

    fn job_opinion(&self, context: PluginContext<'_>, job: &JobRecord) -> JobOpinion {
        let starving = JobTallies::of_job(context, &job.name).is_some_and(|tally| {
            let tasks = &tally.tasks;
            let started = tasks.started();
            let wanted = match self.compatibility {
                Compatibility::Upstream(_) => tasks.total(),
                // A task that failed or that is being deleted wants nothing.
                Compatibility::Corrected => started + tasks.of(TaskStatus::Pending),
            };
            started < wanted
        });
        JobOpinion {
            starving: Some(starving),
            ..JobOpinion::default()
        }
    }

    fn group_key(&self, _: PluginContext<'_>, group: TaskGroup<'_>) -> Option<Vec<f64>> {
        Some(key_of(group.priority))
    }

    fn victims(&self, context: PluginContext<'_>, query: &VictimQuery<'_>) -> Result<Option<Vec<bool>>, Problem> {
        let rules = self.compatibility.release().rules();
        match query.kind {
            VictimKind::Reclaim | VictimKind::Shuffle => return Ok(None),
            kind if kind.is_of_gangs() && !rules.has_gang_actions => return Ok(None),
            VictimKind::GangReclaim => return Ok(Some(vec![true; query.candidates.len()])),
            VictimKind::Preempt | VictimKind::GangPreempt => {}
        }
        rules.check_orphans(context.cluster_state, query.candidates)?;
        let Some(own) = job_of(context.cluster_state, query.preemptor) else {
            return Ok(Some(vec![false; query.candidates.len()]));
        };
        let gives_way = |task: &&TaskRecord| match job_of(context.cluster_state, task) {
            None => false,
            Some(other) if other.name != own.name => other.priority < own.priority,
            Some(_) => query.kind == VictimKind::Preempt && task.priority < query.preemptor.priority,
        };
        Ok(Some(query.candidates.iter().map(gives_way).collect()))
    }
}
