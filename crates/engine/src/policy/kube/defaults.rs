//! Plugins that kube-scheduler enables by itself (Kubernetes v1.36.3, `pkg/scheduler/apis/config/v1/default_plugins.go`).

use super::{KubeProfile, MULTI_POINT, PluginEntry, PluginSet};
use crate::plugins::REGISTRY;

/// Default plugin that is not served, and that preempts. Others that are not served judge volumes, claims and gates: results
/// name the fields of pods that they would read.
const UNSERVED_DEFAULT: &str = "DefaultPreemption";

/// Names of the default plugins with their weights, in order.
fn default_plugins() -> impl Iterator<Item = (&'static str, Option<i32>)> {
    let served = REGISTRY.iter().filter_map(|def| Some((def.name, def.default_weight?)));
    let weighted = served.map(|(name, weight)| (name, Some(weight).filter(|weight| *weight > 0)));
    weighted.chain([(UNSERVED_DEFAULT, None)])
}

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
    for (name, weight) in default_plugins() {
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
