//! The writer's second step: what a group asks of the ledger and of the assumptions, settled together and written in one go.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::assumptions::Draft;
use super::committing::{Assumed, Assuming, Ground};
use super::error::StateError;
use super::ledger::{Confirm, Confirmation, Confirmed, Release, Settled, Stage, Standing};
use super::seam::Reply;
use super::writer::Writer;
use crate::engine::PolicyInForce;
use crate::engine::model::{Problem, Reservation};
use crate::store::StoreError;

/// What is asked that must be kept before it is answered.
#[derive(Debug)]
pub(super) enum LedgerCommand {
    /// Promise jobs what they need.
    Confirm(Box<Confirm>, Reply<Result<Confirmation, StateError>>),
    /// Take a reservation back.
    Release(Release, Reply<Result<Option<Standing>, StateError>>),
    /// Commit, or end assumptions.
    Assume(Box<Assuming>),
    /// Look at the clock: end what is over.
    Pass(Option<Reply<()>>),
    /// Write what is owed, close the store, and end.
    Stop(Reply<()>),
}

/// An answer that waits for the store, and for the publication.
pub(super) enum Outcome {
    Confirmed {
        items: Vec<Result<Confirmed, Problem>>,
        policy: Arc<PolicyInForce>,
        reply: Reply<Result<Confirmation, StateError>>,
    },
    Released {
        row: Option<(Arc<Reservation>, Option<Duration>)>,
        reply: Reply<Result<Option<Standing>, StateError>>,
    },
    Assumed(Assumed),
    Passed(Option<Reply<()>>),
}

impl Outcome {
    /// The store failed: nothing of it has happened.
    fn fail(self, error: &StoreError) {
        match self {
            Self::Confirmed { reply, .. } => reply.send(Err(StateError::Store(error.clone()))),
            Self::Released { reply, .. } => reply.send(Err(StateError::Store(error.clone()))),
            Self::Assumed(assumed) => assumed.fail(StateError::Store(error.clone())),
            Self::Passed(reply) => reply.into_iter().for_each(|reply| reply.send(())),
        }
    }
}

impl Writer {
    /// Settles commands on what the group's other commands have made of the state. Answers who waits for the
    /// publication.
    pub(super) fn settle(&mut self, commands: Vec<LedgerCommand>) -> Vec<Outcome> {
        // That a job has ended is kept before it is answered, too; but a store that fails does not stop batches.
        let owes = (self.ledger.owes() || self.policies.owe()) && !self.store_fails;
        if commands.is_empty() && !owes {
            return Vec::new();
        }
        let now = self.clock.monotonic();
        // Before the stage is set: old tombstones and assumptions go.
        let passes = commands.iter().any(|command| matches!(command, LedgerCommand::Pass(_)));
        let over = if passes { self.pass(now) } else { Vec::new() };
        // What is known to be derived from the newest World holds for the next one, as long as they are the same.
        let known = if self.changed {
            BTreeMap::new()
        } else {
            self.worlds.newest().derived.ready()
        };
        let mut stage = Stage::new(&self.ledger, &self.next.view, known, self.clock.wall());
        let mut draft = Draft::default();
        stage.expire(&over);
        let outcomes: Vec<Outcome> = commands
            .into_iter()
            .filter_map(|command| self.stage(&mut stage, &mut draft, command))
            .collect();
        let waiting = outcomes.iter().any(|outcome| !matches!(outcome, Outcome::Passed(_)));
        if !waiting && stage.is_idle() && !self.owes() {
            return outcomes;
        }
        let mut others = self.policies.owed_writes();
        others.extend(self.arbiter.assumptions.writes(&draft));
        match self.ledger.commit(stage, now, others) {
            Ok(Settled { view, derived, changed }) => {
                self.policies.settled();
                self.changed |= changed || !draft.is_empty();
                self.arbiter.assumptions.settle(draft);
                self.next.view = view;
                self.derived = derived;
                self.store_fails = false;
                outcomes
            }
            Err(error) => {
                self.arbiter.assumptions.drop_draft(draft);
                self.store_fails = true;
                tracing::error!(%error, "the store failed; nothing was confirmed, committed or released");
                for outcome in outcomes {
                    outcome.fail(&error);
                }
                Vec::new()
            }
        }
    }

    /// Lets time pass; reservations whose leases are over.
    fn pass(&mut self, now: Duration) -> Vec<Arc<str>> {
        let heard = self.sources.heard(now);
        self.changed |= self.arbiter.assumptions.pass(now, heard.clone(), &mut self.next.view);
        self.ledger.pass(now, heard)
    }

    /// True if the store may hold something that is not true.
    fn owes(&self) -> bool {
        self.ledger.owes() || self.policies.owe() || self.arbiter.assumptions.owe()
    }

    fn assume(&self, stage: &mut Stage, draft: &mut Draft, asked: Assuming) -> Option<Outcome> {
        let same = !self.changed && stage.is_idle() && draft.is_empty();
        let ground = Ground {
            view: &mut stage.view,
            next: &self.next,
            newest: same.then(|| self.worlds.newest()),
            durability: self.ledger.durability(),
        };
        let drafted = self.arbiter.draft(asked, draft, ground);
        if !draft.is_empty() {
            // It is worked out anew by whoever needs it.
            stage.derived.clear();
        }
        drafted.map(Outcome::Assumed)
    }

    fn stage(&mut self, stage: &mut Stage, draft: &mut Draft, command: LedgerCommand) -> Option<Outcome> {
        match command {
            LedgerCommand::Assume(asked) => self.assume(stage, draft, *asked),
            LedgerCommand::Confirm(confirm, reply) => {
                let policy = match self.policy(&confirm.policy, &confirm.profile) {
                    Ok(policy) => policy,
                    Err(error) => {
                        reply.send(Err(error));
                        return None;
                    }
                };
                match stage.confirm(*confirm, &policy) {
                    Ok(items) => Some(Outcome::Confirmed { items, policy, reply }),
                    Err(problem) => {
                        reply.send(Err(StateError::QuestionRefused { problem }));
                        None
                    }
                }
            }
            LedgerCommand::Release(release, reply) => {
                let left = self.ledger.left(&release.job);
                let row = stage.release(&release).map(|row| (row, left));
                Some(Outcome::Released { row, reply })
            }
            LedgerCommand::Pass(reply) => Some(Outcome::Passed(reply)),
            LedgerCommand::Stop(reply) => {
                self.stop = Some(reply);
                Some(Outcome::Passed(None))
            }
        }
    }

    fn policy(&self, name: &Arc<str>, profile: &str) -> Result<Arc<PolicyInForce>, StateError> {
        let policy = self.next.policies.get(name);
        let policy = policy.ok_or_else(|| StateError::PolicyUnknown { name: Arc::clone(name) })?;
        policy.of_profile(profile).map_err(StateError::ProfileUnknown)
    }

    /// Answers who waited for the publication.
    pub(super) fn answer_settled(&self, outcomes: Vec<Outcome>) {
        for outcome in outcomes {
            match outcome {
                Outcome::Confirmed { items, policy, reply } => reply.send(Ok(Confirmation {
                    items,
                    revision: self.worlds.newest().revision,
                    policy,
                    durability: self.ledger.durability(),
                })),
                Outcome::Released { row, reply } => {
                    reply.send(Ok(row.map(|(row, left)| Standing { row, left })));
                }
                Outcome::Assumed(assumed) => assumed.answer(self.worlds.newest().revision),
                Outcome::Passed(reply) => reply.into_iter().for_each(|reply| reply.send(())),
            }
        }
    }
}
