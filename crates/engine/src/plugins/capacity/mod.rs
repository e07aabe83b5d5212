//! `capacity`: queues have amounts that they deserve, and limits, flat or as a tree (Volcano ed72c7c81,
//! pkg/scheduler/plugins/capacity).

mod config;
mod limits;
mod order;
mod plugin;
mod preemptive;
mod quota_rules;
mod record_rules;
mod state;
#[cfg(test)]
mod tests;
mod tree;
mod victims;

pub(super) use plugin::DEF;
pub use state::QueueCapacityState;

/// Name of the plugin in a policy.
pub const PLUGIN: &str = "capacity";
