//! Scores ahead, compared with the scores after records of such tasks were put.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use crate::decide::verdict_cache::tests::fixtures::{ClusterChange, DOCUMENTS, all_classes, cluster, policy};
use crate::decide::{self, NodeQuery, ResourceFit, ScoreQuery, ScoreSheet};
use crate::model::{ClusterState, NodeSlot, TaskRecord, TaskStatus};
use crate::policy::{Compatibility, Policy};

const DEPTH: usize = 3;

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
    ) {
        let mut state = cluster();
        for (kind, number, variant) in changes {
            ClusterChange { kind, number, variant }.apply(&mut state);
        }
        let compatibility = if upstream { Compatibility::Upstream } else { Compatibility::Corrected };
        let all = all_classes(&state);
        let mut found = 0;
        for document in DOCUMENTS.into_iter().chain([OWN_NODE]) {
            let policy = policy(document, compatibility);
            for item in &all.node_query.tasks {
                let query = ScoreQuery {
                    node_query: NodeQuery {
                        tasks: vec![item.clone()],
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
        prop_assert!(found > 0 || !state.has_no_terms(), "no class is looked ahead for");
    }
}

#[test]
fn no_scores_ahead_where_more_than_the_node_counts() {
    let state = cluster();
    let all = all_classes(&state);
    let ahead = |document: &str, class: usize| {
        let node_query = NodeQuery {
            tasks: vec![all.node_query.tasks[class].clone()],
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
    assert_eq!(ahead(OWN_NODE, 0), DEPTH);
    assert_eq!(ahead(OWN_NODE, 4), 0, "ports");
    assert_eq!(ahead(OWN_NODE, 5), 0, "terms about pods");
    let card = "{actions: allocate, tiers: [{plugins: [{name: capacity-card}, {name: binpack}]}]}";
    assert_eq!(ahead(card, 0), 0, "accounts");
    let ordered = "{actions: allocate, tiers: [{plugins: [{name: nodeorder}]}]}";
    assert_eq!(ahead(ordered, 2), 0, "scores relative to the candidates");
    let devices = "{actions: allocate, tiers: [{plugins: [{name: gpu-devices}, {name: binpack}]}]}";
    assert_eq!(ahead(devices, 7), 0, "devices");
}
