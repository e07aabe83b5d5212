//! Extenders of a `KubeSchedulerConfiguration`: the resources that they manage and that kube-scheduler does not check
//! (Kubernetes v1.36.3, `buildExtenders` in `pkg/scheduler/scheduler.go`).

use std::collections::BTreeSet;

use super::super::args::PluginArguments;
use super::super::compatibility::Compatibility;
use super::super::diagnostics::ErrorCode;
use super::super::yaml::{DocumentPath, YamlNode, YamlValue, shown_name};
use super::load::KubeConfigReader;
use super::{KubeProfile, PluginConfig};

/// Fields of an extender.
const FIELDS: [&str; 12] = [
    "urlPrefix",
    "filterVerb",
    "preemptVerb",
    "prioritizeVerb",
    "weight",
    "bindVerb",
    "enableHTTPS",
    "tlsConfig",
    "httpTimeout",
    "nodeCacheCapable",
    MANAGED,
    "ignorable",
];
const MANAGED: &str = "managedResources";
/// Plugin that does not check the ignored resources, and its argument.
const FIT: &str = "NodeResourcesFit";
const IGNORED: &str = "ignoredResources";

/// Names of the managed resources of all extenders that the scheduler ignores, each once.
pub(super) fn ignored_resources(
    reader: &mut KubeConfigReader<'_>,
    extenders: &YamlNode,
    path: &DocumentPath,
) -> Vec<YamlNode> {
    let (mut ignored, mut managed) = (Vec::new(), BTreeSet::new());
    reader.items(extenders, path, &mut |reader, extender, path| {
        reader.fields(extender, &path, &FIELDS, &mut |reader, key, _, value, path| match key {
            MANAGED => reader.items(value, &path, &mut |reader, resource, path| {
                let Some((name, is_ignored)) = managed_resource(reader, resource, &path) else {
                    return;
                };
                if !managed.insert(name.clone()) {
                    let name = shown_name(&name);
                    let message = format!("two extenders manage `{name}`; kube-scheduler does not start with them");
                    reader
                        .report
                        .error(ErrorCode::ArgumentInvalid, &path.at(resource.mark), message);
                } else if is_ignored {
                    ignored.push(YamlNode {
                        value: YamlValue::String(name),
                        ..resource.clone()
                    });
                }
            }),
            "enableHTTPS" | "nodeCacheCapable" | "ignorable" => drop(switch(reader, value, &path)),
            "weight" => drop(reader.integer(value, &path)),
            "tlsConfig" | "httpTimeout" => {}
            _ => drop(reader.text(value, &path)),
        });
    });
    ignored
}

/// Name of a managed resource, and whether the scheduler ignores it.
fn managed_resource(
    reader: &mut KubeConfigReader<'_>,
    resource: &YamlNode,
    path: &DocumentPath,
) -> Option<(String, bool)> {
    let (mut name, mut is_ignored) = (String::new(), false);
    let known = ["name", "ignoredByScheduler"];
    reader.fields(resource, path, &known, &mut |reader, key, _, value, path| {
        if key == "name" {
            name = reader.text(value, &path);
        } else {
            is_ignored = switch(reader, value, &path);
        }
    });
    if name.is_empty() {
        let message = "a managed resource needs a `name`";
        reader
            .report
            .error(ErrorCode::ArgumentInvalid, &path.at(resource.mark), message);
        return None;
    }
    Some((name, is_ignored))
}

fn switch(reader: &mut KubeConfigReader<'_>, value: &YamlNode, path: &DocumentPath) -> bool {
    if let YamlValue::Bool(is_on) = value.value {
        return is_on;
    }
    reader.wrong_type(value, path, "a bool");
    false
}

/// Adds the ignored resources to the arguments of the plugin that checks amounts. In the reference they replace the ones
/// that the profile itself ignores.
pub(super) fn with_ignored(
    mut profile: KubeProfile,
    ignored: &[YamlNode],
    compatibility: Compatibility,
) -> KubeProfile {
    if ignored.is_empty() {
        return profile;
    }
    let (mark, at) = (
        profile.at.mark,
        profile.configs.iter().position(|config| config.name == FIT),
    );
    let mut config = match at {
        Some(at) => profile.configs.remove(at),
        None => PluginConfig {
            name: FIT.to_owned(),
            at: profile.at.clone(),
            arguments: None,
        },
    };
    let arguments = config.arguments.take();
    let mut arguments = arguments.unwrap_or_else(|| PluginArguments::new(mark, DocumentPath::default()));
    let own = arguments
        .get(IGNORED)
        .filter(|_| compatibility == Compatibility::Corrected);
    let own = own.map(|own| own.value().clone());
    let mut names = match own {
        Some(YamlValue::List(own)) => own,
        Some(_) | None => Vec::new(),
    };
    for name in ignored {
        if names.iter().all(|own| own.value.as_text() != name.value.as_text()) {
            names.push(name.clone());
        }
    }
    let mark = ignored.first().map_or(config.at.mark, |first| first.mark);
    arguments.set(
        IGNORED.to_owned(),
        mark,
        YamlNode {
            value: YamlValue::List(names),
            mark,
        },
    );
    config.arguments = Some(arguments);
    let end = profile.configs.len();
    profile.configs.insert(at.unwrap_or(end), config);
    profile
}
