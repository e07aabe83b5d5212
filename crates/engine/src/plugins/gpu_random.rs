//! `gpu-random`: chooses nodes and devices at random, by a seed: a measure for other policies.

use std::sync::Arc;

use super::device_plugin::device_plugin;
use super::device_scores::{read_int, read_weight};
use super::effective_values::map_entry;
use crate::devices::{DeviceNode, DeviceScore, DeviceScorer, DeviceTask};
use crate::plugin::{Plugin, PluginDef};
use crate::policy::{Compatibility, DiagnosticReport, PluginArguments, YamlValue};

/// Registry entry of the plugin.
pub(super) const DEF: PluginDef = PluginDef {
    families: &["score"],
    ..PluginDef::new("gpu-random", compile)
};

/// Score of the plugin.
#[derive(Debug)]
struct RandomChoice {
    weight: i64,
    seed: i64,
}

fn compile(arguments: &PluginArguments, _: Compatibility, report: &mut DiagnosticReport) -> Arc<dyn Plugin> {
    arguments.warn_unknown(report, DEF.name, &["weight", "seed"], |_| false);
    let weight = read_weight(arguments, report);
    let seed = read_int(arguments, "seed", 0, (i64::MIN, i64::MAX), report);
    device_plugin(RandomChoice { weight, seed }, [map_entry("seed", YamlValue::Int(seed))])
}

/// Upper bound of scores. Below 2^31, a weighted sum is exact.
const SCORES: u64 = 1 << 31;

impl DeviceScorer for RandomChoice {
    fn score(&self, task: &DeviceTask, node: &DeviceNode<'_>) -> DeviceScore {
        let number = mix(self.seed.cast_unsigned() ^ mix(node.identity));
        let device = if task.is_share() {
            let mut enough = node.free.iter().enumerate().filter(|(_, free)| **free >= task.milli);
            let count = enough.clone().count() as u64;
            let chosen = mix(number).checked_rem(count).and_then(|at| usize::try_from(at).ok());
            chosen
                .and_then(|at| enough.nth(at))
                .and_then(|(index, _)| u8::try_from(index).ok())
        } else {
            None
        };
        DeviceScore {
            value: i64::try_from(number % SCORES).unwrap_or(0),
            device,
        }
    }

    fn weight(&self) -> i64 {
        self.weight
    }

    fn is_random(&self) -> bool {
        true
    }
}

/// Mixes the bits of a number (the finalizer of `SplitMix64`: Steele, Lea and Flood, OOPSLA 2014).
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}
