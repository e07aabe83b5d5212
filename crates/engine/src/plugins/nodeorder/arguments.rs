//! Arguments of the plugin: the weights of the parts.

use super::NAME;
use super::node_scorer::ScorePartKind;
use crate::model::constraints::{ConstraintKind, ConstraintSet};
use crate::plugins::argument_names::lenient_int;
use crate::plugins::effective_values::{map_entry, value_map};
use crate::plugins::integer_arithmetic::MAX_SCORE;
use crate::policy::{Compatibility, DiagnosticReport, ErrorCode, PluginArguments, YamlValue};

/// Keys of the weights, in the order of the reference, with the parts and their default weights.
const WEIGHTS: [(&str, ScorePartKind, i64); 8] = [
    ("leastrequested.weight", ScorePartKind::LeastRequested, 1),
    ("mostrequested.weight", ScorePartKind::MostRequested, 0),
    ("nodeaffinity.weight", ScorePartKind::NodeAffinity, 2),
    ("podaffinity.weight", ScorePartKind::PodAffinity, 2),
    ("balancedresource.weight", ScorePartKind::BalancedResource, 1),
    ("tainttoleration.weight", ScorePartKind::TaintToleration, 3),
    ("imagelocality.weight", ScorePartKind::ImageLocality, 1),
    ("podtopologyspread.weight", ScorePartKind::TopologySpread, 2),
];

/// Weights of the parts after defaults, by the number of the part; 0: the part is off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::plugins) struct PartWeights([i64; WEIGHTS.len()]);

impl PartWeights {
    /// Weights with which one part is on, with weight 1.
    pub(in crate::plugins) fn only(kind: ScorePartKind) -> Self {
        let mut weights = Self::default();
        weights.set(kind, 1);
        weights
    }

    fn set(&mut self, kind: ScorePartKind, weight: i64) {
        if let Some(own) = self.0.get_mut(kind as usize) {
            *own = weight;
        }
    }

    /// Weight of a part; 0: it is off.
    pub(super) fn of(&self, kind: ScorePartKind) -> i64 {
        self.0.get(kind as usize).copied().unwrap_or(0)
    }

    /// Sums of the negative and of the positive weights.
    pub(super) fn sums(&self) -> (f64, f64) {
        let all = WEIGHTS.map(|(_, kind, _)| self.of(kind) as f64);
        let sum = |end: fn(f64, f64) -> f64| all.iter().map(|weight| end(*weight, 0.0)).sum();
        (sum(f64::min), sum(f64::max))
    }

    /// Constraints that the parts evaluate.
    pub(in crate::plugins) fn evaluates(&self) -> ConstraintSet {
        let switched = [
            (ConstraintKind::PreferredNodeAffinity, ScorePartKind::NodeAffinity),
            (ConstraintKind::PreferredTaints, ScorePartKind::TaintToleration),
            (ConstraintKind::Images, ScorePartKind::ImageLocality),
            (ConstraintKind::PreferredPodAffinity, ScorePartKind::PodAffinity),
            (ConstraintKind::PreferredPodAntiAffinity, ScorePartKind::PodAffinity),
            (ConstraintKind::PreferredTopologySpread, ScorePartKind::TopologySpread),
        ];
        let on = switched.into_iter().filter(|(_, part)| self.of(*part) != 0);
        on.fold(ConstraintSet::NONE, |set, (kind, _)| set.with(kind))
    }

    pub(super) fn read(
        arguments: &PluginArguments,
        compatibility: Compatibility,
        report: &mut DiagnosticReport,
    ) -> Self {
        arguments.warn_unknown(report, NAME, &WEIGHTS.map(|(key, ..)| key), |_| false);
        let mut weights = Self::default();
        for (key, kind, default) in WEIGHTS {
            weights.set(kind, weight(arguments, key, default, compatibility, report));
        }
        weights
    }

    pub(super) fn effective(&self) -> YamlValue {
        value_map(WEIGHTS.map(|(key, kind, _)| map_entry(key, YamlValue::Int(self.of(kind)))))
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
    let weight = lenient_int(&argument, default, report);
    if compatibility == Compatibility::Corrected && weight.unsigned_abs() > MAX_EXACT_WEIGHT {
        let message = format!("a weight is at most {MAX_EXACT_WEIGHT}: with a larger one sums of scores are not exact");
        report.error(ErrorCode::ArgumentRange, &argument.at(), message);
        return default;
    }
    let message = if weight < 0 {
        "a negative weight turns the preference round"
    } else if weight.checked_mul(MAX_SCORE).is_none() {
        "the weight is so large that scores wrap around at 64 bits"
    } else {
        return weight;
    };
    report.warning(ErrorCode::ArgumentIgnored, &argument.at(), message);
    weight
}
