//! The writer's second step: the ledger's commands of a group, settled together and written in one go.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::error::StateError;
use super::ledger::{Confirm, Confirmation, Confirmed, Release, Settled, Stage, Standing};
use super::seam::Reply;
use super::writer::Writer;
use crate::engine::PolicyInForce;
use crate::engine::model::{Problem, Reservation};

/// What the ledger is asked to do.
#[derive(Debug)]
pub(super) enum LedgerCommand {
    /// Promise jobs what they need.
    Confirm(Box<Confirm>, Reply<Result<Confirmation, StateError>>),
    /// Take a reservation back.
    Release(Release, Reply<Result<Option<Standing>, StateError>>),
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
    Passed(Option<Reply<()>>),
}

impl Writer {
    /// Settles the ledger's commands on what the group's other commands have made of the state. `moved`: they changed
    /// something. Answers who waits for the publication.
    pub(super) fn settle(&mut self, commands: Vec<LedgerCommand>, moved: bool) -> Vec<Outcome> {
        // That a job has ended is kept before it is answered, too; but a store that fails does not stop batches.
        let owes = (self.ledger.owes() || self.policies.owe()) && (!self.store_fails || !commands.is_empty());
        if commands.is_empty() && !owes {
            return Vec::new();
        }
        let now = self.clock.monotonic();
        // Before the stage is set: old tombstones go.
        let passes = commands.iter().any(|command| matches!(command, LedgerCommand::Pass(_)));
        let over = if passes {
            let heard = self.sources.heard(now);
            self.ledger.pass(now, heard)
        } else {
            Vec::new()
        };
        // What is known to be derived from the newest World holds for the next one, as long as they are the same.
        let known = if moved {
            BTreeMap::new()
        } else {
            self.worlds.newest().derived.ready()
        };
        let mut stage = Stage::new(&self.ledger, &self.next.view, known, self.clock.wall());
        stage.expire(&over);
        let outcomes: Vec<Outcome> = commands
            .into_iter()
            .filter_map(|command| self.stage(&mut stage, command))
            .collect();
        let waiting = outcomes.iter().any(|outcome| !matches!(outcome, Outcome::Passed(_)));
        if !waiting && stage.is_idle() && !self.ledger.owes() && !self.policies.owe() {
            return outcomes;
        }
        match self.ledger.commit(stage, now, self.policies.owed_writes()) {
            Ok(Settled { view, derived, changed }) => {
                self.policies.settled();
                self.next.view = view;
                self.derived = derived;
                self.changed |= changed;
                self.store_fails = false;
                outcomes
            }
            Err(error) => {
                self.store_fails = true;
                tracing::error!(%error, "the store failed; nothing was confirmed or released");
                for outcome in outcomes {
                    match outcome {
                        Outcome::Confirmed { reply, .. } => reply.send(Err(StateError::Store(error.clone()))),
                        Outcome::Released { reply, .. } => reply.send(Err(StateError::Store(error.clone()))),
                        Outcome::Passed(reply) => reply.into_iter().for_each(|reply| reply.send(())),
                    }
                }
                Vec::new()
            }
        }
    }

    fn stage(&mut self, stage: &mut Stage, command: LedgerCommand) -> Option<Outcome> {
        match command {
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
                Outcome::Passed(reply) => reply.into_iter().for_each(|reply| reply.send(())),
            }
        }
    }
}
