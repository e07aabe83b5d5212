//! `StateService`: batches in, records out.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::engine::model::View;
use crate::engine::plugins;
use crate::state::SourceStatus;

use super::Edge;
use super::convert::batch::outcome;
use super::convert::listing::{self, Wanted, page_size};
use super::convert::nodes::{Encoding, Nodes};
use super::convert::policy::duration;
use super::convert::{self};
use super::limits::{Bounds, FIXED, LIMITS, LimitDef};
use super::pb;
use super::pb::state_service_server::StateService;
use super::status::Failure;

/// Answers of a Sync stream that wait for a slow reader.
const WAITING_ANSWERS: usize = 16;

/// The service.
#[derive(Debug)]
pub(super) struct StateRpc(pub(super) Arc<Edge>);

#[tonic::async_trait]
impl StateService for StateRpc {
    type SyncStream = ReceiverStream<Result<pb::SyncResponse, Status>>;

    async fn apply(&self, rpc: Request<pb::ApplyRequest>) -> Result<Response<pb::ApplyResponse>, Status> {
        let pb::ApplyRequest { batch } = rpc.into_inner();
        let outcome = apply(&self.0, batch, Full::Refuse).await?;
        Ok(Response::new(pb::ApplyResponse { outcome: Some(outcome) }))
    }

    async fn sync(&self, rpc: Request<Streaming<pb::SyncRequest>>) -> Result<Response<Self::SyncStream>, Status> {
        let (answers, stream) = mpsc::channel(WAITING_ANSWERS);
        tokio::spawn(sync(Arc::clone(&self.0), rpc.into_inner(), answers));
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn get_node_table(
        &self,
        rpc: Request<pb::GetNodeTableRequest>,
    ) -> Result<Response<pb::GetNodeTableResponse>, Status> {
        let pb::GetNodeTableRequest {
            session,
            from_slot,
            page_size: page_size_asked,
        } = rpc.into_inner();
        let size = page_size(page_size_asked, self.0.declared.limits.page_records);
        let world = self.0.state.world();
        let epoch = world.revision.epoch;
        let reply = if session.is_empty() {
            node_table(&world.view, epoch, from_slot, size)
        } else {
            let view = self.0.state.peek(&session).map_err(Failure::from)?;
            node_table(&view, epoch, from_slot, size)
        };
        Ok(Response::new(reply))
    }

    async fn get_server_info(
        &self,
        _: Request<pb::GetServerInfoRequest>,
    ) -> Result<Response<pb::GetServerInfoResponse>, Status> {
        Ok(Response::new(self.info()))
    }

    async fn list_nodes(&self, rpc: Request<pb::ListNodesRequest>) -> Result<Response<pb::ListNodesResponse>, Status> {
        let (metadata, _, request) = rpc.into_parts();
        let pb::ListNodesRequest { ground, names, page } = request;
        let standing = self.0.stand(ground, &metadata).await?;
        let edge = Arc::clone(&self.0);
        let list = move || {
            let (nodes, next_page_token) = listing::nodes(
                standing.view(),
                &standing.derived(),
                &Wanted::read(names, page, edge.declared.limits.page_records),
            );
            Ok(pb::ListNodesResponse {
                stamp: Some(standing.stamp(&edge, Encoding::Slots)),
                nodes,
                next_page_token,
            })
        };
        Ok(Response::new(self.0.heavily(list).await?))
    }

    async fn list_queues(
        &self,
        rpc: Request<pb::ListQueuesRequest>,
    ) -> Result<Response<pb::ListQueuesResponse>, Status> {
        let (metadata, _, request) = rpc.into_parts();
        let pb::ListQueuesRequest { ground, names, page } = request;
        let standing = self.0.stand(ground, &metadata).await?;
        let edge = Arc::clone(&self.0);
        let list = move || {
            let (queues, next_page_token) = listing::queues(
                standing.view(),
                &standing.derived(),
                &Wanted::read(names, page, edge.declared.limits.page_records),
            );
            Ok(pb::ListQueuesResponse {
                stamp: Some(standing.stamp(&edge, Encoding::Names)),
                queues,
                next_page_token,
            })
        };
        Ok(Response::new(self.0.heavily(list).await?))
    }

    async fn list_jobs(&self, rpc: Request<pb::ListJobsRequest>) -> Result<Response<pb::ListJobsResponse>, Status> {
        let (metadata, _, request) = rpc.into_parts();
        let pb::ListJobsRequest { ground, names, page } = request;
        let standing = self.0.stand(ground, &metadata).await?;
        let edge = Arc::clone(&self.0);
        let list = move || {
            let (jobs, next_page_token) = listing::jobs(
                standing.view(),
                &standing.derived(),
                &Wanted::read(names, page, edge.declared.limits.page_records),
            );
            Ok(pb::ListJobsResponse {
                stamp: Some(standing.stamp(&edge, Encoding::Names)),
                jobs,
                next_page_token,
            })
        };
        Ok(Response::new(self.0.heavily(list).await?))
    }

    async fn list_tasks(&self, rpc: Request<pb::ListTasksRequest>) -> Result<Response<pb::ListTasksResponse>, Status> {
        let (metadata, _, request) = rpc.into_parts();
        let pb::ListTasksRequest { ground, names, page } = request;
        let standing = self.0.stand(ground, &metadata).await?;
        let edge = Arc::clone(&self.0);
        let list = move || {
            let (tasks, next_page_token) = listing::tasks(
                standing.view(),
                &Wanted::read(names, page, edge.declared.limits.page_records),
            );
            Ok(pb::ListTasksResponse {
                stamp: Some(standing.stamp(&edge, Encoding::Names)),
                tasks,
                next_page_token,
            })
        };
        Ok(Response::new(self.0.heavily(list).await?))
    }

    async fn list_reservations(
        &self,
        rpc: Request<pb::ListReservationsRequest>,
    ) -> Result<Response<pb::ListReservationsResponse>, Status> {
        Ok(Response::new(self.0.list_reservations(rpc.into_inner()).await?))
    }

    async fn release_reservation(
        &self,
        rpc: Request<pb::ReleaseReservationRequest>,
    ) -> Result<Response<pb::ReleaseReservationResponse>, Status> {
        Ok(Response::new(self.0.release_reservation(rpc.into_inner()).await?))
    }

    async fn release_assumptions(
        &self,
        rpc: Request<pb::ReleaseAssumptionsRequest>,
    ) -> Result<Response<pb::ReleaseAssumptionsResponse>, Status> {
        Ok(Response::new(self.0.release_assumptions(rpc.into_inner()).await?))
    }
}

impl StateRpc {
    fn limits(&self) -> Vec<pb::Limit> {
        let bounds = Bounds {
            state: self.0.state.limits().clone(),
            edge: self.0.declared.limits.clone(),
        };
        let limit = |row: &LimitDef| pb::Limit {
            name: row.name.to_owned(),
            value: (row.get)(&bounds),
        };
        let fixed = FIXED.iter().map(|(name, value)| pb::Limit {
            name: (*name).to_owned(),
            value: *value,
        });
        let mut limits: Vec<pb::Limit> = LIMITS.iter().map(limit).chain(fixed).collect();
        limits.sort_by(|a, b| a.name.cmp(&b.name));
        limits
    }

    fn info(&self) -> pb::GetServerInfoResponse {
        let world = self.0.state.world();
        let nodes = Nodes {
            view: &world.view,
            epoch: world.revision.epoch,
            inline: false,
        };
        let mut served: Vec<pb::ServedPlugin> = plugins::REGISTRY
            .iter()
            .map(|row| pb::ServedPlugin {
                name: row.name.to_owned(),
                families: row.families.iter().map(ToString::to_string).collect(),
            })
            .collect();
        served.sort_by(|a, b| a.name.cmp(&b.name));
        pb::GetServerInfoResponse {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            revision: Some(convert::revision(world.revision)),
            plugins: served,
            limits: self.limits(),
            sources: self.0.state.sources().iter().map(source_status).collect(),
            policies: world.policies.keys().map(ToString::to_string).collect(),
            node_table: Some(nodes.table()),
        }
    }
}

/// What to do when too many batches wait for the writer.
#[derive(Clone, Copy)]
enum Full {
    /// Say so.
    Refuse,
    /// Read no more from the stream: the sender is held back.
    Wait,
}

async fn apply(edge: &Arc<Edge>, batch: Option<pb::Batch>, full: Full) -> Result<pb::BatchOutcome, Failure> {
    let Some(batch) = batch else {
        return Err(Failure::invalid("BATCH_MISSING", "batch: there is none"));
    };
    let batch = edge.read_batch(batch).await?;
    let applied = match full {
        Full::Refuse => edge.state.apply_now(batch).await,
        Full::Wait => edge.state.apply(batch).await,
    };
    Ok(outcome(applied?))
}

/// Takes batches one after the other: the next is read from the wire when the one before is visible.
async fn sync(
    edge: Arc<Edge>,
    mut batches: Streaming<pb::SyncRequest>,
    answers: mpsc::Sender<Result<pb::SyncResponse, Status>>,
) {
    let mut draining = edge.draining.clone();
    loop {
        let next = tokio::select! {
            _ = async { draining.wait_for(|draining| *draining).await.is_ok() } => {
                let failure = Failure::new(Code::Unavailable, "SHUTTING_DOWN", "the server is shutting down");
                drop(answers.send(Err(failure.into())).await);
                return;
            }
            next = batches.message() => next,
        };
        let answer = match next {
            Ok(Some(pb::SyncRequest { batch })) => apply(&edge, batch, Full::Wait).await,
            // The stream is over, or its caller is gone: there is nobody to tell.
            Ok(None) | Err(_) => return,
        };
        let over = answer.is_err();
        let answer = answer.map(|outcome| pb::SyncResponse { outcome: Some(outcome) });
        if answers.send(answer.map_err(Status::from)).await.is_err() || over {
            return;
        }
    }
}

fn node_table(view: &View, epoch: u64, from_slot: u32, size: usize) -> pb::GetNodeTableResponse {
    let nodes = Nodes {
        view,
        epoch,
        inline: false,
    };
    let name = |slot| view.name_of(slot).map_or_else(String::new, |name| name.to_string());
    pb::GetNodeTableResponse {
        table: Some(nodes.table()),
        names: (from_slot..view.slots()).take(size).map(name).collect(),
    }
}

fn source_status(status: &SourceStatus) -> pb::SourceStatus {
    let SourceStatus {
        position,
        silence,
        synced,
    } = status;
    pb::SourceStatus {
        position: Some(convert::position(position)),
        silence: silence.map(duration),
        synced: *synced,
    }
}
