//! The kernels against a scorer that goes node by node, written from the rules alone.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use proptest::prelude::*;

use super::fixtures::{amounts, cluster_state, node_query, policy, score_query, task};
use crate::decide;
use crate::model::{NodeRecord, ResourceTable};
use crate::policy::Compatibility;

/// In the order in which scores add up.
const NAMES: [&str; 8] = [
    "cpu",
    "memory",
    "amd.com/gpu",
    "ephemeral-storage",
    "nvidia.com/gpu",
    "nvidia.com/gpu-v100",
    "nvidia.com/t4",
    "pods",
];
const KEYS: [&str; 9] = [
    "cpu",
    "memory",
    "pods",
    "nvidia.com/gpu",
    "nvidia.com/gpu/*",
    "nvidia.com/gpu*",
    "nvidia.com/*",
    "amd*",
    "p*",
];

type NaiveAmounts = BTreeMap<&'static str, i64>;

#[derive(Clone, Debug)]
struct NaiveNode {
    allocatable: NaiveAmounts,
    used: NaiveAmounts,
}

/// A policy and its decisions.
#[derive(Clone, Debug)]
struct NaivePolicy {
    weight: i64,
    /// Key, packs, weight.
    resources: BTreeMap<&'static str, (bool, i64)>,
    /// Weight, then name and weight.
    sra: Option<(i64, BTreeMap<&'static str, i64>)>,
    /// Name, cpu and memory per device.
    proportional: Option<BTreeMap<&'static str, (f64, f64)>>,
    /// Weight, then name and weight; cpu and memory are always there.
    binpack: (i64, BTreeMap<&'static str, i64>),
}

impl NaivePolicy {
    fn document(&self) -> String {
        let mut text = format!(
            "{{name: resource-strategy-fit, arguments: {{resourceStrategyFitWeight: {}, resources: {{",
            self.weight
        );
        for (key, (packs, weight)) in &self.resources {
            let kind = if *packs { "MostAllocated" } else { "LeastAllocated" };
            write!(text, "\"{key}\": {{type: {kind}, weight: {weight}}}, ").unwrap();
        }
        text.push('}');
        if let Some((weight, scarce)) = &self.sra {
            let names: Vec<&str> = scarce.keys().copied().collect();
            let weights: Vec<String> = scarce
                .iter()
                .map(|(name, weight)| format!("\"{name}\": {weight}"))
                .collect();
            let (names, weights) = (names.join(","), weights.join(", "));
            write!(
                text,
                ", sra: {{enable: true, weight: {weight}, resources: \"{names}\", resourceWeight: {{{weights}}}}}"
            )
            .unwrap();
        }
        if let Some(primaries) = &self.proportional {
            let names: Vec<&str> = primaries.keys().copied().collect();
            let ratios: Vec<String> = primaries
                .iter()
                .map(|(name, (cpu, memory))| format!("\"{name}.cpu\": {cpu}, \"{name}.memory\": {memory}"))
                .collect();
            let (names, ratios) = (names.join(","), ratios.join(", "));
            write!(
                text,
                ", proportional: {{enable: true, resources: \"{names}\", resourceProportion: {{{ratios}}}}}"
            )
            .unwrap();
        }
        let (weight, weights) = &self.binpack;
        write!(text, "}}}}, {{name: binpack, arguments: {{binpack.weight: {weight}").unwrap();
        let mut listed = Vec::new();
        for (name, weight) in weights {
            if ["cpu", "memory"].contains(name) {
                write!(text, ", binpack.{name}: {weight}").unwrap();
            } else {
                listed.push(*name);
                write!(text, ", \"binpack.resources.{name}\": {weight}").unwrap();
            }
        }
        write!(text, ", binpack.resources: \"{}\"}}}}", listed.join(",")).unwrap();
        text
    }

    fn covering(&self, name: &str) -> Option<(bool, i64)> {
        let exact = self.resources.get(name).copied();
        exact.or_else(|| {
            let covers = |key: &str| {
                if key == "nvidia.com/gpu/*" {
                    return name == "nvidia.com/gpu" || name.starts_with("nvidia.com/gpu-");
                }
                key.ends_with('*') && name.starts_with(key.trim_end_matches('*'))
            };
            let best = self.resources.iter().filter(|(key, _)| covers(key));
            best.max_by_key(|(key, _)| key.len()).map(|(_, choice)| *choice)
        })
    }

    fn rsf(&self, asks: &[(&str, f64)], node: &NaiveNode) -> f64 {
        let terms = asks.iter().filter_map(|&(name, ask)| {
            let (packs, weight) = self.covering(name)?;
            Some((name, ask, packs, weight))
        });
        mean(terms.collect(), node, self.weight)
    }

    fn sra(&self, asks: &[(&str, f64)], node: &NaiveNode) -> f64 {
        let Some((weight, scarce)) = &self.sra else {
            return 0.0;
        };
        let has = |name: &str| node.allocatable.get(name).copied().unwrap_or(0) > 0;
        if asks.iter().any(|(name, _)| !has(name)) {
            return 0.0;
        }
        let all: i64 = scarce.values().sum();
        let there: i64 = scarce
            .iter()
            .filter(|(name, _)| has(name))
            .map(|(_, weight)| weight)
            .sum();
        let part = if all > 0 { 1.0 - there as f64 / all as f64 } else { 0.0 };
        part * (100 * weight) as f64
    }

    fn binpack(&self, asks: &[(&str, f64)], node: &NaiveNode) -> f64 {
        let (weight, weights) = &self.binpack;
        let terms = asks
            .iter()
            .filter_map(|&(name, ask)| Some((name, ask, true, *weights.get(name)?)));
        mean(terms.collect(), node, *weight)
    }

    fn fits(&self, asks: &[(&str, f64)], node: &NaiveNode) -> bool {
        let Some(primaries) = &self.proportional else {
            return true;
        };
        if asks.iter().any(|(name, _)| primaries.contains_key(name)) {
            return true;
        }
        let ask = |name: &str| asks.iter().find(|(own, _)| *own == name).map_or(0.0, |(_, ask)| *ask);
        let idle = |name: &str| {
            let of = |amounts: &NaiveAmounts| amounts.get(name).copied();
            match (of(&node.allocatable), of(&node.used)) {
                (None, None) => None,
                (all, used) => Some((all.unwrap_or(0) - used.unwrap_or(0)) as f64),
            }
        };
        primaries.iter().all(|(name, (cpu, memory))| {
            let Some(devices) = idle(name) else {
                return true;
            };
            let left = |name: &str| idle(name).unwrap_or(0.0) - ask(name);
            left("cpu") >= devices * cpu && left("memory") >= devices * memory * 1000.0 * 1000.0
        })
    }
}

fn mean(terms: Vec<(&str, f64, bool, i64)>, node: &NaiveNode, weight: i64) -> f64 {
    let of = |amounts: &NaiveAmounts, name: &str| amounts.get(name).copied().unwrap_or(0) as f64;
    let (mut score, mut sum) = (0.0, 0);
    for (name, ask, packs, weight) in terms {
        let (capacity, finally) = (of(&node.allocatable, name), ask + of(&node.used, name));
        sum += weight;
        if capacity == 0.0 || weight == 0 {
            continue;
        }
        if finally > capacity {
            return 0.0;
        }
        let part = if packs { finally } else { capacity - finally };
        score += part * weight as f64 / capacity;
    }
    if sum > 0 {
        score /= sum as f64;
    }
    score * (100 * weight) as f64
}

fn some_amounts(most: i64) -> impl Strategy<Value = NaiveAmounts> {
    prop::collection::btree_map(prop::sample::select(&NAMES[..]), 0..=most, 0..8)
}

fn weights(names: &'static [&'static str]) -> impl Strategy<Value = BTreeMap<&'static str, i64>> {
    prop::collection::btree_map(prop::sample::select(names), 0_i64..4, 0..4)
}

fn naive_policies() -> impl Strategy<Value = NaivePolicy> {
    let resources = prop::collection::btree_map(prop::sample::select(&KEYS[..]), (any::<bool>(), 1_i64..5), 1..6);
    let ratio = (0_i32..5).prop_map(|quarters| f64::from(quarters) / 4.0);
    let ratios = (ratio.clone(), ratio);
    let primaries = prop::collection::btree_map(prop::sample::select(&NAMES[2..7]), ratios, 0..3);
    let binpack =
        (-2_i64..4, weights(&NAMES[2..]), 0_i64..4, 0_i64..4).prop_map(|(weight, mut weights, cpu, memory)| {
            weights.extend([("cpu", cpu), ("memory", memory)]);
            (weight, weights)
        });
    let sra = prop::option::of((1_i64..4, weights(&NAMES[2..7])));
    (0_i64..4, resources, sra, prop::option::of(primaries), binpack).prop_map(
        |(weight, resources, sra, proportional, binpack)| NaivePolicy {
            weight,
            resources,
            sra,
            proportional,
            binpack,
        },
    )
}

fn quantities(amounts: &NaiveAmounts) -> Vec<(&'static str, String)> {
    let shown = |(name, amount): (&&'static str, &i64)| {
        let unit = if ["memory", "pods"].contains(name) { "" } else { "m" };
        (*name, format!("{amount}{unit}"))
    };
    amounts.iter().map(shown).collect()
}

/// Policy, kinds of nodes with what they have and what is used of it, their number, and the request of a task.
#[derive(Clone, Debug)]
pub(crate) struct NaiveCase {
    says: NaivePolicy,
    kinds: Vec<(NaiveAmounts, NaiveAmounts)>,
    count: usize,
    asks: NaiveAmounts,
}

/// Cases with amounts of some size: small ones tie often, and large ones are at the edges of floats and integers.
pub(crate) fn naive_cases(largest: i64, most_nodes: usize) -> impl Strategy<Value = NaiveCase> {
    let kinds = prop::collection::vec((some_amounts(largest), some_amounts(largest / 4 * 3)), 1..12);
    (naive_policies(), kinds, 1..=most_nodes, some_amounts(largest / 4)).prop_map(|(says, kinds, count, asks)| {
        NaiveCase {
            says,
            kinds,
            count,
            asks,
        }
    })
}

/// Scores and filters the nodes of a case, and compares both with the plain rules.
#[expect(clippy::too_many_lines, reason = "one cluster, scored in two ways")]
pub(crate) fn check_columns(case: &NaiveCase) -> Result<(), TestCaseError> {
    let mut resources = ResourceTable::default();
    let nodes: Vec<NaiveNode> = (0..case.count)
        .map(|i| {
            let (allocatable, used) = case.kinds[i * i % case.kinds.len()].clone();
            NaiveNode { allocatable, used }
        })
        .collect();
    let mut read = |given: &NaiveAmounts| {
        let texts = quantities(given);
        amounts(&mut resources, texts.iter().map(|(name, text)| (*name, text.as_str())))
    };
    let records = nodes
        .iter()
        .enumerate()
        .map(|(i, node)| NodeRecord {
            name: format!("n{i}").into(),
            allocatable: read(&node.allocatable),
            unattributed_used: Some(read(&node.used)),
            ..NodeRecord::default()
        })
        .collect();
    let asked = task(read(&case.asks), &[]);
    let cluster_state = cluster_state(resources, records);

    let (mut asks, says) = (case.asks.clone(), &case.says);
    asks.insert("pods", 1);
    let asks: Vec<(&str, f64)> = NAMES
        .iter()
        .filter_map(|name| asks.get(name).map(|ask| (*name, *ask as f64)))
        .filter(|(_, ask)| *ask >= 0.1)
        .collect();
    let compiled = policy(&says.document(), Compatibility::Corrected);
    let query = node_query(cluster_state.resources(), vec![asked]);
    let sheet = decide::score(&cluster_state, &compiled.policy, &score_query(query.clone()))
        .unwrap()
        .remove(0)
        .unwrap();
    let verdict = decide::filter(&cluster_state, &compiled.policy, &query)
        .unwrap()
        .remove(0)
        .unwrap();
    for (slot, node) in (0_u32..).zip(&nodes) {
        let at = slot as usize;
        let rsf = if says.weight > 0 { says.rsf(&asks, node) } else { 0.0 };
        let own = 0.0 + rsf + says.sra(&asks, node);
        let total = 0.0
            + own
            + if says.binpack.0 == 0 {
                0.0
            } else {
                says.binpack(&asks, node)
            };
        prop_assert_eq!(
            sheet.result.totals[at].to_bits(),
            (total + 0.0).to_bits(),
            "{} {}",
            slot,
            total
        );
        prop_assert_eq!(verdict.result.fit.contains(&slot), says.fits(&asks, node), "{}", slot);
    }
    prop_assert_eq!(sheet.result.nodes.len(), case.count);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn columns_equal_the_naive_rules(case in naive_cases(40, 600)) {
        check_columns(&case)?;
    }

    /// Seed 000: the plugin "can also achieve the same results as Binpack". It does, to the last bit: same weight, every
    /// positive weight as `MostAllocated`, resources of weight 0 left out.
    #[test]
    fn resource_strategy_fit_can_be_binpack(
        plugin_weight in 1_i64..1_000,
        given in weights(&NAMES[2..]),
        cpu in 0_i64..9,
        memory in 0_i64..9,
        nodes in prop::collection::vec((some_amounts(1 << 40), some_amounts(1 << 39)), 1..40),
        asks in some_amounts(1 << 38),
    ) {
        let mut all = given;
        all.extend([("cpu", cpu), ("memory", memory)]);
        let same = |all: &BTreeMap<&'static str, i64>| {
            let entries = all.iter().filter(|(_, weight)| **weight > 0);
            let entries: Vec<String> = entries
                .map(|(name, weight)| format!("{name}: {{type: MostAllocated, weight: {weight}}}"))
                .collect();
            // With nothing left, a name that no resource has stands for the empty map, which would mean the defaults.
            let entries = if entries.is_empty() { "nothing/here: {type: MostAllocated}".to_owned() } else { entries.join(", ") };
            format!("{{name: resource-strategy-fit, arguments: {{resourceStrategyFitWeight: {plugin_weight}, resources: {{{entries}}}}}}}")
        };
        let binpack = NaivePolicy {
            weight: 0,
            resources: BTreeMap::from([("cpu", (true, 1))]),
            sra: None,
            proportional: None,
            binpack: (plugin_weight, all.clone()),
        };
        let mut resources = ResourceTable::default();
        let mut read = |given: &NaiveAmounts| {
            let texts = quantities(given);
            amounts(&mut resources, texts.iter().map(|(name, text)| (*name, text.as_str())))
        };
        let records = nodes.iter().enumerate().map(|(i, (allocatable, used))| NodeRecord {
            name: Arc::from(format!("n{i}")),
            allocatable: read(allocatable),
            unattributed_used: Some(read(used)),
            ..NodeRecord::default()
        });
        let records = records.collect();
        let asked = task(read(&asks), &[]);
        let cluster_state = cluster_state(resources, records);
        let query = score_query(node_query(cluster_state.resources(), vec![asked]));
        let totals = |document: &str| {
            let compiled = policy(document, Compatibility::Corrected);
            let sheet = decide::score(&cluster_state, &compiled.policy, &query).unwrap().remove(0).unwrap();
            sheet.result.totals.iter().map(|total| total.to_bits()).collect::<Vec<_>>()
        };
        prop_assert_eq!(totals(&binpack.document()), totals(&same(&all)));
    }
}
