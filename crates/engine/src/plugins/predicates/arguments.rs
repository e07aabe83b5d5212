//! Arguments of the plugin.

use crate::model::constraints::{ConstraintKind, ConstraintSet};
use crate::plugins::effective_values::{map_entry, value_map};
use crate::policy::{Compatibility, DiagnosticReport, ErrorCode, PluginArguments, YamlValue};

/// Check of a node, or a way to check it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::plugins) enum PredicateCheck {
    PodCount,
    Cordon,
    NodeAffinity,
    HostPorts,
    Taints,
    PodAffinity,
    VolumeLimits,
    VolumeZone,
    TopologySpread,
    VolumeBinding,
    /// Tasks of one template share the verdict of the first one.
    Cache,
}

/// Arguments after defaults: the checks that are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::plugins) struct PredicateArguments(u16);

/// Switches, in the order of the reference, with their defaults.
const SWITCHES: [(&str, PredicateCheck, bool); 9] = [
    ("predicate.NodeAffinityEnable", PredicateCheck::NodeAffinity, true),
    ("predicate.NodePortsEnable", PredicateCheck::HostPorts, true),
    ("predicate.TaintTolerationEnable", PredicateCheck::Taints, true),
    ("predicate.PodAffinityEnable", PredicateCheck::PodAffinity, true),
    ("predicate.NodeVolumeLimitsEnable", PredicateCheck::VolumeLimits, true),
    ("predicate.VolumeZoneEnable", PredicateCheck::VolumeZone, true),
    (
        "predicate.PodTopologySpreadEnable",
        PredicateCheck::TopologySpread,
        true,
    ),
    ("predicate.VolumeBindingEnable", PredicateCheck::VolumeBinding, true),
    ("predicate.CacheEnable", PredicateCheck::Cache, false),
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
    /// Arguments with which one check is on.
    pub(in crate::plugins) fn only(check: PredicateCheck) -> Self {
        Self(0).with(check)
    }

    fn with(self, check: PredicateCheck) -> Self {
        Self(self.0 | 1 << check as u16)
    }

    /// True if a check is on.
    pub(super) fn has(self, check: PredicateCheck) -> bool {
        self.0 >> check as u16 & 1 == 1
    }

    /// Constraints that the checks evaluate.
    pub(in crate::plugins) fn evaluates(self) -> ConstraintSet {
        let switched = [
            (ConstraintKind::Unschedulable, PredicateCheck::Cordon),
            (ConstraintKind::NodeSelector, PredicateCheck::NodeAffinity),
            (ConstraintKind::NodeAffinity, PredicateCheck::NodeAffinity),
            (ConstraintKind::Taints, PredicateCheck::Taints),
            (ConstraintKind::HostPorts, PredicateCheck::HostPorts),
            (ConstraintKind::PodAffinity, PredicateCheck::PodAffinity),
            (ConstraintKind::PodAntiAffinity, PredicateCheck::PodAffinity),
            (ConstraintKind::TopologySpread, PredicateCheck::TopologySpread),
        ];
        let on = switched.into_iter().filter(|(_, check)| self.has(*check));
        on.fold(ConstraintSet::NONE, |set, (kind, _)| set.with(kind))
    }

    pub(super) fn read(
        arguments: &PluginArguments,
        compatibility: Compatibility,
        report: &mut DiagnosticReport,
    ) -> Self {
        let known: Vec<&str> = SWITCHES
            .iter()
            .map(|(key, ..)| *key)
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
        let mut own = Self::only(PredicateCheck::PodCount).with(PredicateCheck::Cordon);
        for (key, check, default) in SWITCHES {
            if !arguments.switch(key, default, compatibility, report) {
                continue;
            }
            if check == PredicateCheck::Cache && compatibility == Compatibility::Corrected {
                let message = "the cache has no effect: each task is judged by its own selector and tolerations";
                report.warning(ErrorCode::ArgumentIgnored, &arguments.key_at(key), message.to_owned());
            } else {
                own = own.with(check);
            }
        }
        own
    }

    pub(super) fn effective(self) -> YamlValue {
        value_map(SWITCHES.map(|(key, check, _)| map_entry(key, YamlValue::Bool(self.has(check)))))
    }
}
