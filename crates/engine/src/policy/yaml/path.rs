//! Paths in a document, for messages.

use std::fmt;

use super::value::{Mark, YamlValue};

/// Number of characters of a key that a path shows.
const MAX_KEY_CHARS: usize = 80;
/// Number of characters of a name that a message shows.
const MAX_SHOWN_CHARS: usize = 60;

/// Location that a diagnostic refers to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DocumentLocation {
    /// Position in the text.
    pub mark: Mark,
    /// Path of the field.
    pub path: String,
}

/// Segment of a path: one step from a field into its content.
#[derive(Debug, Clone, PartialEq, Eq)]
enum DocumentPathSegment {
    Key(String),
    Index(usize),
}

/// Path from the top of a document to a field.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DocumentPath(Vec<DocumentPathSegment>);

impl DocumentPath {
    pub(crate) fn push_key(&mut self, key: &str) {
        self.0.push(DocumentPathSegment::Key(key.to_owned()));
    }

    pub(crate) fn push_index(&mut self, index: usize) {
        self.0.push(DocumentPathSegment::Index(index));
    }

    /// Appends the value of a key of any scalar type.
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

    /// Path to the value of a key below this one.
    #[must_use]
    pub fn key(&self, key: &str) -> DocumentPath {
        let mut path = self.clone();
        path.push_key(key);
        path
    }

    /// Path to an item of the list at this path.
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

/// Leading characters of a text, for messages.
pub fn truncate_text(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Name from a document as a message shows it: at most 60 characters.
pub(crate) fn shown_name(name: &str) -> String {
    truncate_text(name, MAX_SHOWN_CHARS)
}

fn is_bare_key(key: &str) -> bool {
    !key.is_empty()
        && key.len() <= MAX_KEY_CHARS
        && key
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}
