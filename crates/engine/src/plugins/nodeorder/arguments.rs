//! Arguments of the plugin: the weights of the parts.

use super::NAME;
use crate::model::constraints::{ConstraintKind, ConstraintSet};
use crate::plugins::effective_values::{map_entry, value_map};
use crate::policy::{Compatibility, DiagnosticReport, ErrorCode, PluginArguments, YamlValue};

/// Keys of the weights, in the order of the reference, with their defaults.
const WEIGHTS: [(&str, i64); 8] = [
    ("leastrequested.weight", 1),
    ("mostrequested.weight", 0),
    ("nodeaffinity.weight", 2),
    ("podaffinity.weight", 2),
    ("balancedresource.weight", 1),
    ("tainttoleration.weight", 3),
    ("imagelocality.weight", 1),
    ("podtopologyspread.weight", 2),
];

/// Weights of the parts after defaults; 0: the part is off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::plugins) struct PartWeights {
    pub(in crate::plugins) least: i64,
    pub(in crate::plugins) most: i64,
    pub(in crate::plugins) node_affinity: i64,
    pub(in crate::plugins) pod_affinity: i64,
    pub(in crate::plugins) balanced: i64,
    pub(in crate::plugins) taints: i64,
    pub(in crate::plugins) images: i64,
    pub(in crate::plugins) spread: i64,
}

impl PartWeights {
    /// Weights with which no part is on.
    pub(in crate::plugins) const NONE: Self = Self {
        least: 0,
        most: 0,
        node_affinity: 0,
        pod_affinity: 0,
        balanced: 0,
        taints: 0,
        images: 0,
        spread: 0,
    };

    /// Sums of the negative and of the positive weights.
    pub(super) fn sums(&self) -> (f64, f64) {
        let Self {
            least,
            most,
            node_affinity,
            pod_affinity,
            balanced,
            taints,
            images,
            spread,
        } = *self;
        let all = [
            least,
            most,
            node_affinity,
            pod_affinity,
            balanced,
            taints,
            images,
            spread,
        ];
        let all = all.map(|weight| weight as f64);
        let sum = |end: fn(f64, f64) -> f64| all.iter().map(|weight| end(*weight, 0.0)).sum();
        (sum(f64::min), sum(f64::max))
    }

    /// Constraints that the parts evaluate.
    pub(in crate::plugins) fn evaluates(&self) -> ConstraintSet {
        let switched = [
            (ConstraintKind::PreferredNodeAffinity, self.node_affinity),
            (ConstraintKind::PreferredTaints, self.taints),
            (ConstraintKind::Images, self.images),
            (ConstraintKind::PreferredPodAffinity, self.pod_affinity),
            (ConstraintKind::PreferredPodAntiAffinity, self.pod_affinity),
            (ConstraintKind::PreferredTopologySpread, self.spread),
        ];
        let on = switched.into_iter().filter(|(_, weight)| *weight != 0);
        on.fold(ConstraintSet::NONE, |set, (kind, _)| set.with(kind))
    }

    pub(super) fn read(
        arguments: &PluginArguments,
        compatibility: Compatibility,
        report: &mut DiagnosticReport,
    ) -> Self {
        arguments.warn_unknown(report, NAME, &WEIGHTS.map(|(key, _)| key), |_| false);
        let [
            least,
            most,
            node_affinity,
            pod_affinity,
            balanced,
            taints,
            images,
            spread,
        ] = WEIGHTS.map(|(key, default)| weight(arguments, key, default, compatibility, report));
        Self {
            least,
            most,
            node_affinity,
            pod_affinity,
            balanced,
            taints,
            images,
            spread,
        }
    }

    pub(super) fn effective(&self) -> YamlValue {
        let values = [
            self.least,
            self.most,
            self.node_affinity,
            self.pod_affinity,
            self.balanced,
            self.taints,
            self.images,
            self.spread,
        ];
        let entries = WEIGHTS.iter().zip(values);
        value_map(entries.map(|((key, _), value)| map_entry(key, YamlValue::Int(value))))
    }
}

/// Largest weight with which the sum of all parts is an exact float.
pub(super) const MAX_EXACT_WEIGHT: u64 = 1 << 43;

/// Weight: an integer. Anything else is ignored with a warning, as upstream ignores it. Under `corrected` a weight is refused
/// with which scores wrap, or sums lose digits and depend on their order.
fn weight(
    arguments: &PluginArguments,
    key: &str,
    default: i64,
    compatibility: Compatibility,
    report: &mut DiagnosticReport,
) -> i64 {
    let Some(argument) = arguments.get(key) else {
        return default;
    };
    let Some(weight) = argument.lenient_int() else {
        let found = argument.value().kind();
        let message = format!("expected an integer, found {found}; the default {default} counts");
        report.warning(ErrorCode::ArgumentIgnored, &argument.at(), message);
        return default;
    };
    if compatibility == Compatibility::Corrected && weight.unsigned_abs() > MAX_EXACT_WEIGHT {
        let message = format!("a weight is at most {MAX_EXACT_WEIGHT}: with a larger one sums of scores are not exact");
        report.error(ErrorCode::ArgumentRange, &argument.at(), message);
        return default;
    }
    let message = if weight < 0 {
        "a negative weight turns the preference round"
    } else if weight.checked_mul(super::MAX_SCORE).is_none() {
        "the weight is so large that scores wrap around at 64 bits"
    } else {
        return weight;
    };
    report.warning(ErrorCode::ArgumentIgnored, &argument.at(), message);
    weight
}
