//! Names of resources, shared by all conversions; ids never change their meaning.

use std::sync::{Arc, PoisonError, RwLock};

use crate::engine::model::{ResourceId, ResourceTable, TooManyResourcesError};

/// A table that grows under concurrent readers.
#[derive(Debug)]
pub struct ResourceNames {
    table: RwLock<Arc<ResourceTable>>,
    limit: usize,
}

impl ResourceNames {
    /// An empty table for at most `limit` names.
    pub fn new(limit: usize) -> Self {
        Self {
            table: RwLock::default(),
            limit,
        }
    }

    /// The table as it stands.
    pub fn current_table(&self) -> Arc<ResourceTable> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The id of a name, which becomes known.
    ///
    /// # Errors
    /// The table is full.
    pub fn intern(&self, name: &str) -> Result<ResourceId, TooManyResourcesError> {
        if let Some(id) = self.current_table().get(name) {
            return Ok(id);
        }
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut table).intern(name, self.limit)
    }
}
