//! The part `rsf` of the score: each resource packs or spreads, with a weight of its own.

use std::collections::BTreeMap;

use super::annotations::{self, WeightsError};
use super::arguments::Reading;
use super::patterns::{KeyKind, Patterns};
use crate::engine::model::resource_name::ResourceKind;
use crate::engine::model::{Problem, ProblemKind, TaskClass};
use crate::engine::plugins::allocation::{Mean, Strategy};
use crate::engine::plugins::effective::{entry, map};
use crate::engine::plugins::names::{check_name, check_sizes};
use crate::engine::policy::{Argument, ArgumentMap, Arguments, Compatibility, Value, code};

/// Argument: the weight of the part.
pub(super) const WEIGHT: &str = "resourceStrategyFitWeight";
/// Argument: strategies and weights by resource.
pub(super) const RESOURCES: &str = "resources";

/// Argument of ours, in effective documents: `resources` is empty because no entry was usable, and means no resource
/// rather than the defaults.
pub(super) const NO_RESOURCES: &str = "pumice.noResources";

/// The weight of the part if the policy does not say.
const DEFAULT_WEIGHT: i64 = 10;

/// Strategy and weight of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Choice {
    strategy: Strategy,
    weight: i64,
}

/// Strategies by resource, and the weight of the part.
#[derive(Clone, Debug)]
pub(super) struct Strategies {
    weight: i64,
    choices: Patterns<Choice>,
    compatibility: Compatibility,
}

impl Strategies {
    /// Reads the two arguments.
    pub(super) fn read(arguments: &Arguments, reading: &mut Reading<'_>) -> Self {
        let weight = arguments
            .get(WEIGHT)
            .map_or(DEFAULT_WEIGHT, |argument| read_weight(&argument, reading));
        let mut entries = Vec::new();
        let resources = arguments.get(RESOURCES);
        let block = resources.as_ref().and_then(|block| block.decode_map(reading.report));
        if let Some(block) = &block {
            for (key, argument) in block.entries(reading.report) {
                check_key(key, &argument, reading);
                if let Some(choice) = read_choice(&argument, reading) {
                    entries.push((key.to_owned(), choice));
                }
            }
        }
        let compatibility = reading.compatibility;
        let none = arguments.get(NO_RESOURCES);
        let none = none.and_then(|none| none.decode_bool(reading.report)).unwrap_or(false);
        let choices = if !none && block.as_ref().is_none_or(ArgumentMap::is_empty) {
            let default = |name: &str| {
                let (strategy, weight) = (Strategy::Least, 1);
                (name.to_owned(), Choice { strategy, weight })
            };
            Patterns::new(["cpu", "memory"].map(default), compatibility)
        } else {
            Patterns::new(entries, compatibility)
        };
        if let (Some(resources), true) = (&resources, choices.is_empty() && !none) {
            reading.warn(resources, "no usable entry is left: this part scores 0 on every node");
        }
        let weights = choices.iter().map(|(_, choice)| choice.weight);
        check_sizes(weight, weights, &arguments.at(), reading.report);
        Self {
            weight,
            choices,
            compatibility,
        }
    }

    /// True if it scores at all.
    pub(super) fn is_active(&self) -> bool {
        self.weight > 0
    }

    /// The arguments that say the same.
    pub(super) fn effective(&self) -> Vec<(String, Value)> {
        let choices = self.choices.iter().map(|(key, choice)| {
            let strategy = match choice.strategy {
                Strategy::Most => "MostAllocated",
                Strategy::Least => "LeastAllocated",
            };
            let fields = [
                entry("type", Value::String(strategy.to_owned())),
                entry("weight", Value::Int(choice.weight)),
            ];
            entry(key, map(fields))
        });
        let mut arguments = vec![entry(WEIGHT, Value::Int(self.weight)), entry(RESOURCES, map(choices))];
        if self.choices.is_empty() {
            arguments.push(entry(NO_RESOURCES, Value::Bool(true)));
        }
        arguments
    }

    /// Ready for a task class. What upstream passes over in a pod's annotations is a problem under `corrected`, and goes
    /// to `warnings` under `upstream`.
    pub(super) fn mean(&self, class: &TaskClass, warnings: &mut Vec<Problem>) -> Result<Mean, Problem> {
        let own = class
            .annotation(annotations::SCORING_TYPE)
            .filter(|text| !text.is_empty());
        if let Some(name) = own {
            let mut problems = Vec::new();
            let mean = self.own_mean(class, name, &mut problems);
            if self.compatibility == Compatibility::Corrected
                && let Some(problem) = problems.first()
            {
                return Err(problem.clone());
            }
            warnings.append(&mut problems);
            return Ok(mean);
        }
        let mut mean = Mean::new(self.weight);
        for requested in class.by_volcano() {
            if let Some(choice) = self.choices.get(&requested.name) {
                mean.add(requested.id, requested.amount, Some(choice.strategy), choice.weight);
            }
        }
        Ok(mean)
    }

    /// By the pod's own annotations.
    fn own_mean(&self, class: &TaskClass, name: &str, problems: &mut Vec<Problem>) -> Mean {
        let mut mean = Mean::new(self.weight);
        let strategy = annotations::strategy(name);
        if strategy.is_none() {
            let message = format!("there is no scoring type `{name}`; `MostAllocated` and `LeastAllocated` are");
            problems.push(problem(annotations::SCORING_TYPE, message));
        }
        let text = class.annotation(annotations::WEIGHT).unwrap_or_default();
        let weights = annotations::weights(text).unwrap_or_else(|error: WeightsError| {
            let message = format!("annotation `{}` {error}", annotations::WEIGHT);
            problems.push(problem(annotations::WEIGHT, message));
            BTreeMap::new()
        });
        // One of them tells enough; a text can hold thousands.
        if let Some((name, weight)) = weights.iter().find(|(_, weight)| **weight < 0) {
            let message = format!("the weight {weight} of `{name}` is negative");
            problems.push(problem(annotations::WEIGHT, message));
        }
        for requested in class.by_volcano() {
            if let Some(weight) = weights.get(&*requested.name) {
                mean.add(requested.id, requested.amount, strategy, *weight);
            }
        }
        mean
    }
}

fn problem(annotation: &str, message: String) -> Problem {
    let field = format!("annotations[{annotation}]");
    Problem::new(ProblemKind::Invalid, "INVALID_ANNOTATION", field, message)
}

fn read_weight(argument: &Argument<'_>, reading: &mut Reading<'_>) -> i64 {
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

fn read_choice(argument: &Argument<'_>, reading: &mut Reading<'_>) -> Option<Choice> {
    let block = argument.decode_map(reading.report)?;
    let name = reading.string_field(&block, "type");
    let strategy = annotations::strategy(name).unwrap_or_else(|| {
        let message = if name.is_empty() {
            "`type` is missing; `LeastAllocated` counts".to_owned()
        } else {
            format!("there is no type `{name}`; `LeastAllocated` counts")
        };
        reading.report.warning(code::ARGUMENT_INVALID, &argument.at(), message);
        Strategy::Least
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
    Some(Choice { strategy, weight })
}

/// Warns of keys that cover nothing.
fn check_key(key: &str, argument: &Argument<'_>, reading: &mut Reading<'_>) {
    let at = argument.at();
    match KeyKind::of(key, reading.compatibility) {
        KeyKind::Exact => check_name(key, &at, reading.report),
        KeyKind::Malformed => {
            let message = format!("`{key}` is no pattern: one `*` may stand, at the end of a prefix; it has no effect");
            reading.report.warning(code::ARGUMENT_INVALID, &at, message);
        }
        KeyKind::Prefix(prefix) | KeyKind::Family(prefix) => {
            // Whatever begins so continues with a letter, unless the prefix alone is wrong already.
            let continued = ["", "a", ".a/a", "a/a", "/a"]
                .iter()
                .map(|rest| format!("{prefix}{rest}"));
            let possible = continued
                .map(|name| ResourceKind::of(&name))
                .any(ResourceKind::counted_by_volcano);
            let short = ["cpu", "memory", "pods", "ephemeral-storage"];
            if !possible && !short.iter().any(|name| name.starts_with(prefix)) {
                let message = format!("no resource name begins with `{prefix}`; it has no effect");
                reading.report.warning(code::ARGUMENT_IGNORED, &at, message);
            }
        }
    }
}
