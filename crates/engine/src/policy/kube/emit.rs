//! Printer of a `KubeSchedulerConfiguration`: as loaded, and as effective.

use std::collections::BTreeMap;

use super::super::compatibility::Compatibility;
use super::super::emit::to_yaml;
use super::super::yaml::{YamlNode, YamlValue};
use super::{DEFAULT_SCHEDULER, KubeSpec, field};

/// Document as it was read, without parts that have no effect.
pub(super) fn loaded(spec: &KubeSpec) -> String {
    let section = spec.pumice.map(|section| {
        let own = section.compatibility.map(|own| pair("compatibility", text(own.name())));
        pair("pumice", YamlValue::Map(own.into_iter().collect()))
    });
    print(&spec.document, section)
}

/// Effective document: names of profiles, arguments of the served plugins with their defaults, and the compatibility.
/// `arguments` are by profile and plugin.
pub(super) fn effective(
    spec: &KubeSpec,
    compatibility: Compatibility,
    arguments: &[BTreeMap<&str, YamlValue>],
) -> String {
    let mut document = spec.document.clone();
    let empty = YamlNode::new(YamlValue::Map(Vec::new()));
    let written = match field(&document, "profiles").map(|node| &node.value) {
        Some(YamlValue::List(profiles)) if !profiles.is_empty() => profiles.clone(),
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
    let profiles = YamlValue::List(profiles.collect());
    set(&mut document, "profiles", profiles);
    let section = YamlValue::Map(vec![pair("compatibility", text(compatibility.name()))]);
    print(&document, Some(pair("pumice", section)))
}

/// List of arguments, with the arguments of implemented plugins replaced or added.
fn configs(profile: &YamlNode, arguments: &BTreeMap<&str, YamlValue>) -> YamlValue {
    let written = match field(profile, "pluginConfig").map(|node| &node.value) {
        Some(YamlValue::List(configs)) => configs.as_slice(),
        _ => &[],
    };
    let name = |config: &YamlNode| match field(config, "name").map(|node| &node.value) {
        Some(YamlValue::String(name)) => name.clone(),
        _ => String::new(),
    };
    let others = written.iter().filter(|config| !arguments.contains_key(&*name(config)));
    let own = arguments.iter().map(|(name, arguments)| {
        let fields = vec![pair("name", text(name)), pair("args", arguments.clone())];
        YamlNode::new(YamlValue::Map(fields))
    });
    YamlValue::List(others.cloned().chain(own).collect())
}

fn set(map: &mut YamlNode, key: &str, value: YamlValue) {
    if !matches!(map.value, YamlValue::Map(_)) {
        map.value = YamlValue::Map(Vec::new());
    }
    if let YamlValue::Map(pairs) = &mut map.value {
        pairs.retain(|(own, _)| !matches!(&own.value, YamlValue::String(text) if text == key));
        pairs.push(pair(key, value));
    }
}

fn print(document: &YamlNode, section: Option<(YamlNode, YamlNode)>) -> String {
    let mut document = document.clone();
    if let YamlValue::Map(pairs) = &mut document.value {
        pairs.extend(section);
    }
    to_yaml(&document.value)
}

fn text(text: &str) -> YamlValue {
    YamlValue::String(text.to_owned())
}

fn pair(key: &str, value: YamlValue) -> (YamlNode, YamlNode) {
    (YamlNode::new(text(key)), YamlNode::new(value))
}
