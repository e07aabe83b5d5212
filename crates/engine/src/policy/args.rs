//! Arguments of a plugin: upstream's lenient accessors, and strict typed reading with locations.

use std::collections::BTreeMap;

use super::compatibility::Compatibility;
use super::diagnostics::{DiagnosticReport, ErrorCode, Severity};
use super::suggestion::did_you_mean;
use super::switch::Switch;
use super::yaml::{DocumentLocation, DocumentPath, Mark, YamlNode, YamlValue, shown_name};
use crate::model::parse_go_bool;

/// Names of the two bools, for suggestions.
pub(crate) const BOOL_NAMES: [&str; 2] = ["true", "false"];

/// Arguments of one plugin or action: keys in the document's spelling, typed values.
#[derive(Debug, Clone, Default)]
pub struct PluginArguments {
    entries: Vec<(String, Mark, YamlNode)>,
    index: BTreeMap<String, usize>,
    mark: Mark,
    path: DocumentPath,
    /// Settings of the document's section `metrics`.
    metrics: BTreeMap<String, String>,
}

impl PluginArguments {
    /// Copy of these arguments for a document whose section `metrics` has these settings.
    pub(super) fn beside(&self, metrics: &BTreeMap<String, String>) -> Self {
        Self {
            metrics: metrics.clone(),
            ..self.clone()
        }
    }

    /// Setting of the document's section `metrics`, such as `interval`.
    pub fn metrics_setting(&self, key: &str) -> Option<&str> {
        self.metrics.get(key).map(String::as_str)
    }

    /// Empty arguments of a block at `mark`.
    pub fn new(mark: Mark, path: DocumentPath) -> Self {
        PluginArguments {
            entries: Vec::new(),
            index: BTreeMap::new(),
            mark,
            path,
            metrics: BTreeMap::new(),
        }
    }

    /// Sets an argument; an existing key keeps its position. True if the key existed.
    pub fn set(&mut self, key: String, mark: Mark, value: YamlNode) -> bool {
        if let Some(entry) = self.index.get(&key).and_then(|&at| self.entries.get_mut(at)) {
            entry.1 = mark;
            entry.2 = value;
            return true;
        }
        self.index.insert(key.clone(), self.entries.len());
        self.entries.push((key, mark, value));
        false
    }

    /// Switch: a bool, or a text that Go's `ParseBool` reads, where the release reads such texts. Anything else is ignored
    /// with a warning.
    pub fn switch(
        &self,
        key: &str,
        default: bool,
        compatibility: Compatibility,
        report: &mut DiagnosticReport,
    ) -> bool {
        let Some(argument) = self.get(key) else {
            return default;
        };
        let reads_text = compatibility.release().rules().reads_booleans_in_text;
        let value = argument
            .lenient_bool()
            .filter(|_| reads_text || argument.as_string().is_none());
        value.unwrap_or_else(|| {
            let message = format!("`{key}` is no bool and has no effect; the default is {default}");
            report.warning(ErrorCode::ArgumentIgnored, &argument.at(), message);
            default
        })
    }

    /// Location of the block.
    pub fn at(&self) -> DocumentLocation {
        self.path.at(self.mark)
    }

    /// True if the plugin has no arguments.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Argument of this exact key.
    pub fn get(&self, key: &str) -> Option<PluginArgument<'_>> {
        let (_, _, node) = self.index.get(key).and_then(|&at| self.entries.get(at))?;
        Some(PluginArgument::new(&self.path, key, node))
    }

    /// All arguments in the order of the document.
    pub fn iter(&self) -> impl Iterator<Item = (&str, PluginArgument<'_>)> {
        let entries = self.entries.iter();
        entries.map(|(key, _, node)| (key.as_str(), PluginArgument::new(&self.path, key, node)))
    }

    /// Location of the key of an argument.
    pub fn key_at(&self, key: &str) -> DocumentLocation {
        let entry = self.index.get(key).and_then(|&at| self.entries.get(at));
        self.path.key(key).at(entry.map_or(self.mark, |(_, mark, _)| *mark))
    }

    /// Warns of every key that is neither among `known` nor accepted by `also_known`, and suggests the nearest key:
    /// a known one, or a switch, which belongs beside `arguments`.
    pub fn warn_unknown(
        &self,
        report: &mut DiagnosticReport,
        plugin: &str,
        known: &[&str],
        also_known: impl Fn(&str) -> bool,
    ) {
        let is_known = |key: &str| known.contains(&key) || also_known(key);
        for (key, mark, _) in self.entries.iter().filter(|(key, ..)| !is_known(key)) {
            let mut hint = report.suggestion(Severity::Warning, key, known);
            // `binpack.cpu.weight` for `binpack.cpu`.
            let begin = known
                .iter()
                .filter(|known| key.strip_prefix(**known).is_some_and(|rest| rest.starts_with('.')));
            if let (true, Some(known)) = (hint.is_empty(), begin.max_by_key(|known| known.len())) {
                hint = did_you_mean(known);
            }
            if hint.is_empty() {
                hint = report.suggestion(Severity::Warning, key, &Switch::ALL.map(Switch::key));
                if !hint.is_empty() {
                    hint.push_str(" It is a switch: write it beside `arguments`, not below");
                }
            }
            let message = format!(
                "`{plugin}` has no argument `{}`; it has no effect{hint}",
                shown_name(key)
            );
            report.warning(ErrorCode::ArgumentUnknownKey, &self.path.key(key).at(*mark), message);
        }
    }
}

/// Value below `arguments`, with its location.
#[derive(Debug, Clone)]
pub struct PluginArgument<'a> {
    node: &'a YamlNode,
    path: DocumentPath,
}

impl<'a> PluginArgument<'a> {
    fn new(map: &DocumentPath, key: &str, node: &'a YamlNode) -> Self {
        let path = map.key(key);
        Self { node, path }
    }

    /// Value as written in the document.
    pub fn value(&self) -> &'a YamlValue {
        &self.node.value
    }

    /// Location of the value.
    pub fn at(&self) -> DocumentLocation {
        self.path.at(self.node.mark)
    }

    /// True if the value is null.
    pub fn is_null(&self) -> bool {
        matches!(self.node.value, YamlValue::Null)
    }

    /// Values of a list, with their locations. `None`: the value is not a list.
    pub fn items(&self) -> Option<Vec<PluginArgument<'a>>> {
        let item = |(index, node)| PluginArgument {
            node,
            path: self.path.index(index),
        };
        Some(self.value().as_items()?.iter().enumerate().map(item).collect())
    }

    /// Text of a string value.
    pub fn as_string(&self) -> Option<&'a str> {
        self.value().as_text()
    }

    /// Integer that upstream's `GetInt` reads: an integer value, nothing else.
    pub fn lenient_int(&self) -> Option<i64> {
        if let YamlValue::Int(n) = self.value() {
            Some(*n)
        } else {
            None
        }
    }

    /// Number that upstream's `GetFloat64` reads: a float or an integer.
    pub fn lenient_float(&self) -> Option<f64> {
        if let YamlValue::Float(x) = self.value() {
            return Some(*x);
        }
        self.lenient_int().map(|n| n as f64)
    }

    /// Bool that upstream's `GetBool` reads: a bool, or a string such as `true`, `T`, `1`, `false`, `F`, `0`.
    pub fn lenient_bool(&self) -> Option<bool> {
        if let YamlValue::Bool(b) = self.value() {
            return Some(*b);
        }
        parse_go_bool(self.as_string()?)
    }

    // Strict reading, as upstream decodes a block into a structure: null is the zero value, a float is cut to an
    // integer, and any other type is an error. `None` means that an error was reported.

    fn mismatch<T>(&self, expected: &str, report: &mut DiagnosticReport) -> Option<T> {
        let hint = self.as_string().filter(|_| expected == "a bool");
        let hint = hint.map_or_else(String::new, |text| {
            report.suggestion(Severity::Error, text, &BOOL_NAMES)
        });
        let message = format!("expected {expected}, found {}{hint}", self.value().kind());
        report.error(ErrorCode::ArgumentType, &self.at(), message);
        None
    }

    /// Integer. A fraction is cut. A number that does not fit is an error under `corrected`; under `upstream` it has
    /// the value that the reference's machine gives it.
    pub fn decode_int(&self, compatibility: Compatibility, report: &mut DiagnosticReport) -> Option<i64> {
        let upstream = compatibility.is_upstream();
        let (fits, wrapped) = match self.value() {
            YamlValue::Null => (true, 0),
            YamlValue::Int(n) => (true, *n),
            YamlValue::UInt(n) => (false, n.cast_signed()),
            YamlValue::Float(x) => truncate_to_i64(*x),
            YamlValue::Bool(_) | YamlValue::String(_) | YamlValue::List(_) | YamlValue::Map(_) => {
                return self.mismatch("an integer", report);
            }
        };
        if fits || upstream {
            return Some(wrapped);
        }
        report.error(
            ErrorCode::ArgumentRange,
            &self.at(),
            "the number does not fit a signed 64-bit integer",
        );
        None
    }

    /// Float; integers are accepted.
    pub fn decode_float(&self, report: &mut DiagnosticReport) -> Option<f64> {
        match self.value() {
            YamlValue::Null => Some(0.0),
            YamlValue::Int(n) => Some(*n as f64),
            YamlValue::UInt(n) => Some(*n as f64),
            YamlValue::Float(x) => Some(*x),
            YamlValue::Bool(_) | YamlValue::String(_) | YamlValue::List(_) | YamlValue::Map(_) => {
                self.mismatch("a number", report)
            }
        }
    }

    /// Reads a bool, such as `true`. `None`: another type, with a diagnostic.
    pub fn decode_bool(&self, report: &mut DiagnosticReport) -> Option<bool> {
        if let YamlValue::Bool(b) = self.value() {
            return Some(*b);
        }
        let unset = self.is_null().then_some(false);
        unset.or_else(|| self.mismatch("a bool", report))
    }

    /// Reads a string. `None`: another type, with a diagnostic.
    pub fn decode_string(&self, report: &mut DiagnosticReport) -> Option<&'a str> {
        let unset = self.is_null().then_some("");
        let text = self.as_string().or(unset);
        text.or_else(|| self.mismatch("a string", report))
    }

    /// Map. null is treated as an empty map (see [`PluginArgument::is_null`]).
    pub fn decode_map(&self, report: &mut DiagnosticReport) -> Option<ArgumentMap<'a>> {
        let unset = self.is_null().then_some(&[][..]);
        let pairs = self.value().as_pairs().or(unset);
        Some(ArgumentMap {
            pairs: pairs.or_else(|| self.mismatch("a map", report))?,
            at: self.at(),
            path: self.path.clone(),
        })
    }
}

/// Integer part of a float, and whether it fits; if not, the value that the reference's machine gives it.
fn truncate_to_i64(x: f64) -> (bool, i64) {
    /// 2^63, the first float above every signed 64-bit integer.
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    let fits = (-LIMIT..LIMIT).contains(&x);
    #[expect(
        clippy::cast_possible_truncation,
        reason = "checked to fit; the fraction is meant to go"
    )]
    let whole = if fits { x as i64 } else { i64::MIN };
    (fits, whole)
}

/// Map below `arguments`.
#[derive(Debug, Clone)]
pub struct ArgumentMap<'a> {
    pairs: &'a [(YamlNode, YamlNode)],
    at: DocumentLocation,
    path: DocumentPath,
}

impl<'a> ArgumentMap<'a> {
    /// Location of the map.
    pub fn at(&self) -> &DocumentLocation {
        &self.at
    }

    /// True if the map is empty.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Field of a structure: the exact name first, else the first key that differs only in case.
    pub fn field(&self, name: &str) -> Option<PluginArgument<'a>> {
        let exact = self.string_entries().find(|(key, _)| *key == name);
        exact
            .or_else(|| self.string_entries().find(|(key, _)| same_ignoring_case(key, name)))
            .map(|(_, argument)| argument)
    }

    fn string_entries(&self) -> impl Iterator<Item = (&'a str, PluginArgument<'a>)> + '_ {
        self.pairs.iter().filter_map(|(key, node)| {
            let key = key.value.as_text()?;
            Some((key, PluginArgument::new(&self.path, key, node)))
        })
    }

    /// All entries of a map whose keys are names, in the order of the document. A key that is not a string is an error
    /// and left out; so `y: 1`, whose key is a bool, is reported. A null key is the empty name.
    pub fn entries(&self, report: &mut DiagnosticReport) -> Vec<(&'a str, PluginArgument<'a>)> {
        let mut entries = Vec::with_capacity(self.pairs.len());
        for (key, node) in self.pairs {
            let unset = matches!(key.value, YamlValue::Null).then_some("");
            if let Some(text) = key.value.as_text().or(unset) {
                entries.push((text, PluginArgument::new(&self.path, text, node)));
                continue;
            }
            let mut path = self.path.clone();
            path.push_value(&key.value);
            let kind = key.value.kind();
            let message = format!("expected a string as key, found {kind}; put it in quotes");
            report.error(ErrorCode::ArgumentType, &path.at(key.mark), message);
        }
        entries
    }

    /// Warns about every key that is not in `fields`, ignoring case. For example, `wieght` with the suggestion
    /// `weight`.
    pub fn warn_unknown(&self, report: &mut DiagnosticReport, fields: &[&str]) {
        for (key, _) in self.pairs {
            let mut path = self.path.clone();
            path.push_value(&key.value);
            let message = if let Some(text) = key.value.as_text() {
                if fields.iter().any(|field| same_ignoring_case(text, field)) {
                    continue;
                }
                format!(
                    "unknown key `{}`; it has no effect{}",
                    shown_name(text),
                    report.suggestion(Severity::Warning, text, fields)
                )
            } else {
                format!(
                    "the key is {}, not a string, and has no effect; put it in quotes",
                    key.value.kind()
                )
            };
            report.warning(ErrorCode::ArgumentUnknownKey, &path.at(key.mark), message);
        }
    }
}

fn same_ignoring_case(a: &str, b: &str) -> bool {
    a.chars()
        .flat_map(char::to_lowercase)
        .eq(b.chars().flat_map(char::to_lowercase))
}
