//! `fgd`: prefers nodes that a task leaves least fragmented, by what typical tasks could still use (Weng et al., "Beware of
//! Fragmentation", USENIX ATC 2023). The typical tasks are arguments, so that they have the policy's version.

mod typical;

use std::sync::Arc;

use super::device_scores::{node_scorer, read_weight, score_hooks};
use super::effective_values::{map_entry, value_map};
use crate::devices::fragmentation::{Fragmentation, TypicalTask};
use crate::devices::{DeviceNode, DeviceScore, DeviceScorer, DeviceTask};
use crate::model::TaskClass;
use crate::plugin::{NodeScorer, Plugin, PluginContext, PluginDef, PluginHooks, PreparedHook};
use crate::policy::{Compatibility, DiagnosticReport, PluginArguments, YamlValue};

/// Registry entry of the plugin.
pub(super) const DEF: PluginDef = PluginDef {
    families: &["score"],
    ..PluginDef::new("fgd", compile)
};

/// Compiled plugin.
#[derive(Debug)]
struct GradientDescent {
    weight: i64,
    classes: typical::TypicalClasses,
    fragmentation: Fragmentation,
}

fn compile(arguments: &PluginArguments, _: Compatibility, report: &mut DiagnosticReport) -> Arc<dyn Plugin> {
    arguments.warn_unknown(report, DEF.name, &["weight", typical::TASKS, typical::TOTAL], |_| false);
    let weight = read_weight(arguments, report);
    let classes = typical::read(arguments, report);
    let typical: Vec<TypicalTask> = classes.tasks();
    Arc::new(GradientDescent {
        weight,
        classes,
        fragmentation: Fragmentation::new(&typical),
    })
}

impl Plugin for GradientDescent {
    fn hooks(&self) -> PluginHooks {
        score_hooks(self.weight)
    }

    fn effective_arguments(&self) -> YamlValue {
        let weight = map_entry("weight", YamlValue::Int(self.weight));
        value_map([weight].into_iter().chain(self.classes.arguments()))
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
