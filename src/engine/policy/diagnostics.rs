//! What a policy document gets told: faults that refuse it, warnings that do not.

use std::fmt;

use super::yaml::{Mark, YamlError, YamlValue};

/// Most faults, and most warnings, that a report lists; it counts the rest.
pub const MAX_DIAGNOSTICS: usize = 1000;
/// Most characters of one key that a path shows.
const MAX_KEY_CHARS: usize = 80;

/// The codes of findings. A plugin's own findings have codes that begin with [`code::ARGUMENT_PREFIX`].
///
/// The four kinds of refusal that Volcano has are found again here (see [`Kind`]): `YAML_…` is `yaml`,
/// [`code::WRONG_TYPE`] is `yaml-type`, [`code::UNKNOWN_ACTION`] and [`code::NO_ACTIONS`] are
/// `unknown-action`, [`code::CONFLICT`] is `conflict`.
pub mod code {
    /// The text is no YAML 1.1.
    pub const YAML_SYNTAX: &str = "YAML_SYNTAX";
    /// An alias without an anchor, or inside of what it stands for.
    pub const YAML_ALIAS: &str = "YAML_ALIAS";
    /// A merge key whose value is no map and no list of maps.
    pub const YAML_MERGE: &str = "YAML_MERGE";
    /// A text that is not what its tag says.
    pub const YAML_TAG: &str = "YAML_TAG";
    /// A list or a map as the key of a map.
    pub const YAML_KEY: &str = "YAML_KEY";
    /// Larger, deeper or more repetitive than a limit allows.
    pub const YAML_LIMIT: &str = "YAML_LIMIT";
    /// A value of another type than the field has.
    pub const WRONG_TYPE: &str = "WRONG_TYPE";
    /// `proportion` next to a `drf` with hierarchy in one tier.
    pub const CONFLICT: &str = "CONFLICT";
    /// No action is listed.
    pub const NO_ACTIONS: &str = "NO_ACTIONS";
    /// An action that Volcano does not have, or an empty item in the list.
    pub const UNKNOWN_ACTION: &str = "UNKNOWN_ACTION";
    /// Something wrong in the section `pumice:`.
    pub const PUMICE_SECTION: &str = "PUMICE_SECTION";
    /// A key that means nothing where it stands.
    pub const UNKNOWN_KEY: &str = "UNKNOWN_KEY";
    /// A switch with `enable` for `enabled`, or the other way round; it has no effect.
    pub const SWITCH_PREFIX: &str = "SWITCH_PREFIX";
    /// A switch set to `Null` or `NULL`, which Volcano reads as false, unlike `null`.
    pub const SWITCH_NULL: &str = "SWITCH_NULL";
    /// A key that stands twice in one map.
    pub const DUPLICATE_KEY: &str = "DUPLICATE_KEY";
    /// A plugin that stands twice in the document.
    pub const DUPLICATE_PLUGIN: &str = "DUPLICATE_PLUGIN";
    /// An action that is listed twice.
    pub const DUPLICATE_ACTION: &str = "DUPLICATE_ACTION";
    /// A plugin name that neither Volcano nor this service knows.
    pub const UNKNOWN_PLUGIN: &str = "UNKNOWN_PLUGIN";
    /// A profile of a `KubeSchedulerConfiguration` that cannot be, or hardly means what it says.
    pub const PROFILE: &str = "PROFILE";
    /// Two plugins that each keep quotas of queues.
    pub const TWO_QUOTAS: &str = "TWO_QUOTAS";
    /// A tier without plugins.
    pub const EMPTY_TIER: &str = "EMPTY_TIER";
    /// Start of the codes of findings in a plugin's own arguments.
    pub const ARGUMENT_PREFIX: &str = "ARGUMENT_";
    /// An argument of the wrong type.
    pub const ARGUMENT_TYPE: &str = "ARGUMENT_TYPE";
    /// A number that its field cannot hold.
    pub const ARGUMENT_RANGE: &str = "ARGUMENT_RANGE";
    /// An argument that its plugin does not know.
    pub const ARGUMENT_UNKNOWN_KEY: &str = "ARGUMENT_UNKNOWN_KEY";
    /// An argument that its plugin does not use as it is written.
    pub const ARGUMENT_IGNORED: &str = "ARGUMENT_IGNORED";
    /// An argument in a spelling that the reference reads no more, and this service does.
    pub const ARGUMENT_LEGACY: &str = "ARGUMENT_LEGACY";
    /// An argument that its plugin cannot use.
    pub const ARGUMENT_INVALID: &str = "ARGUMENT_INVALID";
    /// A weight that counts nothing, or that may push scores out of their range.
    pub const ARGUMENT_WEIGHT: &str = "ARGUMENT_WEIGHT";
    /// A strategy that its plugin does not have.
    pub const ARGUMENT_STRATEGY: &str = "ARGUMENT_STRATEGY";
    /// The name of a resource that its plugin never counts.
    pub const ARGUMENT_RESOURCE: &str = "ARGUMENT_RESOURCE";
    /// Arguments with which the plugin scores all nodes alike.
    pub const ARGUMENT_MUTE: &str = "ARGUMENT_MUTE";
}

/// Volcano's kinds of refusal, in the order in which it notices them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RefusalKind {
    /// The text cannot be read.
    Yaml,
    /// A value has the wrong type.
    YamlType,
    /// Plugins of one tier exclude each other.
    Conflict,
    /// An action is unknown, or there is none.
    UnknownAction,
}

impl RefusalKind {
    /// The kind of a finding's code; none for what only this service checks.
    pub fn of(diagnostic: &str) -> Option<RefusalKind> {
        match diagnostic {
            code::WRONG_TYPE => Some(RefusalKind::YamlType),
            code::CONFLICT => Some(RefusalKind::Conflict),
            code::NO_ACTIONS | code::UNKNOWN_ACTION => Some(RefusalKind::UnknownAction),
            other => other.starts_with("YAML_").then_some(RefusalKind::Yaml),
        }
    }
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The document is refused.
    Error,
    /// The document is taken, perhaps with another meaning than its author has in mind.
    Warning,
}

/// One thing that is wrong, or looks wrong, in a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Does it refuse the document?
    pub severity: Severity,
    /// What it is about, for programs: one of [`code`], or a plugin's own.
    pub code: &'static str,
    /// What it is about, for people: lowercase, the operator's words in backticks.
    pub message: String,
    /// Line in the document, from 1.
    pub line: u32,
    /// Character in the line, from 1.
    pub column: u32,
    /// The field, such as `tiers[0].plugins[1].name`; empty for the document as a whole.
    pub path: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Diagnostic {
            severity,
            code,
            message,
            line,
            column,
            path,
        } = self;
        let severity = match severity {
            Severity::Error => "fault",
            Severity::Warning => "warning",
        };
        write!(f, "{line}:{column}: {severity} {code}: ")?;
        if !path.is_empty() {
            write!(f, "{path}: ")?;
        }
        f.write_str(message)
    }
}

/// A place that a finding points at.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DocumentLocation {
    /// Where in the text.
    pub mark: Mark,
    /// Which field.
    pub path: String,
}

/// A plugin of the document that this service does not serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnservedPlugin {
    /// Its name as written.
    pub name: String,
    /// Where its name stands.
    pub at: DocumentLocation,
    /// Does Volcano have a plugin of this name?
    pub known_upstream: bool,
    /// The served plugin that was perhaps meant.
    pub did_you_mean: Option<String>,
}

/// All findings about one document.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DiagnosticReport {
    /// In the order of [`Report::finish`] once that has been called.
    pub diagnostics: Vec<Diagnostic>,
    /// Plugins not served here, in the order of the document, each name once.
    pub unserved_plugins: Vec<UnservedPlugin>,
    /// Faults and warnings beyond [`MOST_FINDINGS`] of each, not listed.
    pub omitted: usize,
    error_count: usize,
    warning_count: usize,
}

impl DiagnosticReport {
    /// Adds a fault.
    pub fn error(&mut self, code: &'static str, at: &DocumentLocation, message: impl Into<String>) {
        self.add(Severity::Error, code, at, message.into());
    }

    /// Adds a warning.
    pub fn warning(&mut self, code: &'static str, at: &DocumentLocation, message: impl Into<String>) {
        self.add(Severity::Warning, code, at, message.into());
    }

    fn add(&mut self, severity: Severity, code: &'static str, at: &DocumentLocation, message: String) {
        if self.is_full(severity) {
            self.omitted += 1;
            return;
        }
        *(if severity == Severity::Error {
            &mut self.error_count
        } else {
            &mut self.warning_count
        }) += 1;
        let DocumentLocation { mark, path } = at.clone();
        self.diagnostics.push(Diagnostic {
            severity,
            code,
            message,
            line: mark.line,
            column: mark.column,
            path,
        });
    }

    pub(crate) fn yaml_error(&mut self, error: YamlError) {
        let YamlError { mark, code, message } = error;
        self.error(
            code,
            &DocumentLocation {
                mark,
                path: String::new(),
            },
            message,
        );
    }

    /// Would a further finding be left out?
    pub(crate) fn is_full(&self, severity: Severity) -> bool {
        let count = if severity == Severity::Error {
            self.error_count
        } else {
            self.warning_count
        };
        count >= MAX_DIAGNOSTICS
    }

    /// Is the document refused?
    pub fn has_errors(&self) -> bool {
        self.diagnostics
            .iter()
            .any(|diagnostic| diagnostic.severity == Severity::Error)
    }

    /// The faults.
    pub fn errors(&self) -> impl Iterator<Item = &Diagnostic> {
        self.diagnostics
            .iter()
            .filter(|diagnostic| diagnostic.severity == Severity::Error)
    }

    /// The warnings.
    pub fn warnings(&self) -> impl Iterator<Item = &Diagnostic> {
        self.diagnostics
            .iter()
            .filter(|diagnostic| diagnostic.severity == Severity::Warning)
    }

    /// Makes faults of the warnings if `strict`, and puts the findings in order: faults first, those
    /// for which Volcano refuses a document before others and in the order in which it would notice
    /// them; then by line and column.
    pub fn finish(&mut self, strict: bool) {
        if strict {
            for diagnostic in &mut self.diagnostics {
                diagnostic.severity = Severity::Error;
            }
            self.error_count += std::mem::take(&mut self.warning_count);
        }
        let kind = |diagnostic: &Diagnostic| {
            let kind = RefusalKind::of(diagnostic.code);
            (kind.is_none(), kind)
        };
        self.diagnostics.sort_by(|a, b| {
            let place = |f: &Diagnostic| (f.severity, kind(f), f.line, f.column);
            place(a)
                .cmp(&place(b))
                .then_with(|| (a.code, &a.path).cmp(&(b.code, &b.path)))
        });
    }
}

/// One step from a field into its content.
#[derive(Debug, Clone, PartialEq, Eq)]
enum DocumentPathSegment {
    Key(String),
    Index(usize),
}

/// The way from the top of a document to a field.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DocumentPath(Vec<DocumentPathSegment>);

impl DocumentPath {
    pub(crate) fn push_key(&mut self, key: &str) {
        self.0.push(DocumentPathSegment::Key(key.to_owned()));
    }

    pub(crate) fn push_index(&mut self, index: usize) {
        self.0.push(DocumentPathSegment::Index(index));
    }

    /// Goes to the value of a key of any scalar type.
    pub(crate) fn push_value(&mut self, key: &YamlValue) {
        self.0.push(DocumentPathSegment::Key(match key {
            YamlValue::Null => "null".to_owned(),
            YamlValue::Bool(b) => b.to_string(),
            YamlValue::Int(n) => n.to_string(),
            YamlValue::UInt(n) => n.to_string(),
            YamlValue::Float(x) => x.to_string(),
            YamlValue::String(s) => s.clone(),
            YamlValue::List(_) | YamlValue::Map(_) => key.kind().to_owned(),
        }));
    }

    pub(crate) fn pop(&mut self) {
        self.0.pop();
    }

    pub(crate) fn at(&self, mark: Mark) -> DocumentLocation {
        DocumentLocation {
            mark,
            path: self.to_string(),
        }
    }

    /// The path to the value of a key below this one.
    #[must_use]
    pub fn key(&self, key: &str) -> DocumentPath {
        let mut path = self.clone();
        path.push_key(key);
        path
    }

    /// The path to an item of the list that this one leads to.
    #[must_use]
    pub fn index(&self, index: usize) -> DocumentPath {
        let mut path = self.clone();
        path.push_index(index);
        path
    }
}

impl fmt::Display for DocumentPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.0.iter().enumerate() {
            match step {
                DocumentPathSegment::Index(index) => write!(f, "[{index}]")?,
                DocumentPathSegment::Key(key) if is_bare_key(key) => {
                    if at > 0 {
                        f.write_str(".")?;
                    }
                    f.write_str(key)?;
                }
                DocumentPathSegment::Key(key) => write!(f, "[{:?}]", truncate_text(key, MAX_KEY_CHARS))?,
            }
        }
        Ok(())
    }
}

/// The first characters of a text, for messages.
pub(crate) fn truncate_text(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

fn is_bare_key(key: &str) -> bool {
    !key.is_empty()
        && key.len() <= MAX_KEY_CHARS
        && key
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}
