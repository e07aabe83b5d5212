//! The writer's second step: what a group asks of the ledger and of the assumptions, settled together and written in one go.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::assumptions::AssumptionDraft;
use super::commit_session::{AssumptionCommand, AssumptionOutcome, CommitContext};
use super::error::StateError;
use super::ledger::{
    AppliedDraft, ConfirmOutcome, JobConfirmOutcome, LedgerConfirm, LedgerDraft, LedgerRelease, ReservationStatus,
};
use super::ports::CommandReply;
use super::writer::Writer;
use crate::engine::PolicyInForce;
use crate::engine::model::{Problem, Reservation};
use crate::store::StoreError;

/// What is asked that must be kept before it is answered.
#[derive(Debug)]
pub(super) enum DurableCommand {
    /// Promise jobs what they need.
    Confirm(Box<LedgerConfirm>, CommandReply<Result<ConfirmOutcome, StateError>>),
    /// Take a reservation back.
    Release(
        LedgerRelease,
        CommandReply<Result<Option<ReservationStatus>, StateError>>,
    ),
    /// Commit, or end assumptions.
    Assume(Box<AssumptionCommand>),
    /// Look at the clock: end what is over.
    ExpireLeases(Option<CommandReply<()>>),
    /// Write what is owed, close the store, and end.
    Stop(CommandReply<()>),
}

/// An answer that waits for the store, and for the publication.
pub(super) enum DurableOutcome {
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
    /// The store failed: nothing of it has happened.
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
    /// Settles commands on what the group's other commands have made of the state. Answers who waits for the
    /// publication.
    pub(super) fn apply_durable(&mut self, commands: Vec<DurableCommand>) -> Vec<DurableOutcome> {
        // That a job has ended is kept before it is answered, too; but a store that fails does not stop batches.
        let owes = (self.ledger.needs_repair() || self.policies.needs_repair()) && !self.store_fails;
        if commands.is_empty() && !owes {
            return Vec::new();
        }
        let now = self.clock.monotonic();
        // Before the stage is set: old tombstones and assumptions go.
        let passes = commands
            .iter()
            .any(|command| matches!(command, DurableCommand::ExpireLeases(_)));
        let over = if passes { self.advance_clock(now) } else { Vec::new() };
        // What is known to be derived from the newest snapshot holds for the next one, as long as they are the same.
        let known = if self.changed {
            BTreeMap::new()
        } else {
            self.publisher.newest().plugin_state_cache.ready()
        };
        let mut stage = LedgerDraft::new(&self.ledger, &self.next.state, known, self.clock.wall());
        let mut draft = AssumptionDraft::default();
        stage.expire(&over);
        let outcomes: Vec<DurableOutcome> = commands
            .into_iter()
            .filter_map(|command| self.draft_command(&mut stage, &mut draft, command))
            .collect();
        let waiting = outcomes
            .iter()
            .any(|outcome| !matches!(outcome, DurableOutcome::Expired(_)));
        if !waiting && stage.is_unchanged() && !self.needs_repair() {
            return outcomes;
        }
        let mut others = self.policies.repair_writes();
        others.extend(self.arbiter.assumptions.writes(&draft));
        match self.ledger.write_draft(stage, now, others) {
            Ok(AppliedDraft {
                cluster_state,
                plugin_states: derived,
                changed,
            }) => {
                self.policies.repaired();
                self.changed |= changed || !draft.is_empty();
                self.arbiter.assumptions.apply_draft(draft);
                self.next.state = cluster_state;
                self.plugin_states = derived;
                self.store_fails = false;
                outcomes
            }
            Err(error) => {
                self.arbiter.assumptions.fail_draft(draft);
                self.store_fails = true;
                tracing::error!(%error, "the store failed; nothing was confirmed, committed or released");
                for outcome in outcomes {
                    outcome.reply_error(&error);
                }
                Vec::new()
            }
        }
    }

    /// Lets time pass; reservations whose leases are over.
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

    /// True if the store may hold something that is not true.
    fn needs_repair(&self) -> bool {
        self.ledger.needs_repair() || self.policies.needs_repair() || self.arbiter.assumptions.needs_repair()
    }

    fn draft_assumptions(
        &self,
        stage: &mut LedgerDraft,
        draft: &mut AssumptionDraft,
        asked: AssumptionCommand,
    ) -> Option<DurableOutcome> {
        let same = !self.changed && stage.is_unchanged() && draft.is_empty();
        let evaluation_ref = CommitContext {
            cluster_state: &mut stage.cluster_state,
            next: &self.next,
            newest: same.then(|| self.publisher.newest()),
            durability: self.ledger.durability(),
        };
        let drafted = self.arbiter.draft(asked, draft, evaluation_ref);
        if !draft.is_empty() {
            // It is worked out anew by whoever needs it.
            stage.plugin_states.clear();
        }
        drafted.map(DurableOutcome::Assumed)
    }

    fn draft_command(
        &mut self,
        stage: &mut LedgerDraft,
        draft: &mut AssumptionDraft,
        command: DurableCommand,
    ) -> Option<DurableOutcome> {
        match command {
            DurableCommand::Assume(asked) => self.draft_assumptions(stage, draft, *asked),
            DurableCommand::Confirm(confirm, reply) => {
                let policy = match self.policy_in_force(&confirm.policy, &confirm.profile) {
                    Ok(policy) => policy,
                    Err(error) => {
                        reply.send(Err(error));
                        return None;
                    }
                };
                match stage.confirm(*confirm, &policy) {
                    Ok(items) => Some(DurableOutcome::Confirmed { items, policy, reply }),
                    Err(problem) => {
                        reply.send(Err(StateError::QueryRejected { problem }));
                        None
                    }
                }
            }
            DurableCommand::Release(release, reply) => {
                let left = self.ledger.lease_left(&release.job);
                let row = stage.release(&release).map(|row| (row, left));
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

    /// Answers who waited for the publication.
    pub(super) fn reply_durable(&self, outcomes: Vec<DurableOutcome>) {
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
