//! Way of a store to the service that holds its log: a runtime of its own, and attempts to reach the service again.

use std::fmt::Display;
use std::io;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use tokio::runtime::{Builder, EnterGuard, Runtime, RuntimeFlavor};

use super::{LogHead, LogNews, StoredState};

/// Pause after the first attempt that failed.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// Longest wait of a start for a service that does not answer.
const START_PATIENCE: Duration = Duration::from_secs(10);
/// Longest pause between two of its attempts.
const LONGEST_START_PAUSE: Duration = Duration::from_secs(1);

/// Runtime of a store's requests. The store waits for them on the threads that call it.
#[derive(Debug)]
pub struct StoreRuntime(Option<Arc<Runtime>>);

impl StoreRuntime {
    /// Starts the runtime, whose thread has this name.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(thread: &str) -> io::Result<Self> {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).thread_name(thread).enable_all().build();
        Ok(Self::on(Arc::new(runtime?)))
    }

    /// Runtime that others use as well, for tests whose time is virtual.
    #[doc(hidden)]
    pub fn on(runtime: Arc<Runtime>) -> Self {
        Self(Some(runtime))
    }

    /// Waits on this thread for the result of work on the runtime; `None`: the work was given up.
    pub fn wait<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
        if let Some(runtime) = &self.0
            && runtime.handle().runtime_flavor() == RuntimeFlavor::CurrentThread
        {
            return Some(runtime.block_on(work));
        }
        let (sender, result) = mpsc::sync_channel(1);
        self.spawn(async move { drop(sender.send(work.await)) });
        result.recv().ok()
    }

    /// Runs work concurrently with the store's calls.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.0 {
            runtime.spawn(work);
        }
    }

    /// Makes what is constructed now belong to the runtime.
    pub fn enter(&self) -> Option<EnterGuard<'_>> {
        self.0.as_ref().map(|runtime| runtime.enter())
    }
}

impl Drop for StoreRuntime {
    /// Gives up the work that is under way.
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take().and_then(Arc::into_inner) {
            runtime.shutdown_background();
        }
    }
}

/// Retries a request until the service responds, for at most ten seconds: the service may still be starting. `ask`
/// returns the error of a failed attempt.
pub async fn await_service<E: Display, F: Future<Output = Option<E>>>(place: &str, mut ask: impl FnMut() -> F) {
    let (until, mut pause) = (tokio::time::Instant::now() + START_PATIENCE, FIRST_PAUSE);
    while let Some(error) = ask().await {
        if tokio::time::Instant::now() >= until {
            return;
        }
        if pause == FIRST_PAUSE {
            tracing::warn!(store = %place, %error, "the start waits for the store");
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_START_PAUSE);
    }
}

/// Attempts of a follower to reach the service.
#[derive(Debug)]
pub struct FollowAttempts {
    pause: Duration,
    longest: Duration,
    /// Number of attempts in a row without a connection.
    failed: usize,
}

impl FollowAttempts {
    /// Attempts with pauses of at most this length.
    pub fn new(longest: Duration) -> Self {
        Self {
            pause: FIRST_PAUSE,
            longest,
            failed: 0,
        }
    }

    /// Notes an attempt that ended with an error, and returns the pause before the next one. The problem is news once this
    /// many attempts in a row had no connection.
    pub fn note_end(
        &mut self,
        was_connected: bool,
        patience: usize,
        news: &LogNews,
        (error, problem): (&impl Display, String),
    ) -> Duration {
        if was_connected {
            (self.pause, self.failed) = (FIRST_PAUSE, 0);
        } else {
            self.failed += 1;
        }
        if self.failed >= patience {
            if news.problem().is_none() {
                tracing::error!(%error, "the log cannot be followed: until it can, nothing is confirmed, committed, released or reloaded");
            }
            news.set_problem(Some(problem));
        }
        let pause = self.pause;
        self.pause = (pause * 2).min(self.longest);
        pause
    }
}

/// Reports a shared log that was read and checked.
pub(super) fn report_checked(place: &str, state: &StoredState, head: &LogHead) {
    tracing::info!(
        store = %place,
        entries = head.sequence,
        reservations = state.reservations.len(),
        released = state.tombstones.len(),
        commits = state.assumptions.len(),
        policies = state.policies.len(),
        "the store was checked"
    );
}
