//! Family binpack over gRPC, and a check that resource-strategy-fit gives the same.

use std::collections::BTreeMap;

use serde_json::Value;

use super::cluster::{self, members};
use super::config;
use super::fit_family::compare_score;
use super::query::{self, NodeScores, TaskQuery};
use super::{VectorDifferences, VectorHarness, VectorVerdict};

const PLUGIN: &str = "binpack";

/// Judges one case.
pub(crate) fn check(bench: &mut VectorHarness, case: &Value) -> VectorVerdict {
    let mut differences = VectorDifferences::default();
    let expect = &case["expect"];
    let document = cluster::document(case, &cluster::plugin_tiers(PLUGIN, &case["policy"]["arguments"]));
    let own = scores(bench, &mut differences, case, PLUGIN, &document);
    compare_nodes(&mut differences, PLUGIN, expect, &own);
    match config::effective(bench.wire(), &document) {
        Ok(effective) => compare_config(&mut differences, &expect["config"], &effective),
        Err(problem) => differences.differ("dry run", "accepted", &problem),
    }
    let with = &case["request"]["compareWith"];
    if let Some(other) = with["plugin"].as_str() {
        let expect = &expect["compare"];
        let document = cluster::document(case, &cluster::plugin_tiers(other, &with["arguments"]));
        let its = scores(bench, &mut differences, case, other, &document);
        compare_nodes(&mut differences, other, expect, &its);
        differences.same(
            "same scores",
            &expect["same_score"].as_bool(),
            &Some(own.totals == its.totals),
        );
        differences.same(
            "same ranking",
            &expect["same_ranking"].as_bool(),
            &Some(ranking(&own.totals) == ranking(&its.totals)),
        );
    }
    differences.verdict()
}

/// Totals of the tiers and of the plugin alone, which must be equal.
fn scores(
    bench: &VectorHarness,
    differences: &mut VectorDifferences,
    case: &Value,
    plugin: &str,
    document: &str,
) -> NodeScores {
    let asked = TaskQuery {
        evaluation_ref: cluster::inline_ref(cluster::cluster(&case["cluster"]), document.to_owned()),
        task: cluster::requested_task(&case["request"]),
        plugins: Vec::new(),
    };
    let named = TaskQuery {
        plugins: vec![plugin.to_owned()],
        ..asked.clone()
    };
    let both = (query::score(bench.wire(), &asked), query::score(bench.wire(), &named));
    match both {
        (Ok(tiers), Ok(alone)) => {
            differences.same(&format!("{plugin} alone"), &tiers.totals, &alone.totals);
            tiers
        }
        (Err(problem), _) | (_, Err(problem)) => {
            differences.differ(plugin, "scores", &problem);
            NodeScores::default()
        }
    }
}

fn compare_nodes(differences: &mut VectorDifferences, plugin: &str, expect: &Value, scores: &NodeScores) {
    let nodes = members(&expect["nodes"]);
    differences.same(&format!("{plugin}: nodes scored"), &nodes.len(), &scores.totals.len());
    for node in nodes {
        let name = cluster::text(&node["node"]);
        let what = format!("{plugin}: {name} score");
        compare_score(differences, &what, node, scores.totals.get(&name).copied());
    }
    // Where the recorded score depends on map order, so does the recorded ranking.
    if !nodes.iter().any(|node| node.get("score_variants").is_some()) {
        let expected: Vec<Vec<String>> = members(&expect["ranking"])
            .iter()
            .map(|group| members(group).iter().map(cluster::text).collect())
            .collect();
        differences.same(&format!("{plugin}: ranking"), &expected, &ranking(&scores.totals));
    }
}

/// Nodes by score, best first, names sorted in a group.
pub(crate) fn ranking(totals: &BTreeMap<String, f64>) -> Vec<Vec<String>> {
    let mut groups: Vec<(f64, Vec<String>)> = Vec::new();
    for (name, score) in totals {
        // The score -0 ranks with 0.
        let score = score + 0.0;
        match groups.iter_mut().find(|(of, _)| of.total_cmp(&score).is_eq()) {
            Some((_, names)) => names.push(name.clone()),
            None => groups.push((score, vec![name.clone()])),
        }
    }
    groups.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    groups.into_iter().map(|(_, names)| names).collect()
}

fn compare_config(differences: &mut VectorDifferences, expected: &Value, effective: &Value) {
    let arguments = config::arguments(effective, PLUGIN);
    differences.same(
        "weight",
        &expected["weight"].as_i64(),
        &arguments["binpack.weight"].as_i64(),
    );
    let weight = |key: &str| arguments[key].as_i64();
    let mut resources: BTreeMap<String, Option<i64>> = config::listed(&arguments["binpack.resources"])
        .into_iter()
        .map(|name| {
            let weight = weight(&format!("binpack.resources.{name}"));
            (name, weight)
        })
        .collect();
    for name in ["cpu", "memory"] {
        resources.insert(name.to_owned(), weight(&format!("binpack.{name}")));
    }
    let recorded = expected["resources"].as_object().into_iter().flatten();
    let recorded: BTreeMap<String, Option<i64>> =
        recorded.map(|(name, weight)| (name.clone(), weight.as_i64())).collect();
    differences.same("resources", &recorded, &resources);
}
