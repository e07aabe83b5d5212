//! Diagnostics of a policy document: errors, which reject it, and warnings.

use std::fmt;

use super::suggestion;
use super::yaml::{DocumentLocation, MAX_DIAGNOSTICS, YamlError};
pub use crate::model::ErrorCode;

/// Volcano's kinds of rejection, in the order of its checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PolicyRejectionKind {
    /// Text that cannot be read.
    Yaml,
    /// Value of the wrong type.
    YamlType,
    /// Plugins of one tier that exclude each other.
    Conflict,
    /// Unknown action, or no action.
    UnknownAction,
}

impl PolicyRejectionKind {
    /// Kind of a code; `None` for checks that only this service has.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "all other codes are those of this service"
    )]
    pub fn of(code: ErrorCode) -> Option<PolicyRejectionKind> {
        match code {
            ErrorCode::YamlSyntax
            | ErrorCode::YamlAlias
            | ErrorCode::YamlMerge
            | ErrorCode::YamlTag
            | ErrorCode::YamlKey
            | ErrorCode::YamlLimit => Some(PolicyRejectionKind::Yaml),
            ErrorCode::TypeInvalid => Some(PolicyRejectionKind::YamlType),
            ErrorCode::PluginsConflict => Some(PolicyRejectionKind::Conflict),
            ErrorCode::ActionsMissing | ErrorCode::ActionUnknown => Some(PolicyRejectionKind::UnknownAction),
            _ => None,
        }
    }
}

/// Severity of a diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The document is rejected.
    Error,
    /// The document is accepted, perhaps with another meaning than its author expects.
    Warning,
}

/// Diagnostic: one thing in a document that is wrong, or looks wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Severity; an error rejects the document.
    pub severity: Severity,
    /// Code for programs.
    pub code: ErrorCode,
    /// Message for people: lower case, the operator's words in backticks.
    pub message: String,
    /// Line in the document, from 1.
    pub line: u32,
    /// Character in the line, from 1.
    pub column: u32,
    /// Path of the field, such as `tiers[0].plugins[1].name`; empty for the whole document.
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
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, "{line}:{column}: {severity} {code}: ")?;
        if !path.is_empty() {
            write!(f, "{path}: ")?;
        }
        f.write_str(message)
    }
}

/// Plugin of the document that this service does not serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnservedPlugin {
    /// Name in the document's spelling.
    pub name: String,
    /// Location of the name.
    pub at: DocumentLocation,
    /// True if Volcano has a plugin of this name.
    pub known_upstream: bool,
    /// Served plugin with a similar name.
    pub did_you_mean: Option<String>,
}

/// All diagnostics of one document.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DiagnosticReport {
    /// Diagnostics, in the order of [`DiagnosticReport::finish`] after that call.
    pub diagnostics: Vec<Diagnostic>,
    /// Plugins not served here, in the order of the document, each name once.
    pub unserved_plugins: Vec<UnservedPlugin>,
    /// Number of errors and warnings beyond [`MAX_DIAGNOSTICS`] of each, which are not listed.
    pub omitted: usize,
    error_count: usize,
    warning_count: usize,
}

impl DiagnosticReport {
    /// Adds an error.
    pub fn error(&mut self, code: ErrorCode, at: &DocumentLocation, message: impl Into<String>) {
        self.add(Severity::Error, code, at, message.into());
    }

    /// Adds a warning.
    pub fn warning(&mut self, code: ErrorCode, at: &DocumentLocation, message: impl Into<String>) {
        self.add(Severity::Warning, code, at, message.into());
    }

    fn add(&mut self, severity: Severity, code: ErrorCode, at: &DocumentLocation, message: String) {
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
        let path = String::new();
        self.error(code, &DocumentLocation { mark, path }, message);
    }

    /// True if the report would omit a further diagnostic.
    pub(crate) fn is_full(&self, severity: Severity) -> bool {
        let count = if severity == Severity::Error {
            self.error_count
        } else {
            self.warning_count
        };
        count >= MAX_DIAGNOSTICS
    }

    /// `; did you mean …?` for a misspelt name, or nothing if no candidate is near. Nothing either once the report is
    /// full: looking for the nearest name takes time, and a flood of unknown names must not add it up.
    pub(crate) fn suggestion(&self, severity: Severity, written: &str, candidates: &[&str]) -> String {
        if self.is_full(severity) {
            return String::new();
        }
        suggestion::hint(written, candidates)
    }

    /// Adds a plugin that is not served. `what` names it in the warning, which comes if the upstream scheduler does not
    /// have it either.
    pub(crate) fn unserved_plugin(
        &mut self,
        name: &str,
        at: &DocumentLocation,
        what: &str,
        [served, upstream]: [&[&str]; 2],
    ) {
        let known_upstream = upstream.contains(&name);
        let near = suggestion::nearest_name(name, served).or_else(|| suggestion::nearest_name(name, upstream));
        let did_you_mean = near.filter(|_| !known_upstream);
        if !known_upstream {
            let hint = did_you_mean.map_or_else(String::new, suggestion::did_you_mean);
            self.warning(ErrorCode::PluginUnknown, at, format!("{what}; it has no effect{hint}"));
        }
        self.unserved_plugins.push(UnservedPlugin {
            name: name.to_owned(),
            at: at.clone(),
            known_upstream,
            did_you_mean: did_you_mean.map(str::to_owned),
        });
    }

    /// True if the document is rejected: the report has an error.
    pub fn has_errors(&self) -> bool {
        self.diagnostics
            .iter()
            .any(|diagnostic| diagnostic.severity == Severity::Error)
    }

    /// Diagnostics with severity error. Empty: the document is accepted.
    pub fn errors(&self) -> impl Iterator<Item = &Diagnostic> {
        self.diagnostics
            .iter()
            .filter(|diagnostic| diagnostic.severity == Severity::Error)
    }

    /// Diagnostics with severity warning.
    pub fn warnings(&self) -> impl Iterator<Item = &Diagnostic> {
        self.diagnostics
            .iter()
            .filter(|diagnostic| diagnostic.severity == Severity::Warning)
    }

    /// Turns warnings into errors if `strict`, and sorts the diagnostics: errors first, those for which Volcano rejects
    /// a document before others and in the order of its checks; then by line and column.
    pub fn finish(&mut self, strict: bool) {
        if strict {
            for diagnostic in &mut self.diagnostics {
                diagnostic.severity = Severity::Error;
            }
            self.error_count += std::mem::take(&mut self.warning_count);
        }
        let kind = |diagnostic: &Diagnostic| {
            let kind = PolicyRejectionKind::of(diagnostic.code);
            (kind.is_none(), kind)
        };
        self.diagnostics.sort_by(|a, b| {
            let place = |f: &Diagnostic| (f.severity, kind(f), f.line, f.column);
            place(a)
                .cmp(&place(b))
                .then_with(|| (a.code.name(), &a.path).cmp(&(b.code.name(), &b.path)))
        });
    }
}
