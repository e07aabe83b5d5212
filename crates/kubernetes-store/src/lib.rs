//! Durable state in the Kubernetes API: one log that several servers append to, each by comparison with the entry that it has applied.
//!
//! The log is a ring of ConfigMaps, its *slots*, which are made once and changed from then on (`names.rs`). Entry N is in slot
//! N modulo their number, in place of an entry that a snapshot covers.
//!
//! - **One write commits**: the entry is put into its slot by an update that names the slot's version, as it was with the entry
//!   before. No slot is ever removed, so a version is never used twice, and of all servers that append entry N one succeeds.
//! - **A reply that is lost** is found out by sending the update again: it changes nothing the second time, and what is in the slot
//!   says who was first. As long as the update may still be under way the slot has the old version, and the next entry names it,
//!   too: one of the two fails.
//! - **Nothing is read from caches** of the API server: all reads ask for the newest version, and an update compares in etcd.
//! - **Sizes are bounded**: long entries are written in parts first, which go with the next snapshot; a server writes at most so
//!   often and as many bytes a second as it is told to ([`WriteRates`]).
//!
//! [`KubernetesStore`] is the store as the writer has it. A follower on a runtime of its own watches the slots, renews the Lease
//! of its server, and says when the API server cannot be reached.

mod append;
mod follower;
mod lease;
mod link;
mod load;
mod make;
mod names;
mod pace;
mod read;
mod slots;
mod snapshot;
mod store;

use std::fmt;
use std::time::Duration;

pub use kube_client::Client;
use pumice_live::ClusterAccess;
use pumice_state::store::AppendRules;
pub use store::KubernetesStore;

/// Most slots of a log: their names have four digits.
pub(crate) const MAX_SLOTS: u64 = 10_000;

/// Way to the API server.
#[derive(Clone)]
pub enum ApiAccess {
    /// Credentials, which are read with the first request and after each failure.
    Credentials(ClusterAccess),
    /// A client that is there, and its default namespace.
    Ready(Client),
}

impl fmt::Debug for ApiAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Credentials(access) => access.fmt(f),
            Self::Ready(_) => f.write_str("Ready"),
        }
    }
}

/// Most that a server writes to the API server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WriteRates {
    /// Objects a second; as many at once after a pause.
    pub writes_per_second: f64,
    /// Bytes a second; eight times as many at once after a pause.
    pub bytes_per_second: f64,
}

impl Default for WriteRates {
    fn default() -> Self {
        Self {
            writes_per_second: 50.0,
            bytes_per_second: 1_048_576.0,
        }
    }
}

/// Where the log is, and how to get there.
#[derive(Clone, Debug)]
pub struct KubernetesStoreOptions {
    /// Way to the API server.
    pub access: ApiAccess,
    /// Namespace of the objects; `None`: that of the credentials.
    pub namespace: Option<String>,
    /// Name of the log: the beginning of the names of its objects.
    pub name: String,
    /// Address at which clients find this server; empty: none is known.
    pub address: String,
    /// Beginning of the names of this server's sessions.
    pub session_prefix: String,
    /// Time without a renewal after which others take this server for gone.
    pub lease: Duration,
    /// Longest time that a request takes before its outcome counts as unknown.
    pub timeout: Duration,
    /// Most that this server writes.
    pub rates: WriteRates,
    /// Number of entries between two snapshots: half of the slots at most.
    pub snapshot_every: u64,
    /// Number of slots of a log that is made.
    pub slots: u64,
    /// Rules of safety.
    #[doc(hidden)]
    pub rules: AppendRules,
}

impl KubernetesStoreOptions {
    /// Options with nothing else said.
    pub fn new(access: ApiAccess) -> Self {
        Self {
            access,
            namespace: None,
            name: "pumice".to_owned(),
            address: String::new(),
            session_prefix: String::new(),
            lease: Duration::from_secs(15),
            timeout: Duration::from_secs(2),
            rates: WriteRates::default(),
            snapshot_every: 256,
            slots: 512,
            rules: AppendRules::default(),
        }
    }
}
