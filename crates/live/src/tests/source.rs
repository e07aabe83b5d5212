//! Server of a script: what its source has sent.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;

use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use prost::Message as _;
use prost::bytes::Bytes;
use pumice_engine::short_lock::ShortLock;
use pumice_protocol::v1 as pb;
use pumice_protocol::{CallTransport, ClientConnection};
use tonic::body::Body;
use tower::ServiceExt as _;

use super::api::ApiScript;

/// Kind and name of a record.
type Key = (i32, String);

#[derive(Default)]
struct Source {
    records: BTreeMap<Key, Vec<u8>>,
    staged: BTreeMap<Key, Vec<u8>>,
    /// Records of the full sync that could not be read.
    unreadable: BTreeSet<Key>,
    /// Records that went though nobody deleted their objects.
    lost: Vec<Key>,
    /// The next delta is answered with the request for a full sync.
    wants_full_sync: bool,
    /// Another process feeds the source.
    is_fenced: bool,
}

/// Server of a script.
#[derive(Clone)]
pub(super) struct ScriptSource {
    state: Arc<ShortLock<Source>>,
    api: ApiScript,
}

impl ScriptSource {
    pub(super) fn new(api: ApiScript) -> Self {
        Self {
            state: Arc::default(),
            api,
        }
    }

    pub(super) fn connection(&self) -> ClientConnection {
        let own = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let own = own.clone();
            async move {
                let body = request
                    .into_body()
                    .collect()
                    .await
                    .map(http_body_util::Collected::to_bytes);
                let message = body.ok().and_then(|body| body.get(5..).map(Bytes::copy_from_slice));
                let apply = pb::ApplyRequest::decode(message.unwrap_or_default()).unwrap();
                let outcome = own.apply(apply.batch.unwrap_or_default());
                let reply = pb::ApplyResponse { outcome: Some(outcome) }.encode_to_vec();
                let mut frame = vec![0];
                frame.extend(u32::try_from(reply.len()).unwrap().to_be_bytes());
                frame.extend(reply);
                let trailers = async {
                    let mut trailers = HeaderMap::new();
                    trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
                    Some(Ok(trailers))
                };
                let body = Body::new(Full::new(Bytes::from(frame)).with_trailers(trailers));
                Ok::<_, Infallible>(
                    Response::builder()
                        .header("content-type", "application/grpc")
                        .body(body)
                        .unwrap(),
                )
            }
        });
        ClientConnection::with_transport(CallTransport::new(service.map_err(|never| match never {})))
    }

    pub(super) fn records(&self) -> BTreeMap<Key, Vec<u8>> {
        self.state.with(|own| own.records.clone())
    }

    pub(super) fn lost(&self) -> Vec<Key> {
        self.state.with(|own| own.lost.clone())
    }

    pub(super) fn ask_for_full_sync(&self) {
        self.state.with(|own| own.wants_full_sync = true);
    }

    /// Lets another process feed the source, or forgets the source.
    pub(super) fn fence(&self, is_fenced: bool) {
        self.state.with(|own| {
            own.is_fenced = is_fenced;
            own.records.clear();
        });
    }

    fn apply(&self, batch: pb::Batch) -> pb::BatchOutcome {
        let kind = batch.kind();
        let put = records_of(&batch.put.unwrap_or_default());
        let unreadable = batch.unreadable.into_iter().map(|record| (record.kind, record.name));
        let removed = removals_of(batch.remove.unwrap_or_default());
        self.state.with(|own| {
            let wants_full_sync = kind == pb::BatchKind::Delta && std::mem::take(&mut own.wants_full_sync);
            if own.is_fenced || wants_full_sync {
                return rejected(if own.is_fenced { "FENCED" } else { "GAP" });
            }
            let mut gone: Vec<Key> = Vec::new();
            match kind {
                pb::BatchKind::Unspecified | pb::BatchKind::Delta => {
                    own.records.extend(put);
                    for key in removed {
                        if own.records.remove(&key).is_some() {
                            gone.push(key);
                        }
                    }
                }
                pb::BatchKind::FullSyncPart | pb::BatchKind::FullSyncLast => {
                    if batch.part == 1 {
                        (own.staged, own.unreadable) = Default::default();
                    }
                    own.staged.extend(put);
                    own.unreadable.extend(unreadable);
                }
            }
            if kind == pb::BatchKind::FullSyncLast {
                let before = std::mem::replace(&mut own.records, std::mem::take(&mut own.staged));
                for (key, record) in before {
                    if own.unreadable.contains(&key) {
                        own.records.entry(key).or_insert(record);
                    } else if !own.records.contains_key(&key) {
                        gone.push(key);
                    }
                }
            }
            let lost = gone.into_iter().filter(|(kind, name)| {
                let kinds: &[&str] = match pb::RecordKind::try_from(*kind).unwrap_or_default() {
                    pb::RecordKind::Node => &["Node"],
                    pb::RecordKind::Queue => &["Queue"],
                    pb::RecordKind::Job => &["PodGroup"],
                    pb::RecordKind::Task => &["Pod"],
                    pb::RecordKind::Unspecified | pb::RecordKind::Namespace | pb::RecordKind::PriorityClass => {
                        &["Namespace"]
                    }
                };
                !matches!(name.as_str(), "root" | "default")
                    && !kinds.iter().any(|kind| self.api.was_deleted(kind, name))
            });
            own.lost.extend(lost);
            pb::BatchOutcome::default()
        })
    }
}

/// Outcome of a batch that is not applied.
fn rejected(reason: &str) -> pb::BatchOutcome {
    let resync = pb::Resync {
        reason: reason.to_owned(),
        ..pb::Resync::default()
    };
    pb::BatchOutcome {
        resync: Some(resync),
        ..pb::BatchOutcome::default()
    }
}

fn records_of(cluster: &pb::Cluster) -> Vec<(Key, Vec<u8>)> {
    let key = |kind: pb::RecordKind, name: &str| (i32::from(kind), name.to_owned());
    let mut records = Vec::new();
    records.extend(
        cluster
            .nodes
            .iter()
            .map(|own| (key(pb::RecordKind::Node, &own.name), own.encode_to_vec())),
    );
    records.extend(
        cluster
            .queues
            .iter()
            .map(|own| (key(pb::RecordKind::Queue, &own.name), own.encode_to_vec())),
    );
    records.extend(
        cluster
            .jobs
            .iter()
            .map(|own| (key(pb::RecordKind::Job, &own.name), own.encode_to_vec())),
    );
    records.extend(
        cluster
            .tasks
            .iter()
            .map(|own| (key(pb::RecordKind::Task, &own.name), own.encode_to_vec())),
    );
    let namespaces = cluster.namespaces.iter();
    records.extend(namespaces.map(|own| (key(pb::RecordKind::Namespace, &own.name), own.encode_to_vec())));
    records
}

fn removals_of(removals: pb::Removals) -> Vec<Key> {
    let of = |kind: pb::RecordKind, names: Vec<String>| names.into_iter().map(move |name| (i32::from(kind), name));
    of(pb::RecordKind::Node, removals.nodes)
        .chain(of(pb::RecordKind::Queue, removals.queues))
        .chain(of(pb::RecordKind::Job, removals.jobs))
        .chain(of(pb::RecordKind::Task, removals.tasks))
        .chain(of(pb::RecordKind::Namespace, removals.namespaces))
        .collect()
}
