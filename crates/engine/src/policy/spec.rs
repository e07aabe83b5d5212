//! Policy document as it was written: typed, without defaults and repairs.

use std::collections::BTreeMap;

use super::args::PluginArguments;
use super::diagnostics::DocumentLocation;

/// Compatibility: whether decisions follow the reference literally or keep this project's promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Compatibility {
    /// Exactly Volcano's results, surprises included.
    Upstream,
    /// Volcano's results, except where it contradicts its own documents, fails open or repairs silently.
    #[default]
    Corrected,
}

impl Compatibility {
    /// Both.
    pub const ALL: [Compatibility; 2] = [Compatibility::Upstream, Compatibility::Corrected];

    /// Name of the compatibility in documents.
    pub fn name(self) -> &'static str {
        match self {
            Compatibility::Upstream => "upstream",
            Compatibility::Corrected => "corrected",
        }
    }

    /// Compatibility of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Compatibility::ALL.into_iter().find(|c| c.name() == name)
    }
}

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
    "numaaware",
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

macro_rules! switches {
    ($($name:ident $key:literal $default:ident $doc:literal)*) => {
        /// Switch of a plugin: one per hook.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Switch { $(#[doc = $doc] $name,)* }

        impl Switch {
            /// All switches, in Volcano's order.
            pub const ALL: [Switch; 25] = [$(Switch::$name,)*];

            /// Key in documents. The prefix is irregular, as upstream.
            pub fn key(self) -> &'static str {
                match self { $(Switch::$name => $key,)* }
            }

            /// True if the switch is on by default.
            pub fn default_on(self) -> bool {
                match self { $(Switch::$name => switches!(@ $default),)* }
            }
        }
    };
    (@ on) => { true };
    (@ unset) => { false };
}

switches! {
    JobOrder "enableJobOrder" on "Order of jobs."
    Hierarchy "enableHierarchy" unset "Hierarchical queues of `drf`."
    JobReady "enableJobReady" on "Is a job ready to run."
    JobPipelined "enableJobPipelined" on "Is a job pipelined."
    TaskOrder "enableTaskOrder" on "Order of tasks."
    Preemptable "enablePreemptable" on "Victims of preemption."
    Reclaimable "enableReclaimable" on "Victims of reclaim."
    Preemptive "enablePreemptive" on "May a queue preempt."
    QueueOrder "enableQueueOrder" on "Order of queues."
    ClusterOrder "enabledClusterOrder" unset "Order of clusters."
    Predicate "enablePredicate" on "May a task run on a node."
    BestNode "enableBestNode" on "Choice of one node."
    NodeOrder "enableNodeOrder" on "Score of nodes."
    TargetJob "enableTargetJob" on "Choice of one job."
    ReservedNodes "enableReservedNodes" on "Reserved nodes."
    JobEnqueued "enableJobEnqueued" on "May a job enter the queue."
    Victim "enabledVictim" on "Victims of a plugin's own."
    JobStarving "enableJobStarving" on "Is a job starving."
    Overused "enabledOverused" on "Is a queue over its share."
    Allocatable "enabledAllocatable" on "May a queue take a task."
    HyperNodeOrder "enabledHyperNodeOrder" on "Score of hypernodes."
    SubJobReady "enabledSubJobReady" on "Is a part of a job ready."
    SubJobPipelined "enabledSubJobPipelined" on "Is a part of a job pipelined."
    SubJobOrder "enabledSubJobOrder" on "Order of parts of jobs."
    HyperNodeGradient "enabledHyperNodeGradient" on "Gradients of hypernodes."
}

impl Switch {
    /// Switch of this key.
    pub fn from_key(key: &str) -> Option<Switch> {
        Switch::ALL.into_iter().find(|switch| switch.key() == key)
    }
}

/// Switches of one plugin in the document; an absent one is unset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PluginSwitches([Option<bool>; Switch::ALL.len()]);

impl PluginSwitches {
    /// Value in the document.
    pub fn written(&self, switch: Switch) -> Option<bool> {
        self.0.get(switch as usize).copied().flatten()
    }

    /// Effective value: the document's, or the default; `None` for the two without a default, which count as off.
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
    /// Switches of the plugin.
    pub switches: PluginSwitches,
    /// Arguments; `None` if there is no block, not even an empty one.
    pub arguments: Option<PluginArguments>,
}

/// Arguments of an action.
#[derive(Debug, Clone, Default)]
pub struct ActionConfiguration {
    /// Name of the action in the document's spelling.
    pub name: String,
    /// Location of the action.
    pub at: DocumentLocation,
    /// Arguments of the action.
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
    /// Compatibility in force: the document's own, else the caller's.
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
