//! Filters about pods against the rules written down plainly, over small random clusters.

mod defaults;
mod gangs;
mod plain_rules;
mod scores;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plain_rules::PlainRules;
use proptest::prelude::*;

use crate::decide::tests::fixtures;
use crate::decide::{self, FilterVerdict};
use crate::model::constraints::{
    LabelSelector, PodAffinityTerm, PodConstraints, PodTerms, SelectorRequirement, SpreadConstraint, SpreadPolicy,
    WeightedPodTerm,
};
use crate::model::{
    ClusterState, NamespaceRecord, NodeRecord, ResourceAmounts, ResourceId, ResourceTable, TaskFields, TaskRecord,
    TaskStatus, TextMap, find_text,
};
use crate::policy::{self, Compatibility, CompileOptions, Policy};

fn texts(pairs: &[(&str, String)]) -> TextMap {
    let mut pairs: Vec<(Arc<str>, Arc<str>)> = pairs
        .iter()
        .map(|(key, value)| (Arc::from(*key), value.as_str().into()))
        .collect();
    pairs.sort();
    pairs.into()
}

fn labels() -> impl Strategy<Value = TextMap> {
    (prop::option::of(0_u8..2), prop::option::of(0_u8..2)).prop_map(|(app, tier)| {
        let pairs: Vec<(&str, String)> = [("app", app), ("tier", tier)]
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?.to_string())))
            .collect();
        texts(&pairs)
    })
}

fn selector() -> impl Strategy<Value = Option<LabelSelector>> {
    let operator = prop::sample::select(vec!["In", "NotIn", "Exists", "DoesNotExist"]);
    let requirement =
        (prop::sample::select(vec!["app", "tier"]), operator, 0_u8..2).prop_map(|(key, operator, value)| {
            SelectorRequirement {
                key: key.into(),
                operator: operator.into(),
                values: if operator.ends_with("In") {
                    vec![value.to_string().into()]
                } else {
                    Vec::new()
                },
            }
        });
    let own = (labels(), prop::collection::vec(requirement, 0..2)).prop_map(|(match_labels, match_expressions)| {
        LabelSelector {
            match_labels,
            match_expressions,
        }
    });
    prop::option::weighted(0.9, own)
}

fn key() -> impl Strategy<Value = Arc<str>> {
    prop::sample::select(vec!["zone", "kubernetes.io/hostname", "rack"]).prop_map(Arc::from)
}

fn term() -> impl Strategy<Value = PodAffinityTerm> {
    let namespaces = prop::sample::select(vec![Vec::new(), vec!["x"], vec!["y", "z"]]);
    (selector(), namespaces, namespace_selector(), key()).prop_map(
        |(label_selector, namespaces, namespace_selector, topology_key)| PodAffinityTerm {
            label_selector,
            namespaces: namespaces.into_iter().map(Arc::from).collect(),
            namespace_selector,
            topology_key,
        },
    )
}

fn namespace_selector() -> impl Strategy<Value = Option<LabelSelector>> {
    let with = |key: &str, operator: &str, values: &[&str]| LabelSelector {
        match_labels: TextMap::default(),
        match_expressions: vec![SelectorRequirement {
            key: key.into(),
            operator: operator.into(),
            values: values.iter().map(|value| Arc::from(*value)).collect(),
        }],
    };
    let choices = vec![
        LabelSelector::default(),
        with("team", "In", &["a"]),
        with("team", "DoesNotExist", &[]),
    ];
    prop::option::weighted(0.4, prop::sample::select(choices))
}

/// Labels of the namespaces of the pods; `None`: the namespace has no record.
fn namespaces() -> impl Strategy<Value = [Option<TextMap>; 2]> {
    let labels = prop::sample::select(vec![
        TextMap::default(),
        texts(&[("team", "a".to_owned())]),
        texts(&[("team", "b".to_owned())]),
    ]);
    prop::array::uniform2(prop::option::weighted(0.8, labels))
}

/// Puts the records of namespaces, all of them under `corrected`, and returns the labels.
fn put_namespaces(
    state: &mut ClusterState,
    namespaces: [Option<TextMap>; 2],
    upstream: bool,
) -> BTreeMap<&'static str, TextMap> {
    let named = ["x", "y"].into_iter().zip(namespaces);
    let known = named.filter_map(|(name, labels)| match labels {
        None if upstream => None,
        labels => Some((name, labels.unwrap_or_default())),
    });
    let known: BTreeMap<&str, TextMap> = known.collect();
    for (name, labels) in &known {
        let record = NamespaceRecord {
            name: (*name).into(),
            labels: Arc::clone(labels),
            ..NamespaceRecord::default()
        };
        state.put_namespace(record, &Arc::from("test"));
    }
    known
}

fn spread() -> impl Strategy<Value = SpreadConstraint> {
    let policy = |honor| {
        if honor {
            SpreadPolicy::Honor
        } else {
            SpreadPolicy::Ignore
        }
    };
    let policies = (any::<bool>(), any::<bool>());
    let keys = prop::sample::select(vec![Vec::new(), vec!["app"], vec!["app", "tier"]]);
    let numbers = (1_i32..4, prop::option::of(0_i32..4), prop::bool::weighted(0.8));
    (numbers, key(), selector(), policies, keys).prop_map(
        move |((max_skew, min_domains, is_hard), topology_key, label_selector, (affinity, taints), keys)| {
            SpreadConstraint {
                max_skew,
                topology_key,
                is_hard,
                label_selector,
                min_domains,
                node_affinity_policy: policy(affinity),
                node_taints_policy: policy(taints),
                match_label_keys: keys.into_iter().map(Arc::from).collect(),
            }
        },
    )
}

fn constraints() -> impl Strategy<Value = Option<Arc<PodConstraints>>> {
    let terms = || prop::collection::vec(term(), 0..3);
    let of = (
        terms(),
        terms(),
        prop::collection::vec(spread(), 0..3),
        prop::option::weighted(0.2, 0_u8..2),
    );
    let own = of.prop_map(|(attracts, repels, spread_constraints, zone)| {
        let required = |required| PodTerms {
            required,
            preferred: Vec::new(),
        };
        Arc::new(PodConstraints {
            node_selector: zone.map_or_else(TextMap::default, |zone| texts(&[("zone", zone.to_string())])),
            pod_affinity: required(attracts),
            pod_anti_affinity: required(repels),
            spread_constraints,
            ..PodConstraints::default()
        })
    });
    prop::option::weighted(0.6, own)
}

fn pod() -> impl Strategy<Value = TaskRecord> {
    let status = prop::sample::select(vec![
        TaskStatus::Running,
        TaskStatus::Running,
        TaskStatus::Pipelined,
        TaskStatus::Releasing,
        TaskStatus::Succeeded,
    ]);
    let namespace = prop::sample::select(vec!["x", "y"]);
    (namespace, labels(), constraints(), 0_usize..6, status).prop_map(
        |(namespace, labels, constraints, node, status)| {
            TaskFields {
                name: format!("{namespace}/").into(),
                labels,
                constraints,
                node: format!("n{node}").into(),
                status,
                requests: ResourceAmounts::from_iter([(ResourceId::PODS, 1)]),
                ..TaskFields::default()
            }
            .into()
        },
    )
}

fn nodes() -> impl Strategy<Value = Vec<NodeRecord>> {
    let node = (
        prop::option::of(0_u8..3),
        prop::option::of(0_u8..2),
        prop::option::weighted(0.1, any::<bool>()),
    );
    prop::collection::vec(node, 1..6).prop_map(|nodes| {
        let numbered = nodes.into_iter().enumerate();
        numbered
            .map(|(number, (zone, rack, ready))| {
                let mut pairs = vec![("kubernetes.io/hostname", number.to_string())];
                pairs.extend(zone.map(|zone| ("zone", zone.to_string())));
                pairs.extend(rack.map(|rack| ("rack", rack.to_string())));
                NodeRecord {
                    name: format!("n{number}").into(),
                    labels: texts(&pairs),
                    allocatable: ResourceAmounts::from_iter([(ResourceId::PODS, 100)]),
                    ready,
                    ..NodeRecord::default()
                }
            })
            .collect()
    })
}

fn verdict(state: &ClusterState, task: TaskRecord, compatibility: Compatibility) -> Arc<FilterVerdict> {
    verdict_under(
        state,
        task,
        &fixtures::policy("{name: predicates}", compatibility).policy,
    )
}

fn verdict_under(state: &ClusterState, task: TaskRecord, policy: &Policy) -> Arc<FilterVerdict> {
    let query = fixtures::node_query(state.resources(), vec![task]);
    decide::filter(state, policy, &query).unwrap().remove(0).unwrap().result
}

fn state_of(nodes: &[NodeRecord], pods: &[TaskRecord]) -> ClusterState {
    let mut state = fixtures::cluster_state(ResourceTable::default(), nodes.to_vec());
    for pod in pods {
        state.put_task(pod.clone(), &Arc::from("test"));
    }
    state
}

fn numbered(pods: Vec<TaskRecord>) -> Vec<TaskRecord> {
    let numbered = pods.into_iter().enumerate();
    numbered
        .map(|(number, pod)| TaskRecord {
            name: format!("{}{number}", pod.name).into(),
            ..pod
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn filters_follow_the_rules(
        nodes in nodes(),
        pods in prop::collection::vec(pod(), 0..12),
        own in pod(),
        upstream in any::<bool>(),
        asked_before in any::<bool>(),
        namespaces in namespaces(),
    ) {
        let pods = numbered(pods);
        let mut state = state_of(&nodes, &[]);
        if asked_before {
            let _ = state.pods();
        }
        for pod in &pods {
            state.put_task(pod.clone(), &Arc::from("test"));
        }
        let namespaces = put_namespaces(&mut state, namespaces, upstream);
        let compatibility = if upstream { Compatibility::UPSTREAM } else { Compatibility::Corrected };
        let own = TaskRecord { name: format!("{}own", own.name).into(), status: TaskStatus::Pending, node: Arc::default(), ..own };
        let found = verdict(&state, own.clone(), compatibility);
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
        let mut got: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
        for rejection in &found.rejections {
            for slot in &rejection.nodes {
                got.entry(*slot).or_default().insert(rejection.reason.code);
            }
        }
        for (slot, node) in (0_u32..).zip(&nodes) {
            // The reference ignores conditions of nodes.
            if !upstream && node.ready == Some(false) {
                continue;
            }
            let selects = rules.constraints.node_selector.iter().all(|(key, value)| find_text(&node.labels, key) == Some(value));
            let got = got.remove(&slot).unwrap_or_default();
            if !selects {
                prop_assert_eq!(got, BTreeSet::from(["NodeAffinityMismatch"]));
                continue;
            }
            let mut expected = rules.reasons(node);
            if !upstream && expected.len() > 1 {
                // One reason, one that evictions do not remove before others.
                let unresolvable = expected.contains("MissingTopologyLabel");
                let affinity = expected.iter().find(|code| code.ends_with("Affinity")).copied();
                expected = BTreeSet::from([if unresolvable { "MissingTopologyLabel" } else { affinity.unwrap() }]);
            }
            prop_assert_eq!(got, expected, "{:?} on {:?}", rules.constraints, node);
        }
    }
}

fn repelling(name: &str, term: PodAffinityTerm) -> TaskRecord {
    let repels = PodTerms {
        required: vec![term],
        preferred: Vec::new(),
    };
    let constraints = PodConstraints {
        pod_anti_affinity: repels,
        ..PodConstraints::default()
    };
    TaskFields {
        name: name.into(),
        node: "n0".into(),
        status: TaskStatus::Running,
        labels: texts(&[("app", "a".to_owned())]),
        requests: ResourceAmounts::from_iter([(ResourceId::PODS, 1)]),
        constraints: Some(Arc::new(constraints)),
        ..TaskFields::default()
    }
    .into()
}

fn node(number: u8) -> NodeRecord {
    NodeRecord {
        name: format!("n{number}").into(),
        labels: texts(&[("host", number.to_string())]),
        allocatable: ResourceAmounts::from_iter([(ResourceId::PODS, 100)]),
        ..NodeRecord::default()
    }
}

fn preferred(weight: i32, term: PodAffinityTerm) -> WeightedPodTerm {
    WeightedPodTerm { weight, term }
}

fn host_term(namespace_selector: Option<LabelSelector>) -> PodAffinityTerm {
    PodAffinityTerm {
        label_selector: Some(LabelSelector::default()),
        namespace_selector,
        topology_key: "host".into(),
        ..PodAffinityTerm::default()
    }
}

#[test]
fn a_term_of_another_pod_that_needs_namespaces_is_refused_by_name() {
    let selector = LabelSelector {
        match_labels: texts(&[("team", "a".to_owned())]),
        ..LabelSelector::default()
    };
    let mut state = state_of(&[node(0), node(1)], &[repelling("x/guard", host_term(Some(selector)))]);
    let policy = fixtures::policy("{name: predicates}", Compatibility::Corrected).policy;
    let query = fixtures::node_query(state.resources(), vec![fixtures::task(ResourceAmounts::default(), &[])]);
    let problem = decide::filter(&state, &policy, &query).unwrap().remove(0).unwrap_err();
    assert_eq!((problem.code.name()), ("NAMESPACE_LABELS_UNKNOWN"));
    assert!(
        problem.message.contains("`x/guard`") && problem.message.contains("`default`"),
        "{}",
        problem.message
    );
    // The reference takes a namespace that it does not find for one without labels.
    let task = || fixtures::task(ResourceAmounts::default(), &[]);
    assert_eq!(verdict(&state, task(), Compatibility::UPSTREAM).fit, [0, 1]);
    for (team, fit) in [("a", [1].as_slice()), ("b", &[0, 1])] {
        let record = NamespaceRecord {
            name: "default".into(),
            labels: texts(&[("team", team.to_owned())]),
            ..NamespaceRecord::default()
        };
        state.put_namespace(record, &Arc::from("test"));
        for compatibility in [Compatibility::Corrected, Compatibility::UPSTREAM] {
            assert_eq!(verdict(&state, task(), compatibility).fit, fit, "{team}");
        }
    }
}

#[test]
fn a_selector_that_matches_no_labels_selects_all_namespaces_under_upstream() {
    let without = SelectorRequirement {
        key: "team".into(),
        operator: "DoesNotExist".into(),
        values: Vec::new(),
    };
    let selector = LabelSelector {
        match_expressions: vec![without],
        ..LabelSelector::default()
    };
    let mut state = state_of(&[node(0), node(1)], &[repelling("x/other", PodAffinityTerm::default())]);
    for (name, labels) in [("x", texts(&[("team", "a".to_owned())])), ("y", texts(&[]))] {
        let record = NamespaceRecord {
            name: name.into(),
            labels,
            ..NamespaceRecord::default()
        };
        state.put_namespace(record, &Arc::from("test"));
    }
    let mut asked = repelling("y/own", host_term(Some(selector)));
    (asked.status, asked.node) = (TaskStatus::Pending, Arc::default());
    assert_eq!(verdict(&state, asked.clone(), Compatibility::UPSTREAM).fit, [1]);
    assert_eq!(verdict(&state, asked.clone(), Compatibility::Corrected).fit, [0, 1]);
    let document = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";
    for (release, fit) in [
        ("kube-scheduler-1.36", [1].as_slice()),
        ("kube-scheduler-1.37", &[0, 1]),
    ] {
        let options = CompileOptions {
            compatibility: Compatibility::from_name(release).unwrap(),
            ..CompileOptions::default()
        };
        let policy = policy::compile(document, &options).unwrap().policy;
        assert_eq!(verdict_under(&state, asked.clone(), &policy).fit, fit, "{release}");
    }
}

#[test]
fn a_term_of_the_pod_itself_is_left_out_until_the_namespaces_are_known() {
    let selector = LabelSelector {
        match_labels: texts(&[("team", "a".to_owned())]),
        ..LabelSelector::default()
    };
    let mut state = state_of(&[node(0), node(1)], &[repelling("x/other", PodAffinityTerm::default())]);
    let mut asked = repelling("y/own", host_term(Some(selector)));
    (asked.status, asked.node) = (TaskStatus::Pending, Arc::default());
    assert_eq!(verdict(&state, asked.clone(), Compatibility::Corrected).fit, [0, 1]);
    for name in ["x", "y"] {
        let record = NamespaceRecord {
            name: name.into(),
            labels: texts(&[("team", "a".to_owned())]),
            ..NamespaceRecord::default()
        };
        state.put_namespace(record, &Arc::from("test"));
        // The pod in namespace x is known to be kept away from as soon as all namespaces of pods are known.
        let fit: &[u32] = if name == "x" { &[0, 1] } else { &[1] };
        assert_eq!(verdict(&state, asked.clone(), Compatibility::Corrected).fit, fit);
    }
}

#[test]
fn pods_that_are_being_released_keep_others_away_until_they_are_gone() {
    let mut guard = repelling("default/guard", host_term(None));
    guard.status = TaskStatus::Releasing;
    let state = state_of(&[node(0), node(1)], &[guard]);
    let fit = |compatibility, resource_fit| {
        let policy = fixtures::policy("{name: predicates}", compatibility).policy;
        let mut query = fixtures::node_query(state.resources(), vec![fixtures::task(ResourceAmounts::default(), &[])]);
        query.resource_fit = resource_fit;
        decide::filter(&state, &policy, &query)
            .unwrap()
            .remove(0)
            .unwrap()
            .result
            .fit
            .clone()
    };
    assert_eq!(fit(Compatibility::Corrected, decide::ResourceFit::None), [1]);
    assert_eq!(fit(Compatibility::Corrected, decide::ResourceFit::FutureIdle), [0, 1]);
    assert_eq!(fit(Compatibility::UPSTREAM, decide::ResourceFit::FutureIdle), [1]);
}

#[test]
fn anti_affinity_placed_within_a_cycle_counts_under_corrected_only() {
    use crate::cycle::{SchedulingCycle, SessionChange, TaskPlacement};
    use crate::plugin_state::PluginStates;
    for compatibility in [Compatibility::Corrected, Compatibility::UPSTREAM] {
        let mut waiting = repelling("default/guard", host_term(None));
        (waiting.status, waiting.node) = (TaskStatus::Pending, Arc::default());
        let state = state_of(&[node(0), node(1)], &[waiting]);
        let mut cycle = SchedulingCycle::new(state, compatibility.into(), PluginStates::default());
        let placement = TaskPlacement {
            task: "default/guard".into(),
            node: "n0".into(),
            card: Arc::default(),
            devices: 0,
        };
        cycle.apply(&[SessionChange::Allocate(placement)]).unwrap();
        let task = fixtures::task(ResourceAmounts::default(), &[]);
        let found = verdict(cycle.cluster_state(), task, compatibility);
        let expected: &[u32] = if compatibility.is_upstream() { &[0, 1] } else { &[1] };
        assert_eq!(found.fit, expected, "{compatibility:?}");
    }
}
