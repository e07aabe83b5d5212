//! Families of filters on pods and nodes: which nodes take each task, with every reason, over gRPC in a session.

use std::collections::BTreeMap;

use pb::session_change::Change;
use pumice::server::pb;
use serde_json::Value;

use super::cluster::{self, members, text};
use super::pod_cluster;
use super::statements::task_key;
use super::{VectorDifferences, VectorHarness, VectorVerdict};
use crate::support::wire::BlockingClients;

/// Status of a node: code and reason.
type NodeStatus = (String, String);

/// Code of the reason with which the reference's cache refuses a node.
const CACHED: &str = "EquivalenceCache";

/// Judges one case.
pub(crate) fn check(bench: &mut VectorHarness, case: &Value) -> VectorVerdict {
    let mut differences = VectorDifferences::default();
    let wire = bench.wire().clone();
    let answered = in_session(&wire, case, &mut differences, |against, differences| {
        compare(&wire, against, case, differences)
    });
    if let Err(problem) = answered {
        differences.differ("call", "answered", &problem);
    }
    differences.verdict()
}

/// Asks about a case in a session of its own, after the operations of the case.
pub(crate) fn in_session(
    wire: &BlockingClients,
    case: &Value,
    differences: &mut VectorDifferences,
    ask: impl FnOnce(pb::EvaluationRef, &mut VectorDifferences) -> Result<(), String>,
) -> Result<(), String> {
    let document = cluster::document(case, &case["policy"]["tiers"].to_string());
    let opened = wire.open_session(pb::OpenSessionRequest {
        against: Some(cluster::inline_ref(pod_cluster::cluster(case), document)),
        ..pb::OpenSessionRequest::default()
    });
    let session = opened.map_err(|status| status.to_string())?.session;
    let answered = apply_operations(wire, &session, case, differences)
        .and_then(|applied| ask(session_ref(&session, applied, Vec::new()), differences));
    drop(wire.close_session(pb::CloseSessionRequest { session }));
    answered
}

/// Applies the operations of a case; returns their number.
fn apply_operations(
    wire: &BlockingClients,
    session: &str,
    case: &Value,
    differences: &mut VectorDifferences,
) -> Result<u64, String> {
    let mut applied = 0;
    for (number, op) in members(&case["request"]["ops"]).iter().enumerate() {
        let result = wire.filter(pb::FilterRequest {
            against: Some(session_ref(session, applied, vec![change(op)])),
            ..pb::FilterRequest::default()
        });
        applied += 1;
        let warnings = match result {
            Ok(response) => {
                response
                    .metadata
                    .unwrap_or_default()
                    .effects
                    .unwrap_or_default()
                    .warnings
            }
            Err(status) => return Err(format!("step {number}: {status}")),
        };
        let expected = case["expect"]["steps"][number]["error"].is_null();
        differences.same(&format!("step {number} applied"), &expected, &warnings.is_empty());
    }
    Ok(applied)
}

fn compare(
    wire: &BlockingClients,
    against: pb::EvaluationRef,
    case: &Value,
    differences: &mut VectorDifferences,
) -> Result<(), String> {
    let expected = members(&case["expect"]["tasks"]);
    let tasks = expected.iter().map(|task| pb::Task {
        name: task_key(&text(&task["task"])),
        ..pb::Task::default()
    });
    let response = wire
        .filter(pb::FilterRequest {
            against: Some(against),
            tasks: tasks.collect(),
            resource_fit: pb::ResourceFit::None.into(),
            ..pb::FilterRequest::default()
        })
        .map_err(|status| status.to_string())?;
    let items = response.result.unwrap_or_default().items;
    for (expected, item) in expected.iter().zip(items) {
        let task = text(&expected["task"]);
        differences.same(&format!("{task} problem"), &None, &item.problem);
        compare_nodes(&task, expected, &item, case, differences);
    }
    Ok(())
}

fn session_ref(session: &str, after: u64, changes: Vec<pb::SessionChange>) -> pb::EvaluationRef {
    pb::EvaluationRef {
        target: Some(pb::evaluation_ref::Target::Session(pb::SessionRef {
            id: session.to_owned(),
            after,
            changes,
        })),
        ..pb::EvaluationRef::default()
    }
}

fn change(op: &Value) -> pb::SessionChange {
    let task = task_key(&text(&op["task"]));
    let placement = pb::TaskPlacement {
        task: task.clone(),
        node: op["node"].as_str().unwrap_or_default().to_owned(),
        card: String::new(),
        devices: Vec::new(),
    };
    let change = match op["op"].as_str().unwrap_or_default() {
        "allocate" => Change::Allocate(placement),
        "pipeline" => Change::Pipeline(placement),
        "evict" => Change::Evict(task),
        other => panic!("a recording has the unknown operation {other:?}"),
    };
    pb::SessionChange { change: Some(change) }
}

/// Compares the verdict on each node.
fn compare_nodes(
    task: &str,
    expected: &Value,
    item: &pb::FilterItem,
    case: &Value,
    differences: &mut VectorDifferences,
) {
    let mut got: BTreeMap<String, Vec<NodeStatus>> = BTreeMap::new();
    for rejection in &item.rejections {
        let reason = rejection.reason.clone().unwrap_or_default();
        let code = match (reason.code.as_str(), reason.resolution()) {
            (CACHED, _) => "Error",
            (_, pb::Resolution::Unschedulable) => "Unschedulable",
            _ => "UnschedulableAndUnresolvable",
        };
        for node in &rejection.nodes.clone().unwrap_or_default().names {
            let status = (code.to_owned(), reason.message.clone());
            got.entry(node.clone()).or_default().push(status);
        }
    }
    if let Some(pre) = expected["pre"].as_str() {
        for node in members(&case["cluster"]["nodes"]) {
            let node = text(&node["name"]);
            let status = ("UnschedulableAndUnresolvable".to_owned(), pre.to_owned());
            differences.same(&format!("{task} on {node}"), &Some(&vec![status]), &got.get(&node));
        }
        return;
    }
    for node in members(&expected["nodes"]) {
        let name = text(&node["node"]);
        let mut statuses = got.remove(&name).unwrap_or_default();
        let mut wanted: Vec<NodeStatus> = members(&node["statuses"])
            .iter()
            .map(|status| (text(&status["code"]), text(&status["reason"])))
            .collect();
        statuses.sort();
        wanted.sort();
        let what = format!("{task} on {name}");
        differences.same(&what, &wanted, &statuses);
        let fits = item.fit.as_ref().is_some_and(|fit| fit.names.contains(&name));
        differences.same(
            &format!("{what} fits"),
            &node["fit"].as_bool().unwrap_or_default(),
            &fits,
        );
        let preempt = statuses.iter().all(|(code, _)| code == "Unschedulable");
        let expected = node["preempt_fit"].as_bool().unwrap_or(true);
        differences.same(&format!("{what} for preemption"), &expected, &preempt);
    }
    differences.same(&format!("{task} on other nodes"), &0, &got.len());
}
