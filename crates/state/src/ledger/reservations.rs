//! Reservations: confirming and releasing them.

use std::time::Duration;

use crate::SharedState;
use crate::error::StateError;
use crate::ledger::{ConfirmOutcome, LedgerConfirm, LedgerRelease, ReservationStatus};
use crate::store::Durability;
use crate::writer::command::{DurableCommand, WriterCommand};
use crate::writer::request::WriterRequest;

impl SharedState {
    /// Confirms jobs: reserves their resources in the latest state, under the policy of the request. Returns when the
    /// permits are durable and visible.
    ///
    /// # Errors
    /// The policy does not exist, or the store failed. Nothing was reserved.
    pub async fn confirm(&self, confirm: LedgerConfirm) -> Result<ConfirmOutcome, StateError> {
        self.ask_durable(|reply| DurableCommand::Confirm(WriterRequest::new(Box::new(confirm), reply)))
            .await?
    }

    /// Releases a reservation. The outcome comes when the release is durable and visible: the row as it was, if there
    /// was one.
    ///
    /// # Errors
    /// The store failed: nothing was released.
    pub async fn release(&self, release: LedgerRelease) -> Result<Option<ReservationStatus>, StateError> {
        self.ask_durable(|reply| DurableCommand::Release(WriterRequest::new(release, reply)))
            .await?
    }

    /// Confirms jobs on a thread that may block; see [`Self::confirm`].
    pub(crate) fn confirm_blocking(&self, confirm: LedgerConfirm) -> Result<ConfirmOutcome, StateError> {
        let confirm = |reply| DurableCommand::Confirm(WriterRequest::new(Box::new(confirm), reply));
        let result = self.begin_durable(confirm)?.blocking_recv();
        result.map_err(|_| StateError::ShuttingDown)?
    }

    /// Time left of the lease of a job's reservation; `None`: the lease is paused, or the job has none.
    pub fn lease_left(&self, job: &str) -> Option<Duration> {
        self.leases.with(|leases| leases.remaining(job))
    }

    /// Durability of confirmations.
    pub fn durability(&self) -> Durability {
        self.store_health.durability()
    }

    /// Makes the writer look at the clock, as it does by itself twice a second. Returns when expired leases have ended.
    ///
    /// # Errors
    /// The writer has ended.
    pub async fn expire_leases(&self) -> Result<(), StateError> {
        self.ask_durable(|reply| DurableCommand::ExpireLeases(Some(reply)))
            .await
    }

    /// Makes the writer look at the clock, without waiting for it. A writer that has commands looks when it has handled
    /// them: while the disk does not answer, their queue is for callers.
    pub(crate) fn try_expire_leases(&self) {
        if self.queued_writes() > 0 {
            return;
        }
        drop(
            self.commands
                .try_send(WriterCommand::Durable(DurableCommand::ExpireLeases(None))),
        );
    }

    /// Ends the writer: it writes pending repairs and closes the store. Later writes are rejected.
    pub async fn stop(&self) {
        // Without a reply the writer has ended already.
        drop(self.ask_durable(|reply| DurableCommand::Stop(Some(reply))).await);
    }
}
