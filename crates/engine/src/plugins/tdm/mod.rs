//! `tdm`: nodes that pods may use at some times of the day only, and the pods that give way (Volcano ed72c7c81,
//! pkg/scheduler/plugins/tdm).

mod arguments;
mod disruption_budget;
mod revocable_nodes;
mod time_window;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arguments::TdmArguments;
use revocable_nodes::{RevocableNodes, ZoneFilter, zone_scorer};

use super::job_tallies::{JOB_TALLIES, JobTallies, JobTally};
use crate::model::{
    ClusterState, JobRecord, PREEMPTABLE, Problem, TaskClass, TaskRecord, TaskStatus, TextMap, find_text, parse_go_bool,
};
use crate::plugin::{
    JobOpinion, NodeFilter, NodeScorer, OrderKey, OrderKeyMeanings, OrderKeyPart, Plugin, PluginContext, PluginDef,
    PluginHooks, PreparedHook, ShufflePart, TimeEffect, VictimKind, VictimQuery,
};
use crate::plugin_state::PluginState;
use crate::policy::{Compatibility, DecisionKind, DiagnosticReport, PluginArguments, PluginSwitches, YamlValue};

const NAME: &str = "tdm";

/// Label of a node with its revocable zone; annotation `*` of a task that may use the nodes of all zones.
const ZONE: &str = "volcano.sh/revocable-zone";

/// Registry entry of the plugin.
pub(super) const DEF: PluginDef = PluginDef {
    families: &["filter", "order", "score", "victims"],
    task_annotations: &[PREEMPTABLE, ZONE],
    task_labels: &[PREEMPTABLE],
    job_annotations: &[
        PREEMPTABLE,
        disruption_budget::MIN_AVAILABLE,
        disruption_budget::MAX_UNAVAILABLE,
    ],
    node_labels: &[ZONE],
    order_keys: OrderKeyMeanings {
        jobs: &[OrderKeyPart::flag("preemptable")],
        queues: &[],
    },
    time_effect: Some(TimeEffect {
        decisions: &[
            DecisionKind::Filter,
            DecisionKind::Score,
            DecisionKind::FilteredScore,
            DecisionKind::Place,
            DecisionKind::Victims,
            DecisionKind::Shuffle,
        ],
        effect: "The request gives no time: revocable nodes are taken for open at any time.",
    }),
    ..PluginDef::new(NAME, compile)
};

/// Compiled plugin.
#[derive(Debug)]
struct TimeDivision {
    arguments: TdmArguments,
    compatibility: Compatibility,
}

fn compile(
    arguments: &PluginArguments,
    compatibility: Compatibility,
    report: &mut DiagnosticReport,
) -> Arc<dyn Plugin> {
    Arc::new(TimeDivision {
        arguments: TdmArguments::read(arguments, compatibility, report),
        compatibility,
    })
}

/// True if a task with these annotations may use nodes of revocable zones while they are open. Labels do not count.
fn may_use_revocable(annotations: &TextMap) -> bool {
    match find_text(annotations, ZONE) {
        Some(zone) => zone == "*",
        None => find_text(annotations, PREEMPTABLE).and_then(parse_go_bool) == Some(true),
    }
}

impl TimeDivision {
    fn nodes<'a>(&'a self, context: PluginContext<'a>) -> RevocableNodes<'a> {
        RevocableNodes {
            zones: &self.arguments.zones,
            now: context.now,
            compatibility: self.compatibility,
        }
    }

    /// Running preemptable candidates on nodes of some zones (empty: ordinary nodes), of each job as many as its budget allows
    /// in each zone, the first ones. A node that the cluster state does not have is in no zone.
    fn allowed_by_budgets<'a>(
        context: PluginContext<'a>,
        candidates: impl IntoIterator<Item = (usize, &'a TaskRecord)>,
        is_in_zones: impl Fn(&str) -> bool,
    ) -> BTreeSet<usize> {
        let mut budgets: BTreeMap<(&str, &str), i64> = BTreeMap::new();
        let mut goes = |task: &TaskRecord| {
            let Some(node) = context.cluster_state.node_by_name(&task.node) else {
                return false;
            };
            let zone = find_text(&node.record.labels, ZONE).unwrap_or_default();
            if task.status != TaskStatus::Running || !is_in_zones(zone) || !task.is_preemptable() {
                return false;
            }
            let Some(job) = context.cluster_state.jobs().get(&task.job) else {
                return false;
            };
            let left = budgets.entry((zone, &job.record.name)).or_insert_with(|| {
                let absent = JobTally::default();
                let tally = JobTallies::of_job(context, &job.record.name).unwrap_or(&absent);
                disruption_budget::evictions(&job.record.annotations, &tally.tasks)
            });
            *left -= 1;
            *left >= 0
        };
        let going = candidates.into_iter().filter(|(_, task)| goes(task));
        going.map(|(position, _)| position).collect()
    }

    /// Candidates on nodes whose window is over. Of one job those of the lowest priority go first, among them the youngest.
    fn expired(&self, context: PluginContext<'_>, candidates: &[&TaskRecord]) -> BTreeSet<usize> {
        let mut numbered: Vec<(usize, &TaskRecord)> = candidates.iter().copied().enumerate().collect();
        numbered.sort_by_key(|(_, task)| (task.priority, Reverse(task.creation_time), &task.name));
        let nodes = self.nodes(context);
        Self::allowed_by_budgets(context, numbered, |zone| {
            nodes.zones.contains_key(zone) && nodes.closed(zone).is_some()
        })
    }
}

impl Plugin for TimeDivision {
    fn hooks(&self) -> PluginHooks {
        PluginHooks {
            filter: true,
            score: true,
            order: true,
            victims: true,
            job_state: true,
            shared_state: Some(JOB_TALLIES),
            ..PluginHooks::default()
        }
    }

    fn effective_arguments(&self) -> YamlValue {
        self.arguments.effective()
    }

    fn build_state(&self, cluster_state: &ClusterState, _: &PluginSwitches) -> Option<Arc<dyn PluginState>> {
        Some(Arc::new(JobTallies::of(cluster_state)))
    }

    fn score_bounds(&self) -> Option<(f64, f64)> {
        Some((0.0, revocable_nodes::OPEN_SCORE))
    }

    fn prepare_filter<'a>(
        &'a self,
        context: PluginContext<'a>,
        class: &'a TaskClass,
    ) -> PreparedHook<dyn NodeFilter + 'a> {
        let may_use = may_use_revocable(&class.annotations);
        Ok(Some(Box::new(ZoneFilter::new(
            self.nodes(context),
            context.cluster_state,
            may_use,
        ))))
    }

    fn prepare_scorer<'a>(
        &'a self,
        context: PluginContext<'a>,
        class: &'a TaskClass,
    ) -> PreparedHook<dyn NodeScorer + 'a> {
        let may_use = may_use_revocable(&class.annotations);
        Ok(Some(Box::new(zone_scorer(
            self.nodes(context),
            context.cluster_state,
            may_use,
        ))))
    }

    fn job_keys(&self, context: PluginContext<'_>, jobs: &[Arc<str>]) -> Option<Vec<OrderKey>> {
        let key = |name: &Arc<str>| {
            let stored = context.cluster_state.jobs().get(name);
            let comes_last = stored.is_some_and(|stored| stored.record.is_preemptable());
            Ok(vec![f64::from(u8::from(comes_last))])
        };
        Some(jobs.iter().map(key).collect())
    }

    fn job_opinion(&self, context: PluginContext<'_>, job: &JobRecord) -> JobOpinion {
        let none = JobTally::default();
        let tasks = &JobTallies::of_job(context, &job.name).unwrap_or(&none).tasks;
        let started = tasks.started() + tasks.without_requests();
        let is_pipelined = started >= i64::from(job.min_member);
        JobOpinion {
            pipelined: Some(if is_pipelined { 1 } else { -1 }),
            starving: Some(!job.is_preemptable() && tasks.of(TaskStatus::Pending) > 0),
            ..JobOpinion::default()
        }
    }

    fn shuffle_part(&self) -> Option<ShufflePart> {
        let interval = self.arguments.interval();
        Some(ShufflePart::Names { interval })
    }

    fn victims(&self, context: PluginContext<'_>, query: &VictimQuery<'_>) -> Result<Option<Vec<bool>>, Problem> {
        let candidates = query.candidates.iter().copied().enumerate();
        let goes = match query.kind {
            VictimKind::Shuffle => self.expired(context, query.candidates),
            VictimKind::Preempt
                if query.preemptor.is_preemptable() || may_use_revocable(&query.preemptor.annotations) =>
            {
                BTreeSet::new()
            }
            VictimKind::Preempt => Self::allowed_by_budgets(context, candidates, str::is_empty),
            VictimKind::Reclaim | VictimKind::GangPreempt | VictimKind::GangReclaim => return Ok(None),
        };
        let positions = 0..query.candidates.len();
        Ok(Some(positions.map(|position| goes.contains(&position)).collect()))
    }
}

#[cfg(test)]
mod tests;
