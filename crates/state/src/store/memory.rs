//! Store in memory: its content ends with its last handle.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Durability, LogHead, LogNews, LogRead, Store, StoreError, StoreWrite, StoredContent, StoredState};
use pumice_engine::short_lock::ShortLock;

/// Number of entries that a shared log in memory holds for its followers.
const RETAINED_ENTRIES: usize = 256;

#[derive(Debug, Default)]
struct MemoryLog {
    content: StoredContent,
    /// Last entries, as far as somebody follows the log.
    entries: VecDeque<Vec<StoreWrite>>,
    followers: Vec<Arc<LogNews>>,
}

/// Store in memory. Clones share the content.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    log: Arc<ShortLock<MemoryLog>>,
    is_shared: bool,
}

impl MemoryStore {
    /// Handle of one of several servers in this process that append to the same log.
    #[must_use]
    pub fn replica(&self) -> Self {
        Self {
            log: Arc::clone(&self.log),
            is_shared: true,
        }
    }
}

impl Store for MemoryStore {
    fn durability(&self) -> Durability {
        Durability::Memory
    }

    fn load(&mut self) -> Result<(StoredState, LogHead), StoreError> {
        Ok(self.log.with(|log| (log.content.to_state(), log.content.head())))
    }

    fn head(&mut self) -> Result<LogHead, StoreError> {
        Ok(self.log.with(|log| log.content.head()))
    }

    fn append(&mut self, expected: &LogHead, writes: &[StoreWrite]) -> Result<LogHead, StoreError> {
        let (appended, followers) = self.log.with(|log| log.append(expected, writes));
        for news in followers {
            news.post();
        }
        appended
    }

    fn read_after(&mut self, known: &LogHead) -> Result<LogRead, StoreError> {
        self.log.with(|log| {
            let head = log.content.head();
            if !self.is_shared {
                return Ok(LogRead::Unacknowledged(head));
            }
            let missing = head.sequence.checked_sub(known.sequence).ok_or_else(log_is_behind)?;
            let missing = usize::try_from(missing).unwrap_or(usize::MAX);
            match log.entries.len().checked_sub(missing) {
                Some(first) => Ok(LogRead::Entries(
                    log.entries.iter().skip(first).cloned().collect(),
                    head,
                )),
                None => Ok(LogRead::Content(Box::new(log.content.to_state()), head)),
            }
        })
    }

    fn follow(&mut self, news: &Arc<LogNews>) -> bool {
        if self.is_shared {
            self.log.with(|log| log.followers.push(Arc::clone(news)));
        }
        self.is_shared
    }
}

fn log_is_behind() -> StoreError {
    StoreError::Replaced {
        place: "the log in memory".to_owned(),
    }
}

impl MemoryLog {
    fn append(
        &mut self,
        expected: &LogHead,
        writes: &[StoreWrite],
    ) -> (Result<LogHead, StoreError>, Vec<Arc<LogNews>>) {
        if self.content.head() != *expected {
            let place = "the log in memory".to_owned();
            return (Err(StoreError::Stale { place }), Vec::new());
        }
        self.content.apply(writes);
        if !self.followers.is_empty() {
            // Servers that have ended do not follow any more.
            self.followers.retain(|news| Arc::strong_count(news) > 1);
            self.entries.push_back(writes.to_vec());
            if self.entries.len() > RETAINED_ENTRIES {
                self.entries.pop_front();
            }
        }
        (Ok(self.content.head()), self.followers.clone())
    }
}
