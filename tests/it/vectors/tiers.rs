//! Family tiers: how scores and predicates of several plugins come together.

use std::collections::BTreeMap;

use pumice::server::pb;
use serde_json::Value;

use super::cluster::{self, members};
use super::question::{self, Asked, NoAnswer};
use super::{Bench, Differences, Verdict};

/// Judges one case.
pub(crate) fn check(bench: &mut Bench, case: &Value) -> Verdict {
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

/// The question of a case, of the policy's tiers.
pub(crate) fn asked(case: &Value) -> Asked {
    let tiers = &case["policy"]["tiers"];
    let tiers = if tiers.is_null() {
        "[]".to_owned()
    } else {
        tiers.to_string()
    };
    Asked {
        ground: cluster::inline(cluster::cluster(&case["cluster"]), cluster::document(&tiers)),
        task: cluster::asked(&case["request"]["task"]),
        plugins: Vec::new(),
    }
}

/// True if the case is about a refused policy; its answer is judged then.
fn refused<T>(differences: &mut Differences, case: &Value, answer: &Result<T, NoAnswer>) -> bool {
    if case["expect"].get("error").is_none() {
        return false;
    }
    if !matches!(answer, Err(NoAnswer::PolicyRefused(_))) {
        let got = answer.as_ref().map(|_| "an answer");
        differences.differ("policy", "refused", &got);
    }
    true
}

fn node_order(bench: &Bench, case: &Value) -> Verdict {
    let mut differences = Differences::default();
    let answer = question::score(bench.wire(), &asked(case));
    if refused(&mut differences, case, &answer) {
        return differences.verdict();
    }
    let expect = &case["expect"];
    match answer {
        Ok(scores) => compare_totals(&mut differences, expect, &scores.totals),
        Err(fault) => differences.differ("scores", "an answer", &fault),
    }
    differences.verdict()
}

/// Compares totals with what the reference's actions use.
pub(crate) fn compare_totals(differences: &mut Differences, expect: &Value, totals: &BTreeMap<String, f64>) {
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

fn predicate(bench: &Bench, case: &Value) -> Verdict {
    let mut differences = Differences::default();
    let answer = question::filter(bench.wire(), &asked(case));
    if refused(&mut differences, case, &answer) {
        return differences.verdict();
    }
    let fits = match answer {
        Ok(fits) => fits,
        Err(fault) => {
            differences.differ("verdict", "an answer", &fault);
            return differences.verdict();
        }
    };
    let task = &case["request"]["task"];
    let task = cluster::key(&task["namespace"], &task["name"]);
    for node in members(&case["expect"]["nodes"]) {
        let name = cluster::text(&node["node"]);
        let refusal = fits.refused.get(&name).and_then(|refusals| refusals.first());
        let class = refusal.map(|refusal| refusal.resolution);
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
        let error = refusal.map(|refusal| format!("task {task} on node {name} fit failed: {}", refusal.message));
        differences.same(&format!("{name} error"), &node["error"].as_str(), &error.as_deref());
    }
    differences.verdict()
}
