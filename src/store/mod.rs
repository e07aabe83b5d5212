//! Durable things: one trait, one suite of tests, several backends.
//!
//! A store keeps what no source will send again: confirmed reservations with their tombstones, committed placements,
//! versions of policies, and which policy file was last accepted. It is written by the writer only, and read once, at the start.

mod disk;
mod format;
mod memory;

#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

pub use disk::DiskStore;
pub use memory::MemoryStore;

use crate::engine::model::{Reservation, Uid};

/// Where writes are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Lost with the process.
    Memory,
    /// There after a crash.
    Disk,
}

impl std::fmt::Display for Durability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Memory => "MEMORY",
            Self::Disk => "DISK",
        })
    }
}

/// What is remembered of a reservation that ended, so that a late request cannot revive it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservationTombstone {
    /// Key: the job's name.
    pub job: Arc<str>,
    /// Its incarnation; empty: not said.
    pub uid: Arc<str>,
    /// This attempt and all before it are over.
    pub attempt: u64,
    /// The job itself has ended: every attempt of this incarnation is over.
    pub job_ended: bool,
}

/// A committed placement that its source has not told of yet, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredAssumption {
    /// Key: the task's name.
    pub task: Arc<str>,
    /// Its incarnation; empty: not said.
    pub uid: Uid,
    /// The node.
    pub node: Arc<str>,
    /// The card; empty: none said.
    pub card: Arc<str>,
    /// Whose commit made it.
    pub session: Arc<str>,
    /// Who tells of the task.
    pub source: Arc<str>,
}

/// A version of a policy, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPolicy {
    /// Name of the policy.
    pub name: Arc<str>,
    /// 1, 2, 3, … under that name.
    pub version: u64,
    /// As sent.
    pub document: Arc<str>,
    /// How it was read where it does not say: `corrected` or `upstream`.
    pub compatibility: Arc<str>,
    /// First word of its origin.
    pub origin: Arc<str>,
    /// The rest of its origin: a path, a caller, a version.
    pub origin_detail: Arc<str>,
    /// When it was accepted, since 1970.
    pub accepted: Duration,
}

/// One change of what is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreWrite {
    /// What is kept of a job now; `None`: nothing.
    Job {
        /// The job.
        job: Arc<str>,
        /// Its reservation.
        reservation: Option<Arc<Reservation>>,
        /// What is remembered of an earlier one.
        tombstone: Option<Arc<ReservationTombstone>>,
    },
    /// What is kept of a task now.
    Task {
        /// The task.
        task: Arc<str>,
        /// Its committed placement; `None`: none.
        assumption: Option<Arc<StoredAssumption>>,
    },
    /// A version of a policy is kept.
    Policy(StoredPolicy),
    /// A version of a policy is no longer kept.
    RemovePolicy {
        /// The policy.
        name: Arc<str>,
        /// The version.
        version: u64,
    },
    /// Which policy file was accepted last.
    PolicyFile {
        /// Name of the policy.
        name: Arc<str>,
        /// Tells its content from another; `None`: none was.
        content: Option<Arc<str>>,
    },
}

/// All that is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredState {
    /// By job.
    pub reservations: Vec<Arc<Reservation>>,
    /// By job.
    pub tombstones: Vec<Arc<ReservationTombstone>>,
    /// By task.
    pub assumptions: Vec<Arc<StoredAssumption>>,
    /// By name and version.
    pub policies: Vec<StoredPolicy>,
    /// By policy: the file last accepted.
    pub policy_files: Vec<(Arc<str>, Arc<str>)>,
}

/// Why a store failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Another process has it open.
    #[error("{place} is in use by another server")]
    InUse {
        /// Where it is.
        place: String,
    },
    /// It was written by another version of the program.
    #[error("{place} is of format {found}; this program reads format {known}")]
    Format {
        /// Where it is.
        place: String,
        /// Its format.
        found: u64,
        /// The format of this program.
        known: u64,
    },
    /// Something in it cannot be read.
    #[error("{place} holds a record that cannot be read: {what}")]
    Damaged {
        /// Where it is.
        place: String,
        /// What.
        what: String,
    },
    /// The disk refused, or is full.
    #[error("{place}: {message}")]
    Failed {
        /// Where it is.
        place: String,
        /// Why.
        message: String,
    },
}

/// A place for durable things.
pub trait Store: Debug + Send {
    /// Where writes are kept.
    fn durability(&self) -> Durability;

    /// Everything that is kept, sorted.
    ///
    /// # Errors
    /// It cannot be read.
    fn load(&mut self) -> Result<StoredState, StoreError>;

    /// Makes changes in order, all or none; they are durable when it returns.
    ///
    /// # Errors
    /// Nothing can be taken to be written. After a crash some of it may be there all the same: whoever goes on writes
    /// again what is true.
    fn write(&mut self, writes: &[StoreWrite]) -> Result<(), StoreError>;
}
