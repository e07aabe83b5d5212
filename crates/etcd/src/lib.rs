//! Durable state in etcd: one log that several servers append to, each by comparison with the head that it has applied.
//!
//! Under a prefix there are the head, the entries by number, a snapshot of the content from time to time, and a key for each
//! server, which goes with its lease (`keys.rs`).
//!
//! - [`EtcdStore`] is the store as the writer has it: it waits for etcd on the writer's thread.
//! - A follower on a runtime of its own renews the lease, watches the head, and says when etcd cannot be reached.
//! - An entry is appended by one transaction that compares the head and this server's own key: a server that slept longer than
//!   its lease appends nothing before it has read on.

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
    /// User and password; `None`: etcd asks for none.
    pub user: Option<(String, String)>,
    /// Prefix of all keys of the log.
    pub prefix: String,
    /// Address at which clients find this server; empty: none is known.
    pub address: String,
    /// Beginning of the names of this server's sessions.
    pub session_prefix: String,
    /// Time after which etcd takes this server for gone, and after which it may not append unless it has read on.
    pub lease: Duration,
    /// Longest time that a call to etcd takes before its outcome counts as unknown.
    pub timeout: Duration,
    /// Number of entries between two snapshots.
    pub snapshot_every: u64,
    /// Rules of safety.
    #[doc(hidden)]
    pub rules: AppendRules,
}

impl EtcdOptions {
    /// Options for these members, with nothing else said.
    pub fn new(endpoints: Vec<String>) -> Self {
        Self {
            endpoints,
            tls: None,
            user: None,
            prefix: "/pumice/".to_owned(),
            address: String::new(),
            session_prefix: String::new(),
            lease: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            snapshot_every: 1_000,
            rules: AppendRules::default(),
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
