//! `gpu-packing`: fills devices that are in use before free ones, and free ones of used nodes before those of idle nodes.

use std::sync::Arc;

use super::device_scores::{node_scorer, read_weight, score_hooks, weight_argument};
use smallvec::SmallVec;

use crate::devices::{DeviceNode, DeviceScore, DeviceScorer, DeviceTask, WHOLE_DEVICE};
use crate::model::TaskClass;
use crate::plugin::{NodeScorer, Plugin, PluginContext, PluginDef, PluginHooks, PreparedHook};
use crate::policy::{Compatibility, DiagnosticReport, PluginArguments, YamlValue};

/// Registry entry of the plugin.
pub(super) const DEF: PluginDef = PluginDef {
    families: &["score"],
    ..PluginDef::new("gpu-packing", compile)
};

/// Compiled plugin.
#[derive(Debug)]
struct DevicePacking {
    weight: i64,
}

fn compile(arguments: &PluginArguments, _: Compatibility, report: &mut DiagnosticReport) -> Arc<dyn Plugin> {
    arguments.warn_unknown(report, DEF.name, &["weight"], |_| false);
    let weight = read_weight(arguments, report);
    Arc::new(DevicePacking { weight })
}

impl Plugin for DevicePacking {
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

impl DeviceScorer for DevicePacking {
    fn score(&self, task: &DeviceTask, node: &DeviceNode<'_>) -> DeviceScore {
        if task.count == 0 {
            return DeviceScore::of_node(0);
        }
        let whole = node.whole_devices();
        if node.free.iter().all(|free| *free == WHOLE_DEVICE) {
            return DeviceScore::of_node((33 - whole).max(whole));
        }
        let mut enough: SmallVec<[i32; 8]> = node.free.iter().copied().filter(|free| *free >= task.milli).collect();
        enough.sort_unstable();
        enough.truncate(task.count as usize);
        let whole = enough.iter().map(|free| i64::from(*free == WHOLE_DEVICE)).sum::<i64>();
        if whole > 0 {
            return DeviceScore::of_node((50 - whole).max(33));
        }
        let left: i64 = enough
            .iter()
            .map(|free| i64::from(*free) * 100 / i64::from(WHOLE_DEVICE))
            .sum();
        DeviceScore::of_node((100 - left / 10).max(50))
    }

    fn weight(&self) -> i64 {
        self.weight
    }
}
