//! `task-topology`: tasks of roles that belong together come one after the other and to the same nodes (Volcano ed72c7c81,
//! pkg/scheduler/plugins/task-topology).

mod affinities;
mod buckets;
mod scorer;
mod state;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use scorer::BucketScorer;
use state::{TopologyJobs, has_annotation};

use super::effective_values::{map_entry, value_map};
use crate::model::{ClusterState, TaskClass, TaskRecord};
use crate::plugin::{NodeScorer, OrderKey, Plugin, PluginContext, PluginDef, PluginHooks, PreparedHook};
use crate::plugin_state::PluginState;
use crate::policy::{
    Compatibility, DiagnosticReport, ErrorCode, PluginArgument, PluginArguments, PluginSwitches, YamlValue,
};

const NAME: &str = "task-topology";
/// Factor of the score.
const WEIGHT: &str = "task-topology.weight";

/// Registry entry of the plugin.
pub(super) const DEF: PluginDef = PluginDef {
    families: &["order", "score"],
    job_annotations: &[affinities::AFFINITY, affinities::ANTI_AFFINITY, affinities::TASK_ORDER],
    ..PluginDef::new(NAME, compile)
};

/// Compiled plugin.
#[derive(Debug)]
struct TaskTopology {
    weight: i64,
    compatibility: Compatibility,
}

fn compile(
    arguments: &PluginArguments,
    compatibility: Compatibility,
    report: &mut DiagnosticReport,
) -> Arc<dyn Plugin> {
    arguments.warn_unknown(report, NAME, &[WEIGHT], |_| false);
    let argument = arguments.get(WEIGHT);
    let weight = argument.as_ref().and_then(PluginArgument::lenient_int);
    if let (Some(argument), None) = (&argument, weight) {
        let message = format!("`{WEIGHT}`: expected an integer; the default 1 applies");
        report.warning(ErrorCode::ArgumentIgnored, &argument.at(), message);
    }
    Arc::new(TaskTopology {
        weight: weight.unwrap_or(1),
        compatibility,
    })
}

/// Role of a task. The buckets of the reference do not know a role that only a label has.
fn task_role(task: &TaskRecord, compatibility: Compatibility) -> &str {
    let is_unknown = compatibility.is_upstream() && task.has_role_from_label();
    if is_unknown { "" } else { task.role() }
}

impl Plugin for TaskTopology {
    fn hooks(&self) -> PluginHooks {
        PluginHooks {
            score: true,
            task_order: true,
            accounts: true,
            reads_tasks: true,
            ..PluginHooks::default()
        }
    }

    fn effective_arguments(&self) -> YamlValue {
        value_map([map_entry(WEIGHT, YamlValue::Int(self.weight))])
    }

    fn build_state(&self, cluster_state: &ClusterState, _: &PluginSwitches) -> Option<Arc<dyn PluginState>> {
        Some(Arc::new(TopologyJobs::of(cluster_state, self.compatibility)))
    }

    fn reads_task(&self, cluster_state: &ClusterState, task: &TaskRecord) -> bool {
        let job = cluster_state.jobs().get(&task.job);
        job.is_some_and(|job| has_annotation(&job.record))
    }

    fn prepare_scorer<'a>(
        &'a self,
        context: PluginContext<'a>,
        class: &'a TaskClass,
    ) -> PreparedHook<dyn NodeScorer + 'a> {
        let state: Option<&TopologyJobs> = context.plugin_states.get(NAME);
        let charge = class.charge.as_ref();
        let stored = charge.and_then(|charge| context.cluster_state.tasks().get(&charge.task));
        let job = stored.and_then(|stored| state?.job(&stored.record.job));
        let (Some(stored), Some(job)) = (stored, job) else {
            return Ok(None);
        };
        let task = &stored.record;
        let Some((_, bucket)) = job.bucket_of(&task.name) else {
            return Ok(None);
        };
        Ok(Some(Box::new(BucketScorer {
            cluster_state: context.cluster_state,
            bucket,
            task,
            node_scores: job.node_scores(bucket, task_role(task, self.compatibility)),
            weight: self.weight,
            max_size: job.max_size,
        })))
    }

    /// A bucket with more waiting tasks comes first, then an earlier one; tasks outside of buckets come last.
    fn task_keys(&self, context: PluginContext<'_>, tasks: &[&TaskRecord]) -> Option<Vec<OrderKey>> {
        let state: &TopologyJobs = context.plugin_states.get(NAME)?;
        let key = |task: &&TaskRecord| {
            let Some(job) = state.job(&task.job) else {
                return Ok(Vec::new());
            };
            let Some((number, bucket)) = job.bucket_of(&task.name) else {
                return Ok(vec![1.0]);
            };
            let [order, priority] = job.affinities.order_of(task_role(task, self.compatibility));
            let negative = |number: usize| -(number as f64);
            let of_bucket = [0.0, negative(bucket.waiting.len()), number as f64];
            Ok([&of_bucket[..], &[negative(order), negative(priority)]].concat())
        };
        Some(tasks.iter().map(key).collect())
    }
}
