//! `gpu-clustering`: keeps tasks with shares, with one device, with two and so on apart from each other.

use super::device_formula::{DeviceFormula, formula_plugin};
use crate::devices::{DeviceNode, DeviceScore, DeviceTask};
use crate::plugin::PluginDef;

/// Registry entry of the plugin.
pub(super) const DEF: PluginDef = formula_plugin::<Clustering>();

/// Formula of the plugin.
#[derive(Debug)]
struct Clustering;

impl DeviceFormula for Clustering {
    const NAME: &'static str = "gpu-clustering";

    fn score(task: &DeviceTask, node: &DeviceNode<'_>) -> DeviceScore {
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
}

/// Thousandths of devices of the largest node of the published experiments.
const LARGEST_DEVICES: i64 = 8_000;
