//! Arguments of the plugin.

use crate::model::constraints::{ConstraintKind, ConstraintSet};
use crate::plugins::effective_values::{map_entry, value_map};
use crate::policy::{Compatibility, DiagnosticReport, ErrorCode, PluginArguments, YamlValue};

/// Arguments after defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each check is on or off, whatever the others are"
)]
pub(in crate::plugins) struct PredicateArguments {
    pub(in crate::plugins) pod_count: bool,
    pub(in crate::plugins) cordon: bool,
    pub(in crate::plugins) node_affinity: bool,
    pub(in crate::plugins) host_ports: bool,
    pub(in crate::plugins) taints: bool,
    pub(in crate::plugins) pod_affinity: bool,
    pub(in crate::plugins) volume_limits: bool,
    pub(in crate::plugins) volume_zone: bool,
    pub(in crate::plugins) topology_spread: bool,
    pub(in crate::plugins) volume_binding: bool,
    /// True if tasks of one template share the verdict of the first one.
    pub(in crate::plugins) cache: bool,
}

const CACHE: &str = "predicate.CacheEnable";

/// Switches, in the order of the reference, with their defaults.
const SWITCHES: [(&str, bool); 9] = [
    ("predicate.NodeAffinityEnable", true),
    ("predicate.NodePortsEnable", true),
    ("predicate.TaintTolerationEnable", true),
    ("predicate.PodAffinityEnable", true),
    ("predicate.NodeVolumeLimitsEnable", true),
    ("predicate.VolumeZoneEnable", true),
    ("predicate.PodTopologySpreadEnable", true),
    ("predicate.VolumeBindingEnable", true),
    (CACHE, false),
];

/// Documented switch that the reference does not read.
const CLAIMS: &str = "predicate.DynamicResourceAllocationEnable";

/// Numbers that end the reference's process if they have another type.
const NUMBERS: [&str; 3] = [
    "volumebinding.weight",
    "volumebinding.bindTimeoutSeconds",
    "dynamicresources.filterTimeoutSeconds",
];

/// Prefixes of keys that earlier versions read.
const FORMER: [&str; 3] = [
    "predicate.GPUSharingEnable",
    "predicate.ProportionalEnable",
    "predicate.resources",
];

impl PredicateArguments {
    /// Arguments with which no check is on.
    pub(in crate::plugins) const NONE: Self = Self {
        pod_count: false,
        cordon: false,
        node_affinity: false,
        host_ports: false,
        taints: false,
        pod_affinity: false,
        volume_limits: false,
        volume_zone: false,
        topology_spread: false,
        volume_binding: false,
        cache: false,
    };

    /// Constraints that the checks evaluate.
    pub(in crate::plugins) fn evaluates(&self) -> ConstraintSet {
        let switched = [
            (ConstraintKind::Unschedulable, self.cordon),
            (ConstraintKind::NodeSelector, self.node_affinity),
            (ConstraintKind::NodeAffinity, self.node_affinity),
            (ConstraintKind::Taints, self.taints),
            (ConstraintKind::HostPorts, self.host_ports),
            (ConstraintKind::PodAffinity, self.pod_affinity),
            (ConstraintKind::PodAntiAffinity, self.pod_affinity),
            (ConstraintKind::TopologySpread, self.topology_spread),
        ];
        let on = switched.into_iter().filter(|(_, on)| *on);
        on.fold(ConstraintSet::NONE, |set, (kind, _)| set.with(kind))
    }

    pub(super) fn read(
        arguments: &PluginArguments,
        compatibility: Compatibility,
        report: &mut DiagnosticReport,
    ) -> Self {
        let known: Vec<&str> = SWITCHES
            .iter()
            .map(|(key, _)| *key)
            .chain(NUMBERS)
            .chain([CLAIMS])
            .collect();
        arguments.warn_unknown(report, super::NAME, &known, |key| {
            FORMER.iter().any(|former| key.starts_with(former))
        });
        for (key, argument) in arguments.iter() {
            let ignored = if key == CLAIMS {
                "Volcano documents this switch and does not read it"
            } else if FORMER.iter().any(|former| key.starts_with(former)) {
                "only earlier versions of Volcano read this key"
            } else {
                continue;
            };
            report.warning(ErrorCode::ArgumentIgnored, &argument.at(), ignored.to_owned());
        }
        for key in NUMBERS {
            if let Some(argument) = arguments.get(key).filter(|argument| argument.lenient_int().is_none()) {
                let message = format!("`{key}` must be a whole number: Volcano's process ends at any other value");
                report.error(ErrorCode::ArgumentType, &argument.at(), message);
            }
        }
        let [
            node_affinity,
            host_ports,
            taints,
            pod_affinity,
            volume_limits,
            volume_zone,
            topology_spread,
            volume_binding,
            cache,
        ] = SWITCHES.map(|(key, default)| arguments.switch(key, default, compatibility, report));
        if cache && compatibility == Compatibility::Corrected {
            let at = arguments.key_at(CACHE);
            let message = "the cache has no effect: each task is judged by its own selector and tolerations";
            report.warning(ErrorCode::ArgumentIgnored, &at, message.to_owned());
        }
        Self {
            pod_count: true,
            cordon: true,
            node_affinity,
            host_ports,
            taints,
            pod_affinity,
            volume_limits,
            volume_zone,
            topology_spread,
            volume_binding,
            cache: cache && compatibility.is_upstream(),
        }
    }

    pub(super) fn effective(&self) -> YamlValue {
        let values = [
            self.node_affinity,
            self.host_ports,
            self.taints,
            self.pod_affinity,
            self.volume_limits,
            self.volume_zone,
            self.topology_spread,
            self.volume_binding,
            self.cache,
        ];
        let entries = SWITCHES.iter().zip(values);
        value_map(entries.map(|((key, _), value)| map_entry(key, YamlValue::Bool(value))))
    }
}
