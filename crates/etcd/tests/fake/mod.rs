//! A small etcd in this process: keys with revisions, transactions, watches and leases, and problems on demand. Its channel carries
//! requests without a connection, so it works in any runtime.

#![expect(clippy::disallowed_types, reason = "state of a test, which its threads share")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use prost::Message;
use pumice_etcd::{EtcdChannel, EtcdOptions};
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Status;
use tonic::body::Body;

#[expect(
    clippy::all,
    clippy::allow_attributes_without_reason,
    clippy::pedantic,
    unused_qualifications,
    unreachable_pub,
    reason = "generated"
)]
#[rustfmt::skip]
#[path = "../../src/generated/etcdserverpb.rs"]
mod api;

use api::compare::TargetUnion;
use api::request_op::Request as Operation;
use api::response_op::Response as Done;

/// Cluster that responds.
const CLUSTER: u64 = 77;

/// Problem of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallProblem {
    None,
    /// The connection breaks before the call arrives.
    LoseRequest,
    /// The call is carried out, and the connection breaks before the reply.
    LoseReply,
    /// The call never arrives, and no reply ever comes.
    HangBefore,
    /// The call is carried out, and no reply ever comes.
    HangAfter,
    /// The call is not carried out, and its reply is this.
    Lie(EtcdLie),
    /// The call is carried out, and its reply is this.
    LieAfter(EtcdLie),
    /// The call is not carried out: etcd has no room.
    NoRoom,
    /// The call is carried out after this many milliseconds.
    Late(u64),
}

/// Reply in the place of the true one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EtcdLie {
    /// Nothing: all fields have their defaults.
    Empty,
    /// A transaction that succeeded, without a header.
    Succeeded,
    /// Reply to the last call of this kind.
    Repeated,
    /// The reply of another etcd.
    OtherCluster,
}

impl EtcdLie {
    pub(crate) const ALL: [Self; 4] = [Self::Empty, Self::Succeeded, Self::Repeated, Self::OtherCluster];
}

/// Decides about problems: name of the call, such as `Txn`.
pub(crate) type CallPlan = Arc<dyn Fn(&str) -> CallProblem + Send + Sync>;

/// Plan without problems.
pub(crate) fn no_problems() -> CallPlan {
    Arc::new(|_| CallProblem::None)
}

type Stream = mpsc::UnboundedSender<Result<Frame<Bytes>, Status>>;

struct KeyWatch {
    key: Vec<u8>,
    end: Vec<u8>,
    events: Stream,
    is_silent: bool,
}

#[derive(Default)]
struct EtcdState {
    revision: i64,
    /// Versions of each key, by revision; `None`: it was deleted.
    keys: BTreeMap<Vec<u8>, Vec<(i64, Option<api::KeyValue>)>>,
    watches: Vec<KeyWatch>,
    leases: i64,
    replies: BTreeMap<String, Vec<u8>>,
    are_watches_silent: bool,
}

/// etcd with one member.
#[derive(Clone)]
pub(crate) struct FakeEtcd(Arc<Mutex<EtcdState>>);

impl Default for FakeEtcd {
    fn default() -> Self {
        let state = EtcdState {
            revision: 1,
            ..EtcdState::default()
        };
        Self(Arc::new(Mutex::new(state)))
    }
}

fn is_within(key: &[u8], start: &[u8], end: &[u8]) -> bool {
    if end.is_empty() {
        key == start
    } else {
        key >= start && key < end
    }
}

fn framed(message: &[u8]) -> Frame<Bytes> {
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(message.len()).unwrap());
    bytes.put_slice(message);
    Frame::data(bytes.freeze())
}

fn body(frames: mpsc::UnboundedReceiver<Result<Frame<Bytes>, Status>>) -> Response<Body> {
    let body = Body::new(StreamBody::new(UnboundedReceiverStream::new(frames)));
    let mut response = Response::new(body);
    let kind = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert("content-type", kind);
    response
}

fn whole(message: &[u8]) -> Response<Body> {
    let (sender, frames) = mpsc::unbounded_channel();
    sender.send(Ok(framed(message))).unwrap();
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    sender.send(Ok(Frame::trailers(trailers))).unwrap();
    body(frames)
}

fn failed(status: &Status) -> Response<Body> {
    status.clone().into_http()
}

impl EtcdState {
    fn header(&self) -> api::ResponseHeader {
        api::ResponseHeader {
            cluster_id: CLUSTER,
            revision: self.revision,
        }
    }

    fn get(&self, key: &[u8], revision: i64) -> Option<api::KeyValue> {
        let versions = self.keys.get(key)?;
        let mut until = versions.iter().rev().filter(|(at, _)| revision == 0 || *at <= revision);
        until.next()?.1.clone()
    }

    fn range(&self, asked: &api::RangeRequest) -> api::RangeResponse {
        let keys = self
            .keys
            .keys()
            .filter(|key| is_within(key, &asked.key, &asked.range_end));
        let mut kvs: Vec<_> = keys.filter_map(|key| self.get(key, asked.revision)).collect();
        let most = usize::try_from(asked.limit).unwrap();
        let more = most > 0 && kvs.len() > most;
        if more {
            kvs.truncate(most);
        }
        api::RangeResponse {
            header: Some(self.header()),
            kvs,
            more,
        }
    }

    fn holds(&self, compare: &api::Compare) -> bool {
        let found = self.get(&compare.key, 0);
        match compare.target_union.as_ref().unwrap() {
            TargetUnion::Version(version) => found.map_or(0, |found| found.version) == *version,
            TargetUnion::CreateRevision(revision) => found.map_or(0, |found| found.create_revision) == *revision,
            TargetUnion::ModRevision(revision) => found.map_or(0, |found| found.mod_revision) == *revision,
            TargetUnion::Value(value) => found.is_some_and(|found| found.value == *value),
        }
    }

    /// Carries out operations at the next revision, and tells the watches.
    fn carry_out(&mut self, operations: &[api::RequestOp]) -> Vec<api::ResponseOp> {
        let at = self.revision + 1;
        let (mut events, mut done) = (Vec::new(), Vec::new());
        for operation in operations {
            done.push(match operation.request.as_ref().unwrap() {
                Operation::Range(asked) => Done::Range(self.range(asked)),
                Operation::Put(put) => {
                    let before = self.get(&put.key, 0);
                    let kv = api::KeyValue {
                        key: put.key.clone(),
                        create_revision: before.as_ref().map_or(at, |before| before.create_revision),
                        mod_revision: at,
                        version: before.map_or(0, |before| before.version) + 1,
                        value: put.value.clone(),
                    };
                    self.keys
                        .entry(put.key.clone())
                        .or_default()
                        .push((at, Some(kv.clone())));
                    events.push(api::Event {
                        r#type: 0,
                        kv: Some(kv),
                    });
                    Done::Put(api::PutResponse {
                        header: Some(self.header()),
                    })
                }
                Operation::DeleteRange(range) => {
                    let keys: Vec<_> = self
                        .keys
                        .keys()
                        .filter(|key| is_within(key, &range.key, &range.range_end))
                        .cloned()
                        .collect();
                    for key in keys {
                        if self.get(&key, 0).is_some() {
                            self.keys.entry(key.clone()).or_default().push((at, None));
                            let kv = api::KeyValue {
                                key,
                                mod_revision: at,
                                ..api::KeyValue::default()
                            };
                            events.push(api::Event {
                                r#type: 1,
                                kv: Some(kv),
                            });
                        }
                    }
                    Done::DeleteRange(api::DeleteRangeResponse {
                        header: Some(self.header()),
                    })
                }
            });
        }
        if !events.is_empty() {
            self.revision = at;
            self.tell(&events);
        }
        done.into_iter()
            .map(|done| api::ResponseOp { response: Some(done) })
            .collect()
    }

    fn tell(&mut self, events: &[api::Event]) {
        let header = Some(self.header());
        let is_silent = self.are_watches_silent;
        self.watches.retain(|watch| {
            let meant = events
                .iter()
                .filter(|event| is_within(&event.kv.as_ref().unwrap().key, &watch.key, &watch.end));
            let events: Vec<_> = meant.cloned().collect();
            let response = api::WatchResponse {
                header,
                events,
                ..api::WatchResponse::default()
            };
            let is_reported = !response.events.is_empty() && !is_silent && !watch.is_silent;
            !is_reported || watch.events.send(Ok(framed(&response.encode_to_vec()))).is_ok()
        });
    }

    fn txn(&mut self, asked: &api::TxnRequest) -> api::TxnResponse {
        let succeeded = asked.compare.iter().all(|compare| self.holds(compare));
        let responses = self.carry_out(if succeeded { &asked.success } else { &asked.failure });
        api::TxnResponse {
            header: Some(self.header()),
            succeeded,
            responses,
        }
    }

    fn unary(&mut self, call: &str, message: &[u8]) -> Vec<u8> {
        let reply = match call {
            "Range" => self.range(&api::RangeRequest::decode(message).unwrap()).encode_to_vec(),
            "Txn" => self.txn(&api::TxnRequest::decode(message).unwrap()).encode_to_vec(),
            "LeaseGrant" => {
                self.leases += 1;
                let ttl = api::LeaseGrantRequest::decode(message).unwrap().ttl;
                api::LeaseGrantResponse {
                    id: self.leases,
                    ttl,
                    error: String::new(),
                }
                .encode_to_vec()
            }
            "LeaseRevoke" => api::LeaseRevokeResponse {
                header: Some(self.header()),
            }
            .encode_to_vec(),
            other => panic!("{other}"),
        };
        self.replies.insert(call.to_owned(), reply.clone());
        reply
    }

    fn lie(&self, lie: EtcdLie, call: &str) -> Vec<u8> {
        match lie {
            EtcdLie::Empty => Vec::new(),
            EtcdLie::Succeeded => api::TxnResponse {
                succeeded: call == "Txn",
                ..api::TxnResponse::default()
            }
            .encode_to_vec(),
            EtcdLie::Repeated => self.replies.get(call).cloned().unwrap_or_default(),
            EtcdLie::OtherCluster => {
                let header = Some(api::ResponseHeader {
                    cluster_id: CLUSTER + 1,
                    revision: self.revision + 1,
                });
                match call {
                    "Txn" => api::TxnResponse {
                        header,
                        succeeded: true,
                        responses: Vec::new(),
                    }
                    .encode_to_vec(),
                    _ => api::RangeResponse {
                        header,
                        ..api::RangeResponse::default()
                    }
                    .encode_to_vec(),
                }
            }
        }
    }
}

impl FakeEtcd {
    /// Channel whose calls have these problems.
    fn channel(&self, problems: CallPlan) -> EtcdChannel {
        let own = self.clone();
        let serve = move |request: Request<Body>| {
            let (own, problems) = (own.clone(), Arc::clone(&problems));
            async move { Ok::<_, Status>(own.serve(request, &*problems).await) }
        };
        EtcdChannel::new(tower::service_fn(serve))
    }

    async fn serve(
        self,
        request: Request<Body>,
        problems: &(dyn Fn(&str) -> CallProblem + Send + Sync),
    ) -> Response<Body> {
        let (head, body) = request.into_parts();
        let call = head.uri.path().rsplit('/').next().unwrap().to_owned();
        let problem = problems(&call);
        let broken = || failed(&Status::unavailable("the connection was cut"));
        match problem {
            CallProblem::LoseRequest => return broken(),
            CallProblem::HangBefore => return std::future::pending().await,
            CallProblem::NoRoom => {
                return failed(&Status::resource_exhausted("etcdserver: mvcc: database space exceeded"));
            }
            CallProblem::Late(time) => tokio::time::sleep(Duration::from_millis(time)).await,
            CallProblem::None
            | CallProblem::LoseReply
            | CallProblem::HangAfter
            | CallProblem::Lie(_)
            | CallProblem::LieAfter(_) => {}
        }
        match &*call {
            "Watch" => return self.watch(body),
            "LeaseKeepAlive" => return Self::keep_alive(body),
            _ => {}
        }
        let message = body.collect().await.unwrap().to_bytes().slice(5..);
        let unary = || self.0.lock().unwrap().unary(&call, &message);
        match problem {
            CallProblem::Lie(lie) => whole(&self.0.lock().unwrap().lie(lie, &call)),
            CallProblem::LieAfter(lie) => {
                let reported = self.0.lock().unwrap().lie(lie, &call);
                unary();
                whole(&reported)
            }
            CallProblem::LoseReply => {
                unary();
                broken()
            }
            CallProblem::HangAfter => {
                unary();
                std::future::pending().await
            }
            CallProblem::None
            | CallProblem::LoseRequest
            | CallProblem::HangBefore
            | CallProblem::NoRoom
            | CallProblem::Late(_) => whole(&unary()),
        }
    }

    fn watch(&self, requests: Body) -> Response<Body> {
        let (events, frames) = mpsc::unbounded_channel();
        let own = self.clone();
        tokio::spawn(async move {
            let mut requests = requests.into_data_stream();
            while let Some(Ok(bytes)) = requests.next().await {
                let asked = api::WatchRequest::decode(bytes.slice(5..)).unwrap();
                let mut state = own.0.lock().unwrap();
                let header = Some(state.header());
                let created = matches!(
                    asked.request_union,
                    Some(api::watch_request::RequestUnion::CreateRequest(_))
                );
                let response = api::WatchResponse {
                    header,
                    created,
                    ..api::WatchResponse::default()
                };
                let is_silent = state.are_watches_silent;
                if let Some(api::watch_request::RequestUnion::CreateRequest(watch)) = asked.request_union {
                    state.watches.push(KeyWatch {
                        key: watch.key,
                        end: watch.range_end,
                        events: events.clone(),
                        is_silent,
                    });
                }
                if !is_silent && events.send(Ok(framed(&response.encode_to_vec()))).is_err() {
                    return;
                }
            }
        });
        body(frames)
    }

    fn keep_alive(requests: Body) -> Response<Body> {
        let (replies, frames) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut requests = requests.into_data_stream();
            while let Some(Ok(bytes)) = requests.next().await {
                let id = api::LeaseKeepAliveRequest::decode(bytes.slice(5..)).unwrap().id;
                let reply = api::LeaseKeepAliveResponse { id, ttl: 5 };
                if replies.send(Ok(framed(&reply.encode_to_vec()))).is_err() {
                    return;
                }
            }
        });
        body(frames)
    }

    /// Options of a store whose calls have these problems.
    pub(crate) fn options_with(&self, problems: CallPlan) -> EtcdOptions {
        EtcdOptions {
            channel: Some(self.channel(problems)),
            timeout: Duration::from_millis(60),
            lease: Duration::from_secs(1),
            snapshot_every: 16,
            ..EtcdOptions::new(vec!["http://etcd".to_owned()])
        }
    }

    pub(crate) fn options(&self) -> EtcdOptions {
        self.options_with(no_problems())
    }

    /// Makes the watches that are open show nothing, or all that come.
    pub(crate) fn silence_watches(&self, is_silent: bool) {
        self.0.lock().unwrap().are_watches_silent = is_silent;
    }

    /// Writes a key beside the store, as an operator would.
    pub(crate) fn put(&self, key: &str, value: &[u8]) {
        let (key, value) = (key.as_bytes().to_vec(), value.to_vec());
        let put = Operation::Put(api::PutRequest { key, value, lease: 0 });
        self.0
            .lock()
            .unwrap()
            .carry_out(&[api::RequestOp { request: Some(put) }]);
    }

    /// Removes a key beside the store.
    pub(crate) fn remove(&self, key: &str) {
        let delete = api::DeleteRangeRequest {
            key: key.as_bytes().to_vec(),
            range_end: Vec::new(),
        };
        let delete = api::RequestOp {
            request: Some(Operation::DeleteRange(delete)),
        };
        self.0.lock().unwrap().carry_out(&[delete]);
    }

    pub(crate) fn value(&self, key: &str) -> Option<Vec<u8>> {
        Some(self.0.lock().unwrap().get(key.as_bytes(), 0)?.value)
    }
}
