//! Family tiers with stub plugins: each plugin's result is given as data. Results
//! of real plugins are requested over gRPC, each for itself.

use std::cell::RefCell;
use std::collections::BTreeMap;

use pumice::server::pb;
use serde_json::Value;

use super::cluster::{self, members};
use super::query::{self, TaskQuery};
use super::tier_reductions::{self as reduce, NodeRejectionKind};
use super::tiers::{compare_totals, tiers_query};
use super::{VectorDifferences, VectorHarness, VectorVerdict};

/// Real plugins with scores or predicates, among those that recordings use.
const SERVED: [&str; 2] = ["resource-strategy-fit", "binpack"];

/// Plugin of the policy, as the reductions see it.
struct StubPlugin<'a> {
    name: String,
    /// Switches of the plugin.
    entry: &'a Value,
    /// Results of the plugin; `None`: a real plugin.
    stub_results: Option<&'a Value>,
}

impl StubPlugin<'_> {
    /// True if the plugin is switched on for a hook.
    fn is_on(&self, switch: &str) -> bool {
        self.entry[switch].as_bool().unwrap_or(true)
    }

    /// True if this is a real plugin with scores and predicates that is switched on for a hook.
    fn is_real(&self, switch: &str) -> bool {
        self.stub_results.is_none() && self.is_on(switch) && SERVED.contains(&&*self.name)
    }

    /// Result of the plugin for a hook; `None`: it has no such hook, or is switched off.
    fn stub_result(&self, switch: &str, hook: &str) -> Option<&Value> {
        self.stub_results?.get(hook).filter(|_| self.is_on(switch))
    }
}

fn plugins(policy: &Value) -> Vec<StubPlugin<'_>> {
    let entries = members(&policy["tiers"])
        .iter()
        .flat_map(|tier| members(&tier["plugins"]));
    let results = |name: &str| members(&policy["stubs"]).iter().find(|stub| stub["name"] == name);
    entries
        .map(|entry| {
            let name = cluster::text(&entry["name"]);
            StubPlugin {
                stub_results: results(&name).map(|stub| &stub["answers"]),
                name,
                entry,
            }
        })
        .collect()
}

/// Judges one case.
pub(crate) fn check(bench: &VectorHarness, case: &Value) -> VectorVerdict {
    let mut differences = VectorDifferences::default();
    let plugins = plugins(&case["policy"]);
    if case["request"]["kind"] == "nodeOrder" {
        node_order(bench, &mut differences, case, &plugins);
    } else {
        predicate(bench, &mut differences, case, &plugins);
    }
    differences.verdict()
}

/// Request about one real plugin.
fn plugin_query(case: &Value, plugin: &StubPlugin<'_>) -> TaskQuery {
    TaskQuery {
        plugins: vec![plugin.name.clone()],
        ..tiers_query(case)
    }
}

/// Scores of one real plugin by node, for a hook that is switched on.
fn real_scores(bench: &VectorHarness, case: &Value, plugin: &StubPlugin<'_>) -> BTreeMap<String, f64> {
    query::score(bench.wire(), &plugin_query(case, plugin)).unwrap().totals
}

/// Score of a node by a stub's node order.
fn stub_score(result: &Value) -> Result<f64, String> {
    match result.get("error") {
        Some(error) => Err(cluster::text(error)),
        None => Ok(result.as_f64().unwrap_or(0.0)),
    }
}

fn batch_result(result: &Value) -> Result<BTreeMap<String, f64>, String> {
    if let Some(error) = result.get("error").and_then(Value::as_str) {
        return Err(error.to_owned());
    }
    let nodes = result.as_object().into_iter().flatten();
    Ok(nodes
        .map(|(node, score)| (node.clone(), score.as_f64().unwrap_or(0.0)))
        .collect())
}

fn node_order(bench: &VectorHarness, differences: &mut VectorDifferences, case: &Value, plugins: &[StubPlugin<'_>]) {
    const SWITCH: &str = "enableNodeOrder";
    let expect = &case["expect"];
    let real: BTreeMap<&str, BTreeMap<String, f64>> = plugins
        .iter()
        .filter(|plugin| plugin.is_real(SWITCH))
        .map(|plugin| (&*plugin.name, real_scores(bench, case, plugin)))
        .collect();
    let score = |node: &str| {
        let results = plugins.iter().filter_map(|plugin| match plugin.stub_results {
            Some(_) => plugin
                .stub_result(SWITCH, "nodeOrder")
                .map(|nodes| stub_score(&nodes[node])),
            None if !plugin.is_real(SWITCH) => None,
            None => real.get(&*plugin.name).map(|scores| Ok(scores[node])),
        });
        reduce::node_order(results)
    };
    let batch = plugins
        .iter()
        .filter_map(|plugin| plugin.stub_result(SWITCH, "batchNodeOrder"));
    let batch = reduce::batch_node_order(batch.map(batch_result));
    compare_batch(differences, &expect["batch"], &batch);
    let nodes: Vec<String> = members(&case["cluster"]["nodes"])
        .iter()
        .map(|node| cluster::text(&node["name"]))
        .collect();
    for node in members(&expect["nodes"]) {
        let name = cluster::text(&node["node"]);
        match (node["score"].as_f64(), score(&name)) {
            (Some(expected), Ok(got)) => differences.same_float(&name, expected, got),
            (None, Err(_)) => {}
            (expected, got) => differences.differ(&name, &expected, &got),
        }
    }
    let totals = reduce::prioritize(
        nodes.into_iter().map(|node| {
            let score = score(&node);
            (node, score)
        }),
        &batch,
    );
    compare_totals(differences, expect, &totals);
    let best: Vec<String> = members(&expect["best"]).iter().map(cluster::text).collect();
    differences.same("best by reduction", &best, &reduce::best(&totals));
    let asked = RefCell::new(Vec::new());
    let picks = plugins
        .iter()
        .filter_map(|plugin| Some((&plugin.name, plugin.stub_result("enableBestNode", "bestNode")?)));
    let picked = reduce::best_node(picks.map(|(name, pick)| {
        asked.borrow_mut().push(name.clone());
        pick["node"].as_str()
    }));
    differences.same("best node", &expect["best_node_fn"].as_str(), &picked);
    differences.same(
        "asked for the best node",
        &texts(&expect["best_node_asked"]),
        &asked.into_inner(),
    );
}

fn texts(list: &Value) -> Vec<String> {
    members(list).iter().map(cluster::text).collect()
}

fn compare_batch(differences: &mut VectorDifferences, expect: &Value, batch: &Result<BTreeMap<String, f64>, String>) {
    match batch {
        Err(_) => differences.same("batch fails", &true, &expect["error"].is_string()),
        Ok(scores) => {
            let expected = batch_result(expect);
            differences.same("batch", &expected, &Ok(scores.clone()));
        }
    }
}

/// Rejection of a node, and its meaning for actions.
#[derive(Clone, Debug, PartialEq)]
struct StubRejection {
    text: String,
    class: NodeRejectionKind,
}

fn stub_rejection(result: &Value, task: &str, node: &str) -> Option<StubRejection> {
    let reason = result["reason"].as_str()?;
    let class = match result["code"].as_str() {
        None => {
            return Some(StubRejection {
                text: reason.to_owned(),
                class: NodeRejectionKind::NoStatus,
            });
        }
        Some("Success") => NodeRejectionKind::Success,
        Some("Error") => NodeRejectionKind::Error,
        Some("Unschedulable") => NodeRejectionKind::Unschedulable,
        Some("UnschedulableAndUnresolvable") => NodeRejectionKind::UnschedulableAndUnresolvable,
        Some("Wait") => NodeRejectionKind::Wait,
        Some("Skip") => NodeRejectionKind::Skip,
        Some(other) => panic!("a recording has the unknown status code {other:?}"),
    };
    Some(StubRejection {
        text: format!("task {task} on node {node} fit failed: {reason}"),
        class,
    })
}

fn predicate(bench: &VectorHarness, differences: &mut VectorDifferences, case: &Value, plugins: &[StubPlugin<'_>]) {
    const SWITCH: &str = "enablePredicate";
    let expect = &case["expect"];
    let asked = RefCell::new(Vec::new());
    let checks = plugins
        .iter()
        .filter_map(|plugin| Some((&plugin.name, plugin.stub_result(SWITCH, "prePredicate")?)));
    let before = reduce::pre_predicate(checks.map(|(name, check)| {
        asked.borrow_mut().push(name.clone());
        check["error"].as_str().map_or(Ok(()), |error| Err(error.to_owned()))
    }));
    differences.same("before predicates", &expect["pre"].as_str(), &before.err().as_deref());
    differences.same("asked before predicates", &texts(&expect["pre_asked"]), &asked.take());
    let task = cluster::key(&case["request"]["task"]["namespace"], &case["request"]["task"]["name"]);
    let real: BTreeMap<&str, query::FilteredNodes> = plugins
        .iter()
        .filter(|plugin| plugin.is_real(SWITCH))
        .map(|plugin| {
            (
                &*plugin.name,
                query::filter(bench.wire(), &plugin_query(case, plugin)).unwrap(),
            )
        })
        .collect();
    for node in members(&expect["nodes"]) {
        let name = cluster::text(&node["node"]);
        let results = plugins.iter().filter_map(|plugin| match plugin.stub_results {
            Some(_) => {
                let result = plugin.stub_result(SWITCH, "predicate")?;
                asked.borrow_mut().push(plugin.name.clone());
                Some(stub_rejection(&result[&name], &task, &name))
            }
            None if !plugin.is_real(SWITCH) => None,
            None => real.get(&*plugin.name).map(|fits| real_rejection(fits, &task, &name)),
        });
        let rejection = reduce::predicate(results);
        let (text, class) = (
            rejection.as_ref().map(|no| &*no.text),
            rejection.as_ref().map(|no| no.class),
        );
        differences.same(
            &format!("{name} fit"),
            &node["fit"].as_bool(),
            &Some(rejection.is_none()),
        );
        differences.same(&format!("{name} error"), &node["error"].as_str(), &text);
        differences.same(&format!("{name} asked"), &texts(&node["asked"]), &asked.take());
        let allocate = Some(reduce::allocate_fit(class));
        differences.same(
            &format!("{name} for allocate"),
            &node["allocate_fit"].as_bool(),
            &allocate,
        );
        let preempt = Some(reduce::preempt_fit(class));
        differences.same(&format!("{name} for preempt"), &node["preempt_fit"].as_bool(), &preempt);
    }
}

fn real_rejection(fits: &query::FilteredNodes, task: &str, node: &str) -> Option<StubRejection> {
    let rejection = fits.rejected.get(node)?.first()?;
    let class = match rejection.resolution {
        pb::Resolution::Unschedulable => NodeRejectionKind::Unschedulable,
        pb::Resolution::Unresolvable | pb::Resolution::Unspecified => NodeRejectionKind::UnschedulableAndUnresolvable,
    };
    Some(StubRejection {
        text: format!("task {task} on node {node} fit failed: {}", rejection.message),
        class,
    })
}
