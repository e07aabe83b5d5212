//! Scores ahead, compared with the scores after records of such tasks were put.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use crate::decide::verdict_cache::tests::fixtures::{ClusterChange, DOCUMENTS, all_classes, cluster, policy};
use crate::decide::{self, NodeQuery, QueryTask, ResourceFit, ScoreQuery, ScoreSheet};
use crate::model::{ClusterState, NodeSlot, ResourceAmounts, ResourceId, TaskRecord, TaskStatus};
use crate::policy::{Compatibility, Policy};

const DEPTH: usize = 3;

/// Kind of request.
#[derive(Clone, Copy, Debug)]
enum Request {
    /// Request of the class.
    OfClass,
    /// Memory that floats represent exactly for one task but not for two.
    Huge,
    /// Fraction of a scalar, which Kubernetes rounds up to a whole unit.
    Parts,
    /// No request. Kubernetes assumes default amounts of cpu and memory.
    Nothing,
    /// Other amounts in the sums of kube-scheduler, which no column shows.
    OtherSums,
}

const REQUESTS: [Request; 5] = [
    Request::OfClass,
    Request::Huge,
    Request::Parts,
    Request::Nothing,
    Request::OtherSums,
];

impl Request {
    fn of(self, item: &QueryTask) -> QueryTask {
        let mut task = TaskRecord::clone(&item.task);
        let gpu = task.requests.iter().map(|(id, _)| id).max().unwrap();
        match self {
            Self::OfClass => {}
            Self::Huge => task.requests.set(ResourceId::MEMORY, (1 << 52) + 1),
            Self::Parts => task.requests.set(gpu, 300),
            Self::Nothing => task.requests = ResourceAmounts::from_iter([(ResourceId::PODS, 1)]),
            Self::OtherSums => {
                let counted = ResourceAmounts::from_iter([(ResourceId::CPU, 3_000), (ResourceId::MEMORY, 1 << 30)]);
                task.kubernetes_requests = Some(Box::new(counted));
            }
        }
        QueryTask {
            task: Arc::new(task),
            warnings: Vec::new(),
        }
    }
}

/// Policy whose filters and scores read nothing but the node, apart from terms about pods.
const OWN_NODE: &str = "
actions: allocate
tiers:
- plugins: [{name: predicates}, {name: binpack}]
- plugins:
  - name: resource-strategy-fit
    arguments:
      resources: {cpu: {type: LeastAllocated, weight: 1}, nvidia.com/gpu: {type: MostAllocated, weight: 2}}
      sra: {enable: true, resources: nvidia.com/gpu, weight: 3}
      proportional: {enable: true, resources: nvidia.com/gpu, resourceProportion: {nvidia.com/gpu.cpu: 1, nvidia.com/gpu.memory: 1}}
";

/// Policy whose scores read what Koordinator counts of each task.
const FIT_PLUS: &str = "
actions: allocate
tiers:
- plugins:
  - {name: NodeResourcesFitPlus, arguments: {resources: {cpu: {type: LeastAllocated, weight: 1}, nvidia.com/gpu: {type: MostAllocated, weight: 2}}}}
";

/// Policy whose scores read the sums of kube-scheduler.
const KUBE_SUMS: &str = "
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins:
    score:
      disabled: [{name: '*'}]
      enabled: [{name: NodeResourcesFit}, {name: NodeResourcesBalancedAllocation}]
";

/// Scores of one node: the total, and the parts in their order.
type ScoreBits = (u64, Vec<u64>);

/// Scores by node, as bits.
fn by_node(sheet: &ScoreSheet) -> BTreeMap<NodeSlot, ScoreBits> {
    let at = |place: usize| {
        let parts = sheet.parts.iter().map(|part| part.scores[place].to_bits());
        (sheet.totals[place].to_bits(), parts.collect())
    };
    let nodes = sheet.nodes.iter().enumerate();
    nodes.map(|(place, slot)| (*slot, at(place))).collect()
}

fn sheet(state: &ClusterState, policy: &Policy, query: &ScoreQuery) -> Option<ScoreSheet> {
    let item = decide::score(state, policy, query).unwrap().remove(0);
    item.ok().map(|item| ScoreSheet::clone(&item.result))
}

/// Puts this many tasks like the one of a query on each node.
fn put_tasks(state: &mut ClusterState, query: &ScoreQuery, counts: &BTreeMap<NodeSlot, usize>) {
    let task = &query.node_query.tasks[0].as_ref().unwrap().task;
    for (slot, count) in counts {
        let node = state.name_of(*slot).unwrap();
        for number in 0..*count {
            let record = TaskRecord {
                name: format!("team/ahead-{slot}-{number}").into(),
                node: Arc::clone(&node),
                status: TaskStatus::Binding,
                ..TaskRecord::clone(task)
            };
            state.put_task(record, &Arc::from("test"));
        }
    }
}

/// Checks one class. Returns the number of sheets ahead.
fn check(state: &ClusterState, policy: &Policy, query: &ScoreQuery, counts: &[usize]) -> usize {
    let Some(before) = sheet(state, policy, query) else {
        return 0;
    };
    if before.ahead.is_empty() {
        return 0;
    }
    assert!(before.independent, "scores of other nodes count");
    let nodes = state.nodes().map(|(slot, _)| slot);
    let counts: BTreeMap<NodeSlot, usize> = nodes.zip(counts.iter().copied().cycle()).collect();
    let mut after = state.clone();
    put_tasks(&mut after, query, &counts);
    let after = by_node(
        &sheet(
            &after,
            policy,
            &ScoreQuery {
                ahead: 0,
                ..query.clone()
            },
        )
        .unwrap(),
    );
    let none = BTreeMap::new();
    let ahead: Vec<_> = before.ahead.iter().map(by_node).collect();
    let now = by_node(&before);
    for (slot, count) in counts {
        let expected = match count.checked_sub(1) {
            None => &now,
            // After the last sheet no node is left.
            Some(place) if place >= ahead.len() && before.ahead.last().unwrap().nodes.is_empty() => &none,
            Some(place) => &ahead[place],
        };
        assert_eq!(
            after.get(&slot),
            expected.get(&slot),
            "node {slot} with {count} tasks more"
        );
    }
    ahead.len()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn scores_ahead_are_those_after_such_tasks(
        changes in prop::collection::vec((any::<u32>(), any::<u32>(), any::<u32>()), 0..120),
        counts in prop::collection::vec(0..=DEPTH, 7),
        with_filter in any::<bool>(),
        idle in any::<bool>(),
        upstream in any::<bool>(),
        request in prop::sample::select(REQUESTS.to_vec()),
    ) {
        let mut state = cluster();
        for (kind, number, variant) in changes {
            ClusterChange { kind, number, variant }.apply(&mut state);
        }
        let compatibility = if upstream { Compatibility::UPSTREAM } else { Compatibility::Corrected };
        let all = all_classes(&state);
        let mut found = 0;
        for document in DOCUMENTS.into_iter().chain([OWN_NODE, FIT_PLUS, KUBE_SUMS]) {
            let policy = policy(document, compatibility);
            for item in &all.node_query.tasks {
                let query = ScoreQuery {
                    node_query: NodeQuery {
                        tasks: vec![item.clone().map(|item| request.of(&item))],
                        resource_fit: if idle { ResourceFit::Idle } else { ResourceFit::FutureIdle },
                        ..all.node_query.clone()
                    },
                    with_filter,
                    limit: None,
                    with_parts: true,
                    ahead: DEPTH,
                };
                found += check(&state, &policy, &query, &counts);
            }
        }
        let is_too_big = with_filter && matches!(request, Request::Huge);
        prop_assert!(found > 0 || is_too_big || !state.has_no_terms(), "no class is looked ahead for");
    }
}

#[test]
fn every_kind_of_request_is_counted_as_it_would_be_stored() {
    let state = cluster();
    let all = all_classes(&state);
    for document in [OWN_NODE, FIT_PLUS, KUBE_SUMS] {
        let policy = policy(document, Compatibility::Corrected);
        for request in REQUESTS {
            let item = all.node_query.tasks[0].as_ref().unwrap();
            let query = ScoreQuery {
                node_query: NodeQuery {
                    tasks: vec![Ok(request.of(item))],
                    ..all.node_query.clone()
                },
                with_filter: false,
                limit: None,
                with_parts: true,
                ahead: DEPTH,
            };
            let counts = [0, 1, 2, DEPTH];
            assert_eq!(
                check(&state, &policy, &query, &counts),
                DEPTH,
                "{request:?} under {document}"
            );
        }
    }
}

#[test]
fn no_scores_ahead_where_more_than_the_node_counts() {
    let state = cluster();
    let all = all_classes(&state);
    let ahead_of = |document: &str, class: usize, plugins: &[&str]| {
        let node_query = NodeQuery {
            tasks: vec![all.node_query.tasks[class].clone()],
            plugins: plugins.iter().map(|name| Arc::from(*name)).collect(),
            ..all.node_query.clone()
        };
        let query = ScoreQuery {
            node_query,
            with_filter: true,
            limit: None,
            with_parts: false,
            ahead: DEPTH,
        };
        let found = sheet(&state, &policy(document, Compatibility::Corrected), &query);
        found.map_or(0, |sheet| sheet.ahead.len())
    };
    let ahead = |document: &str, class: usize| ahead_of(document, class, &[]);
    for document in [OWN_NODE, FIT_PLUS, KUBE_SUMS] {
        assert_eq!(ahead(document, 0), DEPTH, "{document}");
    }
    assert_eq!(ahead(OWN_NODE, 4), 0, "ports");
    assert_eq!(ahead(OWN_NODE, 5), 0, "terms about pods");
    let card = "{actions: allocate, tiers: [{plugins: [{name: capacity-card}, {name: binpack}]}]}";
    assert_eq!(ahead(card, 0), 0, "accounts");
    let ordered = "{actions: allocate, tiers: [{plugins: [{name: nodeorder}]}]}";
    assert_eq!(ahead(ordered, 2), 0, "scores relative to the candidates");
    let devices = "{actions: allocate, tiers: [{plugins: [{name: gpu-devices}, {name: binpack}]}]}";
    assert_eq!(ahead(devices, 7), 0, "devices");
    // A query that names plugins asks them whatever their switches say.
    for switch in ["enablePredicate", "enableNodeOrder"] {
        let off = devices.replace("{name: gpu-devices", &format!("{{name: gpu-devices, {switch}: false"));
        assert_eq!(
            ahead_of(&off, 7, &["gpu-devices", "binpack"]),
            0,
            "devices of a plugin without {switch}"
        );
    }
    let off = devices.replace(
        "{name: gpu-devices",
        "{name: gpu-devices, enablePredicate: false, enableNodeOrder: false",
    );
    assert_eq!(ahead(&off, 7), DEPTH, "nobody reads the devices");
    assert_eq!(ahead_of(&off, 7, &["binpack"]), DEPTH, "nobody reads the devices");
}

#[test]
fn no_scores_ahead_where_a_session_keeps_its_pods() {
    let state = cluster();
    let all = all_classes(&state);
    let weights = "tainttoleration.weight: 0, nodeaffinity.weight: 0, imagelocality.weight: 0";
    let ordered =
        format!("{{actions: allocate, tiers: [{{plugins: [{{name: nodeorder, arguments: {{{weights}}}}}]}}]}}");
    let with_predicates = ordered.replace("[{name: nodeorder", "[{name: predicates}, {name: nodeorder");
    let ahead = |document: &str, compatibility| {
        let query = ScoreQuery {
            node_query: NodeQuery {
                tasks: vec![all.node_query.tasks[0].clone()],
                ..all.node_query.clone()
            },
            limit: None,
            ahead: DEPTH,
            ..all.clone()
        };
        sheet(&state, &policy(document, compatibility), &query)
            .unwrap()
            .ahead
            .len()
    };
    assert_eq!(ahead(&ordered, Compatibility::UPSTREAM), 0);
    assert_eq!(ahead(&with_predicates, Compatibility::UPSTREAM), DEPTH);
    assert_eq!(ahead(&ordered, Compatibility::Corrected), DEPTH);
}
