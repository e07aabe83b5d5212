//! Gangs whose tasks constrain each other, compared with a loop that evaluates all nodes again after each task.

use std::sync::Arc;

use proptest::prelude::*;

use super::scores::preferences;
use super::{constraints, numbered, pod, state_of, texts};
use crate::cycle::{SchedulingCycle, SessionChange, TaskPlacement};
use crate::decide::tests::fixtures;
use crate::decide::{self, PlaceGroup, PlaceQuery, ResourceFit, ScoreQuery};
use crate::model::constraints::{
    LabelSelector, NodeProperties, NodeSelectorTerm, PodAffinityTerm, PodConstraints, PodTerms, PreferredTerm,
    SelectorRequirement, Taint, TaintEffect, WeightedPodTerm,
};
use crate::model::{
    ClusterState, NodeRecord, NodeSlot, Problem, ResourceAmounts, ResourceId, TaskFields, TaskRecord, TaskStatus,
};
use crate::plugin_state::PluginStates;
use crate::policy::{Compatibility, CompileOptions, Policy, compile};

const POLICIES: [&str; 5] = [
    "tiers: [{plugins: [{name: predicates}, {name: nodeorder}, {name: binpack}]}]\nactions: allocate\n",
    "tiers: [{plugins: [{name: nodeorder, arguments: {podaffinity.weight: 7, tainttoleration.weight: -3, \
     podtopologyspread.weight: 5, mostrequested.weight: 1}}, {name: predicates}, {name: resource-strategy-fit}]}]\n\
     actions: allocate\n",
    "tiers: [{plugins: [{name: predicates}, {name: nodeorder, arguments: {podaffinity.weight: 8796093022208, \
     leastrequested.weight: 0, podtopologyspread.weight: 3}}]}]\nactions: allocate\n",
    "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n",
    ALONE,
];

/// Policy without the plugin that tells the scores which pods move.
const ALONE: &str = "tiers: [{plugins: [{name: nodeorder, arguments: {podaffinity.weight: 7, \
                     podtopologyspread.weight: 5}}]}]\nactions: allocate\n";

fn policy(document: &str, compatibility: Compatibility) -> Arc<Policy> {
    let options = CompileOptions {
        compatibility,
        ..CompileOptions::default()
    };
    let compiled = compile(document, &options);
    compiled
        .unwrap_or_else(|report| panic!("{:?}", report.diagnostics))
        .policy
}

/// Nodes in zones and racks, some of them small, tainted or without a label. Few zones of many nodes, and racks of few.
fn clusters() -> impl Strategy<Value = Vec<NodeRecord>> {
    let node = (
        prop::option::weighted(0.95, 0_u8..3),
        prop::option::weighted(0.9, 0_u8..12),
        (1_i64..5, 1_i64..9, 1_i64..5),
        (prop::bool::weighted(0.2), prop::bool::weighted(0.1)),
    );
    let nodes = prop_oneof![
        2 => prop::collection::vec(node.clone(), 1..8),
        3 => prop::collection::vec(node, 50..90),
    ];
    nodes.prop_map(|nodes| {
        let numbered = nodes.into_iter().enumerate();
        numbered
            .map(|(number, (zone, rack, (pods, cpu, memory), (tainted, unready)))| {
                let mut pairs = vec![("kubernetes.io/hostname", number.to_string())];
                pairs.extend(zone.map(|zone| ("zone", zone.to_string())));
                pairs.extend(rack.map(|rack| ("rack", rack.to_string())));
                let taint = Taint {
                    key: "spot".into(),
                    value: Arc::default(),
                    effect: TaintEffect::PreferNoSchedule,
                };
                NodeRecord {
                    name: format!("n{number}").into(),
                    labels: texts(&pairs),
                    allocatable: ResourceAmounts::from_iter([
                        (ResourceId::CPU, cpu * 1_000),
                        (ResourceId::MEMORY, memory << 30),
                        (ResourceId::PODS, pods),
                    ]),
                    ready: unready.then_some(false),
                    properties: tainted.then(|| {
                        Arc::new(NodeProperties {
                            devices: None,
                            taints: vec![taint],
                            images: Vec::new(),
                        })
                    }),
                    ..NodeRecord::default()
                }
            })
            .collect()
    })
}

/// Task of the gang: terms of all kinds, and preferred zones.
fn member() -> impl Strategy<Value = TaskRecord> {
    let zones = prop::collection::vec((1_i32..100, 0_u8..3), 0..3);
    (pod(), constraints(), preferences(), zones, 1_i64..4).prop_map(|(pod, own, (attracts, repels), zones, cpu)| {
        let own = own.as_deref().cloned().unwrap_or_default();
        let with = |terms: PodTerms, more: PodTerms| PodTerms {
            preferred: more.preferred,
            ..terms
        };
        let zone = |(weight, zone): (i32, u8)| PreferredTerm {
            weight,
            term: NodeSelectorTerm {
                match_expressions: vec![SelectorRequirement {
                    key: "zone".into(),
                    operator: "In".into(),
                    values: vec![zone.to_string().into()],
                }],
                ..NodeSelectorTerm::default()
            },
        };
        let constraints = PodConstraints {
            pod_affinity: with(own.pod_affinity.clone(), attracts),
            pod_anti_affinity: with(own.pod_anti_affinity.clone(), repels),
            preferred_node_terms: zones.into_iter().map(zone).collect(),
            ..own
        };
        let requests = [
            (ResourceId::CPU, cpu * 500),
            (ResourceId::MEMORY, 1 << 29),
            (ResourceId::PODS, 1),
        ];
        let mut task = TaskRecord {
            status: TaskStatus::Pending,
            node: Arc::default(),
            ..pod
        };
        task.constraints = Some(Arc::new(constraints));
        task.requests = ResourceAmounts::from_iter(requests);
        task
    })
}

/// Nodes of the tasks, each with whether it was pipelined there: the best of the nodes that pass, for one task after the other.
fn one_by_one(state: &ClusterState, policy: &Policy, names: &[Arc<str>]) -> Result<Vec<(NodeSlot, bool)>, Problem> {
    let mut cycle = SchedulingCycle::new(state.clone(), policy.node_change_rules(), PluginStates::default());
    let mut went = Vec::new();
    for name in names {
        let state = cycle.cluster_state();
        let task = state.tasks().get(name).unwrap().record.clone();
        let fit = |resource_fit| {
            let mut query = fixtures::node_query(state.resources(), vec![task.clone()]);
            query.resource_fit = resource_fit;
            let verdict = decide::filter(state, policy, &query).unwrap().remove(0);
            verdict.map(|verdict| verdict.result.fit.clone())
        };
        let later = fit(ResourceFit::FutureIdle)?;
        let now: Vec<NodeSlot> = fit(ResourceFit::Idle)?
            .into_iter()
            .filter(|slot| later.contains(slot))
            .collect();
        let pipelined = now.is_empty();
        let nodes = if pipelined { later } else { now };
        if nodes.is_empty() {
            break;
        }
        let mut node_query = fixtures::node_query(state.resources(), vec![task]);
        node_query.candidates = Some(nodes);
        let query = ScoreQuery {
            node_query,
            with_filter: false,
            limit: Some(1),
            with_parts: false,
            ahead: 0,
        };
        let best = decide::score(state, policy, &query).unwrap().remove(0)?.result.nodes[0];
        let to = TaskPlacement {
            devices: 0,
            task: Arc::clone(name),
            node: state.name_of(best).unwrap(),
            card: Arc::default(),
        };
        let change = if pipelined {
            SessionChange::Pipeline(to)
        } else {
            SessionChange::Allocate(to)
        };
        assert_eq!(cycle.apply(&[change]).unwrap().warnings, []);
        went.push((best, pipelined));
    }
    Ok(went)
}

/// Nodes of a group with these tasks.
fn together(state: &ClusterState, policy: &Policy, names: &[Arc<str>]) -> Result<Vec<(NodeSlot, bool)>, Problem> {
    let group = PlaceGroup {
        task: Arc::new(state.tasks().get(&names[0]).unwrap().record.clone()),
        count: names.len(),
        names: names.to_vec(),
        warnings: Vec::new(),
        unevaluated: Vec::new(),
    };
    let query = PlaceQuery {
        now: None,
        job: None,
        groups: vec![Ok(group)],
        resources: Arc::clone(state.resources()),
        min_available: Some(0),
        candidates: None,
        exclusions: Vec::new(),
        idle_only: false,
        samples: 0,
        max_pairs: u64::MAX,
    };
    let mut placing = decide::place(state, policy, &PluginStates::default(), &query).unwrap();
    let placed = placing.groups.remove(0)?;
    let allocated = placed.allocated.into_iter().map(|slot| (slot, false));
    Ok(allocated
        .chain(placed.pipelined.into_iter().map(|slot| (slot, true)))
        .collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn gangs_go_where_their_tasks_go_one_by_one(
        nodes in clusters(),
        pods in prop::collection::vec(pod(), 0..12),
        member in member(),
        count in prop_oneof![1_usize..6, 6_usize..60],
        number in 0..POLICIES.len(),
        upstream in any::<bool>(),
    ) {
        let compatibility = if upstream { Compatibility::UPSTREAM } else { Compatibility::Corrected };
        let policy = policy(POLICIES[number], compatibility);
        let mut state = state_of(&nodes, &numbered(pods));
        let names: Vec<Arc<str>> = (0..count).map(|number| format!("{}member-{number:02}", member.name).into()).collect();
        for name in &names {
            state.put_task(TaskRecord { name: Arc::clone(name), ..member.clone() }, &Arc::from("test"));
        }
        let (expected, mut got) = (one_by_one(&state, &policy, &names), together(&state, &policy, &names));
        match (expected, &mut got) {
            (Ok(mut expected), Ok(got)) => {
                // The group names its allocated tasks first.
                if !expected.is_sorted_by_key(|(_, pipelined)| *pipelined) {
                    expected.sort_unstable();
                    got.sort_unstable();
                }
                prop_assert_eq!(&*got, &expected, "{:?}", member.constraints);
            }
            (Err(_), got) => prop_assert!(got.is_err(), "{:?}", got),
            (Ok(expected), Err(problem)) => prop_assert!(false, "{:?}, not {:?}", problem, expected),
        }
    }
}

/// Nodes of the members of a group under a policy, by Place and one by one.
fn placed(document: &str, compatibility: Compatibility, constraints: &PodConstraints) -> Vec<NodeSlot> {
    let policy = policy(document, compatibility);
    let node = |number: u8| NodeRecord {
        name: format!("n{number}").into(),
        labels: texts(&[("zone", number.to_string())]),
        allocatable: ResourceAmounts::from_iter([
            (ResourceId::CPU, 8_000),
            (ResourceId::MEMORY, 8 << 30),
            (ResourceId::PODS, 10),
        ]),
        ..NodeRecord::default()
    };
    let mut state = state_of(&[node(0), node(1), node(2)], &[]);
    let names: Vec<Arc<str>> = (0..3).map(|number| format!("ns/m{number}").into()).collect();
    for name in &names {
        let task = TaskFields {
            name: Arc::clone(name),
            labels: texts(&[("app", "web".to_owned())]),
            requests: ResourceAmounts::from_iter([(ResourceId::CPU, 1_000), (ResourceId::PODS, 1)]),
            constraints: Some(Arc::new(constraints.clone())),
            ..TaskFields::default()
        };
        state.put_task(TaskRecord::from(task), &Arc::from("test"));
    }
    let together = together(&state, &policy, &names).unwrap();
    assert_eq!(together, one_by_one(&state, &policy, &names).unwrap(), "{document}");
    together.into_iter().map(|(slot, _)| slot).collect()
}

#[test]
fn scores_keep_the_pods_that_the_session_found_where_nobody_moves_them() {
    let apart = PodConstraints {
        pod_anti_affinity: PodTerms {
            preferred: vec![WeightedPodTerm {
                weight: 9,
                term: PodAffinityTerm {
                    label_selector: Some(LabelSelector {
                        match_labels: texts(&[("app", "web".to_owned())]),
                        ..LabelSelector::default()
                    }),
                    topology_key: "zone".into(),
                    ..PodAffinityTerm::default()
                },
            }],
            ..PodTerms::default()
        },
        ..PodConstraints::default()
    };
    for constraints in [PodConstraints::default(), apart] {
        let of = |document: &str, compatibility| placed(document, compatibility, &constraints);
        assert_eq!(of(ALONE, Compatibility::UPSTREAM), [0, 0, 0]);
        assert_eq!(of(ALONE, Compatibility::Corrected), [0, 1, 2]);
        let moving = ALONE.replace("{name: nodeorder", "{name: predicates}, {name: nodeorder");
        for document in [&moving, POLICIES[3]] {
            assert_eq!(of(document, Compatibility::UPSTREAM), [0, 1, 2], "{document}");
        }
    }
}
