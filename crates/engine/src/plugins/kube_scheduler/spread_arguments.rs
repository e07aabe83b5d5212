//! Arguments of `PodTopologySpread`.

use super::arguments::{Located, fields, integer, items, map_fields, text};
use crate::model::constraints::{SpreadConstraint, SpreadPolicy, is_qualified_name};
use crate::plugins::effective_values::{map_entry, value_map};
use crate::plugins::inter_pod::{SpreadDefaults, soft_constraint};
use crate::policy::{DiagnosticReport, ErrorCode, PluginArguments, YamlNode, YamlValue};

const DEFAULTS: &str = "defaultConstraints";
const KIND: &str = "defaultingType";

/// Read `PodTopologySpreadArgs`.
pub(super) struct TopologySpreadArguments {
    /// Constraints of pods that have none of their own.
    pub(super) defaults: SpreadDefaults,
    pub(super) effective: YamlValue,
}

/// `PodTopologySpreadArgs`.
pub(super) fn read_topology_spread(
    arguments: &PluginArguments,
    report: &mut DiagnosticReport,
) -> TopologySpreadArguments {
    let (mut written, mut constraints, mut kind) = (Vec::new(), Vec::new(), "System");
    for (key, located) in fields(arguments, &[DEFAULTS, KIND], report) {
        if key == DEFAULTS {
            written = items(&located, report);
            constraints = read_constraints(&written, report);
            continue;
        }
        match text(&located, report) {
            None | Some("") => {}
            Some(own @ ("System" | "List")) => kind = own,
            Some(other) => {
                let message = format!("`{other}` is neither `System` nor `List`");
                report.error(ErrorCode::ArgumentInvalid, &located.1, message);
            }
        }
    }
    if kind == "System" && !written.is_empty() {
        let message = format!("`{DEFAULTS}` need `{KIND}: List`");
        report.error(ErrorCode::ArgumentInvalid, &arguments.key_at(DEFAULTS), message);
    }
    let mut effective = vec![map_entry(KIND, YamlValue::String(kind.to_owned()))];
    if !written.is_empty() {
        let nodes = written.iter().map(|(value, _)| YamlNode::new((*value).clone()));
        effective.push(map_entry(DEFAULTS, YamlValue::List(nodes.collect())));
    }
    let defaults = if kind == "System" {
        SpreadDefaults::system()
    } else {
        SpreadDefaults {
            constraints,
            scores_unlabelled: false,
        }
    };
    TopologySpreadArguments {
        defaults,
        effective: value_map(effective),
    }
}

/// Default constraints, no two about the same domains with the same effect.
fn read_constraints(written: &[Located<'_>], report: &mut DiagnosticReport) -> Vec<SpreadConstraint> {
    let mut constraints: Vec<SpreadConstraint> = Vec::new();
    for item in written {
        let constraint = read_constraint(item, report);
        let repeats =
            |own: &SpreadConstraint| own.topology_key == constraint.topology_key && own.is_hard == constraint.is_hard;
        if constraints.iter().any(repeats) {
            let message = "another constraint has the same `topologyKey` and `whenUnsatisfiable`".to_owned();
            report.error(ErrorCode::ArgumentInvalid, &item.1, message);
        }
        constraints.push(constraint);
    }
    constraints
}

fn read_constraint(item: &Located<'_>, report: &mut DiagnosticReport) -> SpreadConstraint {
    const KEYS: [&str; 8] = [
        "maxSkew",
        "topologyKey",
        "whenUnsatisfiable",
        "labelSelector",
        "minDomains",
        "nodeAffinityPolicy",
        "nodeTaintsPolicy",
        "matchLabelKeys",
    ];
    // `matchLabelKeys` has no effect: its labels of the pod would be added to the constraint's selector, and that of the owners
    // replaces it.
    let mut constraint = soft_constraint("", 0);
    let mut effect_is_missing = true;
    for (key, located) in map_fields(item, &KEYS, report) {
        match key {
            "maxSkew" => constraint.max_skew = positive(&located, report).unwrap_or(1),
            "minDomains" => constraint.min_domains = positive(&located, report),
            "topologyKey" => constraint.topology_key = text(&located, report).unwrap_or_default().into(),
            "whenUnsatisfiable" => {
                effect_is_missing = false;
                constraint.is_hard = choice(&located, ["DoNotSchedule", "ScheduleAnyway"], report) == Some(0);
            }
            "nodeAffinityPolicy" => constraint.node_affinity_policy = policy(&located, report),
            "nodeTaintsPolicy" => constraint.node_taints_policy = policy(&located, report),
            "labelSelector" => {
                let message = "a default constraint has no selector: that of the pod's owners counts".to_owned();
                report.error(ErrorCode::ArgumentInvalid, &located.1, message);
            }
            _ => drop(items(&located, report)),
        }
    }
    let missing = [
        ("maxSkew", constraint.max_skew == 0),
        ("topologyKey", constraint.topology_key.is_empty()),
        ("whenUnsatisfiable", effect_is_missing),
    ];
    for (name, _) in missing.iter().filter(|(_, is_missing)| *is_missing) {
        let message = format!("a default constraint needs `{name}`");
        report.error(ErrorCode::ArgumentInvalid, &item.1, message);
    }
    if !constraint.topology_key.is_empty() && !is_qualified_name(&constraint.topology_key) {
        let message = format!("`{}` is no name of a label", constraint.topology_key);
        report.error(ErrorCode::ArgumentInvalid, &item.1, message);
    }
    constraint
}

fn positive(located: &Located<'_>, report: &mut DiagnosticReport) -> Option<i32> {
    let number = integer(located, (1, i64::from(i32::MAX)), report)?;
    i32::try_from(number).ok()
}

/// Place of a word among the choices; `None` after an error.
fn choice(located: &Located<'_>, choices: [&str; 2], report: &mut DiagnosticReport) -> Option<usize> {
    let word = text(located, report)?;
    let found = choices.iter().position(|own| *own == word);
    if found.is_none() {
        let [one, other] = choices;
        let message = format!("`{word}` is neither `{one}` nor `{other}`");
        report.error(ErrorCode::ArgumentInvalid, &located.1, message);
    }
    found
}

fn policy(located: &Located<'_>, report: &mut DiagnosticReport) -> SpreadPolicy {
    match choice(located, ["Honor", "Ignore"], report) {
        Some(0) => SpreadPolicy::Honor,
        _ => SpreadPolicy::Ignore,
    }
}
