//! `NodeResourcesFitPlus`: a strategy and a weight for each resource (Koordinator a7a1b76b,
//! pkg/scheduler/plugins/noderesourcesfitplus).

mod arguments;
mod score;

use std::sync::Arc;

use super::allocation::AllocationStrategy;
use super::effective_values::{map_entry, value_map};
use super::integer_arithmetic::IntegerArithmetic;
use crate::model::TaskClass;
use crate::model::resource_name::ResourceKind;
use crate::plugin::{NodeScorer, Plugin, PluginContext, PluginDef, PluginHooks, PreparedHook};
use crate::policy::{Compatibility, DiagnosticReport, PluginArguments, YamlValue};
use arguments::WeightedResource;
use score::{FitPlusMean, FitPlusTerm};

/// Registry entry of the plugin.
pub(super) const DEF: PluginDef = PluginDef {
    families: &["score"],
    profile_points: &["preScore", "score"],
    ..PluginDef::new("NodeResourcesFitPlus", compile)
};

/// Compiled plugin.
#[derive(Debug)]
struct NodeResourcesFitPlus {
    resources: Vec<WeightedResource>,
    arithmetic: IntegerArithmetic,
}

fn compile(
    arguments: &PluginArguments,
    compatibility: Compatibility,
    report: &mut DiagnosticReport,
) -> Arc<dyn Plugin> {
    Arc::new(NodeResourcesFitPlus {
        resources: arguments::read(arguments, report),
        arithmetic: IntegerArithmetic::of(compatibility),
    })
}

impl Plugin for NodeResourcesFitPlus {
    fn hooks(&self) -> PluginHooks {
        PluginHooks {
            score: true,
            ..PluginHooks::default()
        }
    }

    fn effective_arguments(&self) -> YamlValue {
        let resources = self.resources.iter().map(|resource| {
            let own = [
                map_entry("type", YamlValue::String(resource.strategy_name.clone())),
                map_entry("weight", YamlValue::Int(resource.weight)),
            ];
            (resource.name.clone(), value_map(own))
        });
        value_map([map_entry("resources", value_map(resources))])
    }

    fn score_bounds(&self) -> Option<(f64, f64)> {
        Some((0.0, 100.0))
    }

    fn prepare_scorer<'a>(&'a self, _: PluginContext<'a>, class: &'a TaskClass) -> PreparedHook<dyn NodeScorer + 'a> {
        let terms = class.requested.iter().filter_map(|requested| {
            let kind = ResourceKind::of(&requested.name);
            let resource = self.resources.iter().find(|own| *own.name == *requested.name)?;
            let counted = kind != ResourceKind::Pods && kind.counted_by_kubernetes();
            counted.then(|| FitPlusTerm {
                id: requested.id,
                requested: requested.counted,
                strategy: AllocationStrategy::parse(&resource.strategy_name),
                weight: resource.weight,
            })
        });
        Ok(Some(Box::new(FitPlusMean::new(terms.collect(), self.arithmetic))))
    }
}
