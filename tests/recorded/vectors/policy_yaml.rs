//! Family policy-yaml: the values that the loader reads from a document.

use pumice_engine::policy::{
    Compatibility, ErrorCode, LoadOptions, PluginArguments, PluginSpec, PolicyRejectionKind, PolicySpec, Switch,
    YamlLimits, YamlValue, load, spec,
};
use serde_json::Value as Json;

use super::{VectorDifferences, VectorVerdict};

/// Result of loading the document of a case.
#[derive(Debug)]
pub(crate) enum PolicyLoadResult<'a> {
    /// The document was accepted: text of `loaded_document`.
    Loaded(&'a str),
    /// The document was rejected: codes of its errors in order.
    Rejected(&'a [&'a str]),
}

/// Compares a recorded result with the service's: rejected or not, the kind of the first error, every typed value.
pub(crate) fn check(case: &Json, result: &PolicyLoadResult<'_>) -> VectorVerdict {
    let expect = &case["expect"];
    let expected_kind = expect["error"]["kind"].as_str();
    let mut differences = VectorDifferences::default();
    match result {
        PolicyLoadResult::Loaded(_) if expected_kind.is_some() => differences.same("refused as", &expected_kind, &None),
        PolicyLoadResult::Loaded(document) => compare(&mut differences, expect, document),
        PolicyLoadResult::Rejected(codes) => {
            let ours = codes.iter().find(|problem| !problem.starts_with("ARGUMENT_"));
            if ours.is_none() && expected_kind.is_none() {
                return VectorVerdict::NotServed("document refused for a plugin's own arguments".to_owned());
            }
            let kind = ours
                .and_then(|problem| PolicyRejectionKind::of(code(problem)?))
                .map(kind_name);
            differences.same(
                "refused as",
                &expected_kind,
                &kind.or(Some("no kind of the reference's")),
            );
        }
    }
    differences.verdict()
}

fn code(name: &str) -> Option<ErrorCode> {
    let mut all = ErrorCode::SECTIONS.iter().flat_map(|(_, codes)| *codes).copied();
    all.find(|code| code.name() == name)
}

fn kind_name(kind: PolicyRejectionKind) -> &'static str {
    match kind {
        PolicyRejectionKind::Yaml => "yaml",
        PolicyRejectionKind::YamlType => "yaml-type",
        PolicyRejectionKind::Conflict => "conflict",
        PolicyRejectionKind::UnknownAction => "unknown-action",
    }
}

fn compare(differences: &mut VectorDifferences, expect: &Json, document: &str) {
    let limits = YamlLimits {
        bytes: usize::MAX,
        ..YamlLimits::default()
    };
    let options = LoadOptions {
        limits,
        compatibility: Compatibility::UPSTREAM,
        served: &[],
    };
    let loaded = load(document, &options);
    let Some(spec) = loaded.spec.filter(|_| !loaded.report.has_errors()) else {
        differences.differ("loaded document", "one that loads again", &loaded.report.diagnostics);
        return;
    };
    let actions: Vec<&str> = expect["actions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|a| a.as_str().unwrap())
        .collect();
    differences.same("actions", &actions, &spec.actions.iter().map(String::as_str).collect());
    compare_tiers(differences, expect["tiers"].as_array().unwrap(), &spec);
    let configurations = expect["configurations"].as_array().unwrap();
    differences.same("configurations", &configurations.len(), &spec.configurations.len());
    for (at, (expected, got)) in configurations.iter().zip(&spec.configurations).enumerate() {
        let what = format!("configurations[{at}]");
        differences.same(&what, expected["name"].as_str().unwrap(), &got.name);
        compare_arguments(differences, &what, &expected["arguments"], got.arguments.as_ref());
    }
    let metrics = spec
        .metrics
        .map(|metrics| metrics.into_iter().map(|(k, v)| (k, Json::String(v))).collect());
    differences.same("metrics", &expect["metrics"], &metrics.map_or(Json::Null, Json::Object));
}

fn compare_tiers(differences: &mut VectorDifferences, expected: &[Json], spec: &PolicySpec) {
    differences.same("tiers", &expected.len(), &spec.tiers.len());
    for (tier, (expected, got)) in expected.iter().zip(&spec.tiers).enumerate() {
        let expected = expected["plugins"].as_array().unwrap();
        differences.same(&format!("plugins of tier {tier}"), &expected.len(), &got.len());
        for (at, (expected, got)) in expected.iter().zip(got).enumerate() {
            compare_plugin(differences, &format!("tiers[{tier}].plugins[{at}]"), expected, got);
        }
    }
}

fn compare_plugin(differences: &mut VectorDifferences, what: &str, expected: &Json, got: &PluginSpec) {
    differences.same(&format!("{what}.name"), expected["name"].as_str().unwrap(), &got.name);
    let known = spec::UPSTREAM_PLUGINS.contains(&got.name.as_str());
    differences.same(
        &format!("{what}: known upstream"),
        &expected["known_upstream"],
        &Json::Bool(known),
    );
    for (list, effect) in [("off", Some(false)), ("unset", None)] {
        let mut switches: Vec<&str> = Switch::ALL
            .into_iter()
            .filter(|switch| got.switches.effective(*switch) == effect)
            .map(Switch::key)
            .collect();
        switches.sort_unstable();
        differences.same(&format!("{what}: {list}"), &expected[list], &Json::from(switches));
    }
    compare_arguments(differences, what, &expected["arguments"], got.arguments.as_ref());
    for (key, argument) in got.arguments.iter().flat_map(PluginArguments::iter) {
        let what = format!("{what}.arguments[{key:?}] read as");
        let expected = &expected["read_as"][key];
        let int = expected["int"].as_str().map(|n| n.parse().unwrap());
        differences.same(&format!("{what} int"), &int, &argument.lenient_int());
        let float = expected["float"].as_str().map(|x| YamlValue::Float(x.parse().unwrap()));
        let got = argument.lenient_float().map(YamlValue::Float);
        if !same(float.as_ref(), got.as_ref()) {
            differences.differ(&format!("{what} float"), &float, &got);
        }
        differences.same(
            &format!("{what} bool"),
            &expected["bool"].as_bool(),
            &argument.lenient_bool(),
        );
    }
}

fn same(a: Option<&YamlValue>, b: Option<&YamlValue>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a.same(b),
        (a, b) => a.is_none() && b.is_none(),
    }
}

fn compare_arguments(differences: &mut VectorDifferences, what: &str, expected: &Json, got: Option<&PluginArguments>) {
    let what = format!("{what}.arguments");
    let (Some(expected), Some(got)) = (expected.as_object(), got) else {
        differences.same(&what, &expected.is_null(), &got.is_none());
        return;
    };
    differences.same(&format!("{what}: how many"), &expected.len(), &got.iter().count());
    for (key, expected) in expected {
        let expected = typed(expected);
        let got = got.get(key).map(|argument| argument.value().clone());
        if !same(Some(&expected), got.as_ref()) {
            differences.differ(&format!("{what}[{key:?}]"), &expected, &got);
        }
    }
}

/// Value as the recordings write it: `["int", "5"]`.
fn typed(json: &Json) -> YamlValue {
    let content = &json[1];
    let text = || content.as_str().unwrap();
    match json[0].as_str().unwrap() {
        "null" => YamlValue::Null,
        "bool" => YamlValue::Bool(content.as_bool().unwrap()),
        "int" => YamlValue::Int(text().parse().unwrap()),
        "uint" => YamlValue::UInt(text().parse().unwrap()),
        "float" => YamlValue::Float(text().parse().unwrap()),
        "string" => YamlValue::String(text().to_owned()),
        "list" => YamlValue::List(content.as_array().unwrap().iter().map(node).collect()),
        "map" => {
            let pairs = content.as_array().unwrap();
            YamlValue::Map(pairs.iter().map(|pair| (node(&pair[0]), node(&pair[1]))).collect())
        }
        other => panic!("unknown type {other:?} in a recording"),
    }
}

fn node(json: &Json) -> pumice_engine::policy::YamlNode {
    pumice_engine::policy::YamlNode::new(typed(json))
}
