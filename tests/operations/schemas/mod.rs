//! JSON schemas of documents: written here from what the program reads, and compared with the files that it prints.
//! `deploy/check` asks a validator about documents that the program accepts and refuses.

mod cases;
mod identities;
mod policy;

use pumice::config::{Setting, ValueRule, settings};
use serde_json::{Map, Value, json};

/// Draft that editors read.
const DRAFT: &str = "http://json-schema.org/draft-07/schema#";

fn schema_file(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("schemas/{name}.schema.json"))
}

/// Compares a schema with its file, and with what the program prints. `PUMICE_BLESS=1` rewrites the file.
fn assert_is_current(name: &str, schema: &Value) {
    let current = serde_json::to_string_pretty(schema).unwrap() + "\n";
    if std::env::var_os("PUMICE_BLESS").is_some() {
        std::fs::write(schema_file(name), &current).unwrap();
        return;
    }
    let found = std::fs::read_to_string(schema_file(name)).unwrap();
    assert!(
        found == current,
        "schemas/{name}.schema.json is not current: PUMICE_BLESS=1 rewrites it"
    );
    let output = crate::support::program::command()
        .args(["schema", name])
        .output()
        .unwrap();
    assert!(output.status.success());
    assert!(output.stdout == current.as_bytes(), "pumice schema {name}");
}

fn described(mut schema: Value, text: &str) -> Value {
    schema["description"] = text.into();
    schema
}

/// Object with these keys and no others.
fn closed_object(properties: &Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

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

/// Schema of one setting, as a file of settings has it.
pub(crate) fn setting_schema(setting: &Setting) -> Value {
    let schema = match setting.rule {
        ValueRule::Time => number(setting.range(), Some("^[0-9]+(ms|s|m|h|d)?$")),
        ValueRule::Bytes => number(setting.range(), Some("^[0-9]+(Ki|Mi|Gi)?$")),
        ValueRule::Count => number(setting.range(), None),
        ValueRule::Ratio => json!({"type": "number", "minimum": 0, "maximum": 1}),
        ValueRule::Pattern(pattern) => json!({"type": "string", "pattern": pattern}),
        ValueRule::Text if setting.is_list => json!({"type": "array", "items": {"type": "string", "minLength": 1}}),
        ValueRule::Text => json!({"type": "string"}),
        ValueRule::Words(words) => {
            let mut words = words();
            words.sort_unstable();
            let mut values: Vec<Value> = words.iter().map(|word| json!(word)).collect();
            if words.contains(&"true") {
                values.splice(0..0, [json!(false), json!(true)]);
                json!({"enum": values})
            } else {
                json!({"type": "string", "enum": values})
            }
        }
    };
    described(schema, setting.help)
}

#[test]
fn the_schema_of_settings_has_every_setting() {
    let properties: Map<String, Value> = settings()
        .map(|setting| {
            let mut schema = setting_schema(&setting);
            // A list of one may be written without brackets.
            if setting.is_list {
                let text = json!({"type": "string", "minLength": 1});
                schema = json!({"anyOf": [schema, text], "description": setting.help});
            }
            (setting.name.to_owned(), schema)
        })
        .collect();
    let schema = json!({
        "$schema": DRAFT,
        "title": "Settings of pumice serve",
        "type": ["object", "null"],
        "properties": properties,
        "additionalProperties": false,
    });
    assert_is_current("settings", &schema);
}
