//! `job-limit`: at most `limit` jobs of a queue run at once. The example of docs/internals/plugin.md; only tests compile it.

use std::sync::Arc;

use crate::held_bytes::held_bytes;
use crate::model::{ClusterState, ErrorCode, JobPhase, JobRecord, Problem, SortedTable};
use crate::plugin::{AdmitOpinion, Plugin, PluginContext, PluginDef, PluginHooks, QuotaPlugin, Reason, Resolution};
use crate::plugin_state::{PlacementEvent, PluginState, PluginStateChange, PluginStates};
use crate::policy::{Compatibility, DiagnosticReport, PluginArgument, PluginArguments, PluginSwitches, YamlValue};

/// Registry entry of the plugin.
pub(super) const DEF: PluginDef = PluginDef {
    families: &["admit"],
    ..PluginDef::new("job-limit", compile)
};

/// Compiled plugin.
#[derive(Debug)]
struct JobLimit(i64);

fn compile(arguments: &PluginArguments, _: Compatibility, report: &mut DiagnosticReport) -> Arc<dyn Plugin> {
    arguments.warn_unknown(report, DEF.name, &["limit"], |_| false);
    let given = arguments.get("limit");
    let limit = given
        .as_ref()
        .and_then(PluginArgument::lenient_int)
        .filter(|limit| *limit > 0);
    if let (Some(given), None) = (given, limit) {
        report.warning(ErrorCode::ArgumentIgnored, &given.at(), "expected a number above 0");
    }
    Arc::new(JobLimit(limit.unwrap_or(1)))
}

/// Queues of the jobs that run or may start, and whether the permit of the job ends with the next vote.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct StartedJobs(SortedTable<(Arc<str>, bool)>);

held_bytes! { StartedJobs { 0 } }

impl StartedJobs {
    pub(super) fn build(cluster_state: &ClusterState) -> Self {
        let mut started = Self::default();
        let reserved = cluster_state.reservations().iter().map(|(name, _)| name);
        for name in cluster_state.jobs().iter().map(|(name, _)| name).chain(reserved) {
            started.update(cluster_state, name);
        }
        started
    }

    /// Follows a job: it counts by its phase, or by its reservation.
    fn update(&mut self, cluster_state: &ClusterState, name: &str) {
        let stored = cluster_state.jobs().get(name).map(|stored| &stored.record);
        let stored = stored.filter(|job| matches!(job.phase, JobPhase::Inqueue | JobPhase::Running));
        let reserved = cluster_state.reservations().get(name).map(|row| &row.queue);
        match stored.map(|job| &job.queue).or(reserved) {
            Some(queue) => drop(self.0.insert(Arc::from(name), (Arc::clone(queue), false))),
            None => drop(self.0.remove(name)),
        }
    }
}

impl PluginState for StartedJobs {
    fn apply(&mut self, change: &PluginStateChange<'_>) -> Result<Vec<Arc<str>>, Problem> {
        match change {
            PluginStateChange::Step(step) => *self = Self::build(step.new),
            PluginStateChange::Events(cluster_state, events) => events.iter().for_each(|event| match event {
                PlacementEvent::Enqueue(name) => self.update(cluster_state, name),
                PlacementEvent::Dequeue(name) | PlacementEvent::Reserve(name) => self.update(cluster_state, name),
                PlacementEvent::Allocate(_) | PlacementEvent::Pipeline(_) | PlacementEvent::Deallocate(_) => {}
            }),
        }
        Ok(Vec::new())
    }
}

impl Plugin for JobLimit {
    fn hooks(&self) -> PluginHooks {
        PluginHooks {
            admit: true,
            ..PluginHooks::default()
        }
    }

    fn effective_arguments(&self) -> YamlValue {
        super::effective_values::value_map(vec![("limit".to_owned(), YamlValue::Int(self.0))])
    }

    fn build_state(&self, cluster_state: &ClusterState, _: &PluginSwitches) -> Option<Arc<dyn PluginState>> {
        Some(Arc::new(StartedJobs::build(cluster_state)))
    }

    fn admit_job(&self, context: PluginContext<'_>, job: &JobRecord) -> Result<Option<AdmitOpinion>, Problem> {
        let state: Option<&StartedJobs> = context.plugin_states.get(DEF.name);
        let counts = |(name, (queue, _)): &(&Arc<str>, &(Arc<str>, bool))| **name != job.name && *queue == job.queue;
        let others = state.map_or(0, |state| state.0.iter().filter(counts).count());
        let reason = (i64::try_from(others).unwrap_or(i64::MAX) >= self.0).then(|| Reason {
            plugin: Arc::from(DEF.name),
            code: "QueueJobLimit",
            message: format!("Queue <{}> runs {others} jobs, and its limit is {}", job.queue, self.0),
            resolution: Resolution::Unschedulable,
            resource: Arc::default(),
        });
        Ok(Some(AdmitOpinion {
            reasons: reason.into_iter().map(|reason| (reason, Vec::new())).collect(),
            ..AdmitOpinion::default()
        }))
    }

    fn quota(&self) -> Option<&dyn QuotaPlugin> {
        Some(self)
    }
}

impl QuotaPlugin for JobLimit {
    fn enqueue_job(&self, states: &mut PluginStates, _: &ClusterState, job: &JobRecord) -> Result<(), Problem> {
        states.update(DEF.name, |StartedJobs(jobs)| {
            let permit = (Arc::clone(&job.queue), true);
            if !jobs.contains(&job.name) {
                jobs.insert(Arc::clone(&job.name), permit);
            }
        });
        Ok(())
    }

    fn release_tentative(&self, states: &mut PluginStates) -> Result<(), Problem> {
        states.update(DEF.name, |StartedJobs(jobs)| {
            let tentative = jobs.clone();
            let tentative = tentative.iter().filter(|(_, (_, tentative))| *tentative);
            tentative.for_each(|(name, _)| drop(jobs.remove(name)));
        });
        Ok(())
    }
}
