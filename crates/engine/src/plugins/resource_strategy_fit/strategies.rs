//! Part `rsf` of the score: each resource packs or spreads, with a weight of its own.

use std::collections::BTreeMap;

use super::annotations::{self, WeightsError};
use super::arguments::ArgumentReader;
use super::patterns::{ResourceKeyKind, ResourcePatterns};
use crate::model::resource_name::ResourceKind;
use crate::model::{Problem, TaskClass};
use crate::plugins::allocation::{AllocationStrategy, StrategyMean};
use crate::plugins::argument_names::{check_volcano_name, check_weight_overflow};
use crate::plugins::effective_values::{map_entry, value_map};
use crate::policy::{ArgumentMap, Compatibility, ErrorCode, PluginArgument, PluginArguments, Severity, YamlValue};

/// Argument: weight of the part.
pub(super) const WEIGHT: &str = "resourceStrategyFitWeight";
/// Argument: strategies and weights by resource.
pub(super) const RESOURCES: &str = "resources";

/// Argument of Pumice in effective documents: `resources` is empty because no entry was usable, which means no
/// resource, not the defaults.
pub(super) const NO_RESOURCES: &str = "pumice.noResources";

/// Weight of the part if the policy does not set it.
const DEFAULT_WEIGHT: i64 = 10;

/// Strategy and weight of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ResourceStrategy {
    strategy: AllocationStrategy,
    weight: i64,
}

/// Strategies by resource, and the weight of the part.
#[derive(Clone, Debug)]
pub(super) struct ResourceStrategies {
    weight: i64,
    by_resource: ResourcePatterns<ResourceStrategy>,
    compatibility: Compatibility,
}

impl ResourceStrategies {
    /// Greatest score of the part.
    pub(super) fn factor(&self) -> f64 {
        if self.is_active() {
            100.0 * self.weight as f64
        } else {
            0.0
        }
    }

    /// Reads the two arguments.
    pub(super) fn read(arguments: &PluginArguments, reading: &mut ArgumentReader<'_>) -> Self {
        let weight = arguments
            .get(WEIGHT)
            .map_or(DEFAULT_WEIGHT, |argument| read_weight(&argument, reading));
        let mut entries = Vec::new();
        let resources = arguments.get(RESOURCES);
        let block = resources.as_ref().and_then(|block| block.decode_map(reading.report));
        if let Some(block) = &block {
            for (key, argument) in block.entries(reading.report) {
                check_key(key, &argument, reading);
                if let Some(choice) = read_strategy(&argument, reading) {
                    entries.push((key.to_owned(), choice));
                }
            }
        }
        let compatibility = reading.compatibility;
        let none = arguments.get(NO_RESOURCES);
        let none = none.and_then(|none| none.decode_bool(reading.report)).unwrap_or(false);
        let by_resource = if !none && block.as_ref().is_none_or(ArgumentMap::is_empty) {
            let default = |name: &str| {
                let (strategy, weight) = (AllocationStrategy::Least, 1);
                (name.to_owned(), ResourceStrategy { strategy, weight })
            };
            ResourcePatterns::new(["cpu", "memory"].map(default), compatibility)
        } else {
            ResourcePatterns::new(entries, compatibility)
        };
        if let (Some(resources), true) = (&resources, by_resource.is_empty() && !none) {
            reading.warn(resources, "no usable entry is left: this part scores 0 on every node");
        }
        let weights = by_resource.iter().map(|(_, choice)| choice.weight);
        check_weight_overflow(weight, weights, &arguments.at(), reading.report);
        Self {
            weight,
            by_resource,
            compatibility,
        }
    }

    /// True if the part has an effect.
    pub(super) fn is_active(&self) -> bool {
        self.weight > 0
    }

    /// Arguments with the same meaning.
    pub(super) fn effective_entries(&self) -> Vec<(String, YamlValue)> {
        let choices = self.by_resource.iter().map(|(key, choice)| {
            let fields = [
                map_entry("type", YamlValue::String(choice.strategy.name().to_owned())),
                map_entry("weight", YamlValue::Int(choice.weight)),
            ];
            map_entry(key, value_map(fields))
        });
        let mut arguments = vec![
            map_entry(WEIGHT, YamlValue::Int(self.weight)),
            map_entry(RESOURCES, value_map(choices)),
        ];
        if self.by_resource.is_empty() {
            arguments.push(map_entry(NO_RESOURCES, YamlValue::Bool(true)));
        }
        arguments
    }

    /// Mean of a task class. A pod annotation that upstream ignores is a problem under `corrected`, and a warning in
    /// `warnings` under `upstream`.
    pub(super) fn mean(&self, class: &TaskClass, warnings: &mut Vec<Problem>) -> Result<StrategyMean, Problem> {
        let own = class
            .annotation(annotations::SCORING_TYPE)
            .filter(|text| !text.is_empty());
        if let Some(name) = own {
            let mut problems = Vec::new();
            let mean = self.annotated_mean(class, name, &mut problems);
            if self.compatibility == Compatibility::Corrected
                && let Some(problem) = problems.first()
            {
                return Err(problem.clone());
            }
            warnings.append(&mut problems);
            return Ok(mean);
        }
        let mut mean = StrategyMean::new(self.weight);
        for requested in class.counted_by_volcano() {
            if let Some(choice) = self.by_resource.get(&requested.name) {
                mean.add(requested.id, requested.amount, Some(choice.strategy), choice.weight);
            }
        }
        Ok(mean)
    }

    /// Mean by the pod's own annotations.
    fn annotated_mean(&self, class: &TaskClass, name: &str, problems: &mut Vec<Problem>) -> StrategyMean {
        let mut mean = StrategyMean::new(self.weight);
        let strategy = AllocationStrategy::parse(name);
        if strategy.is_none() {
            let message = format!("there is no scoring type `{name}`; `MostAllocated` and `LeastAllocated` are");
            problems.push(annotation_problem(annotations::SCORING_TYPE, message));
        }
        let text = class.annotation(annotations::WEIGHT).unwrap_or_default();
        let weights = annotations::parse_weights(text).unwrap_or_else(|error: WeightsError| {
            let message = format!("annotation `{}` {error}", annotations::WEIGHT);
            problems.push(annotation_problem(annotations::WEIGHT, message));
            BTreeMap::new()
        });
        // One example is enough; a text can hold thousands.
        if let Some((name, weight)) = weights.iter().find(|(_, weight)| **weight < 0) {
            let message = format!("the weight {weight} of `{name}` is negative");
            problems.push(annotation_problem(annotations::WEIGHT, message));
        }
        for requested in class.counted_by_volcano() {
            if let Some(weight) = weights.get(&*requested.name) {
                mean.add(requested.id, requested.amount, strategy, *weight);
            }
        }
        mean
    }
}

fn annotation_problem(annotation: &str, message: String) -> Problem {
    let field = format!("annotations[{annotation}]");
    Problem::new(ErrorCode::AnnotationInvalid, field, message)
}

fn read_weight(argument: &PluginArgument<'_>, reading: &mut ArgumentReader<'_>) -> i64 {
    let weight = reading.int(argument);
    if weight < 0 {
        reading.warn(
            argument,
            format!("a negative weight counts as the default {DEFAULT_WEIGHT}"),
        );
        return DEFAULT_WEIGHT;
    }
    if argument.is_null() {
        reading.warn(argument, "null counts as 0, which switches this part off");
    }
    weight
}

fn read_strategy(argument: &PluginArgument<'_>, reading: &mut ArgumentReader<'_>) -> Option<ResourceStrategy> {
    let block = argument.decode_map(reading.report)?;
    let name = reading.string_field(&block, "type");
    let strategy = AllocationStrategy::parse(name).unwrap_or_else(|| {
        let message = if name.is_empty() {
            "`type` is missing; `LeastAllocated` counts".to_owned()
        } else {
            let hint = reading
                .report
                .suggestion(Severity::Warning, name, &AllocationStrategy::NAMES);
            format!("there is no type `{name}`; `LeastAllocated` counts{hint}")
        };
        reading
            .report
            .warning(ErrorCode::ArgumentInvalid, &argument.at(), message);
        AllocationStrategy::Least
    });
    let mut weight = 1;
    if let Some(given) = block.field("weight") {
        weight = reading.int(&given);
        if weight <= 0 {
            reading.warn(&given, format!("weight {weight} is not above 0; 1 counts"));
            weight = 1;
        }
    }
    block.warn_unknown(reading.report, &["type", "weight"]);
    Some(ResourceStrategy { strategy, weight })
}

/// Warns of a key that covers nothing.
fn check_key(key: &str, argument: &PluginArgument<'_>, reading: &mut ArgumentReader<'_>) {
    let at = argument.at();
    match ResourceKeyKind::of(key, reading.compatibility) {
        ResourceKeyKind::Exact => check_volcano_name(key, &at, reading.report),
        ResourceKeyKind::Malformed => {
            let message = format!("`{key}` is no pattern: one `*` may stand, at the end of a prefix; it has no effect");
            reading.report.warning(ErrorCode::ArgumentInvalid, &at, message);
        }
        ResourceKeyKind::Prefix(prefix) | ResourceKeyKind::Family(prefix) => {
            // A name with this prefix continues with a letter, unless the prefix itself is malformed.
            let continued = ["", "a", ".a/a", "a/a", "/a"]
                .iter()
                .map(|rest| format!("{prefix}{rest}"));
            let possible = continued
                .map(|name| ResourceKind::of(&name))
                .any(ResourceKind::counted_by_volcano);
            let short = ["cpu", "memory", "pods", "ephemeral-storage"];
            if !possible && !short.iter().any(|name| name.starts_with(prefix)) {
                let message = format!("no resource name begins with `{prefix}`; it has no effect");
                reading.report.warning(ErrorCode::ArgumentIgnored, &at, message);
            }
        }
    }
}
