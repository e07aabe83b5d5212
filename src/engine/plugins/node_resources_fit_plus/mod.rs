//! `NodeResourcesFitPlus`: a strategy and a weight for each resource (Koordinator a7a1b76b,
//! pkg/scheduler/plugins/noderesourcesfitplus).

mod arguments;
mod score;

use std::sync::Arc;

use super::effective::{entry, map};
use crate::engine::model::TaskClass;
use crate::engine::model::resource_name::ResourceKind;
use crate::engine::plugin::{Facts, Hooks, Plugin, PluginDef, Prepared, Scorer};
use crate::engine::policy::{Arguments, Compatibility, Report, Value};
use arguments::Weighted;
use score::{Arithmetic, Mean, Strategy, Term};

/// Its row in the registry.
pub(super) const DEF: PluginDef = PluginDef {
    name: "NodeResourcesFitPlus",
    families: &["score"],
    task_annotations: &[],
    job_annotations: &[],
    queue_annotations: &[],
    node_labels: &[],
    compile,
};

/// The plugin, compiled.
#[derive(Debug)]
struct NodeResourcesFitPlus {
    resources: Vec<Weighted>,
    arithmetic: Arithmetic,
}

fn compile(arguments: &Arguments, compatibility: Compatibility, report: &mut Report) -> Arc<dyn Plugin> {
    Arc::new(NodeResourcesFitPlus {
        resources: arguments::read(arguments, report),
        arithmetic: match compatibility {
            Compatibility::Upstream => Arithmetic::Wrapping,
            Compatibility::Corrected => Arithmetic::Exact,
        },
    })
}

impl Plugin for NodeResourcesFitPlus {
    fn hooks(&self) -> Hooks {
        Hooks {
            score: true,
            ..Hooks::default()
        }
    }

    fn effective_arguments(&self) -> Value {
        let resources = self.resources.iter().map(|resource| {
            let own = [
                entry("type", Value::String(resource.strategy_name.clone())),
                entry("weight", Value::Int(resource.weight)),
            ];
            (resource.name.clone(), map(own))
        });
        map([entry("resources", map(resources))])
    }

    fn scorer<'a>(&'a self, class: &'a TaskClass, _: Facts<'a>) -> Prepared<dyn Scorer + 'a> {
        let terms = class.requested.iter().filter_map(|requested| {
            let kind = ResourceKind::of(&requested.name);
            let resource = self.resources.iter().find(|own| *own.name == *requested.name)?;
            let counted = kind != ResourceKind::Pods && kind.counted_by_kubernetes();
            counted.then(|| Term {
                id: requested.id,
                own: requested.counted,
                strategy: resource.strategy(),
                weight: resource.weight,
            })
        });
        Ok(Some(Box::new(Mean::new(terms.collect(), self.arithmetic))))
    }
}

impl Weighted {
    fn strategy(&self) -> Strategy {
        match self.strategy_name.as_str() {
            "MostAllocated" => Strategy::Most,
            "LeastAllocated" => Strategy::Least,
            _ => Strategy::Unknown,
        }
    }
}
