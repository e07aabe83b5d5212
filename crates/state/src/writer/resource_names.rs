//! Resource names, shared by all conversions.

use std::sync::Arc;

use arc_swap::ArcSwap;

use pumice_engine::model::{ResourceId, ResourceTable, TooManyResourcesError};

/// Table of resource names that changes while others read it. Only the writer lets names be forgotten.
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

    /// Table of the newest era.
    pub fn current_table(&self) -> Arc<ResourceTable> {
        self.table.load_full()
    }

    /// Id of a name. Adds the name if it is new.
    ///
    /// # Errors
    /// The table is full.
    pub fn intern(&self, name: &str) -> Result<ResourceId, TooManyResourcesError> {
        match self.table.load().get(name) {
            Some(id) => Ok(id),
            None => self.change(|table| table.intern_shared(name, self.limit)),
        }
    }

    /// Changes the table.
    pub(crate) fn change<T>(&self, change: impl Fn(&mut ResourceTable) -> T) -> T {
        loop {
            let current = self.table.load();
            let mut changed = ResourceTable::clone(&current);
            let result = change(&mut changed);
            // Another caller may have put its own table there: then this change begins again.
            if Arc::ptr_eq(&self.table.compare_and_swap(&*current, Arc::new(changed)), &current) {
                return result;
            }
        }
    }
}
