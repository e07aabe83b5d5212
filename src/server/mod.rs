//! Edge of the server: converts bytes to queries and records, and results to bytes. Only this module depends on gRPC
//! and HTTP.

mod access_layer;
mod admit;
mod codec;
mod commit;
mod confirm;
mod connect;
mod connection;
mod connection_table;
mod console_pages;
pub mod convert;
mod decision;
mod decision_call;
mod evaluation;
mod extender;
mod json;
mod large_messages;
mod memory_budget;
pub mod pb;
mod place;
mod place_batch;
mod place_choice;
mod place_commit;
mod place_lane;
mod policy;
mod policy_audit;
mod policy_file;
pub mod probe;
mod request_body;
mod reservations;
mod resolve;
mod response_body;
mod response_room;
mod retries;
mod rpc;
mod sessions;
mod shares;
mod state;
mod state_errors;
mod state_intake;
pub mod status;
mod stream_body;
mod task_signal;
#[cfg(test)]
mod tests;
mod throttle;
mod transport_facts;
mod who_am_i;
mod work_queue;
mod worker_pool;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once};

use tokio::sync::watch;

use crate::limits::EdgeLimits;
use crate::telemetry::Metrics;
use pumice_engine::decide::{VerdictCache, VerdictReuse};
use pumice_engine::model::LabelKinds;
use pumice_engine::plugins;
use pumice_engine::policy::{Compatibility, Policy, Release};
use pumice_state::SharedState;

use convert::reader::ReadOptions;
use place_lane::PlaceLane;
use shares::{HeldShare, SharedLimit};
use status::RpcResult;

pub use access_layer::AccessLayer;
pub(crate) use connect::{CallExposure, ConnectFront, LayeredServices, is_call_path};
pub use connection::CallerConnection;
pub use connection_table::ConnectionTable;
pub(crate) use console_pages::{console_router, is_console_path};
pub(crate) use extender::{ExtenderFront, is_extender_path};
pub use memory_budget::MemoryBudget;
pub use policy_file::PolicyFile;
pub(crate) use policy_file::{HangupSignal, reload_policy, watch_policy_file};
pub use rpc::ServicesLayer;
pub use throttle::ThrottleLayer;
pub use transport_facts::{PendingFacts, TransportFacts, TransportKind};
pub use worker_pool::{WorkerGate, WorkerPool};

/// Policy that is in force when none is given.
pub const BUILT_IN_POLICY: &str = include_str!("../../policies/default.yaml");

/// Parts that all services share.
#[derive(Debug)]
pub struct ServerContext {
    state: Arc<SharedState>,
    read_options: ReadOptions,
    /// Kinds of records that keep all labels, even if active policies do not read them.
    always_stored: LabelKinds,
    metrics: Arc<Metrics>,
    draining: watch::Receiver<bool>,
    workers: Arc<WorkerPool>,
    /// Verdicts on chunks of nodes, which later queries use again.
    verdict_cache: Arc<VerdictCache>,
    waits: Arc<SharedLimit>,
    place_lane: PlaceLane,
    /// Begin of the names of decisions.
    id_prefix: String,
    next_id: AtomicU64,
    /// Done once somebody was warned that policies of callers are in memory only.
    memory_warning: Once,
}

impl ServerContext {
    /// Verdicts of earlier queries on a lineage of states: the name of a session, or empty for the snapshots.
    fn verdict_reuse<'a>(&'a self, policy: &'a Arc<Policy>, lineage: &'a str) -> VerdictReuse<'a> {
        VerdictReuse {
            cache: &self.verdict_cache,
            policy,
            lineage,
        }
    }

    /// Edge of a state. `draining` turns true when the server begins to stop. `always_stored`: kinds of records whose labels
    /// are all kept, so that any policy can be activated after they were sent.
    pub fn new(
        state: Arc<SharedState>,
        metrics: Arc<Metrics>,
        mut limits: EdgeLimits,
        draining: watch::Receiver<bool>,
        id_prefix: u64,
        always_stored: LabelKinds,
    ) -> Arc<Self> {
        // Whoever allows few calls wants fewer to wait.
        limits.waits = limits.waits.min((limits.calls / 2).max(1));
        let work = Arc::new(WorkerPool::new(&limits));
        let verdict_cache = Arc::new(VerdictCache::new(limits.verdict_cache_bytes));
        metrics.follow_verdicts(Arc::clone(&verdict_cache));
        let (waits, share) = (("waits", limits.waits), ("connection_waits", limits.connection_waits));
        let message = "too many calls wait for a revision, for the writer or for the disk";
        Arc::new(Self {
            state,
            read_options: ReadOptions::from_registry(plugins::REGISTRY, limits),
            always_stored,
            metrics,
            draining,
            workers: work,
            verdict_cache,
            waits: SharedLimit::new(waits, share, [message; 2], 1, |held| &held.waits),
            place_lane: PlaceLane::default(),
            id_prefix: format!("{:08x}-", id_prefix >> 32),
            next_id: AtomicU64::new(1),
            memory_warning: Once::new(),
        })
    }

    /// Layer with all services of `pumice.v1`.
    pub fn services(self: &Arc<Self>) -> ServicesLayer {
        ServicesLayer(Arc::clone(self))
    }

    /// Workers of large requests.
    pub fn workers(&self) -> &Arc<WorkerPool> {
        &self.workers
    }

    /// Place of a call that waits for other calls, for the writer or for the disk, until it is dropped. Calls that do
    /// not wait need no place, so waiting calls cannot block them.
    fn waiting_place(&self) -> RpcResult<Option<HeldShare>> {
        let Some(connection) = CallerConnection::current() else {
            return Ok(None);
        };
        let mut place = HeldShare::none(&self.waits, &connection);
        place.grow(1).map_err(|error| place.rejection(error))?;
        Ok(Some(place))
    }

    /// Release by whose rules sources have to derive the amounts of pods.
    pub fn pod_release(&self) -> Release {
        self.state.snapshot().pod_release()
    }

    /// Rules of active policies for batches: kinds of records that keep all labels, and the strictest compatibility.
    fn batch_rules(&self) -> (LabelKinds, Compatibility) {
        let snapshot = self.state.snapshot();
        (
            self.always_stored.union(snapshot.read_labels()),
            snapshot.strictest_compatibility(),
        )
    }

    /// Unique name of one decision.
    fn next_decision_id(&self) -> String {
        let number = self.next_id.fetch_add(1, Ordering::Relaxed);
        let mut id = String::with_capacity(self.id_prefix.len() + 16);
        id.push_str(&self.id_prefix);
        id.extend(hexadecimal(number));
        id
    }

    /// Runs work on records that may take longer than half a millisecond.
    async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> RpcResult<T> + Send + 'static,
    ) -> RpcResult<T> {
        self.workers.records.run(|_| work()).await
    }
}

/// Hexadecimal digits of a number, without zeros before them. A format takes ten times as long.
fn hexadecimal(number: u64) -> impl Iterator<Item = char> {
    let digits = (u64::BITS - number.leading_zeros()).div_ceil(4).max(1);
    let digit = move |at: u32| char::from_digit(u32::try_from((number >> (4 * at)) & 0xf).unwrap_or_default(), 16);
    (0..digits).rev().filter_map(digit)
}

/// Completes when the flag turns true, or can no longer change.
pub(crate) async fn wait_until_true(mut flag: watch::Receiver<bool>) {
    // Without a sender there is nothing left to serve for, so an error ends the wait, too.
    let _ = flag.wait_for(|turned| *turned).await.is_ok();
}
