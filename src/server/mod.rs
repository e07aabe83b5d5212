//! The edge: bytes to questions and records, answers to bytes. The only place that knows gRPC and HTTP.

pub mod codec;
pub mod convert;
mod decision;
mod limits;
pub mod pb;
mod policy;
pub mod probe;
mod standing;
mod state;
pub mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{Semaphore, watch};
use tonic::service::Routes;

use crate::engine::plugins;
use crate::state::State;
use crate::telemetry::Metrics;

use convert::reader::Declared;
use pb::decision_service_server::DecisionServiceServer;
use pb::policy_service_server::PolicyServiceServer;
use pb::state_service_server::StateServiceServer;
use status::Failure;

/// The policy that serves when none is given.
pub const BUILT_IN_POLICY: &str = include_str!("../../policies/default.yaml");

/// Sizes of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageLimits {
    /// Largest request, in bytes.
    pub request_bytes: usize,
    /// Largest answer, in bytes.
    pub answer_bytes: usize,
}

impl Default for MessageLimits {
    fn default() -> Self {
        Self {
            request_bytes: 32 << 20,
            answer_bytes: 128 << 20,
        }
    }
}

/// What all services share.
#[derive(Debug)]
pub struct Edge {
    state: Arc<State>,
    declared: Declared,
    metrics: Arc<Metrics>,
    limits: MessageLimits,
    draining: watch::Receiver<bool>,
    /// Work off the async threads that may run at once; the rest waits here, in the caller's own stream.
    heavy: Arc<Semaphore>,
    id_prefix: u64,
    next_id: AtomicU64,
}

impl Edge {
    /// The edge of a state. `draining` turns true when the server is to stop.
    pub fn new(
        state: Arc<State>,
        metrics: Arc<Metrics>,
        limits: MessageLimits,
        draining: watch::Receiver<bool>,
        id_prefix: u64,
    ) -> Arc<Self> {
        let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        Arc::new(Self {
            state,
            declared: Declared::by(plugins::REGISTRY),
            metrics,
            limits,
            draining,
            heavy: Arc::new(Semaphore::new(cores * 2)),
            id_prefix,
            next_id: AtomicU64::new(1),
        })
    }

    /// All services of `pumice.v1`.
    pub fn routes(self: &Arc<Self>) -> Routes {
        let MessageLimits {
            request_bytes,
            answer_bytes,
        } = self.limits;
        let decision = DecisionServiceServer::new(decision::Decisions(Arc::clone(self)))
            .max_decoding_message_size(request_bytes)
            .max_encoding_message_size(answer_bytes);
        let state = StateServiceServer::new(state::StateRpc(Arc::clone(self)))
            .max_decoding_message_size(request_bytes)
            .max_encoding_message_size(answer_bytes);
        let policy = PolicyServiceServer::new(policy::Policies(Arc::clone(self)))
            .max_decoding_message_size(request_bytes)
            .max_encoding_message_size(answer_bytes);
        Routes::new(decision).add_service(state).add_service(policy)
    }

    /// A name for one answer.
    fn next_id(&self) -> String {
        let number = self.next_id.fetch_add(1, Ordering::Relaxed);
        format!("{:08x}-{number:x}", self.id_prefix >> 32)
    }

    /// Does work that may take longer than half a millisecond.
    async fn heavily<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let permit = Arc::clone(&self.heavy).acquire_owned().await;
        let Ok(permit) = permit else {
            return Err(Failure::internal("the gate for heavy work is closed"));
        };
        // The work goes on when its caller goes away, and so must its permit.
        let work = move || {
            let done = work();
            drop(permit);
            done
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(done) => done,
            Err(_) => Err(Failure::internal("a worker stopped")),
        }
    }
}
