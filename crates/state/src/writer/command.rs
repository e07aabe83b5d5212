//! Commands to the writer. Those whose effect must be durable carry their decision until their group is written.

use std::sync::Arc;

use super::request::{CommandReply, WriterRequest};
use crate::error::{PolicyError, StateError};
use crate::intake::batch::Batch;
use crate::intake::batch_outcome::BatchOutcome;
use crate::intake::source_forgetting::{ForgetSource, ForgottenSource};
use crate::ledger::{ConfirmOutcome, LedgerConfirm, LedgerRelease, ReservationStatus};
use crate::policies::ReloadedPolicy;
use crate::policies::draft::PolicyInstall;
use crate::policies::removal::{DeletedPolicy, PolicyRemoval};
use crate::sessions::assumption_command::AssumptionCommand;
use crate::store::StoreError;
use pumice_engine::Revision;

/// Work for the single writer thread.
#[derive(Debug)]
pub(crate) enum WriterCommand {
    /// Apply a batch.
    Apply(Box<Batch>, CommandReply<Result<BatchOutcome, StateError>>),
    /// Put a compiled policy in force.
    Install(Box<PolicyInstall>, CommandReply<Result<ReloadedPolicy, PolicyError>>),
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

/// Command whose effect must be durable before it is acknowledged.
#[derive(Debug)]
pub(crate) enum DurableCommand {
    /// Confirm jobs: promise each what it needs.
    Confirm(WriterRequest<Box<LedgerConfirm>, ConfirmOutcome>),
    /// Release a reservation.
    Release(WriterRequest<LedgerRelease, Option<ReservationStatus>>),
    /// Commit placements, or release assumptions.
    Assume(Box<AssumptionCommand>),
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
            Self::Assume(assumed) => assumed.waits(),
            Self::ExpireLeases(_) | Self::Stop(_) => false,
        }
    }

    /// Sends the reply: the group is durable, and visible from this revision on.
    pub(super) fn reply(self, revision: Revision) {
        match self {
            Self::Confirm(confirm) => confirm.reply(|outcome| ConfirmOutcome { revision, ..outcome }),
            Self::Release(release) => release.reply(|released| released),
            Self::Assume(assumed) => assumed.reply(revision),
            Self::ExpireLeases(reply) => reply.into_iter().for_each(|reply| reply.send(())),
            Self::Stop(_) => {}
        }
    }

    /// Reports that the store failed: the command had no effect, or that is not known.
    pub(super) fn reply_error(self, error: &StoreError) {
        let error = error.clone();
        match self {
            Self::Confirm(confirm) => {
                let error = StateError::of_write(error, || confirm.asked.items.key());
                confirm.reply_error(error);
            }
            Self::Release(release) => {
                let LedgerRelease { job, attempt, .. } = &release.asked;
                let error = StateError::of_write(error, || format!("job `{job}`, attempt {attempt}"));
                release.reply_error(error);
            }
            Self::Assume(assumed) => {
                let error = StateError::of_write(error, || assumed.key());
                assumed.reply_error(error);
            }
            Self::ExpireLeases(reply) => reply.into_iter().for_each(|reply| reply.send(())),
            Self::Stop(_) => {}
        }
    }
}
