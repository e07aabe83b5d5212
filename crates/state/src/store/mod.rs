//! Durable storage: one log, one conformance suite, several backends.
//!
//! A store is a log. An entry is one group commit. It is appended only if the head is still the head that its writer
//! has applied ([`Store::append`]). All entries together define a set of rows. The head has the checksum of the rows:
//! two processes that have applied the same entries can verify that their rows are equal.
//!
//! On disk (`disk`), a directory has the store and its identity (`directory`). The store's file is a header (`header`)
//! and a B-tree (`tree`) of rows with checksums (`row`).
//!
//! A store has the state that sources do not send again: confirmed reservations with their tombstones, committed
//! placements, versions of policies, the last accepted policy file, and the names of live sources. Only the writer
//! writes to it. It is read once at the start, and followed if other servers also append to it.

mod content;
mod directory;
mod disk;
mod entry;
mod format;
#[doc(hidden)]
#[cfg(any(test, feature = "test-doors"))]
pub mod fuzz_entries;
mod header;
mod ledger_log;
mod log;
mod medium;
mod memory;
mod row;
mod shared_log;
mod shared_service;
mod shared_store;
#[cfg(any(test, feature = "test-doors"))]
#[doc(hidden)]
pub mod testing;
mod tree;

#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

pub use content::StoredContent;
pub use disk::DiskStore;
pub use entry::LogEntry;
pub(crate) use ledger_log::{LedgerLog, MAX_APPEND_ATTEMPTS};
pub use log::{LogHead, LogNews, LogRead, LogServer};
pub use memory::MemoryStore;
#[doc(hidden)]
pub use shared_log::AppendRules;
pub use shared_log::{EntryAuthor, EntryValue};
use shared_service::report_checked;
pub use shared_service::{FollowAttempts, StoreRuntime, await_service};
pub use shared_store::{AppendOutcome, EntryAttempt, LogPage, LogPlace, SharedLog, SharedStore};
#[cfg(any(test, feature = "test-doors"))]
#[doc(hidden)]
pub use testing::{BlockedFlush, FailingStore, StoreErrorMode};

use pumice_engine::model::{Reservation, Uid};

/// Durability of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The write is lost when the process ends.
    Memory,
    /// The write survives a crash.
    Disk,
    /// The write is in etcd.
    Etcd,
    /// The write is in the Kubernetes API.
    Kubernetes,
}

impl std::fmt::Display for Durability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Memory => "MEMORY",
            Self::Disk => "DISK",
            Self::Etcd => "ETCD",
            Self::Kubernetes => "KUBERNETES",
        })
    }
}

/// Record of an ended reservation. A late request cannot restore the reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservationTombstone {
    /// Name of the job: the key.
    pub job: Arc<str>,
    /// Incarnation of the job; empty: not given.
    pub uid: Arc<str>,
    /// Last attempt that has ended; all earlier ones have ended, too.
    pub attempt: u64,
    /// True if the job itself has ended: every attempt of this incarnation is over.
    pub job_ended: bool,
}

/// Committed placement that its source has not reported yet, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredAssumption {
    /// Name of the task: the key.
    pub task: Arc<str>,
    /// Incarnation of the task; empty: not given.
    pub uid: Uid,
    /// Node that the task is placed on.
    pub node: Arc<str>,
    /// Card that the task uses; empty: none chosen.
    pub card: Arc<str>,
    /// Devices that the task uses there; 0: none.
    pub devices: u64,
    /// Session whose commit made the placement.
    pub session: Arc<str>,
    /// Source that reports the task.
    pub source: Arc<str>,
}

/// Version of a policy, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPolicy {
    /// Name of the policy.
    pub name: Arc<str>,
    /// Number of the version: 1, 2, 3, … under that name.
    pub version: u64,
    /// Document as it was sent.
    pub document: Arc<str>,
    /// Compatibility used if the document does not set it: `corrected` or `upstream`.
    pub compatibility: Arc<str>,
    /// Kind of the origin.
    pub origin: Arc<str>,
    /// Detail of the origin: a path, a caller, or a version.
    pub origin_detail: Arc<str>,
    /// Time since 1970 at which it was accepted.
    pub accepted: Duration,
}

/// One write to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreWrite {
    /// State of a job now; `None` twice: the store holds nothing of it.
    Job {
        /// Name of the job.
        job: Arc<str>,
        /// Reservation of the job.
        reservation: Option<Arc<Reservation>>,
        /// Tombstone of an earlier reservation.
        tombstone: Option<Arc<ReservationTombstone>>,
    },
    /// State of a task now.
    Task {
        /// Name of the task.
        task: Arc<str>,
        /// Committed placement; `None`: the store holds none.
        assumption: Option<Arc<StoredAssumption>>,
        /// True if the placement ended because the task's source reported its outcome. A server that follows the log
        /// applies the placement until its own source reports the outcome.
        is_reported: bool,
    },
    /// Stores a version of a policy.
    Policy(StoredPolicy),
    /// Removes a version of a policy.
    RemovePolicy {
        /// Name of the policy.
        name: Arc<str>,
        /// Number of the version.
        version: u64,
    },
    /// Records the last accepted policy file.
    PolicyFile {
        /// Name of the policy.
        name: Arc<str>,
        /// Fingerprint of the file's content; `None`: no file was accepted.
        content: Option<Arc<str>>,
    },
    /// Records that a live source has synced, or that it is not awaited any more.
    Source {
        /// Name of the source.
        name: Arc<str>,
        /// True if the next start waits for it.
        is_awaited: bool,
    },
}

/// Complete content of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredState {
    /// Reservations, by job.
    pub reservations: Vec<Arc<Reservation>>,
    /// Tombstones, by job.
    pub tombstones: Vec<Arc<ReservationTombstone>>,
    /// Committed placements, by task.
    pub assumptions: Vec<Arc<StoredAssumption>>,
    /// Versions of policies, by name and version.
    pub policies: Vec<StoredPolicy>,
    /// Fingerprint of the last accepted policy file, by policy.
    pub policy_files: Vec<(Arc<str>, Arc<str>)>,
    /// Live sources that had synced, by name.
    pub sources: Vec<Arc<str>>,
}

impl StoredState {
    /// Sorts the rows as a store has them.
    pub fn sort(&mut self) {
        self.reservations.sort_by(|a, b| a.job.cmp(&b.job));
        self.tombstones.sort_by(|a, b| a.job.cmp(&b.job));
        self.assumptions.sort_by(|a, b| a.task.cmp(&b.task));
        self.policies
            .sort_by(|a, b| (&a.name, a.version).cmp(&(&b.name, b.version)));
        self.policy_files.sort();
        self.sources.sort();
    }

    /// The writes that make an empty store equal to this.
    pub fn into_writes(self) -> Vec<StoreWrite> {
        let mut jobs: BTreeMap<Arc<str>, JobRows> = BTreeMap::new();
        for row in self.reservations {
            let job = Arc::clone(&row.job);
            jobs.entry(job).or_default().0 = Some(row);
        }
        for row in self.tombstones {
            let job = Arc::clone(&row.job);
            jobs.entry(job).or_default().1 = Some(row);
        }
        let jobs = jobs.into_iter().map(|(job, (reservation, tombstone))| StoreWrite::Job {
            job,
            reservation,
            tombstone,
        });
        let tasks = self.assumptions.into_iter().map(|row| StoreWrite::Task {
            task: Arc::clone(&row.task),
            assumption: Some(row),
            is_reported: false,
        });
        let files = self
            .policy_files
            .into_iter()
            .map(|(name, content)| StoreWrite::PolicyFile {
                name,
                content: Some(content),
            });
        let policies = self.policies.into_iter().map(StoreWrite::Policy);
        let sources = self
            .sources
            .into_iter()
            .map(|name| StoreWrite::Source { name, is_awaited: true });
        jobs.chain(tasks).chain(policies).chain(files).chain(sources).collect()
    }
}

/// Stored rows of one job.
type JobRows = (Option<Arc<Reservation>>, Option<Arc<ReservationTombstone>>);

/// Error of a store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Another process has the store open.
    #[error("{place} is in use by another server: stop that one, or give this one another `data_dir`")]
    InUse {
        /// Location of the store.
        place: String,
    },
    /// Another version of the program wrote the store.
    #[error(
        "{place} has format {found}; this program reads format {known}: run the program that wrote it, or begin with an \
         empty `data_dir`"
    )]
    Format {
        /// Location of the store.
        place: String,
        /// Format of the store.
        found: u64,
        /// Format that this program reads.
        known: u64,
    },
    /// The store is gone from a directory that had one.
    #[error(
        "{place} is missing, and `pumice.id` beside it says that a store was made there: put the file back (is its disk \
         mounted?), or delete `pumice.id` to begin with an empty store"
    )]
    Missing {
        /// Location of the store.
        place: String,
    },
    /// The store was replaced by another store or by an older copy.
    #[error(
        "{place} is not the store that was there: another file, or an older copy, is in its place. Put the right one back, \
         or stop the server and delete `pumice.id` beside it to serve this one"
    )]
    Replaced {
        /// Location of the store.
        place: String,
    },
    /// The content of the store is not what was written.
    #[error(
        "{place} is damaged: {what}. Put back a copy of its directory, or move the directory away to begin with an empty \
         store, without the reservations, committed placements and policies of this one"
    )]
    Damaged {
        /// Location of the store.
        place: String,
        /// Part of the store and its problem.
        what: String,
    },
    /// Somebody else has appended to the log since this process read it: nothing was written.
    #[error(
        "{place}: others changed the store again and again while this was to be written: nothing was written, ask again"
    )]
    Stale {
        /// Location of the store.
        place: String,
    },
    /// A write was sent, and no response proves what became of it: the log may have it.
    #[error("{place}: {message}")]
    Unknown {
        /// Location of the store.
        place: String,
        /// Last problem on the way.
        message: String,
    },
    /// The disk failed, or is full.
    #[error("{place}: {message}")]
    Failed {
        /// Location of the store.
        place: String,
        /// Message of the system.
        message: String,
    },
}

impl StoreError {
    /// True if others have appended first: nothing was written.
    pub fn is_stale(&self) -> bool {
        matches!(self, Self::Stale { .. })
    }
}

/// Store of durable records: a log, and the rows that its entries add up to.
pub trait Store: Debug + Send {
    /// Durability of writes to this store.
    fn durability(&self) -> Durability;

    /// Complete content, sorted, and the head of the log that it belongs to.
    ///
    /// # Errors
    /// The store cannot be read.
    fn load(&mut self) -> Result<(StoredState, LogHead), StoreError>;

    /// Newest head of the log.
    ///
    /// # Errors
    /// The store cannot be read.
    fn head(&mut self) -> Result<LogHead, StoreError>;

    /// Appends an entry onto this head: its writes in order, all or none. They are durable when it returns. Returns the head
    /// after the entry.
    ///
    /// # Errors
    /// [`StoreError::Stale`]: the head is another one, and nothing was written. [`StoreError::Unknown`]: the entry may be in
    /// the log. After any error the caller has to read the log ([`Self::read_after`]) before it appends again.
    fn append(&mut self, expected: &LogHead, writes: &[StoreWrite]) -> Result<LogHead, StoreError>;

    /// Part of the log beyond a head that this process has applied.
    ///
    /// # Errors
    /// The store cannot be read, or the log does not lead on from this head.
    fn read_after(&mut self, known: &LogHead) -> Result<LogRead, StoreError>;

    /// Registers `news`, which is woken when other servers may have appended. Returns false if only this server
    /// appends.
    fn follow(&mut self, news: &Arc<LogNews>) -> bool;

    /// Repairs the log of stopped servers, as far as it proves what is true. Returns what was repaired, line by line.
    ///
    /// # Errors
    /// The log does not prove what is true: the message says what would be lost. With `accept_loss` that is given up.
    fn repair(&mut self, accept_loss: bool) -> Result<Vec<String>, StoreError> {
        let _ = accept_loss;
        Ok(Vec::new())
    }

    /// Complete content, sorted.
    ///
    /// # Errors
    /// The store cannot be read.
    fn content(&mut self) -> Result<StoredState, StoreError> {
        Ok(self.load()?.0)
    }

    /// Appends an entry onto the newest head without a comparison, for stores of stopped servers.
    ///
    /// # Errors
    /// The errors of [`Self::append`].
    fn append_to_head(&mut self, writes: &[StoreWrite]) -> Result<LogHead, StoreError> {
        let head = self.head()?;
        self.append(&head, writes)
    }
}
