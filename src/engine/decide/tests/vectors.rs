//! The recordings of Volcano's node scores and predicates, asked of the engine itself.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use flate2::read::GzDecoder;
use serde_json::Value as Json;

use super::cluster::{amounts, policy, question, score_question, task, view};
use crate::engine::decide::{self, FilterVerdict, ScorePart, ScoreQuestion, ScoreSheet};
use crate::engine::model::{NodeRecord, ResourceTable, TaskRecord, TaskStatus, View};
use crate::engine::policy::{Compatibility, CompileOptions, Compiled, compile};

pub(super) fn cases(family: &str) -> Vec<Json> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/vectors/{family}.json.gz"));
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
pub(super) struct Asked {
    view: View,
    compiled: Compiled,
    question: ScoreQuestion,
    pub(super) sheet: Arc<ScoreSheet>,
    pub(super) verdict: Arc<FilterVerdict>,
}

/// What one plugin answers for itself.
pub(super) struct Named {
    pub(super) parts: Vec<ScorePart>,
    pub(super) verdict: Arc<FilterVerdict>,
}

impl Asked {
    /// Asks one plugin; `None`: it has no hook here.
    pub(super) fn named(&self, name: &str) -> Option<Named> {
        let mut question = self.question.clone();
        question.question.plugins = vec![name.into()];
        let policy = &self.compiled.policy;
        let sheet = decide::score(&self.view, policy, &question).ok()?.remove(0).unwrap();
        let verdict = decide::filter(&self.view, policy, &question.question)
            .ok()?
            .remove(0)
            .unwrap();
        Some(Named {
            parts: sheet.answer.parts.clone(),
            verdict: verdict.answer,
        })
    }
}

/// Asks about one task of the case on all its nodes.
pub(super) fn run(case: &Json, request: &Json, compiled: Compiled) -> Asked {
    let mut resources = ResourceTable::default();
    let nodes = cluster(case, &mut resources);
    let requests = amounts(&mut resources, quantities(&request["resources"]));
    let annotations = quantities(&request["annotations"]);
    let mut view = view(resources, nodes);
    for running in running(case, &mut view) {
        view.put_task(running, &Arc::from("test"));
    }
    let question = question(view.resources(), vec![task(requests, &annotations)]);
    let verdict = decide::filter(&view, &compiled.policy, &question).unwrap().remove(0);
    let question = score_question(question);
    let sheet = decide::score(&view, &compiled.policy, &question).unwrap().remove(0);
    Asked {
        view,
        compiled,
        question,
        sheet: sheet.unwrap().answer,
        verdict: verdict.unwrap().answer,
    }
}

/// Tasks that are on nodes.
fn running(case: &Json, view: &mut View) -> Vec<TaskRecord> {
    let mut resources = ResourceTable::clone(view.resources());
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
    view.set_resources(Arc::new(resources));
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

fn check_scores(name: &str, case: &Asked, expected: &Json) {
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
fn check_round_trip(name: &str, case: &Asked) {
    let first = &case.compiled.effective_document;
    let again = compile(first, &CompileOptions::default());
    let again = again.unwrap_or_else(|report| panic!("{name}: {first}\n{:?}", report.findings));
    assert_eq!(again.policy.compatibility(), Compatibility::Upstream, "{name}");
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
                compatibility: Compatibility::Upstream,
                ..CompileOptions::default()
            };
            let report = compile(&document, &options).unwrap_err();
            let fault = report.faults().next().unwrap();
            assert!(fault.code.starts_with("ARGUMENT_"), "{name}: {fault}");
            assert!(
                fault.line > 0 && fault.path.starts_with("tiers[0].plugins[0].arguments"),
                "{name}: {fault}"
            );
        } else {
            let run = run(
                &case,
                &case["request"],
                policy(&plugin_text(&plugin), Compatibility::Upstream),
            );
            assert_eq!(run.view.slots() as usize, run.sheet.nodes.len(), "{name}");
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
