//! `gpu-dotprod`: prefers nodes whose free cpu and free devices are small where the task's requests are large.

use super::device_formula::{DeviceFormula, formula_plugin};
use crate::devices::{DeviceNode, DeviceScore, DeviceTask};
use crate::plugin::PluginDef;

/// Registry entry of the plugin.
pub(super) const DEF: PluginDef = formula_plugin::<DotProduct>();

/// Formula of the plugin.
#[derive(Debug)]
struct DotProduct;

impl DeviceFormula for DotProduct {
    const NAME: &'static str = "gpu-dotprod";

    #[expect(
        clippy::cast_possible_truncation,
        reason = "the formula cuts to an integer from 0 to 100"
    )]
    fn score(task: &DeviceTask, node: &DeviceNode<'_>) -> DeviceScore {
        let cpu = (node.free_cpu as f64 / LARGEST_CPU) * (task.cpu as f64 / LARGEST_CPU);
        let devices = (node.idle() as f64 / LARGEST_DEVICES) * (task.total() as f64 / LARGEST_DEVICES);
        let dot = cpu + devices;
        DeviceScore::of_node((100.0 * (1.0 - dot / 2.0)) as i64)
    }
}

/// Amounts that correspond to 1: cpu in thousandths and thousandths of devices of the largest node of the published
/// experiments.
const LARGEST_CPU: f64 = 128_000.0;
const LARGEST_DEVICES: f64 = 8_000.0;
