//! Strict decoding of arguments, as kube-scheduler decodes `args`: exact keys, exact types, nothing passed over.

use crate::engine::model::resource_name::ResourceKind;
use crate::engine::policy::{Argument, Arguments, At, Report, Value, code};

/// The only version of kube-scheduler's configuration whose arguments are read.
pub(super) const API_VERSION: &str = "kubescheduler.config.k8s.io/v1";
const RESOURCES: &str = "resources";

/// Reads arguments that hold `resources`, and perhaps their own `apiVersion` and `kind`, which must be right. Null counts
/// as not said. Any other key is a fault.
pub(super) fn resources<'a>(arguments: &'a Arguments, kind: &str, report: &mut Report) -> Option<Argument<'a>> {
    for (key, argument) in arguments.iter() {
        match key {
            "apiVersion" => expect(&argument, API_VERSION, report),
            "kind" => expect(&argument, kind, report),
            RESOURCES => {}
            _ => unknown(key, "`apiVersion`, `kind`, `resources`", &arguments.key_at(key), report),
        }
    }
    arguments.get(RESOURCES).filter(|argument| !argument.is_null())
}

fn expect(argument: &Argument<'_>, wanted: &str, report: &mut Report) {
    match argument.value() {
        Value::Null => {}
        Value::String(text) if text.is_empty() || text == wanted => {}
        Value::String(text) => {
            let message = format!("expected `{wanted}`, found `{text}`");
            report.fault(code::ARGUMENT_INVALID, &argument.at(), message);
        }
        other
        @ (Value::Bool(_) | Value::Int(_) | Value::UInt(_) | Value::Float(_) | Value::List(_) | Value::Map(_)) => {
            mismatch(&argument.at(), "a string", other, report);
        }
    }
}

/// A key that is not known.
pub(super) fn unknown(key: &str, known: &str, at: &At, report: &mut Report) {
    let message = format!("unknown key `{key}`; known are {known}");
    report.fault(code::ARGUMENT_UNKNOWN_KEY, at, message);
}

/// A value of another type.
pub(super) fn mismatch(at: &At, expected: &str, found: &Value, report: &mut Report) {
    let message = format!("expected {expected}, found {}", found.kind());
    report.fault(code::ARGUMENT_TYPE, at, message);
}

/// Warns of a name that these plugins never count, and so never match.
pub(super) fn check_name(name: &str, at: &At, report: &mut Report) {
    let kind = ResourceKind::of(name);
    let why = if name.contains('*') {
        "wildcards mean nothing here"
    } else if kind == ResourceKind::Pods {
        "pods are not counted as a resource"
    } else if !kind.counted_by_kubernetes() {
        "no resource that counts can have this name"
    } else {
        return;
    };
    let message = format!("`{name}` never matches: {why}");
    report.warning(code::ARGUMENT_RESOURCE, at, message);
}
