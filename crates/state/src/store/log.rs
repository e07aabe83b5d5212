//! The log as its writer has it open: the head that this process has applied, and the news about it.

use std::fmt;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Durability, Store, StoreError, StoreWrite, StoredState, UnlockedStore};
use pumice_engine::short_lock::ShortLock;

/// Number of times that an entry is tried before its callers are told to come again: each time others appended first.
pub(crate) const MAX_APPEND_ATTEMPTS: usize = 64;

/// Head of a log: the number of its last entry, and what all entries add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogHead {
    /// Number of the last entry; 0: the log is empty.
    pub sequence: u64,
    /// Number of rows.
    pub rows: u64,
    /// Sum of the checksums of all rows.
    pub checksum: u64,
}

impl fmt::Display for LogHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "entry {} ({} rows, checksum {:016x})",
            self.sequence, self.rows, self.checksum
        )
    }
}

/// Part of a log beyond a head.
#[derive(Clone, Debug, PartialEq)]
pub enum LogRead {
    /// Writes of the entries, in order, and the head after the last one.
    Entries(Vec<Vec<StoreWrite>>, LogHead),
    /// The entries are gone: the content, and its head.
    Content(Box<StoredState>, LogHead),
    /// Nobody else appends: what is beyond the head is what this process wrote without an acknowledgement. The next entry has to
    /// say again what is true.
    Unacknowledged(LogHead),
}

/// News about a log that others append to. The thread that follows the log posts them, and the writer takes them.
#[derive(Default)]
pub struct LogNews {
    waiting: AtomicBool,
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
    problem: ShortLock<Option<String>>,
    write_problem: ShortLock<Option<String>>,
    servers: ShortLock<Arc<[LogServer]>>,
}

/// Server that appends to a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogServer {
    /// Beginning of the names of its sessions.
    pub session_prefix: String,
    /// Address at which clients find it; empty: none is known.
    pub address: String,
}

impl fmt::Debug for LogNews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogNews")
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}

impl LogNews {
    /// Says that others may have appended.
    pub fn post(&self) {
        if !self.waiting.swap(true, Ordering::SeqCst)
            && let Some(wake) = self.wake.get()
        {
            wake();
        }
    }

    /// Says whether the log can be followed; `None`: it can.
    pub fn set_problem(&self, problem: Option<String>) {
        self.problem.with(|last| *last = problem);
    }

    /// Says that the log is followed from now on. What others appended before is news.
    pub fn note_followed(&self) {
        if self.problem().is_some() {
            tracing::info!("the log is followed again");
        }
        self.set_problem(None);
        self.post();
    }

    /// Problem that keeps the log from being followed.
    pub fn problem(&self) -> Option<String> {
        self.problem.with(|problem| problem.clone())
    }

    /// Says whether this server can write to a log that it can follow; `None`: it can.
    pub fn set_write_problem(&self, problem: Option<String>) {
        let last = self.write_problem.with(|last| std::mem::replace(last, problem.clone()));
        match (last, problem) {
            (None, Some(problem)) => {
                tracing::error!(%problem, "the log is read, and cannot be written: until it can, nothing is confirmed, committed, released or reloaded");
            }
            (Some(_), None) => tracing::info!("the log can be written again"),
            (None, None) | (Some(_), Some(_)) => {}
        }
    }

    /// Problem that keeps this server from writing to the log: that it cannot follow it, or that it can read alone.
    pub fn write_problem(&self) -> Option<String> {
        self.problem()
            .or_else(|| self.write_problem.with(|problem| problem.clone()))
    }

    /// Says which servers append to the log now.
    pub fn set_servers(&self, servers: Vec<LogServer>) {
        self.servers.with(|last| *last = servers.into());
    }

    /// Address of the server that opened a session, if it is known.
    pub fn server_of_session(&self, session: &str) -> Option<String> {
        let servers = self.servers.with(|servers| Arc::clone(servers));
        let opener = servers.iter().find(|server| {
            let (prefix, address) = (&server.session_prefix, &server.address);
            !prefix.is_empty() && !address.is_empty() && session.starts_with(&**prefix)
        });
        opener.map(|server| server.address.clone())
    }

    /// Calls this from the next post on. News that are waiting are posted again.
    pub fn wake_by(&self, wake: impl Fn() + Send + Sync + 'static) {
        let is_first = self.wake.set(Box::new(wake)).is_ok();
        if is_first && self.waiting.swap(false, Ordering::SeqCst) {
            self.post();
        }
    }

    fn take(&self) -> bool {
        self.waiting.swap(false, Ordering::SeqCst)
    }
}

/// Log as the writer has it open.
#[derive(Debug)]
pub(crate) struct LedgerLog {
    store: UnlockedStore,
    /// Head that the writer has applied.
    head: LogHead,
    /// False after a write whose outcome is not known, or that came too late.
    is_current: bool,
    is_shared: bool,
    news: Arc<LogNews>,
}

impl LedgerLog {
    /// Log of a store whose content up to this head is applied.
    pub(crate) fn new(store: Box<dyn Store>, head: LogHead) -> Self {
        let news = Arc::new(LogNews::default());
        let mut store = UnlockedStore::new(store);
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
        self.store.read_after(&self.head).map(Some)
    }

    /// Records that the writer has applied the log up to this head.
    pub(crate) fn applied(&mut self, head: LogHead) {
        self.head = head;
        self.is_current = true;
    }
}
