//! `nodeorder`: the scores of Kubernetes v1.36.1 that Volcano asks (Volcano ed72c7c81, pkg/scheduler/plugins/nodeorder).
//!
//! Each part is an integer from 0 to 100 for each node, times the weight of the part. Image locality is computed node by
//! node, the other parts for all candidates together.

mod arguments;
mod image_locality;
mod node_scorer;
mod preferences;
mod resources;

use std::sync::Arc;

use arguments::PartWeights;
use node_scorer::PodScorer;

use crate::model::TaskClass;
use crate::model::constraints::{ConstraintKind, ConstraintSet};
use crate::plugin::{NodeScorer, Plugin, PluginContext, PluginDef, PluginHooks, PreparedHook};
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

/// Largest score of a part.
const MAX_SCORE: i64 = 100;

/// Compiled plugin.
#[derive(Debug)]
struct NodeOrder {
    weights: PartWeights,
    compatibility: Compatibility,
}

fn compile(
    arguments: &PluginArguments,
    compatibility: Compatibility,
    report: &mut DiagnosticReport,
) -> Arc<dyn Plugin> {
    Arc::new(NodeOrder {
        weights: PartWeights::read(arguments, report),
        compatibility,
    })
}

impl Plugin for NodeOrder {
    fn hooks(&self) -> PluginHooks {
        PluginHooks {
            score: true,
            ..PluginHooks::default()
        }
    }

    fn effective_arguments(&self) -> YamlValue {
        self.weights.effective()
    }

    fn evaluates(&self) -> ConstraintSet {
        let switched = [
            (ConstraintKind::PreferredNodeAffinity, self.weights.node_affinity),
            (ConstraintKind::PreferredTaints, self.weights.taints),
            (ConstraintKind::Images, self.weights.images),
            (ConstraintKind::PreferredPodAffinity, self.weights.pod_affinity),
            (ConstraintKind::PreferredPodAntiAffinity, self.weights.pod_affinity),
            (ConstraintKind::PreferredTopologySpread, self.weights.spread),
        ];
        let on = switched.into_iter().filter(|(_, weight)| *weight != 0);
        on.fold(ConstraintSet::NONE, |set, (kind, _)| set.with(kind))
    }

    fn prepare_scorer<'a>(
        &'a self,
        context: PluginContext<'a>,
        class: &'a TaskClass,
    ) -> PreparedHook<dyn NodeScorer + 'a> {
        let scorer = PodScorer::new(&self.weights, self.compatibility, context, class)?;
        Ok(Some(Box::new(scorer)))
    }
}

#[cfg(test)]
mod tests;
