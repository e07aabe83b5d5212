//! Follower of the log: it renews the lease of this server, watches the head, and reports when etcd is unreachable.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prost::Message as _;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::EtcdOptions;
use crate::access::LogAccess;
use crate::access::Registration;
use crate::api::lease_client::LeaseClient;
use crate::api::watch_client::WatchClient;
use crate::api::watch_request::RequestUnion;
use crate::api::{
    LeaseGrantRequest, LeaseKeepAliveRequest, LeaseKeepAliveResponse, LeaseRevokeRequest, TxnRequest,
    WatchCreateRequest, WatchRequest, WatchResponse,
};
use crate::keys::ReplicaRecord;
use crate::link::{EtcdError, error_of, put, was_made_at};
use pumice_engine::short_lock::ShortLock;
use pumice_state::store::{FollowAttempts, LogHead, LogNews, LogServer};

/// Longest pause between two attempts to reach etcd.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// Most servers that are known to each other.
const MAX_SERVERS: i64 = 1_000;
/// Number of renewals in the time of a lease.
const RENEWALS_PER_LEASE: u32 = 4;

/// Stream of renewals of a lease, and of the replies to them.
type Renewals = (mpsc::Sender<LeaseKeepAliveRequest>, Streaming<LeaseKeepAliveResponse>);

/// Place of this server as this connection keeps it.
#[derive(Debug, Default)]
struct PlaceInEtcd {
    renewals: Option<Renewals>,
    /// Last applied entry of this server that it has published in etcd.
    published: Option<u64>,
}

/// Follower of the log for one server.
#[derive(Debug)]
pub(crate) struct Follower {
    name: String,
    address: String,
    session_prefix: String,
    lease: Duration,
    news: Arc<LogNews>,
    registration: ShortLock<Option<Registration>>,
    applied: AtomicU64,
    /// Head after the entry that this server has sent last.
    sent: ShortLock<Option<LogHead>>,
}

impl Follower {
    pub(crate) fn new(options: &EtcdOptions, server: u64, news: Arc<LogNews>) -> Arc<Self> {
        Arc::new(Self {
            name: format!("{server:016x}"),
            address: options.address.clone(),
            session_prefix: options.session_prefix.clone(),
            lease: options.lease,
            news,
            registration: ShortLock::default(),
            applied: AtomicU64::new(0),
            sent: ShortLock::default(),
        })
    }

    /// Problem that keeps etcd from being followed.
    pub(crate) fn problem(&self) -> Option<String> {
        self.news.problem()
    }

    /// Place of this server; `None`: its lease has ended.
    pub(crate) fn registration(&self) -> Option<Registration> {
        self.registration.with(|registration| registration.clone())
    }

    /// Problem that keeps the log from being written.
    pub(crate) fn write_problem(&self) -> Option<String> {
        self.news.write_problem()
    }

    /// Notes the last entry that the writer has applied.
    pub(crate) fn note_applied(&self, sequence: u64) {
        self.applied.store(sequence, Ordering::Relaxed);
    }

    /// Stores the head after an entry that is being sent; the watch then ignores it. If another server reaches the same
    /// head, etcd rejects the entry, and the writer reads the other entry.
    pub(crate) fn note_sent(&self, head: LogHead) {
        self.sent.with(|sent| *sent = Some(head));
    }

    /// True if a change of the head is this server's own.
    fn is_own(&self, change: &WatchResponse) -> bool {
        let newest = change.events.last().and_then(|event| event.kv.as_ref());
        let newest = newest.and_then(|head| LogHead::decode(&head.value).ok());
        newest.is_some() && self.sent.with(|sent| *sent) == newest
    }

    fn record(&self) -> Vec<u8> {
        let record = ReplicaRecord {
            address: self.address.clone(),
            applied: self.applied.load(Ordering::Relaxed),
            session_prefix: self.session_prefix.clone(),
        };
        record.encode_to_vec()
    }

    /// Gets a lease and creates this server's key with it. The key of an earlier lease is deleted first, which gives
    /// the new key a new revision.
    pub(crate) async fn register(&self, access: &LogAccess) -> Result<(), EtcdError> {
        self.registration.with(|registration| *registration = None);
        let seconds = i64::try_from(self.lease.as_secs().max(1)).unwrap_or(i64::MAX);
        let mut client = LeaseClient::new(access.link.channel()?);
        let asked = access.link.request(LeaseGrantRequest { ttl: seconds }).await?;
        let granted = tokio::time::timeout(access.link.timeout(), client.lease_grant(asked)).await;
        let granted = granted.map_err(|_| EtcdError::Unreachable("no reply to the request for a lease".to_owned()))?;
        let granted = granted.map_err(|status| error_of(&status))?.into_inner();
        if !granted.error.is_empty() {
            return Err(EtcdError::Refused(granted.error));
        }
        if granted.id == 0 || granted.ttl <= 0 {
            return Err(EtcdError::Unproved("a response grants no lease".to_owned()));
        }
        let key = access.keys.replica(&self.name);
        let removed = TxnRequest {
            success: vec![crate::link::delete((key.clone(), Vec::new()))],
            ..TxnRequest::default()
        };
        access.link.transact(removed).await?;
        let made = TxnRequest {
            success: vec![put(key.clone(), self.record(), granted.id)],
            ..TxnRequest::default()
        };
        access.link.transact(made).await?;
        // A transaction that was sent twice has made the key at the first time.
        let found = access.link.range((key.clone(), Vec::new()), 1, 0).await?;
        let made = found.kvs.first().map(|found| found.create_revision);
        let revision = made.ok_or_else(|| EtcdError::Unproved("the key of this server is not there".to_owned()))?;
        let registration = Registration {
            key,
            revision,
            lease: granted.id,
        };
        self.registration.with(|own| *own = Some(registration));
        Ok(())
    }

    /// Ends the lease.
    pub(crate) async fn leave(&self, access: &LogAccess) -> Result<(), pumice_state::store::StoreError> {
        let own = self.registration.with(Option::take);
        let Some(Registration { lease, .. }) = own else {
            return Ok(());
        };
        let revoke = async {
            let mut client = LeaseClient::new(access.link.channel()?);
            let asked = access.link.request(LeaseRevokeRequest { id: lease }).await?;
            let reply = client.lease_revoke(asked).await;
            reply.map(drop).map_err(|status| error_of(&status))
        };
        match tokio::time::timeout(access.link.timeout(), revoke).await {
            Ok(revoked) => revoked.map_err(|error| access.error(&error)),
            Err(_) => Ok(()),
        }
    }

    /// Follows the log until the store is dropped.
    pub(crate) async fn follow(self: Arc<Self>, access: LogAccess) {
        let mut attempts = FollowAttempts::new(LONGEST_PAUSE);
        loop {
            let mut was_connected = false;
            let error = match self.follow_once(&access, &mut was_connected).await {
                Ok(never) => match never {},
                Err(error) => error,
            };
            if error.is_about_token() {
                access.link.forget_token();
            }
            access.link.fail_over();
            // Every member is tried before anybody is told.
            let (patience, problem) = (access.link.member_count(), error.to_string());
            let pause = attempts.note_end(was_connected, patience, &self.news, (&error, problem));
            tokio::time::sleep(pause).await;
        }
    }

    async fn follow_once(
        &self,
        access: &LogAccess,
        was_connected: &mut bool,
    ) -> Result<std::convert::Infallible, EtcdError> {
        let (_watch_requests, mut changes) = self.watch(access).await?;
        let mut place = PlaceInEtcd::default();
        self.keep_place(access, &mut place).await?;
        *was_connected = true;
        self.news.note_followed();
        let mut tick = tokio::time::interval(self.lease / RENEWALS_PER_LEASE);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                change = changes.message() => match change {
                    Ok(Some(change)) if change.canceled => return Err(EtcdError::Unreachable(change.cancel_reason)),
                    Ok(Some(change)) if self.is_own(&change) => {}
                    Ok(Some(_)) => self.news.post(),
                    Ok(None) => return Err(EtcdError::Unreachable("the watch ended".to_owned())),
                    Err(status) => return Err(error_of(&status)),
                },
                _ = tick.tick() => {
                    self.keep_place(access, &mut place).await?;
                    self.read_servers(access).await?;
                }
            }
        }
    }

    /// Watches the head.
    async fn watch(
        &self,
        access: &LogAccess,
    ) -> Result<(mpsc::Sender<WatchRequest>, Streaming<WatchResponse>), EtcdError> {
        let (sender, requests) = mpsc::channel(1);
        let create = WatchCreateRequest {
            key: access.keys.head(),
            ..WatchCreateRequest::default()
        };
        let request = WatchRequest {
            request_union: Some(RequestUnion::CreateRequest(create)),
        };
        let _: Result<(), _> = sender.send(request).await;
        let mut client = WatchClient::new(access.link.channel()?);
        let asked = access.link.request(ReceiverStream::new(requests)).await?;
        let reply = tokio::time::timeout(access.link.timeout(), client.watch(asked)).await;
        let reply = reply.map_err(|_| EtcdError::Unreachable("the watch does not begin".to_owned()))?;
        Ok((sender, reply.map_err(|status| error_of(&status))?.into_inner()))
    }

    /// Renews the lease and publishes the progress of this server. If etcd responds but rejects writes, the server
    /// follows the log without a lease.
    async fn keep_place(&self, access: &LogAccess, place: &mut PlaceInEtcd) -> Result<(), EtcdError> {
        match self.renew_and_publish(access, place).await {
            Ok(()) => self.news.set_write_problem(None),
            Err(error) if error.is_about_token() => return Err(error),
            Err(error @ EtcdError::Refused(_)) => {
                place.renewals = None;
                self.news.set_write_problem(Some(error.to_string()));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn renew_and_publish(&self, access: &LogAccess, place: &mut PlaceInEtcd) -> Result<(), EtcdError> {
        if let Some((renewals, replies)) = &mut place.renewals {
            self.renew_once(access, renewals, replies).await?;
        } else {
            place.renewals = Some(self.renew(access).await?);
        }
        self.publish_progress(access, &mut place.published).await
    }

    /// Opens the stream of renewals.
    async fn renew(&self, access: &LogAccess) -> Result<Renewals, EtcdError> {
        let (sender, requests) = mpsc::channel(1);
        let mut client = LeaseClient::new(access.link.channel()?);
        let id = self.lease_id(access).await?;
        let _: Result<(), _> = sender.send(LeaseKeepAliveRequest { id }).await;
        let asked = access.link.request(ReceiverStream::new(requests)).await?;
        let reply = tokio::time::timeout(access.link.timeout(), client.lease_keep_alive(asked)).await;
        let reply = reply.map_err(|_| EtcdError::Unreachable("the lease is not renewed".to_owned()))?;
        let mut replies = reply.map_err(|status| error_of(&status))?.into_inner();
        // The reply to the first renewal.
        self.await_renewal(access, &mut replies).await?;
        Ok((sender, replies))
    }

    /// Lease of this server. An expired lease is replaced.
    async fn lease_id(&self, access: &LogAccess) -> Result<i64, EtcdError> {
        if self.registration().is_none() {
            self.register(access).await?;
        }
        let own = self.registration();
        own.map(|own| own.lease)
            .ok_or_else(|| EtcdError::Unreachable("the lease has ended".to_owned()))
    }

    async fn renew_once(
        &self,
        access: &LogAccess,
        renewals: &mpsc::Sender<LeaseKeepAliveRequest>,
        replies: &mut Streaming<LeaseKeepAliveResponse>,
    ) -> Result<(), EtcdError> {
        let id = self.lease_id(access).await?;
        let ended = |_| EtcdError::Unreachable("the renewals of the lease ended".to_owned());
        renewals.send(LeaseKeepAliveRequest { id }).await.map_err(ended)?;
        self.await_renewal(access, replies).await
    }

    /// Waits for the reply to a renewal. A lease that has ended is given up.
    async fn await_renewal(
        &self,
        access: &LogAccess,
        replies: &mut Streaming<LeaseKeepAliveResponse>,
    ) -> Result<(), EtcdError> {
        let reply = tokio::time::timeout(access.link.timeout(), replies.message()).await;
        let reply = reply.map_err(|_| EtcdError::Unreachable("the lease is not renewed in time".to_owned()))?;
        match reply.map_err(|status| error_of(&status))? {
            Some(reply) if self.registration().is_none_or(|own| own.lease != reply.id) => {
                Err(EtcdError::Unproved("a response renews another lease".to_owned()))
            }
            Some(reply) if reply.ttl > 0 => Ok(()),
            Some(reply) => {
                self.registration.with(|own| {
                    own.take_if(|own| own.lease == reply.id);
                });
                Err(EtcdError::Unreachable(
                    "the lease had ended; a new one is asked for".to_owned(),
                ))
            }
            None => Err(EtcdError::Unreachable("the renewals of the lease ended".to_owned())),
        }
    }

    /// Reads which servers there are.
    async fn read_servers(&self, access: &LogAccess) -> Result<(), EtcdError> {
        let found = access.link.range(access.keys.replicas(), MAX_SERVERS, 0).await?.kvs;
        let records = found
            .iter()
            .filter_map(|found| ReplicaRecord::decode(&*found.value).ok());
        let servers = records.map(|record| LogServer {
            session_prefix: record.session_prefix,
            address: record.address,
        });
        self.news.set_servers(servers.collect());
        Ok(())
    }

    /// Publishes the progress of this server in etcd, if it has changed.
    async fn publish_progress(&self, access: &LogAccess, published: &mut Option<u64>) -> Result<(), EtcdError> {
        let applied = self.applied.load(Ordering::Relaxed);
        let Some(Registration { key, revision, lease }) = self.registration() else {
            return Ok(());
        };
        if *published == Some(applied) {
            return Ok(());
        }
        let progress = TxnRequest {
            compare: vec![was_made_at(key.clone(), revision)],
            success: vec![put(key, self.record(), lease)],
            ..TxnRequest::default()
        };
        if !access.link.transact(progress).await?.succeeded {
            self.registration.with(|own| {
                own.take_if(|own| own.lease == lease);
            });
            return Err(EtcdError::Unreachable("the key of this server is gone".to_owned()));
        }
        *published = Some(applied);
        Ok(())
    }
}
