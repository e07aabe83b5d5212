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

use super::inter_pod::{ExistingPodTerms, NO_SPREAD_DEFAULTS};
use super::nodeorder::{PartWeights, PodScorer, ScorePartKind, ScoreRules};
use super::predicates::{AddedRules, NO_ADDED_RULES, PodFilter, PredicateArguments, PredicateCheck};
use crate::model::TaskClass;
use crate::model::constraints::ConstraintSet;
use crate::plugin::{NodeFilter, NodeScorer, Plugin, PluginContext, PluginDef, PluginHooks, PreparedHook};
use crate::policy::{Compatibility, YamlValue};

const FILTER: &[&str] = &["filter"];
const SCORE: &[&str] = &["score"];
const FILTER_AND_SCORE: &[&str] = &["filter", "score"];
const ALL_POINTS: &[&str] = &["preFilter", "filter", "preScore", "score"];

/// Registry entry of a plugin that reads labels of nodes and pods.
const fn labelled(def: &PluginDef) -> PluginDef {
    PluginDef {
        node_labels: &["*"],
        task_labels: &["*"],
        ..*def
    }
}

/// Registry entry of `NodeUnschedulable`.
pub(super) const NODE_UNSCHEDULABLE: PluginDef = PluginDef {
    families: FILTER,
    profile_points: &["filter"],
    default_weight: Some(0),
    ..PluginDef::new("NodeUnschedulable", |arguments, _, report| {
        arguments::read_none(arguments, report);
        KubePlugin::of("NodeUnschedulable")
            .with_check(PredicateCheck::Cordon)
            .shared()
    })
};

/// Registry entry of `TaintToleration`.
pub(super) const TAINT_TOLERATION: PluginDef = PluginDef {
    families: FILTER_AND_SCORE,
    profile_points: &["filter", "preScore", "score"],
    default_weight: Some(3),
    ..PluginDef::new("TaintToleration", |arguments, _, report| {
        arguments::read_none(arguments, report);
        let plugin = KubePlugin::of("TaintToleration").with_check(PredicateCheck::Taints);
        plugin.with_part(ScorePartKind::TaintToleration).shared()
    })
};

/// Registry entry of `NodeAffinity`.
pub(super) const NODE_AFFINITY: PluginDef = labelled(&PluginDef {
    families: FILTER_AND_SCORE,
    profile_points: ALL_POINTS,
    default_weight: Some(2),
    prepares_itself: true,
    ..PluginDef::new("NodeAffinity", |arguments, _, report| {
        let added = added_affinity::read_node_affinity(arguments, report);
        let mut plugin = KubePlugin::of("NodeAffinity").with_check(PredicateCheck::NodeAffinity);
        plugin.added.required_node_terms = added.required;
        plugin.rules.added_preferences = added.preferred;
        plugin.effective = added.effective;
        plugin.with_part(ScorePartKind::NodeAffinity).shared()
    })
});

/// Registry entry of `NodePorts`.
pub(super) const NODE_PORTS: PluginDef = PluginDef {
    families: FILTER,
    profile_points: &["preFilter", "filter"],
    default_weight: Some(0),
    ..PluginDef::new("NodePorts", |arguments, _, report| {
        arguments::read_none(arguments, report);
        KubePlugin::of("NodePorts")
            .with_check(PredicateCheck::HostPorts)
            .shared()
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
        let mut plugin = KubePlugin::of("NodeResourcesFit").with_check(PredicateCheck::PodCount);
        plugin.ignored = read.ignored;
        plugin.effective = read.effective;
        plugin.with_allocation(read.rules).shared()
    })
};

/// Registry entry of `PodTopologySpread`.
pub(super) const POD_TOPOLOGY_SPREAD: PluginDef = labelled(&PluginDef {
    families: FILTER_AND_SCORE,
    profile_points: ALL_POINTS,
    default_weight: Some(2),
    ..PluginDef::new("PodTopologySpread", |arguments, _, report| {
        let read = spread_arguments::read_topology_spread(arguments, report);
        let mut plugin = KubePlugin::of("PodTopologySpread").with_check(PredicateCheck::TopologySpread);
        plugin.added.spread_defaults = read.defaults;
        plugin.effective = read.effective;
        plugin.with_part(ScorePartKind::TopologySpread).shared()
    })
});

/// Registry entry of `InterPodAffinity`.
pub(super) const INTER_POD_AFFINITY: PluginDef = labelled(&PluginDef {
    families: FILTER_AND_SCORE,
    profile_points: ALL_POINTS,
    default_weight: Some(2),
    ..PluginDef::new("InterPodAffinity", |arguments, compatibility, report| {
        let (existing_pods, effective) = arguments::read_inter_pod_affinity(arguments, report);
        let mut plugin = KubePlugin::of("InterPodAffinity").with_check(PredicateCheck::PodAffinity);
        plugin.rules.existing_pods = existing_pods;
        plugin.added.opens_selectors = !compatibility.release().rules().closes_namespace_selectors;
        plugin.effective = effective;
        plugin.with_part(ScorePartKind::PodAffinity).shared()
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
        let mut plugin = KubePlugin::of("ImageLocality");
        plugin.rules.image_rules = compatibility.release().rules();
        plugin.with_part(ScorePartKind::ImageLocality).shared()
    })
};

/// Score of a plugin.
#[derive(Debug)]
enum KubeScore {
    /// The plugin only filters.
    None,
    /// Part of `nodeorder`, by the plugin's rules.
    Part,
    /// Resources and a strategy that `nodeorder` does not have.
    Allocation(AllocationRules),
}

/// Compiled plugin.
#[derive(Debug)]
struct KubePlugin {
    checks: Option<PredicateArguments>,
    score: KubeScore,
    /// Rules of the score, and the name of the plugin.
    rules: ScoreRules,
    /// Rules that the profile adds to the rules of each pod.
    added: AddedRules,
    /// Resources whose amounts are not checked.
    ignored: IgnoredResources,
    effective: YamlValue,
}

impl KubePlugin {
    /// Plugin without a filter and a score.
    fn of(name: &'static str) -> Self {
        Self {
            checks: None,
            score: KubeScore::None,
            rules: ScoreRules {
                plugin: name,
                weights: PartWeights::default(),
                device: None,
                existing_pods: ExistingPodTerms::PREFERRED,
                spread_defaults: NO_SPREAD_DEFAULTS,
                added_preferences: Vec::new(),
                compatibility: Compatibility::Corrected,
                image_rules: Compatibility::Corrected.release().rules(),
                opens_selectors: false,
            },
            added: NO_ADDED_RULES.clone(),
            ignored: IgnoredResources::default(),
            effective: YamlValue::Map(Vec::new()),
        }
    }

    fn with_check(self, check: PredicateCheck) -> Self {
        Self {
            checks: Some(PredicateArguments::only(check)),
            ..self
        }
    }

    fn with_part(mut self, part: ScorePartKind) -> Self {
        self.score = KubeScore::Part;
        self.rules.weights = PartWeights::only(part);
        // Filter and score read pods alike.
        self.rules.spread_defaults = self.added.spread_defaults.clone();
        self.rules.opens_selectors = self.added.opens_selectors;
        self
    }

    /// Plugin that scores by these resources: as a part of `nodeorder` if that has the same, else by itself.
    fn with_allocation(mut self, allocation: AllocationRules) -> Self {
        if let Some((part, device)) = allocation.as_part() {
            self.rules.device = device;
            return self.with_part(part);
        }
        self.score = KubeScore::Allocation(allocation);
        self
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
            filter_evaluates: self.checks.map_or(ConstraintSet::NONE, PredicateArguments::evaluates),
            score_evaluates: match &self.score {
                KubeScore::Part => self.rules.weights.evaluates(),
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
        let Some(checks) = self.checks else { return Ok(None) };
        let filter = PodFilter::new(
            self.rules.plugin,
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
            KubeScore::Part => Some(Box::new(PodScorer::new(&self.rules, context, class)?)),
            KubeScore::Allocation(rules) => {
                let scorer = AllocationScorer::new(rules, context.cluster_state, class);
                scorer.map(|scorer| -> Box<dyn NodeScorer + 'a> { Box::new(scorer) })
            }
        })
    }
}
