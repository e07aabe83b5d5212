//! Family tiers with stub plugins, at the engine's reduction functions: each plugin's answer is given as data. What
//! real plugins answer is asked over gRPC, each for itself.

use std::cell::RefCell;
use std::collections::BTreeMap;

use pumice::engine::decide::reduce::{self, Refusal};
use pumice::server::pb;
use serde_json::Value;

use super::cluster::{self, members};
use super::question::{self, Asked};
use super::tiers::{asked, compare_totals};
use super::{Bench, Differences, Verdict};

/// Real plugins that score or have predicates, of those that recordings use.
const SERVED: [&str; 2] = ["resource-strategy-fit", "binpack"];

/// A plugin of the policy, as the reductions see it.
struct Plugin<'a> {
    name: String,
    /// Its switches.
    entry: &'a Value,
    /// Its answers; `None`: a real plugin.
    answers: Option<&'a Value>,
}

impl Plugin<'_> {
    /// Whether it is switched on for a hook.
    fn is_on(&self, switch: &str) -> bool {
        self.entry[switch].as_bool().unwrap_or(true)
    }

    /// Whether it is a real plugin with scores and predicates, switched on for a hook.
    fn is_real(&self, switch: &str) -> bool {
        self.answers.is_none() && self.is_on(switch) && SERVED.contains(&&*self.name)
    }

    /// Its answer to a hook; `None`: it has no such hook, or is switched off.
    fn answer(&self, switch: &str, hook: &str) -> Option<&Value> {
        self.answers?.get(hook).filter(|_| self.is_on(switch))
    }
}

fn plugins(policy: &Value) -> Vec<Plugin<'_>> {
    let entries = members(&policy["tiers"])
        .iter()
        .flat_map(|tier| members(&tier["plugins"]));
    let answers = |name: &str| members(&policy["stubs"]).iter().find(|stub| stub["name"] == name);
    entries
        .map(|entry| {
            let name = cluster::text(&entry["name"]);
            Plugin {
                answers: answers(&name).map(|stub| &stub["answers"]),
                name,
                entry,
            }
        })
        .collect()
}

/// Judges one case.
pub(crate) fn check(bench: &Bench, case: &Value) -> Verdict {
    let mut differences = Differences::default();
    let plugins = plugins(&case["policy"]);
    if case["request"]["kind"] == "nodeOrder" {
        node_order(bench, &mut differences, case, &plugins);
    } else {
        predicate(bench, &mut differences, case, &plugins);
    }
    differences.verdict()
}

/// What is asked of one real plugin.
fn named(case: &Value, plugin: &Plugin<'_>) -> Asked {
    Asked {
        plugins: vec![plugin.name.clone()],
        ..asked(case)
    }
}

/// Scores of one real plugin by node, for a hook that is switched on.
fn real_scores(bench: &Bench, case: &Value, plugin: &Plugin<'_>) -> BTreeMap<String, f64> {
    question::score(bench.wire(), &named(case, plugin)).unwrap().totals
}

/// A node's answer of a stub's node order.
fn stub_score(answer: &Value) -> Result<f64, String> {
    match answer.get("error") {
        Some(error) => Err(cluster::text(error)),
        None => Ok(answer.as_f64().unwrap_or(0.0)),
    }
}

fn batch_answer(answer: &Value) -> Result<BTreeMap<String, f64>, String> {
    if let Some(error) = answer.get("error").and_then(Value::as_str) {
        return Err(error.to_owned());
    }
    let nodes = answer.as_object().into_iter().flatten();
    Ok(nodes
        .map(|(node, score)| (node.clone(), score.as_f64().unwrap_or(0.0)))
        .collect())
}

fn node_order(bench: &Bench, differences: &mut Differences, case: &Value, plugins: &[Plugin<'_>]) {
    const SWITCH: &str = "enableNodeOrder";
    let expect = &case["expect"];
    let real: BTreeMap<&str, BTreeMap<String, f64>> = plugins
        .iter()
        .filter(|plugin| plugin.is_real(SWITCH))
        .map(|plugin| (&*plugin.name, real_scores(bench, case, plugin)))
        .collect();
    let score = |node: &str| {
        let answers = plugins.iter().filter_map(|plugin| match plugin.answers {
            Some(_) => plugin.answer(SWITCH, "nodeOrder").map(|nodes| stub_score(&nodes[node])),
            None if !plugin.is_real(SWITCH) => None,
            None => real.get(&*plugin.name).map(|scores| Ok(scores[node])),
        });
        reduce::node_order(answers)
    };
    let batch = plugins
        .iter()
        .filter_map(|plugin| plugin.answer(SWITCH, "batchNodeOrder"));
    let batch = reduce::batch_node_order(batch.map(batch_answer));
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
        .filter_map(|plugin| Some((&plugin.name, plugin.answer("enableBestNode", "bestNode")?)));
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

fn compare_batch(differences: &mut Differences, expect: &Value, batch: &Result<BTreeMap<String, f64>, String>) {
    match batch {
        Err(_) => differences.same("batch fails", &true, &expect["error"].is_string()),
        Ok(scores) => {
            let expected = batch_answer(expect);
            differences.same("batch", &expected, &Ok(scores.clone()));
        }
    }
}

/// Why a node was refused, and how actions see it.
#[derive(Clone, Debug, PartialEq)]
struct No {
    text: String,
    class: Refusal,
}

fn stub_refusal(answer: &Value, task: &str, node: &str) -> Option<No> {
    let reason = answer["reason"].as_str()?;
    let class = match answer["code"].as_str() {
        None => {
            return Some(No {
                text: reason.to_owned(),
                class: Refusal::Plain,
            });
        }
        Some("Success") => Refusal::Success,
        Some("Error") => Refusal::Error,
        Some("Unschedulable") => Refusal::Unschedulable,
        Some("UnschedulableAndUnresolvable") => Refusal::UnschedulableAndUnresolvable,
        Some("Wait") => Refusal::Wait,
        Some("Skip") => Refusal::Skip,
        Some(other) => panic!("a recording has the unknown status code {other:?}"),
    };
    Some(No {
        text: format!("task {task} on node {node} fit failed: {reason}"),
        class,
    })
}

fn predicate(bench: &Bench, differences: &mut Differences, case: &Value, plugins: &[Plugin<'_>]) {
    const SWITCH: &str = "enablePredicate";
    let expect = &case["expect"];
    let asked = RefCell::new(Vec::new());
    let checks = plugins
        .iter()
        .filter_map(|plugin| Some((&plugin.name, plugin.answer(SWITCH, "prePredicate")?)));
    let before = reduce::pre_predicate(checks.map(|(name, check)| {
        asked.borrow_mut().push(name.clone());
        check["error"].as_str().map_or(Ok(()), |error| Err(error.to_owned()))
    }));
    differences.same("before predicates", &expect["pre"].as_str(), &before.err().as_deref());
    differences.same("asked before predicates", &texts(&expect["pre_asked"]), &asked.take());
    let task = cluster::key(&case["request"]["task"]["namespace"], &case["request"]["task"]["name"]);
    let real: BTreeMap<&str, question::Fits> = plugins
        .iter()
        .filter(|plugin| plugin.is_real(SWITCH))
        .map(|plugin| {
            (
                &*plugin.name,
                question::filter(bench.wire(), &named(case, plugin)).unwrap(),
            )
        })
        .collect();
    for node in members(&expect["nodes"]) {
        let name = cluster::text(&node["node"]);
        let answers = plugins.iter().filter_map(|plugin| match plugin.answers {
            Some(_) => {
                let answer = plugin.answer(SWITCH, "predicate")?;
                asked.borrow_mut().push(plugin.name.clone());
                Some(stub_refusal(&answer[&name], &task, &name))
            }
            None if !plugin.is_real(SWITCH) => None,
            None => real.get(&*plugin.name).map(|fits| real_refusal(fits, &task, &name)),
        });
        let refusal = reduce::predicate(answers);
        let (text, class) = (
            refusal.as_ref().map(|no| &*no.text),
            refusal.as_ref().map(|no| no.class),
        );
        differences.same(&format!("{name} fit"), &node["fit"].as_bool(), &Some(refusal.is_none()));
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

fn real_refusal(fits: &question::Fits, task: &str, node: &str) -> Option<No> {
    let refusal = fits.refused.get(node)?.first()?;
    let class = match refusal.resolution {
        pb::Resolution::Unschedulable => Refusal::Unschedulable,
        pb::Resolution::Unresolvable | pb::Resolution::Unspecified => Refusal::UnschedulableAndUnresolvable,
    };
    Some(No {
        text: format!("task {task} on node {node} fit failed: {}", refusal.message),
        class,
    })
}
