//! Commands to the writer. Those whose effect must be durable carry their decision until their group is written.

use std::sync::Arc;

use super::request::{CommandReply, WriterRequest};
use crate::error::{PolicyError, StateError};
use crate::intake::batch::Batch;
use crate::intake::batch_outcome::BatchOutcome;
use crate::intake::source_forgetting::{ForgetSource, ForgottenSource};
use crate::ledger::{ConfirmOutcome, LedgerConfirm, LedgerRelease, ReservationStatus};
use crate::policies::ReloadedPolicy;
use crate::policies::reload::CompiledReload;
use crate::policies::removal::{DeletedPolicy, PolicyRemoval};
use crate::sessions::commit_outcome::CommitOutcome;
use crate::sessions::placed_calls::PlacementCommit;
use crate::store::StoreError;
use pumice_engine::Revision;
use pumice_engine::cycle::TaskPlacement;

/// Work for the single writer thread.
#[derive(Debug)]
pub(crate) enum WriterCommand {
    /// Apply a batch.
    Apply(Box<Batch>, CommandReply<Result<BatchOutcome, StateError>>),
    /// Put a compiled policy in force.
    Install(Box<CompiledReload>, CommandReply<Result<ReloadedPolicy, PolicyError>>),
    /// Delete a policy.
    Remove(Box<PolicyRemoval>, CommandReply<Result<DeletedPolicy, PolicyError>>),
    /// Forget a source.
    Forget(Box<ForgetSource>, CommandReply<Result<ForgottenSource, StateError>>),
    /// Forget a resource name.
    ForgetResource(Arc<str>, CommandReply<Result<Revision, StateError>>),
    /// Change the admission ledger or assumptions. The writer handles these after the other commands of the group, on
    /// the state that those make.
    Durable(DurableCommand),
    /// Run a short function on the writer's thread, between two groups.
    Run(fn()),
    /// Read what others have appended to the log.
    ReadLog,
}

/// Tasks whose assumption ended, and the first revision without these assumptions.
type ReleasedTasks = (Revision, Vec<Arc<str>>);

/// Command whose effect must be durable before it is acknowledged.
#[derive(Debug)]
pub(crate) enum DurableCommand {
    /// Confirm jobs: promise each what it needs.
    Confirm(WriterRequest<Box<LedgerConfirm>, ConfirmOutcome>),
    /// Release a reservation.
    Release(WriterRequest<LedgerRelease, Option<ReservationStatus>>),
    /// Evaluate placements and assume the valid ones.
    Commit(Box<WriterRequest<PlacementCommit, CommitOutcome>>),
    /// List what is held under a name. Changes nothing.
    Recall(WriterRequest<Arc<str>, Vec<TaskPlacement>>),
    /// Release assumptions of a session (empty: any session) and of these tasks (empty: all tasks).
    ReleaseTasks(WriterRequest<(Arc<str>, Vec<Arc<str>>), ReleasedTasks>),
    /// Look at the clock, and end leases that have expired.
    ExpireLeases(Option<CommandReply<()>>),
    /// Write pending repairs, close the store, and end. The reply goes when the group is drafted.
    Stop(Option<CommandReply<()>>),
}

impl DurableCommand {
    /// True if it was decided, and waits for its group to be written.
    pub(super) fn waits(&self) -> bool {
        match self {
            Self::Confirm(confirm) => confirm.waits(),
            Self::Release(release) => release.waits(),
            Self::Commit(commit) => commit.waits(),
            Self::Recall(recall) => recall.waits(),
            Self::ReleaseTasks(release) => release.waits(),
            Self::ExpireLeases(_) | Self::Stop(_) => false,
        }
    }

    /// Sends the reply: the group is durable, and visible from this revision on.
    pub(super) fn reply(self, revision: Revision) {
        match self {
            Self::Confirm(confirm) => confirm.reply(|outcome| ConfirmOutcome { revision, ..outcome }),
            Self::Release(release) => release.reply(|released| released),
            Self::Commit(commit) => commit.reply(|outcome| CommitOutcome { revision, ..outcome }),
            Self::Recall(recall) => recall.reply(|held| held),
            Self::ReleaseTasks(release) => release.reply(|(_, released)| (revision, released)),
            Self::ExpireLeases(reply) => reply.into_iter().for_each(|reply| reply.send(())),
            Self::Stop(_) => {}
        }
    }

    /// Reports that the store failed: the command had no effect, or that is not known.
    pub(super) fn reply_error(self, error: &StoreError) {
        let error = StateError::of_write(error.clone(), || self.key());
        match self {
            Self::Confirm(confirm) => confirm.reply_error(error),
            Self::Release(release) => release.reply_error(error),
            Self::Commit(commit) => commit.reply_error(error),
            Self::Recall(recall) => recall.reply_error(error),
            Self::ReleaseTasks(release) => release.reply_error(error),
            Self::ExpireLeases(reply) => reply.into_iter().for_each(|reply| reply.send(())),
            Self::Stop(_) => {}
        }
    }

    /// Job, session, placement or task by which the command is found again.
    fn key(&self) -> String {
        match self {
            Self::Confirm(confirm) => confirm.asked.items.key(),
            Self::Release(release) => {
                let LedgerRelease { job, attempt, .. } = &release.asked;
                format!("job `{job}`, attempt {attempt}")
            }
            Self::Commit(commit) => commit.asked.key(),
            Self::Recall(recall) => format!("placement `{}`", recall.asked),
            Self::ReleaseTasks(release) => {
                let (session, tasks) = &release.asked;
                let first = tasks.first().map(|task| format!(", task `{task}`"));
                format!("session `{session}`{}", first.unwrap_or_default())
            }
            Self::ExpireLeases(_) | Self::Stop(_) => String::new(),
        }
    }
}
