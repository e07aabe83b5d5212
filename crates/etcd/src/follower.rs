//! Follower of the log: it renews the lease of this server, watches the head, and reports when etcd is unreachable.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use prost::Message as _;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::access::EtcdLog;
use crate::access::Registration;
use crate::api::event::EventType;
use crate::api::lease_client::LeaseClient;
use crate::api::response_op::Response as Done;
use crate::api::watch_client::WatchClient;
use crate::api::watch_request::RequestUnion;
use crate::api::{
    LeaseGrantRequest, LeaseKeepAliveRequest, LeaseKeepAliveResponse, LeaseRevokeRequest, TxnRequest,
    WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse,
};
use crate::keys::{ReplicaRecord, SnapshotRecord};
use crate::link::{EtcdError, error_of, put, read, read_range, was_made_at};
use pumice_engine::short_lock::ShortLock;
use pumice_state::store::{FollowAttempts, LogHead, LogNews, LogServer, StoreError};

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
    news: Arc<LogNews>,
    registration: ShortLock<Option<Registration>>,
    /// Head after the entry that this server has sent last.
    sent: ShortLock<Option<LogHead>>,
    /// Last revision that a watch has shown; 0: none.
    watched: AtomicI64,
    /// Number of the last entry of the heads that watches have shown.
    shown: AtomicU64,
}

impl Follower {
    pub(crate) fn new(news: Arc<LogNews>) -> Self {
        Self {
            news,
            registration: ShortLock::default(),
            sent: ShortLock::default(),
            watched: AtomicI64::new(0),
            shown: AtomicU64::new(0),
        }
    }

    /// Place of this server; `None`: its lease has ended.
    pub(crate) fn registration(&self) -> Option<Registration> {
        self.registration.with(|registration| registration.clone())
    }

    /// Stores the head after an entry that is being sent; the watch then ignores it. If another server reaches the same
    /// head, etcd rejects the entry, and the writer reads the other entry.
    pub(crate) fn note_sent(&self, head: LogHead) {
        self.sent.with(|sent| *sent = Some(head));
    }

    /// Takes changes of the head and of entries: news, and damage by a hand that is not a server's.
    async fn take_changes(&self, access: &EtcdLog, change: &WatchResponse) -> Result<(), EtcdError> {
        if let Some(header) = &change.header {
            self.watched.store(header.revision, Ordering::Relaxed);
        }
        let (mut newest, mut deleted) = (None, None);
        for event in &change.events {
            let Some(kv) = &event.kv else { continue };
            let is_delete = event.r#type == EventType::Delete as i32;
            let key = EtcdLog::shown(&kv.key);
            if kv.key == access.keys.head() {
                match access.decode_head((!is_delete).then_some(&*kv.value)) {
                    Ok(head) if head.sequence >= self.shown.fetch_max(head.sequence, Ordering::Relaxed) => {
                        newest = Some(head);
                    }
                    Ok(_) => self
                        .news
                        .set_damage(Some(format!("its key {key} was deleted or set back"))),
                    Err(what) => self.news.set_damage(Some(what)),
                }
            } else if let Some(number) = access.keys.entry_number(&kv.key) {
                if is_delete {
                    deleted = deleted.max(Some(number));
                } else if kv.version != 1 {
                    let what = format!("entry {number} (key {key}) was written again by another hand");
                    self.news.set_damage(Some(what));
                }
            }
        }
        if let Some(number) = deleted {
            self.check_deleted(access, number).await?;
        }
        if newest.is_some() && self.sent.with(|sent| *sent) != newest {
            self.news.post();
        }
        Ok(())
    }

    /// Checks that a snapshot covers a deleted entry.
    async fn check_deleted(&self, access: &EtcdLog, number: u64) -> Result<(), EtcdError> {
        let found = access.link.range((access.keys.snapshot(), Vec::new()), 1, 0).await?;
        let snapshot = found
            .kvs
            .first()
            .and_then(|found| SnapshotRecord::read(&found.value).ok());
        if snapshot.is_none_or(|(_, head)| head.sequence < number) {
            let key = EtcdLog::shown(&access.keys.entry(number));
            let what = format!("entry {number} (key {key}) was deleted, and no snapshot covers it");
            self.news.set_damage(Some(what));
        }
        Ok(())
    }

    fn record(&self, access: &EtcdLog) -> Vec<u8> {
        let record = ReplicaRecord {
            address: access.options.address.clone(),
            applied: self.news.applied(),
            session_prefix: access.options.session_prefix.clone(),
        };
        record.encode_to_vec()
    }

    /// Gets a lease and creates this server's key with it. The key of an earlier lease is deleted first, which gives
    /// the new key a new revision.
    pub(crate) async fn register(&self, access: &EtcdLog) -> Result<(), EtcdError> {
        self.registration.with(|registration| *registration = None);
        let seconds = i64::try_from(access.options.lease.as_secs().max(1)).unwrap_or(i64::MAX);
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
        let key = access.keys.replica(&format!("{:016x}", access.server));
        let removed = TxnRequest {
            success: vec![crate::link::delete((key.clone(), Vec::new()))],
            ..TxnRequest::default()
        };
        access.link.transact(removed).await?;
        let made = TxnRequest {
            success: vec![put(key.clone(), self.record(access), granted.id)],
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
    pub(crate) async fn leave(&self, access: &EtcdLog) -> Result<(), StoreError> {
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
    pub(crate) async fn follow(&self, access: &EtcdLog) {
        let mut attempts = FollowAttempts::new(LONGEST_PAUSE);
        loop {
            let mut was_connected = false;
            let error = match self.follow_once(access, &mut was_connected).await {
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
        access: &EtcdLog,
        was_connected: &mut bool,
    ) -> Result<std::convert::Infallible, EtcdError> {
        let (watch_requests, mut changes) = self.watch(access).await?;
        let (mut heard, mut is_asked) = (Instant::now(), false);
        let mut place = PlaceInEtcd::default();
        self.keep_place(access, &mut place).await?;
        *was_connected = true;
        self.news.note_followed();
        let mut tick = tokio::time::interval(access.options.lease / RENEWALS_PER_LEASE);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                change = changes.message() => match change {
                    Ok(Some(change)) if change.canceled => {
                        self.watched.store(0, Ordering::Relaxed);
                        return Err(EtcdError::Unreachable(change.cancel_reason));
                    }
                    Ok(Some(change)) => {
                        (heard, is_asked) = (Instant::now(), false);
                        self.take_changes(access, &change).await?;
                    }
                    Ok(None) => return Err(EtcdError::Unreachable("the watch ended".to_owned())),
                    Err(status) => return Err(error_of(&status)),
                },
                _ = tick.tick() => {
                    if is_asked && heard.elapsed() > access.options.lease {
                        return Err(EtcdError::Unreachable("the watch shows nothing, and does not say how far it is".to_owned()));
                    }
                    is_asked |= watch_requests.try_send(progress_request()).is_ok();
                    self.keep_place(access, &mut place).await?;
                    self.check_newest(access).await?;
                }
            }
        }
    }

    /// Watches the head and the entries, from where an earlier watch ended.
    async fn watch(
        &self,
        access: &EtcdLog,
    ) -> Result<(mpsc::Sender<WatchRequest>, Streaming<WatchResponse>), EtcdError> {
        let (sender, requests) = mpsc::channel(1);
        let (key, range_end) = access.keys.head_and_entries();
        let watched = self.watched.load(Ordering::Relaxed);
        let create = WatchCreateRequest {
            key,
            range_end,
            start_revision: if watched > 0 { watched + 1 } else { 0 },
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
    async fn keep_place(&self, access: &EtcdLog, place: &mut PlaceInEtcd) -> Result<(), EtcdError> {
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

    async fn renew_and_publish(&self, access: &EtcdLog, place: &mut PlaceInEtcd) -> Result<(), EtcdError> {
        if let Some((renewals, replies)) = &mut place.renewals {
            self.renew_once(access, renewals, replies).await?;
        } else {
            place.renewals = Some(self.renew(access).await?);
        }
        self.publish_progress(access, &mut place.published).await
    }

    /// Opens the stream of renewals.
    async fn renew(&self, access: &EtcdLog) -> Result<Renewals, EtcdError> {
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
    async fn lease_id(&self, access: &EtcdLog) -> Result<i64, EtcdError> {
        if self.registration().is_none() {
            self.register(access).await?;
        }
        let own = self.registration();
        own.map(|own| own.lease)
            .ok_or_else(|| EtcdError::Unreachable("the lease has ended".to_owned()))
    }

    async fn renew_once(
        &self,
        access: &EtcdLog,
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
        access: &EtcdLog,
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

    /// Reads the head and which servers there are, and confirms that this server has the newest entry. What it has not is news.
    async fn check_newest(&self, access: &EtcdLog) -> Result<(), EtcdError> {
        let read_both = TxnRequest {
            success: vec![
                read(access.keys.head()),
                read_range(access.keys.replicas(), MAX_SERVERS),
            ],
            ..TxnRequest::default()
        };
        let applied = self.news.applied();
        let reply = access.link.transact(read_both).await?;
        let mut found = reply.responses.into_iter().map(|done| match done.response {
            Some(Done::Range(range)) => range.kvs,
            Some(Done::Put(_) | Done::DeleteRange(_)) | None => Vec::new(),
        });
        let (head, servers) = (found.next().unwrap_or_default(), found.next().unwrap_or_default());
        let head = access.decode_head(head.first().map(|found| &*found.value));
        let records = servers
            .iter()
            .filter_map(|found| ReplicaRecord::decode(&*found.value).ok());
        let (mut newest, mut servers) = (head.as_ref().map_or(0, |head| head.sequence), Vec::new());
        for record in records {
            newest = newest.max(record.applied);
            servers.push(LogServer {
                session_prefix: record.session_prefix,
                address: record.address,
            });
        }
        self.news.set_servers(servers);
        let harm = match head {
            Err(what) => Some(what),
            Ok(head) if head.sequence < applied => {
                Some(format!("its head was set back from entry {applied} to {head}"))
            }
            Ok(_) => None,
        };
        if harm.is_some() {
            self.news.set_damage(harm.clone());
        }
        self.news.confirm_newest(newest, applied, harm);
        Ok(())
    }

    /// Publishes the progress of this server in etcd, if it has changed.
    async fn publish_progress(&self, access: &EtcdLog, published: &mut Option<u64>) -> Result<(), EtcdError> {
        let applied = self.news.applied();
        let Some(Registration { key, revision, lease }) = self.registration() else {
            return Ok(());
        };
        if *published == Some(applied) {
            return Ok(());
        }
        let progress = TxnRequest {
            compare: vec![was_made_at(key.clone(), revision)],
            success: vec![put(key, self.record(access), lease)],
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

/// Asks a watch how far it is.
fn progress_request() -> WatchRequest {
    WatchRequest {
        request_union: Some(RequestUnion::ProgressRequest(WatchProgressRequest {})),
    }
}
