//! Families rsf, sra and proportional: resource-strategy-fit over gRPC.

use std::collections::BTreeMap;

use serde_json::Value;

use super::cluster::{self, members};
use super::config;
use super::query::{self, FilteredNodes, NodeScores, QueryError, TaskQuery};
use super::{VectorDifferences, VectorHarness, VectorVerdict};

const PLUGIN: &str = "resource-strategy-fit";

/// Judges one case.
pub(crate) fn check(bench: &mut VectorHarness, case: &Value) -> VectorVerdict {
    let document = cluster::document(case, &cluster::plugin_tiers(PLUGIN, &case["policy"]["arguments"]));
    let mut differences = VectorDifferences::default();
    let asked = TaskQuery {
        evaluation_ref: cluster::inline_ref(cluster::cluster(&case["cluster"]), document.clone()),
        task: cluster::requested_task(&case["request"]),
        plugins: Vec::new(),
    };
    let named = TaskQuery {
        plugins: vec![PLUGIN.to_owned()],
        ..asked.clone()
    };
    let wire = bench.wire();
    let loaded = config::effective(wire, &document);
    if case["expect"].get("error").is_some() {
        compare_rejection(&mut differences, "score", query::score(wire, &asked));
        compare_rejection(&mut differences, "filter", query::filter(wire, &asked));
        compare_rejection(&mut differences, "dry run", loaded);
        return differences.verdict();
    }
    let expected = &case["expect"]["nodes"];
    for (what, asked) in [("", &asked), ("plugins named: ", &named)] {
        match query::score(wire, asked) {
            Ok(scores) => compare_scores(&mut differences, what, expected, &scores),
            Err(problem) => differences.differ(what, "scores", &problem),
        }
        match query::filter(wire, asked) {
            Ok(fits) => compare_fits(&mut differences, what, &case["request"], expected, &fits),
            Err(problem) => differences.differ(what, "a verdict", &problem),
        }
    }
    match loaded {
        Ok(effective) => compare_config(&mut differences, &case["expect"]["config"], &effective),
        Err(problem) => differences.differ("dry run", "accepted", &problem),
    }
    differences.verdict()
}

/// Checks that the policy was rejected, whatever was requested.
fn compare_rejection<T>(differences: &mut VectorDifferences, what: &str, result: Result<T, QueryError>) {
    match result {
        Ok(_) => differences.differ(what, "a refused policy", "an answer"),
        Err(QueryError::PolicyRejected(_)) => {}
        Err(other) => differences.differ(what, "a refused policy", &other),
    }
}

/// Compares a score with the recorded one, or with any of its recorded variants.
pub(crate) fn compare_score(differences: &mut VectorDifferences, what: &str, node: &Value, got: Option<f64>) {
    let Some(got) = got else {
        return differences.differ(what, &node["score"], "no score");
    };
    let variants = members(&node["score_variants"]).iter().filter_map(Value::as_f64);
    if variants.into_iter().any(|seen| seen.to_bits() == got.to_bits()) {
        return;
    }
    match node["score"].as_f64() {
        Some(score) => differences.same_float(what, score, got),
        None => differences.differ(what, &node["score"], &got),
    }
}

fn compare_scores(differences: &mut VectorDifferences, how: &str, expected: &Value, scores: &NodeScores) {
    let names = |node: &Value| cluster::text(&node["node"]);
    let mut nodes: Vec<String> = members(expected).iter().map(names).collect();
    nodes.sort();
    differences.same(
        &format!("{how}nodes scored"),
        &nodes,
        &scores.totals.keys().cloned().collect(),
    );
    for node in members(expected) {
        let name = names(node);
        let what = format!("{how}{name} score");
        compare_score(differences, &what, node, scores.totals.get(&name).copied());
        for part in ["rsf", "sra"] {
            let what = format!("{how}{name} {part}");
            match (node[part].as_f64(), scores.part(PLUGIN, part, &name)) {
                (Some(expected), Some(got)) => differences.same_float(&what, expected, got),
                (Some(expected), None) => differences.differ(&what, &expected, "no such part"),
                // With variants, the part varies as the sum does.
                (None, Some(_)) if node.get("score_variants").is_some() => {}
                (None, Some(got)) => differences.same_float(&what, 0.0, got),
                (None, None) => {}
            }
        }
    }
}

fn compare_fits(
    differences: &mut VectorDifferences,
    how: &str,
    request: &Value,
    expected: &Value,
    fits: &FilteredNodes,
) {
    for node in members(expected) {
        let name = cluster::text(&node["node"]);
        let (fit, rejections) = (fits.fit.contains(&name), fits.rejected.get(&name));
        differences.same(&format!("{how}{name} fit"), &node["fit"].as_bool(), &Some(fit));
        differences.same(&format!("{how}{name} has a rejection"), &!fit, &rejections.is_some());
        let Some([rejection]) = rejections.map(Vec::as_slice) else {
            if let Some(rejections) = rejections {
                differences.differ(&format!("{how}{name} rejections"), "one", rejections);
            }
            continue;
        };
        let any = members(&node["reason_any_of"]);
        let what = format!("{how}{name} reason");
        if !any.iter().any(|reason| *reason == *rejection.message) {
            differences.same(&what, &node["reason"].as_str(), &Some(&*rejection.message));
            let task = cluster::key(&request["namespace"], &request["name"]);
            let error = format!("task {task} on node {name} fit failed: {}", rejection.message);
            differences.same(&format!("{what}, in full"), &node["error"].as_str(), &Some(&*error));
        }
        differences.same(&what, PLUGIN, &rejection.plugin);
        let class = pumice::server::pb::Resolution::Unresolvable;
        differences.same(&what, &class, &rejection.resolution);
    }
}

fn compare_config(differences: &mut VectorDifferences, expected: &Value, effective: &Value) {
    let arguments = config::arguments(effective, PLUGIN);
    differences.same(
        "resourceStrategyFitWeight",
        &expected["resourceStrategyFitWeight"].as_i64(),
        &arguments["resourceStrategyFitWeight"].as_i64(),
    );
    let table = |map: &Value| -> BTreeMap<String, (Option<String>, Option<i64>)> {
        let entries = map.as_object().into_iter().flatten();
        entries
            .map(|(name, entry)| {
                let kind = entry["type"].as_str().map(str::to_owned);
                (name.clone(), (kind, entry["weight"].as_i64()))
            })
            .collect()
    };
    differences.same(
        "resources",
        &table(&expected["resources"]),
        &table(&arguments["resources"]),
    );
    differences.same(
        "sra",
        &recorded_sra(&expected["sra"]),
        &effective_sra(&arguments["sra"]),
    );
    differences.same(
        "proportional",
        &recorded_ratios(&expected["proportional"]),
        &effective_ratios(&arguments["proportional"]),
    );
}

/// Weight of sra and of its resources.
type SraWeights = Option<(Option<i64>, BTreeMap<String, Option<i64>>)>;

fn weights(map: &Value) -> BTreeMap<String, Option<i64>> {
    let entries = map.as_object().into_iter().flatten();
    entries.map(|(name, weight)| (name.clone(), weight.as_i64())).collect()
}

fn recorded_sra(sra: &Value) -> SraWeights {
    sra.as_object()?;
    Some((sra["weight"].as_i64(), weights(&sra["resources"])))
}

fn effective_sra(sra: &Value) -> SraWeights {
    if sra["enable"].as_bool() != Some(true) {
        return None;
    }
    let given = weights(&sra["resourceWeight"]);
    let listed = config::listed(&sra["resources"]);
    let weights = listed.into_iter().map(|name| {
        let weight = given.get(&name).copied().flatten();
        (name, weight)
    });
    Some((sra["weight"].as_i64(), weights.collect()))
}

/// Cpu and memory per device, by primary resource.
type DeviceRatios = Option<BTreeMap<String, (Option<u64>, Option<u64>)>>;

fn bits(value: &Value) -> Option<u64> {
    value.as_f64().map(f64::to_bits)
}

fn recorded_ratios(proportional: &Value) -> DeviceRatios {
    let entries = proportional.as_object()?.iter();
    Some(
        entries
            .map(|(name, ratio)| (name.clone(), (bits(&ratio["cpu"]), bits(&ratio["memory"]))))
            .collect(),
    )
}

fn effective_ratios(proportional: &Value) -> DeviceRatios {
    if proportional["enable"].as_bool() != Some(true) {
        return None;
    }
    let given = &proportional["resourceProportion"];
    let ratio = |name: &str, of: &str| bits(&given[format!("{name}.{of}")]);
    let listed = config::listed(&proportional["resources"]).into_iter();
    Some(
        listed
            .map(|name| {
                let both = (ratio(&name, "cpu"), ratio(&name, "memory"));
                (name, both)
            })
            .collect(),
    )
}
