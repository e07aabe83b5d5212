//! `StateService`: batches in, records out.
#![expect(clippy::unused_async, reason = "all methods of the protocol are called alike")]

use std::sync::Arc;

use prost::bytes::Bytes;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status, Streaming};

use pumice_engine::model::{ClusterState, ErrorCode};
use pumice_engine::plugins;
use pumice_state::{ForgetSource, ForgottenSource, SourceStatus, StoreStatus};

use super::ServerContext;
use super::codec::MessageFormat;
use super::connection::CallScope;
use super::convert;
use super::convert::listing::{self, PageRequest, page_size};
use super::convert::nodes::{NodeEncoding, NodeSetReader};
use super::convert::policy::duration;
use super::convert::wire::Wire as _;
use super::evaluation::EvaluationContext;
use super::pb;
use super::policy_audit::AuditedCall;
use super::state_intake::{BatchSender, QueueFullAction, apply_batch, run_sync};
use super::status::{CallError, RpcResult};
use crate::audit::{AuditAction, AuditOutcome};
use crate::limits::{Limit, ServerLimits, limits};

/// Maximum number of responses of a Sync stream that wait for a slow reader.
const WAITING_RESPONSES: usize = 16;

/// Declares the methods that list records.
macro_rules! list_methods {
    ($($method:ident: $request:ident -> $response:ident { $rows:ident }, $encoding:ident;)*) => {$(
        pub(super) async fn $method(self: Arc<Self>, rpc: Request<pb::$request>) -> RpcResult<pb::$response> {
            let pb::$request { against, names, page } = rpc.into_inner();
            let encoding = NodeEncoding::$encoding;
            let list = self.list(against, (names, page), encoding, listing::$rows).await?;
            let (metadata, $rows, next_page_token) = list;
            Ok(pb::$response { metadata, $rows, next_page_token })
        }
    )*};
}

impl ServerContext {
    /// Applies one batch.
    pub(super) async fn apply(self: Arc<Self>, rpc: Request<pb::ApplyRequest>) -> RpcResult<pb::ApplyResponse> {
        let sender = BatchSender::of(rpc.extensions());
        let pb::ApplyRequest { batch } = rpc.into_inner();
        let outcome = apply_batch(&self, batch, &sender, QueueFullAction::Reject).await?;
        Ok(pb::ApplyResponse { outcome: Some(outcome) })
    }

    /// Applies the batches of a stream, one after the other.
    pub(super) async fn sync(
        self: Arc<Self>,
        rpc: Request<Streaming<Bytes>>,
    ) -> RpcResult<ReceiverStream<Result<pb::SyncResponse, Status>>> {
        let (results, stream) = mpsc::channel(WAITING_RESPONSES);
        let sender = BatchSender::of(rpc.extensions());
        let format = MessageFormat::of(rpc.extensions(), &self.read_options.limits);
        let synced = run_sync(self, (rpc.into_inner(), format), sender, results);
        // Its messages count for its call.
        match CallScope::current() {
            Some(call) => pumice_state::tasks::spawn(call.run(synced)),
            None => pumice_state::tasks::spawn(synced),
        };
        Ok(ReceiverStream::new(stream))
    }

    /// Names of the slots of a node table, page by page.
    pub(super) async fn get_node_table(
        self: Arc<Self>,
        rpc: Request<pb::GetNodeTableRequest>,
    ) -> RpcResult<pb::GetNodeTableResponse> {
        let pb::GetNodeTableRequest {
            session,
            from_slot,
            page_size: asked,
        } = rpc.into_inner();
        let size = page_size(asked, self.read_options.limits.page_records);
        let snapshot = self.state.snapshot();
        let epoch = snapshot.revision.epoch;
        if session.is_empty() {
            return Ok(node_table(&snapshot.state, epoch, from_slot, size));
        }
        let cluster_state = self.state.peek_session(&session)?;
        Ok(node_table(&cluster_state, epoch, from_slot, size))
    }

    /// Version, plugins, limits, sources and policies of the server.
    pub(super) async fn get_server_info(
        self: Arc<Self>,
        _: Request<pb::GetServerInfoRequest>,
    ) -> RpcResult<pb::GetServerInfoResponse> {
        let snapshot = self.state.snapshot();
        let nodes = NodeSetReader::new(&snapshot.state, snapshot.revision.epoch);
        let mut served: Vec<pb::ServedPlugin> = plugins::REGISTRY
            .iter()
            .map(|row| pb::ServedPlugin {
                name: row.name.to_owned(),
                extension_points: row.families.iter().map(ToString::to_string).collect(),
            })
            .collect();
        served.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(pb::GetServerInfoResponse {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            revision: Some(snapshot.revision.write()),
            plugins: served,
            limits: self.limit_values(),
            sources: self.state.sources().iter().map(source_status).collect(),
            policies: snapshot.policies.keys().map(ToString::to_string).collect(),
            node_table: Some(nodes.table_version()),
            store: Some(store_status(self.state.store_status())),
            pod_release: snapshot.pod_release().name().to_owned(),
        })
    }

    list_methods! {
        list_nodes: ListNodesRequest -> ListNodesResponse { nodes }, Slots;
        list_queues: ListQueuesRequest -> ListQueuesResponse { queues }, Names;
        list_jobs: ListJobsRequest -> ListJobsResponse { jobs }, Names;
        list_namespaces: ListNamespacesRequest -> ListNamespacesResponse { namespaces }, Names;
        list_tasks: ListTasksRequest -> ListTasksResponse { tasks }, Names;
    }

    /// Forgets a source with all its records.
    pub(super) async fn forget_source(
        self: Arc<Self>,
        rpc: Request<pb::ForgetSourceRequest>,
    ) -> RpcResult<pb::ForgetSourceResponse> {
        let (_, extensions, pb::ForgetSourceRequest { source, force }) = rpc.into_parts();
        let audited = AuditedCall::new(&extensions, AuditAction::ForgetSource, source.as_str());
        check_given("source", &source)?;
        let forget = ForgetSource {
            source: source.as_str().into(),
            force,
        };
        let _place = self.waiting_place()?;
        let forgotten = audited.recorded(self.state.forget_source(forget).await, |done| {
            let details = vec![
                ("records", done.records.into()),
                ("reservations", done.reservations.into()),
            ];
            (AuditOutcome::Done, details)
        })?;
        let ForgottenSource {
            revision,
            records,
            reservations,
        } = forgotten;
        let caller = audited.signature();
        tracing::warn!(
            source,
            force,
            records,
            reservations,
            caller,
            "source forgotten, with all its records"
        );
        Ok(pb::ForgetSourceResponse {
            revision: Some(revision.write()),
            records: u64::try_from(records).unwrap_or(u64::MAX),
            reservations: u64::try_from(reservations).unwrap_or(u64::MAX),
            durability: convert::durability(self.state.durability()).into(),
        })
    }

    /// Forgets the name of a resource.
    pub(super) async fn forget_resource(
        self: Arc<Self>,
        rpc: Request<pb::ForgetResourceRequest>,
    ) -> RpcResult<pb::ForgetResourceResponse> {
        let (_, extensions, pb::ForgetResourceRequest { resource }) = rpc.into_parts();
        let audited = AuditedCall::new(&extensions, AuditAction::ForgetResource, resource.as_str());
        check_given("resource", &resource)?;
        let _place = self.waiting_place()?;
        let forgotten = self.state.forget_resource(resource.as_str().into()).await;
        let revision = audited.recorded(forgotten, |_| (AuditOutcome::Done, Vec::new()))?;
        tracing::info!(resource, caller = audited.signature(), "resource name forgotten");
        Ok(pb::ForgetResourceResponse {
            revision: Some(revision.write()),
        })
    }
}

/// Checks that a request names what it is about.
fn check_given(field: &str, name: &str) -> RpcResult<()> {
    if name.is_empty() {
        let message = format!("{field}: name the {field} to forget");
        return Err(CallError::new(ErrorCode::NameMissing, message));
    }
    Ok(())
}

/// Page of a listing: metadata of the response, rows, and the token of the next page.
type ListPage<R> = (Option<pb::ResponseMetadata>, Vec<R>, String);

impl ServerContext {
    /// Lists one page of records of the state that a request is evaluated against.
    async fn list<R: Send + 'static>(
        self: &Arc<Self>,
        against: Option<pb::EvaluationRef>,
        (names, page): (Vec<String>, Option<pb::Page>),
        encoding: NodeEncoding,
        rows: fn(&EvaluationContext, &PageRequest) -> (Vec<R>, String),
    ) -> RpcResult<ListPage<R>> {
        let context = self.resolve(self.read_against(against)?).await?;
        let edge = Arc::clone(self);
        let list = move || {
            let page = PageRequest::read(names, page, edge.read_options.limits.page_records);
            let (rows, next_page_token) = rows(&context, &page);
            Ok((Some(context.response_metadata(&edge, encoding)), rows, next_page_token))
        };
        self.run_blocking(list).await
    }

    fn limit_values(&self) -> Vec<pb::ServerLimit> {
        let bounds = ServerLimits {
            state: self.state.limits().clone(),
            edge: self.read_options.limits.clone(),
        };
        let limit = |limit: Limit| pb::ServerLimit {
            name: limit.name().to_owned(),
            value: limit.get(&bounds),
        };
        let mut limits: Vec<pb::ServerLimit> = limits().map(limit).collect();
        limits.sort_by(|a, b| a.name.cmp(&b.name));
        limits
    }
}

fn store_status(store: StoreStatus) -> pb::StoreStatus {
    pb::StoreStatus {
        durability: convert::durability(store.durability).into(),
        problem: store.problem.unwrap_or_default(),
        failed_writes: store.failed_writes,
    }
}

fn node_table(cluster_state: &ClusterState, epoch: u64, from_slot: u32, size: usize) -> pb::GetNodeTableResponse {
    let nodes = NodeSetReader::new(cluster_state, epoch);
    let name = |slot| {
        cluster_state
            .name_of(slot)
            .map_or_else(String::new, |name| name.to_string())
    };
    pb::GetNodeTableResponse {
        table: Some(nodes.table_version()),
        names: (from_slot..cluster_state.slots()).take(size).map(name).collect(),
    }
}

fn source_status(status: &SourceStatus) -> pb::SourceStatus {
    let SourceStatus {
        position,
        silence,
        synced,
        kind,
        stale,
        bytes: _,
        basis,
        awaited: _,
    } = status;
    pb::SourceStatus {
        position: Some(position.write()),
        silence: silence.map(duration),
        synced: *synced,
        kind: kind.write().into(),
        stale: *stale,
        without_node_labels: basis.dropped_labels.nodes,
        without_task_labels: basis.dropped_labels.tasks,
    }
}
