//! The log as its writer has it open: the head that this process has applied, and whether it may append.

use std::sync::Arc;

use super::{Durability, LogHead, LogNews, LogRead, Store, StoreError, StoreWrite};
use pumice_engine::short_lock::assert_unlocked;

/// Number of attempts to append an entry before its callers get a retryable error. In each failed attempt another
/// server has appended first.
pub(crate) const MAX_APPEND_ATTEMPTS: usize = 64;

/// Log as the writer has it open.
#[derive(Debug)]
pub(crate) struct LedgerLog {
    store: Box<dyn Store>,
    /// Head that the writer has applied.
    head: LogHead,
    /// False after a write whose outcome is not known, or that came too late.
    is_current: bool,
    is_shared: bool,
    news: Arc<LogNews>,
}

impl LedgerLog {
    /// Log of a store whose content up to this head is applied.
    pub(crate) fn new(mut store: Box<dyn Store>, head: LogHead) -> Self {
        let news = Arc::new(LogNews::default());
        let is_shared = store.follow(&news);
        Self {
            store,
            head,
            is_current: true,
            is_shared,
            news,
        }
    }

    /// Durability of entries.
    pub(crate) fn durability(&self) -> Durability {
        self.store.durability()
    }

    /// True if others append to the log as well.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// True if what an append that failed may have left in the log has to be written again. What is in a log that others follow
    /// is true.
    pub(crate) fn needs_repairs(&self) -> bool {
        !self.is_shared
    }

    /// News about the log.
    pub(crate) fn news(&self) -> &Arc<LogNews> {
        &self.news
    }

    /// Appends an entry onto the head that the writer has applied.
    ///
    /// # Errors
    /// [`StoreError::Stale`]: the writer has to read on first. Otherwise the store failed, and the entry may be in the log.
    pub(crate) fn append(&mut self, writes: &[StoreWrite]) -> Result<(), StoreError> {
        if !self.is_current {
            if self.is_shared {
                return Err(StoreError::Stale {
                    place: "the log".to_owned(),
                });
            }
            self.resume()?;
        }
        assert_unlocked();
        let appended = self.store.append(&self.head, writes);
        self.is_current = appended.is_ok();
        self.head = appended?;
        Ok(())
    }

    /// Appends the entry of a group. A group without writes asks whether the head is the newest one, if others append.
    ///
    /// # Errors
    /// The errors of [`Self::append`].
    pub(crate) fn append_group(&mut self, writes: &[StoreWrite]) -> Result<(), StoreError> {
        if !writes.is_empty() {
            return self.append(writes);
        }
        assert_unlocked();
        if self.is_shared && (!self.is_current || self.store.head()? != self.head) {
            self.is_current = false;
            return Err(StoreError::Stale {
                place: "the log".to_owned(),
            });
        }
        Ok(())
    }

    /// Finds the head again after a failed write to a log of this process alone.
    fn resume(&mut self) -> Result<(), StoreError> {
        assert_unlocked();
        if let LogRead::Unacknowledged(head) = self.store.read_after(&self.head)? {
            self.head = head;
        }
        Ok(())
    }

    /// Entries, or the content, that the writer has to apply before it appends; `None`: nothing. Call [`Self::applied`] afterwards.
    ///
    /// # Errors
    /// The log cannot be read: the next call tries again.
    pub(crate) fn read_on(&mut self) -> Result<Option<LogRead>, StoreError> {
        let is_news = self.news.take();
        if !self.is_shared || (self.is_current && !is_news) {
            return Ok(None);
        }
        self.is_current = false;
        assert_unlocked();
        self.store.read_after(&self.head).map(Some)
    }

    /// Records that the writer has applied the log up to this head.
    pub(crate) fn applied(&mut self, head: LogHead) {
        self.head = head;
        self.is_current = true;
    }
}
