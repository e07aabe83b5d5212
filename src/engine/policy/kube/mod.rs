//! The `KubeSchedulerConfiguration` as a policy document: profiles, the plugins that they enable, and their arguments.

mod compile;
mod emit;
mod load;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::args::PluginArguments;
use super::diagnostics::DocumentLocation;
use super::spec::{Compatibility, PumiceSection};
use super::yaml::{YamlNode, YamlValue};

pub(super) use compile::compile;
pub(super) use load::{is_kube_configuration, load};

/// The kind of document that is read here.
pub(super) const CONFIGURATION_KIND: &str = "KubeSchedulerConfiguration";
/// Its only version.
pub(super) const API_VERSION: &str = "kubescheduler.config.k8s.io/v1";
/// Start of the names of all its versions.
const API_GROUP: &str = "kubescheduler.config.k8s.io/";
/// Name of a profile that has none.
pub(super) const DEFAULT_SCHEDULER: &str = "default-scheduler";
/// Enables a plugin at every extension point that it has.
const MULTI_POINT: &str = "multiPoint";
const PRE_SCORE: &str = "preScore";
const SCORE: &str = "score";

/// Extension points, with the one that stands for all.
const EXTENSION_POINTS: [&str; 13] = [
    "preEnqueue",
    "queueSort",
    "preFilter",
    "filter",
    "postFilter",
    PRE_SCORE,
    SCORE,
    "reserve",
    "permit",
    "preBind",
    "bind",
    "postBind",
    MULTI_POINT,
];

/// Plugins of this format that are served; both have the points `preScore` and `score` only.
const SERVED_PLUGINS: [&str; 2] = ["NodeResourcesFitPlus", "ScarceResourceAvoidance"];

/// Plugins that Kubernetes 1.35 and Koordinator have besides.
pub(super) const KUBE_PLUGINS: [&str; 28] = [
    "Coscheduling",
    "DefaultBinder",
    "DefaultPreBind",
    "DefaultPreemption",
    "DeviceShare",
    "DynamicResources",
    "ElasticQuota",
    "GangScheduling",
    "ImageLocality",
    "InterPodAffinity",
    "LoadAwareScheduling",
    "NodeAffinity",
    "NodeDeclaredFeatures",
    "NodeName",
    "NodeNUMAResource",
    "NodePorts",
    "NodeResourcesBalancedAllocation",
    "NodeResourcesFit",
    "NodeUnschedulable",
    "NodeVolumeLimits",
    "PodTopologySpread",
    "PrioritySort",
    "Reservation",
    "SchedulingGates",
    "TaintToleration",
    "VolumeBinding",
    "VolumeRestrictions",
    "VolumeZone",
];

/// A plugin in a list of an extension point.
#[derive(Debug, Clone, Default)]
struct PluginEntry {
    name: String,
    at: DocumentLocation,
    /// As written; null or not written: `None`.
    weight: Option<i32>,
}

/// What is enabled and disabled at an extension point.
#[derive(Debug, Clone, Default)]
struct PluginSet {
    enabled: Vec<PluginEntry>,
    disabled: Vec<PluginEntry>,
}

/// The arguments of one plugin.
#[derive(Debug, Clone)]
struct PluginConfig {
    name: String,
    at: DocumentLocation,
    arguments: Option<PluginArguments>,
}

/// A profile.
#[derive(Debug, Clone, Default)]
struct KubeProfile {
    /// `schedulerName`; empty: not written.
    name: String,
    at: DocumentLocation,
    /// By extension point.
    plugins: BTreeMap<&'static str, PluginSet>,
    configs: Vec<PluginConfig>,
}

/// A document as it was written.
#[derive(Debug, Clone)]
pub(super) struct KubeSpec {
    /// The whole, without the section `pumice:`.
    document: YamlNode,
    profiles: Vec<KubeProfile>,
    /// The section `pumice:`, of this document or the next.
    pumice: Option<PumiceSection>,
}

impl KubeSpec {
    /// The compatibility that counts: the document's own, else the caller's.
    pub(super) fn compatibility(&self, asked: Compatibility) -> Compatibility {
        self.pumice.and_then(|section| section.compatibility).unwrap_or(asked)
    }
}

/// A field of a map.
fn field<'n>(node: &'n YamlNode, key: &str) -> Option<&'n YamlNode> {
    let YamlValue::Map(pairs) = &node.value else {
        return None;
    };
    let found = pairs.iter().find(|(own, _)| match &own.value {
        YamlValue::String(text) => text == key,
        YamlValue::Null
        | YamlValue::Bool(_)
        | YamlValue::Int(_)
        | YamlValue::UInt(_)
        | YamlValue::Float(_)
        | YamlValue::List(_)
        | YamlValue::Map(_) => false,
    });
    found.map(|(_, value)| value)
}
