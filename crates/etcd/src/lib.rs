//! Durable state in etcd: a log that several servers append to. Each append compares the head with the head that the
//! server has applied.
//!
//! Keys below the prefix, for example `/pumice/`: the head, the entries by number, a periodic snapshot of the content,
//! and a key for each server, which expires with its lease (`keys.rs`).
//!
//! - [`EtcdStore`] is the store that the writer uses. It waits for etcd on the writer's thread.
//! - A follower with its own runtime renews the lease, watches the head, and reports when etcd is unreachable.
//! - One transaction appends an entry. It compares the head and the server's own key. A server that was paused for
//!   longer than its lease must therefore read new entries before it can append.

mod access;
mod follower;
mod keys;
mod link;
mod store;
mod trim;

/// The messages and clients of the calls that the store makes.
#[expect(
    clippy::allow_attributes_without_reason,
    clippy::pedantic,
    unreachable_pub,
    unused_qualifications,
    reason = "generated"
)]
#[rustfmt::skip]
#[path = "generated/etcdserverpb.rs"]
mod api;

use std::fmt;
use std::time::Duration;

pub use access::EtcdLog;
#[doc(hidden)]
pub use link::EtcdChannel;
pub use link::EtcdError;
use pumice_state::store::AppendRules;
pub use store::EtcdStore;
pub use tonic::transport::{Certificate, ClientTlsConfig, Identity};

/// Where the log is, and how to get there.
#[derive(Clone)]
pub struct EtcdOptions {
    /// Addresses of the members: `http://host:port`, or `https://`.
    pub endpoints: Vec<String>,
    /// TLS of addresses with `https://`.
    pub tls: Option<ClientTlsConfig>,
    /// User and password. `None`: etcd without authentication.
    pub user: Option<(String, String)>,
    /// Prefix of all keys of the log.
    pub prefix: String,
    /// Address at which clients find this server. Empty: not configured.
    pub address: String,
    /// Beginning of the names of this server's sessions.
    pub session_prefix: String,
    /// Lease of this server in etcd. After its expiry the server must read new entries before it can append.
    pub lease: Duration,
    /// Timeout of a call to etcd, for example 1 s. After it the outcome of the call is unknown.
    pub timeout: Duration,
    /// Number of entries between two snapshots.
    pub snapshot_every: u64,
    /// Rules of safety.
    #[doc(hidden)]
    pub rules: AppendRules,
    /// Channel of all members, instead of a connection to each.
    #[doc(hidden)]
    pub channel: Option<EtcdChannel>,
}

impl EtcdOptions {
    /// Options for these members, with defaults for all other options.
    pub fn new(endpoints: Vec<String>) -> Self {
        Self {
            endpoints,
            tls: None,
            user: None,
            prefix: "/pumice/".to_owned(),
            address: String::new(),
            session_prefix: String::new(),
            lease: Duration::from_secs(5),
            timeout: Duration::from_secs(1),
            snapshot_every: 1_000,
            rules: AppendRules::default(),
            channel: None,
        }
    }
}

impl fmt::Debug for EtcdOptions {
    /// Shows no password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("EtcdOptions");
        shown.field("endpoints", &self.endpoints).field("prefix", &self.prefix);
        shown.field("user", &self.user.as_ref().map(|(user, _)| user));
        shown.finish_non_exhaustive()
    }
}
