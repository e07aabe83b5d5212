//! Arguments of `NodeAffinity`: node affinity that a profile adds to each pod.

use super::arguments::{Located, MAX_HUNDRED, fields, integer, items, map_fields, text};
use crate::model::constraints::{NodeSelectorTerm, PreferredTerm, SelectorRequirement};
use crate::plugins::effective_values::{map_entry, value_map};
use crate::policy::{DiagnosticReport, ErrorCode, PluginArguments, YamlValue};

const ADDED: &str = "addedAffinity";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Read `NodeAffinityArgs`.
pub(super) struct AddedAffinity {
    /// Required terms. At least one term must match. `None`: every node matches.
    pub(super) required: Option<Vec<NodeSelectorTerm>>,
    /// Preferred terms.
    pub(super) preferred: Vec<PreferredTerm>,
    pub(super) effective: YamlValue,
}

/// `NodeAffinityArgs`. An invalid term is an error, as for kube-scheduler, which does not start with it.
pub(super) fn read_node_affinity(arguments: &PluginArguments, report: &mut DiagnosticReport) -> AddedAffinity {
    let mut added = AddedAffinity {
        required: None,
        preferred: Vec::new(),
        effective: value_map([]),
    };
    for (_, located) in fields(arguments, &[ADDED], report) {
        for (key, rules) in map_fields(&located, &[REQUIRED, PREFERRED], report) {
            if key == REQUIRED {
                let mut terms = Vec::new();
                for (_, list) in map_fields(&rules, &["nodeSelectorTerms"], report) {
                    terms = items(&list, report)
                        .iter()
                        .map(|item| read_term(item, report))
                        .collect();
                }
                if terms.is_empty() {
                    let message = "without a term no node matches: add one, or leave the list out".to_owned();
                    report.error(ErrorCode::ArgumentInvalid, &rules.1, message);
                }
                added.required = Some(terms);
            } else {
                let list = items(&rules, report);
                added.preferred = list.iter().map(|item| read_preferred(item, report)).collect();
            }
        }
        added.effective = value_map([map_entry(ADDED, located.0.clone())]);
    }
    added
}

fn read_preferred(item: &Located<'_>, report: &mut DiagnosticReport) -> PreferredTerm {
    let mut preferred = PreferredTerm::default();
    for (key, located) in map_fields(item, &["weight", "preference"], report) {
        if key == "weight" {
            let weight = integer(&located, (1, MAX_HUNDRED), report);
            preferred.weight = weight.and_then(|weight| i32::try_from(weight).ok()).unwrap_or(1);
        } else {
            preferred.term = read_term(&located, report);
        }
    }
    if preferred.weight == 0 {
        let message = format!("a preference needs a `weight` from 1 to {MAX_HUNDRED}");
        report.error(ErrorCode::ArgumentInvalid, &item.1, message);
    }
    preferred
}

fn read_term(item: &Located<'_>, report: &mut DiagnosticReport) -> NodeSelectorTerm {
    let mut term = NodeSelectorTerm::default();
    for (key, located) in map_fields(item, &["matchExpressions", "matchFields"], report) {
        let list = items(&located, report);
        let requirements = list.iter().map(|item| read_requirement(item, report)).collect();
        if key == "matchExpressions" {
            term.match_expressions = requirements;
        } else {
            term.match_fields = requirements;
        }
    }
    if !term.is_valid() {
        let message = "the term is invalid: correct its operators, keys and values".to_owned();
        report.error(ErrorCode::ArgumentInvalid, &item.1, message);
    }
    term
}

fn read_requirement(item: &Located<'_>, report: &mut DiagnosticReport) -> SelectorRequirement {
    let mut requirement = SelectorRequirement::default();
    for (key, located) in map_fields(item, &["key", "operator", "values"], report) {
        match key {
            "key" => requirement.key = text(&located, report).unwrap_or_default().into(),
            "operator" => requirement.operator = text(&located, report).unwrap_or_default().into(),
            _ => {
                let values = items(&located, report);
                let values = values.iter().filter_map(|value| text(value, report));
                requirement.values = values.map(Into::into).collect();
            }
        }
    }
    requirement
}
