//! The writer's second step: commands whose effect must be durable before the reply.
//!
//! The writer drafts the commands of a group together, on top of the group's other commands, and writes them to the
//! store at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::ports::CommandReply;
use crate::error::StateError;
use crate::ledger::assumptions::AssumptionDraft;
use crate::ledger::{
    AppliedDraft, ConfirmOutcome, JobConfirmOutcome, LedgerConfirm, LedgerDraft, LedgerRelease, ReservationStatus,
};
use crate::sessions::commit::{AssumptionCommand, AssumptionOutcome, CommitContext};
use crate::store::StoreError;
use crate::writer::Writer;
use pumice_engine::PolicyInForce;
use pumice_engine::model::{Problem, Reservation};

/// Command whose effect must be durable before it is acknowledged.
#[derive(Debug)]
pub(crate) enum DurableCommand {
    /// Confirm jobs: promise each what it needs.
    Confirm(Box<LedgerConfirm>, CommandReply<Result<ConfirmOutcome, StateError>>),
    /// Release a reservation.
    Release(
        LedgerRelease,
        CommandReply<Result<Option<ReservationStatus>, StateError>>,
    ),
    /// Commit placements, or release assumptions.
    Assume(Box<AssumptionCommand>),
    /// Look at the clock, and end leases that have expired.
    ExpireLeases(Option<CommandReply<()>>),
    /// Write pending repairs, close the store, and end.
    Stop(CommandReply<()>),
}

/// Reply that waits for the store and for the publication.
pub(crate) enum DurableOutcome {
    Confirmed {
        items: Vec<Result<JobConfirmOutcome, Problem>>,
        policy: Arc<PolicyInForce>,
        reply: CommandReply<Result<ConfirmOutcome, StateError>>,
    },
    Released {
        row: Option<(Arc<Reservation>, Option<Duration>)>,
        reply: CommandReply<Result<Option<ReservationStatus>, StateError>>,
    },
    Assumed(AssumptionOutcome),
    Expired(Option<CommandReply<()>>),
}

impl DurableOutcome {
    /// Reports that the store failed and that the command had no effect.
    fn reply_error(self, error: &StoreError) {
        match self {
            Self::Confirmed { reply, .. } => reply.send(Err(StateError::Store(error.clone()))),
            Self::Released { reply, .. } => reply.send(Err(StateError::Store(error.clone()))),
            Self::Assumed(assumed) => assumed.reply_error(StateError::Store(error.clone())),
            Self::Expired(reply) => reply.into_iter().for_each(|reply| reply.send(())),
        }
    }
}

impl Writer {
    /// Applies durable commands after the group's other commands. Returns the replies that wait for the publication.
    pub(crate) fn apply_durable(&mut self, commands: Vec<DurableCommand>) -> Vec<DurableOutcome> {
        // The end of a job, too, is written before the reply; but a failing store does not stop batches.
        let source_writes = self.sources.store_writes();
        let is_needed = self.ledger.needs_repair() || self.policies.needs_repair() || !source_writes.is_empty();
        let repair_due = is_needed && !self.store_fails;
        if commands.is_empty() && !repair_due {
            return Vec::new();
        }
        let now = self.clock.monotonic();
        // Old tombstones and assumptions go before the draft is made.
        let passes = commands
            .iter()
            .any(|command| matches!(command, DurableCommand::ExpireLeases(_)));
        let expired = if passes { self.advance_clock(now) } else { Vec::new() };
        // Plugin states of the newest snapshot are valid for the next one as long as the two have the same content.
        let known = if self.changed {
            BTreeMap::new()
        } else {
            self.publisher.newest().plugin_state_cache.ready()
        };
        let mut ledger_draft = LedgerDraft::new(&self.ledger, &self.next.state, known, self.clock.wall());
        let mut assumption_draft = AssumptionDraft::default();
        ledger_draft.expire(&expired);
        let outcomes: Vec<DurableOutcome> = commands
            .into_iter()
            .filter_map(|command| self.draft_command(&mut ledger_draft, &mut assumption_draft, command))
            .collect();
        let waiting = outcomes
            .iter()
            .any(|outcome| !matches!(outcome, DurableOutcome::Expired(_)));
        if !waiting && ledger_draft.is_unchanged() && !self.needs_repair() && source_writes.is_empty() {
            return outcomes;
        }
        let mut others = self.policies.repair_writes();
        others.extend(self.arbiter.assumptions.writes(&assumption_draft));
        others.extend(source_writes.iter().cloned());
        match self.ledger.write_draft(ledger_draft, now, others) {
            Ok(AppliedDraft {
                cluster_state,
                plugin_states,
                changed,
            }) => {
                self.policies.repaired();
                self.sources.written(&source_writes);
                self.changed |= changed || !assumption_draft.is_empty();
                self.arbiter.assumptions.apply_draft(assumption_draft);
                self.next.state = cluster_state;
                self.plugin_states = plugin_states;
                self.store_fails = false;
                outcomes
            }
            Err(error) => {
                self.arbiter.assumptions.fail_draft(assumption_draft);
                self.store_fails = true;
                for outcome in outcomes {
                    outcome.reply_error(&error);
                }
                Vec::new()
            }
        }
    }

    /// Advances the clocks of all leases. Returns the jobs whose reservations have expired.
    fn advance_clock(&mut self, now: Duration) -> Vec<Arc<str>> {
        let heard = self.sources.heard(now);
        self.changed |= self
            .arbiter
            .assumptions
            .advance_clock(now, heard.clone(), &mut self.next.state);
        // An assumption that ended may have been all that counted an unreadable task.
        self.changed |= self.unreadable.recheck(&mut self.next.state);
        self.ledger.advance_clock(now, heard)
    }

    /// True if the store may differ from memory.
    fn needs_repair(&self) -> bool {
        self.ledger.needs_repair() || self.policies.needs_repair() || self.arbiter.assumptions.needs_repair()
    }

    fn draft_assumptions(
        &self,
        ledger_draft: &mut LedgerDraft,
        assumption_draft: &mut AssumptionDraft,
        command: AssumptionCommand,
    ) -> Option<DurableOutcome> {
        let same = !self.changed && ledger_draft.is_unchanged() && assumption_draft.is_empty();
        let context = CommitContext {
            cluster_state: &mut ledger_draft.cluster_state,
            next: &self.next,
            newest: same.then(|| self.publisher.newest()),
            durability: self.ledger.durability(),
        };
        let drafted = self.arbiter.draft(command, assumption_draft, context);
        if !assumption_draft.is_empty() {
            // The next query computes the plugin states again.
            ledger_draft.plugin_states.clear();
        }
        drafted.map(DurableOutcome::Assumed)
    }

    fn draft_command(
        &mut self,
        ledger_draft: &mut LedgerDraft,
        assumption_draft: &mut AssumptionDraft,
        command: DurableCommand,
    ) -> Option<DurableOutcome> {
        match command {
            DurableCommand::Assume(command) => self.draft_assumptions(ledger_draft, assumption_draft, *command),
            DurableCommand::Confirm(confirm, reply) => {
                let policy = match self.policy_in_force(&confirm.policy, &confirm.profile) {
                    Ok(policy) => policy,
                    Err(error) => {
                        reply.send(Err(error));
                        return None;
                    }
                };
                match ledger_draft.confirm(*confirm, &policy) {
                    Ok(items) => Some(DurableOutcome::Confirmed { items, policy, reply }),
                    Err(problem) => {
                        reply.send(Err(StateError::QueryRejected { problem }));
                        None
                    }
                }
            }
            DurableCommand::Release(release, reply) => {
                let left = self.ledger.lease_left(&release.job);
                let row = ledger_draft.release(&release).map(|row| (row, left));
                Some(DurableOutcome::Released { row, reply })
            }
            DurableCommand::ExpireLeases(reply) => Some(DurableOutcome::Expired(reply)),
            DurableCommand::Stop(reply) => {
                self.stop = Some(reply);
                Some(DurableOutcome::Expired(None))
            }
        }
    }

    fn policy_in_force(&self, name: &Arc<str>, profile: &str) -> Result<Arc<PolicyInForce>, StateError> {
        let policy = self.next.policies.get(name);
        let policy = policy.ok_or_else(|| StateError::PolicyUnknown { name: Arc::clone(name) })?;
        policy.of_profile(profile).map_err(StateError::ProfileUnknown)
    }

    /// Sends the replies that waited for the publication.
    pub(crate) fn reply_durable(&self, outcomes: Vec<DurableOutcome>) {
        for outcome in outcomes {
            match outcome {
                DurableOutcome::Confirmed { items, policy, reply } => reply.send(Ok(ConfirmOutcome {
                    items,
                    revision: self.publisher.newest().revision,
                    policy,
                    durability: self.ledger.durability(),
                })),
                DurableOutcome::Released { row, reply } => {
                    reply.send(Ok(row.map(|(row, left)| ReservationStatus { row, lease_left: left })));
                }
                DurableOutcome::Assumed(assumed) => assumed.reply(self.publisher.newest().revision),
                DurableOutcome::Expired(reply) => reply.into_iter().for_each(|reply| reply.send(())),
            }
        }
    }
}
