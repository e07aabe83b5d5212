//! Reservations, as callers ask for them.

use std::time::Duration;

use tokio::sync::oneshot;

use super::State;
use super::error::StateError;
use super::ledger::{Confirm, Confirmation, Release, Standing, lock};
use super::seam::Reply;
use super::settle::LedgerCommand;
use super::writer::Command;
use crate::store::Durability;

impl State {
    /// Promises jobs what they need, at the newest state under its policy; the answer comes when the permits are kept
    /// and visible.
    ///
    /// # Errors
    /// There is no such policy, or the store failed: nothing was promised.
    pub async fn confirm(&self, confirm: Confirm) -> Result<Confirmation, StateError> {
        self.of_ledger(|reply| LedgerCommand::Confirm(Box::new(confirm), reply))
            .await
    }

    /// Takes a reservation back; the answer comes when that is kept and visible. The row as it was, if there was one.
    ///
    /// # Errors
    /// The store failed: nothing was taken back.
    pub async fn release(&self, release: Release) -> Result<Option<Standing>, StateError> {
        self.of_ledger(|reply| LedgerCommand::Release(release, reply)).await
    }

    async fn of_ledger<T: Send + 'static>(
        &self,
        command: impl FnOnce(Reply<Result<T, StateError>>) -> LedgerCommand,
    ) -> Result<T, StateError> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Ledger(command(reply.into()))).await?;
        answer.await.map_err(|_| StateError::ShuttingDown)?
    }

    /// As [`Self::confirm`], for a thread that may block.
    pub(super) fn confirm_blocking(&self, confirm: Confirm) -> Result<Confirmation, StateError> {
        let (reply, answer) = oneshot::channel();
        let command = Command::Ledger(LedgerCommand::Confirm(Box::new(confirm), Reply::from(reply)));
        self.commands
            .blocking_send(command)
            .map_err(|_| StateError::ShuttingDown)?;
        answer.blocking_recv().map_err(|_| StateError::ShuttingDown)?
    }

    /// What is left of the lease of a job's reservation; `None`: it stands still, or there is none.
    pub fn lease_left(&self, job: &str) -> Option<Duration> {
        lock(&self.leases).left(job)
    }

    /// Where confirmations are kept.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// Lets the writer look at the clock, as it does by itself twice a second; done when leases that are over have ended.
    ///
    /// # Errors
    /// The writer is gone.
    pub async fn look_at_leases(&self) -> Result<(), StateError> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Ledger(LedgerCommand::Pass(Some(Reply::from(reply)))))
            .await?;
        answer.await.map_err(|_| StateError::ShuttingDown)
    }

    /// The same without waiting. A writer that has much to do looks later.
    pub(super) fn tick(&self) {
        drop(self.commands.try_send(Command::Ledger(LedgerCommand::Pass(None))));
    }

    /// Ends the writer: what it owes the store is written, the store is closed. Later writes are refused.
    pub async fn stop(&self) {
        let (reply, answer) = oneshot::channel();
        if self
            .send(Command::Ledger(LedgerCommand::Stop(Reply::from(reply))))
            .await
            .is_ok()
        {
            // Without an answer it has ended already.
            drop(answer.await);
        }
    }
}
