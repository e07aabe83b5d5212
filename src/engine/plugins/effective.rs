//! Values for effective arguments.

use crate::engine::policy::{Node, Value};

/// A map with these entries, in this order.
pub(super) fn map(entries: impl IntoIterator<Item = (String, Value)>) -> Value {
    let node = |value| Node::new(value);
    let pairs = entries
        .into_iter()
        .map(|(key, value)| (node(Value::String(key)), node(value)));
    Value::Map(pairs.collect())
}

/// An entry of [`map`].
pub(super) fn entry(key: &str, value: Value) -> (String, Value) {
    (key.to_owned(), value)
}
