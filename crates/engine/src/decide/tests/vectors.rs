//! The recordings of Volcano's node scores and predicates, asked of the engine itself.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use flate2::read::GzDecoder;
use serde_json::Value as Json;

use super::fixtures::{amounts, cluster_state, node_query, policy, score_query, task};
use crate::decide::{self, FilterVerdict, ScoreSheet};
use crate::model::{ClusterState, NodeRecord, ResourceTable, TaskRecord, TaskStatus};
use crate::policy::{Compatibility, CompileOptions, CompiledPolicy, compile};

pub(super) fn cases(family: &str) -> Vec<Json> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../tests/vectors/{family}.json.gz"));
    let mut text = String::new();
    let file = std::fs::File::open(path).unwrap();
    GzDecoder::new(file).read_to_string(&mut text).unwrap();
    let Json::Object(mut whole) = serde_json::from_str(&text).unwrap() else {
        panic!("no object")
    };
    whole.remove("cases").unwrap().as_array().unwrap().clone()
}

fn quantities(map: &Json) -> Vec<(&str, &str)> {
    let entries = map.as_object().into_iter().flatten();
    entries
        .map(|(name, quantity)| (name.as_str(), quantity.as_str().unwrap()))
        .collect()
}

fn cluster(case: &Json, resources: &mut ResourceTable) -> Vec<NodeRecord> {
    let nodes = case["cluster"]["nodes"].as_array().unwrap();
    nodes
        .iter()
        .map(|node| NodeRecord {
            name: node["name"].as_str().unwrap().into(),
            allocatable: amounts(resources, quantities(&node["allocatable"])),
            unattributed_used: node.get("used").map(|used| amounts(resources, quantities(used))),
            ..NodeRecord::default()
        })
        .collect()
}

/// A case, asked of the engine.
pub(super) struct VectorRun {
    state: ClusterState,
    compiled: CompiledPolicy,
    pub(super) sheet: Arc<ScoreSheet>,
    pub(super) verdict: Arc<FilterVerdict>,
}

/// Asks about one task of the case on all its nodes.
pub(super) fn run(case: &Json, request: &Json, compiled: CompiledPolicy) -> VectorRun {
    let mut resources = ResourceTable::default();
    let nodes = cluster(case, &mut resources);
    let requests = amounts(&mut resources, quantities(&request["resources"]));
    let annotations = quantities(&request["annotations"]);
    let mut cluster_state = cluster_state(resources, nodes);
    for running in running(case, &mut cluster_state) {
        cluster_state.put_task(running, &Arc::from("test"));
    }
    let query = node_query(cluster_state.resources(), vec![task(requests, &annotations)]);
    let verdict = decide::filter(&cluster_state, &compiled.policy, &query)
        .unwrap()
        .remove(0);
    let sheet = decide::score(&cluster_state, &compiled.policy, &score_query(query))
        .unwrap()
        .remove(0);
    VectorRun {
        state: cluster_state,
        compiled,
        sheet: sheet.unwrap().result,
        verdict: verdict.unwrap().result,
    }
}

/// Tasks that are on nodes.
fn running(case: &Json, cluster_state: &mut ClusterState) -> Vec<TaskRecord> {
    let mut resources = ResourceTable::clone(cluster_state.resources());
    let mut tasks = Vec::new();
    for job in case["cluster"]["jobs"].as_array().into_iter().flatten() {
        for given in job["tasks"].as_array().into_iter().flatten() {
            let status = match given["status"].as_str().unwrap() {
                "Pending" => TaskStatus::Pending,
                "Allocated" => TaskStatus::Allocated,
                "Pipelined" => TaskStatus::Pipelined,
                "Binding" => TaskStatus::Binding,
                "Bound" => TaskStatus::Bound,
                "Running" => TaskStatus::Running,
                "Releasing" => TaskStatus::Releasing,
                "Succeeded" => TaskStatus::Succeeded,
                "Failed" => TaskStatus::Failed,
                _ => TaskStatus::Unknown,
            };
            tasks.push(TaskRecord {
                name: format!("{}/{}", job["namespace"], given["name"]).into(),
                status,
                node: given["node"].as_str().unwrap_or_default().into(),
                ..task(amounts(&mut resources, quantities(&given["request"])), &[])
            });
        }
    }
    cluster_state.set_resources(Arc::new(resources));
    tasks
}

pub(super) fn plugin_text(plugin: &Json) -> String {
    // JSON is YAML's flow style; a space keeps `"a":` from being part of a plain text.
    serde_json::to_string(plugin).unwrap()
}

pub(super) fn number(value: &Json) -> f64 {
    value.as_f64().unwrap()
}

pub(super) fn same(score: f64, expected: &Json) -> bool {
    (score + 0.0).to_bits() == (number(expected) + 0.0).to_bits()
}

fn check_scores(name: &str, case: &VectorRun, expected: &Json) {
    for (i, node) in expected.as_array().unwrap().iter().enumerate() {
        let score = case.sheet.totals[i];
        let variants = node["score_variants"].as_array();
        let fits = variants.map_or_else(
            || same(score, &node["score"]),
            |variants| variants.iter().any(|variant| same(score, variant)),
        );
        assert!(fits, "{name}: {}: {score} for {}", node["node"], node["score"]);
        for part in &case.sheet.parts {
            if let (Some(expected), None) = (node.get(part.part), variants) {
                assert!(same(part.scores[i], expected), "{name}: {} {}", node["node"], part.part);
            }
        }
        let Some(fit) = node.get("fit").and_then(Json::as_bool) else {
            continue;
        };
        let slot = u32::try_from(i).unwrap();
        assert_eq!(case.verdict.fit.contains(&slot), fit, "{name}: {}", node["node"]);
        if !fit {
            let rejection = case
                .verdict
                .rejections
                .iter()
                .find(|r| r.nodes.contains(&slot))
                .unwrap();
            let message = &rejection.reason.message;
            let any = node["reason_any_of"].as_array();
            let expected = any.map_or_else(
                || node["reason"] == **message,
                |any| any.iter().any(|one| one == message),
            );
            assert!(expected, "{name}: {message}");
        }
    }
}

/// The effective document gives the same policy again.
fn check_round_trip(name: &str, case: &VectorRun) {
    let first = &case.compiled.effective_document;
    let again = compile(first, &CompileOptions::default());
    let again = again.unwrap_or_else(|report| panic!("{name}: {first}\n{:?}", report.diagnostics));
    assert_eq!(again.policy.compatibility().name(), "volcano-ed72c7c81", "{name}");
    assert_eq!(again.effective_document, *first, "{name}");
}

fn check_family(family: &str) {
    let mut checked = 0;
    for case in cases(family) {
        let name = format!("{family}: {}", case["name"]);
        let plugin = serde_json::json!({ "name": case["policy"]["plugin"], "arguments": case["policy"]["arguments"] });
        if case["expect"].get("error").is_some() {
            let document = format!("actions: allocate\ntiers: [{{plugins: [{}]}}]", plugin_text(&plugin));
            let options = CompileOptions {
                compatibility: Compatibility::UPSTREAM,
                ..CompileOptions::default()
            };
            let report = compile(&document, &options).unwrap_err();
            let problem = report.errors().next().unwrap();
            assert!(problem.code.name().starts_with("ARGUMENT_"), "{name}: {problem}");
            assert!(
                problem.line > 0 && problem.path.starts_with("tiers[0].plugins[0].arguments"),
                "{name}: {problem}"
            );
        } else {
            let run = run(
                &case,
                &case["request"],
                policy(&plugin_text(&plugin), Compatibility::UPSTREAM),
            );
            assert_eq!(run.state.slots() as usize, run.sheet.nodes.len(), "{name}");
            check_scores(&name, &run, &case["expect"]["nodes"]);
            check_round_trip(&name, &run);
        }
        checked += 1;
    }
    assert!(checked > 100, "{family}");
}

#[test]
fn rsf() {
    check_family("rsf");
}

#[test]
fn sra() {
    check_family("sra");
}

#[test]
fn proportional() {
    check_family("proportional");
}

#[test]
fn binpack() {
    check_family("binpack");
}
