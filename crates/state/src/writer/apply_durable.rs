//! The writer's second step: commands whose effect must be durable before the reply.
//!
//! The writer drafts the commands of a group together, on top of the group's other commands, and writes them to the
//! store at once.

use std::sync::Arc;
use std::time::Duration;

use super::command::DurableCommand;
use crate::error::StateError;
use crate::ledger::assumptions::AssumptionDraft;
use crate::ledger::{ConfirmOutcome, LedgerConfirm, LedgerDraft, ReservationStatus};
use crate::policies::policy_in_snapshot;
use crate::sessions::commit_arbiter::CommitContext;
use crate::sessions::commit_outcome::CommitOutcome;
use crate::sessions::placed_calls::PlacementCommit;
use crate::store::{MAX_APPEND_ATTEMPTS, StoreError};
use crate::writer::Writer;

impl Writer {
    /// Applies durable commands after the group's other commands. Returns the commands whose replies wait for the
    /// publication. If another server appends to the log first, the group is evaluated again after its entries.
    pub(crate) fn apply_durable(&mut self, mut commands: Vec<DurableCommand>) -> Vec<DurableCommand> {
        let mut drafted = Ok(());
        for _ in 0..MAX_APPEND_ATTEMPTS {
            drafted = self.catch_up().and_then(|()| self.write_group(&mut commands));
            if !matches!(&drafted, Err(error) if error.is_stale()) {
                break;
            }
        }
        let Err(error) = drafted else {
            return commands;
        };
        self.store_fails = true;
        for command in commands {
            command.reply_error(&error);
        }
        Vec::new()
    }

    /// Drafts the commands and writes the draft, if there is anything to write.
    fn write_group(&mut self, commands: &mut [DurableCommand]) -> Result<(), StoreError> {
        // The end of a job, too, is written before the reply; but a failing store does not stop batches.
        let source_writes = self.sources.store_writes(self.ledger.log().is_shared());
        let is_needed = self.ledger.needs_repair() || self.policies.needs_repair() || !source_writes.is_empty();
        let repair_due = is_needed && !self.store_fails;
        if commands.is_empty() && !repair_due {
            return Ok(());
        }
        let now = self.clock.monotonic();
        // Old tombstones and assumptions go before the draft is made.
        let passes = commands
            .iter()
            .any(|command| matches!(command, DurableCommand::ExpireLeases(_)));
        let expired = if passes { self.advance_clock(now) } else { Vec::new() };
        // Plugin states of the newest snapshot are valid for the next one as long as the two have the same content.
        let known = if self.changed {
            self.plugin_states.clone()
        } else {
            self.publisher.newest().plugin_state_cache.ready()
        };
        let mut ledger_draft = LedgerDraft::new(&self.ledger, &self.next.state, known, self.clock.wall());
        let mut assumption_draft = AssumptionDraft::default();
        ledger_draft.expire(&expired);
        for command in &mut *commands {
            self.draft_command(&mut ledger_draft, &mut assumption_draft, command);
        }
        let waiting = commands.iter().any(DurableCommand::waits);
        if !waiting && ledger_draft.is_unchanged() && !self.needs_repair() && source_writes.is_empty() {
            return Ok(());
        }
        let mut others = self.policies.repair_writes();
        others.extend(self.arbiter.assumptions.writes(&assumption_draft));
        others.extend(source_writes.iter().cloned());
        match self.ledger.write_draft(ledger_draft, now, others) {
            Ok(written) => {
                self.policies.repaired();
                self.sources.written(&source_writes);
                self.changed |= written.changes_jobs() || !assumption_draft.is_empty();
                self.arbiter.assumptions.apply_draft(assumption_draft);
                self.next.state = written.cluster_state;
                self.plugin_states = written.plugin_states;
                self.store_fails = false;
                Ok(())
            }
            Err(error) => {
                if self.ledger.log().needs_repairs() {
                    self.arbiter.assumptions.fail_draft(assumption_draft);
                }
                Err(error)
            }
        }
    }

    /// Advances the clocks of all leases. Returns the jobs whose reservations have expired.
    fn advance_clock(&mut self, now: Duration) -> Vec<Arc<str>> {
        let heard = self.sources.heard(now);
        let was = std::mem::take(&mut self.changed);
        self.changed |= self
            .arbiter
            .assumptions
            .advance_clock(now, heard.clone(), &mut self.next.state);
        // An assumption that ended may have been all that counted an unreadable task.
        self.changed |= self.unreadable.recheck(&mut self.next.state);
        if self.changed {
            self.plugin_states.clear();
        }
        self.changed |= was;
        self.ledger.advance_clock(now, heard)
    }

    /// True if the store may differ from memory.
    fn needs_repair(&self) -> bool {
        self.ledger.needs_repair() || self.policies.needs_repair() || self.arbiter.assumptions.needs_repair()
    }

    fn draft_commit(
        &self,
        ledger_draft: &mut LedgerDraft,
        assumption_draft: &mut AssumptionDraft,
        commit: &PlacementCommit,
    ) -> Result<CommitOutcome, StateError> {
        let same = !self.changed && ledger_draft.is_unchanged() && assumption_draft.is_empty();
        let context = CommitContext {
            cluster_state: &mut ledger_draft.cluster_state,
            next: &self.next,
            newest: same.then(|| self.publisher.newest()),
            durability: self.ledger.durability(),
        };
        let outcome = self.arbiter.draft_commit(commit, assumption_draft, context);
        ledger_draft.note_assumptions(assumption_draft);
        outcome
    }

    fn draft_task_release(
        &self,
        ledger_draft: &mut LedgerDraft,
        assumption_draft: &mut AssumptionDraft,
        session: &str,
        tasks: &[Arc<str>],
    ) -> Vec<Arc<str>> {
        let (assumptions, state) = (&self.arbiter.assumptions, &mut ledger_draft.cluster_state);
        let released = assumptions.draft_release(assumption_draft, session, tasks, state);
        ledger_draft.note_assumptions(assumption_draft);
        released
    }

    fn draft_command(
        &mut self,
        ledger_draft: &mut LedgerDraft,
        assumption_draft: &mut AssumptionDraft,
        command: &mut DurableCommand,
    ) {
        match command {
            DurableCommand::Commit(commit) => {
                let outcome = self.draft_commit(ledger_draft, assumption_draft, &commit.asked);
                commit.decide(outcome);
            }
            DurableCommand::Recall(recall) => {
                let held = self.arbiter.assumptions.held_under(assumption_draft, &recall.asked);
                recall.decide(Ok(held));
            }
            DurableCommand::ReleaseTasks(release) => {
                let (session, tasks) = &release.asked;
                let released = self.draft_task_release(ledger_draft, assumption_draft, session, tasks);
                release.decide(Ok((self.next.revision, released)));
            }
            DurableCommand::Confirm(confirm) => {
                let outcome = self.draft_confirm(ledger_draft, &mut confirm.asked);
                confirm.decide(outcome);
            }
            DurableCommand::Release(release) => {
                let lease_left = self.ledger.lease_left(&release.asked.job);
                let row = ledger_draft.release(&release.asked);
                release.decide(Ok(row.map(|row| ReservationStatus { row, lease_left })));
            }
            DurableCommand::ExpireLeases(_) => {}
            DurableCommand::Stop(reply) => self.stop = reply.take().or(self.stop.take()),
        }
    }

    fn draft_confirm(
        &self,
        draft: &mut LedgerDraft,
        confirm: &mut LedgerConfirm,
    ) -> Result<ConfirmOutcome, StateError> {
        let policy = policy_in_snapshot(&self.next, &confirm.policy, &confirm.profile)?;
        let items = draft.confirm(confirm, &policy);
        Ok(ConfirmOutcome {
            items: items.map_err(|problem| StateError::QueryRejected { problem })?,
            revision: self.next.revision,
            policy,
            durability: self.ledger.durability(),
        })
    }

    /// Sends the replies that waited for the publication.
    pub(crate) fn reply_durable(&self, commands: Vec<DurableCommand>) {
        if commands.is_empty() {
            return;
        }
        let revision = self.publisher.newest().revision;
        for command in commands {
            command.reply(revision);
        }
    }
}
