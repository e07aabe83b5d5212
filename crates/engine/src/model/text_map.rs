//! Texts by name.

use std::sync::Arc;

/// Map of names to texts, sorted by name: the declared labels or annotations, which plugins read.
pub type TextMap = Arc<[(Arc<str>, Arc<str>)]>;

/// Text of a name.
pub fn find_text<'a>(texts: &'a TextMap, name: &str) -> Option<&'a str> {
    let at = texts.binary_search_by(|(key, _)| (**key).cmp(name)).ok()?;
    texts.get(at).map(|(_, text)| &**text)
}
