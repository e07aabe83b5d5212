//! Rules that a policy adds to the rules of each pod.

use crate::model::constraints::NodeSelectorTerm;
use crate::plugins::inter_pod::{NO_SPREAD_DEFAULTS, SpreadDefaults};

/// Rules that a policy adds to the rules of each pod.
#[derive(Clone, Debug)]
pub(in crate::plugins) struct AddedRules {
    /// Required terms of the node affinity. At least one term must match. `None`: every node matches.
    pub(in crate::plugins) required_node_terms: Option<Vec<NodeSelectorTerm>>,
    /// Spread constraints of pods that have none of their own.
    pub(in crate::plugins) spread_defaults: SpreadDefaults,
    /// True: selectors of namespaces are read as kube-scheduler 1.36 reads them, also under `corrected`.
    pub(in crate::plugins) opens_selectors: bool,
}

pub(in crate::plugins) static NO_ADDED_RULES: AddedRules = AddedRules {
    required_node_terms: None,
    spread_defaults: NO_SPREAD_DEFAULTS,
    opens_selectors: false,
};
