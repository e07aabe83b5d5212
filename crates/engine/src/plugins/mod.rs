//! Served plugins, one file or folder each, and their registry.

mod allocation;
mod argument_names;
mod binpack;
pub mod capacity;
pub mod capacity_card;
mod cdp;
mod conformance;
mod device_formula;
mod device_plugin;
mod device_scores;
pub mod drf;
mod effective_values;
mod fgd;
mod gang;
mod go_duration;
mod gpu_bestfit;
mod gpu_clustering;
mod gpu_devices;
mod gpu_dotprod;
mod gpu_packing;
mod gpu_random;
mod integer_arithmetic;
mod inter_pod;
#[cfg(test)]
mod job_limit;
#[cfg(test)]
mod job_limit_tests;
mod job_tallies;
mod json_object;
mod kube_scheduler;
mod node_resources_fit_plus;
mod nodegroup;
mod nodeorder;
pub mod overcommit;
mod pdb;
mod predicates;
mod priority;
pub mod proportion;
mod queue_accounts;
mod record_values;
mod rescheduling;
mod resource_strategy_fit;
mod resourcequota;
mod scarce_resource_avoidance;
mod sla;
mod strict_arguments;
mod task_topology;
mod tdm;
mod usage;

pub(crate) use job_tallies::started_tasks;

use super::plugin::PluginDef;

/// Plugin name in reasons about a gang as a whole: the name of the gang plugin.
pub const GANG: &str = gang::NAME;

/// Registry of all implemented plugins. Order and weights of decisions come from the policy. The order of entries only
/// decides which of two problems of one queue is reported first.
pub const REGISTRY: &[PluginDef] = &[
    binpack::DEF,
    capacity::DEF,
    capacity_card::DEF,
    cdp::DEF,
    conformance::DEF,
    drf::DEF,
    fgd::DEF,
    gang::DEF,
    gpu_bestfit::DEF,
    gpu_clustering::DEF,
    gpu_devices::DEF,
    gpu_dotprod::DEF,
    gpu_packing::DEF,
    #[cfg(test)]
    job_limit::DEF,
    gpu_random::DEF,
    node_resources_fit_plus::DEF,
    kube_scheduler::NODE_UNSCHEDULABLE,
    kube_scheduler::TAINT_TOLERATION,
    kube_scheduler::NODE_AFFINITY,
    kube_scheduler::NODE_PORTS,
    kube_scheduler::NODE_RESOURCES_FIT,
    kube_scheduler::POD_TOPOLOGY_SPREAD,
    kube_scheduler::INTER_POD_AFFINITY,
    kube_scheduler::NODE_RESOURCES_BALANCED_ALLOCATION,
    kube_scheduler::IMAGE_LOCALITY,
    predicates::DEF,
    nodegroup::DEF,
    nodeorder::DEF,
    proportion::DEF,
    overcommit::DEF,
    pdb::DEF,
    priority::DEF,
    rescheduling::DEF,
    resource_strategy_fit::DEF,
    resourcequota::DEF,
    scarce_resource_avoidance::DEF,
    sla::DEF,
    task_topology::DEF,
    tdm::DEF,
    usage::DEF,
];

/// Registry entry of a name.
pub fn find(name: &str) -> Option<&'static PluginDef> {
    REGISTRY.iter().find(|def| def.name == name)
}

/// Names of the served plugins that profiles of a `KubeSchedulerConfiguration` have.
pub fn profile_names() -> Vec<&'static str> {
    let defs = REGISTRY.iter().filter(|def| !def.profile_points.is_empty());
    defs.map(|def| def.name).collect()
}

/// Names of the served plugins.
pub fn served_names() -> Vec<&'static str> {
    REGISTRY.iter().map(|def| def.name).collect()
}
