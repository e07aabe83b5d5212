//! `fgd`: prefers the nodes that a task fragments least (Weng et al., "Beware of Fragmentation", USENIX ATC 2023).
//! Fragmentation is the free device capacity that typical tasks cannot use. The typical tasks are arguments, and so
//! have the policy's version.

mod typical;

use std::sync::Arc;

use super::device_plugin::device_plugin;
use super::device_scores::read_weight;
use crate::devices::fragmentation::Fragmentation;
use crate::devices::{DeviceNode, DeviceScore, DeviceScorer, DeviceTask};
use crate::plugin::{Plugin, PluginDef};
use crate::policy::{Compatibility, DiagnosticReport, PluginArguments};

/// Registry entry of the plugin.
pub(super) const DEF: PluginDef = PluginDef {
    families: &["score"],
    ..PluginDef::new("fgd", compile)
};

/// Score of the plugin.
#[derive(Debug)]
struct GradientDescent {
    weight: i64,
    fragmentation: Fragmentation,
}

fn compile(arguments: &PluginArguments, _: Compatibility, report: &mut DiagnosticReport) -> Arc<dyn Plugin> {
    arguments.warn_unknown(report, DEF.name, &["weight", typical::TASKS, typical::TOTAL], |_| false);
    let weight = read_weight(arguments, report);
    let classes = typical::read(arguments, report);
    let scorer = GradientDescent {
        weight,
        fragmentation: Fragmentation::new(&classes.tasks()),
    };
    device_plugin(scorer, classes.arguments())
}

impl DeviceScorer for GradientDescent {
    fn score(&self, task: &DeviceTask, node: &DeviceNode<'_>) -> DeviceScore {
        self.fragmentation.score(task, node)
    }

    fn weight(&self) -> i64 {
        self.weight
    }

    fn fragmentation(&self) -> Option<&Fragmentation> {
        Some(&self.fragmentation)
    }
}
