//! Schema of policy documents: keys and names of the loader, arguments of the reference.

use std::collections::BTreeMap;

use pumice_engine::plugins::REGISTRY;
use pumice_engine::policy::Switch;
use pumice_engine::policy::spec::{ACTIONS, METRICS_SETTINGS, UPSTREAM_PLUGINS};
use serde_json::{Map, Value, json};

use super::{DRAFT, assert_is_current, closed_object, described};

/// Arguments of each plugin, with their meanings, from the tables of the reference. A key such as `sra.weight` is both a
/// key of `sra` and a key by itself.
fn arguments() -> BTreeMap<String, BTreeMap<String, String>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/policy.md");
    let page = std::fs::read_to_string(path).unwrap();
    let mut plugins = BTreeMap::new();
    for section in page.split("\n## ").skip(1) {
        let title = section.lines().next().unwrap().trim_matches('`');
        if !REGISTRY.iter().any(|plugin| plugin.name == title) {
            continue;
        }
        let mut keys = BTreeMap::new();
        for row in section.lines().filter_map(|line| line.strip_prefix("| `")) {
            let cells: Vec<&str> = row.split(" | ").collect();
            let [names, meaning, unit, default, ..] = cells.as_slice() else {
                panic!("{row}");
            };
            // Annotations and switches stand elsewhere.
            if names.contains(", on ") || names.contains("volcano.sh/") || names.contains("enableHierarchy") {
                continue;
            }
            for name in names.split("`, `").map(|name| name.trim_end_matches('`')) {
                let text = format!("{meaning} ({unit}; default: {default})");
                if let Some((parent, _)) = name.split_once('.').filter(|(parent, _)| *parent != title) {
                    keys.entry(parent.to_owned())
                        .or_insert_with(|| format!("keys of `{parent}`"));
                }
                if !name.contains('<') {
                    keys.insert(name.to_owned(), text);
                }
            }
        }
        plugins.insert(title.to_owned(), keys);
    }
    plugins
}

fn plugin_schema() -> Value {
    let served = REGISTRY.iter().map(|plugin| plugin.name);
    let mut names: Vec<&str> = served.chain(UPSTREAM_PLUGINS).collect();
    names.sort_unstable();
    names.dedup();
    // Names of others are accepted, and listed as not served.
    let name = json!({"anyOf": [{"enum": names}, {"type": "string", "minLength": 1}]});
    let mut properties = Map::new();
    properties.insert("name".to_owned(), described(name, "Name of the plugin"));
    for switch in Switch::ALL {
        let state = if switch.default_on() { "on" } else { "off" };
        let switch_schema = json!({"type": "boolean", "description": format!("Switch; {state} unless set")});
        properties.insert(switch.key().to_owned(), switch_schema);
    }
    let any = json!({"type": ["object", "null"], "description": "Arguments of the plugin"});
    properties.insert("arguments".to_owned(), any);
    let rules: Vec<Value> = arguments()
        .into_iter()
        .filter(|(_, keys)| !keys.is_empty())
        .map(|(plugin, keys)| {
            let keys: Map<String, Value> = keys
                .into_iter()
                .map(|(key, text)| (key, json!({"description": text})))
                .collect();
            json!({
                "if": {"properties": {"name": {"const": plugin}}, "required": ["name"]},
                "then": {"properties": {"arguments": {"properties": keys}}},
            })
        })
        .collect();
    json!({"type": "object", "properties": properties, "required": ["name"], "allOf": rules})
}

fn volcano_schema() -> Value {
    let metrics: Map<String, Value> = METRICS_SETTINGS
        .iter()
        .map(|key| ((*key).to_owned(), json!({"type": ["string", "number", "boolean"]})))
        .collect();
    let action = json!({
        "type": "object",
        "properties": {"name": {"enum": ACTIONS}, "arguments": {"type": ["object", "null"]}},
    });
    let one = format!("({})", ACTIONS.join("|"));
    let pumice = closed_object(
        &json!({
            "compatibility": {"enum": ["corrected", "upstream"], "description": "Pumice's own results, or Volcano's to the last bit"},
            "noResources": {"description": "Of effective documents only"},
        }),
        &[],
    );
    json!({
        "type": "object",
        "properties": {
            "actions": {
                "type": "string",
                "pattern": format!("^\\s*{one}(\\s*,\\s*{one})*\\s*$"),
                "description": format!("Actions that the scheduler runs, such as `enqueue, allocate`; known: {}", ACTIONS.join(", ")),
            },
            "tiers": {
                "type": ["array", "null"],
                "items": {"type": "object", "properties": {"plugins": {"type": ["array", "null"], "items": {"$ref": "#/definitions/plugin"}}}},
            },
            "configurations": {"type": ["array", "null"], "items": action},
            "metrics": {"type": ["object", "null"], "properties": metrics},
            "pumice": pumice,
        },
        "required": ["actions"],
    })
}

#[test]
fn the_schema_of_policies_has_every_plugin_switch_and_key() {
    let kube = json!({
        "type": "object",
        "properties": {
            "apiVersion": {"const": "kubescheduler.config.k8s.io/v1"},
            "kind": {"const": "KubeSchedulerConfiguration"},
            "profiles": {"type": "array", "items": {"type": "object"}},
        },
        "required": ["apiVersion", "kind"],
    });
    let schema = json!({
        "$schema": DRAFT,
        "title": "Policy of Pumice: volcano-scheduler.conf, or a KubeSchedulerConfiguration",
        "type": "object",
        "if": {"required": ["kind"]},
        "then": kube,
        "else": volcano_schema(),
        "definitions": {"plugin": plugin_schema()},
    });
    assert_is_current("policy", &schema);
    for (plugin, keys) in arguments() {
        assert!(
            !keys.is_empty()
                || [
                    "cdp",
                    "conformance",
                    "drf",
                    "gang",
                    "pdb",
                    "priority",
                    "proportion",
                    "resourcequota"
                ]
                .contains(&plugin.as_str()),
            "{plugin} has keys"
        );
    }
    // kube-scheduler's default plugins take arguments in the profile, not in tiers.
    let in_profiles = REGISTRY
        .iter()
        .filter(|def| arguments().iter().all(|(plugin, _)| plugin != def.name));
    assert_eq!(in_profiles.count(), 9);
}
