//! `StateService`: batches in, records out.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataMap;
use tonic::{Request, Status};

use pumice_engine::model::{ClusterState, ErrorCode};
use pumice_engine::plugins;
use pumice_state::{ForgetSource, ForgottenSource, SourceKind, SourceStatus, StoreStatus};

use super::ServerContext;
use super::connection::CallScope;
use super::convert::listing::{self, PageRequest, page_size};
use super::convert::nodes::{NodeEncoding, NodeSetReader};
use super::convert::policy::duration;
use super::convert::wire::Wire as _;
use super::convert::{self};
use super::evaluation::EvaluationContext;
use super::pb;
use super::pb::StateService;
use super::policy_audit::AuditedCall;
use super::rpc::RequestStream;
use super::state_intake::{BatchSender, QueueFullAction, apply_batch, run_sync};
use super::status::{CallError, RpcResult};
use super::who_am_i::who_am_i;
use crate::audit::{AuditAction, AuditOutcome};
use crate::limits::{Limit, ServerLimits, limits};

/// Maximum number of responses of a Sync stream that wait for a slow reader.
const WAITING_RESPONSES: usize = 16;

/// Implementation of the service.
#[derive(Debug)]
pub(super) struct StateRpc(pub(super) Arc<ServerContext>);

/// Declares the methods that list records.
macro_rules! list_methods {
    ($($method:ident: $request:ident -> $response:ident { $rows:ident }, $encoding:ident;)*) => {$(
        async fn $method(&self, rpc: Request<pb::$request>) -> RpcResult<pb::$response> {
            let (call, _, pb::$request { against, names, page }) = rpc.into_parts();
            let encoding = NodeEncoding::$encoding;
            let list = self.0.list(against, &call, (names, page), encoding, listing::$rows).await?;
            let (metadata, $rows, next_page_token) = list;
            Ok(pb::$response { metadata, $rows, next_page_token })
        }
    )*};
}

impl StateService for StateRpc {
    type SyncStream = ReceiverStream<Result<pb::SyncResponse, Status>>;

    async fn apply(&self, rpc: Request<pb::ApplyRequest>) -> RpcResult<pb::ApplyResponse> {
        let sender = BatchSender::of(rpc.extensions());
        let pb::ApplyRequest { batch } = rpc.into_inner();
        let outcome = apply_batch(&self.0, batch, &sender, QueueFullAction::Reject).await?;
        Ok(pb::ApplyResponse { outcome: Some(outcome) })
    }

    async fn sync(&self, rpc: Request<RequestStream<pb::SyncRequest>>) -> RpcResult<Self::SyncStream> {
        let (results, stream) = mpsc::channel(WAITING_RESPONSES);
        let sender = BatchSender::of(rpc.extensions());
        let synced = run_sync(Arc::clone(&self.0), rpc.into_inner(), sender, results);
        // Its messages count for its call.
        match CallScope::current() {
            Some(call) => pumice_state::tasks::spawn(call.run(synced)),
            None => pumice_state::tasks::spawn(synced),
        };
        Ok(ReceiverStream::new(stream))
    }

    async fn get_node_table(&self, rpc: Request<pb::GetNodeTableRequest>) -> RpcResult<pb::GetNodeTableResponse> {
        let pb::GetNodeTableRequest {
            session,
            from_slot,
            page_size: page_size_asked,
        } = rpc.into_inner();
        let size = page_size(page_size_asked, self.0.read_options.limits.page_records);
        let snapshot = self.0.state.snapshot();
        let epoch = snapshot.revision.epoch;
        let reply = if session.is_empty() {
            node_table(&snapshot.state, epoch, from_slot, size)
        } else {
            let cluster_state = self.0.state.peek_session(&session).map_err(CallError::from)?;
            node_table(&cluster_state, epoch, from_slot, size)
        };
        Ok(reply)
    }

    async fn get_server_info(&self, _: Request<pb::GetServerInfoRequest>) -> RpcResult<pb::GetServerInfoResponse> {
        Ok(self.server_info())
    }

    async fn who_am_i(&self, rpc: Request<pb::WhoAmIRequest>) -> RpcResult<pb::WhoAmIResponse> {
        Ok(who_am_i(rpc.extensions()))
    }

    list_methods! {
        list_nodes: ListNodesRequest -> ListNodesResponse { nodes }, Slots;
        list_queues: ListQueuesRequest -> ListQueuesResponse { queues }, Names;
        list_jobs: ListJobsRequest -> ListJobsResponse { jobs }, Names;
        list_namespaces: ListNamespacesRequest -> ListNamespacesResponse { namespaces }, Names;
        list_tasks: ListTasksRequest -> ListTasksResponse { tasks }, Names;
    }

    async fn list_reservations(
        &self,
        rpc: Request<pb::ListReservationsRequest>,
    ) -> RpcResult<pb::ListReservationsResponse> {
        self.0.list_reservations(rpc.into_inner()).await
    }

    async fn release_reservation(
        &self,
        rpc: Request<pb::ReleaseReservationRequest>,
    ) -> RpcResult<pb::ReleaseReservationResponse> {
        let job = rpc.get_ref().job.clone();
        let audited = AuditedCall::new(rpc.extensions(), AuditAction::ReleaseReservation, job);
        let released = self.0.release_reservation(rpc.into_inner()).await;
        audited.record_result(&released, |reply| match &reply.reservation {
            None => (AuditOutcome::Unchanged, Vec::new()),
            Some(row) => (AuditOutcome::Done, vec![("queue", row.queue.as_str().into())]),
        });
        released
    }

    async fn release_assumptions(
        &self,
        rpc: Request<pb::ReleaseAssumptionsRequest>,
    ) -> RpcResult<pb::ReleaseAssumptionsResponse> {
        let audited = AuditedCall::new(
            rpc.extensions(),
            AuditAction::ReleaseAssumptions,
            released_target(rpc.get_ref()),
        );
        let released = self.0.release_assumptions(rpc.into_inner()).await;
        audited.record_result(&released, |_| (AuditOutcome::Done, Vec::new()));
        released
    }

    async fn forget_source(&self, rpc: Request<pb::ForgetSourceRequest>) -> RpcResult<pb::ForgetSourceResponse> {
        let audited = AuditedCall::new(
            rpc.extensions(),
            AuditAction::ForgetSource,
            rpc.get_ref().source.clone(),
        );
        let caller = audited.signature();
        let pb::ForgetSourceRequest { source, force } = rpc.into_inner();
        if source.is_empty() {
            return Err(CallError::new(
                ErrorCode::NameMissing,
                "source: name the source to forget",
            ));
        }
        let source: Arc<str> = source.into();
        let forget = ForgetSource {
            source: Arc::clone(&source),
            force,
        };
        let _place = self.0.waiting_place()?;
        let forgotten = self.0.state.forget_source(forget).await.map_err(CallError::from);
        audited.record_result(&forgotten, |done| {
            let details = vec![
                ("records", done.records.into()),
                ("reservations", done.reservations.into()),
            ];
            (AuditOutcome::Done, details)
        });
        let forgotten = forgotten?;
        let ForgottenSource {
            revision,
            records,
            reservations,
        } = forgotten;
        tracing::warn!(
            source = &*source,
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
            durability: convert::durability(self.0.state.durability()).into(),
        })
    }

    async fn forget_resource(&self, rpc: Request<pb::ForgetResourceRequest>) -> RpcResult<pb::ForgetResourceResponse> {
        let audited = AuditedCall::new(
            rpc.extensions(),
            AuditAction::ForgetResource,
            rpc.get_ref().resource.clone(),
        );
        let caller = audited.signature();
        let pb::ForgetResourceRequest { resource } = rpc.into_inner();
        if resource.is_empty() {
            let message = "resource: name the resource to forget";
            return Err(CallError::new(ErrorCode::NameMissing, message));
        }
        let _place = self.0.waiting_place()?;
        let forgotten = self.0.state.forget_resource(resource.as_str().into()).await;
        let forgotten = forgotten.map_err(CallError::from);
        audited.record_result(&forgotten, |_| (AuditOutcome::Done, Vec::new()));
        let revision = forgotten?;
        tracing::info!(resource, caller, "resource name forgotten");
        Ok(pb::ForgetResourceResponse {
            revision: Some(revision.write()),
        })
    }
}

/// Page of a listing: metadata of the response, rows, and the token of the next page.
type ListPage<R> = (Option<pb::ResponseMetadata>, Vec<R>, String);

impl ServerContext {
    /// Lists one page of records of the state that a request is evaluated against.
    async fn list<R: Send + 'static>(
        self: &Arc<Self>,
        against: Option<pb::EvaluationRef>,
        metadata: &MetadataMap,
        (names, page): (Vec<String>, Option<pb::Page>),
        encoding: NodeEncoding,
        rows: fn(&EvaluationContext, &PageRequest) -> (Vec<R>, String),
    ) -> RpcResult<ListPage<R>> {
        let context = self.resolve(against, metadata).await?;
        let edge = Arc::clone(self);
        let list = move || {
            let page = PageRequest::read(names, page, edge.read_options.limits.page_records);
            let (rows, next_page_token) = rows(&context, &page);
            Ok((Some(context.response_metadata(&edge, encoding)), rows, next_page_token))
        };
        self.run_blocking(list).await
    }
}

/// What is released: a session, or the first of the tasks.
fn released_target(request: &pb::ReleaseAssumptionsRequest) -> String {
    match request.session.as_str() {
        "" => request.tasks.first().cloned().unwrap_or_default(),
        session => format!("session {session}"),
    }
}

impl StateRpc {
    fn limit_values(&self) -> Vec<pb::ServerLimit> {
        let bounds = ServerLimits {
            state: self.0.state.limits().clone(),
            edge: self.0.read_options.limits.clone(),
        };
        let limit = |limit: Limit| pb::ServerLimit {
            name: limit.name().to_owned(),
            value: limit.get(&bounds),
        };
        let mut limits: Vec<pb::ServerLimit> = limits().map(limit).collect();
        limits.sort_by(|a, b| a.name.cmp(&b.name));
        limits
    }

    fn server_info(&self) -> pb::GetServerInfoResponse {
        let snapshot = self.0.state.snapshot();
        let nodes = NodeSetReader::new(&snapshot.state, snapshot.revision.epoch);
        let mut served: Vec<pb::ServedPlugin> = plugins::REGISTRY
            .iter()
            .map(|row| pb::ServedPlugin {
                name: row.name.to_owned(),
                extension_points: row.families.iter().map(ToString::to_string).collect(),
            })
            .collect();
        served.sort_by(|a, b| a.name.cmp(&b.name));
        pb::GetServerInfoResponse {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            revision: Some(snapshot.revision.write()),
            plugins: served,
            limits: self.limit_values(),
            sources: self.0.state.sources().iter().map(source_status).collect(),
            policies: snapshot.policies.keys().map(ToString::to_string).collect(),
            node_table: Some(nodes.table_version()),
            store: Some(store_status(self.0.state.store_status())),
        }
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
        dropped_labels,
        awaited: _,
    } = status;
    let kind = match kind {
        SourceKind::Live => pb::SourceKind::Live,
        SourceKind::File => pb::SourceKind::File,
    };
    pb::SourceStatus {
        position: Some(position.write()),
        silence: silence.map(duration),
        synced: *synced,
        kind: kind.into(),
        stale: *stale,
        without_node_labels: dropped_labels.nodes,
        without_task_labels: dropped_labels.tasks,
    }
}
