//! Preferences that the reference refuses, sums over the pods of a node, and images. The recorded answers of the reference
//! cover the scores.

use std::sync::Arc;

use crate::decide::tests::fixtures;
use crate::decide::{self, ScoreQuery};
use crate::model::constraints::{
    NodeImage, NodeProperties, NodeSelectorTerm, PodConstraints, PreferredTerm, SelectorRequirement,
};
use crate::model::{
    ClusterState, NodeRecord, PodSum, Problem, ResourceAmounts, ResourceId, ResourceTable, TaskFields, TaskRecord,
    TaskStatus,
};
use crate::policy::{Compatibility, CompileOptions, DiagnosticReport, ErrorCode, compile};

/// Weights of all parts that are 0 unless a document names them.
const OFF: [&str; 6] = [
    "leastrequested",
    "balancedresource",
    "nodeaffinity",
    "tainttoleration",
    "imagelocality",
    "mostrequested",
];

fn document(part: &str) -> String {
    let weights = OFF.map(|name| format!("{name}.weight: {}", u8::from(name == part)));
    let arguments = weights.join(", ");
    format!("actions: allocate\ntiers: [{{plugins: [{{name: nodeorder, arguments: {{{arguments}}}}}]}}]\n")
}

fn preferring(terms: &[(i32, &str, &str)]) -> TaskRecord {
    let term = |&(weight, operator, zone): &(i32, &str, &str)| PreferredTerm {
        weight,
        term: NodeSelectorTerm {
            match_expressions: vec![SelectorRequirement {
                key: "zone".into(),
                operator: operator.into(),
                values: vec![zone.into()],
            }],
            ..NodeSelectorTerm::default()
        },
    };
    with_constraints(PodConstraints {
        preferred_node_terms: terms.iter().map(term).collect(),
        ..PodConstraints::default()
    })
}

fn with_constraints(constraints: PodConstraints) -> TaskRecord {
    let mut task = fixtures::task(ResourceAmounts::default(), &[]);
    task.constraints = Some(Arc::new(constraints));
    task
}

fn node(name: &str, zone: &str, images: &[(&str, i64)]) -> NodeRecord {
    let images = images.iter().map(|(name, size)| NodeImage {
        names: vec![Arc::from(*name)],
        size_bytes: *size,
    });
    NodeRecord {
        name: name.into(),
        labels: [("zone".into(), zone.into())].into(),
        properties: Some(Arc::new(NodeProperties {
            images: images.collect(),
            ..NodeProperties::default()
        })),
        ..NodeRecord::default()
    }
}

fn totals(state: &ClusterState, part: &str, task: TaskRecord) -> Result<Vec<f64>, Problem> {
    let policy = compile(&document(part), &CompileOptions::default()).unwrap().policy;
    let query = ScoreQuery {
        node_query: fixtures::node_query(state.resources(), vec![task]),
        with_filter: false,
        limit: None,
        with_parts: false,
        ahead: 0,
    };
    let mut results = decide::score(state, &policy, &query).unwrap();
    results.remove(0).map(|result| result.result.totals.clone())
}

#[test]
fn preferences_are_relative_to_the_candidates() {
    let nodes = vec![node("n-1", "a", &[]), node("n-2", "b", &[])];
    let state = fixtures::cluster_state(ResourceTable::default(), nodes);
    let policy = compile(&document("nodeaffinity"), &CompileOptions::default())
        .unwrap()
        .policy;
    let mut totals = Vec::new();
    for candidates in [None, Some(vec![1])] {
        let task = preferring(&[(4, "In", "a"), (1, "In", "b")]);
        let node_query = decide::NodeQuery {
            candidates,
            ..fixtures::node_query(state.resources(), vec![task])
        };
        let query = fixtures::score_query(node_query);
        let sheet = decide::score(&state, &policy, &query)
            .unwrap()
            .remove(0)
            .unwrap()
            .result;
        assert!(!sheet.independent);
        totals.push(sheet.totals.last().copied());
    }
    assert_ne!(totals[0], totals[1]);
}

#[test]
fn invalid_preferences_are_refused_by_name() {
    let nodes = vec![node("n-1", "a", &[]), node("n-2", "b", &[])];
    let state = fixtures::cluster_state(ResourceTable::default(), nodes);
    let problem = totals(&state, "nodeaffinity", preferring(&[(1, "In", "a"), (5, "Near", "b")])).unwrap_err();
    assert_eq!(problem.code.name(), "PREFERRED_TERM_INVALID");
    assert!(problem.field.ends_with("preferred[1]"), "{}", problem.field);
    let ignored = preferring(&[(1, "In", "a"), (0, "Near", "b")]);
    assert_eq!(totals(&state, "nodeaffinity", ignored), Ok(vec![100.0, 0.0]));
    let negative = preferring(&[(-10, "In", "a"), (5, "In", "b")]);
    let problem = totals(&state, "nodeaffinity", negative).unwrap_err();
    assert_eq!(problem.code.name(), "SCORE_OUT_OF_RANGE");
    assert!(problem.message.contains("-200"), "{}", problem.message);
    // A term that does not count is judged by nobody.
    let invalid = preferring(&[(5, "Near", "b")]);
    assert_eq!(totals(&state, "leastrequested", invalid), Ok(vec![0.0, 0.0]));
}

#[test]
fn every_node_with_an_image_counts() {
    let mebibyte = 1 << 20;
    let nodes = vec![
        node("n-1", "a", &[("train:latest", 500 * mebibyte)]),
        node("n-2", "b", &[("train:latest", 900 * mebibyte)]),
        node("n-3", "c", &[]),
        node("n-4", "c", &[("other:1", 900 * mebibyte)]),
    ];
    let mut state = fixtures::cluster_state(ResourceTable::default(), nodes);
    let task = || {
        with_constraints(PodConstraints {
            images: vec!["train".into()],
            ..PodConstraints::default()
        })
    };
    // 500 MiB on half of the nodes: 250 MiB of 23 … 1000 MiB.
    assert_eq!(totals(&state, "imagelocality", task()), Ok(vec![23.0, 23.0, 0.0, 0.0]));
    let changed = node("n-3", "c", &[("train:latest", 500 * mebibyte)]);
    state.put_node(Arc::new(changed), &Arc::from("s"));
    assert_eq!(totals(&state, "imagelocality", task()), Ok(vec![36.0, 36.0, 36.0, 0.0]));
    state.remove_node("n-1");
    state.refresh_ranks();
    assert_eq!(totals(&state, "imagelocality", task()), Ok(vec![59.0, 59.0, 0.0]));
}

#[test]
fn sums_over_pods_count_pipelined_ones_and_the_pod_as_a_whole() {
    let mut state = fixtures::cluster_state(ResourceTable::default(), vec![node("n", "a", &[])]);
    let cpu = |milli: i64| ResourceAmounts::from_iter([(ResourceId::CPU, milli)]);
    let task = |name: &str, status: TaskStatus, own: Option<i64>| {
        TaskRecord::from(TaskFields {
            name: name.into(),
            status,
            node: "n".into(),
            requests: cpu(1_000),
            nonzero_requests: own.map(|own| Box::new(cpu(own))),
            kubernetes_requests: own.map(|own| Box::new(cpu(own))),
            ..TaskFields::default()
        })
    };
    let sums = |state: &ClusterState| {
        let chunk = state.chunks().get(0).unwrap();
        [
            (ResourceId::CPU, PodSum::Requests),
            (ResourceId::CPU, PodSum::NonzeroRequests),
            (ResourceId::MEMORY, PodSum::NonzeroRequests),
        ]
        .map(|(id, sum)| chunk.pod_sums(state, id, sum)[0])
    };
    let source = Arc::from("s");
    let default_memory = 200 << 20;
    state.put_task(task("plain", TaskStatus::Running, None), &source);
    assert_eq!(sums(&state), [1_000, 1_000, default_memory]);
    state.put_task(task("waits", TaskStatus::Pipelined, None), &source);
    assert_eq!(sums(&state), [2_000, 2_000, 2 * default_memory]);
    state.put_task(task("whole", TaskStatus::Releasing, Some(5_000)), &source);
    assert_eq!(sums(&state), [7_000, 7_000, 2 * default_memory]);
    state.put_task(task("done", TaskStatus::Succeeded, Some(5_000)), &source);
    assert_eq!(sums(&state), [7_000, 7_000, 2 * default_memory]);
    state.remove_task("whole");
    state.remove_task("waits");
    assert_eq!(sums(&state), [1_000, 1_000, default_memory]);
    assert!(!state.node(0).unwrap().usage.is_empty());
    state.remove_task("plain");
    assert!(state.node(0).unwrap().usage.is_empty());
}

#[test]
fn parts_of_all_candidates_are_added_after_the_scores_of_all_plugins() {
    let nodes = (1..40_i64).map(|number| NodeRecord {
        allocatable: ResourceAmounts::from_iter([(ResourceId::CPU, 7_000 * number), (ResourceId::MEMORY, 9 << 30)]),
        unattributed_used: Some(ResourceAmounts::from_iter([(ResourceId::CPU, 333 * number)])),
        ..node(&format!("n-{number:02}"), "a", &[])
    });
    let state = fixtures::cluster_state(ResourceTable::default(), nodes.collect());
    let plugins = "{name: nodeorder}, {name: binpack}, {name: resource-strategy-fit}";
    let policy = fixtures::policy(plugins, Compatibility::UPSTREAM).policy;
    let task = fixtures::task(ResourceAmounts::from_iter([(ResourceId::CPU, 1_100)]), &[]);
    let query = fixtures::score_query(fixtures::node_query(state.resources(), vec![task]));
    let result = &decide::score(&state, &policy, &query)
        .unwrap()
        .remove(0)
        .unwrap()
        .result;
    let names: Vec<&str> = result.parts.iter().map(|part| part.part).collect();
    let of_batch = ["leastrequested", "balancedresource", "nodeaffinity", "tainttoleration"];
    let own = std::iter::once("imagelocality").chain(of_batch);
    assert_eq!(names, own.chain(["", "rsf"]).collect::<Vec<_>>());
    let mut differing = 0;
    for (at, total) in result.totals.iter().enumerate() {
        let part = |number: usize| result.parts[number].scores[at];
        let batch = part(1) + part(2) + part(3) + part(4);
        assert_eq!(total.to_bits(), (part(0) + part(5) + part(6) + batch).to_bits());
        let plugin_by_plugin: f64 = part(0) + batch + part(5) + part(6);
        differing += usize::from(plugin_by_plugin.to_bits() != total.to_bits());
    }
    assert!(differing > 0, "the order of the sum shows in some node");
}

#[test]
fn weights_are_integers_that_do_not_wrap() {
    let codes = |weight: &str, compatibility| -> Result<Vec<ErrorCode>, Vec<ErrorCode>> {
        let document = format!(
            "actions: allocate\ntiers: [{{plugins: [{{name: nodeorder, arguments: {{leastrequested.weight: {weight}}}}}]}}]\n"
        );
        let options = CompileOptions {
            compatibility,
            ..CompileOptions::default()
        };
        let all = |report: &DiagnosticReport| report.diagnostics.iter().map(|own| own.code).collect();
        compile(&document, &options)
            .map(|own| all(&own.report))
            .map_err(|report| all(&report))
    };
    for compatibility in [Compatibility::Corrected, Compatibility::UPSTREAM] {
        assert_eq!(codes("7", compatibility), Ok(Vec::new()));
        for ignored in ["2.0", "\"2\"", "true", "-3"] {
            assert_eq!(
                codes(ignored, compatibility),
                Ok(vec![ErrorCode::ArgumentIgnored]),
                "{ignored}"
            );
        }
    }
    let largest = (1_i64 << 43).to_string();
    assert_eq!(codes(&largest, Compatibility::Corrected), Ok(Vec::new()));
    for weight in [((1_i64 << 43) + 1).to_string(), i64::MAX.to_string()] {
        assert_eq!(
            codes(&weight, Compatibility::Corrected),
            Err(vec![ErrorCode::ArgumentRange])
        );
        assert!(codes(&weight, Compatibility::UPSTREAM).is_ok());
    }
}
