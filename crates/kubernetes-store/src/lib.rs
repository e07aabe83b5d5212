//! Durable state in the Kubernetes API: a log that several servers append to. Each append is conditional on the last
//! entry that the server has applied.
//!
//! The log is a ring of ConfigMaps, its *slots*. Slots are created once and then only updated (`names.rs`). Entry N is
//! in slot N modulo the number of slots, and replaces an entry that a snapshot covers. For example, with 64 slots entry
//! 130 is in slot 2 and replaces entry 66.
//!
//! - **One write commits**: an update writes the entry into its slot on condition of the slot's version with the
//!   previous entry. Slots are never removed, so a version is never reused, and exactly one server succeeds in
//!   appending entry N.
//! - **After a lost response** the server sends the update again. The second update has no effect if the first
//!   succeeded, and the slot then has the entry of the successful server. While the first update may still be in
//!   progress, the slot has the old version. The next entry is conditional on the same version, so one of the two
//!   fails.
//! - **Caches of the API server are never used**: all reads request the newest version, and an update compares in etcd.
//! - **Sizes are bounded**: long entries are written in parts first; the next snapshot removes the parts.
//!   [`WriteRates`] limits the writes and bytes per second of a server.
//!
//! [`KubernetesStore`] is the store that the writer uses. A follower with its own runtime watches the slots, renews the
//! Lease of its server, and reports when the API server is unreachable.

mod append;
mod follower;
mod lease;
mod link;
mod load;
mod make;
mod mend;
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
pub use read::SlotLog;
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
    /// Namespace of the objects. `None`: namespace of the credentials.
    pub namespace: Option<String>,
    /// Name of the log: the beginning of the names of its objects.
    pub name: String,
    /// Address at which clients find this server. Empty: not configured.
    pub address: String,
    /// Beginning of the names of this server's sessions.
    pub session_prefix: String,
    /// Time without a renewal of its Lease after which other servers treat this server as stopped.
    pub lease: Duration,
    /// Timeout of a request, for example 2 s. After it the outcome of the request is unknown.
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
    /// Options with defaults.
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
