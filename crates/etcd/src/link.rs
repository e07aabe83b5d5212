//! Connection to etcd: its members one after the other, the token of the user, and the calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use pumice_engine::short_lock::ShortLock;
use tonic::body::Body;
use tonic::codegen::http;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::Endpoint;
use tonic::{Code, Request, Status};
use tower::ServiceExt as _;
use tower::util::BoxCloneSyncService;

use crate::api::compare::{CompareResult, CompareTarget, TargetUnion};
use crate::api::kv_client::KvClient;
use crate::api::request_op::Request as Operation;
use crate::api::{
    AuthenticateRequest, Compare, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest, RangeResponse, RequestOp,
    ResponseHeader, ResponseOp, TxnRequest, TxnResponse, auth_client::AuthClient, response_op::Response as Done,
};
use crate::keys::KeyRange;
use crate::{ClientTlsConfig, EtcdOptions};

/// Most bytes of one message of etcd.
const REPLY_BYTES: usize = 64 << 20;
/// Time between two probes of a connection.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// Way of calls to a member.
pub type EtcdChannel = BoxCloneSyncService<http::Request<Body>, http::Response<Body>, Status>;

/// Error of a call to etcd.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EtcdError {
    /// An address is not one, or TLS cannot be set up.
    #[error("etcd: {0}")]
    Address(String),
    /// The call failed before etcd carried it out.
    #[error("etcd refuses: {0}")]
    Refused(String),
    /// No member was reachable or replied in time. It is unknown whether etcd executed the call.
    #[error("etcd cannot be reached: {0}")]
    Unreachable(String),
    /// A response does not prove what it says. It is unknown whether etcd executed the call.
    #[error("etcd gives a response that proves nothing: {0}")]
    Unproved(String),
    /// The revision to read has been compacted.
    #[error("etcd has compacted what was being read")]
    Compacted,
}

impl EtcdError {
    /// True if it is unknown whether etcd executed the call.
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::Unproved(_))
    }

    /// True if a new token may help.
    pub(crate) fn is_about_token(&self) -> bool {
        let Self::Refused(message) = self else {
            return false;
        };
        message.contains("invalid auth token") || message.contains("revision of auth store is old")
    }
}

/// Connection to all members of one etcd.
#[derive(Debug)]
pub(crate) struct EtcdLink {
    members: Vec<(String, EtcdChannel)>,
    /// Member that is asked.
    current: AtomicUsize,
    user: Option<(String, String)>,
    token: ShortLock<Option<AsciiMetadataValue>>,
    timeout: Duration,
    /// Cluster that is used. 0: it is not known yet.
    cluster: AtomicU64,
    /// Newest revision that a response had.
    revision: AtomicI64,
}

impl EtcdLink {
    /// Prepares connections. Nothing is sent yet. Call it inside a runtime.
    pub(crate) fn new(options: &EtcdOptions) -> Result<Arc<Self>, EtcdError> {
        if options.endpoints.is_empty() {
            return Err(EtcdError::Address("name at least one member".to_owned()));
        }
        let members = options.endpoints.iter().map(|address| {
            let channel = match &options.channel {
                Some(channel) => channel.clone(),
                None => channel(address, options.tls.as_ref(), options.timeout)?,
            };
            Ok((address.clone(), channel))
        });
        Ok(Arc::new(Self {
            members: members.collect::<Result<_, EtcdError>>()?,
            current: AtomicUsize::new(0),
            user: options.user.clone(),
            token: ShortLock::default(),
            timeout: options.timeout,
            cluster: AtomicU64::new(0),
            revision: AtomicI64::new(0),
        }))
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Number of members.
    pub(crate) fn member_count(&self) -> usize {
        self.members.len()
    }

    /// Addresses of all members, for messages.
    pub(crate) fn place(&self) -> String {
        let addresses: Vec<&str> = self.members.iter().map(|(address, _)| &**address).collect();
        format!("etcd at {}", addresses.join(", "))
    }

    /// Channel of the member that is asked now.
    pub(crate) fn channel(&self) -> Result<EtcdChannel, EtcdError> {
        let number = self.current.load(Ordering::Relaxed) % self.members.len().max(1);
        let member = self.members.get(number).map(|(_, channel)| channel.clone());
        member.ok_or_else(|| EtcdError::Address("no member is named".to_owned()))
    }

    /// Asks the next member from now on.
    pub(crate) fn fail_over(&self) {
        self.current.fetch_add(1, Ordering::Relaxed);
    }

    /// Request with the token of the user.
    pub(crate) async fn request<T>(&self, message: T) -> Result<Request<T>, EtcdError> {
        let mut request = Request::new(message);
        if let Some(token) = self.token().await? {
            request.metadata_mut().insert("token", token);
        }
        Ok(request)
    }

    async fn token(&self) -> Result<Option<AsciiMetadataValue>, EtcdError> {
        let Some((name, password)) = self.user.clone() else {
            return Ok(None);
        };
        if let Some(token) = self.token.with(|token| token.clone()) {
            return Ok(Some(token));
        }
        let asked = AuthenticateRequest { name, password };
        let mut client = AuthClient::new(self.channel()?);
        let asked = tokio::time::timeout(self.timeout, client.authenticate(asked)).await;
        let reply = asked.map_err(|_| timed_out(self.timeout))?;
        let token = reply.map_err(|status| error_of(&status))?.into_inner().token;
        let token: AsciiMetadataValue = token
            .parse()
            .map_err(|_| EtcdError::Refused("the token of the user is not text".to_owned()))?;
        self.token.with(|known| *known = Some(token.clone()));
        Ok(Some(token))
    }

    /// Forgets the token of the user: etcd does not take it any more.
    pub(crate) fn forget_token(&self) {
        self.token.with(|token| *token = None);
    }

    /// Checks that a response comes from the cluster that this server uses, and is not older than what was known when its request was
    /// sent.
    fn check_header(&self, header: Option<&ResponseHeader>, known: i64) -> Result<(), EtcdError> {
        let unproved = |what: String| Err(EtcdError::Unproved(what));
        let ResponseHeader { cluster_id, revision } = proved_header(header)?;
        let cluster = self.cluster.load(Ordering::SeqCst);
        if cluster != cluster_id {
            return unproved(format!(
                "cluster {cluster_id:x} responds, and {cluster:x} was there before: start this server again to use the other one"
            ));
        }
        if revision < known {
            return unproved(format!(
                "revision {revision} after revision {known}: a repeated response, or an older copy of etcd was put back; then start \
                 this server again"
            ));
        }
        self.revision.fetch_max(revision, Ordering::SeqCst);
        Ok(())
    }

    /// Makes sure that the cluster is known. One response may come from elsewhere: two in a row have to name the same cluster.
    async fn find_cluster(&self) -> Result<(), EtcdError> {
        if self.cluster.load(Ordering::SeqCst) != 0 {
            return Ok(());
        }
        let asked = RangeRequest {
            key: vec![0],
            limit: 1,
            ..RangeRequest::default()
        };
        let mut named = [0; 2];
        for name in &mut named {
            let send = |mut client: KvClient<EtcdChannel>, request| async move { client.range(request).await };
            let check = |reply: &RangeResponse, _| proved_header(reply.header.as_ref()).map(drop);
            let reply = self.call(asked.clone(), send, check).await?;
            *name = reply.header.map_or(0, |header| header.cluster_id);
        }
        let [first, second] = named;
        if first != second {
            let reason = format!("the cluster is {first:x} in one response and {second:x} in the next");
            return Err(EtcdError::Unproved(reason));
        }
        // If another call was faster, its cluster counts, and the responses of this one have to name it.
        let _known = self
            .cluster
            .compare_exchange(0, second, Ordering::SeqCst, Ordering::SeqCst);
        Ok(())
    }

    /// Makes a call of one member. What failed before etcd carried it out is tried again with a fresh token, or at the next
    /// member. So is a call whose response does not prove what it says: `check` gets the revision that was known before the call.
    async fn call<T, R, F>(
        &self,
        message: T,
        send: impl Fn(KvClient<EtcdChannel>, Request<T>) -> F,
        check: impl Fn(&R, i64) -> Result<(), EtcdError>,
    ) -> Result<R, EtcdError>
    where
        T: Clone,
        F: Future<Output = Result<tonic::Response<R>, Status>>,
    {
        let (mut has_failed_over, mut has_new_token) = (0, false);
        let mut lost = None;
        loop {
            let attempt = async {
                let client = KvClient::new(self.channel()?).max_decoding_message_size(REPLY_BYTES);
                let request = self.request(message.clone()).await?;
                let known = self.revision.load(Ordering::SeqCst);
                let reply = match tokio::time::timeout(self.timeout, send(client, request)).await {
                    Ok(reply) => reply.map_err(|status| error_of(&status))?.into_inner(),
                    Err(_) => return Err(timed_out(self.timeout)),
                };
                check(&reply, known).map(|()| reply)
            };
            let error = match attempt.await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            if error.is_about_token() && !has_new_token {
                has_new_token = true;
                self.forget_token();
                continue;
            }
            if !error.is_unknown() {
                // An earlier member may have carried it out.
                return Err(lost.unwrap_or(error));
            }
            self.fail_over();
            has_failed_over += 1;
            if has_failed_over >= self.members.len() {
                return Err(error);
            }
            // A transaction compares: to send it twice does no harm.
            lost = Some(error);
        }
    }

    /// Keys of a range, at most this many, at a revision (0: the newest).
    pub(crate) async fn range(
        &self,
        (key, range_end): KeyRange,
        limit: i64,
        revision: i64,
    ) -> Result<RangeResponse, EtcdError> {
        let asked = RangeRequest {
            key,
            range_end,
            limit,
            revision,
        };
        self.find_cluster().await?;
        let check = |reply: &RangeResponse, known| {
            self.check_header(reply.header.as_ref(), known)?;
            check_keys(&asked, &reply.kvs)
        };
        self.call(
            asked.clone(),
            |mut client, request| async move { client.range(request).await },
            check,
        )
        .await
    }

    /// Carries out operations together, if the comparisons hold. A response that does not fit the operations proves nothing, nor does one
    /// that does not show what was put: it is read back with them.
    ///
    /// The call may be sent to several members: its comparisons have to fail once it was carried out.
    pub(crate) async fn transact(&self, mut transaction: TxnRequest) -> Result<TxnResponse, EtcdError> {
        self.find_cluster().await?;
        let puts = transaction.success.iter().filter_map(|asked| match &asked.request {
            Some(Operation::Put(put)) => Some(put.clone()),
            Some(Operation::Range(_) | Operation::DeleteRange(_)) | None => None,
        });
        let put = puts.take(1).next();
        transaction.success.extend(put.iter().map(|put| read(put.key.clone())));
        let check = |reply: &TxnResponse, known| {
            self.check_header(reply.header.as_ref(), known)?;
            let asked = if reply.succeeded {
                &transaction.success
            } else {
                &transaction.failure
            };
            let unproved = || EtcdError::Unproved("a response does not show what was asked for".to_owned());
            if asked.len() != reply.responses.len() {
                return Err(unproved());
            }
            let mut pairs = asked.iter().zip(&reply.responses);
            pairs.try_for_each(|(asked, done)| check_operation(asked, done))?;
            let Some(put) = put.as_ref().filter(|_| reply.succeeded) else {
                return Ok(());
            };
            let revision = reply.header.map_or(0, |header| header.revision);
            let shown = reply.responses.last().and_then(|done| match &done.response {
                Some(Done::Range(range)) => range.kvs.first(),
                Some(Done::Put(_) | Done::DeleteRange(_)) | None => None,
            });
            let is_shown = shown.is_some_and(|shown| shown.value == put.value && shown.mod_revision == revision);
            (is_shown && revision > known).then_some(()).ok_or_else(unproved)
        };
        let mut reply = self
            .call(
                transaction.clone(),
                |mut client, request| async move { client.txn(request).await },
                check,
            )
            .await?;
        if put.is_some() && reply.succeeded {
            reply.responses.pop();
        }
        Ok(reply)
    }
}

/// Header that shows a cluster and a revision.
fn proved_header(header: Option<&ResponseHeader>) -> Result<ResponseHeader, EtcdError> {
    let header = header
        .copied()
        .filter(|header| header.revision > 0 && header.cluster_id != 0);
    header.ok_or_else(|| EtcdError::Unproved("a response has no cluster or no revision".to_owned()))
}

/// Checks that the response of an operation is one of its kind.
fn check_operation(asked: &RequestOp, done: &ResponseOp) -> Result<(), EtcdError> {
    match (&asked.request, &done.response) {
        (Some(Operation::Range(asked)), Some(Done::Range(done))) => check_keys(asked, &done.kvs),
        (Some(Operation::Put(_)), Some(Done::Put(_)))
        | (Some(Operation::DeleteRange(_)), Some(Done::DeleteRange(_))) => Ok(()),
        _ => Err(EtcdError::Unproved(
            "a response is of another kind than its request".to_owned(),
        )),
    }
}

/// Checks that keys are those of a range.
fn check_keys(asked: &RangeRequest, found: &[KeyValue]) -> Result<(), EtcdError> {
    let is_asked = |found: &KeyValue| match &*asked.range_end {
        [] => found.key == asked.key,
        end => found.key >= asked.key && &*found.key < end,
    };
    if found.iter().all(is_asked) {
        return Ok(());
    }
    Err(EtcdError::Unproved(
        "a response has keys that were not asked for".to_owned(),
    ))
}

fn channel(address: &str, tls: Option<&ClientTlsConfig>, timeout: Duration) -> Result<EtcdChannel, EtcdError> {
    let wrong = |error: &dyn std::fmt::Display| EtcdError::Address(format!("`{address}`: {error}"));
    let mut endpoint = Endpoint::from_shared(address.to_owned()).map_err(|error| wrong(&error))?;
    match address.split_once("://") {
        Some(("http", _)) if tls.is_none() => {}
        Some(("http", _)) => return Err(wrong(&"authority and certificate belong to TLS; write https://")),
        Some(("https", _)) => {
            let tls = tls.cloned();
            let tls = tls.ok_or_else(|| wrong(&"name the authority that vouches for the member"))?;
            endpoint = endpoint.tls_config(tls).map_err(|error| wrong(&error))?;
        }
        Some(_) | None => return Err(wrong(&"an address of a member begins with http:// or https://")),
    }
    let endpoint = endpoint
        .connect_timeout(timeout)
        .http2_keep_alive_interval(PROBE_EVERY)
        .keep_alive_timeout(timeout)
        .keep_alive_while_idle(true);
    let channel = endpoint.connect_lazy();
    Ok(EtcdChannel::new(
        channel.map_err(|error| Status::from_error(Box::new(error))),
    ))
}

fn timed_out(timeout: Duration) -> EtcdError {
    EtcdError::Unreachable(format!("no reply within {} ms", timeout.as_millis()))
}

/// Error that a status stands for.
pub(crate) fn error_of(status: &Status) -> EtcdError {
    let message = status.message().to_owned();
    match status.code() {
        Code::OutOfRange if message.contains("compacted") => EtcdError::Compacted,
        Code::InvalidArgument
        | Code::PermissionDenied
        | Code::Unauthenticated
        | Code::FailedPrecondition
        | Code::ResourceExhausted
        | Code::NotFound
        | Code::Unimplemented
        | Code::OutOfRange => EtcdError::Refused(message),
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::AlreadyExists
        | Code::Aborted
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss => {
            let mut text = message;
            let mut cause = std::error::Error::source(status);
            while let Some(error) = cause {
                text = format!("{text}: {error}");
                cause = error.source();
            }
            EtcdError::Unreachable(text)
        }
    }
}

/// Comparison that holds if a key has this value.
pub(crate) fn has_value(key: Vec<u8>, value: Vec<u8>) -> Compare {
    compare(key, CompareTarget::Value, TargetUnion::Value(value))
}

/// Comparison that holds if the key does not exist.
pub(crate) fn is_absent(key: Vec<u8>) -> Compare {
    has_version(key, 0)
}

/// Comparison that holds if the key was changed this many times since it was made. 0: it does not exist.
pub(crate) fn has_version(key: Vec<u8>, version: i64) -> Compare {
    compare(key, CompareTarget::Version, TargetUnion::Version(version))
}

/// Comparison that holds if the key was made by the transaction of this revision.
pub(crate) fn was_made_at(key: Vec<u8>, revision: i64) -> Compare {
    compare(key, CompareTarget::Create, TargetUnion::CreateRevision(revision))
}

/// Comparison that holds if the key was last changed at this revision.
pub(crate) fn was_changed_at(key: Vec<u8>, revision: i64) -> Compare {
    compare(key, CompareTarget::Mod, TargetUnion::ModRevision(revision))
}

fn compare(key: Vec<u8>, target: CompareTarget, value: TargetUnion) -> Compare {
    Compare {
        result: CompareResult::Equal.into(),
        target: target.into(),
        key,
        target_union: Some(value),
    }
}

pub(crate) fn put(key: Vec<u8>, value: Vec<u8>, lease: i64) -> RequestOp {
    RequestOp {
        request: Some(Operation::Put(PutRequest { key, value, lease })),
    }
}

pub(crate) fn read(key: Vec<u8>) -> RequestOp {
    RequestOp {
        request: Some(Operation::Range(RangeRequest {
            key,
            ..RangeRequest::default()
        })),
    }
}

pub(crate) fn read_range((key, range_end): KeyRange, limit: i64) -> RequestOp {
    RequestOp {
        request: Some(Operation::Range(RangeRequest {
            key,
            range_end,
            limit,
            revision: 0,
        })),
    }
}

pub(crate) fn delete((key, range_end): KeyRange) -> RequestOp {
    RequestOp {
        request: Some(Operation::DeleteRange(DeleteRangeRequest { key, range_end })),
    }
}
