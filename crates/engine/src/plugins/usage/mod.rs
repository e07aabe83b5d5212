//! `usage`: nodes with a high measured load take no tasks, and nodes with a low one come first (Volcano ed72c7c81,
//! pkg/scheduler/plugins/usage).

mod arguments;
mod shadow;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use arguments::UsageArguments;
use shadow::{LoadedNode, ShadowTasks, weighted_mean};

use crate::model::{ClusterState, NodeChunk, NodeLoad, NodeMask, NodeRecord, TaskClass};
use crate::plugin::{
    AbsentInput, ChunkRejections, ChunkScores, DecisionTime, Measurement, NodeFilter, NodeScorer, Plugin,
    PluginContext, PluginDef, PluginHooks, PreparedHook, Reason, Resolution, TimeEffect,
};
use crate::plugin_state::PluginState;
use crate::policy::{Compatibility, DecisionKind, DiagnosticReport, PluginArguments, PluginSwitches, YamlValue};

const NAME: &str = "usage";

/// Score of a node without load, times the weight of the plugin.
const MOST: f64 = 100.0;

/// Decisions that read the load of nodes.
const DECISIONS: &[DecisionKind] = &[
    DecisionKind::Filter,
    DecisionKind::Score,
    DecisionKind::FilteredScore,
    DecisionKind::Place,
];

/// Code and message of each reason: the load of CPUs, and of memory.
const REASONS: [(&str, &str); 2] = [
    ("NodeCpuLoad", "the CPU load of the node exceeds the upper limit."),
    ("NodeMemoryLoad", "the memory load of the node exceeds the upper limit."),
];

/// Registry entry of the plugin.
pub(super) const DEF: PluginDef = PluginDef {
    families: &["filter", "score"],
    time_effect: Some(TimeEffect {
        decisions: DECISIONS,
        effect: "The request gives no time: the load of nodes does not count, because its age is unknown.",
    }),
    absent_input: Some(&AbsentInput {
        decisions: DECISIONS,
        is_absent: NodeLoad::is_missing,
        effect: "No node has a measured load: the load of nodes does not count.",
    }),
    ..PluginDef::new(NAME, compile)
};

/// Compiled plugin.
#[derive(Debug)]
struct LoadUsage {
    arguments: UsageArguments,
    compatibility: Compatibility,
}

fn compile(
    arguments: &PluginArguments,
    compatibility: Compatibility,
    report: &mut DiagnosticReport,
) -> Arc<dyn Plugin> {
    Arc::new(LoadUsage {
        arguments: UsageArguments::read(arguments, report),
        compatibility,
    })
}

/// Node with its load; `None`: it is not measured, too old, or the query gives no time.
fn loaded_node(record: &NodeRecord, now: Option<DecisionTime>) -> Option<LoadedNode<'_>> {
    let load = record
        .load
        .as_deref()
        .filter(|load| load.is_of(NodeLoad::USUAL_PERIOD))?;
    load.is_recent(now?.seconds).then_some(LoadedNode { record, load })
}

/// Node at a place of a chunk.
fn node_at<'a>(cluster_state: &'a ClusterState, chunk: &NodeChunk, offset: usize) -> Option<&'a NodeRecord> {
    let entry = cluster_state.node(chunk.slot(offset)?)?;
    Some(&entry.record)
}

/// Filter: the same for all tasks.
struct LoadFilter<'a> {
    thresholds: [f64; 2],
    context: PluginContext<'a>,
}

impl LoadFilter<'_> {
    /// Loads of a node in percent.
    fn loads(&self, chunk: &NodeChunk, offset: usize) -> Option<[f64; 2]> {
        let node = loaded_node(node_at(self.context.cluster_state, chunk, offset)?, self.context.now)?;
        Some([node.load.cpu_percent, node.load.memory_percent])
    }
}

impl NodeFilter for LoadFilter<'_> {
    fn filter(&self, chunk: &NodeChunk, among: &NodeMask, verdicts: &mut ChunkRejections) -> NodeMask {
        if self.context.now.is_none() || chunk.is_detached() {
            // Nodes of a detached chunk passed, and tasks do not change what was measured.
            return NodeMask::NONE;
        }
        let mut rejected = [NodeMask::NONE, NodeMask::NONE];
        for offset in among.iter() {
            let loads = self.loads(chunk, offset).into_iter().flatten();
            let above = loads.zip(self.thresholds).position(|(load, most)| load > most);
            if let Some(nodes) = above.and_then(|above| rejected.get_mut(above)) {
                nodes.set(offset, true);
            }
        }
        let [cpu, memory] = rejected;
        verdicts.reject(0, &cpu);
        verdicts.reject(1, &memory);
        cpu.or(&memory)
    }

    fn reason(&self, number: u16) -> Reason {
        let (code, message) = REASONS.get(usize::from(number)).copied().unwrap_or_default();
        Reason::new(NAME, code, message, Resolution::Unresolvable)
    }

    fn has_lasting_reasons(&self) -> bool {
        true
    }

    fn measurements(&self, chunk: &NodeChunk, offset: usize, number: u16) -> Vec<Measurement> {
        let number = usize::from(number);
        let load = self.loads(chunk, offset).and_then(|loads| loads.get(number).copied());
        let both = load.zip(self.thresholds.get(number));
        both.map_or_else(Vec::new, |(load, most)| {
            vec![
                Measurement::number("load percent", load),
                Measurement::number("threshold", *most),
            ]
        })
    }
}

/// Score: the same for all tasks.
struct LoadScorer<'a> {
    arguments: &'a UsageArguments,
    context: PluginContext<'a>,
    now: DecisionTime,
}

impl LoadScorer<'_> {
    fn score_of(&self, record: &NodeRecord) -> f64 {
        let Some(node) = loaded_node(record, Some(self.now)) else {
            return 0.0;
        };
        let state: Option<&ShadowTasks> = self.context.plugin_states.get(NAME);
        let estimates = state.map_or([0.0, 0.0], |state| {
            state.estimate(self.context.cluster_state, self.arguments, node, self.now)
        });
        let free = node.utilizations(estimates).map(|used| 1.0 - used);
        weighted_mean(self.arguments, free) * MOST * self.arguments.usage_weight as f64
    }
}

impl NodeScorer for LoadScorer<'_> {
    fn score(&self, chunk: &NodeChunk, parts: &mut [ChunkScores]) {
        for (offset, score) in parts.iter_mut().flatten().enumerate() {
            let record = node_at(self.context.cluster_state, chunk, offset);
            *score = record.map_or(0.0, |record| self.score_of(record));
        }
    }
}

impl Plugin for LoadUsage {
    fn hooks(&self) -> PluginHooks {
        PluginHooks {
            filter: true,
            score: true,
            accounts: true,
            ..PluginHooks::default()
        }
    }

    fn effective_arguments(&self) -> YamlValue {
        self.arguments.effective()
    }

    fn build_state(&self, cluster_state: &ClusterState, _: &PluginSwitches) -> Option<Arc<dyn PluginState>> {
        Some(Arc::new(ShadowTasks::of(cluster_state, self.compatibility)))
    }

    fn score_bounds(&self) -> Option<(f64, f64)> {
        Some((0.0, MOST * self.arguments.usage_weight as f64))
    }

    fn prepare_filter<'a>(&'a self, context: PluginContext<'a>, _: &'a TaskClass) -> PreparedHook<dyn NodeFilter + 'a> {
        Ok(Some(Box::new(LoadFilter {
            thresholds: self.arguments.thresholds,
            context,
        })))
    }

    fn prepare_scorer<'a>(&'a self, context: PluginContext<'a>, _: &'a TaskClass) -> PreparedHook<dyn NodeScorer + 'a> {
        let Some(now) = context.now else { return Ok(None) };
        Ok(Some(Box::new(LoadScorer {
            arguments: &self.arguments,
            context,
            now,
        })))
    }
}
