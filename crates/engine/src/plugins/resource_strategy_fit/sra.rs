//! Scarce resource avoidance: the part `sra` of the score, higher on nodes without scarce resources.

use std::collections::BTreeMap;

use pumice_kernels::columns::fill;
use smallvec::SmallVec;

use super::arguments::ArgumentReader;
use crate::model::{NodeChunk, NodeMask, ResourceId, ResourceTable, TaskClass};
use crate::plugin::ChunkScores;
use crate::plugins::argument_names::{check_name_list, check_weight_overflow, comma_list};
use crate::plugins::effective_values::{map_entry, value_map};
use crate::policy::{ArgumentMap, DocumentLocation, ErrorCode, Severity, YamlValue};

const FIELDS: [&str; 4] = ["enable", "resources", "weight", "resourceWeight"];

/// Configuration of sra, once it is enabled.
#[derive(Clone, Debug)]
pub(super) struct SraConfig {
    /// Weight of the part; 0 or less: inactive.
    weight: i64,
    /// Scarce resources in the order of the list. The weight of a repeated resource is added for each repetition.
    listed: Vec<String>,
    /// Weights of the scarce resources.
    weights: BTreeMap<String, i64>,
}

impl SraConfig {
    /// Greatest score of the part.
    pub(super) fn factor(&self) -> f64 {
        100.0 * self.weight as f64
    }

    /// Reads the block `sra`; `None`: not enabled. `more` lists further known fields.
    pub(super) fn read(block: &ArgumentMap<'_>, more: &[&str], reading: &mut ArgumentReader<'_>) -> Option<Self> {
        let enabled = reading.bool_field(block, "enable");
        let resources = reading.string_field(block, "resources");
        let weight = block.field("weight").map(|weight| reading.int(&weight));
        let given = reading.typed_map_field(block, "resourceWeight", ArgumentReader::int);
        let known: Vec<&str> = FIELDS.iter().chain(more).copied().collect();
        block.warn_unknown(reading.report, &known);
        let mut warn = |message: &str| reading.report.warning(ErrorCode::ArgumentIgnored, block.at(), message);
        match weight {
            None if enabled => warn("`weight` is missing: without it sra has no effect"),
            Some(..=0) if enabled => warn("`weight` is not above 0: sra has no effect"),
            Some(1..) if block.field("enable").is_none() => warn("`enable` is missing: without it sra has no effect"),
            _ => {}
        }
        enabled.then(|| Self::new(weight.unwrap_or(0), resources, &given, block.at(), reading))
    }

    /// Enabled sra over a comma list. A resource with a missing or negative weight has weight 1.
    pub(super) fn new(
        weight: i64,
        resources: &str,
        given: &BTreeMap<String, i64>,
        at: &DocumentLocation,
        reading: &mut ArgumentReader<'_>,
    ) -> Self {
        let listed: Vec<String> = comma_list(resources).map(str::to_owned).collect();
        check_name_list(&listed, at, reading.report);
        let weight_of = |name: &String| given.get(name).copied().filter(|weight| *weight >= 0).unwrap_or(1);
        check_weight_overflow(weight, listed.iter().map(weight_of), at, reading.report);
        let candidates: Vec<&str> = listed.iter().map(String::as_str).collect();
        for (name, weight) in given {
            if !listed.contains(name) {
                let hint = reading.report.suggestion(Severity::Warning, name, &candidates);
                let message = format!("`{name}` has a weight but is not listed; it has no effect{hint}");
                reading.report.warning(ErrorCode::ArgumentIgnored, at, message);
            } else if *weight < 0 {
                let message = format!("the negative weight of `{name}` counts as 1");
                reading.report.warning(ErrorCode::ArgumentIgnored, at, message);
            }
        }
        let weights = listed.iter().map(|name| (name.clone(), weight_of(name))).collect();
        let sra = Self {
            weight,
            listed,
            weights,
        };
        if sra.weight_sum() <= 0 {
            let message = "no listed resource has a weight above 0: every node scores 0";
            reading.report.warning(ErrorCode::ArgumentIgnored, at, message);
        }
        sra
    }

    fn weight_of(&self, name: &str) -> i64 {
        self.weights.get(name).copied().unwrap_or(0)
    }

    fn weight_sum(&self) -> i64 {
        let weights = self.listed.iter().map(|name| self.weight_of(name));
        weights.fold(0, i64::wrapping_add)
    }

    /// True if the part has an effect.
    pub(super) fn is_active(&self) -> bool {
        self.weight > 0
    }

    /// Block with the same meaning.
    pub(super) fn effective_block(&self) -> YamlValue {
        let weights = self
            .weights
            .iter()
            .map(|(name, weight)| map_entry(name, YamlValue::Int(*weight)));
        value_map([
            map_entry("enable", YamlValue::Bool(true)),
            map_entry("resources", YamlValue::String(self.listed.join(", "))),
            map_entry("weight", YamlValue::Int(self.weight)),
            map_entry("resourceWeight", value_map(weights)),
        ])
    }

    /// Kernel of a task class.
    pub(super) fn kernel(&self, class: &TaskClass, resources: &ResourceTable) -> SraKernel {
        let scarce = self.weights.iter();
        SraKernel {
            requested: class.counted_by_volcano().map(|requested| requested.id).collect(),
            scarce: scarce
                .filter_map(|(name, weight)| Some((resources.get(name)?, *weight)))
                .collect(),
            weight_sum: self.weight_sum(),
            factor: 100_i64.wrapping_mul(self.weight) as f64,
        }
    }
}

/// Kernel of sra for one task class.
#[derive(Debug)]
pub(super) struct SraKernel {
    requested: Vec<ResourceId>,
    /// Scarce resources that some node may have, with their weights.
    scarce: Vec<(ResourceId, i64)>,
    weight_sum: i64,
    factor: f64,
}

impl SraKernel {
    /// Scores every place of a chunk: 0 where the node lacks a requested resource; otherwise by the scarce resources
    /// that the node has, idle or not.
    pub(super) fn score(&self, chunk: &NodeChunk, scores: &mut ChunkScores) {
        let offered = self.requested.iter().map(|&id| chunk.offered(id));
        let asked = offered.fold(NodeMask::ALL, |all, one| all.and(&one));
        if let Some(there) = self.uniform_scarce_weight(&asked, chunk) {
            let everywhere = asked == *chunk.live() || asked == NodeMask::ALL;
            fill(if everywhere { self.score_for(there) } else { 0.0 }, scores);
            if !everywhere {
                asked.write_at(self.score_for(there), scores);
            }
            return;
        }
        fill(0.0, scores);
        for (nodes, there) in self.group_by_scarce_weight(&asked, chunk) {
            nodes.write_at(self.score_for(there), scores);
        }
    }

    /// Weight of the scarce resources that these nodes have, if it is equal on all of them.
    fn uniform_scarce_weight(&self, asked: &NodeMask, chunk: &NodeChunk) -> Option<i64> {
        self.scarce.iter().try_fold(0, |there: i64, &(id, weight)| {
            let with = asked.and(&chunk.offered(id));
            if with.is_empty() {
                return Some(there);
            }
            (with == *asked).then(|| there.wrapping_add(weight))
        })
    }

    /// Nodes grouped by the weight of the scarce resources that they have: at most one group per node, and usually few.
    fn group_by_scarce_weight(&self, asked: &NodeMask, chunk: &NodeChunk) -> SmallVec<[(NodeMask, i64); 8]> {
        let mut groups: SmallVec<[(NodeMask, i64); 8]> = SmallVec::from_iter([(*asked, 0)]);
        for &(id, weight) in &self.scarce {
            let offered = chunk.offered(id);
            for group in 0..groups.len() {
                let Some((nodes, there)) = groups.get_mut(group) else {
                    continue;
                };
                let (with, without) = (nodes.and(&offered), nodes.and_not(&offered));
                let there_with = there.wrapping_add(weight);
                if without.is_empty() {
                    *there = there_with;
                } else if !with.is_empty() {
                    *nodes = without;
                    groups.push((with, there_with));
                }
            }
        }
        groups
    }

    /// Score of nodes whose scarce resources have this weight: 1 − there / all, in the reference's order.
    fn score_for(&self, there: i64) -> f64 {
        let part = if self.weight_sum > 0 {
            1.0 - there as f64 / self.weight_sum as f64
        } else {
            there as f64
        };
        part * self.factor
    }
}
