//! `nodeorder`: the scores of Kubernetes v1.36.1 that Volcano uses (Volcano ed72c7c81,
//! pkg/scheduler/plugins/nodeorder).
//!
//! Each part is an integer from 0 to 100 for each node, times the weight of the part. Image locality is computed node by
//! node, the other parts for all candidates together.

mod arguments;
mod float_amounts;
mod image_locality;
mod node_scorer;
mod preferences;
mod resources;

use std::sync::Arc;

pub(super) use arguments::PartWeights;
pub(super) use node_scorer::{PodScorer, ScorePartKind, ScoreRules};
pub(super) use resources::{allocatable, truncate};

use crate::model::TaskClass;
use crate::plugin::{NodeScorer, Plugin, PluginContext, PluginDef, PluginHooks, PreparedHook};
use crate::plugins::integer_arithmetic::MAX_SCORE;
use crate::plugins::inter_pod::{ExistingPodTerms, SpreadDefaults};
use crate::policy::{Compatibility, DiagnosticReport, PluginArguments, YamlValue};

/// Name of the plugin.
const NAME: &str = "nodeorder";

/// Registry entry of the plugin.
pub(super) const DEF: PluginDef = PluginDef {
    families: &["score"],
    node_labels: &["*"],
    task_labels: &["*"],
    ..PluginDef::new(NAME, compile)
};

/// Device that balanced allocation compares beside cpu and memory.
const DEVICE: &str = "nvidia.com/gpu";

/// Compiled plugin.
#[derive(Debug)]
struct NodeOrder {
    rules: ScoreRules,
}

fn compile(
    arguments: &PluginArguments,
    compatibility: Compatibility,
    report: &mut DiagnosticReport,
) -> Arc<dyn Plugin> {
    Arc::new(NodeOrder {
        rules: ScoreRules {
            plugin: NAME,
            weights: PartWeights::read(arguments, compatibility, report),
            device: Some(DEVICE.into()),
            existing_pods: ExistingPodTerms::PREFERRED,
            spread_defaults: SpreadDefaults::system(),
            added_preferences: Vec::new(),
            compatibility,
            image_rules: compatibility.release().rules(),
            opens_selectors: compatibility.is_upstream(),
        },
    })
}

impl Plugin for NodeOrder {
    fn hooks(&self) -> PluginHooks {
        PluginHooks {
            score: true,
            reads_pods: true,
            score_evaluates: self.rules.weights.evaluates(),
            ..PluginHooks::default()
        }
    }

    fn effective_arguments(&self) -> YamlValue {
        self.rules.weights.effective()
    }

    fn score_bounds(&self) -> Option<(f64, f64)> {
        let (low, high) = self.rules.weights.sums();
        Some((low * MAX_SCORE as f64, high * MAX_SCORE as f64))
    }

    fn prepare_scorer<'a>(
        &'a self,
        context: PluginContext<'a>,
        class: &'a TaskClass,
    ) -> PreparedHook<dyn NodeScorer + 'a> {
        let scorer = PodScorer::new(&self.rules, context, class)?;
        Ok(Some(Box::new(scorer)))
    }
}

#[cfg(test)]
mod tests;
