//! Workers for requests that take longer than half a millisecond: off the async threads, with a bound on how many run
//! and how many wait. Work whose caller is gone is cancelled.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::limits::EdgeLimits;
use super::status::CallError;

/// Delay before a rejected caller may retry.
const WORKER_RETRY: Duration = Duration::from_millis(250);

/// Cancellation token: turns true when the caller is gone or its deadline has passed.
#[derive(Clone, Debug, Default)]
pub(super) struct CancellationToken(Arc<AtomicBool>);

impl CancellationToken {
    pub(super) fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Guard that cancels its work when the call is dropped before the work ends.
struct CancelOnDrop(CancellationToken);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// Gate to a number of workers, and to a number of places to wait for one.
#[derive(Debug)]
pub struct WorkerGate {
    workers: Arc<Semaphore>,
    queue_slots: Arc<Semaphore>,
    worker_count: usize,
    queue_limit: usize,
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

/// Number of task-node pairs that are worth a thread: at some 5 ns each, half a millisecond.
const PAIRS_PER_CORE: usize = 100_000;

impl WorkerGate {
    fn new(worker_count: usize, queue_limit: usize) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self {
            spare_cores: AtomicUsize::new(cores - 1),
            workers: Arc::new(Semaphore::new(worker_count)),
            queue_slots: Arc::new(Semaphore::new(
                worker_count.saturating_add(queue_limit).min(Semaphore::MAX_PERMITS),
            )),
            worker_count,
            queue_limit,
        }
    }

    /// Number of pieces of work under way.
    pub fn running(&self) -> usize {
        self.worker_count.saturating_sub(self.workers.available_permits())
    }

    /// Number of pieces of work that wait.
    pub fn waiting(&self) -> usize {
        let taken = (self.worker_count + self.queue_limit).saturating_sub(self.queue_slots.available_permits());
        taken.saturating_sub(self.running())
    }

    /// Leases cores for a query of this many task-node pairs: its own, and more if the query is large and no other
    /// works or waits for a worker. Small requests are not affected: the kernel gives them their share of a core at
    /// once.
    pub(super) fn lease_cores(&self, pairs: usize) -> CoreLease<'_> {
        let alone = self.running() <= 1 && self.waiting() == 0;
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
        work: impl FnOnce(&CancellationToken) -> Result<T, CallError> + Send + 'static,
    ) -> Result<T, CallError> {
        let Ok(place) = Arc::clone(&self.queue_slots).try_acquire_owned() else {
            let message = "too many large requests wait for a worker; small requests are still evaluated";
            return Err(
                CallError::limit("OVERLOADED", "worker_queue", self.queue_limit, message).retry_after(WORKER_RETRY),
            );
        };
        let stop = CancelOnDrop(CancellationToken::default());
        let Ok(worker) = Arc::clone(&self.workers).acquire_owned().await else {
            return Err(CallError::internal("the gate to the workers is closed"));
        };
        let flag = stop.0.clone();
        let span = tracing::Span::current();
        let work = move || {
            // The work holds its worker until it ends, whether its caller waits or not.
            let _held = (place, worker);
            span.in_scope(|| tracing::info_span!("work").in_scope(|| work(&flag)))
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(done) => done,
            Err(_) => Err(CallError::internal("a worker stopped")),
        }
    }
}

/// Workers for all large requests. A long query does not delay listings and batches.
#[derive(Debug)]
pub struct WorkerPool {
    /// Workers for queries.
    pub queries: WorkerGate,
    /// Workers for listings, inline clusters, and conversions of batches.
    pub records: WorkerGate,
}

impl WorkerPool {
    /// Pool without work.
    pub fn new(limits: &EdgeLimits) -> Self {
        let gate = || WorkerGate::new(limits.workers, limits.worker_queue);
        Self {
            queries: gate(),
            records: gate(),
        }
    }
}
