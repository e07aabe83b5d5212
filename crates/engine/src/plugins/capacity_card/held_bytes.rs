//! Memory of maps and texts in bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::COUNT_BYTES;

/// Entries for which a block of a map has room.
const MAP_ITEMS: usize = 11;

/// Bytes of the blocks of a map; those of a large one are filled to about two thirds.
pub(super) fn map_bytes<K, V>(map: &BTreeMap<K, V>) -> usize {
    match map.len() {
        0 => 0,
        items => COUNT_BYTES + (items * 3 / 2).max(MAP_ITEMS) * size_of::<(K, V)>(),
    }
}

/// Bytes of a text that only this state holds.
pub(super) fn text_bytes(text: &Arc<str>) -> usize {
    match text.len() {
        0 => 0,
        bytes => (COUNT_BYTES + bytes) / Arc::strong_count(text).max(1),
    }
}
