//! Reads the arguments of `NodeResourcesFitPlus`: `resources`, a map of `{type, weight}` by name.

use super::super::strict::{check_name, mismatch, resources, unknown};
use super::score::{MAX_SCORE, Strategy};
use crate::engine::policy::{Argument, Arguments, At, Node, Report, Value, code};

/// One entry of `resources`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Weighted {
    /// Name of the resource, matched exactly.
    pub(super) name: String,
    /// `type` as written; empty if it was not.
    pub(super) strategy_name: String,
    /// `weight`; 0 if it was not written.
    pub(super) weight: i64,
}

/// Reads the arguments; faults where kube-scheduler's strict decoding refuses them, warnings where the plugin then does
/// what its user hardly means.
pub(super) fn read(arguments: &Arguments, report: &mut Report) -> Vec<Weighted> {
    let given = resources(arguments, "NodeResourcesFitPlusArgs", report);
    let at = given.as_ref().map_or_else(|| arguments.at(), Argument::at);
    let mut read: Vec<Weighted> = Vec::new();
    match given.as_ref().map(Argument::value) {
        None => {}
        Some(Value::Map(pairs)) => {
            for (key, value) in pairs {
                let Some(name) = key_text(&key.value) else {
                    mismatch(&at_node(&at, key), "the name of a resource", &key.value, report);
                    continue;
                };
                let at = At {
                    mark: key.mark,
                    path: format!("{}[{name:?}]", at.path),
                };
                check_name(&name, &at, report);
                let resource = resource(name, value, &at, report);
                read.extend(resource);
            }
        }
        Some(other) => mismatch(&at, "a map of resources", other, report),
    }
    if !report.has_faults() {
        check_weights(&read, &at, report);
    }
    read
}

/// A key as text: JSON, which upstream goes through, has no others.
fn key_text(key: &Value) -> Option<String> {
    match key {
        Value::String(text) => Some(text.clone()),
        Value::Bool(value) => Some(value.to_string()),
        Value::Int(value) => Some(value.to_string()),
        Value::UInt(value) => Some(value.to_string()),
        Value::Null | Value::Float(_) | Value::List(_) | Value::Map(_) => None,
    }
}

fn at_node(at: &At, node: &Node) -> At {
    At {
        mark: node.mark,
        path: at.path.clone(),
    }
}

fn resource(name: String, value: &Node, at: &At, report: &mut Report) -> Option<Weighted> {
    let mut read = Weighted {
        name,
        strategy_name: String::new(),
        weight: 0,
    };
    let (mut strategy_at, mut weight_at) = (at.clone(), at.clone());
    match &value.value {
        Value::Null => {}
        Value::Map(pairs) => {
            for (key, value) in pairs {
                let name = key_text(&key.value).unwrap_or_else(|| key.value.kind().to_owned());
                let field = At {
                    mark: value.mark,
                    path: format!("{}.{name}", at.path),
                };
                match name.as_str() {
                    "type" => {
                        read.strategy_name = text(&value.value, &field, report)?;
                        strategy_at = field;
                    }
                    "weight" => {
                        read.weight = integer(&value.value, &field, report)?;
                        weight_at = field;
                    }
                    _ => unknown(
                        &name,
                        "`type`, `weight`",
                        &At {
                            mark: key.mark,
                            ..field
                        },
                        report,
                    ),
                }
            }
        }
        other @ (Value::Bool(_)
        | Value::Int(_)
        | Value::UInt(_)
        | Value::Float(_)
        | Value::String(_)
        | Value::List(_)) => mismatch(&at_node(at, value), "a map with `type` and `weight`", other, report),
    }
    warn(&read, &strategy_at, &weight_at, report);
    Some(read)
}

fn warn(read: &Weighted, strategy_at: &At, weight_at: &At, report: &mut Report) {
    if read.strategy() == Strategy::Unknown {
        let message = format!(
            "`{}` is neither `MostAllocated` nor `LeastAllocated`: the resource scores 0, and its weight still counts",
            read.strategy_name
        );
        report.warning(code::ARGUMENT_STRATEGY, strategy_at, message);
    }
    if read.weight == 0 {
        let message = "a `weight` that is 0 or missing: the resource has no effect; write one above 0";
        report.warning(code::ARGUMENT_WEIGHT, weight_at, message);
    } else if read.weight < 0 {
        let message = "a negative `weight`: scores may leave 0 to 100, and then the task is refused whole";
        report.warning(code::ARGUMENT_WEIGHT, weight_at, message);
    }
}

fn check_weights(read: &[Weighted], at: &At, report: &mut Report) {
    let sum: i128 = read.iter().map(|resource| i128::from(resource.weight)).sum();
    let absolute: i128 = read.iter().map(|resource| i128::from(resource.weight).abs()).sum();
    if absolute == 0 {
        let message = "no resource has a weight: every node scores 100 for every task";
        report.warning(code::ARGUMENT_MUTE, at, message);
    } else if sum == 0 {
        let message = "the weights cancel out: a task that requests all of these scores 100 on every node";
        report.warning(code::ARGUMENT_WEIGHT, at, message);
    }
    if absolute > i128::from(i64::MAX / MAX_SCORE) {
        let message = "the weights are so large that the reference's sums overflow";
        report.warning(code::ARGUMENT_WEIGHT, at, message);
    }
}

fn text(value: &Value, at: &At, report: &mut Report) -> Option<String> {
    match value {
        Value::Null => Some(String::new()),
        Value::String(text) => Some(text.clone()),
        other
        @ (Value::Bool(_) | Value::Int(_) | Value::UInt(_) | Value::Float(_) | Value::List(_) | Value::Map(_)) => {
            mismatch(at, "a string", other, report);
            None
        }
    }
}

/// An integer; in YAML also a float without a fraction, which becomes one on the way through JSON.
fn integer(value: &Value, at: &At, report: &mut Report) -> Option<i64> {
    /// 2^63, the first float above every signed 64-bit integer.
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    match value {
        Value::Null => Some(0),
        Value::Int(value) => Some(*value),
        Value::UInt(_) => {
            let message = "the number does not fit a signed 64-bit integer";
            report.fault(code::ARGUMENT_RANGE, at, message);
            None
        }
        #[expect(clippy::cast_possible_truncation, reason = "checked to be an integer that fits")]
        Value::Float(value) if value.fract() == 0.0 && (-LIMIT..LIMIT).contains(value) => Some(*value as i64),
        other @ (Value::Bool(_) | Value::Float(_) | Value::String(_) | Value::List(_) | Value::Map(_)) => {
            mismatch(at, "an integer", other, report);
            None
        }
    }
}
