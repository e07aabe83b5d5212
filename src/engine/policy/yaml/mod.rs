//! Reads YAML 1.1 as gopkg.in/yaml.v2 v2.4.0 does: text → tokens → tree → typed values, with marks.

mod decode;
mod parse;
mod resolve;
mod scan;
mod scan_names;
mod scan_text;
mod source;
#[cfg(test)]
mod tests;
mod timestamp;
mod value;

pub(crate) use decode::{YamlDecoder, YamlScalar, YamlShape};
pub(crate) use parse::{YamlNodeId, YamlTree};
pub(crate) use resolve::ResolvedScalar;
#[cfg(test)]
pub(crate) use value::same_key;
pub use value::{Mark, YamlNode, YamlValue};

use super::diagnostics::code;

/// Reads the first document of a text; null if there is none.
///
/// # Errors
/// If the text is no YAML 1.1, or beyond a limit.
pub fn read(text: &str, limits: &YamlLimits) -> Result<YamlNode, YamlError> {
    let tree = YamlTree::read(text, limits)?;
    match tree.root() {
        Some(root) => YamlDecoder::new(&tree, limits).node(root),
        None => Ok(YamlNode::new(YamlValue::Null)),
    }
}

/// Is the text, written without quotes, that very text and no bool, null or number?
pub(crate) fn is_plain_text(text: &str) -> bool {
    resolve::resolve(text, None, true) == Ok(ResolvedScalar::Text)
}

/// The caps on what one document may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct YamlLimits {
    /// Longest document, in bytes.
    pub bytes: usize,
    /// Deepest nesting of lists and maps, aliases and merges followed.
    pub depth: usize,
    /// Most values (scalars, lists, maps, aliases) in the text.
    pub nodes: usize,
    /// Most values read, those that aliases repeat counted each time.
    pub reads: usize,
    /// Most bytes of text read, likewise.
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

/// Why a text cannot be read at all. Wrong types are not among the reasons.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {}, column {}: {message}", mark.line, mark.column)]
pub struct YamlError {
    /// Where the trouble was noticed.
    pub mark: Mark,
    /// Which kind of trouble: one of the `YAML_…` codes of [`crate::engine::policy::diagnostics::code`].
    pub code: &'static str,
    /// What is wrong, in plain words.
    pub message: String,
}

impl YamlError {
    pub(crate) fn new(code: &'static str, mark: Mark, message: impl Into<String>) -> Self {
        YamlError {
            mark,
            code,
            message: message.into(),
        }
    }

    pub(crate) fn syntax(mark: Mark, message: impl Into<String>) -> Self {
        YamlError::new(code::YAML_SYNTAX, mark, message)
    }

    pub(crate) fn limit(mark: Mark, message: impl Into<String>) -> Self {
        YamlError::new(code::YAML_LIMIT, mark, message)
    }
}
