//! Resource names, shared by all conversions. An id never changes its meaning.

use std::sync::{Arc, PoisonError, RwLock};

use crate::engine::model::{ResourceId, ResourceTable, TooManyResourcesError};

/// Table of resource names that grows while others read it.
#[derive(Debug)]
pub struct ResourceNames {
    table: RwLock<Arc<ResourceTable>>,
    limit: usize,
}

impl ResourceNames {
    /// Empty table for at most `limit` names.
    pub fn new(limit: usize) -> Self {
        Self {
            table: RwLock::default(),
            limit,
        }
    }

    /// Current table.
    pub fn current_table(&self) -> Arc<ResourceTable> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Id of a name. Adds the name if it is new.
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
