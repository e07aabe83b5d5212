//! Values of the Helm chart: their schema has every setting of the server, with its bounds.

use pumice::config::{Setting, settings};
use pumice::server::limits::LIMITS;
use serde_json::{Map, Value, json};

use super::repository;

/// Settings that the chart itself sets: addresses and paths in the pod.
const SET_BY_THE_CHART: [&str; 5] = ["grpc_address", "grpc_socket", "http_address", "data_dir", "policy_file"];

/// A whole number within bounds, or text with a unit.
fn number(bounds: Option<(u64, u64)>, text: Option<&str>) -> Value {
    let mut number = json!({"type": "integer", "minimum": bounds.map_or(0, |(least, _)| least)});
    if let Some((_, most)) = bounds {
        number["maximum"] = most.into();
    }
    match text {
        Some(pattern) => json!({"anyOf": [number, {"type": "string", "pattern": pattern}]}),
        None => number,
    }
}

/// Schema of one setting.
fn schema(setting: &Setting) -> Value {
    let limit = LIMITS.iter().find(|limit| limit.name == setting.name);
    let bounds = limit.map(|limit| (limit.least, limit.most));
    let mut schema = match (setting.name, setting.value_name) {
        // The chart adds the two up, to compare them with the pod's grace period.
        ("drain_delay_ms" | "drain_deadline_ms", _) => number(Some((0, 86_400_000)), None),
        (_, "MS") => number(bounds, Some("^[0-9]+(ms|s|m|h|d)?$")),
        (_, "BYTES") => number(bounds, Some("^[0-9]+(Ki|Mi|Gi)?$")),
        (_, "COUNT") => number(bounds, None),
        (_, "RATIO") => json!({"type": "number", "minimum": 0, "maximum": 1}),
        (_, "FORMAT") => json!({"type": "string", "enum": ["text", "json"]}),
        ("compatibility", _) => json!({"type": "string", "enum": ["corrected", "upstream"]}),
        _ if setting.is_list() => json!({"type": "array", "items": {"type": "string", "minLength": 1}}),
        _ => json!({"type": "string"}),
    };
    schema["description"] = setting.help.into();
    schema
}

#[test]
fn the_schema_of_the_chart_has_every_setting() {
    let path = repository().join("deploy/helm/pumice/values.schema.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut document: Value = serde_json::from_str(&text).unwrap();
    let listed = settings().filter(|setting| !SET_BY_THE_CHART.contains(&setting.name));
    let listed: Map<String, Value> = listed
        .map(|setting| (setting.name.to_owned(), schema(&setting)))
        .collect();
    document["properties"]["settings"]["properties"] = listed.into();
    let current = serde_json::to_string_pretty(&document).unwrap() + "\n";
    if std::env::var_os("PUMICE_BLESS").is_some() {
        std::fs::write(&path, &current).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap();
    assert!(
        found == current,
        "values.schema.json is not current: PUMICE_BLESS=1 rewrites it"
    );
}
