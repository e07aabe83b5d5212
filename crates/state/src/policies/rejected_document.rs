//! Documents that were rejected.

use std::sync::Arc;

use super::origin::PolicyOrigin;
use pumice_engine::policy::DiagnosticReport;
use pumice_engine::policy::yaml::truncate_text;

/// Errors of a refused document that its message names.
const MAX_NAMED_ERRORS: usize = 3;
/// Most characters of one error in that message.
const MAX_ERROR_CHARS: usize = 240;

/// Document that was rejected.
#[derive(Clone, Debug, PartialEq)]
pub struct RejectedDocument {
    /// Name of the policy.
    pub name: Arc<str>,
    /// Origin: a file or a call.
    pub origin: PolicyOrigin,
    /// Diagnostics, errors among them.
    pub report: DiagnosticReport,
    /// Version that stays active. 0: none.
    pub serving: u64,
}

impl std::fmt::Display for RejectedDocument {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (problems, warnings) = (self.report.errors().count(), self.report.warnings().count());
        let plural = |count: usize, word| {
            if count == 1 {
                format!("1 {word}")
            } else {
                format!("{count} {word}s")
            }
        };
        write!(f, "policy `{}` rejected: {}", self.name, plural(problems, "error"))?;
        self.write_first_errors(f, problems)?;
        if warnings > 0 {
            write!(f, ", {}", plural(warnings, "warning"))?;
        }
        match self.serving {
            0 => f.write_str("; no policy of that name is active"),
            version => write!(f, "; version {version} stays active"),
        }
    }
}

impl RejectedDocument {
    /// Writes the first errors in parentheses, on one line. Control characters of the document are escaped.
    fn write_first_errors(&self, f: &mut std::fmt::Formatter<'_>, count: usize) -> std::fmt::Result {
        for (number, error) in self.report.errors().take(MAX_NAMED_ERRORS).enumerate() {
            f.write_str(if number == 0 { " (" } else { "; " })?;
            write!(f, "{}:{}: {}: ", error.line, error.column, error.code)?;
            let text = match error.path.as_str() {
                "" => error.message.clone(),
                path => format!("{path}: {}", error.message),
            };
            for c in truncate_text(&text, MAX_ERROR_CHARS).chars() {
                match c {
                    c if c.is_control() => write!(f, "{}", c.escape_default())?,
                    c => write!(f, "{c}")?,
                }
            }
        }
        match count.saturating_sub(MAX_NAMED_ERRORS) {
            0 if count == 0 => Ok(()),
            0 => f.write_str(")"),
            more => write!(f, "; and {more} more)"),
        }
    }
}
