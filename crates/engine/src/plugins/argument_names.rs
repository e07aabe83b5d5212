//! Parts of arguments that several plugins read alike: integers, comma lists, and names that no resource can have.

use crate::model::resource_name::ResourceKind;
use crate::policy::{DiagnosticReport, DocumentLocation, ErrorCode, PluginArgument, Severity};

/// Resources without a domain in their names, for suggestions.
pub(super) const NATIVE_RESOURCES: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// Integer; the default for any other value, with a warning.
pub(super) fn lenient_int(argument: &PluginArgument<'_>, default: i64, report: &mut DiagnosticReport) -> i64 {
    argument.lenient_int().unwrap_or_else(|| {
        let found = argument.value().kind();
        let message = format!("expected an integer, found {found}; the default {default} counts");
        report.warning(ErrorCode::ArgumentIgnored, &argument.at(), message);
        default
    })
}

/// Items of a comma list, trimmed; empty ones are left out.
pub(super) fn comma_list(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty())
}

/// Warns of names that are listed twice, of `*`, which has no meaning in lists, and of names that no resource has.
pub(super) fn check_name_list(names: &[String], at: &DocumentLocation, report: &mut DiagnosticReport) {
    for (position, name) in names.iter().enumerate() {
        let before = names.get(..position).unwrap_or_default();
        if before.contains(name) {
            report.warning(ErrorCode::ArgumentIgnored, at, format!("`{name}` is listed twice"));
        } else if name.contains('*') {
            let message = format!("`{name}` matches nothing: wildcards are for `resources` of the node score only");
            report.warning(ErrorCode::ArgumentIgnored, at, message);
        } else {
            check_volcano_name(name, at, report);
        }
    }
}

/// Warns about a name that Volcano does not use for resources.
pub(super) fn check_volcano_name(name: &str, at: &DocumentLocation, report: &mut DiagnosticReport) {
    if !ResourceKind::of(name).counted_by_volcano() {
        let hint = report.suggestion(Severity::Warning, name, &NATIVE_RESOURCES);
        let message = format!("no resource that counts can be named `{name}`; it has no effect{hint}");
        report.warning(ErrorCode::ArgumentIgnored, at, message);
    }
}

/// Warns of weights so large that the reference's 64-bit arithmetic, which is reproduced, wraps around.
pub(super) fn check_weight_overflow(
    plugin_weight: i64,
    weights: impl IntoIterator<Item = i64>,
    at: &DocumentLocation,
    report: &mut DiagnosticReport,
) {
    let sum = weights.into_iter().try_fold(0, i64::checked_add);
    if plugin_weight.checked_mul(100).is_none() || sum.is_none() {
        let message = "the weights are so large that scores wrap around at 64 bits";
        report.warning(ErrorCode::ArgumentIgnored, at, message);
    }
}
