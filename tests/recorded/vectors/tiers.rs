//! Family tiers: combination of the scores and predicates of several plugins.

use std::collections::BTreeMap;

use pumice::server::pb;
use serde_json::Value;

use super::cluster::{self, members};
use super::query::{self, QueryError, TaskQuery};
use super::{VectorDifferences, VectorHarness, VectorVerdict};

/// Judges one case.
pub(crate) fn check(bench: &mut VectorHarness, case: &Value) -> VectorVerdict {
    let kind = case["request"]["kind"].as_str().unwrap_or_default();
    let stubs = members(&case["policy"]["stubs"]);
    match kind {
        "nodeOrder" | "predicate" if !stubs.is_empty() && case["expect"].get("error").is_none() => {
            super::tiers_stubs::check(bench, case)
        }
        "nodeOrder" => node_order(bench, case),
        "predicate" => predicate(bench, case),
        _ => super::tiers_order::check(bench, case),
    }
}

/// Request of a case, by the policy's tiers.
pub(crate) fn tiers_query(case: &Value) -> TaskQuery {
    let tiers = &case["policy"]["tiers"];
    let tiers = if tiers.is_null() {
        "[]".to_owned()
    } else {
        tiers.to_string()
    };
    TaskQuery {
        evaluation_ref: cluster::inline_ref(cluster::cluster(&case["cluster"]), cluster::document(case, &tiers)),
        task: cluster::requested_task(&case["request"]["task"]),
        plugins: Vec::new(),
    }
}

/// True if the case is about a rejected policy, which is then judged.
fn compare_rejection<T>(differences: &mut VectorDifferences, case: &Value, result: &Result<T, QueryError>) -> bool {
    if case["expect"].get("error").is_none() {
        return false;
    }
    if !matches!(result, Err(QueryError::PolicyRejected(_))) {
        let got = result.as_ref().map(|_| "an answer");
        differences.differ("policy", "refused", &got);
    }
    true
}

fn node_order(bench: &VectorHarness, case: &Value) -> VectorVerdict {
    let mut differences = VectorDifferences::default();
    let result = query::score(bench.wire(), &tiers_query(case));
    if compare_rejection(&mut differences, case, &result) {
        return differences.verdict();
    }
    let expect = &case["expect"];
    match result {
        Ok(scores) => compare_totals(&mut differences, expect, &scores.totals),
        Err(problem) => differences.differ("scores", "an answer", &problem),
    }
    differences.verdict()
}

/// Compares totals with those that the reference's actions use.
pub(crate) fn compare_totals(differences: &mut VectorDifferences, expect: &Value, totals: &BTreeMap<String, f64>) {
    let prioritized = expect["prioritized"].as_object().into_iter().flatten();
    let prioritized: BTreeMap<String, f64> = prioritized
        .map(|(node, total)| (node.clone(), total.as_f64().unwrap_or(f64::NAN)))
        .collect();
    let names = |totals: &BTreeMap<String, f64>| totals.keys().cloned().collect::<Vec<_>>();
    differences.same("nodes", &names(&prioritized), &names(totals));
    for (node, (expected, got)) in prioritized.keys().zip(prioritized.values().zip(totals.values())) {
        differences.same_float(node, *expected, *got);
    }
    let best: Vec<String> = members(&expect["best"]).iter().map(cluster::text).collect();
    let first = super::binpack::ranking(totals).into_iter().next().unwrap_or_default();
    differences.same("best", &best, &first);
}

fn predicate(bench: &VectorHarness, case: &Value) -> VectorVerdict {
    let mut differences = VectorDifferences::default();
    let result = query::filter(bench.wire(), &tiers_query(case));
    if compare_rejection(&mut differences, case, &result) {
        return differences.verdict();
    }
    let fits = match result {
        Ok(fits) => fits,
        Err(problem) => {
            differences.differ("verdict", "an answer", &problem);
            return differences.verdict();
        }
    };
    let task = &case["request"]["task"];
    let task = cluster::key(&task["namespace"], &task["name"]);
    for node in members(&case["expect"]["nodes"]) {
        let name = cluster::text(&node["node"]);
        let rejection = fits.rejected.get(&name).and_then(|rejections| rejections.first());
        let class = rejection.map(|rejection| rejection.resolution);
        let fit = fits.fit.contains(&name);
        differences.same(&format!("{name} fit"), &node["fit"].as_bool(), &Some(fit));
        differences.same(
            &format!("{name} for allocate"),
            &node["allocate_fit"].as_bool(),
            &Some(fit),
        );
        let preempt = class != Some(pb::Resolution::Unresolvable);
        differences.same(
            &format!("{name} for preempt"),
            &node["preempt_fit"].as_bool(),
            &Some(preempt),
        );
        let error = rejection.map(|rejection| format!("task {task} on node {name} fit failed: {}", rejection.message));
        differences.same(&format!("{name} error"), &node["error"].as_str(), &error.as_deref());
    }
    differences.verdict()
}
