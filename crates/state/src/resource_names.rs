//! Resource names, shared by all conversions. An id never changes its meaning.

use std::sync::Arc;

use arc_swap::ArcSwap;

use pumice_engine::model::{ResourceId, ResourceTable, TooManyResourcesError};

/// Table of resource names that grows while others read it.
#[derive(Debug)]
pub struct ResourceNames {
    table: ArcSwap<ResourceTable>,
    limit: usize,
}

impl ResourceNames {
    /// Empty table for at most `limit` names.
    pub fn new(limit: usize) -> Self {
        Self {
            table: ArcSwap::default(),
            limit,
        }
    }

    /// Current table.
    pub fn current_table(&self) -> Arc<ResourceTable> {
        self.table.load_full()
    }

    /// Id of a name. Adds the name if it is new.
    ///
    /// # Errors
    /// The table is full.
    pub fn intern(&self, name: &str) -> Result<ResourceId, TooManyResourcesError> {
        loop {
            let current = self.table.load();
            if let Some(id) = current.get(name) {
                return Ok(id);
            }
            let mut grown = ResourceTable::clone(&current);
            let id = grown.intern(name, self.limit)?;
            // Another caller may have put its own table there: then this name is looked up again.
            if Arc::ptr_eq(&self.table.compare_and_swap(&*current, Arc::new(grown)), &current) {
                return Ok(id);
            }
        }
    }
}
