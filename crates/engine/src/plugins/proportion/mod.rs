//! `proportion`: queues share the cluster by weight (Volcano ed72c7c81, pkg/scheduler/plugins/proportion).

mod division;
mod plugin;
mod record_rules;
mod state;
#[cfg(test)]
mod tests;
mod victims;

pub(super) use plugin::DEF;
pub use state::ProportionState;

/// Name of the plugin in a policy.
pub const PLUGIN: &str = "proportion";
