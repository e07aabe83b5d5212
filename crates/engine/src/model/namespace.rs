//! Namespaces, which selectors of namespaces read.

use std::sync::Arc;

use super::stored::StoredRecord;
use super::table::SortedTable;
use super::text_map::TextMap;
use crate::held_bytes::held_bytes;

/// Record of a namespace: its name and labels, for selectors of namespaces.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamespaceRecord {
    /// Name of the namespace; the key.
    pub name: Arc<str>,
    /// Labels, which selectors of namespaces read.
    pub labels: TextMap,
}

held_bytes! { NamespaceRecord { name, labels } }

/// Namespaces by name.
pub type NamespaceTable = SortedTable<Arc<StoredRecord<NamespaceRecord>>>;
