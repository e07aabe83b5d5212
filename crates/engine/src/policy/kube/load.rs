//! Loader of a `KubeSchedulerConfiguration`, as strict as kube-scheduler: it reports every error with its location.

use super::super::args::PluginArguments;
use super::super::diagnostics::{DiagnosticReport, ErrorCode, Severity};
use super::super::load::{LoadOptions, read_pumice_section};
use super::super::release::ReleasedScheduler;
use super::super::spec::PumiceSection;
use super::super::yaml::{self, DocumentPath, Mark, YamlDecoder, YamlError, YamlNode, YamlTree, YamlValue, shown_name};
use super::extenders;
use super::{
    API_GROUP, API_VERSION, CONFIGURATION_KIND, EXTENSION_POINTS, KubeProfile, KubeSpec, PluginConfig, PluginEntry,
    PluginSet, field, is_served,
};

/// Type of a top-level field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KubeFieldType {
    /// Field that is read elsewhere, or has no effect here.
    Unchecked,
    Integer,
    Bool,
}

const TOP_LEVEL_FIELDS: [(&str, KubeFieldType); 14] = [
    ("apiVersion", KubeFieldType::Unchecked),
    ("kind", KubeFieldType::Unchecked),
    ("parallelism", KubeFieldType::Integer),
    ("leaderElection", KubeFieldType::Unchecked),
    ("clientConnection", KubeFieldType::Unchecked),
    ("enableProfiling", KubeFieldType::Bool),
    ("enableContentionProfiling", KubeFieldType::Bool),
    ("percentageOfNodesToScore", KubeFieldType::Integer),
    ("podInitialBackoffSeconds", KubeFieldType::Integer),
    ("podMaxBackoffSeconds", KubeFieldType::Integer),
    ("profiles", KubeFieldType::Unchecked),
    (EXTENDERS, KubeFieldType::Unchecked),
    ("delayCacheUntilActive", KubeFieldType::Bool),
    (PUMICE_KEY, KubeFieldType::Unchecked),
];
const EXTENDERS: &str = "extenders";
const PUMICE_KEY: &str = "pumice";

/// True if the text is a `KubeSchedulerConfiguration`, not a document of Volcano.
pub(in super::super) fn is_kube_configuration(text: &str, options: &LoadOptions<'_>) -> bool {
    if !text.contains(CONFIGURATION_KIND) && !text.contains(API_GROUP) {
        return false;
    }
    let Ok(root) = yaml::read(text, &options.limits) else {
        return false;
    };
    let says = |key: &str, wanted: &dyn Fn(&str) -> bool| {
        let value = field(&root, key).and_then(|node| node.value.as_text());
        value.is_some_and(wanted)
    };
    says("kind", &|text| text == CONFIGURATION_KIND) || says("apiVersion", &|text| text.starts_with(API_GROUP))
}

/// Loads the document; `None` if the text is not YAML.
pub(in super::super) fn load(text: &str, options: &LoadOptions<'_>, report: &mut DiagnosticReport) -> Option<KubeSpec> {
    match read(text, options, report) {
        Ok(spec) => spec,
        Err(error) => {
            *report = DiagnosticReport::default();
            report.yaml_error(error);
            None
        }
    }
}

fn read(text: &str, options: &LoadOptions<'_>, report: &mut DiagnosticReport) -> Result<Option<KubeSpec>, YamlError> {
    let tree = YamlTree::read(text, &options.limits)?;
    let mut decoder = YamlDecoder::new(&tree, &options.limits);
    let Some(root) = tree.root() else { return Ok(None) };
    let document = decoder.node(root)?;
    for at in &decoder.duplicates {
        report.error(ErrorCode::KeyDuplicate, at, "this key appears twice in its map");
    }
    let mut reader = KubeConfigReader {
        report,
        json: text.trim_start().starts_with('{'),
    };
    let mut spec = KubeSpec {
        profiles: Vec::new(),
        ignored_resources: Vec::new(),
        pumice: None,
        document: without_pumice(&document),
    };
    reader.document(&document, &mut spec);
    if let Some(next) = YamlTree::read_second(text, &options.limits)? {
        let mut decoder = YamlDecoder::new(&next, &options.limits);
        if let Some(root) = next.root() {
            let node = decoder.node(root)?;
            reader.second_document(&node, &mut spec);
        }
    }
    Ok(Some(spec))
}

fn without_pumice(document: &YamlNode) -> YamlNode {
    let mut document = document.clone();
    if let YamlValue::Map(pairs) = &mut document.value {
        pairs.retain(|(key, _)| key.value.as_text() != Some(PUMICE_KEY));
    }
    document
}

pub(super) struct KubeConfigReader<'r> {
    pub(super) report: &'r mut DiagnosticReport,
    /// True if the document is JSON, in which `2.0` is not an integer.
    json: bool,
}

pub(super) type KubeFieldVisitor<'f, 'r> =
    dyn FnMut(&mut KubeConfigReader<'r>, &str, Mark, &YamlNode, DocumentPath) + 'f;

impl<'r> KubeConfigReader<'r> {
    pub(super) fn wrong_type(&mut self, node: &YamlNode, path: &DocumentPath, expected: &str) {
        let message = format!("expected {expected}, found {}", node.value.kind());
        self.report.error(ErrorCode::TypeInvalid, &path.at(node.mark), message);
    }

    /// Reads a map field by field; an unknown key is an error, null is an absent value.
    pub(super) fn fields(
        &mut self,
        node: &YamlNode,
        path: &DocumentPath,
        known: &[&str],
        each: &mut KubeFieldVisitor<'_, 'r>,
    ) {
        if matches!(node.value, YamlValue::Null) {
            return;
        }
        let Some(pairs) = node.value.as_pairs() else {
            return self.wrong_type(node, path, "a map");
        };
        for (key, value) in pairs {
            let mut inner = path.clone();
            inner.push_value(&key.value);
            let Some(name) = key.value.as_text() else {
                self.unknown_key(key.value.kind(), key.mark, &inner, known);
                continue;
            };
            if !known.contains(&name) {
                self.unknown_key(name, key.mark, &inner, known);
            } else if !matches!(value.value, YamlValue::Null) {
                each(self, name, key.mark, value, inner);
            }
        }
    }

    fn unknown_key(&mut self, key: &str, mark: Mark, path: &DocumentPath, known: &[&str]) {
        let hint = self.report.suggestion(Severity::Error, key, known);
        let message = format!("unknown key `{}`{hint}", shown_name(key));
        self.report.error(ErrorCode::TypeInvalid, &path.at(mark), message);
    }

    pub(super) fn items(
        &mut self,
        node: &YamlNode,
        path: &DocumentPath,
        each: &mut dyn FnMut(&mut KubeConfigReader<'r>, &YamlNode, DocumentPath),
    ) {
        if matches!(node.value, YamlValue::Null) {
            return;
        }
        let Some(items) = node.value.as_items() else {
            return self.wrong_type(node, path, "a list");
        };
        for (number, item) in items.iter().enumerate() {
            each(self, item, path.index(number));
        }
    }

    pub(super) fn text(&mut self, node: &YamlNode, path: &DocumentPath) -> String {
        let text = node.value.as_text();
        if text.is_none() {
            self.wrong_type(node, path, "a string");
        }
        text.unwrap_or_default().to_owned()
    }

    pub(super) fn integer(&mut self, node: &YamlNode, path: &DocumentPath) -> Option<i32> {
        let number = match &node.value {
            YamlValue::Int(number) => i32::try_from(*number).ok(),
            #[expect(clippy::cast_possible_truncation, reason = "checked to be an integer that fits")]
            YamlValue::Float(number)
                if !self.json && number.fract() == 0.0 && (-2_147_483_648.0..=2_147_483_647.0).contains(number) =>
            {
                Some(*number as i32)
            }
            YamlValue::Null
            | YamlValue::Bool(_)
            | YamlValue::UInt(_)
            | YamlValue::Float(_)
            | YamlValue::String(_)
            | YamlValue::List(_)
            | YamlValue::Map(_) => None,
        };
        if number.is_none() {
            self.wrong_type(node, path, "an integer of 32 bits");
        }
        number
    }

    fn document(&mut self, document: &YamlNode, spec: &mut KubeSpec) {
        for (key, wanted) in [("apiVersion", API_VERSION), ("kind", CONFIGURATION_KIND)] {
            let said = field(document, key);
            if said.and_then(|node| node.value.as_text()) != Some(wanted) {
                let path = DocumentPath::default().key(key);
                let at = path.at(said.map_or(document.mark, |node| node.mark));
                self.report
                    .error(ErrorCode::TypeInvalid, &at, format!("expected `{wanted}`"));
            }
        }
        let known = TOP_LEVEL_FIELDS.map(|(key, _)| key);
        self.fields(
            document,
            &DocumentPath::default(),
            &known,
            &mut |reader, key, _, value, path| match key {
                "profiles" => reader.items(value, &path, &mut |reader, item, path| {
                    let profile = reader.profile(item, &path);
                    spec.profiles.push(profile);
                }),
                EXTENDERS => spec.ignored_resources = extenders::ignored_resources(reader, value, &path),
                PUMICE_KEY => spec.pumice = Some(reader.pumice_section(value, &path)),
                _ => reader.top_level_field(key, value, &path),
            },
        );
    }

    fn pumice_section(&mut self, value: &YamlNode, path: &DocumentPath) -> PumiceSection {
        read_pumice_section(value, path, ReleasedScheduler::KubeScheduler, self.report)
    }

    fn top_level_field(&mut self, key: &str, value: &YamlNode, path: &DocumentPath) {
        let holds = TOP_LEVEL_FIELDS
            .iter()
            .find(|(known, _)| *known == key)
            .map(|(_, holds)| *holds);
        match holds {
            Some(KubeFieldType::Integer) => drop(self.integer(value, path)),
            Some(KubeFieldType::Bool) if !matches!(value.value, YamlValue::Bool(_)) => {
                self.wrong_type(value, path, "a bool");
            }
            Some(KubeFieldType::Bool | KubeFieldType::Unchecked) | None => {}
        }
    }

    /// Reads the section of Pumice in the second document: Kubernetes reads only the first one.
    fn second_document(&mut self, node: &YamlNode, spec: &mut KubeSpec) {
        let Some(pairs) = node.value.as_pairs() else { return };
        for (key, value) in pairs {
            let mut path = DocumentPath::default();
            path.push_value(&key.value);
            if key.value.as_text() != Some(PUMICE_KEY) {
                let message = "only the section `pumice:` is read from the second document; move this key to the first";
                self.report.warning(ErrorCode::KeyUnknown, &path.at(key.mark), message);
            } else if spec.pumice.is_some() {
                let message = "both documents have a section `pumice:`; remove one";
                self.report.error(ErrorCode::PumiceSection, &path.at(key.mark), message);
            } else {
                spec.pumice = Some(self.pumice_section(value, &path));
            }
        }
    }

    fn profile(&mut self, node: &YamlNode, path: &DocumentPath) -> KubeProfile {
        const KNOWN: [&str; 4] = ["schedulerName", "percentageOfNodesToScore", "plugins", "pluginConfig"];
        let mut profile = KubeProfile {
            at: path.at(node.mark),
            ..KubeProfile::default()
        };
        self.fields(node, path, &KNOWN, &mut |reader, key, _, value, path| match key {
            "schedulerName" => {
                profile.name = reader.text(value, &path);
                profile.at = path.at(value.mark);
            }
            "plugins" => reader.fields(value, &path, &EXTENSION_POINTS, &mut |reader, key, _, value, path| {
                let set = reader.plugin_set(value, &path);
                if let Some(point) = EXTENSION_POINTS.iter().find(|point| **point == key) {
                    profile.plugins.insert(point, set);
                }
            }),
            "pluginConfig" => reader.items(value, &path, &mut |reader, item, path| {
                let config = reader.plugin_config(item, &path);
                profile.configs.push(config);
            }),
            _ => drop(reader.integer(value, &path)),
        });
        profile
    }

    fn plugin_set(&mut self, node: &YamlNode, path: &DocumentPath) -> PluginSet {
        let mut set = PluginSet::default();
        self.fields(
            node,
            path,
            &["enabled", "disabled"],
            &mut |reader, key, _, value, path| {
                let list = if key == "enabled" {
                    &mut set.enabled
                } else {
                    &mut set.disabled
                };
                reader.items(value, &path, &mut |reader, item, path| {
                    list.push(reader.entry(item, &path));
                });
            },
        );
        set
    }

    fn entry(&mut self, node: &YamlNode, path: &DocumentPath) -> PluginEntry {
        let mut entry = PluginEntry {
            at: path.at(node.mark),
            ..PluginEntry::default()
        };
        self.fields(node, path, &["name", "weight"], &mut |reader, key, _, value, path| {
            if key == "name" {
                entry.name = reader.text(value, &path);
                entry.at = path.at(value.mark);
            } else {
                entry.weight = reader.integer(value, &path);
            }
        });
        entry
    }

    fn plugin_config(&mut self, node: &YamlNode, path: &DocumentPath) -> PluginConfig {
        let mut config = PluginConfig {
            name: String::new(),
            at: path.at(node.mark),
            arguments: None,
        };
        let mut args = None;
        self.fields(node, path, &["name", "args"], &mut |reader, key, mark, value, path| {
            if key == "name" {
                config.name = reader.text(value, &path);
                config.at = path.at(value.mark);
            } else {
                args = Some((mark, value.clone(), path));
            }
        });
        // Upstream passes on arguments whose type it does not know.
        if let Some((mark, value, path)) = args.filter(|_| is_served(&config.name)) {
            config.arguments = self.arguments(mark, &value, &path);
        }
        config
    }

    fn arguments(&mut self, mark: Mark, node: &YamlNode, path: &DocumentPath) -> Option<PluginArguments> {
        let Some(pairs) = node.value.as_pairs() else {
            self.wrong_type(node, path, "a map");
            return None;
        };
        if self.json {
            self.reject_floats(node, path);
        }
        let mut arguments = PluginArguments::new(mark, path.clone());
        for (key, value) in pairs {
            if let Some(name) = key.value.as_text() {
                arguments.set(name.to_owned(), key.mark, value.clone());
            } else {
                self.unknown_key(key.value.kind(), key.mark, path, &[]);
            }
        }
        Some(arguments)
    }

    /// Rejects floats: no argument of a served plugin is one. A whole float is read as an integer in YAML, but not in
    /// JSON.
    fn reject_floats(&mut self, node: &YamlNode, path: &DocumentPath) {
        match &node.value {
            YamlValue::Float(_) => self.wrong_type(node, path, "an integer"),
            YamlValue::List(items) => {
                for (number, item) in items.iter().enumerate() {
                    self.reject_floats(item, &path.index(number));
                }
            }
            YamlValue::Map(pairs) => {
                for (key, value) in pairs {
                    let mut inner = path.clone();
                    inner.push_value(&key.value);
                    self.reject_floats(value, &inner);
                }
            }
            YamlValue::Null | YamlValue::Bool(_) | YamlValue::Int(_) | YamlValue::UInt(_) | YamlValue::String(_) => {}
        }
    }
}
