//! The ways of commits and releases to the writer, and what it does with them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::oneshot;

use super::State;
use super::assumptions::{Assumptions, Draft};
use super::commit::{Checks, Committed, Wanted, WantedJob, judge};
use super::error::StateError;
use super::limits::Limits;
use super::seam::Reply;
use super::session::policy_of;
use super::sessions::{Inner, Session};
use super::settle::LedgerCommand;
use super::sources::limit;
use super::writer::Command;
use crate::engine::cycle::{Change, Cycle, Moved, Placement};
use crate::engine::derived::DerivedSet;
use crate::engine::model::{Stored, TaskRecord, TaskStatus, View};
use crate::engine::{PolicyInForce, Revision, World};
use crate::store::{Durability, Kept};

type Answer<T> = Reply<Result<T, StateError>>;

/// What a session asks to be committed.
#[derive(Debug)]
pub(super) struct Commit {
    pub(super) session: Arc<str>,
    /// Name and profile of the policy.
    pub(super) policy: (Arc<str>, Arc<str>),
    pub(super) jobs: Vec<WantedJob>,
    /// Tasks that the session took off these nodes.
    pub(super) withdrawn: Vec<(Arc<str>, Arc<str>)>,
}

/// What the writer is asked to do with assumptions.
#[derive(Debug)]
pub(super) enum Assuming {
    /// Judge a session's placements and assume what holds.
    Commit(Box<Commit>, Answer<Committed>),
    /// End assumptions of a session, or of any.
    Release(Arc<str>, Vec<Arc<str>>, Answer<(Revision, Vec<Arc<str>>)>),
}

/// What is done with assumptions, and waits for the store and for the publication.
pub(super) enum Assumed {
    Committed(Box<Committed>, Answer<Committed>),
    Released(Vec<Arc<str>>, Answer<(Revision, Vec<Arc<str>>)>),
}

impl Assumed {
    /// It is kept, and visible from this revision on.
    pub(super) fn answer(self, revision: Revision) {
        match self {
            Self::Committed(outcome, reply) => reply.send(Ok(Committed { revision, ..*outcome })),
            Self::Released(released, reply) => reply.send(Ok((revision, released))),
        }
    }

    /// Nothing of it has happened.
    pub(super) fn fail(self, error: StateError) {
        match self {
            Self::Committed(_, reply) => reply.send(Err(error)),
            Self::Released(_, reply) => reply.send(Err(error)),
        }
    }
}

/// What a commit is judged by.
#[derive(Debug)]
pub(super) struct Ground<'a> {
    /// The state, which what holds is put into.
    pub(super) view: &'a mut View,
    /// Its policies.
    pub(super) next: &'a World,
    /// The newest World, if the state is still the same.
    pub(super) newest: Option<Arc<World>>,
    /// Where the commit will be kept.
    pub(super) durability: Durability,
}

/// The assumptions and what bounds them.
#[derive(Debug)]
pub(super) struct Arbiter {
    pub(super) assumptions: Assumptions,
    limit: usize,
    checks: Checks,
}

impl Arbiter {
    pub(super) fn open(limits: &Limits, kept: &Kept) -> Self {
        Self {
            assumptions: Assumptions::open(limits, kept),
            limit: limits.assumptions,
            checks: Checks::All,
        }
    }

    #[cfg(debug_assertions)]
    pub(super) fn without_checks(&mut self, without: bool) {
        self.checks = if without { Checks::Off } else { Checks::All };
    }

    /// Drafts it. `None`: it is refused, and answered.
    pub(super) fn draft(&self, asked: Assuming, draft: &mut Draft, ground: Ground<'_>) -> Option<Assumed> {
        match asked {
            Assuming::Release(session, tasks, reply) => {
                let released = self.assumptions.release(draft, &session, &tasks, ground.view);
                Some(Assumed::Released(released, reply))
            }
            Assuming::Commit(commit, reply) => match self.commit(&commit, draft, ground) {
                Ok(outcome) => Some(Assumed::Committed(Box::new(outcome), reply)),
                Err(error) => {
                    reply.send(Err(error));
                    None
                }
            },
        }
    }

    fn commit(&self, commit: &Commit, draft: &mut Draft, ground: Ground<'_>) -> Result<Committed, StateError> {
        let Ground {
            view,
            next,
            newest,
            durability,
        } = ground;
        let placements: usize = commit.jobs.iter().map(|job| job.placements.len()).sum();
        let there = self.assumptions.len(draft);
        if there + placements > self.limit {
            let message = format!("{there} are there, and the commit has {placements} placements");
            return Err(limit("assumptions", self.limit, message));
        }
        let policy = policy_of(next, &commit.policy.0, &commit.policy.1)?;
        let mut released = Vec::new();
        for (task, node) in &commit.withdrawn {
            if self.assumptions.release_from(draft, task, node, view) {
                released.push(Arc::clone(task));
            }
        }
        let derived = match newest.filter(|_| released.is_empty()) {
            _ if !reads_derived(&policy) => DerivedSet::default(),
            Some(newest) => newest.derived(&policy),
            None => policy.policy.derive(view),
        };
        let judged = judge(view, &policy, derived, &commit.jobs, self.checks);
        *view = judged.view;
        for told in judged.placed {
            Assumptions::make(draft, told, view, &commit.session);
        }
        Ok(Committed {
            revision: next.revision,
            policy: (Arc::clone(&policy.name), policy.version, Arc::clone(&policy.hash)),
            applied_through: 0,
            durability,
            jobs: judged.jobs,
            released,
            evicted: Vec::new(),
            pipelined: Vec::new(),
        })
    }
}

/// True if judging a commit under the policy needs what plugins keep beside the state.
fn reads_derived(policy: &PolicyInForce) -> bool {
    let policy = &policy.policy;
    policy.reads_accounts(&[]) || policy.allocators().iter().any(|tier| !tier.is_empty())
}

/// What a session did, sorted out.
#[derive(Debug, Default)]
struct Done {
    /// By job, in the order of their first placements.
    jobs: Vec<WantedJob>,
    withdrawn: Vec<(Arc<str>, Arc<str>)>,
    evicted: Vec<Arc<str>>,
    pipelined: Vec<Arc<str>>,
}

impl Done {
    fn of(cycle: &Cycle) -> Self {
        let mut done = Self::default();
        let mut placed: Vec<(&Moved, &Stored<TaskRecord>)> = Vec::new();
        for (task, moved) in cycle.moved() {
            let Some(stored) = cycle.view().tasks().get(task) else {
                continue;
            };
            let (status, node) = (stored.record.status, &stored.record.node);
            let held = moved.status.is_allocated();
            let stays = held && *node == moved.node && status.is_allocated();
            if held && !stays && status != TaskStatus::Releasing {
                done.withdrawn.push((Arc::clone(task), Arc::clone(&moved.node)));
            }
            match status {
                TaskStatus::Pipelined => done.pipelined.push(Arc::clone(task)),
                TaskStatus::Releasing if moved.status != TaskStatus::Releasing => done.evicted.push(Arc::clone(task)),
                TaskStatus::Allocated | TaskStatus::Binding | TaskStatus::Bound | TaskStatus::Running if !stays => {
                    placed.push((moved, stored));
                }
                TaskStatus::Pending
                | TaskStatus::Allocated
                | TaskStatus::Binding
                | TaskStatus::Bound
                | TaskStatus::Running
                | TaskStatus::Releasing
                | TaskStatus::Succeeded
                | TaskStatus::Failed
                | TaskStatus::Unknown => {}
            }
        }
        placed.sort_unstable_by_key(|(moved, _)| moved.order);
        let mut at: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        for (moved, stored) in placed {
            let job = &stored.record.job;
            let place = *at.entry(Arc::clone(job)).or_insert(done.jobs.len());
            if place == done.jobs.len() {
                done.jobs.push(WantedJob {
                    job: Arc::clone(job),
                    uid: cycle.view().jobs().get(job).map(|job| Arc::clone(&job.record.uid)),
                    placements: Vec::new(),
                });
            }
            if let Some(own) = done.jobs.get_mut(place) {
                own.placements.push(wanted(cycle, moved, stored));
            }
        }
        done
    }

    /// Only these jobs, in this order; none named: all.
    fn named(&mut self, names: &[Arc<str>]) {
        if names.is_empty() {
            return;
        }
        let mut all: BTreeMap<Arc<str>, WantedJob> = std::mem::take(&mut self.jobs)
            .into_iter()
            .map(|job| (Arc::clone(&job.job), job))
            .collect();
        let one = |name: &Arc<str>| {
            all.remove(name).unwrap_or_else(|| WantedJob {
                job: Arc::clone(name),
                ..WantedJob::default()
            })
        };
        self.jobs = names.iter().map(one).collect();
    }
}

fn wanted(cycle: &Cycle, moved: &Moved, stored: &Stored<TaskRecord>) -> Wanted {
    let record = &stored.record;
    let node = cycle.view().node_named(&record.node);
    Wanted {
        placement: Placement {
            task: Arc::clone(&record.name),
            node: Arc::clone(&record.node),
            card: Arc::clone(&moved.card),
        },
        uid: record.uid.clone(),
        node_uid: node.map_or_else(Arc::default, |node| Arc::clone(&node.record.uid)),
    }
}

impl State {
    /// Commits what a session allocated, after these changes: job by job, those named in that order, or all in the order
    /// of their first placements. Ends the session; asked again, the recorded outcome comes back.
    ///
    /// Waits for the writer: not to be called on an async thread.
    ///
    /// # Errors
    /// As [`Self::step`]; a job is named twice; the session stands on a cluster of its own; a limit; or its policy is
    /// gone. The session stays open.
    pub fn commit_session(
        &self,
        session: &str,
        after: u64,
        changes: &[Change],
        jobs: &[Arc<str>],
    ) -> Result<Arc<Committed>, StateError> {
        if let Some(outcome) = self.sessions.committed(session) {
            return Ok(outcome);
        }
        let names: BTreeSet<&Arc<str>> = jobs.iter().collect();
        if names.len() < jobs.len() {
            return Err(StateError::JobsRepeated);
        }
        let busy = self.sessions.find(session)?;
        let own = Arc::clone(&busy.0);
        let _changing = own.lock()?;
        // Somebody else's commit may have ended it since it was looked up.
        if let Some(outcome) = self.sessions.committed(session) {
            return Ok(outcome);
        }
        self.sessions.find(session)?;
        let Some(policy) = own.shared.clone() else {
            return Err(StateError::SessionInline {
                session: session.into(),
            });
        };
        let inner = self.sessions.advance(&own, after, changes)?;
        let mut done = Done::of(&inner.cycle);
        done.named(jobs);
        self.within_limit(&own, &done)?;
        self.warm(&policy);
        let commit = Commit {
            session: Arc::clone(&own.name),
            policy,
            jobs: done.jobs,
            withdrawn: done.withdrawn,
        };
        let (reply, outcome) = oneshot::channel();
        self.send_now(Assuming::Commit(Box::new(commit), Reply::from(reply)))?;
        let outcome = outcome.blocking_recv().map_err(|_| StateError::ShuttingDown)??;
        Ok(self.end_committed(
            &own,
            &inner,
            Committed {
                evicted: done.evicted,
                pipelined: done.pipelined,
                ..outcome
            },
        ))
    }

    fn end_committed(&self, session: &Session, inner: &Inner, outcome: Committed) -> Arc<Committed> {
        let outcome = Arc::new(Committed {
            applied_through: inner.applied,
            ..outcome
        });
        self.sessions.end_committed(session, Arc::clone(&outcome));
        outcome
    }

    fn within_limit(&self, session: &Session, done: &Done) -> Result<(), StateError> {
        let most = self.limits.commit_placements;
        let placements: usize = done.jobs.iter().map(|job| job.placements.len()).sum();
        if placements.max(done.jobs.len()) <= most {
            return Ok(());
        }
        let message = format!(
            "the commit of session `{}` has {placements} placements in {} jobs",
            session.name,
            done.jobs.len()
        );
        Err(limit("commit_placements", most, message))
    }

    /// Works out here what the writer would otherwise have to work out while others wait.
    fn warm(&self, (name, profile): &(Arc<str>, Arc<str>)) {
        let world = self.world();
        if let Ok(policy) = policy_of(&world, name, profile)
            && reads_derived(&policy)
        {
            world.derived(&policy);
        }
    }

    /// Ends assumptions: those that a session's commit made (empty: any commit), of these tasks, or (none named) all.
    /// Answers from which revision on they do not count, and which they were.
    ///
    /// # Errors
    /// Neither a session nor a task is named; or the writer is gone.
    pub async fn release_assumptions(
        &self,
        session: &str,
        tasks: Vec<Arc<str>>,
    ) -> Result<(Revision, Vec<Arc<str>>), StateError> {
        if session.is_empty() && tasks.is_empty() {
            return Err(StateError::NothingNamed);
        }
        let (reply, released) = oneshot::channel();
        let release = Assuming::Release(session.into(), tasks, Reply::from(reply));
        self.send(kept(release)).await?;
        released.await.map_err(|_| StateError::ShuttingDown)?
    }

    fn send_now(&self, asked: Assuming) -> Result<(), StateError> {
        self.commands
            .blocking_send(kept(asked))
            .map_err(|_| StateError::ShuttingDown)
    }
}

fn kept(asked: Assuming) -> Command {
    Command::Ledger(LedgerCommand::Assume(Box::new(asked)))
}
