//! Scores of nodes for each task, over gRPC: the parts that the reference computes node by node, those that it computes for
//! all candidates together, and the sum.

use std::collections::BTreeMap;

use pumice::server::pb;
use serde_json::Value;

use super::cluster::{self, members, text};
use super::statements::task_key;
use super::{VectorDifferences, VectorHarness, VectorVerdict};
use super::{pod_cluster, predicates};
use crate::support::wire::BlockingClients;

/// Part that the reference computes node by node; all others are computed for all candidates together.
const BY_NODE: [&str; 5] = [
    "imagelocality",
    "leastrequested",
    "mostrequested",
    "balancedresource",
    "nodeaffinity",
];

/// Scores by node.
type Scores = BTreeMap<String, f64>;

/// Judges one case.
pub(crate) fn check(bench: &mut VectorHarness, case: &Value) -> VectorVerdict {
    let mut differences = VectorDifferences::default();
    let wire = bench.wire().clone();
    // Only there the reference's counts of images depend on the time of each report.
    let images_differ = case["cluster"]["nodePasses"].as_i64() == Some(1);
    if images_differ {
        bench.skip("counts of images at the first report of each node");
    }
    let ask = |against: pb::EvaluationRef, differences: &mut VectorDifferences| -> Result<(), String> {
        let expected = members(&case["expect"]["tasks"]);
        let items = scores(&wire, against, case, expected)?;
        differences.same("number of tasks", &expected.len(), &items.len());
        for (expected, item) in expected.iter().zip(items) {
            compare(differences, case, expected, &item, images_differ);
        }
        Ok(())
    };
    let answered = if members(&case["request"]["ops"]).is_empty() {
        let document = cluster::document(case, &case["policy"]["tiers"].to_string());
        let against = cluster::inline_ref(pod_cluster::cluster(case), document);
        ask(against, &mut differences)
    } else {
        predicates::in_session(&wire, case, &mut differences, ask)
    };
    if let Err(problem) = answered {
        differences.differ("score", "answered", &problem);
    }
    differences.verdict()
}

/// Scores of the tasks of a case.
fn scores(
    wire: &BlockingClients,
    against: pb::EvaluationRef,
    case: &Value,
    expected: &[Value],
) -> Result<Vec<pb::ScoreItem>, String> {
    let tasks = expected.iter().map(|task| pb::Task {
        name: task_key(&text(&task["task"])),
        ..pb::Task::default()
    });
    let candidates = case["request"].get("candidates").map(|names| pb::NodeSet {
        names: members(names).iter().map(text).collect(),
        ..pb::NodeSet::default()
    });
    let reply = wire.score(pb::ScoreRequest {
        against: Some(against),
        tasks: tasks.collect(),
        candidates,
        resource_fit: pb::ResourceFit::None.into(),
        with_parts: true,
        ..pb::ScoreRequest::default()
    });
    let reply = reply.map_err(|status| status.to_string())?;
    Ok(reply.result.unwrap_or_default().items)
}

fn compare(
    differences: &mut VectorDifferences,
    case: &Value,
    expected: &Value,
    item: &pb::ScoreItem,
    images_differ: bool,
) {
    let task = text(&expected["task"]);
    let is_refused = members(&expected["nodes"])
        .iter()
        .any(|node| node.get("error").is_some());
    if expected["batch"].get("error").is_some() || is_refused {
        let code = item.problem.as_ref().map(|problem| problem.reason.as_str());
        let named = matches!(code, Some("PREFERRED_TERM_INVALID" | "SCORE_OUT_OF_RANGE"));
        return differences.same(&format!("{task}: refused by name, {code:?}"), &true, &named);
    }
    differences.same(&format!("{task}: problem"), &None, &item.problem);
    let names = item.nodes.clone().unwrap_or_default().names;
    let by_name = |scores: &[f64]| -> Scores { names.iter().cloned().zip(scores.iter().copied()).collect() };
    let totals = by_name(&item.totals);
    let mut by_node = Scores::new();
    let mut batch = Scores::new();
    for part in &item.parts {
        let by_itself =
            BY_NODE.contains(&part.part.as_str()) && !cluster::followed(case).rules().scores_candidates_together;
        let sum = if part.part == BY_NODE[0] || by_itself || part.plugin != "nodeorder" {
            &mut by_node
        } else {
            &mut batch
        };
        for (node, score) in by_name(&part.scores) {
            *sum.entry(node).or_insert(0.0) += score;
        }
    }
    let at = |scores: &Scores, node: &str| scores.get(node).copied().unwrap_or(0.0);
    for (node, score) in numbers(&expected["batch"]) {
        differences.same_float(&format!("{task} on {node}: batch"), score, at(&batch, &node));
    }
    if images_differ {
        return;
    }
    let mut expected_totals = numbers(&expected["total"]);
    if !cluster::followed(case).rules().scores_candidates_together {
        // Such a release writes 0 for nodes that are no candidates.
        expected_totals.retain(|node, score| *score != 0.0 || totals.contains_key(node));
    }
    differences.same(&format!("{task}: nodes"), &expected_totals.len(), &totals.len());
    for (node, score) in expected_totals {
        differences.same_float(&format!("{task} on {node}: total"), score, at(&totals, &node));
    }
    for node in members(&expected["nodes"]) {
        let name = text(&node["node"]);
        if let (Some(score), true) = (node["score"].as_f64(), totals.contains_key(&name)) {
            differences.same_float(&format!("{task} on {name}: node by node"), score, at(&by_node, &name));
        }
    }
}

fn numbers(map: &Value) -> Scores {
    let entries = map.as_object().into_iter().flatten();
    entries
        .filter_map(|(node, score)| Some((node.clone(), score.as_f64()?)))
        .collect()
}
