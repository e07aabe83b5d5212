//! `binpack`: prefers nodes that become full (Volcano ed72c7c81, pkg/scheduler/plugins/binpack).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::allocation::{AllocationStrategy, StrategyMean};
use super::argument_names::{check_name_list, check_weight_overflow, comma_list, lenient_int};
use super::effective_values::value_map;
use crate::model::{NodeChunk, TaskClass};
use crate::plugin::{
    ChunkScores, HookNumbers, NodeScorer, Plugin, PluginContext, PluginDef, PluginHooks, PreparedHook,
};
use crate::policy::{Compatibility, DiagnosticReport, ErrorCode, PluginArguments, YamlValue};

/// Registry entry of the plugin.
pub(super) const DEF: PluginDef = PluginDef {
    families: &["score"],
    ..PluginDef::new("binpack", compile)
};

const WEIGHT: &str = "binpack.weight";
const CPU: &str = "binpack.cpu";
const MEMORY: &str = "binpack.memory";
const RESOURCES: &str = "binpack.resources";
/// Prefix of an argument that ends in the name of a resource.
const RESOURCE_PREFIX: &str = "binpack.resources.";

/// Compiled plugin.
#[derive(Debug)]
struct Binpack {
    weight: i64,
    /// Listed resources other than cpu and memory, in the order of the list.
    listed: Vec<String>,
    /// Weights of cpu, memory and the listed resources.
    weights: BTreeMap<String, i64>,
}

fn compile(arguments: &PluginArguments, _: Compatibility, report: &mut DiagnosticReport) -> Arc<dyn Plugin> {
    let weight = int_or_1(arguments, WEIGHT, report);
    if weight < 0 {
        let message = "a negative weight prefers empty nodes, and ranks nodes over capacity first";
        warn(arguments, WEIGHT, message, report);
    }
    let listed = listed_resources(arguments, report);
    let mut weights = BTreeMap::new();
    for name in &listed {
        weights.insert(name.clone(), weight_of(arguments, &resource_key(name), report));
    }
    for (name, key) in [("cpu", CPU), ("memory", MEMORY)] {
        if weights
            .insert(name.to_owned(), weight_of(arguments, key, report))
            .is_some()
        {
            let message = format!("the weight of `{name}` is `{key}`; listing it has no effect");
            warn(arguments, RESOURCES, &message, report);
        }
    }
    check_weight_overflow(weight, weights.values().copied(), &arguments.at(), report);
    let listed_keys = weights
        .keys()
        .filter(|name| !["cpu", "memory"].contains(&name.as_str()));
    let listed_keys: Vec<String> = listed_keys.map(|name| resource_key(name)).collect();
    let known = [WEIGHT, CPU, MEMORY, RESOURCES].into_iter();
    let known: Vec<&str> = known.chain(listed_keys.iter().map(String::as_str)).collect();
    arguments.warn_unknown(report, DEF.name, &known, |_| false);
    Arc::new(Binpack {
        weight,
        listed: listed
            .into_iter()
            .filter(|name| name != "cpu" && name != "memory")
            .collect(),
        weights,
    })
}

fn resource_key(name: &str) -> String {
    format!("{RESOURCE_PREFIX}{name}")
}

fn warn(arguments: &PluginArguments, key: &str, message: &str, report: &mut DiagnosticReport) {
    let at = arguments
        .get(key)
        .map_or_else(|| arguments.at(), |argument| argument.at());
    report.warning(ErrorCode::ArgumentIgnored, &at, message);
}

/// Integer argument; 1 for any other value, as upstream.
fn int_or_1(arguments: &PluginArguments, key: &str, report: &mut DiagnosticReport) -> i64 {
    arguments
        .get(key)
        .map_or(1, |argument| lenient_int(&argument, 1, report))
}

/// Weight of a resource. 0 switches the resource off; a negative weight is treated as 1.
fn weight_of(arguments: &PluginArguments, key: &str, report: &mut DiagnosticReport) -> i64 {
    let weight = int_or_1(arguments, key, report);
    if weight < 0 {
        warn(arguments, key, "a negative weight counts as 1", report);
        return 1;
    }
    weight
}

fn listed_resources(arguments: &PluginArguments, report: &mut DiagnosticReport) -> Vec<String> {
    let Some(argument) = arguments.get(RESOURCES) else {
        return Vec::new();
    };
    let Some(list) = argument.as_string() else {
        let message = format!(
            "expected a comma list in a string, found {}; no resource is listed",
            argument.value().kind()
        );
        report.warning(ErrorCode::ArgumentIgnored, &argument.at(), message);
        return Vec::new();
    };
    let names: Vec<String> = comma_list(list).map(str::to_owned).collect();
    check_name_list(&names, &argument.at(), report);
    let mut once: Vec<String> = Vec::new();
    for name in names {
        if !once.contains(&name) {
            once.push(name);
        }
    }
    once
}

impl Plugin for Binpack {
    fn hooks(&self) -> PluginHooks {
        PluginHooks {
            filter: false,
            score: self.weight != 0,
            ..PluginHooks::default()
        }
    }

    fn effective_arguments(&self) -> YamlValue {
        let own = |name: &str| YamlValue::Int(self.weights.get(name).copied().unwrap_or(1));
        let mut entries = vec![
            (WEIGHT.to_owned(), YamlValue::Int(self.weight)),
            (CPU.to_owned(), own("cpu")),
            (MEMORY.to_owned(), own("memory")),
            (RESOURCES.to_owned(), YamlValue::String(self.listed.join(", "))),
        ];
        entries.extend(self.listed.iter().map(|name| (resource_key(name), own(name))));
        value_map(entries)
    }

    fn score_bounds(&self) -> Option<(f64, f64)> {
        let end = 100.0 * self.weight as f64;
        Some((end.min(0.0), end.max(0.0)))
    }

    fn prepare_scorer<'a>(&'a self, _: PluginContext<'a>, class: &'a TaskClass) -> PreparedHook<dyn NodeScorer + 'a> {
        let mut mean = StrategyMean::new(self.weight);
        for requested in class.counted_by_volcano() {
            if let Some(&weight) = self.weights.get(&*requested.name) {
                mean.add(requested.id, requested.amount, Some(AllocationStrategy::Most), weight);
            }
        }
        Ok(Some(Box::new(BinpackScorer(mean))))
    }
}

struct BinpackScorer(StrategyMean);

impl NodeScorer for BinpackScorer {
    fn outside_inputs(&self) -> Option<HookNumbers> {
        Some(HookNumbers::new())
    }

    fn score(&self, chunk: &NodeChunk, parts: &mut [ChunkScores]) {
        if let Some(scores) = parts.first_mut() {
            self.0.score(chunk, scores);
        }
    }
}
