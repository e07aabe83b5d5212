//! Arguments of `NodeResourcesFitPlus`: `resources`, a map of `{type, weight}` by name.

use super::super::allocation::AllocationStrategy;
use super::super::integer_arithmetic::MAX_SCORE;
use super::super::strict_arguments::{check_kubernetes_name, read_resources, report_type_mismatch, report_unknown_key};
use crate::policy::{
    DiagnosticReport, DocumentLocation, ErrorCode, PluginArgument, PluginArguments, Severity, YamlNode, YamlValue,
};

/// Entry of `resources`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WeightedResource {
    /// Name of the resource, matched exactly.
    pub(super) name: String,
    /// Value of `type`; empty if absent.
    pub(super) strategy_name: String,
    /// Value of `weight`; 0 if absent.
    pub(super) weight: i64,
}

/// Reads the arguments. An error is what kube-scheduler's strict decoding rejects; a warning is a value whose effect
/// its author hardly wants.
pub(super) fn read(arguments: &PluginArguments, report: &mut DiagnosticReport) -> Vec<WeightedResource> {
    let given = read_resources(arguments, "NodeResourcesFitPlusArgs", report);
    let at = given.as_ref().map_or_else(|| arguments.at(), PluginArgument::at);
    let mut read: Vec<WeightedResource> = Vec::new();
    match given.as_ref().map(PluginArgument::value) {
        None => {}
        Some(YamlValue::Map(pairs)) => {
            for (key, value) in pairs {
                let Some(name) = key_text(&key.value) else {
                    report_type_mismatch(&at_node(&at, key), "the name of a resource", &key.value, report);
                    continue;
                };
                let at = DocumentLocation {
                    mark: key.mark,
                    path: format!("{}[{name:?}]", at.path),
                };
                check_kubernetes_name(&name, &at, report);
                let resource = read_resource(name, value, &at, report);
                read.extend(resource);
            }
        }
        Some(other) => report_type_mismatch(&at, "a map of resources", other, report),
    }
    if !report.has_errors() {
        check_weights(&read, &at, report);
    }
    read
}

/// Key as text; upstream converts to JSON, which has only such keys.
fn key_text(key: &YamlValue) -> Option<String> {
    match key {
        YamlValue::String(text) => Some(text.clone()),
        YamlValue::Bool(value) => Some(value.to_string()),
        YamlValue::Int(value) => Some(value.to_string()),
        YamlValue::UInt(value) => Some(value.to_string()),
        YamlValue::Null | YamlValue::Float(_) | YamlValue::List(_) | YamlValue::Map(_) => None,
    }
}

fn at_node(at: &DocumentLocation, node: &YamlNode) -> DocumentLocation {
    DocumentLocation {
        mark: node.mark,
        path: at.path.clone(),
    }
}

fn read_resource(
    name: String,
    value: &YamlNode,
    at: &DocumentLocation,
    report: &mut DiagnosticReport,
) -> Option<WeightedResource> {
    let mut read = WeightedResource {
        name,
        strategy_name: String::new(),
        weight: 0,
    };
    let (mut strategy_at, mut weight_at) = (at.clone(), at.clone());
    if !matches!(value.value, YamlValue::Null | YamlValue::Map(_)) {
        let expected = "a map with `type` and `weight`";
        report_type_mismatch(&at_node(at, value), expected, &value.value, report);
    }
    for (key, value) in value.value.as_pairs().unwrap_or_default() {
        let name = key_text(&key.value).unwrap_or_else(|| key.value.kind().to_owned());
        let field = DocumentLocation {
            mark: value.mark,
            path: format!("{}.{name}", at.path),
        };
        match name.as_str() {
            "type" => {
                read.strategy_name = read_text(&value.value, &field, report)?;
                strategy_at = field;
            }
            "weight" => {
                read.weight = read_integer(&value.value, &field, report)?;
                weight_at = field;
            }
            _ => {
                let at = DocumentLocation {
                    mark: key.mark,
                    ..field
                };
                report_unknown_key(&name, &["type", "weight"], &at, report);
            }
        }
    }
    warn_resource(&read, &strategy_at, &weight_at, report);
    Some(read)
}

fn warn_resource(
    read: &WeightedResource,
    strategy_at: &DocumentLocation,
    weight_at: &DocumentLocation,
    report: &mut DiagnosticReport,
) {
    if AllocationStrategy::parse(&read.strategy_name).is_none() {
        let hint = report.suggestion(Severity::Warning, &read.strategy_name, &AllocationStrategy::NAMES);
        let message = format!(
            "`{}` is neither `MostAllocated` nor `LeastAllocated`: the resource scores 0, and its weight still counts{hint}",
            read.strategy_name
        );
        report.warning(ErrorCode::ArgumentStrategy, strategy_at, message);
    }
    if read.weight == 0 {
        let message = "a `weight` that is 0 or missing: the resource has no effect; write one above 0";
        report.warning(ErrorCode::ArgumentWeight, weight_at, message);
    } else if read.weight < 0 {
        let message = "a negative `weight`: scores may leave 0 to 100, and then the task is rejected";
        report.warning(ErrorCode::ArgumentWeight, weight_at, message);
    }
}

fn check_weights(read: &[WeightedResource], at: &DocumentLocation, report: &mut DiagnosticReport) {
    let sum: i128 = read.iter().map(|resource| i128::from(resource.weight)).sum();
    let absolute: i128 = read.iter().map(|resource| i128::from(resource.weight).abs()).sum();
    if absolute == 0 {
        let message = "no resource has a weight: every node scores 100 for every task";
        report.warning(ErrorCode::ArgumentMute, at, message);
    } else if sum == 0 {
        let message = "the weights cancel out: a task that requests all of these scores 100 on every node";
        report.warning(ErrorCode::ArgumentWeight, at, message);
    }
    if absolute > i128::from(i64::MAX / MAX_SCORE) {
        let message = "the weights are so large that the reference's sums overflow";
        report.warning(ErrorCode::ArgumentWeight, at, message);
    }
}

fn read_text(value: &YamlValue, at: &DocumentLocation, report: &mut DiagnosticReport) -> Option<String> {
    if let YamlValue::String(text) = value {
        return Some(text.clone());
    }
    if matches!(value, YamlValue::Null) {
        return Some(String::new());
    }
    report_type_mismatch(at, "a string", value, report);
    None
}

/// Integer; in YAML also a float without a fraction, which the conversion to JSON turns into one.
fn read_integer(value: &YamlValue, at: &DocumentLocation, report: &mut DiagnosticReport) -> Option<i64> {
    /// 2^63, the first float above every signed 64-bit integer.
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    match value {
        YamlValue::Null => Some(0),
        YamlValue::Int(value) => Some(*value),
        YamlValue::UInt(_) => {
            let message = "the number does not fit a signed 64-bit integer";
            report.error(ErrorCode::ArgumentRange, at, message);
            None
        }
        #[expect(clippy::cast_possible_truncation, reason = "checked to be an integer that fits")]
        YamlValue::Float(value) if value.fract() == 0.0 && (-LIMIT..LIMIT).contains(value) => Some(*value as i64),
        other @ (YamlValue::Bool(_)
        | YamlValue::Float(_)
        | YamlValue::String(_)
        | YamlValue::List(_)
        | YamlValue::Map(_)) => {
            report_type_mismatch(at, "an integer", other, report);
            None
        }
    }
}
