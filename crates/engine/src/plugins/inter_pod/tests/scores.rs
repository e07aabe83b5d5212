//! Scores by terms about pods against the rules written down plainly, over small random clusters.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::plain_rules::{PlainRules, TopologyPair, pair};
use super::{
    constraints, host_term, namespaces, node, nodes, numbered, pod, preferred, put_namespaces, repelling, state_of,
    term, texts,
};
use crate::decide::tests::fixtures;
use crate::decide::{self, PlaceGroup, PlaceQuery, ScoreQuery, ScoreSheet};
use crate::model::constraints::{
    LabelSelector, NodeImage, NodeProperties, NodeSelectorTerm, PodAffinityTerm, PodConstraints, PodTerms,
    PreferredTerm, SelectorRequirement, SpreadConstraint, SpreadPolicy, WeightedPodTerm,
};
use crate::model::{
    ClusterState, NodeRecord, NodeSlot, Problem, ResourceAmounts, ResourceId, TaskRecord, TaskStatus, find_text,
};
use crate::plugin_state::PluginStates;
use crate::policy::{Compatibility, CompileOptions, compile};

const HOSTNAME: &str = "kubernetes.io/hostname";

/// Policy with these weights of the two parts about pods, and no other part.
fn document(affinity: i32, spread: i32) -> String {
    let off = [
        "leastrequested",
        "balancedresource",
        "nodeaffinity",
        "tainttoleration",
        "imagelocality",
    ];
    let off = off.map(|name| format!("{name}.weight: 0, ")).concat();
    format!(
        "tiers: [{{plugins: [{{name: nodeorder, arguments: {{{off}podaffinity.weight: {affinity}, \
         podtopologyspread.weight: {spread}}}}}]}}]\nactions: allocate\n"
    )
}

/// Scores of the given nodes for a task.
pub(super) fn sheet(
    state: &ClusterState,
    task: TaskRecord,
    candidates: Option<Vec<NodeSlot>>,
    compatibility: Compatibility,
) -> (ScoreSheet, Vec<Problem>) {
    let options = CompileOptions {
        compatibility,
        ..CompileOptions::default()
    };
    let policy = compile(&document(1, 1000), &options).unwrap().policy;
    let mut node_query = fixtures::node_query(state.resources(), vec![task]);
    node_query.candidates = candidates;
    let query = ScoreQuery {
        node_query,
        with_filter: false,
        limit: None,
        with_parts: true,
        ahead: 0,
    };
    let scored = decide::score(state, &policy, &query).unwrap().remove(0).unwrap();
    ((*scored.result).clone(), scored.warnings)
}

#[expect(clippy::cast_possible_truncation, reason = "it is a small integer")]
fn integer(float: f64) -> i64 {
    float as i64
}

impl PlainRules<'_> {
    /// Points of each topology pair by preferred terms.
    fn points(&self) -> BTreeMap<TopologyPair, i64> {
        let mut points = BTreeMap::new();
        let mut add = |terms: &PodTerms, sign: i64, owner: &TaskRecord, other: &TaskRecord, at: &NodeRecord| {
            for own in terms.preferred.iter().filter(|own| self.holds(&own.term, owner, other)) {
                if let Some(pair) = pair(&own.term.topology_key, at) {
                    *points.entry(pair).or_default() += sign * i64::from(own.weight);
                }
            }
        };
        for (other, at) in &self.pods {
            add(&self.constraints.pod_affinity, 1, self.own, other, at);
            add(&self.constraints.pod_anti_affinity, -1, self.own, other, at);
            if let Some(theirs) = &other.constraints {
                add(&theirs.pod_affinity, 1, other, self.own, at);
                add(&theirs.pod_anti_affinity, -1, other, self.own, at);
            }
        }
        points
    }

    /// Scores of the candidates by preferred terms.
    fn affinity_scores(&self, candidates: &[&NodeRecord]) -> Vec<i64> {
        let points = self.points();
        let of_node = |node: &&NodeRecord| -> i64 {
            let pairs = node
                .labels
                .iter()
                .map(|(key, value)| (Arc::clone(key), value.to_string()));
            pairs.filter_map(|pair| points.get(&pair)).sum()
        };
        let raw: Vec<i64> = candidates.iter().map(of_node).collect();
        let (least, most) = (raw.iter().min().unwrap(), raw.iter().max().unwrap());
        let score = |own: &i64| {
            if most == least {
                return 0;
            }
            integer((100.0 * ((own - least) as f64 / (most - least) as f64)).floor())
        };
        raw.iter().map(score).collect()
    }

    /// Scores of the candidates by soft spread; `None`: there is none.
    fn spread_scores(&self, candidates: &[&NodeRecord]) -> Option<Vec<i64>> {
        let soft: Vec<&SpreadConstraint> = self
            .constraints
            .spread_constraints
            .iter()
            .filter(|own| !own.is_hard)
            .collect();
        soft.first()?;
        let has_keys = |node: &NodeRecord| {
            soft.iter()
                .all(|own| find_text(&node.labels, &own.topology_key).is_some())
        };
        let scored: Vec<&&NodeRecord> = candidates.iter().filter(|node| has_keys(node)).collect();
        let points = |node: &NodeRecord| -> i64 {
            let each = soft.iter().map(|constraint| {
                let value = |node: &NodeRecord| find_text(&node.labels, &constraint.topology_key).map(str::to_owned);
                let mut domains: Vec<_> = scored.iter().map(|node| value(node)).collect();
                if *constraint.topology_key != *HOSTNAME {
                    domains.sort();
                    domains.dedup();
                }
                let is_counted = |at: &&&NodeRecord| {
                    if *constraint.topology_key == *HOSTNAME {
                        return at.name == node.name;
                    }
                    has_keys(at) && self.honors(constraint, at) && value(at) == value(node)
                };
                let count: i64 = self
                    .nodes
                    .iter()
                    .filter(is_counted)
                    .map(|at| self.counted_pods(constraint, at))
                    .sum();
                count as f64 * ((domains.len() + 2) as f64).ln() + f64::from(constraint.max_skew - 1)
            });
            integer(each.sum::<f64>().round())
        };
        let raw: Vec<Option<i64>> = candidates
            .iter()
            .map(|node| has_keys(node).then(|| points(node)))
            .collect();
        let (least, most) = (raw.iter().flatten().min(), raw.iter().flatten().max());
        let score = |own: &Option<i64>| match (own, least, most) {
            (Some(_), _, Some(0)) => 100,
            (Some(own), Some(least), Some(most)) => 100 * (most + least - own) / most,
            _ => 0,
        };
        Some(raw.iter().map(score).collect())
    }
}

/// Preferred terms for a pod.
pub(super) fn preferences() -> impl Strategy<Value = (PodTerms, PodTerms)> {
    let terms = || {
        prop::collection::vec((0_i32..=100, term()), 0..3).prop_map(|terms| PodTerms {
            required: Vec::new(),
            preferred: terms
                .into_iter()
                .map(|(weight, term)| preferred(weight, term))
                .collect(),
        })
    };
    (terms(), terms())
}

/// Pod with preferred terms beside its constraints.
fn preferring_pod() -> impl Strategy<Value = TaskRecord> {
    (pod(), constraints(), preferences()).prop_map(|(mut pod, constraints, (attracts, repels))| {
        let mut own = constraints.as_deref().cloned().unwrap_or_default();
        own.spread_constraints.iter_mut().for_each(|own| own.is_hard = false);
        let with = |terms: PodTerms, more: PodTerms| PodTerms {
            preferred: more.preferred,
            ..terms
        };
        pod.constraints = Some(Arc::new(PodConstraints {
            pod_affinity: with(own.pod_affinity.clone(), attracts),
            pod_anti_affinity: with(own.pod_anti_affinity.clone(), repels),
            ..own
        }));
        pod
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn scores_follow_the_rules(
        nodes in nodes(),
        pods in prop::collection::vec(prop_oneof![pod(), preferring_pod()], 0..30),
        own in prop_oneof![1 => pod(), 3 => preferring_pod()],
        upstream in any::<bool>(),
        chosen in prop::collection::vec(prop::bool::weighted(0.8), 6),
        namespaces in namespaces(),
    ) {
        let pods = numbered(pods);
        let mut state = state_of(&nodes, &pods);
        let namespaces = put_namespaces(&mut state, namespaces, upstream);
        let compatibility = if upstream { Compatibility::UPSTREAM } else { Compatibility::Corrected };
        let own = TaskRecord { name: format!("{}own", own.name).into(), status: TaskStatus::Pending, node: Arc::default(), ..own };
        let known: Vec<&NodeRecord> = nodes.iter().collect();
        let at = |pod: &TaskRecord| known.iter().find(|node| node.name == pod.node).copied();
        let none = PodConstraints::default();
        let rules = PlainRules {
            pods: pods.iter().filter(|pod| pod.status.is_on_node()).filter_map(|pod| Some((pod, at(pod)?))).collect(),
            nodes: known.clone(),
            constraints: own.constraints.as_deref().unwrap_or(&none),
            namespaces: &namespaces,
            own: &own,
            upstream,
        };
        let is_candidate = |(slot, node): &(u32, &NodeRecord)| chosen[*slot as usize] && node.ready != Some(false);
        let candidates: Vec<(u32, &NodeRecord)> = (0_u32..).zip(&nodes).filter(is_candidate).collect();
        let (slots, candidates): (Vec<u32>, Vec<&NodeRecord>) = candidates.into_iter().unzip();
        prop_assume!(!slots.is_empty());
        let (found, warnings) = sheet(&state, own.clone(), Some(slots.clone()), compatibility);
        prop_assert_eq!((&found.nodes, &warnings), (&slots, &Vec::new()));
        let expected = rules.affinity_scores(&candidates);
        let spread = rules.spread_scores(&candidates);
        let totals = expected.iter().enumerate();
        let totals: Vec<f64> = totals.map(|(at, own)| (own + 1000 * spread.as_ref().map_or(0, |own| own[at])) as f64).collect();
        prop_assert_eq!(&found.totals, &totals, "{:?}", rules.constraints);
        // A part that gives no node any points is not shown.
        let shown = found.parts.iter().any(|part| part.part == "podtopologyspread");
        prop_assert_eq!(shown, spread.is_some());
    }
}

#[test]
fn a_preferred_term_of_another_pod_that_needs_namespaces_is_left_out_with_a_warning() {
    let selector = LabelSelector {
        match_labels: texts(&[("team", "a".to_owned())]),
        ..LabelSelector::default()
    };
    let mut fan = repelling("x/fan", host_term(None));
    fan.constraints = Some(Arc::new(PodConstraints {
        pod_affinity: PodTerms {
            required: Vec::new(),
            preferred: vec![preferred(5, host_term(Some(selector)))],
        },
        ..PodConstraints::default()
    }));
    let state = state_of(&[node(0), node(1)], &[fan]);
    let (found, warnings) = sheet(
        &state,
        fixtures::task(ResourceAmounts::default(), &[]),
        None,
        Compatibility::Corrected,
    );
    assert_eq!(found.totals, [0.0, 0.0]);
    let [warning] = &warnings[..] else {
        panic!("{warnings:?}")
    };
    assert_eq!(warning.code.name(), "NAMESPACE_LABELS_UNKNOWN");
    assert!(warning.message.contains("`x/fan`"), "{}", warning.message);
}

#[test]
fn terms_of_pods_placed_within_a_cycle_count_everywhere_under_corrected_only() {
    use crate::cycle::{SchedulingCycle, SessionChange, TaskPlacement};
    use crate::plugin_state::PluginStates;
    for compatibility in [Compatibility::Corrected, Compatibility::UPSTREAM] {
        let mut waiting = repelling("default/fan", host_term(None));
        waiting.constraints = Some(Arc::new(PodConstraints {
            pod_affinity: PodTerms {
                required: Vec::new(),
                preferred: vec![preferred(5, host_term(None))],
            },
            ..PodConstraints::default()
        }));
        (waiting.status, waiting.node) = (TaskStatus::Pending, Arc::default());
        let state = state_of(&[node(0), node(1)], &[waiting]);
        let mut cycle = SchedulingCycle::new(state, compatibility.into(), PluginStates::default());
        let placement = TaskPlacement {
            task: "default/fan".into(),
            node: "n0".into(),
            card: Arc::default(),
            devices: 0,
        };
        cycle.apply(&[SessionChange::Allocate(placement)]).unwrap();
        let task = fixtures::task(ResourceAmounts::default(), &[]);
        let (found, _) = sheet(cycle.cluster_state(), task, None, compatibility);
        let expected: &[f64] = if compatibility.is_upstream() {
            &[0.0, 0.0]
        } else {
            &[100.0, 0.0]
        };
        assert_eq!(found.totals, expected, "{compatibility:?}");
    }
}

/// Nodes that a group of two equal tasks gets under these weights.
fn placed(state: &ClusterState, weights: &str, task: TaskRecord) -> Vec<u32> {
    let plugins =
        format!("{{name: nodeorder, arguments: {{leastrequested.weight: 0, balancedresource.weight: 0, {weights}}}}}");
    let policy = fixtures::policy(&plugins, Compatibility::Corrected).policy;
    let group = PlaceGroup {
        task: Arc::new(task),
        count: 2,
        names: Vec::new(),
        warnings: Vec::new(),
        unevaluated: Vec::new(),
    };
    let query = PlaceQuery {
        now: None,
        job: None,
        groups: vec![Ok(group)],
        resources: Arc::clone(state.resources()),
        min_available: None,
        candidates: None,
        exclusions: Vec::new(),
        idle_only: true,
        samples: 0,
        max_pairs: u64::MAX,
    };
    let placing = decide::place(state, &policy, &PluginStates::default(), &query).unwrap();
    placing.groups[0].as_ref().unwrap().allocated.clone()
}

/// Cluster of three zones with one node each, these numbers of pods and of places on them.
fn zones(pods: [i64; 3], places: [i64; 3]) -> ClusterState {
    let nodes = pods.iter().zip(places).enumerate().map(|(zone, (pods, places))| {
        let images = vec![NodeImage {
            names: vec!["train:latest".into()],
            size_bytes: 900 << 20,
        }];
        NodeRecord {
            name: format!("n{zone}").into(),
            labels: texts(&[("zone", zone.to_string())]),
            allocatable: ResourceAmounts::from_iter([(ResourceId::PODS, pods + places)]),
            properties: (zone == 0).then(|| {
                Arc::new(NodeProperties {
                    images,
                    ..NodeProperties::default()
                })
            }),
            ..NodeRecord::default()
        }
    });
    let mut state = state_of(&nodes.collect::<Vec<_>>(), &[]);
    for (zone, count) in pods.into_iter().enumerate() {
        for number in 0..count {
            let mut pod = repelling(&format!("default/p{zone}-{number}"), host_term(None));
            (pod.node, pod.constraints) = (format!("n{zone}").into(), None);
            state.put_task(pod, &Arc::from("test"));
        }
    }
    state
}

/// Task that prefers the last zone, with other constraints.
fn prefers_last_zone(constraints: PodConstraints) -> TaskRecord {
    let term = NodeSelectorTerm {
        match_expressions: vec![SelectorRequirement {
            key: "zone".into(),
            operator: "In".into(),
            values: vec!["2".into()],
        }],
        ..NodeSelectorTerm::default()
    };
    let mut task = fixtures::task(ResourceAmounts::from_iter([(ResourceId::PODS, 1)]), &[]);
    task.constraints = Some(Arc::new(PodConstraints {
        preferred_node_terms: vec![PreferredTerm { weight: 1, term }],
        ..constraints
    }));
    task
}

/// Selector of the pods of [`zones`].
fn app_selector() -> LabelSelector {
    LabelSelector {
        match_labels: texts(&[("app", "a".to_owned())]),
        ..LabelSelector::default()
    }
}

#[test]
fn a_full_node_no_longer_counts_as_the_one_with_most_points() {
    let term = PodAffinityTerm {
        label_selector: Some(app_selector()),
        topology_key: "zone".into(),
        ..PodAffinityTerm::default()
    };
    let task = prefers_last_zone(PodConstraints {
        pod_affinity: PodTerms {
            required: Vec::new(),
            preferred: vec![preferred(10, term)],
        },
        ..PodConstraints::default()
    });
    // Points 20, 10 and 0; then 10 and 0, which makes the second node the best one.
    for (places, expected) in [(1, [0, 1]), (2, [0, 0])] {
        let state = zones([2, 1, 0], [places, 9, 9]);
        assert_eq!(
            placed(&state, "podaffinity.weight: 3, nodeaffinity.weight: 2", task.clone()),
            expected
        );
    }
}

#[test]
fn a_full_node_takes_its_domain_out_of_the_weights_of_spread() {
    let constraint = SpreadConstraint {
        max_skew: 11,
        topology_key: "zone".into(),
        is_hard: false,
        label_selector: Some(app_selector()),
        min_domains: None,
        node_affinity_policy: SpreadPolicy::Honor,
        node_taints_policy: SpreadPolicy::Ignore,
        match_label_keys: Vec::new(),
    };
    let task = prefers_last_zone(PodConstraints {
        spread_constraints: vec![constraint],
        images: vec!["train".into()],
        ..PodConstraints::default()
    });
    // The last zone scores 38 with three domains, and 41 with two; its other points make up for 61.
    let weights = "podtopologyspread.weight: 100, nodeaffinity.weight: 61, imagelocality.weight: 1000";
    assert_eq!(placed(&zones([5, 0, 10], [1, 9, 9]), weights, task), [0, 2]);
}

#[test]
fn each_task_changes_the_points_for_the_next_one() {
    let term = PodAffinityTerm {
        label_selector: Some(app_selector()),
        topology_key: "zone".into(),
        ..PodAffinityTerm::default()
    };
    let prefers = |terms: Vec<WeightedPodTerm>| PodTerms {
        required: Vec::new(),
        preferred: terms,
    };
    let terms = vec![preferred(10, term)];
    let attracted = PodConstraints {
        pod_affinity: prefers(terms.clone()),
        ..PodConstraints::default()
    };
    let repelled = PodConstraints {
        pod_anti_affinity: prefers(terms),
        ..PodConstraints::default()
    };
    // Without terms the first task makes its node worse for the second, or better.
    for (constraints, requested, expected) in [
        (PodConstraints::default(), "leastrequested.weight: 1", [0, 1]),
        (attracted, "leastrequested.weight: 1", [0, 0]),
        (PodConstraints::default(), "mostrequested.weight: 1", [0, 0]),
        (repelled, "mostrequested.weight: 1", [0, 1]),
    ] {
        let mut state = zones([0, 0, 0], [9, 9, 9]);
        for (slot, name) in (0..3).zip(["n0", "n1", "n2"]) {
            let before = NodeRecord::clone(&state.node(slot).unwrap().record);
            let allocatable = [
                (ResourceId::PODS, 9),
                (ResourceId::CPU, 10_000),
                (ResourceId::MEMORY, 1 << 40),
            ];
            let record = NodeRecord {
                name: name.into(),
                allocatable: ResourceAmounts::from_iter(allocatable),
                ..before
            };
            state.put_node(Arc::new(record), &Arc::from("test"));
        }
        let requests = [(ResourceId::PODS, 1), (ResourceId::CPU, 5_000)];
        let mut task = fixtures::task(ResourceAmounts::from_iter(requests), &[]);
        task.labels = texts(&[("app", "a".to_owned())]);
        task.constraints = Some(Arc::new(constraints));
        assert_eq!(placed(&state, requested, task), expected, "{requested}");
    }
}
