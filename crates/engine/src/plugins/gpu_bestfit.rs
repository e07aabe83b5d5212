//! `gpu-bestfit`: prefers nodes with the least cpu and devices left.

use std::sync::Arc;

use super::device_scores::{node_scorer, read_weight, score_hooks, weight_argument};
use crate::devices::{DeviceNode, DeviceScore, DeviceScorer, DeviceTask};
use crate::model::TaskClass;
use crate::plugin::{NodeScorer, Plugin, PluginContext, PluginDef, PluginHooks, PreparedHook};
use crate::policy::{Compatibility, DiagnosticReport, PluginArguments, YamlValue};

/// Registry entry of the plugin.
pub(super) const DEF: PluginDef = PluginDef {
    families: &["score"],
    ..PluginDef::new("gpu-bestfit", compile)
};

/// Compiled plugin.
#[derive(Debug)]
struct BestFit {
    weight: i64,
}

fn compile(arguments: &PluginArguments, _: Compatibility, report: &mut DiagnosticReport) -> Arc<dyn Plugin> {
    arguments.warn_unknown(report, DEF.name, &["weight"], |_| false);
    let weight = read_weight(arguments, report);
    Arc::new(BestFit { weight })
}

impl Plugin for BestFit {
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

impl DeviceScorer for BestFit {
    #[expect(clippy::cast_possible_truncation, reason = "the formula cuts to an integer")]
    fn score(&self, task: &DeviceTask, node: &DeviceNode<'_>) -> DeviceScore {
        let mut left = 0.0;
        left += (node.free_cpu - task.cpu) as f64 / LARGEST_CPU * 0.5;
        left += (node.idle() - task.total()) as f64 / LARGEST_DEVICES * 0.5;
        DeviceScore::of_node(((1.0 - left) * 100.0) as i64)
    }

    fn is_relative(&self) -> bool {
        true
    }

    fn weight(&self) -> i64 {
        self.weight
    }
}

/// Cpu, in thousandths, and thousandths of devices that count as 1: those of the largest node of the published experiments.
const LARGEST_CPU: f64 = 128_000.0;
const LARGEST_DEVICES: f64 = 8_000.0;
