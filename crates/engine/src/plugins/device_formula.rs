//! Plugins that score nodes by a formula over their devices, and that have no argument but their weight.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;

use super::device_scores::{node_scorer, read_weight, score_hooks};
use super::effective_values::{map_entry, value_map};
use crate::devices::{DeviceNode, DeviceScore, DeviceScorer, DeviceTask};
use crate::model::TaskClass;
use crate::plugin::{NodeScorer, Plugin, PluginContext, PluginDef, PluginHooks, PreparedHook};
use crate::policy::{Compatibility, DiagnosticReport, PluginArguments, YamlValue};

/// Formula by which a plugin scores nodes.
pub(super) trait DeviceFormula: Debug + Send + Sync + 'static {
    /// Name of the plugin.
    const NAME: &'static str;
    /// True if scores are scaled between the least and the greatest of the candidates.
    const IS_RELATIVE: bool = false;

    /// Score of a node that has enough for a task.
    fn score(task: &DeviceTask, node: &DeviceNode<'_>) -> DeviceScore;
}

/// Registry entry of the plugin that has a formula.
pub(super) const fn formula_plugin<F: DeviceFormula>() -> PluginDef {
    PluginDef {
        families: &["score"],
        ..PluginDef::new(F::NAME, compile::<F>)
    }
}

/// Compiled plugin.
#[derive(Debug)]
struct FormulaPlugin<F> {
    weight: i64,
    formula: PhantomData<F>,
}

fn compile<F: DeviceFormula>(
    arguments: &PluginArguments,
    _: Compatibility,
    report: &mut DiagnosticReport,
) -> Arc<dyn Plugin> {
    arguments.warn_unknown(report, F::NAME, &["weight"], |_| false);
    Arc::new(FormulaPlugin::<F> {
        weight: read_weight(arguments, report),
        formula: PhantomData,
    })
}

impl<F: DeviceFormula> Plugin for FormulaPlugin<F> {
    fn hooks(&self) -> PluginHooks {
        score_hooks(self.weight)
    }

    fn effective_arguments(&self) -> YamlValue {
        value_map([map_entry("weight", YamlValue::Int(self.weight))])
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

impl<F: DeviceFormula> DeviceScorer for FormulaPlugin<F> {
    fn score(&self, task: &DeviceTask, node: &DeviceNode<'_>) -> DeviceScore {
        F::score(task, node)
    }

    fn weight(&self) -> i64 {
        self.weight
    }

    fn is_relative(&self) -> bool {
        F::IS_RELATIVE
    }
}
