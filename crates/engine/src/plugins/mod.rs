//! Served plugins, one file or folder each, and their registry.

mod allocation;
mod argument_names;
mod binpack;
pub mod capacity;
pub mod capacity_card;
pub mod drf;
mod effective_values;
mod node_resources_fit_plus;
pub mod proportion;
mod queue_accounts;
mod resource_strategy_fit;
mod scarce_resource_avoidance;
mod strict_arguments;

use super::plugin::PluginDef;

/// Registry of all served plugins. Order and weights of decisions come from the policy; the order of
/// entries only decides which of two problems of one queue is told first.
pub const REGISTRY: &[PluginDef] = &[
    binpack::DEF,
    capacity::DEF,
    capacity_card::DEF,
    drf::DEF,
    node_resources_fit_plus::DEF,
    proportion::DEF,
    resource_strategy_fit::DEF,
    scarce_resource_avoidance::DEF,
];

/// Registry entry of a name.
pub fn find(name: &str) -> Option<&'static PluginDef> {
    REGISTRY.iter().find(|def| def.name == name)
}

/// Names of the served plugins that profiles of a `KubeSchedulerConfiguration` have.
pub fn profile_names() -> Vec<&'static str> {
    let defs = REGISTRY.iter().filter(|def| def.in_profiles);
    defs.map(|def| def.name).collect()
}

/// Names of the served plugins.
pub fn served_names() -> Vec<&'static str> {
    REGISTRY.iter().map(|def| def.name).collect()
}
