//! Leases: each server that follows the log has a Lease with its advertised address, which expires when the server
//! stops.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use pumice_state::store::LogServer;
use tokio::time::Instant;

use crate::KubernetesStoreOptions;
use crate::link::{ApiError, ApiLink};
use crate::names::{LogObjectKind, sequence_of};

/// Annotations of a Lease.
const ADDRESS: &str = "address";
const SESSION_PREFIX: &str = "session-prefix";
/// Most servers that are known to each other.
const MAX_SERVERS: u32 = 200;
/// Number of times that a Lease has to pass unrenewed until others remove it.
const REMOVED_AFTER: u32 = 4;

/// Servers as their Leases show them.
#[derive(Debug)]
pub(crate) struct ListedServers {
    pub(crate) servers: Vec<LogServer>,
    /// Newest entry that one of them has applied.
    pub(crate) newest: u64,
    /// True if the list has the Lease of this server as it was renewed last: it is not an old one.
    pub(crate) has_own: bool,
}

/// Lease of this server, and Leases of the other servers.
#[derive(Debug)]
pub(crate) struct ServerLease {
    server: u64,
    options: Arc<KubernetesStoreOptions>,
    /// Version of the own Lease; `None`: it has to be looked for.
    own: Option<String>,
    acquired: Option<MicroTime>,
    /// Versions of all Leases, and when this process saw each first: clocks of two machines are not compared.
    seen: BTreeMap<String, (String, Instant)>,
}

impl ServerLease {
    pub(crate) fn new(options: &Arc<KubernetesStoreOptions>, server: u64) -> Self {
        Self {
            server,
            options: Arc::clone(options),
            own: None,
            acquired: None,
            seen: BTreeMap::new(),
        }
    }

    /// The Lease as of now. `applied`: number of the last entry that the server has applied.
    fn object(&mut self, link: &ApiLink, applied: u64) -> Lease {
        let now = MicroTime(Timestamp::now());
        let acquired = self.acquired.get_or_insert_with(|| now.clone()).clone();
        let name = link.names.server(self.server);
        let mut metadata = link.names.metadata(LogObjectKind::Server, name.clone(), applied);
        metadata.resource_version.clone_from(&self.own);
        if let Some(annotations) = &mut metadata.annotations {
            annotations.insert(ADDRESS.to_owned(), self.options.address.clone());
            annotations.insert(SESSION_PREFIX.to_owned(), self.options.session_prefix.clone());
        }
        let seconds = i32::try_from(self.options.lease.as_secs()).unwrap_or(i32::MAX);
        Lease {
            metadata,
            spec: Some(LeaseSpec {
                holder_identity: Some(name),
                lease_duration_seconds: Some(seconds.max(1)),
                acquire_time: Some(acquired),
                renew_time: Some(now),
                ..LeaseSpec::default()
            }),
        }
    }

    /// Renews the Lease. A deleted Lease is created again.
    pub(crate) async fn renew(&mut self, link: &ApiLink, applied: u64) -> Result<(), ApiError> {
        match self.write(link, applied).await {
            // Its reply was lost, or somebody has removed or touched the object.
            Err(ApiError::Conflict(_) | ApiError::Absent(_)) => {
                let found = link.find::<Lease>(&link.names.server(self.server)).await?;
                self.own = found.and_then(|found| found.metadata.resource_version);
                self.write(link, applied).await
            }
            // The next renewal is soon enough.
            Err(ApiError::Throttled(..)) => Ok(()),
            written => written,
        }
    }

    /// Writes the Lease in the place of the version that is known, or creates it.
    async fn write(&mut self, link: &ApiLink, applied: u64) -> Result<(), ApiError> {
        let object = self.object(link, applied);
        let written = match &self.own {
            Some(_) => link.replace(&object, 0).await?,
            None => link.create(&object, 0).await?,
        };
        self.own = written.metadata.resource_version;
        Ok(())
    }

    /// Servers whose Leases are renewed, and the newest entry that one of them has applied. Leases that have not been renewed for long are
    /// removed.
    pub(crate) async fn servers(&mut self, link: &ApiLink) -> Result<ListedServers, ApiError> {
        let listed = link.leases(MAX_SERVERS).await?;
        let (now, mut seen, mut servers) = (Instant::now(), BTreeMap::new(), Vec::new());
        let (own_name, mut newest, mut has_own) = (link.names.server(self.server), 0, self.own.is_none());
        for lease in listed {
            let text = |value: Option<String>| value.unwrap_or_default();
            let applied = sequence_of(&lease.metadata).unwrap_or_default();
            let (name, version) = (text(lease.metadata.name), text(lease.metadata.resource_version));
            has_own |= name == own_name && self.own.as_ref() == Some(&version);
            let first = match self.seen.remove(&name) {
                Some((known, first)) if known == version => first,
                Some(_) | None => now,
            };
            let spec = lease.spec.unwrap_or_default();
            let seconds = spec
                .lease_duration_seconds
                .and_then(|seconds| u64::try_from(seconds).ok());
            let length = seconds.map_or(self.options.lease, Duration::from_secs);
            let age = now.saturating_duration_since(first);
            if age > length * REMOVED_AFTER {
                // Somebody may have renewed it after all.
                let _: Result<(), _> = link.delete::<Lease>(&name, Some(version)).await;
                continue;
            }
            if age <= length {
                newest = newest.max(applied);
                let mut annotations = lease.metadata.annotations.unwrap_or_default();
                servers.push(LogServer {
                    session_prefix: annotations.remove(SESSION_PREFIX).unwrap_or_default(),
                    address: annotations.remove(ADDRESS).unwrap_or_default(),
                });
            }
            seen.insert(name, (version, first));
        }
        self.seen = seen;
        Ok(ListedServers {
            servers,
            newest,
            has_own,
        })
    }
}
