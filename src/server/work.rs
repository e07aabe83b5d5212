//! Work that takes longer than half a millisecond: off the async threads, so much at once, so much waiting, and given up
//! when nobody wants its answer any more.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::limits::EdgeLimits;
use super::status::Failure;

/// When a caller that was refused may come again.
const RETRY: Duration = Duration::from_millis(250);

/// Turns true when the caller is gone or its deadline is past.
#[derive(Clone, Debug, Default)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Sets its flag unless the work came to its end: a call that is dropped takes its work with it.
struct StopOnDrop(Stop);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// A number of workers, and a number of places to wait for one.
#[derive(Debug)]
pub struct Gate {
    workers: Arc<Semaphore>,
    places: Arc<Semaphore>,
    work: usize,
    queued: usize,
    /// Cores that no question uses beside its own.
    spare: AtomicUsize,
}

/// Cores that one question works on; given back when dropped.
#[derive(Debug)]
pub(super) struct Hands<'g> {
    gate: &'g Gate,
    more: usize,
}

impl Hands<'_> {
    pub(super) fn count(&self) -> usize {
        self.more + 1
    }
}

impl Drop for Hands<'_> {
    fn drop(&mut self) {
        self.gate.spare.fetch_add(self.more, Ordering::Relaxed);
    }
}

/// Task-node pairs that are worth a thread: at some 5 ns each, half a millisecond.
const PAIRS_PER_HAND: usize = 100_000;

impl Gate {
    fn new(work: usize, queued: usize) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self {
            spare: AtomicUsize::new(cores - 1),
            workers: Arc::new(Semaphore::new(work)),
            places: Arc::new(Semaphore::new(work.saturating_add(queued).min(Semaphore::MAX_PERMITS))),
            work,
            queued,
        }
    }

    /// Pieces of work under way.
    pub fn running(&self) -> usize {
        self.work.saturating_sub(self.workers.available_permits())
    }

    /// Pieces of work that wait.
    pub fn waiting(&self) -> usize {
        let taken = (self.work + self.queued).saturating_sub(self.places.available_permits());
        taken.saturating_sub(self.running())
    }

    /// The cores for a question of so many task-node pairs: its own, and more if it is large and nobody else works or
    /// waits for a worker. Small questions are not kept out: the kernel gives them their share of a core at once.
    pub(super) fn hands(&self, pairs: usize) -> Hands<'_> {
        let alone = self.running() <= 1 && self.waiting() == 0;
        let wanted = if alone {
            (pairs / PAIRS_PER_HAND).saturating_sub(1)
        } else {
            0
        };
        let take = |spare: usize| (wanted > 0 && spare > 0).then(|| spare - spare.min(wanted));
        let before = self.spare.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        Hands {
            gate: self,
            more: before.map_or(0, |before| before.min(wanted)),
        }
    }

    /// Does a piece of work on a blocking thread.
    ///
    /// # Errors
    /// Its own; or too much work waits.
    pub(super) async fn pass<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Stop) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            let message = "the server has as much large work as it takes; small questions are answered";
            return Err(Failure::limit("OVERLOADED", "queued_work", self.queued, message).retry_after(RETRY));
        };
        let stop = StopOnDrop(Stop::default());
        let Ok(worker) = Arc::clone(&self.workers).acquire_owned().await else {
            return Err(Failure::internal("the gate for large work is closed"));
        };
        let flag = stop.0.clone();
        let span = tracing::Span::current();
        let work = move || {
            // Until it is done or gives up, the work holds its worker, whether its caller waits or not.
            let _held = (place, worker);
            span.in_scope(|| tracing::info_span!("work").in_scope(|| work(&flag)))
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(done) => done,
            Err(_) => Err(Failure::internal("a worker stopped")),
        }
    }
}

/// All large work. A long question does not hold up listings and batches.
#[derive(Debug)]
pub struct Work {
    /// Questions.
    pub questions: Gate,
    /// Listings, inline clusters, and conversions of batches.
    pub records: Gate,
}

impl Work {
    /// Nothing to do yet.
    pub fn new(limits: &EdgeLimits) -> Self {
        let gate = || Gate::new(limits.work, limits.queued_work);
        Self {
            questions: gate(),
            records: gate(),
        }
    }
}
