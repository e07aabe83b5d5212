//! Health of the store: each write is watched, for probes and metrics.

use std::sync::Arc;
use std::time::Duration;

use super::clock::Clock;
use crate::store::{Durability, LogHead, LogNews, LogRead, Store, StoreError, StoreWrite, StoredState};
use pumice_engine::short_lock::ShortLock;

/// Time after which a write in progress is treated as a failure of the disk.
const STALLED_AFTER: Duration = Duration::from_secs(5);

/// Status of the store: durability, problem and number of failed writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreStatus {
    /// Durability of writes.
    pub durability: Durability,
    /// Number of writes that failed since the start.
    pub failed_writes: u64,
    /// Problem of the store now, for people; `None`: the last write succeeded.
    pub problem: Option<String>,
    /// Time for which it has not been known whether this server has the newest entry of a shared log. `None`: it is known.
    pub unconfirmed: Option<Duration>,
}

/// Row of failures: its start, and the last error.
type FailureRow = Option<(Duration, StoreError)>;

/// Notes an attempt in a row of failures. Returns the row before it.
fn note_attempt(row: &mut FailureRow, now: Duration, error: Option<&StoreError>) -> FailureRow {
    let before = row.take();
    let since = before.as_ref().map_or(now, |(since, _)| *since);
    *row = error.map(|error| (since, error.clone()));
    before
}

/// Writes of a store as they were seen.
#[derive(Debug, Default)]
struct WriteRecord {
    failed: u64,
    /// Start of the write under way.
    began: Option<Duration>,
    /// Start of the present row of failures, and the last error.
    failing: FailureRow,
    /// Since when the log cannot be read, and the last error.
    unreadable: FailureRow,
}

/// Health of the store, shared with probes and metrics.
#[derive(Debug)]
pub(super) struct StoreHealth {
    durability: Durability,
    clock: Arc<dyn Clock>,
    record: ShortLock<WriteRecord>,
    /// News of the log, if others append to it.
    news: ShortLock<Option<Arc<LogNews>>>,
}

impl WriteRecord {
    /// Problem of the store now.
    fn problem(&self, now: Duration) -> Option<String> {
        let stalled = self.began.map(|began| now.saturating_sub(began));
        if let Some(time) = stalled.filter(|time| *time >= STALLED_AFTER) {
            return Some(format!("a write has waited for the disk for {} s", time.as_secs()));
        }
        let shown = |what: &str, row: &FailureRow| {
            let (since, error) = row.as_ref()?;
            Some(format!(
                "{what} for {} s: {error}",
                now.saturating_sub(*since).as_secs()
            ))
        };
        let writes = shown("writes have failed", &self.failing);
        writes.or_else(|| shown("the log has not been readable", &self.unreadable))
    }

    /// Records the end of a write. Returns the failure before it.
    fn end_write(&mut self, now: Duration, error: Option<&StoreError>) -> FailureRow {
        self.began = None;
        self.failed += u64::from(error.is_some());
        note_attempt(&mut self.failing, now, error)
    }
}

impl StoreHealth {
    pub(super) fn durability(&self) -> Durability {
        self.durability
    }

    pub(super) fn status(&self) -> StoreStatus {
        let now = self.clock.monotonic();
        let (failed_writes, problem) = self.record.with(|record| (record.failed, record.problem(now)));
        let reported = || {
            self.news
                .with(|news| news.as_ref().and_then(|news| news.write_problem()))
        };
        let unconfirmed = self.unconfirmed();
        let silence = || {
            let (time, doubt) = unconfirmed.as_ref()?;
            let seconds = time.as_secs();
            Some(format!(
                "whether this server has the newest entry has not been known for {seconds} s: {doubt}"
            ))
        };
        let problem = problem.or_else(reported).or_else(silence);
        StoreStatus {
            unconfirmed: unconfirmed.as_ref().map(|(time, _)| *time),
            durability: self.durability,
            failed_writes,
            problem,
        }
    }

    /// Time for which it has not been known whether this server has the newest entry, and the reason; `None`: it is known, or only
    /// this server appends.
    pub(super) fn unconfirmed(&self) -> Option<(Duration, String)> {
        self.news.with(|news| news.as_ref()?.unconfirmed())
    }

    /// Records a read of the log. The log has a line when an error is new.
    fn note_read(&self, error: Option<&StoreError>) {
        let now = self.clock.monotonic();
        let before = self
            .record
            .with(|record| note_attempt(&mut record.unreadable, now, error));
        match (before, error) {
            (Some(_), None) => tracing::info!("the log of the store can be read again"),
            (before, Some(error)) if before.as_ref().is_none_or(|(_, known)| known != error) => {
                tracing::error!(%error, "the log of the store cannot be read: until it can, nothing is confirmed, committed, released or reloaded");
            }
            (Some(_) | None, _) => {}
        }
    }

    fn begin_write(&self) {
        let now = self.clock.monotonic();
        self.record.with(|record| record.began = Some(now));
    }

    /// Records the end of a write. The log has a line when failures begin, and one when they end.
    fn end_write(&self, error: Option<&StoreError>) {
        let now = self.clock.monotonic();
        let before = self.record.with(|record| record.end_write(now, error));
        match (before, error) {
            (Some((since, _)), None) => {
                let seconds = now.saturating_sub(since).as_secs();
                tracing::info!(seconds, "the store works again");
            }
            (Some((_, known)), Some(error)) if known == *error => {}
            (_, Some(error)) => {
                tracing::error!(%error, "the store fails: until it works again, nothing is confirmed, committed, released or reloaded");
            }
            (None, None) => {}
        }
    }
}

/// Store whose writes are watched.
#[derive(Debug)]
pub(super) struct WatchedStore {
    store: Box<dyn Store>,
    health: Arc<StoreHealth>,
}

impl WatchedStore {
    pub(super) fn new(store: Box<dyn Store>, clock: Arc<dyn Clock>) -> (Self, Arc<StoreHealth>) {
        let health = Arc::new(StoreHealth {
            durability: store.durability(),
            clock,
            record: ShortLock::default(),
            news: ShortLock::default(),
        });
        let watched = Self {
            store,
            health: Arc::clone(&health),
        };
        (watched, health)
    }
}

impl Store for WatchedStore {
    fn durability(&self) -> Durability {
        self.health.durability
    }

    fn load(&mut self) -> Result<(StoredState, LogHead), StoreError> {
        self.store.load()
    }

    fn head(&mut self) -> Result<LogHead, StoreError> {
        let head = self.store.head();
        self.health.note_read(head.as_ref().err());
        head
    }

    fn append(&mut self, expected: &LogHead, writes: &[StoreWrite]) -> Result<LogHead, StoreError> {
        self.health.begin_write();
        let result = self.store.append(expected, writes);
        // Others were faster: the store works.
        let failed = result.as_ref().err().filter(|error| !error.is_stale());
        self.health.end_write(failed);
        result
    }

    fn read_after(&mut self, known: &LogHead) -> Result<LogRead, StoreError> {
        let read = self.store.read_after(known);
        self.health.note_read(read.as_ref().err());
        // Whoever reads a log in common again has found its store again: there may be nothing to write.
        if matches!(read, Ok(LogRead::Entries(..) | LogRead::Content(..))) {
            self.health.end_write(None);
        }
        read
    }

    fn follow(&mut self, news: &Arc<LogNews>) -> bool {
        news.keep_time(Arc::clone(&self.health.clock));
        let is_shared = self.store.follow(news);
        if is_shared {
            self.health.news.with(|followed| *followed = Some(Arc::clone(news)));
        }
        is_shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{FailingStore, MemoryStore, StoreErrorMode};
    use crate::tests::FakeClock;

    #[test]
    fn failures_and_stalled_writes_are_seen() {
        let (inner, clock) = (FailingStore::default(), Arc::new(FakeClock::default()));
        let (mut store, health) = WatchedStore::new(Box::new(inner.clone()), Arc::clone(&clock) as _);
        store.append_to_head(&[]).unwrap();
        assert_eq!((health.status().failed_writes, health.status().problem), (0, None));

        inner.set_error_mode(StoreErrorMode::RejectWrites);
        for _ in 0..2 {
            store.append_to_head(&[]).unwrap_err();
            clock.advance(3_000);
        }
        let status = health.status();
        assert_eq!(status.failed_writes, 2);
        assert_eq!(status.problem.unwrap(), "writes have failed for 6 s: there: full");
        inner.set_error_mode(StoreErrorMode::None);
        store.append_to_head(&[]).unwrap();
        assert_eq!((health.status().failed_writes, health.status().problem), (2, None));

        let blocked = inner.block_flush();
        let write = std::thread::spawn(move || store.append_to_head(&[]));
        blocked.wait_for_write();
        assert_eq!(health.status().problem, None);
        clock.advance(5_000);
        assert_eq!(
            health.status().problem.unwrap(),
            "a write has waited for the disk for 5 s"
        );
        drop(blocked);
        write.join().unwrap().unwrap();
        assert_eq!(health.status().problem, None);
    }

    #[test]
    fn a_log_that_cannot_be_read_is_reported_until_it_can() {
        let (inner, clock) = (MemoryStore::default().replica(), Arc::new(FakeClock::default()));
        let (mut store, health) = WatchedStore::new(Box::new(inner), Arc::clone(&clock) as _);
        let head = store.append_to_head(&[]).unwrap();
        let ahead = LogHead { sequence: 9, ..head };
        store.read_after(&ahead).unwrap_err();
        clock.advance(4_000);
        store.read_after(&ahead).unwrap_err();
        let problem = health.status().problem.unwrap();
        assert!(
            problem.starts_with("the log has not been readable for 4 s: the log in memory"),
            "{problem}"
        );
        assert_eq!(health.status().failed_writes, 0);
        store.read_after(&head).unwrap();
        assert_eq!(health.status().problem, None);
    }

    #[test]
    fn a_follower_that_cannot_confirm_says_since_when() {
        let (inner, clock) = (MemoryStore::default().replica(), Arc::new(FakeClock::default()));
        let (mut store, health) = WatchedStore::new(Box::new(inner), Arc::clone(&clock) as _);
        let news: Arc<LogNews> = Arc::default();
        assert!(store.follow(&news));
        clock.advance(60_000);
        assert_eq!(health.status().unconfirmed, None, "nobody promised to confirm");
        news.expect_confirmations(Duration::from_secs(1));
        clock.advance(3_000);
        assert_eq!(health.status().problem, None);
        news.confirm(Err("no reply".to_owned()));
        clock.advance(1_000);
        let status = health.status();
        assert_eq!(status.unconfirmed, Some(Duration::from_secs(4)));
        let expected = "whether this server has the newest entry has not been known for 4 s: no reply";
        assert_eq!(status.problem.unwrap(), expected);
        news.confirm(Ok(()));
        assert_eq!((health.status().problem, health.status().unconfirmed), (None, None));
    }
}
