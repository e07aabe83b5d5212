//! Store in one file of a directory: an embedded B-tree with transactions, written through to the disk.

use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::Arc;

use super::directory::{FILE_NAME, IDENTITY_NAME, StoreDirectory};
use super::header::StoreId;
use super::medium::StoreMedium;
use super::tree::StoreTree;
use super::{Durability, LogHead, LogNews, LogRead, Store, StoreError, StoreWrite, StoredState};

/// Store on disk. The directory is locked as long as the store is open.
#[derive(Debug)]
pub struct DiskStore {
    location: String,
    medium: Box<dyn StoreMedium>,
    /// Open store; `None`: after a failure, until it can be opened again.
    tree: Option<StoreTree>,
    /// Number of the last write that this process acknowledged.
    acknowledged: u64,
    /// True if this process made the store.
    made: bool,
}

impl DiskStore {
    /// Opens the store of a directory; creates the directory and the store if neither has ever been there.
    ///
    /// # Errors
    /// Another server has it open, it has another format, it is missing, replaced or damaged, or the directory cannot
    /// be written.
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        let directory = StoreDirectory::open(directory)?;
        let place = directory.file().display().to_string();
        let made = directory.is_new()?;
        if made {
            let id = StoreId(RandomState::new().hash_one(std::process::id()));
            directory.make(|bytes| StoreTree::make(&bytes, id).map_err(|error| error.at(&place)))?;
        }
        Self::on_medium(place, Box::new(directory), made)
    }

    /// True if the directory has, or had, a store.
    pub fn exists(directory: &Path) -> bool {
        directory.join(FILE_NAME).exists() || directory.join(IDENTITY_NAME).exists()
    }

    /// Opens the store of a medium.
    pub(super) fn on_medium(place: String, medium: Box<dyn StoreMedium>, made: bool) -> Result<Self, StoreError> {
        let mut store = Self {
            location: place,
            medium,
            tree: None,
            acknowledged: 0,
            made,
        };
        store.tree()?;
        Ok(store)
    }

    /// Open store. After a failure it is opened again, which also checks it.
    fn tree(&mut self) -> Result<&mut StoreTree, StoreError> {
        match &mut self.tree {
            Some(tree) => Ok(tree),
            closed @ None => {
                let tree = StoreTree::open(&self.location, self.medium.open()?)?;
                self.medium.identify(tree.header.id)?;
                if tree.header.acknowledged < self.acknowledged {
                    return Err(StoreError::Replaced {
                        place: self.location.clone(),
                    });
                }
                Ok(closed.insert(tree))
            }
        }
    }

    fn try_append(&mut self, expected: &LogHead, writes: &[StoreWrite]) -> Result<LogHead, StoreError> {
        self.tree()?;
        self.medium.check()?;
        let place = self.location.clone();
        let tree = self.tree()?;
        let head = tree.append(expected, writes).map_err(|error| error.at(&place))?;
        // The file may have been moved away since it was opened: then the write is not where the next start looks for
        // it, and must not be acknowledged.
        self.medium.check()?;
        let acknowledged = self.tree()?.acknowledge(head.sequence);
        acknowledged.map_err(|error| error.at(&place))?;
        Ok(head)
    }
}

impl Store for DiskStore {
    fn durability(&self) -> Durability {
        Durability::Disk
    }

    fn load(&mut self) -> Result<(StoredState, LogHead), StoreError> {
        let (place, made) = (self.location.clone(), self.made);
        let tree = self.tree()?;
        let repaired = !tree.was_closed;
        let (state, head) = tree.load().map_err(|error| error.at(&place))?;
        tracing::info!(
            store = %place,
            made,
            repaired,
            reservations = state.reservations.len(),
            released = state.tombstones.len(),
            commits = state.assumptions.len(),
            policies = state.policies.len(),
            "the store was checked"
        );
        Ok((state, head))
    }

    fn head(&mut self) -> Result<LogHead, StoreError> {
        let place = self.location.clone();
        self.tree()?.head().map_err(|error| error.at(&place))
    }

    /// The directory belongs to one server, so other entries cannot appear.
    fn read_after(&mut self, _: &LogHead) -> Result<LogRead, StoreError> {
        self.head().map(LogRead::Unacknowledged)
    }

    fn follow(&mut self, _: &Arc<LogNews>) -> bool {
        false
    }

    fn append(&mut self, expected: &LogHead, writes: &[StoreWrite]) -> Result<LogHead, StoreError> {
        match self.try_append(expected, writes) {
            Ok(head) => {
                self.acknowledged = head.sequence;
                Ok(head)
            }
            Err(error) if error.is_stale() => Err(error),
            Err(error) => {
                // After an error the store must be opened and checked again before it can be trusted.
                if let Some(tree) = self.tree.take() {
                    tree.abandon();
                }
                Err(error)
            }
        }
    }
}
