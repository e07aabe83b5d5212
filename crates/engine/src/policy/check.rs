//! Checks of a loaded document: its actions, and its plugins together.

use std::collections::{BTreeMap, BTreeSet};

use super::Compatibility;
use super::diagnostics::{DiagnosticReport, ErrorCode, Severity};
use super::spec::{ACTIONS, METRICS_SETTINGS, METRICS_TYPES, PluginSpec, PolicySpec, UPSTREAM_PLUGINS};
use super::yaml::{DocumentLocation, DocumentPath, Mark, shown_name};
use crate::plugins;

/// Largest number of plugins in a document; each is printed with all its switches.
const MAX_PLUGINS: usize = 500;
/// Remedy for an action that Volcano does not have, such as `gpupack` of a fork.
const OWN_ACTION: &str = "if it is your own scheduler's action, remove it here";

/// Splits the list of actions. Volcano splits names at commas and has no empty name. `hint` is appended to the error
/// about an empty list.
pub(super) fn parse_actions(
    text: &str,
    at: &DocumentLocation,
    hint: &str,
    report: &mut DiagnosticReport,
) -> Vec<String> {
    if text.trim().is_empty() {
        let message = format!("no actions; expected a list such as `enqueue, allocate`{hint}");
        report.error(ErrorCode::ActionsMissing, at, message);
        return Vec::new();
    }
    let mut names: Vec<String> = Vec::new();
    let mut seen = BTreeSet::new();
    for name in text.split(',').map(str::trim) {
        if name.is_empty() {
            report.error(ErrorCode::ActionUnknown, at, "an empty item in the list of actions");
        } else if !ACTIONS.contains(&name) {
            let mut hint = report.suggestion(Severity::Error, name, &ACTIONS);
            if hint.is_empty() {
                hint = format!("; known are: {}", ACTIONS.join(", "));
            }
            let message = format!("unknown action `{}`: {OWN_ACTION}{hint}", shown_name(name));
            report.error(ErrorCode::ActionUnknown, at, message);
        } else if !seen.insert(name) {
            let message = format!("action `{name}` is listed twice and runs twice");
            report.warning(ErrorCode::ActionDuplicate, at, message);
        }
        names.push(name.to_owned());
    }
    names
}

/// Refuses actions that the release does not have: it refuses the whole document.
pub(super) fn check_gang_actions(
    actions: &[String],
    at: &DocumentLocation,
    compatibility: Compatibility,
    report: &mut DiagnosticReport,
) {
    if compatibility.release().rules().has_gang_actions {
        return;
    }
    let is_of_gangs = |action: &&String| matches!(action.as_str(), "gangpreempt" | "gangreclaim");
    for action in actions.iter().filter(is_of_gangs) {
        let message = format!(
            "{} has no action `{action}`, and refuses the document: remove it, or follow a later release",
            compatibility.name()
        );
        report.error(ErrorCode::ActionUnknown, at, message);
    }
}

/// Warns of an action that evicts and stands before `allocate`: a task for which others were evicted finds its place free,
/// takes it as one that waits, and is never bound.
pub(super) fn check_action_order(actions: &[String], at: &DocumentLocation, report: &mut DiagnosticReport) {
    const EVICTING: [&str; 4] = ["preempt", "reclaim", "gangpreempt", "gangreclaim"];
    let allocates = actions.iter().any(|action| action == "allocate");
    let before = actions.iter().take_while(|action| *action != "allocate");
    let mut seen = BTreeSet::new();
    for action in before.filter(|action| EVICTING.contains(&action.as_str()) && seen.insert(action.as_str())) {
        let message = if allocates {
            format!(
                "`{action}` stands before `allocate`: in Volcano a task for which others were evicted then waits for ever on the \
                 place that they left; put `allocate` before `{action}`"
            )
        } else {
            format!(
                "`{action}` runs without `allocate`: in Volcano no action binds a task for which others were evicted; put \
                 `allocate` before `{action}`"
            )
        };
        report.warning(ErrorCode::ActionOrder, at, message);
    }
}

/// Warns about a setting of the metrics source whose key or type is close to a name that Volcano reads. Other keys are
/// ignored: a fork may read them.
pub(super) fn check_metrics_setting(key: &str, value: &str, at: &DocumentLocation, report: &mut DiagnosticReport) {
    let message = if !METRICS_SETTINGS.contains(&key) {
        let hint = report.suggestion(Severity::Warning, key, &METRICS_SETTINGS);
        (!hint.is_empty()).then(|| format!("Volcano reads no setting `{}`{hint}", shown_name(key)))
    } else if key == "type" && !METRICS_TYPES.contains(&value) {
        let hint = report.suggestion(Severity::Warning, value, &METRICS_TYPES);
        let value = shown_name(value);
        (!hint.is_empty()).then(|| format!("Volcano has no metrics source of type `{value}`{hint}"))
    } else {
        None
    };
    if let Some(message) = message {
        report.warning(ErrorCode::KeyUnknown, at, message);
    }
}

/// Checks the plugins, tier by tier.
pub(super) fn check_tiers(
    spec: &PolicySpec,
    served: &[&str],
    compatibility: Compatibility,
    report: &mut DiagnosticReport,
) {
    let count = spec.plugins().count();
    if count > MAX_PLUGINS {
        let at = DocumentPath::default().key("tiers").at(Mark::START);
        let message = format!("{count} plugins are more than the limit of {MAX_PLUGINS}");
        report.error(ErrorCode::YamlLimit, &at, message);
        return;
    }
    if compatibility == Compatibility::Corrected {
        two_quotas(spec, served, report);
    }
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for plugins in &spec.tiers {
        check_conflicts(plugins, report);
        for plugin in plugins {
            let count = seen.entry(&plugin.name).or_default();
            *count += 1;
            if *count == 1 {
                check_plugin_name(plugin, served, report);
            } else {
                warn_duplicate_plugin(plugin, report);
            }
        }
    }
}

/// Quotas of queues that two plugins account for, each in its own way: Volcano's document forbids it.
fn two_quotas(spec: &PolicySpec, served: &[&str], report: &mut DiagnosticReport) {
    let plugins = || spec.tiers.iter().flatten();
    let keeps_quotas = |name: &str| plugins::find(name).is_some_and(|def| def.keeps_quotas);
    let is_keeper = |plugin: &&PluginSpec| served.contains(&plugin.name.as_str()) && keeps_quotas(&plugin.name);
    let Some(keeper) = plugins().find(is_keeper) else {
        return;
    };
    for other in plugins().filter(|plugin| plugin.name != keeper.name && is_keeper(plugin)) {
        let message = format!(
            "`{}` and `{}` both keep quotas of queues, and what one admits the other may refuse; expected one of them",
            keeper.name, other.name
        );
        report.warning(ErrorCode::QuotasConflict, &other.at, message);
    }
}

fn check_conflicts(tier: &[PluginSpec], report: &mut DiagnosticReport) {
    for plugin in tier {
        let Some((switch, other)) = plugins::find(&plugin.name).and_then(|def| def.excludes) else {
            continue;
        };
        if plugin.switches.written(switch) == Some(true) && tier.iter().any(|plugin| plugin.name == other) {
            let message = format!(
                "`{}` with `{}: true` and `{other}` exclude each other in one tier",
                plugin.name,
                switch.key()
            );
            report.error(ErrorCode::PluginsConflict, &plugin.at, message);
            return;
        }
    }
}

fn check_plugin_name(plugin: &PluginSpec, served: &[&str], report: &mut DiagnosticReport) {
    let name = plugin.name.as_str();
    if served.contains(&name) {
        return;
    }
    let what = if name.is_empty() {
        "a plugin without a name".to_owned()
    } else {
        format!("unknown plugin `{}`", shown_name(name))
    };
    report.unserved_plugin(name, &plugin.at, &what, [served, &UPSTREAM_PLUGINS]);
}

fn warn_duplicate_plugin(plugin: &PluginSpec, report: &mut DiagnosticReport) {
    let message = if plugin.name.is_empty() {
        "another plugin without a name; it has no effect".to_owned()
    } else {
        format!(
            "plugin `{}` appears more than once; the last entry is called for all of them, once for each",
            shown_name(&plugin.name)
        )
    };
    report.warning(ErrorCode::PluginDuplicate, &plugin.at, message);
}
