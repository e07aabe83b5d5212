//! Batches on their way in: one by a call, or one after the other by a stream.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;

use prost::bytes::Bytes;
use tokio::sync::mpsc;
use tokio_stream::Stream as _;
use tonic::{Extensions, Status, Streaming};

use pumice_engine::model::ErrorCode;
use pumice_state::ConnectionShare;

use super::ServerContext;
use super::access_layer::{access_of, refused};
use super::codec::MessageFormat;
use super::connection::{CallScope, CallerConnection};
use super::convert::batch::batch_outcome;
use super::large_messages::work_beside_tasks;
use super::pb;
use super::request_body::failure_of_transport;
use super::status::{CallError, RpcResult};
use crate::access::CallerAccess;

/// Action when too many batches wait for the writer.
#[derive(Clone, Copy)]
pub(super) enum QueueFullAction {
    /// Reject the batch.
    Reject,
    /// Read no more from the stream, which holds the sender back.
    Wait,
}

pub(super) struct BatchSender {
    connection: Option<ConnectionShare>,
    access: Option<CallerAccess>,
}

impl BatchSender {
    /// Sender behind a call.
    pub(super) fn of(extensions: &Extensions) -> Self {
        Self {
            connection: CallerConnection::state_share(extensions),
            access: access_of(extensions),
        }
    }
}

/// Applies a batch, if its sender may write the source.
pub(super) async fn apply_batch(
    edge: &Arc<ServerContext>,
    batch: Option<pb::Batch>,
    sender: &BatchSender,
    full: QueueFullAction,
) -> RpcResult<pb::BatchOutcome> {
    let Some(batch) = batch else {
        return Err(CallError::new(ErrorCode::BatchMissing, "batch: the batch is missing"));
    };
    if let Some(access) = &sender.access {
        // The identities may have changed since the stream began.
        let access = access.renewed().await;
        access
            .check_source(&batch.source)
            .map_err(|rejection| refused(&access, rejection, "a source"))?;
    }
    let batch = edge.read_batch(batch, sender.connection.clone()).await?;
    let applied = match full {
        QueueFullAction::Reject => {
            let _place = edge.waiting_place()?;
            edge.state.try_apply_batch(batch).await
        }
        QueueFullAction::Wait => edge.state.apply_batch(batch).await,
    };
    Ok(batch_outcome(applied?))
}

/// Next message of a stream. One that may be compressed can take long, so other threads take over the tasks of this one.
async fn next_message(
    messages: &mut Streaming<Bytes>,
    format: MessageFormat,
) -> Result<Option<pb::SyncRequest>, Status> {
    let inflates = CallScope::current().is_some_and(|call| call.inflates);
    let next = poll_fn(|context| work_beside_tasks(inflates, || Pin::new(&mut *messages).poll_next(context)));
    next.await.map(|bytes| Ok(format.read(bytes?)?)).transpose()
}

/// Applies batches one after the other: the next is read from the wire when the previous one is visible.
pub(super) async fn run_sync(
    edge: Arc<ServerContext>,
    (mut batches, format): (Streaming<Bytes>, MessageFormat),
    sender: BatchSender,
    results: mpsc::Sender<Result<pb::SyncResponse, Status>>,
) {
    let mut draining = edge.draining.clone();
    loop {
        let next = tokio::select! {
            _ = async { draining.wait_for(|draining| *draining).await.is_ok() } => {
                let failure = CallError::new(ErrorCode::ShuttingDown, "the server is shutting down");
                drop(results.send(Err(failure.into())).await);
                return;
            }
            next = next_message(&mut batches, format) => next,
        };
        let result = match next {
            Ok(Some(pb::SyncRequest { batch })) => apply_batch(&edge, batch, &sender, QueueFullAction::Wait).await,
            // The stream is over, or its caller is gone: nobody reads a reply.
            Ok(None) => return,
            Err(status) => {
                let failure = failure_of_transport(&status, edge.read_options.limits.request_bytes);
                drop(results.send(Err(failure.map_or(status, Status::from))).await);
                return;
            }
        };
        let over = result.is_err();
        let result = result.map(|outcome| pb::SyncResponse { outcome: Some(outcome) });
        if results.send(result.map_err(Status::from)).await.is_err() || over {
            return;
        }
    }
}
