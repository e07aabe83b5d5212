//! Vectors of Volcano's tier reductions for scores and predicates; stub plugins return recorded results.

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::vectors::{VectorRun, cases, number, plugin_text, run, same};
use crate::decide::reduce::{self, NodeRejectionKind};
use crate::policy::{Compatibility, CompileOptions, compile};

/// Plugins of the tiers that are switched on for a hook, in order.
fn switched_on<'c>(case: &'c Json, switch: &str) -> Vec<&'c str> {
    let tiers = case["policy"]["tiers"].as_array().into_iter().flatten();
    let plugins = tiers.flat_map(|tier| tier["plugins"].as_array().into_iter().flatten());
    plugins
        .filter(|plugin| plugin[switch].as_bool() != Some(false))
        .map(|plugin| plugin["name"].as_str().unwrap())
        .collect()
}

/// Result of a stub's hook. `None`: the plugin is not a stub, or lacks the hook.
fn plugin_result<'c>(case: &'c Json, name: &str, hook: &str) -> Option<&'c Json> {
    let stubs = case["policy"]["stubs"].as_array()?;
    stubs.iter().find(|stub| stub["name"] == *name)?["answers"].get(hook)
}

fn text<'c>(json: &'c Json, key: &str) -> Option<&'c str> {
    json.get(key)?.as_str()
}

/// Position of a node in the case's cluster.
fn position(case: &Json, node: &str) -> usize {
    let nodes = case["cluster"]["nodes"].as_array().unwrap();
    nodes.iter().position(|own| own["name"] == *node).unwrap()
}

fn node_order(case: &Json, asked: &VectorRun, node: &str) -> Result<f64, String> {
    let position = position(case, node);
    let plugins = switched_on(case, "enableNodeOrder").into_iter();
    reduce::node_order(plugins.filter_map(|name| {
        if let Some(result) = plugin_result(case, name, "nodeOrder") {
            let result = result.get(node).unwrap_or(&Json::Null);
            return Some(match text(result, "error") {
                Some(error) => Err(error.to_owned()),
                None => Ok(result.as_f64().unwrap_or(0.0)),
            });
        }
        let parts = &asked.run_plugin(name)?.parts;
        Some(Ok(parts.iter().find(|part| part.part.is_empty())?.scores[position]))
    }))
}

fn batch(case: &Json) -> Result<BTreeMap<String, f64>, String> {
    let plugins = switched_on(case, "enableNodeOrder").into_iter();
    let results = plugins.filter_map(|name| plugin_result(case, name, "batchNodeOrder"));
    reduce::batch_node_order(results.map(|result| {
        match text(result, "error") {
            Some(error) => Err(error.to_owned()),
            None => Ok(result
                .as_object()
                .unwrap()
                .iter()
                .map(|(node, score)| (node.clone(), number(score)))
                .collect()),
        }
    }))
}

fn check_scores(name: &str, case: &Json, asked: &VectorRun) {
    let expect = &case["expect"];
    let nodes = expect["nodes"].as_array().unwrap();
    let mut scores = Vec::new();
    for expected in nodes {
        let node = text(expected, "node").unwrap();
        let score = node_order(case, asked, node);
        match &score {
            Ok(score) => assert!(same(*score, &expected["score"]), "{name}: {node} {score}"),
            Err(error) => assert_eq!(expected["error"], *error.as_str(), "{name}: {node}"),
        }
        scores.push((node.to_owned(), score));
    }
    let batch = batch(case);
    match &batch {
        Err(error) => assert_eq!(expect["batch"]["error"], *error.as_str(), "{name}"),
        Ok(batch) => {
            let expected = expect["batch"].as_object().unwrap();
            assert_eq!(batch.len(), expected.len(), "{name}");
            assert!(
                batch.iter().all(|(node, score)| same(*score, &expected[node])),
                "{name}"
            );
        }
    }
    let totals = reduce::prioritize(scores, &batch);
    let expected = expect["prioritized"].as_object().unwrap();
    assert_eq!(totals.len(), expected.len(), "{name}");
    for (node, total) in &totals {
        assert!(same(*total, &expected[node]), "{name}: {node} {total}");
    }
    assert_eq!(serde_json::json!(reduce::best(&totals)), expect["best"], "{name}");
    let stubs_asked = RefCell::new(Vec::new());
    let plugins = switched_on(case, "enableBestNode").into_iter();
    let best = reduce::best_node(plugins.filter_map(|name| {
        let result = plugin_result(case, name, "bestNode")?;
        stubs_asked.borrow_mut().push(name);
        Some(text(result, "node"))
    }));
    assert_eq!(serde_json::json!(best), expect["best_node_fn"], "{name}");
    assert_eq!(
        serde_json::json!(stubs_asked.into_inner()),
        expect["best_node_asked"],
        "{name}"
    );
}

fn rejection_kind(code: Option<&str>) -> NodeRejectionKind {
    match code {
        None => NodeRejectionKind::NoStatus,
        Some("Success") => NodeRejectionKind::Success,
        Some("Error") => NodeRejectionKind::Error,
        Some("Unschedulable") => NodeRejectionKind::Unschedulable,
        Some("UnschedulableAndUnresolvable") => NodeRejectionKind::UnschedulableAndUnresolvable,
        Some("Wait") => NodeRejectionKind::Wait,
        Some("Skip") => NodeRejectionKind::Skip,
        Some(other) => panic!("{other}"),
    }
}

fn check_predicates(name: &str, case: &Json, asked: &VectorRun) {
    let expect = &case["expect"];
    let stubs_asked = RefCell::new(Vec::new());
    let plugins = switched_on(case, "enablePredicate");
    let pre = reduce::pre_predicate(plugins.iter().filter_map(|name| {
        let result = plugin_result(case, name, "prePredicate")?;
        stubs_asked.borrow_mut().push(*name);
        Some(text(result, "error").map_or(Ok(()), Err))
    }));
    assert_eq!(serde_json::json!(pre.err()), expect["pre"], "{name}");
    assert_eq!(serde_json::json!(stubs_asked.take()), expect["pre_asked"], "{name}");
    for expected in expect["nodes"].as_array().unwrap() {
        let node = text(expected, "node").unwrap();
        let slot = u32::try_from(position(case, node)).unwrap();
        let refused = reduce::predicate(plugins.iter().filter_map(|name| {
            if let Some(result) = plugin_result(case, name, "predicate") {
                stubs_asked.borrow_mut().push(*name);
                let result = result.get(node)?;
                return Some(Some((
                    rejection_kind(text(result, "code")),
                    text(result, "reason")?.to_owned(),
                )));
            }
            let verdict = &asked.run_plugin(name)?.verdict;
            let rejection = verdict
                .rejections
                .iter()
                .find(|rejection| rejection.nodes.contains(&slot));
            Some(rejection.map(|rejection| {
                let reason = rejection.reason.message.clone();
                (NodeRejectionKind::UnschedulableAndUnresolvable, reason)
            }))
        }));
        let class = refused.as_ref().map(|(class, _)| *class);
        assert_eq!(expected["fit"], refused.is_none(), "{name}: {node}");
        assert_eq!(expected["allocate_fit"], reduce::allocate_fit(class), "{name}: {node}");
        assert_eq!(expected["preempt_fit"], reduce::preempt_fit(class), "{name}: {node}");
        assert_eq!(
            serde_json::json!(stubs_asked.take()),
            expected["asked"],
            "{name}: {node}"
        );
        if let Some((_, reason)) = refused {
            assert!(text(expected, "error").unwrap().ends_with(&reason), "{name}: {node}");
        }
    }
}

#[test]
fn tiers() {
    let mut checked = 0;
    for case in cases("tiers") {
        let kind = text(&case["request"], "kind").unwrap();
        if !["nodeOrder", "predicate"].contains(&kind) {
            continue;
        }
        checked += 1;
        let name = format!("tiers: {}", case["name"]);
        let document = format!("actions: allocate\ntiers: {}\n", plugin_text(&case["policy"]["tiers"]));
        let options = CompileOptions {
            compatibility: Compatibility::Upstream,
            ..CompileOptions::default()
        };
        let compiled = compile(&document, &options);
        if case["expect"].get("error").is_some() {
            assert!(compiled.is_err(), "{name}");
            continue;
        }
        let compiled = compiled.unwrap_or_else(|report| panic!("{name}: {:?}", report.diagnostics));
        let asked = run(&case, &case["request"]["task"], compiled);
        if kind == "predicate" {
            check_predicates(&name, &case, &asked);
        } else {
            check_scores(&name, &case, &asked);
        }
        if case["policy"].get("stubs").is_none() {
            check_tiers_whole(&name, &case, &asked);
        }
    }
    assert!(checked > 40);
}

/// Checks that the engine's own reduction has the same result without stubs.
fn check_tiers_whole(name: &str, case: &Json, asked: &VectorRun) {
    for expected in case["expect"]["nodes"].as_array().unwrap() {
        let position = position(case, text(expected, "node").unwrap());
        if let Some(score) = expected.get("score") {
            assert!(same(asked.sheet.totals[position], score), "{name}");
        }
        if let Some(fit) = expected.get("fit") {
            let slot = u32::try_from(position).unwrap();
            assert_eq!(*fit, asked.verdict.fit.contains(&slot), "{name}");
        }
    }
}
