//! Arguments of actions (section `configurations:`): which are evaluated, which are not, and which nobody reads.

use std::sync::Arc;

use super::args::{PluginArgument, PluginArguments};
use super::diagnostics::{DiagnosticReport, ErrorCode, Severity};
use super::spec::{ACTIONS, ActionConfiguration, PolicySpec};
use super::unserved::UnservedEffect;
use super::yaml::shown_name;

/// Switch of the cache of nodes that failed for a role.
const ERROR_CACHE: &str = "predicateErrorCacheEnable";
/// Switch of the other search for victims.
const TOPOLOGY_AWARE: &str = "enableTopologyAwarePreemption";
/// Arguments that Volcano reads only in that search.
const TOPOLOGY_AWARE_BOUNDS: [&str; 4] = [
    "topologyAwarePreemptWorkerNum",
    "minCandidateNodesPercentage",
    "minCandidateNodesAbsolute",
    "maxCandidateNodesAbsolute",
];
/// Effect of the other search for victims.
const TOPOLOGY_AWARE_EFFECT: &str = "Victims may be others, or none: on each candidate node Volcano takes the less important pods \
                                     away and adds back what may stay.";

/// Keys that Volcano reads from the arguments of an action (Volcano ed72c7c81, pkg/scheduler/actions).
fn known_keys(action: &str) -> Vec<&'static str> {
    match action {
        "allocate" | "backfill" | "reclaim" => vec![ERROR_CACHE],
        "preempt" => [ERROR_CACHE, TOPOLOGY_AWARE]
            .into_iter()
            .chain(TOPOLOGY_AWARE_BOUNDS)
            .collect(),
        "gangpreempt" | "gangreclaim" => vec!["maxDomains", "allowWholeBundle"],
        _ => Vec::new(),
    }
}

/// Argument of an action: of the first entry with its name, as in Volcano.
fn argument<'s>(spec: &'s PolicySpec, action: &str, key: &str) -> Option<PluginArgument<'s>> {
    let own = spec.configurations.iter().find(|own| own.name == action)?;
    own.arguments.as_ref()?.get(key)
}

/// True if the search for victims is one that is not served.
fn is_topology_aware(spec: &PolicySpec) -> bool {
    argument(spec, "preempt", TOPOLOGY_AWARE).and_then(|value| value.lenient_bool()) == Some(true)
}

impl PolicySpec {
    /// True if an action does not judge nodes again that failed for another task of the role. The reference alone does so.
    pub fn uses_error_cache(&self, action: &str) -> bool {
        argument(self, action, ERROR_CACHE)
            .and_then(|value| value.lenient_bool())
            .unwrap_or(true)
    }
}

/// Arguments of the document's actions that cycles do not evaluate.
pub(super) fn unserved(spec: &PolicySpec) -> Option<UnservedEffect> {
    let runs = spec.actions.iter().any(|action| action == "preempt");
    (runs && is_topology_aware(spec))
        .then(|| UnservedEffect::of_cycles(Arc::from(format!("preempt.{TOPOLOGY_AWARE}")), TOPOLOGY_AWARE_EFFECT))
}

/// Warns of arguments that have no effect: of actions that Volcano does not have, of keys that an action does not read, and
/// of those that are not evaluated here.
pub(super) fn check(spec: &PolicySpec, report: &mut DiagnosticReport) {
    for (number, configuration) in spec.configurations.iter().enumerate() {
        let name = configuration.name.as_str();
        if name.is_empty() {
            continue;
        }
        let before = spec.configurations.get(..number).unwrap_or_default();
        if !ACTIONS.contains(&name) {
            warn_of_action(configuration, report);
        } else if before.iter().any(|other| other.name == name) {
            let message = format!("the arguments of `{name}` appear twice; the first entry counts");
            report.warning(ErrorCode::ArgumentIgnored, &configuration.at, message);
        } else {
            check_keys(spec, configuration, report);
        }
    }
}

/// Warns of an action that Volcano does not have, and names its arguments.
fn warn_of_action(configuration: &ActionConfiguration, report: &mut DiagnosticReport) {
    let hint = report.suggestion(Severity::Warning, &configuration.name, &ACTIONS);
    let keys = configuration.arguments.iter().flat_map(PluginArguments::iter);
    let keys: Vec<String> = keys.map(|(key, _)| format!("`{}`", shown_name(key))).take(8).collect();
    let keys = if keys.is_empty() {
        String::new()
    } else {
        format!(" ({})", keys.join(", "))
    };
    let message = format!(
        "no action is named `{}`; these arguments{keys} have no effect{hint}",
        shown_name(&configuration.name)
    );
    report.warning(ErrorCode::KeyUnknown, &configuration.at, message);
}

/// Warns of the keys of one action.
fn check_keys(spec: &PolicySpec, configuration: &ActionConfiguration, report: &mut DiagnosticReport) {
    let action = configuration.name.as_str();
    let known = known_keys(action);
    let Some(arguments) = &configuration.arguments else {
        return;
    };
    for (key, value) in arguments.iter() {
        let at = arguments.key_at(key);
        if !known.contains(&key) {
            let hint = report.suggestion(Severity::Warning, key, &known);
            let key = shown_name(key);
            let message = format!("the action `{action}` reads no argument `{key}`; it has no effect{hint}");
            report.warning(ErrorCode::ArgumentUnknownKey, &at, message);
            continue;
        }
        let switch = matches!(key, ERROR_CACHE | TOPOLOGY_AWARE);
        let message = match value.lenient_bool() {
            None if switch => {
                let kind = value.value().kind();
                format!("`{key}` is a bool, found {kind}; the default is used")
            }
            _ if key == ERROR_CACHE => continue,
            Some(true) if key == TOPOLOGY_AWARE => format!(
                "`{key}` is not evaluated: cycles choose victims as without it, and may evict tasks where Volcano evicts others \
                 or none"
            ),
            _ if key == TOPOLOGY_AWARE => continue,
            _ if !TOPOLOGY_AWARE_BOUNDS.contains(&key) => {
                format!("`{key}` is not evaluated, because the action `{action}` is not simulated")
            }
            _ if is_topology_aware(spec) => format!("`{key}` is not evaluated, as `{TOPOLOGY_AWARE}` is not"),
            _ => format!("`{key}` has an effect only with `{TOPOLOGY_AWARE}: true`"),
        };
        report.warning(ErrorCode::ArgumentIgnored, &at, message);
    }
}
