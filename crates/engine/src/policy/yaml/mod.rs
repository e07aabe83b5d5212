//! Reader of YAML 1.1 with the results of gopkg.in/yaml.v2 v2.4.0: text → tokens → tree → typed values with marks.

use crate::model::ErrorCode;

mod decode;
mod parse;
mod path;
mod resolve;
mod scan;
mod scan_names;
mod scan_text;
mod source;
#[cfg(test)]
mod tests;
mod timestamp;
mod value;

pub use decode::{YamlDecoder, YamlScalar, YamlShape};
pub use parse::{YamlNodeId, YamlTree};
pub(crate) use path::shown_name;
pub use path::{DocumentLocation, DocumentPath, truncate_text};
pub use resolve::ResolvedScalar;
#[cfg(test)]
pub(crate) use value::same_key;
pub use value::{Mark, YamlNode, YamlValue};

/// Maximum number of errors, and of warnings, that a report lists. For further ones it has only their number.
pub const MAX_DIAGNOSTICS: usize = 1000;

/// Reads the first document of a text; null if there is none.
///
/// # Errors
/// The text is not YAML 1.1, or beyond a limit.
pub fn read(text: &str, limits: &YamlLimits) -> Result<YamlNode, YamlError> {
    let tree = YamlTree::read(text, limits)?;
    match tree.root() {
        Some(root) => YamlDecoder::new(&tree, limits).node(root),
        None => Ok(YamlNode::new(YamlValue::Null)),
    }
}

/// True if the text, written without quotes, reads as that text and not as a bool, null or number.
pub(crate) fn is_plain_text(text: &str) -> bool {
    resolve::resolve(text, None, true) == Ok(ResolvedScalar::Text)
}

/// Limits on the cost of one document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct YamlLimits {
    /// Largest document, in bytes.
    pub bytes: usize,
    /// Deepest nesting of lists and maps, with aliases and merges resolved.
    pub depth: usize,
    /// Largest number of values (scalars, lists, maps, aliases) in the text.
    pub nodes: usize,
    /// Maximum number of values to read, including each repetition by an alias.
    pub reads: usize,
    /// Largest number of bytes of text read, likewise.
    pub read_bytes: usize,
}

impl Default for YamlLimits {
    fn default() -> Self {
        YamlLimits {
            bytes: 1 << 20,
            depth: 64,
            nodes: 100_000,
            reads: 100_000,
            read_bytes: 2 << 20,
        }
    }
}

/// Error: a text that cannot be read at all. Wrong types are not among its causes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {}, column {}: {message}", mark.line, mark.column)]
pub struct YamlError {
    /// Position at which the error was detected.
    pub mark: Mark,
    /// Code of the error.
    pub code: ErrorCode,
    /// Cause, in plain words.
    pub message: String,
}

impl YamlError {
    pub(crate) fn new(code: ErrorCode, mark: Mark, message: impl Into<String>) -> Self {
        YamlError {
            mark,
            code,
            message: message.into(),
        }
    }

    /// Fault of the syntax at a mark.
    pub fn syntax(mark: Mark, message: impl Into<String>) -> Self {
        YamlError::new(ErrorCode::YamlSyntax, mark, message)
    }

    pub(crate) fn limit(mark: Mark, message: impl Into<String>) -> Self {
        YamlError::new(ErrorCode::YamlLimit, mark, message)
    }
}
