//! `gpu-packing`: fills partly used devices first, then free devices of used nodes, then devices of idle nodes.

use smallvec::SmallVec;

use super::device_formula::{DeviceFormula, formula_plugin};
use crate::devices::{DeviceNode, DeviceScore, DeviceTask, WHOLE_DEVICE};
use crate::plugin::PluginDef;

/// Registry entry of the plugin.
pub(super) const DEF: PluginDef = formula_plugin::<DevicePacking>();

/// Formula of the plugin.
#[derive(Debug)]
struct DevicePacking;

impl DeviceFormula for DevicePacking {
    const NAME: &'static str = "gpu-packing";

    fn score(task: &DeviceTask, node: &DeviceNode<'_>) -> DeviceScore {
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
}
