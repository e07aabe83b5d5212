//! Printer of a `KubeSchedulerConfiguration`: as loaded, and as effective.

use std::collections::BTreeMap;

use super::super::compatibility::Compatibility;
use super::super::emit::{pair, pumice_pair, text, to_yaml};
use super::super::spec::PumiceSection;
use super::super::yaml::{YamlNode, YamlValue};
use super::{DEFAULT_SCHEDULER, KubeSpec, field};

/// Document as it was read, without parts that have no effect.
pub(super) fn loaded(spec: &KubeSpec) -> String {
    print(&spec.document, spec.pumice)
}

/// Effective document: names of profiles, arguments of the served plugins with their defaults, and the compatibility.
/// `arguments` are by profile and plugin.
pub(super) fn effective(
    spec: &KubeSpec,
    compatibility: Compatibility,
    arguments: &[BTreeMap<&str, YamlValue>],
) -> String {
    let mut document = spec.document.clone();
    let empty = [YamlNode::new(YamlValue::Map(Vec::new()))];
    let written = field(&spec.document, "profiles").and_then(|node| node.value.as_items());
    let written = written.filter(|profiles| !profiles.is_empty());
    let profiles = written
        .unwrap_or(&empty)
        .iter()
        .zip(arguments)
        .map(|(profile, arguments)| {
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
    let compatibility = Some(compatibility);
    print(&document, Some(PumiceSection { compatibility }))
}

/// List of arguments, with the arguments of implemented plugins replaced or added.
fn configs(profile: &YamlNode, arguments: &BTreeMap<&str, YamlValue>) -> YamlValue {
    let written = field(profile, "pluginConfig").and_then(|node| node.value.as_items());
    let is_other = |config: &&YamlNode| {
        let name = field(config, "name").and_then(|node| node.value.as_text());
        !arguments.contains_key(name.unwrap_or_default())
    };
    let others = written.unwrap_or_default().iter().filter(is_other);
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
        pairs.retain(|(own, _)| own.value.as_text() != Some(key));
        pairs.push(pair(key, value));
    }
}

fn print(document: &YamlNode, section: Option<PumiceSection>) -> String {
    let mut document = document.clone();
    if let YamlValue::Map(pairs) = &mut document.value {
        pairs.extend(section.map(pumice_pair));
    }
    to_yaml(&document.value)
}
