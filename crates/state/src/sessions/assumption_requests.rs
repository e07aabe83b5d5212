//! Requests about assumptions, and their way to the writer: holds, placements that the server chose, and releases.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::commit_outcome::{CommitOutcome, CommitRejection};
use super::hold::TaskHold;
use super::placed_calls::PlacementCommit;
use crate::SharedState;
use crate::error::{StateError, limit_error};
use crate::policies::policy_in_snapshot;
use crate::writer::command::DurableCommand;
use crate::writer::request::WriterRequest;
use pumice_engine::Revision;
use pumice_engine::cycle::TaskPlacement;

/// Commit that the writer has, or will have after others.
#[derive(Debug)]
pub struct CommitUnderWay(oneshot::Receiver<Result<CommitOutcome, StateError>>);

impl CommitUnderWay {
    /// Outcome of the commit.
    ///
    /// # Errors
    /// The policy no longer exists, the store cannot be written, or the writer has ended: nothing was committed.
    pub async fn outcome(self) -> Result<CommitOutcome, StateError> {
        self.0.await.map_err(|_| StateError::ShuttingDown)?
    }

    /// Outcome of the commit, on a thread that may wait.
    pub(super) fn wait(self) -> Result<CommitOutcome, StateError> {
        self.0.blocking_recv().map_err(|_| StateError::ShuttingDown)?
    }
}

impl SharedState {
    /// Holds a task on the first of its nodes that takes it, by the newest state. Returns the node, none if the task names
    /// none, or why the first node does not take it.
    ///
    /// This waits for the writer: never call it on an async thread. `before_wait` is called before it waits.
    ///
    /// # Errors
    /// A limit is exceeded, the policy no longer exists, the store cannot be written, or the writer has ended.
    pub fn hold_task(
        &self,
        hold: TaskHold,
        before_wait: impl FnOnce(),
    ) -> Result<Result<Option<Arc<str>>, CommitRejection>, StateError> {
        self.warm_plugin_states(&hold.policy);
        let commit = hold.into_commit();
        let calls = Arc::clone(&commit.calls);
        before_wait();
        let jobs = self.send_commit(commit)?.wait()?.jobs;
        if let Some(at) = jobs.iter().position(|job| job.committed) {
            let proposed = calls.get(at).and_then(|call| call.job.placements.first());
            return Ok(Ok(proposed.map(|own| Arc::clone(&own.placement.node))));
        }
        let first = jobs.into_iter().flat_map(|job| job.rejections).next();
        Ok(first.map_or(Ok(None), Err))
    }

    /// Commits placements of calls under one policy, each call's as a whole. The outcome has a job for each call, in their
    /// order; a call that does not hold has its rejections there.
    ///
    /// This waits for the writer: never call it on an async thread. `before_wait` is called before it waits.
    ///
    /// # Errors
    /// A limit is exceeded, the policy no longer exists, the store cannot be written, or the writer has ended: nothing was
    /// committed.
    pub fn commit_placed(
        &self,
        calls: PlacementCommit,
        before_wait: impl FnOnce(),
    ) -> Result<CommitOutcome, StateError> {
        self.prepare_commit_placed(&calls)?;
        before_wait();
        self.send_commit(calls)?.wait()
    }

    /// Sends placements to the writer as [`Self::commit_placed`] does, without waiting for their outcome. Commits end in the
    /// order in which they were sent.
    ///
    /// This may wait for a place in the writer's queue: never call it on an async thread.
    ///
    /// # Errors
    /// A limit is exceeded, or the writer has ended: nothing was sent.
    pub fn begin_commit_placed(&self, calls: PlacementCommit) -> Result<CommitUnderWay, StateError> {
        self.prepare_commit_placed(&calls)?;
        self.send_commit(calls)
    }

    /// Checks the limit of placements, and computes the plugin states that the writer reads.
    fn prepare_commit_placed(&self, calls: &PlacementCommit) -> Result<(), StateError> {
        let most = self.limits.commit_placements;
        if let Some(large) = calls.calls.iter().find(|call| call.job.placements.len() > most) {
            let message = format!("the placement has {} tasks", large.job.placements.len());
            return Err(limit_error("commit_placements", most, message));
        }
        self.warm_plugin_states(&calls.policy);
        Ok(())
    }

    pub(super) fn send_commit(&self, commit: PlacementCommit) -> Result<CommitUnderWay, StateError> {
        let commit = |reply| DurableCommand::Commit(Box::new(WriterRequest::new(commit, reply)));
        self.begin_durable(commit).map(CommitUnderWay)
    }

    /// Placements that are held under a name, by task, as the writer has them.
    ///
    /// # Errors
    /// The store cannot be read, or the writer has ended.
    pub async fn held_placements(&self, hold: Arc<str>) -> Result<Vec<TaskPlacement>, StateError> {
        self.ask_durable(|reply| DurableCommand::Recall(WriterRequest::new(hold, reply)))
            .await?
    }

    /// Releases the assumptions that a session's commit made for `tasks`. Empty session: any session. No tasks: all
    /// tasks of the session. Returns the first revision without the assumptions, and their tasks.
    ///
    /// # Errors
    /// Neither a session nor a task is named; or the writer has ended.
    pub async fn release_assumptions(
        &self,
        session: &str,
        tasks: Vec<Arc<str>>,
    ) -> Result<(Revision, Vec<Arc<str>>), StateError> {
        if session.is_empty() && tasks.is_empty() {
            return Err(StateError::NothingNamed);
        }
        let asked = (session.into(), tasks);
        self.ask_durable(|reply| DurableCommand::ReleaseTasks(WriterRequest::new(asked, reply)))
            .await?
    }

    /// Computes plugin states on this thread, to save the writer the computation.
    pub(super) fn warm_plugin_states(&self, (name, profile): &(Arc<str>, Arc<str>)) {
        let snapshot = self.snapshot();
        if let Ok(policy) = policy_in_snapshot(&snapshot, name, profile)
            && policy.policy.places_by_plugin_state()
        {
            snapshot.plugin_states(&policy);
        }
    }
}
