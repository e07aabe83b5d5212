//! `gpu-bestfit`: prefers nodes with the least cpu and devices left.

use super::device_formula::{DeviceFormula, formula_plugin};
use crate::devices::{DeviceNode, DeviceScore, DeviceTask};
use crate::plugin::PluginDef;

/// Registry entry of the plugin.
pub(super) const DEF: PluginDef = formula_plugin::<BestFit>();

/// Formula of the plugin.
#[derive(Debug)]
struct BestFit;

impl DeviceFormula for BestFit {
    const NAME: &'static str = "gpu-bestfit";
    const IS_RELATIVE: bool = true;

    #[expect(clippy::cast_possible_truncation, reason = "the formula cuts to an integer")]
    fn score(task: &DeviceTask, node: &DeviceNode<'_>) -> DeviceScore {
        let mut left = 0.0;
        left += (node.free_cpu - task.cpu) as f64 / LARGEST_CPU * 0.5;
        left += (node.idle() - task.total()) as f64 / LARGEST_DEVICES * 0.5;
        DeviceScore::of_node(((1.0 - left) * 100.0) as i64)
    }
}

/// Amounts that correspond to 1: cpu in thousandths and thousandths of devices of the largest node of the published
/// experiments.
const LARGEST_CPU: f64 = 128_000.0;
const LARGEST_DEVICES: f64 = 8_000.0;
