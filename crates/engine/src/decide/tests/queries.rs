//! Options of queries: candidates, resources, named plugins, limits, details.

use super::fixtures::{amounts, cluster_state, node_query, policy, score_query, task};
use crate::decide::{self, FilterDetail, FilterVerdict, NodeQuery, ResourceFit, ScoreQuery, ScoreSheet};
use crate::model::{ClusterState, ErrorCode, NodeRecord, Problem, RecordKind, ResourceTable, TaskStatus};
use crate::plugin::Resolution;
use crate::policy::Compatibility::Corrected;
use crate::policy::CompiledPolicy;

const PLUGINS: &str = "{name: resource-strategy-fit, arguments: {resourceStrategyFitWeight: 1, resources: {cpu: {type: \
                       LeastAllocated, weight: 1}}, proportional: {enable: true, resources: nvidia.com/gpu, \
                       resourceProportion: {nvidia.com/gpu.cpu: 1, nvidia.com/gpu.memory: 0}}}}, {name: binpack}, \
                       {name: numa-aware}";

fn node(resources: &mut ResourceTable, name: &str, cpu: &str, gpus: &str) -> NodeRecord {
    let all = [
        ("cpu", cpu),
        ("memory", "64Gi"),
        ("pods", "10"),
        ("nvidia.com/gpu", gpus),
    ];
    NodeRecord {
        name: name.into(),
        allocatable: amounts(resources, all.into_iter().filter(|(_, quantity)| *quantity != "0")),
        ..NodeRecord::default()
    }
}

/// Nodes whose names do not sort as their slots do, and a task of 4 cores.
fn cluster() -> (ClusterState, NodeQuery) {
    let mut resources = ResourceTable::default();
    let mut nodes = vec![
        node(&mut resources, "d-big", "32", "0"),
        node(&mut resources, "c-small", "2", "0"),
        node(&mut resources, "b-busy", "8", "0"),
        node(&mut resources, "a-gpu", "8", "6"),
        node(&mut resources, "e-cordoned", "32", "0"),
        node(&mut resources, "f-broken", "32", "0"),
        node(&mut resources, "aa-big", "32", "0"),
    ];
    nodes[4].unschedulable = true;
    nodes[5].ready = Some(false);
    let asked = task(amounts(&mut resources, [("cpu", "4")]), &[]);
    let mut busy = asked.clone();
    busy.name = "default/busy".into();
    busy.node = "b-busy".into();
    busy.status = TaskStatus::Releasing;
    busy.requests = amounts(&mut resources, [("cpu", "6"), ("pods", "1")]);
    let mut cluster_state = cluster_state(resources, nodes);
    cluster_state.put_task(busy, &"test".into());
    let query = node_query(cluster_state.resources(), vec![asked]);
    (cluster_state, query)
}

fn filter(cluster_state: &ClusterState, compiled: &CompiledPolicy, query: &NodeQuery) -> FilterVerdict {
    let item = decide::filter(cluster_state, &compiled.policy, query)
        .unwrap()
        .remove(0);
    FilterVerdict::clone(&item.unwrap().result)
}

fn score(cluster_state: &ClusterState, compiled: &CompiledPolicy, query: &ScoreQuery) -> ScoreSheet {
    let item = decide::score(cluster_state, &compiled.policy, query).unwrap().remove(0);
    ScoreSheet::clone(&item.unwrap().result)
}

fn groups(verdict: &FilterVerdict) -> Vec<(&str, &str, &str, &[u32])> {
    let rejections = verdict.rejections.iter();
    rejections
        .map(|rejection| {
            let reason = &rejection.reason;
            assert_eq!(rejection.count as usize, rejection.nodes.len());
            (
                &*reason.plugin,
                reason.code,
                &*reason.resource,
                rejection.nodes.as_slice(),
            )
        })
        .collect()
}

#[test]
fn a_node_alone_has_the_scores_that_it_has_among_all() {
    let (cluster_state, query) = cluster();
    let compiled = policy(PLUGINS, Corrected);
    let whole = score(&cluster_state, &compiled, &score_query(query.clone()));
    let best = ScoreQuery {
        limit: Some(2),
        ..score_query(query.clone())
    };
    assert!(whole.independent && score(&cluster_state, &compiled, &best).independent);
    assert!(whole.nodes.len() > 3, "{whole:?}");
    for (slot, total) in whole.nodes.iter().zip(&whole.totals) {
        let one = NodeQuery {
            candidates: Some(vec![*slot]),
            ..query.clone()
        };
        let alone = score(&cluster_state, &compiled, &score_query(one));
        assert_eq!(alone.totals[0].to_bits(), total.to_bits(), "{slot}");
    }
}

#[test]
fn the_first_rejection_counts() {
    let (cluster_state, mut query) = cluster();
    let compiled = policy(PLUGINS, Corrected);
    query.resource_fit = ResourceFit::Idle;
    let verdict = filter(&cluster_state, &compiled, &query);
    assert_eq!(verdict.fit, [0, 6]);
    assert_eq!(
        groups(&verdict),
        [
            ("node-state", "NodeNotReady", "", [5].as_slice()),
            ("node-state", "NodeUnschedulable", "", &[4]),
            ("resource-fit", "InsufficientResource", "cpu", &[2]),
            ("resource-fit", "InsufficientResource", "cpu", &[1]),
            ("resource-strategy-fit", "ProportionalReserve", "nvidia.com/gpu", &[3]),
        ]
    );
    let resolutions = verdict.rejections.iter().map(|rejection| rejection.reason.resolution);
    let (yes, no) = (Resolution::Unschedulable, Resolution::Unresolvable);
    assert_eq!(resolutions.collect::<Vec<_>>(), [no, no, yes, no, no]);
    let measurements: Vec<_> = verdict.rejections[2..4]
        .iter()
        .map(|rejection| {
            rejection.samples[0]
                .1
                .iter()
                .map(|measurement| (&*measurement.name, measurement.value))
                .collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(measurements[0], [("requested", 4.0), ("idle", 2.0)]);
    assert_eq!(
        measurements[1],
        [("requested", 4.0), ("idle", 2.0), ("allocatable", 2.0)]
    );

    // Releasing amounts count for tasks that wait.
    query.resource_fit = ResourceFit::FutureIdle;
    assert_eq!(filter(&cluster_state, &compiled, &query).fit, [0, 2, 6]);
    query.resource_fit = ResourceFit::None;
    assert_eq!(filter(&cluster_state, &compiled, &query).fit, [0, 1, 2, 6]);
}

#[test]
fn an_outdated_node_takes_nothing_new() {
    let (mut cluster_state, query) = cluster();
    let problem = Problem::new(ErrorCode::QuantityInvalid, "allocatable", "no number");
    cluster_state.set_invalid(RecordKind::Node, "d-big", Some(vec![problem].into()));
    let verdict = filter(&cluster_state, &policy(PLUGINS, Corrected), &query);
    assert_eq!(groups(&verdict)[0], ("node-state", "NodeInvalid", "", [0].as_slice()));
}

#[test]
fn named_plugins_are_queried_independently() {
    let (cluster_state, mut query) = cluster();
    let off = PLUGINS.replace(
        "{name: resource-strategy-fit",
        "{name: resource-strategy-fit, enablePredicate: false",
    );
    let compiled = policy(&off, Corrected);
    query.resource_fit = ResourceFit::Idle;
    assert!(
        filter(&cluster_state, &compiled, &query).fit.contains(&3),
        "switched off"
    );
    query.plugins = vec!["resource-strategy-fit".into(), "binpack".into()];
    query.candidates = Some(vec![3, 1, 4]);
    let verdict = filter(&cluster_state, &compiled, &query);
    // Neither the state of nodes nor switches matter; slot 1 lacks resources, the plugin rejects slot 3.
    assert_eq!(verdict.fit, [4]);
    assert_eq!(groups(&verdict).len(), 2);

    // A node appears once per plugin that rejects it.
    query.tasks[0].as_mut().unwrap().task = {
        let mut resources = ResourceTable::clone(&query.resources);
        task(amounts(&mut resources, [("cpu", "16")]), &[]).into()
    };
    query.candidates = Some(vec![3]);
    assert_eq!(
        groups(&filter(&cluster_state, &compiled, &query)),
        [
            ("resource-fit", "InsufficientResource", "cpu", [3].as_slice()),
            ("resource-strategy-fit", "ProportionalReserve", "nvidia.com/gpu", &[3]),
        ]
    );
}

#[test]
fn unavailable_plugins_fail_the_query() {
    let (cluster_state, mut query) = cluster();
    let compiled = policy(PLUGINS, Corrected);
    for (name, reason) in [("numa-aware", "PLUGIN_NOT_SERVED"), ("drf", "PLUGIN_UNKNOWN")] {
        query.plugins = vec!["binpack".into(), name.into()];
        let problem = decide::filter(&cluster_state, &compiled.policy, &query).unwrap_err();
        assert_eq!((problem.code.name(), &*problem.field), (reason, "plugins[1]"));
        let score = score_query(query.clone());
        assert_eq!(
            decide::score(&cluster_state, &compiled.policy, &score).unwrap_err(),
            problem
        );
    }
}

#[test]
fn samples_come_by_name_and_details_can_be_left_out() {
    let (cluster_state, mut query) = cluster();
    let compiled = policy("{name: binpack}", Corrected);
    query.resource_fit = ResourceFit::Idle;
    query.tasks[0].as_mut().unwrap().task = {
        let mut resources = ResourceTable::clone(&query.resources);
        task(amounts(&mut resources, [("cpu", "500")]), &[]).into()
    };
    query.samples = 2;
    let short = |verdict: &FilterVerdict| {
        let last = verdict.rejections.last().unwrap().clone();
        (
            last.count,
            last.nodes,
            last.samples.iter().map(|(slot, _)| *slot).collect::<Vec<_>>(),
        )
    };
    assert_eq!(
        short(&filter(&cluster_state, &compiled, &query)),
        (5, vec![0, 1, 2, 3, 6], vec![3, 6])
    );
    query.detail = FilterDetail::Samples;
    assert_eq!(
        short(&filter(&cluster_state, &compiled, &query)),
        (5, vec![], vec![3, 6])
    );
    query.detail = FilterDetail::Counts;
    assert_eq!(short(&filter(&cluster_state, &compiled, &query)), (5, vec![], vec![]));
}

#[test]
fn the_best_come_first_and_ties_break_by_name() {
    let (cluster_state, query) = cluster();
    let compiled = policy(&PLUGINS.replace("{name: binpack}, ", ""), Corrected);
    let mut query = score_query(query);
    let all = score(&cluster_state, &compiled, &query);
    assert_eq!(all.nodes, [0, 1, 2, 3, 4, 5, 6]);
    query.limit = Some(4);
    let best = score(&cluster_state, &compiled, &query);
    // Slots 0, 4, 5 and 6 tie; their names are d-big, e-cordoned, f-broken and aa-big.
    assert_eq!(best.nodes, [6, 0, 4, 5]);
    for part in &best.parts {
        let whole = all
            .parts
            .iter()
            .find(|other| (&other.plugin, other.part) == (&part.plugin, part.part))
            .unwrap();
        let picked: Vec<f64> = best.nodes.iter().map(|slot| whole.scores[*slot as usize]).collect();
        assert_eq!(part.scores, picked);
    }
    query.limit = Some(0);
    assert_eq!(score(&cluster_state, &compiled, &query).nodes, [] as [u32; 0]);
    query.limit = Some(100);
    query.with_filter = true;
    let fitting = score(&cluster_state, &compiled, &query);
    let filter = fitting.filter.unwrap();
    assert_eq!((fitting.nodes, filter.fit), (vec![6, 0, 2, 1], vec![0, 1, 2, 6]));
}

#[test]
fn candidates_keep_the_callers_order() {
    let (cluster_state, query) = cluster();
    let compiled = policy(PLUGINS, Corrected);
    let mut query = score_query(query);
    let all = score(&cluster_state, &compiled, &query);
    query.node_query.candidates = Some(vec![6, 2, 99, 0, 3]);
    let some = score(&cluster_state, &compiled, &query);
    assert_eq!(some.nodes, [6, 2, 0, 3]);
    let expected: Vec<f64> = some.nodes.iter().map(|slot| all.totals[*slot as usize]).collect();
    assert_eq!(some.totals, expected);
    let verdict = filter(&cluster_state, &compiled, &query.node_query);
    let absent = verdict
        .rejections
        .iter()
        .find(|rejection| rejection.reason.code == "NodeNotFound")
        .unwrap();
    assert_eq!(absent.nodes, [99]);
}

#[test]
fn parts_and_plugins_are_distinguished() {
    let (cluster_state, query) = cluster();
    let compiled = policy(PLUGINS, Corrected);
    let mut query = score_query(query);
    let names = |sheet: &ScoreSheet| {
        let parts = sheet.parts.iter().map(|part| format!("{}/{}", part.plugin, part.part));
        parts.collect::<Vec<_>>()
    };
    assert_eq!(
        names(&score(&cluster_state, &compiled, &query)),
        ["resource-strategy-fit/rsf", "binpack/"]
    );
    query.with_parts = false;
    assert_eq!(names(&score(&cluster_state, &compiled, &query)), [] as [&str; 0]);
    query.node_query.plugins = vec!["binpack".into(), "resource-strategy-fit".into()];
    let asked = score(&cluster_state, &compiled, &query);
    assert_eq!(names(&asked), ["binpack/", "resource-strategy-fit/"]);
    let sums = asked.parts[0].scores.iter().zip(&asked.parts[1].scores);
    assert!(sums.map(|(a, b)| a + b).eq(asked.totals.iter().copied()));
    query.with_parts = true;
    assert_eq!(
        names(&score(&cluster_state, &compiled, &query)),
        ["binpack/", "resource-strategy-fit/rsf", "resource-strategy-fit/"]
    );
}

#[test]
fn equal_tasks_are_judged_once_and_items_fail_alone() {
    let (cluster_state, mut query) = cluster();
    let compiled = policy(PLUGINS, Corrected);
    let problem = Problem::new(ErrorCode::QuantityInvalid, "requests", "no number");
    query.tasks.push(Err(problem.clone()));
    let mut other = query.tasks[0].clone().unwrap();
    let mut record = (*other.task).clone();
    record.name = "default/other".into();
    other.task = record.into();
    other.warnings.push(problem.clone());
    query.tasks.push(Ok(other));
    let items = decide::filter(&cluster_state, &compiled.policy, &query).unwrap();
    let [Ok(one), Err(bad), Ok(two)] = &items[..] else {
        panic!("{items:?}")
    };
    assert_eq!(*bad, problem);
    assert!(std::sync::Arc::ptr_eq(&one.result, &two.result));
    assert_eq!(
        (&one.warnings[..], &two.warnings[..]),
        ([].as_slice(), [problem].as_slice())
    );
}
