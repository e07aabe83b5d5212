//! Plugins that kube-scheduler enables by itself (Kubernetes v1.36.3, `pkg/scheduler/apis/config/v1/default_plugins.go`).

use super::{KubeProfile, MULTI_POINT, PluginEntry, PluginSet};

/// Plugins of the default profile with their weights, in order, as far as they decide something here. Those that judge
/// volumes, claims and gates are left out: results name the fields of pods that they would read.
const DEFAULT_PLUGINS: [(&str, Option<i32>); 10] = [
    ("NodeUnschedulable", None),
    ("TaintToleration", Some(3)),
    ("NodeAffinity", Some(2)),
    ("NodePorts", None),
    ("NodeResourcesFit", Some(1)),
    ("PodTopologySpread", Some(2)),
    ("InterPodAffinity", Some(2)),
    ("DefaultPreemption", None),
    ("NodeResourcesBalancedAllocation", Some(1)),
    ("ImageLocality", Some(1)),
];

/// Profile with the default plugins that it does not disable at `multiPoint`. An entry of the document takes the place of the
/// default one (`mergePluginSet`).
pub(super) fn merged(profile: &KubeProfile) -> KubeProfile {
    let mut merged = profile.clone();
    let set = merged.plugins.entry(MULTI_POINT).or_default();
    let PluginSet { enabled, disabled } = set;
    let is_disabled = |name: &str| disabled.iter().any(|entry| entry.name == name || entry.name == "*");
    if disabled.iter().any(|entry| entry.name == "*") {
        return merged;
    }
    let mut own = std::mem::take(enabled);
    for (name, weight) in DEFAULT_PLUGINS {
        if is_disabled(name) {
            continue;
        }
        let replaced = own.iter().position(|entry| entry.name == name);
        enabled.push(replaced.map_or_else(
            || PluginEntry {
                name: name.to_owned(),
                at: profile.at.clone(),
                weight,
                is_default: true,
            },
            |at| own.remove(at),
        ));
    }
    enabled.append(&mut own);
    merged
}
