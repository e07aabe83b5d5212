//! Plugins of kube-scheduler's default profile (Kubernetes v1.36.3, `pkg/scheduler/framework/plugins`): the rules of
//! `predicates` and `nodeorder`, one plugin each, with kube-scheduler's arguments.
//!
//! Scores are integers from 0 to 100, which the profile weighs. The rules have no differences between `upstream` and
//! `corrected`: kube-scheduler has none of the faults that Volcano's way of asking them adds.

mod added_affinity;
mod allocation;
mod arguments;
mod spread_arguments;

use std::sync::Arc;

use allocation::{AllocationRules, AllocationScorer};
use arguments::IgnoredResources;

use super::inter_pod::ExistingPodTerms;
use super::nodeorder::{PartWeights, PodScorer, ScoreRules};
use super::predicates::{AddedRules, NO_ADDED_RULES, PodFilter, PredicateArguments};
use crate::model::TaskClass;
use crate::model::constraints::{ConstraintSet, PreferredTerm};
use crate::plugin::{NodeFilter, NodeScorer, Plugin, PluginContext, PluginDef, PluginHooks, PreparedHook};
use crate::policy::{Compatibility, ReleaseRules, YamlValue};

const FILTER: &[&str] = &["filter"];
const SCORE: &[&str] = &["score"];
const FILTER_AND_SCORE: &[&str] = &["filter", "score"];
const ALL_POINTS: &[&str] = &["preFilter", "filter", "preScore", "score"];

/// Registry entry of a plugin that reads labels of nodes and pods.
const fn labelled(def: PluginDef) -> PluginDef {
    PluginDef {
        node_labels: &["*"],
        task_labels: &["*"],
        ..def
    }
}

/// Registry entry of `NodeUnschedulable`.
pub(super) const NODE_UNSCHEDULABLE: PluginDef = PluginDef {
    families: FILTER,
    profile_points: &["filter"],
    default_weight: Some(0),
    ..PluginDef::new("NodeUnschedulable", |arguments, _, report| {
        arguments::read_none(arguments, report);
        let checks = PredicateArguments {
            cordon: true,
            ..PredicateArguments::NONE
        };
        KubePlugin::of("NodeUnschedulable").with_checks(checks).shared()
    })
};

/// Registry entry of `TaintToleration`.
pub(super) const TAINT_TOLERATION: PluginDef = PluginDef {
    families: FILTER_AND_SCORE,
    profile_points: &["filter", "preScore", "score"],
    default_weight: Some(3),
    ..PluginDef::new("TaintToleration", |arguments, _, report| {
        arguments::read_none(arguments, report);
        let checks = PredicateArguments {
            taints: true,
            ..PredicateArguments::NONE
        };
        let weights = PartWeights {
            taints: 1,
            ..PartWeights::NONE
        };
        let plugin = KubePlugin::of("TaintToleration").with_checks(checks);
        plugin.with_part(weights).shared()
    })
};

/// Registry entry of `NodeAffinity`.
pub(super) const NODE_AFFINITY: PluginDef = labelled(PluginDef {
    families: FILTER_AND_SCORE,
    profile_points: ALL_POINTS,
    default_weight: Some(2),
    prepares_itself: true,
    ..PluginDef::new("NodeAffinity", |arguments, _, report| {
        let added = added_affinity::read_node_affinity(arguments, report);
        let checks = PredicateArguments {
            node_affinity: true,
            ..PredicateArguments::NONE
        };
        let weights = PartWeights {
            node_affinity: 1,
            ..PartWeights::NONE
        };
        let mut plugin = KubePlugin::of("NodeAffinity").with_checks(checks);
        plugin.added.required_node_terms = added.required;
        plugin.added_preferences = added.preferred;
        plugin.effective = added.effective;
        plugin.with_part(weights).shared()
    })
});

/// Registry entry of `NodePorts`.
pub(super) const NODE_PORTS: PluginDef = PluginDef {
    families: FILTER,
    profile_points: &["preFilter", "filter"],
    default_weight: Some(0),
    ..PluginDef::new("NodePorts", |arguments, _, report| {
        arguments::read_none(arguments, report);
        let checks = PredicateArguments {
            host_ports: true,
            ..PredicateArguments::NONE
        };
        KubePlugin::of("NodePorts").with_checks(checks).shared()
    })
};

/// Registry entry of `NodeResourcesFit`. The built-in filter checks resources; this plugin checks the number of pods.
pub(super) const NODE_RESOURCES_FIT: PluginDef = PluginDef {
    families: FILTER_AND_SCORE,
    profile_points: ALL_POINTS,
    default_weight: Some(1),
    prepares_itself: true,
    ..PluginDef::new("NodeResourcesFit", |arguments, _, report| {
        let read = arguments::read_resources_fit(arguments, report);
        let checks = PredicateArguments {
            pod_count: true,
            ..PredicateArguments::NONE
        };
        let mut plugin = KubePlugin::of("NodeResourcesFit").with_checks(checks);
        plugin.ignored = read.ignored;
        plugin.effective = read.effective;
        plugin.with_allocation(read.rules).shared()
    })
};

/// Registry entry of `PodTopologySpread`.
pub(super) const POD_TOPOLOGY_SPREAD: PluginDef = labelled(PluginDef {
    families: FILTER_AND_SCORE,
    profile_points: ALL_POINTS,
    default_weight: Some(2),
    ..PluginDef::new("PodTopologySpread", |arguments, _, report| {
        let read = spread_arguments::read_topology_spread(arguments, report);
        let checks = PredicateArguments {
            topology_spread: true,
            ..PredicateArguments::NONE
        };
        let weights = PartWeights {
            spread: 1,
            ..PartWeights::NONE
        };
        let mut plugin = KubePlugin::of("PodTopologySpread").with_checks(checks);
        plugin.added.spread_defaults = read.defaults;
        plugin.effective = read.effective;
        plugin.with_part(weights).shared()
    })
});

/// Registry entry of `InterPodAffinity`.
pub(super) const INTER_POD_AFFINITY: PluginDef = labelled(PluginDef {
    families: FILTER_AND_SCORE,
    profile_points: ALL_POINTS,
    default_weight: Some(2),
    ..PluginDef::new("InterPodAffinity", |arguments, compatibility, report| {
        let (existing_pods, effective) = arguments::read_inter_pod_affinity(arguments, report);
        let checks = PredicateArguments {
            pod_affinity: true,
            ..PredicateArguments::NONE
        };
        let weights = PartWeights {
            pod_affinity: 1,
            ..PartWeights::NONE
        };
        let mut plugin = KubePlugin::of("InterPodAffinity").with_checks(checks);
        plugin.existing_pods = existing_pods;
        plugin.added.opens_selectors = !compatibility.release().rules().closes_namespace_selectors;
        plugin.effective = effective;
        plugin.with_part(weights).shared()
    })
});

/// Registry entry of `NodeResourcesBalancedAllocation`.
pub(super) const NODE_RESOURCES_BALANCED_ALLOCATION: PluginDef = PluginDef {
    families: SCORE,
    profile_points: &["preScore", "score"],
    default_weight: Some(1),
    prepares_itself: true,
    ..PluginDef::new("NodeResourcesBalancedAllocation", |arguments, _, report| {
        let (rules, effective) = arguments::read_balanced(arguments, report);
        let mut plugin = KubePlugin::of("NodeResourcesBalancedAllocation");
        plugin.effective = effective;
        plugin.with_allocation(rules).shared()
    })
};

/// Registry entry of `ImageLocality`.
pub(super) const IMAGE_LOCALITY: PluginDef = PluginDef {
    families: SCORE,
    profile_points: &["score"],
    default_weight: Some(1),
    ..PluginDef::new("ImageLocality", |arguments, compatibility, report| {
        arguments::read_none(arguments, report);
        let weights = PartWeights {
            images: 1,
            ..PartWeights::NONE
        };
        let mut plugin = KubePlugin::of("ImageLocality");
        plugin.image_rules = compatibility.release().rules();
        plugin.with_part(weights).shared()
    })
};

/// Score of a plugin.
#[derive(Debug)]
enum KubeScore {
    /// The plugin only filters.
    None,
    /// Part of `nodeorder`.
    Part(Box<ScoreRules>),
    /// Resources and a strategy that `nodeorder` does not have.
    Allocation(AllocationRules),
}

/// Compiled plugin.
#[derive(Debug)]
struct KubePlugin {
    name: &'static str,
    checks: Option<PredicateArguments>,
    score: KubeScore,
    existing_pods: ExistingPodTerms,
    /// Rules of image locality.
    image_rules: ReleaseRules,
    /// Rules that the profile adds to the rules of each pod.
    added: AddedRules,
    /// Preferred terms of the node affinity that the profile adds.
    added_preferences: Vec<PreferredTerm>,
    /// Resources whose amounts are not checked.
    ignored: IgnoredResources,
    effective: YamlValue,
}

impl KubePlugin {
    /// Plugin without a filter and a score.
    fn of(name: &'static str) -> Self {
        Self {
            name,
            checks: None,
            score: KubeScore::None,
            existing_pods: ExistingPodTerms::PREFERRED,
            image_rules: Compatibility::Corrected.release().rules(),
            added: NO_ADDED_RULES.clone(),
            added_preferences: Vec::new(),
            ignored: IgnoredResources::default(),
            effective: YamlValue::Map(Vec::new()),
        }
    }

    fn with_checks(self, checks: PredicateArguments) -> Self {
        Self {
            checks: Some(checks),
            ..self
        }
    }

    fn with_part(self, weights: PartWeights) -> Self {
        let rules = self.rules(weights, None);
        Self {
            score: KubeScore::Part(Box::new(rules)),
            ..self
        }
    }

    /// Plugin that scores by these resources: as a part of `nodeorder` if that has the same, else by itself.
    fn with_allocation(self, allocation: AllocationRules) -> Self {
        let score = match allocation.as_part() {
            Some((weights, device)) => KubeScore::Part(Box::new(self.rules(weights, device))),
            None => KubeScore::Allocation(allocation),
        };
        Self { score, ..self }
    }

    fn rules(&self, weights: PartWeights, device: Option<Arc<str>>) -> ScoreRules {
        ScoreRules {
            plugin: self.name,
            weights,
            device,
            existing_pods: self.existing_pods,
            spread_defaults: self.added.spread_defaults.clone(),
            added_preferences: self.added_preferences.clone(),
            compatibility: Compatibility::Corrected,
            image_rules: self.image_rules,
            opens_selectors: self.added.opens_selectors,
        }
    }

    fn shared(self) -> Arc<dyn Plugin> {
        Arc::new(self)
    }
}

impl Plugin for KubePlugin {
    fn hooks(&self) -> PluginHooks {
        PluginHooks {
            filter: self.checks.is_some(),
            score: !matches!(self.score, KubeScore::None),
            filter_evaluates: self.checks.map_or(ConstraintSet::NONE, |checks| checks.evaluates()),
            score_evaluates: match &self.score {
                KubeScore::Part(rules) => rules.weights.evaluates(),
                KubeScore::None | KubeScore::Allocation(_) => ConstraintSet::NONE,
            },
            ..PluginHooks::default()
        }
    }

    fn effective_arguments(&self) -> YamlValue {
        self.effective.clone()
    }

    fn ignores_resource(&self, name: &str) -> bool {
        self.ignored.contains(name)
    }

    fn prepare_filter<'a>(
        &'a self,
        context: PluginContext<'a>,
        class: &'a TaskClass,
    ) -> PreparedHook<dyn NodeFilter + 'a> {
        let Some(checks) = &self.checks else { return Ok(None) };
        let filter = PodFilter::new(
            self.name,
            (checks, &self.added),
            Compatibility::Corrected,
            context,
            class,
        )?;
        Ok(Some(Box::new(filter)))
    }

    fn score_bounds(&self) -> Option<(f64, f64)> {
        Some((0.0, 100.0))
    }

    fn prepare_scorer<'a>(
        &'a self,
        context: PluginContext<'a>,
        class: &'a TaskClass,
    ) -> PreparedHook<dyn NodeScorer + 'a> {
        Ok(match &self.score {
            KubeScore::None => None,
            KubeScore::Part(rules) => Some(Box::new(PodScorer::new(rules, context, class)?)),
            KubeScore::Allocation(rules) => {
                let scorer = AllocationScorer::new(rules, context.cluster_state, class);
                scorer.map(|scorer| -> Box<dyn NodeScorer + 'a> { Box::new(scorer) })
            }
        })
    }
}
