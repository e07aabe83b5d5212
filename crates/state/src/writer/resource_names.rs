//! Resource names, shared by all conversions.

use std::sync::Arc;

use arc_swap::ArcSwap;

use pumice_engine::model::{ResourceId, ResourceNaming, ResourceTable, TooManyResourcesError};

/// Table of resource names that changes while others read it. Only the writer lets names be forgotten.
#[derive(Debug)]
pub struct ResourceNames {
    table: ArcSwap<ResourceTable>,
    limit: usize,
}

impl ResourceNames {
    /// Empty table for at most `limit` names that are offered, and as many others.
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
    /// The table has no place for such a name.
    pub fn intern(&self, name: &str, named_by: ResourceNaming) -> Result<ResourceId, TooManyResourcesError> {
        let table = self.table.load();
        let known = table.get(name);
        match known.filter(|id| named_by == ResourceNaming::Asked || table.is_offered(*id)) {
            Some(id) => Ok(id),
            None => self.change(|table| table.intern_shared(name, named_by, self.limit)),
        }
    }

    /// Id that the names share which have no place of their own.
    ///
    /// # Errors
    /// The table has all ids that there are.
    pub fn intern_others(&self) -> Result<ResourceId, TooManyResourcesError> {
        match self.table.load().get(ResourceTable::OTHERS) {
            Some(id) => Ok(id),
            None => self.change(ResourceTable::intern_others),
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
