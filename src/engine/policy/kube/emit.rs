//! Prints a `KubeSchedulerConfiguration`: as loaded, and as it takes effect.

use std::collections::BTreeMap;

use super::super::emit::to_yaml;
use super::super::spec::Compatibility;
use super::super::yaml::{Node, Value};
use super::{DEFAULT_SCHEDULER, KubeSpec, field};

/// The document as it was read, without what had no effect on its meaning.
pub(super) fn loaded(spec: &KubeSpec) -> String {
    let section = spec.pumice.map(|section| {
        let own = section.compatibility.map(|own| pair("compatibility", text(own.name())));
        pair("pumice", Value::Map(own.into_iter().collect()))
    });
    print(&spec.document, section)
}

/// The document as it takes effect: names of profiles, arguments of the served plugins with their defaults, and the
/// compatibility. `arguments`: by profile and plugin.
pub(super) fn effective(spec: &KubeSpec, compatibility: Compatibility, arguments: &[BTreeMap<&str, Value>]) -> String {
    let mut document = spec.document.clone();
    let empty = Node::new(Value::Map(Vec::new()));
    let written = match field(&document, "profiles").map(|node| &node.value) {
        Some(Value::List(profiles)) if !profiles.is_empty() => profiles.clone(),
        _ => vec![empty],
    };
    let profiles = written.iter().zip(arguments).map(|(profile, arguments)| {
        let mut profile = profile.clone();
        if field(&profile, "schedulerName").is_none() {
            set(&mut profile, "schedulerName", text(DEFAULT_SCHEDULER));
        }
        if !arguments.is_empty() {
            let configs = configs(&profile, arguments);
            set(&mut profile, "pluginConfig", configs);
        }
        profile
    });
    let profiles = Value::List(profiles.collect());
    set(&mut document, "profiles", profiles);
    let section = Value::Map(vec![pair("compatibility", text(compatibility.name()))]);
    print(&document, Some(pair("pumice", section)))
}

/// The list of arguments, those of served plugins replaced or added.
fn configs(profile: &Node, arguments: &BTreeMap<&str, Value>) -> Value {
    let written = match field(profile, "pluginConfig").map(|node| &node.value) {
        Some(Value::List(configs)) => configs.as_slice(),
        _ => &[],
    };
    let name = |config: &Node| match field(config, "name").map(|node| &node.value) {
        Some(Value::String(name)) => name.clone(),
        _ => String::new(),
    };
    let kept = written.iter().filter(|config| !arguments.contains_key(&*name(config)));
    let own = arguments.iter().map(|(name, arguments)| {
        let fields = vec![pair("name", text(name)), pair("args", arguments.clone())];
        Node::new(Value::Map(fields))
    });
    Value::List(kept.cloned().chain(own).collect())
}

fn set(map: &mut Node, key: &str, value: Value) {
    if !matches!(map.value, Value::Map(_)) {
        map.value = Value::Map(Vec::new());
    }
    if let Value::Map(pairs) = &mut map.value {
        pairs.retain(|(own, _)| !matches!(&own.value, Value::String(text) if text == key));
        pairs.push(pair(key, value));
    }
}

fn print(document: &Node, section: Option<(Node, Node)>) -> String {
    let mut document = document.clone();
    if let Value::Map(pairs) = &mut document.value {
        pairs.extend(section);
    }
    to_yaml(&document.value)
}

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

fn pair(key: &str, value: Value) -> (Node, Node) {
    (Node::new(text(key)), Node::new(value))
}
