//! Values of effective arguments.

use crate::policy::{YamlNode, YamlValue};

/// Map with these entries, in this order.
pub(super) fn value_map(entries: impl IntoIterator<Item = (String, YamlValue)>) -> YamlValue {
    let node = |value| YamlNode::new(value);
    let pairs = entries
        .into_iter()
        .map(|(key, value)| (node(YamlValue::String(key)), node(value)));
    YamlValue::Map(pairs.collect())
}

/// Entry of [`value_map`].
pub(super) fn map_entry(key: &str, value: YamlValue) -> (String, YamlValue) {
    (key.to_owned(), value)
}
