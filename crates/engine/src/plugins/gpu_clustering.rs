//! `gpu-clustering`: keeps tasks with shares, with one device, with two and so on apart from each other.

use std::sync::Arc;

use super::device_scores::{node_scorer, read_weight, score_hooks, weight_argument};
use crate::devices::{DeviceNode, DeviceScore, DeviceScorer, DeviceTask};
use crate::model::TaskClass;
use crate::plugin::{NodeScorer, Plugin, PluginContext, PluginDef, PluginHooks, PreparedHook};
use crate::policy::{Compatibility, DiagnosticReport, PluginArguments, YamlValue};

/// Registry entry of the plugin.
pub(super) const DEF: PluginDef = PluginDef {
    families: &["score"],
    ..PluginDef::new("gpu-clustering", compile)
};

/// Compiled plugin.
#[derive(Debug)]
struct Clustering {
    weight: i64,
}

fn compile(arguments: &PluginArguments, _: Compatibility, report: &mut DiagnosticReport) -> Arc<dyn Plugin> {
    arguments.warn_unknown(report, DEF.name, &["weight"], |_| false);
    let weight = read_weight(arguments, report);
    Arc::new(Clustering { weight })
}

impl Plugin for Clustering {
    fn hooks(&self) -> PluginHooks {
        score_hooks(self.weight)
    }

    fn effective_arguments(&self) -> YamlValue {
        weight_argument(self.weight)
    }

    fn prepare_scorer<'a>(
        &'a self,
        context: PluginContext<'a>,
        class: &'a TaskClass,
    ) -> PreparedHook<dyn NodeScorer + 'a> {
        Ok(Some(node_scorer(context, class, self)))
    }

    fn device_scorer(&self) -> Option<&dyn DeviceScorer> {
        Some(self)
    }
}

impl DeviceScorer for Clustering {
    fn score(&self, task: &DeviceTask, node: &DeviceNode<'_>) -> DeviceScore {
        if task.count == 0 {
            return DeviceScore::of_node(0);
        }
        let fullness = 25 * (LARGEST_DEVICES - node.idle()) / LARGEST_DEVICES;
        let bonus = match (node.kinds.intersects(task.kind()), node.kinds.len()) {
            (true, 1) => 75,
            (true, _) => 50,
            (false, 0) => 25,
            (false, _) => 0,
        };
        DeviceScore::of_node(fullness + bonus)
    }

    fn weight(&self) -> i64 {
        self.weight
    }
}

/// Thousandths of devices of the largest node of the published experiments.
const LARGEST_DEVICES: i64 = 8_000;
