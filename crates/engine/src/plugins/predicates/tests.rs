//! Rules of the filter that differ between compatibilities, and arguments.

use std::sync::Arc;

use crate::decide::tests::fixtures;
use crate::decide::{self, FilterVerdict, ResourceFit};
use crate::model::constraints::{HostPort, PodConstraints, SelectorRequirement};
use crate::model::{
    ClusterState, NodeRecord, ResourceAmounts, ResourceId, ResourceTable, TaskFields, TaskRecord, TaskStatus,
};
use crate::policy::{Compatibility, CompileOptions, ErrorCode, compile};

fn document(arguments: &str) -> String {
    format!("actions: allocate\ntiers: [{{plugins: [{{name: predicates, arguments: {{{arguments}}}}}]}}]\n")
}

fn options(compatibility: Compatibility) -> CompileOptions {
    CompileOptions {
        compatibility,
        ..CompileOptions::default()
    }
}

fn node(name: &str, pods: i64, zone: &str) -> NodeRecord {
    let mut allocatable = ResourceAmounts::default();
    allocatable.set(ResourceId::PODS, pods);
    NodeRecord {
        name: name.into(),
        allocatable,
        labels: [("zone".into(), zone.into())].into(),
        ..NodeRecord::default()
    }
}

fn selecting(zone: &str, template: &str) -> TaskRecord {
    let constraints = PodConstraints {
        node_selector: [("zone".into(), zone.into())].into(),
        ..PodConstraints::default()
    };
    let mut task = fixtures::task(ResourceAmounts::default(), &[("volcano.sh/template-uid", template)]);
    task.constraints = Some(Arc::new(constraints));
    task
}

fn on_port(status: TaskStatus, node: &str) -> TaskRecord {
    let port = HostPort {
        protocol: Arc::default(),
        host_ip: Arc::default(),
        port: 80,
    };
    let constraints = PodConstraints {
        host_ports: vec![port],
        ..PodConstraints::default()
    };
    TaskRecord::from(TaskFields {
        name: format!("ns/{status:?}").into(),
        status,
        node: node.into(),
        requests: ResourceAmounts::from_iter([(ResourceId::PODS, 1)]),
        constraints: Some(Arc::new(constraints)),
        ..TaskFields::default()
    })
}

/// Verdicts on tasks, all in one query.
fn verdicts(
    state: &ClusterState,
    arguments: &str,
    compatibility: Compatibility,
    fit: ResourceFit,
    tasks: Vec<TaskRecord>,
) -> Vec<Arc<FilterVerdict>> {
    let policy = compile(&document(arguments), &options(compatibility)).unwrap().policy;
    let mut query = fixtures::node_query(state.resources(), tasks);
    query.resource_fit = fit;
    let results = decide::filter(state, &policy, &query).unwrap();
    results.into_iter().map(|result| result.unwrap().result).collect()
}

fn codes(verdict: &FilterVerdict) -> Vec<&'static str> {
    verdict
        .rejections
        .iter()
        .map(|rejection| rejection.reason.code)
        .collect()
}

#[test]
fn one_reason_is_enough_under_corrected() {
    let state = fixtures::cluster_state(ResourceTable::default(), vec![node("full", 0, "a")]);
    let reasons = |compatibility| {
        let task = vec![selecting("b", "")];
        codes(&verdicts(&state, "", compatibility, ResourceFit::None, task)[0])
    };
    assert_eq!(reasons(Compatibility::Corrected), ["NodeAffinityMismatch"]);
    assert_eq!(
        reasons(Compatibility::UPSTREAM),
        ["NodeAffinityMismatch", "TooManyPods"]
    );
}

#[test]
fn ports_of_releasing_tasks_are_free_later() {
    let mut state = fixtures::cluster_state(ResourceTable::default(), vec![node("n", 1, "a")]);
    state.put_task(on_port(TaskStatus::Releasing, "n"), &Arc::from("test"));
    let reasons = |compatibility, fit| {
        let task = vec![on_port(TaskStatus::Pending, "")];
        codes(&verdicts(&state, "", compatibility, fit, task)[0])
    };
    let corrected = Compatibility::Corrected;
    assert_eq!(reasons(corrected, ResourceFit::Idle), ["InsufficientResource"]);
    assert_eq!(reasons(corrected, ResourceFit::None), ["TooManyPods"]);
    assert!(reasons(corrected, ResourceFit::FutureIdle).is_empty());
    let upstream = Compatibility::UPSTREAM;
    assert_eq!(
        reasons(upstream, ResourceFit::FutureIdle),
        ["HostPortTaken", "TooManyPods"]
    );
}

#[test]
fn the_cache_shares_the_first_verdict_under_upstream_only() {
    let nodes = vec![node("a", 9, "a"), node("b", 9, "b")];
    let state = fixtures::cluster_state(ResourceTable::default(), nodes);
    let fits = |compatibility| -> Vec<Vec<u32>> {
        let tasks = vec![selecting("a", "t"), selecting("b", "t"), selecting("b", "other")];
        let all = verdicts(
            &state,
            "predicate.CacheEnable: true",
            compatibility,
            ResourceFit::None,
            tasks,
        );
        all.iter().map(|verdict| verdict.fit.clone()).collect()
    };
    assert_eq!(fits(Compatibility::Corrected), [[0], [1], [1]]);
    assert_eq!(fits(Compatibility::UPSTREAM), [[0], [0], [1]]);
    let compiled = compile(
        &document("predicate.CacheEnable: true"),
        &options(Compatibility::Corrected),
    )
    .unwrap();
    assert_eq!(compiled.report.diagnostics.len(), 1);

    // A query that names the plugin asks it whatever its switch says.
    let off = document("predicate.CacheEnable: true")
        .replace("{name: predicates", "{name: predicates, enablePredicate: false");
    let policy = compile(&off, &options(Compatibility::UPSTREAM)).unwrap().policy;
    let tasks = vec![selecting("a", "t"), selecting("b", "t")];
    let mut query = fixtures::node_query(state.resources(), tasks);
    query.resource_fit = ResourceFit::None;
    query.plugins = vec!["predicates".into()];
    let results = decide::filter(&state, &policy, &query).unwrap();
    let fits: Vec<Vec<u32>> = results
        .into_iter()
        .map(|result| result.unwrap().result.fit.clone())
        .collect();
    assert_eq!(fits, [[0], [0]]);
}

#[test]
fn numbers_of_predicates_are_numbers() {
    for compatibility in [Compatibility::Corrected, Compatibility::UPSTREAM] {
        let refused = compile(&document("volumebinding.weight: ten"), &options(compatibility)).unwrap_err();
        assert_eq!(refused.diagnostics[0].code.name(), "ARGUMENT_TYPE");
        assert!(compile(&document("volumebinding.weight: 10"), &options(compatibility)).is_ok());
    }
}

#[test]
fn a_conflict_between_terms_rejects_every_node() {
    let state = fixtures::cluster_state(ResourceTable::default(), vec![node("n", 9, "a")]);
    let term = |name: &str| SelectorRequirement {
        key: "metadata.name".into(),
        operator: "In".into(),
        values: vec![name.into()],
    };
    let mut task = selecting("a", "");
    let terms = vec![crate::model::constraints::NodeSelectorTerm {
        match_fields: vec![term("n"), term("m")],
        ..Default::default()
    }];
    task.constraints = Some(Arc::new(PodConstraints {
        required_node_terms: Some(terms),
        ..PodConstraints::default()
    }));
    let found = verdicts(&state, "", Compatibility::Corrected, ResourceFit::None, vec![task]);
    assert_eq!(codes(&found[0]), ["NodeAffinityConflict"]);
}

#[test]
fn keys_that_volcano_does_not_read_are_named() {
    for arguments in [
        "predicate.DynamicResourceAllocationEnable: true",
        "predicate.GPUSharingEnable: true",
        "predicate.resources: nvidia.com/gpu",
        "predicate.NodeAffinityEnable: 1",
    ] {
        for compatibility in [Compatibility::Corrected, Compatibility::UPSTREAM] {
            let report = compile(&document(arguments), &options(compatibility)).unwrap().report;
            let codes: Vec<ErrorCode> = report.diagnostics.iter().map(|own| own.code).collect();
            assert_eq!(codes, [ErrorCode::ArgumentIgnored], "{arguments}");
        }
    }
}

#[test]
fn a_node_without_pods_admits_nothing() {
    let bare = NodeRecord {
        allocatable: ResourceAmounts::default(),
        ..node("bare", 0, "a")
    };
    let state = fixtures::cluster_state(ResourceTable::default(), vec![bare]);
    for compatibility in [Compatibility::Corrected, Compatibility::UPSTREAM] {
        let found = verdicts(&state, "", compatibility, ResourceFit::None, vec![selecting("a", "")]);
        assert_eq!(codes(&found[0]), ["TooManyPods"]);
    }
}
