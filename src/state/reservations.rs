//! Reservations, as callers ask for them.

use std::time::Duration;

use tokio::sync::oneshot;

use super::SharedState;
use super::apply_durable::DurableCommand;
use super::error::StateError;
use super::ledger::{ConfirmOutcome, LedgerConfirm, LedgerRelease, ReservationStatus, lock_leases};
use super::ports::CommandReply;
use super::writer::WriterCommand;
use crate::store::Durability;

impl SharedState {
    /// Promises jobs what they need, at the newest state under its policy; the answer comes when the permits are kept
    /// and visible.
    ///
    /// # Errors
    /// There is no such policy, or the store failed: nothing was promised.
    pub async fn confirm(&self, confirm: LedgerConfirm) -> Result<ConfirmOutcome, StateError> {
        self.send_durable(|reply| DurableCommand::Confirm(Box::new(confirm), reply))
            .await
    }

    /// Takes a reservation back; the answer comes when that is kept and visible. The row as it was, if there was one.
    ///
    /// # Errors
    /// The store failed: nothing was taken back.
    pub async fn release(&self, release: LedgerRelease) -> Result<Option<ReservationStatus>, StateError> {
        self.send_durable(|reply| DurableCommand::Release(release, reply)).await
    }

    async fn send_durable<T: Send + 'static>(
        &self,
        command: impl FnOnce(CommandReply<Result<T, StateError>>) -> DurableCommand,
    ) -> Result<T, StateError> {
        let (reply, result) = oneshot::channel();
        self.send(WriterCommand::Durable(command(reply.into()))).await?;
        result.await.map_err(|_| StateError::ShuttingDown)?
    }

    /// As [`Self::confirm`], for a thread that may block.
    pub(super) fn confirm_blocking(&self, confirm: LedgerConfirm) -> Result<ConfirmOutcome, StateError> {
        let (reply, result) = oneshot::channel();
        let command = WriterCommand::Durable(DurableCommand::Confirm(Box::new(confirm), CommandReply::from(reply)));
        self.commands
            .blocking_send(command)
            .map_err(|_| StateError::ShuttingDown)?;
        result.blocking_recv().map_err(|_| StateError::ShuttingDown)?
    }

    /// What is left of the lease of a job's reservation; `None`: it stands still, or there is none.
    pub fn lease_left(&self, job: &str) -> Option<Duration> {
        lock_leases(&self.leases).remaining(job)
    }

    /// Where confirmations are kept.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// Lets the writer look at the clock, as it does by itself twice a second; done when leases that are over have ended.
    ///
    /// # Errors
    /// The writer is gone.
    pub async fn expire_leases(&self) -> Result<(), StateError> {
        let (reply, result) = oneshot::channel();
        self.send(WriterCommand::Durable(DurableCommand::ExpireLeases(Some(
            CommandReply::from(reply),
        ))))
        .await?;
        result.await.map_err(|_| StateError::ShuttingDown)
    }

    /// The same without waiting. A writer that has much to do looks later.
    pub(super) fn try_expire_leases(&self) {
        drop(
            self.commands
                .try_send(WriterCommand::Durable(DurableCommand::ExpireLeases(None))),
        );
    }

    /// Ends the writer: what it owes the store is written, the store is closed. Later writes are refused.
    pub async fn stop(&self) {
        let (reply, result) = oneshot::channel();
        if self
            .send(WriterCommand::Durable(DurableCommand::Stop(CommandReply::from(reply))))
            .await
            .is_ok()
        {
            // Without an answer it has ended already.
            drop(result.await);
        }
    }
}
