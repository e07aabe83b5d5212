//! Workers for requests that take longer than half a millisecond: off the async threads, with a bound on how many run,
//! how many wait, and for how long. Work whose caller is gone is cancelled.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::connection::CallerConnection;
use super::retries::RetryTurns;
use super::status::{CallError, RpcResult};
pub(super) use super::work_queue::HeldWorker;
use super::work_queue::{Admission, QueueLimit, QueueRejection, WorkQueue};
use crate::limits::EdgeLimits;
use crate::telemetry::WorkerLoad;
use pumice_engine::model::ErrorCode;
use pumice_engine::short_lock::ShortLock;

/// Cancellation token: turns true when the caller is gone or its deadline has passed. `None`: nobody cancels.
#[derive(Clone, Debug, Default)]
pub(super) struct CancellationToken(Option<Arc<AtomicBool>>);

impl CancellationToken {
    pub(super) fn is_cancelled(&self) -> bool {
        self.0
            .as_ref()
            .is_some_and(|cancelled| cancelled.load(Ordering::Relaxed))
    }
}

/// Guard that cancels its work when the call is dropped before the work ends.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Gate to a number of workers, and to a number of places to wait for one.
#[derive(Debug)]
pub struct WorkerGate {
    queue: Arc<WorkQueue>,
    /// Pieces of work that gave their worker back and wait for the disk, and how many may.
    disk_waits: (Arc<Semaphore>, usize),
    disk_turns: ShortLock<RetryTurns>,
    /// Cores that no request uses besides its own.
    spare_cores: AtomicUsize,
}

/// Cores that one query works on; returned when dropped.
#[derive(Debug)]
pub(super) struct CoreLease<'g> {
    gate: &'g WorkerGate,
    extra_cores: usize,
}

impl CoreLease<'_> {
    pub(super) fn core_count(&self) -> usize {
        self.extra_cores + 1
    }
}

impl Drop for CoreLease<'_> {
    fn drop(&mut self) {
        self.gate.spare_cores.fetch_add(self.extra_cores, Ordering::Relaxed);
    }
}

/// Share of each call in a write to the disk: a write takes some 10 ms and serves all that wait.
const DISK_SHARE: Duration = Duration::from_millis(1);

/// Number of task-node pairs that are worth a thread: at some 5 ns each, half a millisecond.
const PAIRS_PER_CORE: usize = 100_000;

impl WorkerGate {
    fn new(worker_count: usize, limits: &EdgeLimits) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self {
            spare_cores: AtomicUsize::new(cores - 1),
            queue: Arc::new(WorkQueue::new(worker_count, limits.worker_queue, limits.worker_wait)),
            disk_waits: (Arc::new(Semaphore::new(limits.disk_waits)), limits.disk_waits),
            disk_turns: ShortLock::default(),
        }
    }

    /// Number of pieces of work in progress.
    pub fn running(&self) -> usize {
        self.queue.running()
    }

    /// Number of pieces of work that wait.
    pub fn waiting(&self) -> usize {
        self.queue.waiting()
    }

    /// Leases cores for a query of this many task-node pairs: its own, and more if the query is large and no other
    /// works or could begin to. Small requests are not affected: the kernel gives them their share of a core at once.
    pub(super) fn lease_cores(&self, pairs: usize) -> CoreLease<'_> {
        let alone = self.queue.workers == 1 || (self.running() <= 1 && self.waiting() == 0);
        let wanted = if alone {
            (pairs / PAIRS_PER_CORE).saturating_sub(1)
        } else {
            0
        };
        let take = |spare: usize| (wanted > 0 && spare > 0).then(|| spare - spare.min(wanted));
        let before = self
            .spare_cores
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        CoreLease {
            gate: self,
            extra_cores: before.map_or(0, |before| before.min(wanted)),
        }
    }

    /// Runs a piece of work on a blocking thread.
    ///
    /// # Errors
    /// The work's own error; or too much work waits.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&CancellationToken) -> RpcResult<T> + Send + 'static,
    ) -> RpcResult<T> {
        self.run_after(std::future::ready(Ok(())), work).await
    }

    /// Runs a piece of work on a blocking thread, after a check as soon as its worker is free.
    ///
    /// # Errors
    /// The error of the check, or of the work; or too much work waits.
    pub(super) async fn run_after<T: Send + 'static>(
        &self,
        check: impl Future<Output = RpcResult<()>>,
        work: impl FnOnce(&CancellationToken) -> RpcResult<T> + Send + 'static,
    ) -> RpcResult<T> {
        let worker = self.worker().await?;
        check.await?;
        spawn_work(move |stop| {
            // The work holds its worker until it ends, whether its caller waits or not.
            let _worker = worker;
            work(stop)
        })
        .await
    }

    /// Runs a piece of work that ends with a wait for the disk, before which it drops its worker.
    ///
    /// # Errors
    /// The work's own error; or too much work waits, for a worker or for the disk.
    pub(super) async fn run_to_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(HeldWorker, &CancellationToken) -> RpcResult<T> + Send + 'static,
    ) -> RpcResult<T> {
        let (places, most) = &self.disk_waits;
        let Ok(wait) = Arc::clone(places).try_acquire_owned() else {
            let message = "too many calls wait for the disk";
            let failure = CallError::limit_as(ErrorCode::Overloaded, "disk_waits", *most, message);
            let retry = self
                .disk_turns
                .with(|turns| turns.next_delay(DISK_SHARE, Instant::now()));
            return Err(failure.retry_after(retry));
        };
        let worker = self.worker().await?;
        spawn_work(move |stop| {
            let _wait = wait;
            work(worker, stop)
        })
        .await
    }

    /// Worker, as soon as one is free, unless that takes too long.
    async fn worker(&self) -> RpcResult<HeldWorker> {
        let now = Instant::now();
        let worker = match self.queue.enter(CallerConnection::of_work(now), now) {
            Ok(Admission::Begun(worker)) => Ok(worker),
            Ok(Admission::Waiting(place)) => place.worker().await,
            Err(rejection) => Err(rejection),
        };
        worker.map_err(|rejection| self.rejected(rejection))
    }

    fn rejected(&self, QueueRejection { limit, retry }: QueueRejection) -> CallError {
        let (name, limit, message) = match limit {
            QueueLimit::Places => (
                "worker_queue",
                self.queue.places,
                "too many large requests wait for a worker; small requests are still evaluated",
            ),
            QueueLimit::Wait => (
                "worker_wait_ms",
                usize::try_from(self.queue.longest_wait.as_millis()).unwrap_or(usize::MAX),
                "large requests would wait for too long; small requests are still evaluated",
            ),
        };
        CallError::limit_as(ErrorCode::Overloaded, name, limit, message).retry_after(retry)
    }
}

/// Runs work on a blocking thread. The work is cancelled if its caller no longer waits.
async fn spawn_work<T: Send + 'static>(
    work: impl FnOnce(&CancellationToken) -> RpcResult<T> + Send + 'static,
) -> RpcResult<T> {
    let stop = CancelOnDrop(Arc::default());
    let flag = CancellationToken(Some(Arc::clone(&stop.0)));
    let span = tracing::Span::current();
    let work = move || {
        if span.is_disabled() {
            return work(&flag);
        }
        span.in_scope(|| tracing::info_span!("work").in_scope(|| work(&flag)))
    };
    match pumice_state::tasks::run_blocking(work).await {
        Ok(done) => done,
        Err(_) => Err(CallError::internal("a worker stopped")),
    }
}

/// Workers for all large requests. A long query does not delay listings and batches, nor a long document either.
#[derive(Debug)]
pub struct WorkerPool {
    /// Workers that evaluate large queries.
    pub queries: WorkerGate,
    /// Workers for listings, inline clusters, and conversions of batches.
    pub records: WorkerGate,
    /// Workers that decode large messages.
    pub messages: WorkerGate,
    /// Worker that compiles policies.
    pub policies: WorkerGate,
}

impl WorkerPool {
    /// Pool without work.
    pub fn new(limits: &EdgeLimits) -> Self {
        let gate = |workers| WorkerGate::new(workers, limits);
        Self {
            queries: gate(limits.workers),
            records: gate(limits.workers),
            messages: gate(limits.workers),
            policies: gate(1),
        }
    }

    /// Loads of all gates.
    pub fn loads(&self) -> [WorkerLoad; 4] {
        let load = |kind, gate: &WorkerGate| WorkerLoad {
            kind,
            running: gate.running(),
            waiting: gate.waiting(),
        };
        [
            load("query", &self.queries),
            load("records", &self.records),
            load("messages", &self.messages),
            load("policies", &self.policies),
        ]
    }
}
