//! State of the server: one writer applies all changes and publishes immutable snapshots; readers never wait.

mod clock;
mod connection_share;
mod error;
mod intake;
mod ledger;
mod limits;
mod policies;
mod sessions;
pub mod store;
mod store_health;
pub mod tasks;
mod writer;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use tokio::sync::mpsc::error::TrySendError;

pub use clock::{Clock, SystemClock};
pub use connection_share::{ConnectionShare, peer_of};
pub use error::{LimitHolder, PolicyError, StateError};
pub use intake::batch::{Batch, BatchKind, BatchRecord, RecordBasis, RecordLocation, RejectedRecord, SourceKind};
pub use intake::batch_outcome::{BatchOutcome, ResyncReason, ResyncRequest};
pub use intake::source_forgetting::{ForgetSource, ForgottenSource};
pub use intake::source_status::SourceStatus;
pub use ledger::{
    ConfirmItem, ConfirmItems, ConfirmOutcome, ConfirmReader, JobConfirmOutcome, LedgerConfirm, LedgerRelease,
    ReservationStatus,
};
pub use limits::{LimitDef, LimitValue, MAX_COUNT, MAX_MEMORY_BYTES, MAX_TIME, STATE_LIMITS, StateLimits};
pub use policies::fingerprint::document_hash;
pub use policies::origin::PolicyOrigin;
pub use policies::rejected_document::RejectedDocument;
pub use policies::reload::{CompiledReload, is_policy_name};
pub use policies::removal::{DeletedPolicy, PolicyDeletion};
pub use policies::stored::StoredPolicyError;
pub use policies::{PolicyReload, PolicyRollback, PolicyVersion, ReloadedPolicy, policy_in_snapshot};
pub use sessions::assumption_requests::CommitUnderWay;
pub use sessions::commit_outcome::{CommitOutcome, CommitRejection, JobCommitOutcome, ProposedJob, ProposedPlacement};
pub use sessions::confirm::SessionConfirm;
pub use sessions::hold::TaskHold;
pub use sessions::opening::{OpenSession, OpenedSession, SessionBase};
pub use sessions::placed_calls::{CommitScope, PlacedCall, PlacementCommit};
pub use sessions::query::WeighedResult;
pub use sessions::registry::session_prefix;
pub use sessions::status::SessionStatus;
pub use sessions::steps::SteppedSession;
pub use store_health::StoreStatus;
pub use writer::interner::RecordInterner;
pub use writer::resource_names::ResourceNames;

use crate::store::{LedgerLog, LogNews, MemoryStore, Store, StoreError, StoredState};
use error::held_limit_error;
use ledger::{AdmissionLedger, SharedLeases};
use policies::PolicyRegistry;
use policies::writer::PolicyWriter;
use sessions::registry::SessionRegistry;
use store_health::{StoreHealth, WatchedStore};
use writer::command::{DurableCommand, WriterCommand};
use writer::ports::SnapshotPublisher as _;
use writer::published::PublishedSnapshot;
use writer::request::CommandReply;
use writer::{Writer, WriterParts};

/// Period of the check for expired leases.
const SWEEP_EVERY: std::time::Duration = std::time::Duration::from_millis(500);

/// Options with which the state starts.
#[derive(Clone, Debug, Default)]
pub struct StateOptions {
    /// Every bound.
    pub limits: StateLimits,
    /// Epoch of this start; choose it at random.
    pub epoch: u64,
    /// Sources that must be synced before the service is ready.
    pub expected_sources: Vec<Arc<str>>,
    /// Confirms every request. Tests use this to prove that they notice a broken promise.
    #[doc(hidden)]
    #[cfg(any(test, feature = "test-doors"))]
    pub without_checks: bool,
}

/// Error of the start of the state.
#[derive(Debug, thiserror::Error)]
pub enum StateStartError {
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A stored policy that was in force can no longer be read.
    #[error(transparent)]
    Policy(#[from] StoredPolicyError),
}

/// Shared state of the server, and all ways to read and change it.
#[derive(Debug)]
pub struct SharedState {
    limits: StateLimits,
    clock: Arc<dyn Clock>,
    names: Arc<ResourceNames>,
    published: Arc<PublishedSnapshot>,
    sources: Arc<intake::source_status::SourceRegistry>,
    policies: Arc<PolicyRegistry>,
    sessions: SessionRegistry,
    leases: SharedLeases,
    store_health: Arc<StoreHealth>,
    commands: tokio::sync::mpsc::Sender<WriterCommand>,
}

impl SharedState {
    /// Starts the writer on its own thread, over an empty state without policies that is held in memory only. The
    /// writer ends when the last handle on the state is dropped.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(options: StateOptions, clock: Arc<dyn Clock>) -> Result<Arc<Self>, StateStartError> {
        Self::start_on(options, clock, Box::new(MemoryStore::default()))
    }

    /// Starts the state over a store, with the store's content.
    ///
    /// # Errors
    /// No thread can be started, the store cannot be read, or this program rejects a stored policy that was in
    /// force.
    pub fn start_on(
        options: StateOptions,
        clock: Arc<dyn Clock>,
        store: Box<dyn Store>,
    ) -> Result<Arc<Self>, StateStartError> {
        #[cfg(any(test, feature = "test-doors"))]
        let without_checks = options.without_checks;
        let StateOptions {
            epoch,
            expected_sources,
            limits,
            ..
        } = options;
        let (mut store, store_health) = WatchedStore::new(store, Arc::clone(&clock));
        let (stored_state, head) = store.load()?;
        let names = Arc::new(ResourceNames::new(limits.resource_names));
        let snapshots = Arc::new(PublishedSnapshot::new(epoch));
        let known = (expected_sources, &*stored_state.sources);
        let intake = intake::sources::SourceIntake::new(known, limits.clone(), Arc::clone(&clock));
        let sources = Arc::clone(&intake.registry);
        let (policy_writer, in_force) = PolicyWriter::open(&limits, &stored_state)?;
        let policies = Arc::clone(&policy_writer.registry);
        let leases = SharedLeases::default();
        let (commands, queue) = tokio::sync::mpsc::channel(limits.queued_writes);
        let parts = WriterParts {
            names: Arc::clone(&names),
            publisher: Arc::clone(&snapshots) as _,
            sources: intake,
            policies: policy_writer,
            clock: Arc::clone(&clock),
        };
        let log = LedgerLog::new(Box::new(store), head);
        let news = Arc::clone(log.news());
        let writer = Writer::new(parts, &stored_state, |cluster_state| {
            let ledger = AdmissionLedger::open(&limits, log, &stored_state, &leases, cluster_state);
            #[cfg(any(test, feature = "test-doors"))]
            let ledger = ledger.without_checks(without_checks);
            ledger
        });
        #[cfg(any(test, feature = "test-doors"))]
        let writer = writer.without_checks(without_checks);
        let mut writer = writer;
        if stored_state != StoredState::default() {
            writer.publish_initial(in_force);
        }
        wake_writer(&news, commands.downgrade());
        std::thread::Builder::new()
            .name("pumice-writer".to_owned())
            .spawn(move || writer.run(queue))?;
        let sessions = SessionRegistry::new(limits.clone(), Arc::clone(&clock), epoch, news);
        let state = Arc::new(Self {
            limits,
            clock,
            names,
            published: snapshots,
            sources,
            policies,
            sessions,
            leases,
            store_health,
            commands,
        });
        sweep_while_alive(&state)?;
        Ok(state)
    }

    /// Newest snapshot: one atomic load.
    pub fn snapshot(&self) -> Arc<pumice_engine::Snapshot> {
        self.published.newest()
    }

    /// Waits for a snapshot that is at least as new as the revision.
    ///
    /// # Errors
    /// The revision is of another epoch, or no such snapshot exists within `max_wait`.
    pub async fn snapshot_at(
        &self,
        at_least: Option<pumice_engine::Revision>,
        positions: &[pumice_engine::SourcePosition],
        max_wait: std::time::Duration,
    ) -> Result<Arc<pumice_engine::Snapshot>, StateError> {
        self.published.wait_for(at_least, positions, max_wait).await
    }

    /// Resource names, for conversion at the edge.
    pub fn resource_names(&self) -> &ResourceNames {
        &self.names
    }

    /// Bounds of the state.
    pub fn limits(&self) -> &StateLimits {
        &self.limits
    }

    /// Clock of the state.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Sources that are known or expected, by name.
    pub fn sources(&self) -> Vec<SourceStatus> {
        self.sources.status()
    }

    /// Stale sources by name, with the time since the last batch of each source.
    pub fn stale_sources(&self) -> Vec<(Arc<str>, std::time::Duration)> {
        self.sources.stale()
    }

    /// Problems of records that were rejected, of all batches since the start.
    pub fn record_problems(&self) -> u64 {
        self.sources.record_problems()
    }

    /// Applies a batch. The outcome comes when its changes are visible.
    ///
    /// # Errors
    /// A limit is exceeded, or the writer has ended. A gap and a fenced source are outcomes, not errors.
    pub async fn apply_batch(&self, batch: Batch) -> Result<BatchOutcome, StateError> {
        self.ask(|reply| WriterCommand::Apply(Box::new(batch), reply)).await?
    }

    /// Applies a batch like [`SharedState::apply_batch`], but rejects it if too many batches wait for the writer.
    ///
    /// # Errors
    /// The errors of [`SharedState::apply_batch`].
    pub async fn try_apply_batch(&self, batch: Batch) -> Result<BatchOutcome, StateError> {
        let (reply, outcome) = tokio::sync::oneshot::channel();
        match self
            .commands
            .try_send(WriterCommand::Apply(Box::new(batch), reply.into()))
        {
            Ok(()) => outcome.await.map_err(|_| StateError::ShuttingDown)?,
            Err(TrySendError::Closed(_)) => Err(StateError::ShuttingDown),
            Err(TrySendError::Full(_)) => {
                let message = "too many batches wait for the writer".to_owned();
                Err(held_limit_error(
                    LimitHolder::Callers,
                    "queued_writes",
                    self.limits.queued_writes,
                    message,
                ))
            }
        }
    }

    /// Number of batches and policies that wait for the writer.
    pub fn queued_writes(&self) -> usize {
        self.commands.max_capacity() - self.commands.capacity()
    }

    /// Status of the store.
    pub fn store_status(&self) -> StoreStatus {
        self.store_health.status()
    }

    /// Time for which it has not been known whether this server has the newest entry of a shared log; `None`: it is known.
    pub fn store_unconfirmed(&self) -> Option<std::time::Duration> {
        self.store_health.unconfirmed().map(|(time, _)| time)
    }

    /// True if that time is longer than `store_stale_ms` allows.
    pub fn is_store_stale(&self) -> bool {
        let most = self.limits.store_stale;
        !most.is_zero() && self.store_unconfirmed().is_some_and(|time| time >= most)
    }

    /// True as long as the writer runs.
    pub fn is_alive(&self) -> bool {
        !self.commands.is_closed()
    }

    /// Runs a short function on the writer's thread, soon, unless commands wait for the writer: their queue is for callers.
    /// True if it is going to run.
    ///
    /// # Errors
    /// The writer has stopped.
    pub fn try_run_on_writer(&self, work: fn()) -> Result<bool, StateError> {
        if !self.is_alive() {
            return Err(StateError::ShuttingDown);
        }
        Ok(self.queued_writes() == 0 && self.commands.try_send(WriterCommand::Run(work)).is_ok())
    }

    /// Sends a command to the writer, and waits for its reply.
    async fn ask<T: Send + 'static>(
        &self,
        command: impl FnOnce(CommandReply<T>) -> WriterCommand,
    ) -> Result<T, StateError> {
        let (reply, result) = tokio::sync::oneshot::channel();
        let sent = self.commands.send(command(reply.into())).await;
        sent.map_err(|_| StateError::ShuttingDown)?;
        result.await.map_err(|_| StateError::ShuttingDown)
    }

    /// Sends a command whose effect must be durable, and waits for its reply.
    async fn ask_durable<T: Send + 'static>(
        &self,
        command: impl FnOnce(CommandReply<T>) -> DurableCommand,
    ) -> Result<T, StateError> {
        self.ask(|reply| WriterCommand::Durable(command(reply))).await
    }

    /// Sends such a command on a thread that may block. Its reply comes to the receiver.
    fn begin_durable<T: Send + 'static>(
        &self,
        command: impl FnOnce(CommandReply<T>) -> DurableCommand,
    ) -> Result<tokio::sync::oneshot::Receiver<T>, StateError> {
        let (reply, result) = tokio::sync::oneshot::channel();
        let sent = self
            .commands
            .blocking_send(WriterCommand::Durable(command(reply.into())));
        sent.map_err(|_| StateError::ShuttingDown)?;
        Ok(result)
    }
}

/// Has the writer read the log when there are news about it. A writer that has commands reads it before it handles them.
fn wake_writer(news: &LogNews, commands: tokio::sync::mpsc::WeakSender<WriterCommand>) {
    news.wake_by(move || {
        if let Some(commands) = commands.upgrade() {
            drop(commands.try_send(WriterCommand::ReadLog));
        }
    });
}

/// Starts the thread that ends expired sessions as long as the state exists.
fn sweep_while_alive(state: &Arc<SharedState>) -> std::io::Result<()> {
    let state = Arc::downgrade(state);
    let sweep = move || {
        while let Some(state) = state.upgrade() {
            state.sessions.sweep();
            state.sessions.recount_retained(&state.snapshot());
            state.try_expire_leases();
            drop(state);
            std::thread::sleep(SWEEP_EVERY);
        }
    };
    std::thread::Builder::new()
        .name("pumice-sweeper".to_owned())
        .spawn(sweep)
        .map(drop)
}
