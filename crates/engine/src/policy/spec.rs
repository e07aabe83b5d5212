//! Policy document as it was written: typed, without defaults and repairs.

use std::collections::BTreeMap;

use super::args::PluginArguments;
use super::compatibility::Compatibility;
use super::switch::Switch;
use super::yaml::DocumentLocation;

/// Actions of Volcano.
pub const ACTIONS: [&str; 8] = [
    "enqueue",
    "allocate",
    "backfill",
    "preempt",
    "reclaim",
    "shuffle",
    "gangpreempt",
    "gangreclaim",
];

/// Settings of the metrics source that Volcano reads (Volcano ed72c7c81, pkg/scheduler/metrics/source).
pub const METRICS_SETTINGS: [&str; 8] = [
    "type",
    "address",
    "interval",
    "tls.insecureSkipVerify",
    "elasticsearch.index",
    "elasticsearch.hostnameFieldName",
    "elasticsearch.username",
    "elasticsearch.password",
];

/// Types of metrics sources that Volcano has.
pub const METRICS_TYPES: [&str; 3] = ["prometheus", "prometheus_adaptor", "elasticsearch"];

/// Plugins that Volcano registers (Volcano ed72c7c81, pkg/scheduler/plugins/factory.go).
pub const UPSTREAM_PLUGINS: [&str; 24] = [
    "binpack",
    "capacity",
    "cdp",
    "conformance",
    "deviceshare",
    "drf",
    "extender",
    "gang",
    "network-topology-aware",
    "nodegroup",
    "nodeorder",
    "numa-aware",
    "overcommit",
    "pdb",
    "predicates",
    "priority",
    "proportion",
    "rescheduling",
    "resource-strategy-fit",
    "resourcequota",
    "sla",
    "task-topology",
    "tdm",
    "usage",
];

/// Switches of one plugin in the document; an absent one is unset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PluginSwitches([Option<bool>; Switch::ALL.len()]);

impl PluginSwitches {
    /// Value in the document.
    pub fn written(&self, switch: Switch) -> Option<bool> {
        self.0.get(switch as usize).copied().flatten()
    }

    /// Effective value: the document's value or the default. `None` for the two switches without a default, which are
    /// treated as off.
    pub fn effective(&self, switch: Switch) -> Option<bool> {
        self.written(switch).or(switch.default_on().then_some(true))
    }

    /// True if the hook is on.
    pub fn is_on(&self, switch: Switch) -> bool {
        self.effective(switch) == Some(true)
    }

    /// Sets or unsets a switch.
    pub fn set(&mut self, switch: Switch, value: Option<bool>) {
        if let Some(slot) = self.0.get_mut(switch as usize) {
            *slot = value;
        }
    }
}

/// Plugin in a tier.
#[derive(Debug, Clone, Default)]
pub struct PluginSpec {
    /// Name in the document's spelling.
    pub name: String,
    /// Location of the name, or of the plugin if it has none.
    pub at: DocumentLocation,
    /// Switches of the plugin, such as `enabledJobOrder`.
    pub switches: PluginSwitches,
    /// Arguments. `None`: the entry has no block of arguments. An empty block is `Some`.
    pub arguments: Option<PluginArguments>,
}

/// Arguments of an action.
#[derive(Debug, Clone, Default)]
pub struct ActionConfiguration {
    /// Name of the action in the document's spelling.
    pub name: String,
    /// Location of the action.
    pub at: DocumentLocation,
    /// Arguments of the action. `None`: the entry has none.
    pub arguments: Option<PluginArguments>,
}

/// Content of the optional section `pumice:`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PumiceSection {
    /// Compatibility that the document sets.
    pub compatibility: Option<Compatibility>,
}

/// Policy document.
#[derive(Debug, Clone, Default)]
pub struct PolicySpec {
    /// Names of actions, in order.
    pub actions: Vec<String>,
    /// Plugins, tier by tier.
    pub tiers: Vec<Vec<PluginSpec>>,
    /// Arguments of actions.
    pub configurations: Vec<ActionConfiguration>,
    /// Settings of the metrics source; `None` if the section is absent.
    pub metrics: Option<BTreeMap<String, String>>,
    /// Section `pumice:`, if present.
    pub pumice: Option<PumiceSection>,
}

impl PolicySpec {
    /// Effective compatibility: the document's setting, or the caller's.
    pub fn compatibility(&self, asked: Compatibility) -> Compatibility {
        self.pumice.and_then(|section| section.compatibility).unwrap_or(asked)
    }

    /// All plugins in order, with the number of their tier from 0.
    pub fn plugins(&self) -> impl Iterator<Item = (usize, &PluginSpec)> {
        self.tiers
            .iter()
            .enumerate()
            .flat_map(|(tier, plugins)| plugins.iter().map(move |plugin| (tier, plugin)))
    }
}
