//! Strict decoding of arguments, as kube-scheduler decodes `args`: exact keys, exact types, nothing ignored.

use super::argument_names::NATIVE_RESOURCES;
use crate::model::resource_name::ResourceKind;
use crate::policy::{
    DiagnosticReport, DocumentLocation, ErrorCode, PluginArgument, PluginArguments, Severity, YamlValue,
};

/// Only version of kube-scheduler's configuration whose arguments are read.
pub(super) const API_VERSION: &str = "kubescheduler.config.k8s.io/v1";
const RESOURCES: &str = "resources";

/// Reads arguments with the key `resources`, and optionally `apiVersion` and `kind`, which must be correct. Null is
/// treated as absent. Any other key is an error.
pub(super) fn read_resources<'a>(
    arguments: &'a PluginArguments,
    kind: &str,
    report: &mut DiagnosticReport,
) -> Option<PluginArgument<'a>> {
    for (key, argument) in arguments.iter() {
        match key {
            "apiVersion" => expect_text(&argument, API_VERSION, report),
            "kind" => expect_text(&argument, kind, report),
            RESOURCES => {}
            _ => report_unknown_key(key, &["apiVersion", "kind", RESOURCES], &arguments.key_at(key), report),
        }
    }
    arguments.get(RESOURCES).filter(|argument| !argument.is_null())
}

fn expect_text(argument: &PluginArgument<'_>, wanted: &str, report: &mut DiagnosticReport) {
    let text = argument.decode_string(report).unwrap_or_default();
    if !text.is_empty() && text != wanted {
        let message = format!("expected `{wanted}`, found `{text}`");
        report.error(ErrorCode::ArgumentInvalid, &argument.at(), message);
    }
}

/// Reports a key that is not among `known`, and suggests the nearest one.
pub(super) fn report_unknown_key(key: &str, known: &[&str], at: &DocumentLocation, report: &mut DiagnosticReport) {
    let hint = report.suggestion(Severity::Error, key, known);
    let known: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
    let message = format!("unknown key `{key}`; known are {}{hint}", known.join(", "));
    report.error(ErrorCode::ArgumentUnknownKey, at, message);
}

/// Reports a value of the wrong type.
pub(super) fn report_type_mismatch(
    at: &DocumentLocation,
    expected: &str,
    found: &YamlValue,
    report: &mut DiagnosticReport,
) {
    let message = format!("expected {expected}, found {}", found.kind());
    report.error(ErrorCode::ArgumentType, at, message);
}

/// Warns about a name that these plugins never match, because Kubernetes does not use it for resources.
pub(super) fn check_kubernetes_name(name: &str, at: &DocumentLocation, report: &mut DiagnosticReport) {
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
    let hint = report.suggestion(Severity::Warning, name, &NATIVE_RESOURCES);
    let message = format!("`{name}` never matches: {why}{hint}");
    report.warning(ErrorCode::ArgumentResource, at, message);
}
