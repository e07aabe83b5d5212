//! A policy document as it was written: typed, nothing filled in, nothing repaired.

use std::collections::BTreeMap;

use super::args::PluginArguments;
use super::diagnostics::DocumentLocation;

/// Whether answers follow the reference to the letter or keep this project's promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Compatibility {
    /// Exactly what Volcano answers, surprises included.
    Upstream,
    /// Differs from Volcano where it contradicts its own documents, fails open or repairs silently.
    #[default]
    Corrected,
}

impl Compatibility {
    /// Its name in documents.
    pub fn name(self) -> &'static str {
        match self {
            Compatibility::Upstream => "upstream",
            Compatibility::Corrected => "corrected",
        }
    }

    /// The one with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Compatibility::Upstream, Compatibility::Corrected]
            .into_iter()
            .find(|c| c.name() == name)
    }
}

/// Actions that Volcano has.
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
        /// A switch of a plugin: one hook each.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Switch { $(#[doc = $doc] $name,)* }

        impl Switch {
            /// All switches, in Volcano's order.
            pub const ALL: [Switch; 25] = [$(Switch::$name,)*];

            /// Its key in documents. The prefix is irregular, as it is upstream.
            pub fn key(self) -> &'static str {
                match self { $(Switch::$name => $key,)* }
            }

            /// Is it on if the document does not say? Off otherwise.
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
    /// The switch with this key.
    pub fn from_key(key: &str) -> Option<Switch> {
        Switch::ALL.into_iter().find(|switch| switch.key() == key)
    }
}

/// The switches of one plugin as written; what is not written is unset here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PluginSwitches([Option<bool>; Switch::ALL.len()]);

impl PluginSwitches {
    /// What the document says.
    pub fn written(&self, switch: Switch) -> Option<bool> {
        self.0.get(switch as usize).copied().flatten()
    }

    /// What counts: as written, or the default; `None` for the two without a default (they count as off).
    pub fn effective(&self, switch: Switch) -> Option<bool> {
        self.written(switch).or(switch.default_on().then_some(true))
    }

    /// Is the hook on?
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

/// A plugin in a tier.
#[derive(Debug, Clone, Default)]
pub struct PluginSpec {
    /// Its name as written.
    pub name: String,
    /// Where the name stands, or the plugin if it has none.
    pub at: DocumentLocation,
    /// Its switches.
    pub switches: PluginSwitches,
    /// Its arguments; `None` if there are none, not even an empty map.
    pub arguments: Option<PluginArguments>,
}

/// Arguments of an action.
#[derive(Debug, Clone, Default)]
pub struct ActionConfiguration {
    /// The action's name as written.
    pub name: String,
    /// Where it stands.
    pub at: DocumentLocation,
    /// The arguments.
    pub arguments: Option<PluginArguments>,
}

/// What the optional section `pumice:` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PumiceSection {
    /// The compatibility that the document asks for.
    pub compatibility: Option<Compatibility>,
}

/// A policy document.
#[derive(Debug, Clone, Default)]
pub struct PolicySpec {
    /// Names of actions in order.
    pub actions: Vec<String>,
    /// Plugins, tier by tier.
    pub tiers: Vec<Vec<PluginSpec>>,
    /// Arguments of actions.
    pub configurations: Vec<ActionConfiguration>,
    /// Settings of the metrics source; `None` if there is no such section.
    pub metrics: Option<BTreeMap<String, String>>,
    /// The section `pumice:`, if there is one.
    pub pumice: Option<PumiceSection>,
}

impl PolicySpec {
    /// The compatibility that counts: the document's own, else the caller's.
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
