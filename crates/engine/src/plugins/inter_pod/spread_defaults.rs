//! Default topology spread constraints, for pods of a Service or a workload without their own constraints.

use std::borrow::Cow;

use super::PodView;
use crate::model::constraints::{SpreadConstraint, SpreadPolicy};

/// Default constraints of a plugin, without selectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::plugins) struct SpreadDefaults {
    /// Topology keys with `maxSkew`, in the order of the arguments.
    pub(in crate::plugins) constraints: Vec<SpreadConstraint>,
    /// True if nodes without a topology key score, too, as under the system's defaults.
    pub(in crate::plugins) scores_unlabelled: bool,
}

/// No default constraints.
pub(in crate::plugins) const NO_SPREAD_DEFAULTS: SpreadDefaults = SpreadDefaults {
    constraints: Vec::new(),
    scores_unlabelled: false,
};

/// Constraint with Kubernetes' defaults that rejects no node.
pub(in crate::plugins) fn soft_constraint(topology_key: &str, max_skew: i32) -> SpreadConstraint {
    SpreadConstraint {
        max_skew,
        topology_key: topology_key.into(),
        is_hard: false,
        label_selector: None,
        min_domains: None,
        node_affinity_policy: SpreadPolicy::Honor,
        node_taints_policy: SpreadPolicy::Ignore,
        match_label_keys: Vec::new(),
    }
}

impl SpreadDefaults {
    /// Defaults of Kubernetes: they spread by node and by zone, and reject no node.
    pub(in crate::plugins) fn system() -> Self {
        Self {
            constraints: vec![
                soft_constraint("kubernetes.io/hostname", 3),
                soft_constraint("topology.kubernetes.io/zone", 5),
            ],
            scores_unlabelled: true,
        }
    }
}

impl<'a> PodView<'a> {
    /// Spread constraints that are in force for the class.
    pub(super) fn spread_constraints(&self) -> Cow<'a, [SpreadConstraint]> {
        let Some(selector) = self.constraints.default_spread_selector() else {
            return Cow::Borrowed(&self.constraints.spread_constraints);
        };
        let defaults = self.spread_defaults.constraints.iter().map(|own| SpreadConstraint {
            label_selector: Some(selector.clone()),
            ..own.clone()
        });
        Cow::Owned(defaults.collect())
    }

    /// True if nodes score that lack the topology key of a constraint.
    pub(super) fn scores_unlabelled(&self) -> bool {
        self.spread_defaults.scores_unlabelled && self.constraints.spread_constraints.is_empty()
    }
}
