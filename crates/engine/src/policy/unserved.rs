//! Plugins that policies name and that this service does not implement: the decisions that each would take part in.

use std::sync::Arc;

use super::yaml::truncate_text;

/// Most characters of a plugin's name in a result.
const MAX_NAME_CHARS: usize = 60;
/// Most unserved plugins that a policy lists by name.
const MAX_LISTED: usize = 32;

const FILTER: u8 = 1;
const SCORE: u8 = 1 << 1;
const ADMIT: u8 = 1 << 2;
const ORDER: u8 = 1 << 3;
const VICTIMS: u8 = 1 << 4;
/// Decisions of the actions of a cycle, which belong to no other family.
const CYCLES: u8 = 1 << 5;
const ALL: u8 = u8::MAX;
/// Decisions of plugins that bind pods, or whose rule the service applies by itself.
const NONE: u8 = 0;

/// Decision that a plugin may take part in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionKind {
    /// Filter: the nodes on which a task may run.
    Filter,
    /// Score, without a filter.
    Score,
    /// Score of the nodes that pass a filter.
    FilteredScore,
    /// Place: admission of tasks, filter and score.
    Place,
    /// Admit: whether a job may start or a task may be allocated.
    Admit,
    /// Order of queues, jobs and tasks.
    Order,
    /// `SelectVictims`, which filters the node after the evictions.
    Victims,
    /// `SelectVictims` without a preemptor.
    Shuffle,
    /// Any decision of a session.
    Session,
}

impl DecisionKind {
    fn families(self) -> u8 {
        match self {
            Self::Filter => FILTER,
            Self::Score => SCORE,
            Self::FilteredScore => FILTER | SCORE,
            Self::Place => FILTER | SCORE | ADMIT,
            Self::Admit => ADMIT,
            Self::Order => ORDER,
            Self::Victims => FILTER | VICTIMS,
            Self::Shuffle => VICTIMS,
            Self::Session => ALL,
        }
    }
}

/// Unserved plugin of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnservedEffect {
    /// Name of the plugin, cut if it is long.
    pub name: Arc<str>,
    /// Sentence: the effect that the plugin would have had.
    pub effect: &'static str,
    families: u8,
}

impl UnservedEffect {
    /// Effect of a plugin by its name in the document.
    pub fn of(name: &str) -> Self {
        let (families, effect) = find(name);
        Self {
            name: truncate_text(name, MAX_NAME_CHARS).into(),
            effect,
            families,
        }
    }

    /// Effect of an argument of an action on whole cycles.
    pub(super) fn of_cycles(name: Arc<str>, effect: &'static str) -> Self {
        Self {
            name,
            effect,
            families: CYCLES,
        }
    }

    /// True if the plugin would take part in a decision of this kind.
    pub fn takes_part_in(&self, kind: DecisionKind) -> bool {
        self.families & kind.families() != 0
    }
}

/// The effects of unserved plugins by name; those beyond the cap become one entry.
pub(super) fn effects<'a>(names: impl Iterator<Item = &'a str>) -> Vec<UnservedEffect> {
    let mut all: Vec<UnservedEffect> = names.filter(|name| !name.is_empty()).map(UnservedEffect::of).collect();
    all.retain(|plugin| plugin.families != NONE);
    if all.len() > MAX_LISTED {
        all.truncate(MAX_LISTED - 1);
        all.push(UnservedEffect {
            name: Arc::from("others"),
            effect: "The policy names more plugins that Pumice does not serve.",
            families: ALL,
        });
    }
    all
}

/// Sentence: the effect that an unserved plugin would have had.
pub fn unserved_effect(name: &str) -> &'static str {
    find(name).1
}

fn find(name: &str) -> (u8, &'static str) {
    let known = EFFECTS.iter().find(|(own, _, _)| *own == name);
    known.map_or(
        (ALL, "Pumice does not know this plugin; its decisions are unknown."),
        |(_, families, effect)| (*families, *effect),
    )
}

/// Plugins of Volcano, Kubernetes and Koordinator that are not served.
const EFFECTS: &[(&str, u8, &str)] = &[
    (
        "deviceshare",
        FILTER | SCORE,
        "Shares of devices (vGPU, GPU memory) may reject nodes and change scores.",
    ),
    ("extender", ALL, "An external service may change every decision."),
    (
        "network-topology-aware",
        FILTER | SCORE,
        "The network topology may limit a job to nodes near each other and changes scores.",
    ),
    (
        "numa-aware",
        FILTER | SCORE,
        "The NUMA topology of nodes may reject nodes and changes scores.",
    ),
    ("Coscheduling", ADMIT | ORDER, "Pods of a gang wait for each other."),
    ("DefaultBinder", NONE, "It binds pods and decides nothing."),
    ("DefaultPreBind", NONE, "It prepares binding and decides nothing."),
    ("DefaultPreemption", VICTIMS, "It selects the pods to evict."),
    (
        "DeviceShare",
        FILTER | SCORE,
        "Shares of GPUs and other devices may reject nodes and change scores.",
    ),
    (
        "DeferredPodScheduling",
        FILTER | ADMIT,
        "A running pod whose resize is deferred waits for room on its own node.",
    ),
    (
        "DynamicResources",
        FILTER | SCORE,
        "Resource claims may reject nodes and change scores.",
    ),
    (
        "ElasticQuota",
        ADMIT | VICTIMS,
        "Elastic quotas may hold pods back and decide about evictions.",
    ),
    ("GangScheduling", ADMIT, "Pods of a gang wait for each other."),
    (
        "LoadAwareScheduling",
        FILTER | SCORE,
        "Nodes with a high measured load may be rejected and score lower.",
    ),
    (
        "NodeDeclaredFeatures",
        FILTER,
        "Nodes without a feature that the pod needs may be rejected.",
    ),
    ("NodeName", NONE, "A pod that waits for a node names none."),
    (
        "NodeNUMAResource",
        FILTER | SCORE,
        "The NUMA topology of nodes may reject nodes and changes scores.",
    ),
    (
        "NodeVolumeLimits",
        FILTER,
        "Limits on attached volumes may reject nodes.",
    ),
    (
        "PodGroupPodsCount",
        SCORE,
        "Places of whole groups score by the number of pods that they take.",
    ),
    ("PrioritySort", ORDER, "Pods of higher priority go first."),
    (
        "Reservation",
        FILTER | SCORE,
        "Reservations may reject nodes and change scores.",
    ),
    ("SchedulingGates", NONE, "Pumice reads scheduling gates by itself."),
    (
        "TopologyPlacementGenerator",
        FILTER,
        "A group may be limited to the nodes of one domain.",
    ),
    ("VolumeBinding", FILTER | SCORE, "Volumes of the pod may reject nodes."),
    ("VolumeRestrictions", FILTER, "Volumes in use may reject nodes."),
    ("VolumeZone", FILTER, "Zones of volumes may reject nodes."),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins;
    use crate::policy::kube::KUBE_PLUGINS;
    use crate::policy::spec::UPSTREAM_PLUGINS;

    #[test]
    fn every_plugin_that_is_not_served_has_its_effect() {
        let served = plugins::served_names();
        let known = UPSTREAM_PLUGINS.iter().chain(&KUBE_PLUGINS);
        let mut unserved: Vec<&str> = known.copied().filter(|name| !served.contains(name)).collect();
        let mut rows: Vec<&str> = EFFECTS.iter().map(|(name, _, _)| *name).collect();
        unserved.sort_unstable();
        rows.sort_unstable();
        assert_eq!(rows, unserved);
    }

    #[test]
    fn a_plugin_takes_part_in_its_own_decisions() {
        let kinds = |name: &str| {
            let effect = UnservedEffect::of(name);
            [
                DecisionKind::Filter,
                DecisionKind::Score,
                DecisionKind::Place,
                DecisionKind::Admit,
                DecisionKind::Order,
                DecisionKind::Victims,
                DecisionKind::Session,
            ]
            .map(|kind| effect.takes_part_in(kind))
        };
        assert_eq!(kinds("numa-aware"), [true, true, true, false, false, true, true]);
        assert_eq!(kinds("ElasticQuota"), [false, false, true, true, false, true, true]);
        assert_eq!(kinds("no-such-plugin"), [true; 7]);
    }

    #[test]
    fn a_long_list_is_cut() {
        let names: Vec<String> = (0..100).map(|i| format!("plugin-{i}")).collect();
        let effects = effects(names.iter().map(String::as_str));
        assert_eq!((effects.len(), &*effects[31].name), (32, "others"));
        let long = UnservedEffect::of(&"x".repeat(10_000));
        assert!(long.name.chars().count() <= MAX_NAME_CHARS + 1, "{}", long.name);
    }
}
