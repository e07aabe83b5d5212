//! Plugins that score nodes by a formula over their devices, and that have no argument but their weight.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;

use super::device_plugin::device_plugin;
use super::device_scores::read_weight;
use crate::devices::{DeviceNode, DeviceScore, DeviceScorer, DeviceTask};
use crate::plugin::{Plugin, PluginDef};
use crate::policy::{Compatibility, DiagnosticReport, PluginArguments};

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

/// Score of a formula, with its weight.
#[derive(Debug)]
struct FormulaScorer<F> {
    weight: i64,
    formula: PhantomData<F>,
}

fn compile<F: DeviceFormula>(
    arguments: &PluginArguments,
    _: Compatibility,
    report: &mut DiagnosticReport,
) -> Arc<dyn Plugin> {
    arguments.warn_unknown(report, F::NAME, &["weight"], |_| false);
    let scorer = FormulaScorer::<F> {
        weight: read_weight(arguments, report),
        formula: PhantomData,
    };
    device_plugin(scorer, [])
}

impl<F: DeviceFormula> DeviceScorer for FormulaScorer<F> {
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
