//! Arguments of the plugins, decoded as strictly as kube-scheduler decodes and validates them.

use std::sync::Arc;

use super::allocation::{AllocationRules, NodeFitResource, NodeFitStrategy};
use crate::model::constraints::is_qualified_name;
use crate::plugins::effective_values::{map_entry, value_map};
use crate::plugins::inter_pod::ExistingPodTerms;
use crate::plugins::strict_arguments::{report_type_mismatch, report_unknown_key};
use crate::policy::{DiagnosticReport, DocumentLocation, ErrorCode, PluginArguments, YamlNode, YamlValue};

/// Largest weight of a resource and of a required term, and largest use of a shape in percent.
pub(super) const MAX_HUNDRED: i64 = 100;
/// Largest score of a point of a shape; the score of a plugin is ten times as large.
const MAX_SHAPE_SCORE: i64 = 10;

const TYPE_FIELDS: [&str; 2] = ["apiVersion", "kind"];

/// Value with its location.
pub(super) type Located<'a> = (&'a YamlValue, DocumentLocation);

/// Arguments by key, without the keys of the type. An unknown key is an error.
pub(super) fn fields<'a>(
    arguments: &'a PluginArguments,
    known: &[&str],
    report: &mut DiagnosticReport,
) -> Vec<(&'a str, Located<'a>)> {
    let mut found = Vec::new();
    for (key, argument) in arguments.iter() {
        if known.contains(&key) {
            if !argument.is_null() {
                found.push((key, (argument.value(), argument.at())));
            }
        } else if !TYPE_FIELDS.contains(&key) {
            report_unknown_key(key, known, &arguments.key_at(key), report);
        }
    }
    found
}

/// Fields of a map below the arguments, likewise.
pub(super) fn map_fields<'a>(
    (value, at): &Located<'a>,
    known: &[&str],
    report: &mut DiagnosticReport,
) -> Vec<(&'a str, Located<'a>)> {
    let YamlValue::Map(pairs) = value else {
        report_type_mismatch(at, "a map", value, report);
        return Vec::new();
    };
    let mut found = Vec::new();
    for (key, value) in pairs {
        let own = |name: &str, node: &YamlNode| DocumentLocation {
            mark: node.mark,
            path: format!("{}.{name}", at.path),
        };
        let YamlValue::String(name) = &key.value else {
            report_type_mismatch(at, "a text as key", &key.value, report);
            continue;
        };
        if !known.contains(&name.as_str()) {
            report_unknown_key(name, known, &own(name, key), report);
        } else if !matches!(value.value, YamlValue::Null) {
            found.push((name.as_str(), (&value.value, own(name, value))));
        }
    }
    found
}

pub(super) fn items<'a>((value, at): &Located<'a>, report: &mut DiagnosticReport) -> Vec<Located<'a>> {
    let YamlValue::List(items) = value else {
        report_type_mismatch(at, "a list", value, report);
        return Vec::new();
    };
    let located = items.iter().enumerate().map(|(number, item)| {
        let at = DocumentLocation {
            mark: item.mark,
            path: format!("{}[{number}]", at.path),
        };
        (&item.value, at)
    });
    located.collect()
}

/// Integer of a range; `None` after an error.
pub(super) fn integer(
    (value, at): &Located<'_>,
    (least, most): (i64, i64),
    report: &mut DiagnosticReport,
) -> Option<i64> {
    let YamlValue::Int(number) = value else {
        report_type_mismatch(at, "an integer", value, report);
        return None;
    };
    if *number < least || *number > most {
        report.error(
            ErrorCode::ArgumentRange,
            at,
            format!("{number} is not from {least} to {most}"),
        );
        return None;
    }
    Some(*number)
}

pub(super) fn text<'a>((value, at): &Located<'a>, report: &mut DiagnosticReport) -> Option<&'a str> {
    if let YamlValue::String(text) = value {
        return Some(text);
    }
    report_type_mismatch(at, "a string", value, report);
    None
}

/// Arguments of a plugin that reads none.
pub(super) fn read_none(arguments: &PluginArguments, report: &mut DiagnosticReport) {
    if !arguments.is_empty() {
        let message = "the plugin reads no arguments".to_owned();
        report.warning(ErrorCode::ArgumentIgnored, &arguments.at(), message);
    }
}

/// `InterPodAffinityArgs`.
pub(super) fn read_inter_pod_affinity(
    arguments: &PluginArguments,
    report: &mut DiagnosticReport,
) -> (ExistingPodTerms, YamlValue) {
    const POINTS: &str = "hardPodAffinityWeight";
    const IGNORE: &str = "ignorePreferredTermsOfExistingPods";
    let mut terms = ExistingPodTerms {
        required_points: 1,
        only_for_preferring: false,
    };
    for (key, located) in fields(arguments, &[POINTS, IGNORE], report) {
        if key == POINTS {
            let points = integer(&located, (0, MAX_HUNDRED), report).and_then(|points| i32::try_from(points).ok());
            terms.required_points = points.unwrap_or(terms.required_points);
        } else if let (YamlValue::Bool(ignores), _) = located {
            terms.only_for_preferring = *ignores;
        } else {
            report_type_mismatch(&located.1, "a bool", located.0, report);
        }
    }
    let effective = [
        map_entry(POINTS, YamlValue::Int(i64::from(terms.required_points))),
        map_entry(IGNORE, YamlValue::Bool(terms.only_for_preferring)),
    ];
    (terms, value_map(effective))
}

/// `NodeResourcesBalancedAllocationArgs`.
pub(super) fn read_balanced(
    arguments: &PluginArguments,
    report: &mut DiagnosticReport,
) -> (AllocationRules, YamlValue) {
    let mut resources = Vec::new();
    for (_, located) in fields(arguments, &[RESOURCES], report) {
        resources = read_resources(&located, 1, report);
        for (number, own) in resources.iter().enumerate() {
            if resources.iter().take(number).any(|other| other.name == own.name) {
                let message = format!("`{}` is listed twice", own.name);
                report.error(ErrorCode::ArgumentInvalid, &located.1, message);
            }
        }
    }
    let resources = or_default(resources);
    let effective = value_map([map_entry(RESOURCES, resource_list(&resources))]);
    let rules = AllocationRules {
        strategy: NodeFitStrategy::Balanced,
        resources,
    };
    (rules, effective)
}

const RESOURCES: &str = "resources";

/// Resources with their weights. 0 is treated as 1.
fn read_resources(located: &Located<'_>, most: i64, report: &mut DiagnosticReport) -> Vec<NodeFitResource> {
    let mut resources = Vec::new();
    for item in items(located, report) {
        let (mut name, mut weight) = ("", 1);
        for (key, located) in map_fields(&item, &["name", "weight"], report) {
            if key == "name" {
                name = text(&located, report).unwrap_or(name);
            } else {
                let written = integer(&located, (0, most), report);
                weight = written.filter(|written| *written != 0).unwrap_or(1);
            }
        }
        resources.push(NodeFitResource {
            name: name.into(),
            weight,
        });
    }
    resources
}

/// Resources, or cpu and memory if there are none.
fn or_default(resources: Vec<NodeFitResource>) -> Vec<NodeFitResource> {
    if !resources.is_empty() {
        return resources;
    }
    let default = ["cpu", "memory"].map(|name| NodeFitResource {
        name: name.into(),
        weight: 1,
    });
    default.into()
}

fn resource_list(resources: &[NodeFitResource]) -> YamlValue {
    let entries = resources.iter().map(|own| {
        let fields = [
            map_entry("name", YamlValue::String(own.name.to_string())),
            map_entry("weight", YamlValue::Int(own.weight)),
        ];
        YamlNode::new(value_map(fields))
    });
    YamlValue::List(entries.collect())
}

/// Extended resources whose amounts are not checked.
#[derive(Clone, Debug, Default)]
pub(super) struct IgnoredResources {
    names: Vec<Arc<str>>,
    /// Parts of names before `/`.
    groups: Vec<Arc<str>>,
}

impl IgnoredResources {
    /// True if the amounts of a resource are not checked. Kubernetes' own resources, such as cpu, are always checked.
    pub(super) fn contains(&self, name: &str) -> bool {
        let Some((group, _)) = name.split_once('/') else {
            return false;
        };
        is_extended(name)
            && (self.names.iter().any(|own| **own == *name) || self.groups.iter().any(|own| **own == *group))
    }
}

/// True for resources that belong to no part of Kubernetes.
fn is_extended(name: &str) -> bool {
    name.contains('/')
        && !name.contains("kubernetes.io/")
        && !name.starts_with("requests.")
        && is_qualified_name(&format!("requests.{name}"))
}

/// Reads the names of ignored resources, or of their groups.
fn read_ignored(located: &Located<'_>, is_group: bool, report: &mut DiagnosticReport) -> Vec<Arc<str>> {
    let mut names = Vec::new();
    for item in items(located, report) {
        let Some(name) = text(&item, report) else { continue };
        let message = if is_group && name.contains('/') {
            Some(format!(
                "`{name}` is a name, not a group of resources: leave out what stands behind `/`"
            ))
        } else if is_qualified_name(name) {
            None
        } else {
            Some(format!("`{name}` is no name of a resource"))
        };
        if let Some(message) = message {
            report.error(ErrorCode::ArgumentInvalid, &item.1, message);
        }
        names.push(Arc::from(name));
    }
    names
}

/// Read `NodeResourcesFitArgs`.
pub(super) struct ResourcesFitArguments {
    pub(super) rules: AllocationRules,
    /// Resources whose amounts are not checked.
    pub(super) ignored: IgnoredResources,
    pub(super) effective: YamlValue,
}

/// `NodeResourcesFitArgs`.
pub(super) fn read_resources_fit(arguments: &PluginArguments, report: &mut DiagnosticReport) -> ResourcesFitArguments {
    const STRATEGY: &str = "scoringStrategy";
    const IGNORED: [&str; 2] = ["ignoredResources", "ignoredResourceGroups"];
    let mut rules = AllocationRules {
        strategy: NodeFitStrategy::Least,
        resources: Vec::new(),
    };
    let (mut shape, mut ignored) = (None, IgnoredResources::default());
    let mut effective = Vec::new();
    for (key, located) in fields(arguments, &[STRATEGY, IGNORED[0], IGNORED[1]], report) {
        if key == STRATEGY {
            (rules, shape) = read_strategy(&located, report);
            continue;
        }
        let is_group = key == IGNORED[1];
        let names = read_ignored(&located, is_group, report);
        if !names.is_empty() {
            effective.push(map_entry(key, located.0.clone()));
        }
        if is_group {
            ignored.groups = names;
        } else {
            ignored.names = names;
        }
    }
    rules.resources = or_default(rules.resources);
    let kind = match &rules.strategy {
        NodeFitStrategy::Most => "MostAllocated",
        NodeFitStrategy::Ratio(_) => "RequestedToCapacityRatio",
        NodeFitStrategy::Least | NodeFitStrategy::Balanced => "LeastAllocated",
    };
    let mut strategy = vec![
        map_entry("type", YamlValue::String(kind.to_owned())),
        map_entry(RESOURCES, resource_list(&rules.resources)),
    ];
    strategy.extend(shape);
    effective.push(map_entry(STRATEGY, value_map(strategy)));
    ResourcesFitArguments {
        rules,
        ignored,
        effective: value_map(effective),
    }
}

/// Strategy, and its shape as it is written.
fn read_strategy(
    located: &Located<'_>,
    report: &mut DiagnosticReport,
) -> (AllocationRules, Option<(String, YamlValue)>) {
    const RATIO: &str = "requestedToCapacityRatio";
    let (mut kind, mut resources, mut line, mut written) = ("LeastAllocated", Vec::new(), None, None);
    for (key, located) in map_fields(located, &["type", RESOURCES, RATIO], report) {
        match key {
            "type" => kind = text(&located, report).unwrap_or(kind),
            RESOURCES => resources = read_resources(&located, MAX_HUNDRED, report),
            _ => {
                for (_, shape) in map_fields(&located, &["shape"], report) {
                    line = Some(read_shape(&shape, report));
                }
                written = Some(map_entry(RATIO, located.0.clone()));
            }
        }
    }
    let strategy = match kind {
        "LeastAllocated" => NodeFitStrategy::Least,
        "MostAllocated" => NodeFitStrategy::Most,
        "RequestedToCapacityRatio" => {
            let line = line.unwrap_or_default();
            if line.is_empty() {
                let message = "the strategy needs `requestedToCapacityRatio.shape` with a point or more".to_owned();
                report.error(ErrorCode::ArgumentInvalid, &located.1, message);
            }
            NodeFitStrategy::Ratio(line)
        }
        other => {
            let message = format!("`{other}` is no strategy of NodeResourcesFit");
            report.error(ErrorCode::ArgumentStrategy, &located.1, message);
            NodeFitStrategy::Least
        }
    };
    let is_ratio = matches!(strategy, NodeFitStrategy::Ratio(_));
    (AllocationRules { strategy, resources }, written.filter(|_| is_ratio))
}

/// Points of a line; its use must rise.
fn read_shape(located: &Located<'_>, report: &mut DiagnosticReport) -> Vec<(i64, i64)> {
    let mut line: Vec<(i64, i64)> = Vec::new();
    for item in items(located, report) {
        let (mut percent, mut score) = (0, 0);
        for (key, located) in map_fields(&item, &["utilization", "score"], report) {
            if key == "utilization" {
                percent = integer(&located, (0, MAX_HUNDRED), report).unwrap_or(percent);
            } else {
                score = integer(&located, (0, MAX_SHAPE_SCORE), report).unwrap_or(score);
            }
        }
        if line.last().is_some_and(|(before, _)| *before >= percent) {
            let message = "`utilization` must rise from point to point".to_owned();
            report.error(ErrorCode::ArgumentInvalid, &item.1, message);
        }
        line.push((percent, score * (MAX_HUNDRED / MAX_SHAPE_SCORE)));
    }
    line
}
