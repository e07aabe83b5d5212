//! `predicates`: the filters of Kubernetes v1.36.1 that Volcano uses (Volcano ed72c7c81,
//! pkg/scheduler/plugins/predicates).
//!
//! Order of the checks of one node: number of pods, cordon, node selector and node affinity, taints, host ports, required
//! terms about other pods, topology spread. A number of pods that is reached is noted, and the checks go on; a cordon,
//! affinity or taint ends them. Under `corrected` a node has one reason.

mod added_rules;
mod arguments;
mod node_filter;
mod pod_checks;
mod rejection_kind;
mod taint_names;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub(super) use added_rules::{AddedRules, NO_ADDED_RULES};
pub(super) use arguments::{PredicateArguments, PredicateCheck};
pub(super) use node_filter::PodFilter;

use crate::model::TaskClass;
use crate::plugin::{NodeFilter, Plugin, PluginContext, PluginDef, PluginHooks, PreparedHook, TemplateRule};
use crate::policy::{Compatibility, DiagnosticReport, PluginArguments, YamlValue};

/// Name of the plugin.
pub(super) const NAME: &str = "predicates";

/// Registry entry of the plugin.
pub(super) const DEF: PluginDef = PluginDef {
    families: &["filter"],
    node_labels: &["*"],
    task_annotations: &[node_filter::TEMPLATE],
    task_labels: &["*"],
    ..PluginDef::new(NAME, compile)
};

/// Compiled plugin.
#[derive(Debug)]
struct Predicates {
    arguments: PredicateArguments,
    compatibility: Compatibility,
}

fn compile(
    arguments: &PluginArguments,
    compatibility: Compatibility,
    report: &mut DiagnosticReport,
) -> Arc<dyn Plugin> {
    Arc::new(Predicates {
        arguments: PredicateArguments::read(arguments, compatibility, report),
        compatibility,
    })
}

impl Plugin for Predicates {
    fn hooks(&self) -> PluginHooks {
        PluginHooks {
            filter: true,
            moves_pods: true,
            template: self.arguments.has(PredicateCheck::Cache).then_some(TemplateRule {
                annotation: node_filter::TEMPLATE,
                skips_conflicts: self.arguments.has(PredicateCheck::NodeAffinity),
            }),
            filter_evaluates: self.arguments.evaluates(),
            ..PluginHooks::default()
        }
    }

    fn effective_arguments(&self) -> YamlValue {
        self.arguments.effective()
    }

    fn prepare_filter<'a>(
        &'a self,
        context: PluginContext<'a>,
        class: &'a TaskClass,
    ) -> PreparedHook<dyn NodeFilter + 'a> {
        Ok(Some(Box::new(PodFilter::new(
            NAME,
            // The defaults of Kubernetes, which are in force, reject no node.
            (self.arguments, &NO_ADDED_RULES),
            self.compatibility,
            context,
            class,
        )?)))
    }
}
