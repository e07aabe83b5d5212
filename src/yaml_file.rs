//! Small YAML files of operators and users, read strictly: known keys, texts, and errors with their place.

use std::fmt;

use pumice_engine::policy::{Mark, YamlNode, YamlValue, suggestion};

/// Problem of a file, with its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) struct FileProblem {
    /// Line and column; `None`: the whole file.
    pub(crate) mark: Option<Mark>,
    /// Problem and remedy.
    pub(crate) message: String,
}

impl fmt::Display for FileProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Mark { line, column }) = self.mark {
            write!(f, "{line}:{column}: ")?;
        }
        f.write_str(&self.message)
    }
}

pub(crate) fn problem(mark: Mark, message: impl Into<String>) -> FileProblem {
    FileProblem {
        mark: Some(mark),
        message: message.into(),
    }
}

/// Problem of a key that is none of these.
pub(crate) fn unknown_key(mark: Mark, name: &str, known: &[&str]) -> FileProblem {
    let meant = suggestion::nearest_name(name, known).map(|near| format!("; `{near}` was meant?"));
    let message = format!("there is no key `{name}` here{}", meant.unwrap_or_default());
    problem(mark, message)
}

/// Entries of a map; nothing is an empty map.
pub(crate) fn map<'n>(node: &'n YamlNode, what: &str) -> Result<&'n [(YamlNode, YamlNode)], FileProblem> {
    let unset = matches!(node.value, YamlValue::Null).then_some(&[][..]);
    let entries = node.value.as_pairs().or(unset);
    entries.ok_or_else(|| problem(node.mark, format!("{what} is a map, not {}", node.value.kind())))
}

/// Text that is not empty.
pub(crate) fn text(node: &YamlNode) -> Result<&str, FileProblem> {
    let text = node.value.as_text();
    let text = text.ok_or_else(|| problem(node.mark, format!("{} is no text", node.value.kind())))?;
    if text.is_empty() {
        return Err(problem(node.mark, "it is empty"));
    }
    Ok(text)
}
