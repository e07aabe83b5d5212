//! The common path of decisions from bytes to result. It resolves the state and policy, reserves memory for a large
//! response, evaluates here or on a worker, and holds the memory until the response is written.

use std::sync::Arc;

use prost::Message;

use super::ServerContext;
use super::convert::evaluation_ref::EvaluationRef;
use super::evaluation::EvaluationContext;
use super::pb;
use super::response_room::ResponseRoom;
use super::status::{CallError, RpcResult};
use super::worker_pool::CancellationToken;
use crate::limits::weight_ahead;
use pumice_engine::model::ErrorCode;

/// Number of task-node pairs above which a query leaves the async threads: at some 20 ns each, half a millisecond.
const MAX_ASYNC_PAIRS: usize = 25_000;
/// Number of tasks above which a query leaves the async threads, however few nodes there are.
pub(super) const MAX_ASYNC_TASKS: usize = 200;
/// Bytes of objects above which a message leaves the async threads: at some 5 ns each, a third of a millisecond.
pub(super) const MAX_ASYNC_OBJECT_BYTES: usize = 64 << 10;

/// Amount of work of a call, as far as it is known before the evaluation.
#[derive(Clone, Copy, Debug)]
pub(super) enum CallWork {
    /// Tasks on nodes.
    Pairs {
        /// Number of tasks.
        tasks: usize,
        /// Number of nodes that the request names; `None`: all.
        width: Option<usize>,
        /// Number of further tasks that are looked ahead by.
        ahead: usize,
    },
    /// Plugin states may have to be computed first.
    PluginStates,
}

impl CallWork {
    /// Maximum number of task-node pairs in the response, and true if they are few enough for the async thread.
    fn size(self, context: &EvaluationContext) -> (usize, bool) {
        let CallWork::Pairs { tasks, width, ahead } = self else {
            return (0, false);
        };
        let width = width.unwrap_or(context.cluster_state().slots() as usize);
        let pairs = tasks.saturating_mul(width);
        let is_small = tasks <= MAX_ASYNC_TASKS
            && pairs.saturating_mul(weight_ahead(ahead)) <= MAX_ASYNC_PAIRS
            && context.has_plugin_states();
        (pairs.saturating_mul(ahead.saturating_add(1)), is_small)
    }
}

/// Request of a decision, without its reference to state and policy.
pub(super) trait DecisionCall: Send + 'static {
    /// Message of the protocol that answers this request.
    type Response: Message + Send + Sync + 'static;

    /// Amount of work of the call.
    fn work(&self, context: &EvaluationContext) -> CallWork;

    /// Tasks that the request lists.
    fn tasks(&self) -> &[pb::Task] {
        &[]
    }

    /// Bytes of the objects that its tasks carry.
    fn object_bytes(&self) -> usize {
        self.tasks().iter().map(|task| task.object.len()).sum()
    }

    /// Least number of bytes of the response.
    fn least_bytes(&self, _context: &EvaluationContext) -> usize {
        0
    }

    /// Evaluates the call.
    fn decide(self, evaluation: Evaluation<'_>) -> RpcResult<Self::Response>;
}

/// Arguments of an evaluation: the server, the call's context, and its cancellation.
#[derive(Clone, Copy)]
pub(super) struct Evaluation<'a> {
    pub(super) edge: &'a ServerContext,
    pub(super) context: &'a EvaluationContext,
    pub(super) stop: &'a CancellationToken,
}

impl ServerContext {
    /// Resolves the state and policy of a call, evaluates it, and reserves memory for its response.
    pub(super) async fn decide<C: DecisionCall>(
        self: Arc<Self>,
        call: C,
        against: RpcResult<EvaluationRef>,
    ) -> RpcResult<C::Response> {
        let mut room = ResponseRoom::of_call();
        let context = self.resolve(against?).await?;
        let (pairs, is_small) = call.work(&context).size(&context);
        let is_small = is_small && call.object_bytes() <= MAX_ASYNC_OBJECT_BYTES;
        let (least_bytes, applied) = (call.least_bytes(&context), context.applied_through());
        let decided = if is_small {
            evaluate(call, &self, &context, &CancellationToken::default())?
        } else {
            let edge = Arc::clone(&self);
            let decide = move |stop: &CancellationToken| evaluate(call, &edge, &context, stop);
            let decided = Box::pin(self.workers.queries.run_after(room.hold(least_bytes), decide)).await;
            // Where no worker was free, the changes are applied all the same.
            decided.map_err(|failure| match applied {
                Some(applied) => failure.with_applied_through(applied),
                None => failure,
            })?
        };
        room.reserve(&decided, pairs).await?;
        Ok(decided)
    }
}

/// Evaluates a call in its context. An error has the metadata of the session.
fn evaluate<C: DecisionCall>(
    call: C,
    edge: &ServerContext,
    context: &EvaluationContext,
    stop: &CancellationToken,
) -> RpcResult<C::Response> {
    let decided = call.decide(Evaluation { edge, context, stop });
    decided.map_err(|failure| context.attach_metadata(edge, failure))
}

/// Error of a call whose caller has gone. It is never read.
pub(super) fn cancelled() -> CallError {
    CallError::new(ErrorCode::Cancelled, "the caller no longer waits for the response")
}
