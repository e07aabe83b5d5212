//! Reads the policy documents that the server prints.

use pumice_engine::policy::{
    Compatibility, LoadOptions, PluginArguments, PluginSpec, YamlLimits, YamlNode, YamlValue as Yaml, load,
};
use serde_json::{Map, Number, Value, json};

/// Tiers of a document: names of plugins and their arguments.
///
/// # Errors
/// The document has errors.
pub fn read(text: &str) -> Result<Value, String> {
    let options = LoadOptions {
        limits: YamlLimits::default(),
        compatibility: Compatibility::UPSTREAM,
        served: &[],
    };
    let loaded = load(text, &options);
    let (Some(spec), false) = (&loaded.spec, loaded.report.has_errors()) else {
        return Err(format!("the printed document has faults: {:?}", loaded.report));
    };
    let tiers = spec.tiers.iter().map(|plugins| {
        let plugins: Vec<Value> = plugins.iter().map(plugin).collect();
        json!({ "plugins": plugins })
    });
    Ok(json!({ "tiers": tiers.collect::<Vec<_>>() }))
}

fn plugin(plugin: &PluginSpec) -> Value {
    let arguments = plugin.arguments.iter().flat_map(PluginArguments::iter);
    let arguments = arguments.map(|(key, argument)| (key.to_owned(), value(argument.value())));
    json!({ "name": plugin.name, "arguments": arguments.collect::<Map<_, _>>() })
}

fn node(node: &YamlNode) -> Value {
    value(&node.value)
}

fn value(value: &Yaml) -> Value {
    match value {
        Yaml::Null => Value::Null,
        Yaml::Bool(value) => Value::Bool(*value),
        Yaml::Int(value) => Value::Number((*value).into()),
        Yaml::UInt(value) => Value::Number((*value).into()),
        Yaml::Float(value) => Number::from_f64(*value).map_or_else(|| Value::String(value.to_string()), Value::Number),
        Yaml::String(text) => Value::String(text.clone()),
        Yaml::List(entries) => entries.iter().map(node).collect(),
        Yaml::Map(entries) => {
            let entries = entries.iter().map(|(key, value)| {
                let key = node(key);
                (key.as_str().map_or_else(|| key.to_string(), str::to_owned), node(value))
            });
            Value::Object(entries.collect::<Map<_, _>>())
        }
    }
}
