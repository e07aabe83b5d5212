//! Values of the Helm chart: their schema has every setting of the server, with its bounds.

use pumice::config::{Setting, settings};
use serde_json::{Map, Value, json};

use super::repository;
use crate::schemas::setting_schema;

/// Settings that the chart itself sets: addresses and paths in the pod.
const SET_BY_THE_CHART: [&str; 5] = ["grpc_address", "grpc_socket", "http_address", "data_dir", "policy_file"];

/// Schema of one setting of the chart.
fn schema(setting: &Setting) -> Value {
    match setting.name {
        // The chart adds the two up, to compare them with the pod's grace period.
        "drain_delay_ms" | "drain_deadline_ms" => {
            json!({"type": "integer", "minimum": 0, "maximum": 86_400_000, "description": setting.help})
        }
        _ => setting_schema(setting),
    }
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
