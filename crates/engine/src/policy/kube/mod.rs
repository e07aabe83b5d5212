//! `KubeSchedulerConfiguration` as a policy document: profiles, their enabled plugins, and the arguments.

mod compile;
mod defaults;
mod emit;
mod extenders;
#[cfg(test)]
mod extenders_tests;
mod load;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::args::PluginArguments;
use super::compatibility::Compatibility;
use super::spec::PumiceSection;
use super::yaml::{DocumentLocation, YamlNode};
use crate::plugins;

pub(super) use compile::compile;
pub(super) use load::{is_kube_configuration, load};

/// Kind of the documents that are read here.
pub(super) const CONFIGURATION_KIND: &str = "KubeSchedulerConfiguration";
/// Supported version.
pub(super) const API_VERSION: &str = "kubescheduler.config.k8s.io/v1";
/// Prefix of the names of all versions.
const API_GROUP: &str = "kubescheduler.config.k8s.io/";
/// Name of a profile without a name.
pub(super) const DEFAULT_SCHEDULER: &str = "default-scheduler";
/// Extension point that stands for all points of a plugin.
const MULTI_POINT: &str = "multiPoint";
const PRE_FILTER: &str = "preFilter";
const FILTER: &str = "filter";
const PRE_SCORE: &str = "preScore";
const SCORE: &str = "score";

/// Extension points, `multiPoint` included.
const EXTENSION_POINTS: [&str; 16] = [
    "preEnqueue",
    "queueSort",
    PRE_FILTER,
    FILTER,
    "postFilter",
    PRE_SCORE,
    SCORE,
    "reserve",
    "permit",
    "preBind",
    "bind",
    "postBind",
    MULTI_POINT,
    "placementGenerate",
    "placementScore",
    LATER_POINT,
];

/// Extension point that came with kube-scheduler 1.37.
const LATER_POINT: &str = "podGroupPostFilter";

/// Plugin that came with kube-scheduler 1.37.
const LATER_PLUGIN: &str = "DeferredPodScheduling";

/// Plugins of Kubernetes and Koordinator that are not served.
pub(super) const KUBE_PLUGINS: [&str; 22] = [
    LATER_PLUGIN,
    "PodGroupPodsCount",
    "TopologyPlacementGenerator",
    "Coscheduling",
    "DefaultBinder",
    "DefaultPreBind",
    "DefaultPreemption",
    "DeviceShare",
    "DynamicResources",
    "ElasticQuota",
    "GangScheduling",
    "LoadAwareScheduling",
    "NodeDeclaredFeatures",
    "NodeName",
    "NodeNUMAResource",
    "NodeVolumeLimits",
    "PrioritySort",
    "Reservation",
    "SchedulingGates",
    "VolumeBinding",
    "VolumeRestrictions",
    "VolumeZone",
];

/// Plugin in a list of an extension point.
#[derive(Debug, Clone, Default)]
struct PluginEntry {
    name: String,
    at: DocumentLocation,
    /// Weight in the document; `None`: null or absent.
    weight: Option<i32>,
    /// True if the entry is kube-scheduler's, not the document's.
    is_default: bool,
}

/// Enabled and disabled plugins of an extension point.
#[derive(Debug, Clone, Default)]
struct PluginSet {
    enabled: Vec<PluginEntry>,
    disabled: Vec<PluginEntry>,
}

/// Arguments of one plugin.
#[derive(Debug, Clone)]
struct PluginConfig {
    name: String,
    at: DocumentLocation,
    arguments: Option<PluginArguments>,
}

/// Profile of the document.
#[derive(Debug, Clone, Default)]
struct KubeProfile {
    /// Value of `schedulerName`; empty: absent.
    name: String,
    at: DocumentLocation,
    /// Plugin sets by extension point.
    plugins: BTreeMap<&'static str, PluginSet>,
    configs: Vec<PluginConfig>,
}

/// Document as it was written.
#[derive(Debug, Clone)]
pub(super) struct KubeSpec {
    /// Whole document without the section `pumice:`.
    document: YamlNode,
    profiles: Vec<KubeProfile>,
    /// Resources that extenders manage and the scheduler ignores, in order.
    ignored_resources: Vec<YamlNode>,
    /// Section `pumice:`, of this document or the next one.
    pumice: Option<PumiceSection>,
}

impl KubeSpec {
    /// Compatibility in force: the document's own, else the caller's.
    pub(super) fn compatibility(&self, asked: Compatibility) -> Compatibility {
        self.pumice.and_then(|section| section.compatibility).unwrap_or(asked)
    }
}

/// Field of a map.
fn field<'n>(node: &'n YamlNode, key: &str) -> Option<&'n YamlNode> {
    let mut pairs = node.value.as_pairs()?.iter();
    let found = pairs.find(|(own, _)| own.value.as_text() == Some(key));
    found.map(|(_, value)| value)
}

/// True if profiles have a served plugin of this name.
fn is_served(name: &str) -> bool {
    !points_of(name).is_empty()
}

/// Extension points of a plugin; none: it is not served.
fn points_of(name: &str) -> &'static [&'static str] {
    plugins::find(name).map_or(&[], |def| def.profile_points)
}
