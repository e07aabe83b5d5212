//! Memory that changes: one writer applies everything, Worlds are published whole, readers never wait.

mod asking;
mod assumptions;
mod batch;
mod clock;
mod commit;
mod committing;
mod confirming;
mod error;
mod index;
mod ledger;
mod limits;
mod names;
mod open_sessions;
mod origin;
mod places;
mod policies;
mod policy_store;
mod pool;
mod reloading;
mod reserving;
mod seam;
mod session;
mod sessions;
mod settle;
mod sources;
mod worlds;
mod writer;

#[cfg(test)]
mod assumption_tests;
#[cfg(test)]
mod commit_model;
#[cfg(test)]
mod commit_quota_tests;
#[cfg(test)]
mod commit_stage;
#[cfg(test)]
mod commit_store_tests;
#[cfg(test)]
mod commit_tests;
#[cfg(test)]
mod fallible;
#[cfg(test)]
mod ledger_late_tests;
#[cfg(test)]
mod ledger_tests;
#[cfg(test)]
mod ledger_tree_tests;
#[cfg(test)]
mod model_cards;
#[cfg(test)]
mod model_disk;
#[cfg(test)]
mod model_site;
#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod policy_tests;
#[cfg(test)]
mod session_tests;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use tokio::sync::mpsc::error::TrySendError;

pub use batch::{Batch, BatchKind, BatchOutcome, Place, Put, Resync, ResyncReason};
pub use clock::{Clock, SystemClock};
pub use commit::{COMMIT, Committed, Conflict, JobCommitted};
pub use confirming::SessionConfirm;
pub use error::{PolicyError, StateError};
pub use ledger::{Confirm, ConfirmItem, Confirmation, Confirmed, Reading, Release, Standing};
pub use limits::Limits;
pub use names::ResourceNames;
pub use open_sessions::SessionStatus;
pub use origin::Origin;
pub use policies::{PolicyVersion, Refusal, Reload, Reloaded, Rollback};
pub use policy_store::KeptPolicyError;
pub(crate) use pool::Pool;
pub use reloading::hash;
pub use session::{OpenSession, Opened, SessionGround, Stepped};
pub use sources::SourceStatus;

use crate::store::{Durability, Kept, MemoryStore, Store, StoreError};
use ledger::{Ledger, SharedLeases};
use policies::Policies;
use sessions::Sessions;
use worlds::Worlds;
use writer::{Command, Parts, Writer};

/// What the state is started with.
#[derive(Clone, Debug, Default)]
pub struct StateOptions {
    /// Every bound.
    pub limits: Limits,
    /// The epoch of this start; to be random.
    pub epoch: u64,
    /// Sources that have to be synced before the service is ready.
    pub expected_sources: Vec<Arc<str>>,
    /// Promises whatever is asked for, so that tests of the promise can be seen to fail.
    #[doc(hidden)]
    #[cfg(debug_assertions)]
    pub without_checks: bool,
}

/// Why the state could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What is kept can no longer be read.
    #[error(transparent)]
    Policy(#[from] KeptPolicyError),
}

/// All shared state, and the way to change it.
#[derive(Debug)]
pub struct State {
    limits: Limits,
    clock: Arc<dyn Clock>,
    names: Arc<ResourceNames>,
    worlds: Arc<Worlds>,
    sources: Arc<sources::Sources>,
    policies: Arc<Policies>,
    sessions: Sessions,
    leases: SharedLeases,
    durability: Durability,
    commands: tokio::sync::mpsc::Sender<Command>,
}

impl State {
    /// Starts the writer on a thread of its own, over an empty state without policies, which is kept in memory only. It
    /// ends when the last handle on the state is dropped.
    ///
    /// # Errors
    /// No thread could be started.
    pub fn start(options: StateOptions, clock: Arc<dyn Clock>) -> Result<Arc<Self>, StartError> {
        Self::start_on(options, clock, Box::new(MemoryStore::default()))
    }

    /// The same over a store, and what is kept there.
    ///
    /// # Errors
    /// No thread could be started, or the store cannot be read.
    pub fn start_on(
        options: StateOptions,
        clock: Arc<dyn Clock>,
        mut store: Box<dyn Store>,
    ) -> Result<Arc<Self>, StartError> {
        #[cfg(debug_assertions)]
        let without_checks = options.without_checks;
        let StateOptions {
            epoch,
            expected_sources,
            limits,
            ..
        } = options;
        let kept = store.load()?;
        let durability = store.durability();
        let names = Arc::new(ResourceNames::new(limits.resource_names));
        let worlds = Arc::new(Worlds::new(epoch));
        let sources = Arc::new(sources::Sources::new(
            expected_sources,
            limits.clone(),
            Arc::clone(&clock),
        ));
        let (policies, in_force) = Policies::open(&limits, &kept)?;
        let policies = Arc::new(policies);
        let leases = SharedLeases::default();
        let (commands, queue) = tokio::sync::mpsc::channel(limits.queued_writes);
        let parts = Parts {
            names: Arc::clone(&names),
            worlds: Arc::clone(&worlds) as _,
            sources: Arc::clone(&sources),
            policies: Arc::clone(&policies),
            clock: Arc::clone(&clock),
        };
        let writer = Writer::new(parts, &kept, |view| {
            let ledger = Ledger::open(&limits, store, &kept, &leases, view);
            #[cfg(debug_assertions)]
            let ledger = ledger.without_checks(without_checks);
            ledger
        });
        #[cfg(debug_assertions)]
        let writer = writer.without_checks(without_checks);
        let mut writer = writer;
        if kept != Kept::default() {
            writer.begin(in_force);
        }
        std::thread::Builder::new()
            .name("pumice-writer".to_owned())
            .spawn(move || writer.run(queue))?;
        let sessions = Sessions::new(limits.clone(), Arc::clone(&clock), epoch);
        let state = Arc::new(Self {
            limits,
            clock,
            names,
            worlds,
            sources,
            policies,
            sessions,
            leases,
            durability,
            commands,
        });
        sessions::sweep_while_alive(&state)?;
        Ok(state)
    }

    /// The newest World: one atomic load.
    pub fn world(&self) -> Arc<crate::engine::World> {
        self.worlds.newest()
    }

    /// A World that is at least so new, waited for.
    ///
    /// # Errors
    /// Another epoch; or not reached within `max_wait`.
    pub async fn world_at(
        &self,
        at_least: Option<crate::engine::Revision>,
        positions: &[crate::engine::Position],
        max_wait: std::time::Duration,
    ) -> Result<Arc<crate::engine::World>, StateError> {
        self.worlds.reach(at_least, positions, max_wait).await
    }

    /// Names of resources, for conversion at the edge.
    pub fn names(&self) -> &ResourceNames {
        &self.names
    }

    /// Every bound.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Where the time comes from.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Sources that are known or expected, by name.
    pub fn sources(&self) -> Vec<SourceStatus> {
        self.sources.status()
    }

    /// Takes a batch in; the answer comes when its changes are visible.
    ///
    /// # Errors
    /// A limit; or the writer is gone. A gap or a fenced source is an outcome.
    pub async fn apply(&self, batch: Batch) -> Result<BatchOutcome, StateError> {
        let (reply, outcome) = tokio::sync::oneshot::channel();
        self.send(Command::Apply(Box::new(batch), reply.into())).await?;
        outcome.await.map_err(|_| StateError::ShuttingDown)?
    }

    /// As [`State::apply`], but refused when too many batches wait for the writer.
    ///
    /// # Errors
    /// As [`State::apply`].
    pub async fn apply_now(&self, batch: Batch) -> Result<BatchOutcome, StateError> {
        let (reply, outcome) = tokio::sync::oneshot::channel();
        match self.commands.try_send(Command::Apply(Box::new(batch), reply.into())) {
            Ok(()) => outcome.await.map_err(|_| StateError::ShuttingDown)?,
            Err(TrySendError::Closed(_)) => Err(StateError::ShuttingDown),
            Err(TrySendError::Full(_)) => {
                let message = "so many batches wait for the writer".to_owned();
                Err(sources::limit("queued_writes", self.limits.queued_writes, message))
            }
        }
    }

    /// Batches and policies that wait for the writer.
    pub fn queued_writes(&self) -> usize {
        self.commands.max_capacity() - self.commands.capacity()
    }

    /// True as long as the writer works.
    pub fn is_alive(&self) -> bool {
        !self.commands.is_closed()
    }

    async fn send(&self, command: Command) -> Result<(), StateError> {
        self.commands.send(command).await.map_err(|_| StateError::ShuttingDown)
    }
}
