//! The ways of commits, releases and the clock to the writer, and what it does with them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::oneshot;

use super::State;
use super::assumptions::{Assumptions, Tick};
use super::commit::{Checks, Committed, Wanted, WantedJob, judge};
use super::error::StateError;
use super::seam::Reply;
use super::session::policy_of;
use super::sessions::{Inner, Session};
use super::sources::limit;
use super::writer::Command;
use crate::engine::cycle::{Change, Cycle, Moved, Placement};
use crate::engine::derived::DerivedSet;
use crate::engine::model::{Stored, TaskRecord, TaskStatus};
use crate::engine::{PolicyInForce, Revision, World};

type Answer<T> = Reply<Result<T, StateError>>;

/// What a session asks to be committed.
#[derive(Debug)]
pub(super) struct Commit {
    session: Arc<str>,
    /// Name and profile of the policy.
    policy: (Arc<str>, Arc<str>),
    jobs: Vec<WantedJob>,
    /// Tasks that the session took off these nodes.
    withdrawn: Vec<(Arc<str>, Arc<str>)>,
}

/// What the writer is asked to do with assumptions.
#[derive(Debug)]
pub(super) enum Assuming {
    /// Judge a session's placements and assume what holds.
    Commit(Box<Commit>, Answer<Committed>),
    /// End assumptions of a session, or of any.
    Release(Arc<str>, Vec<Arc<str>>, Answer<(Revision, Vec<Arc<str>>)>),
    /// Time has passed.
    Tick(Tick),
}

/// To be called when the next World is visible.
pub(super) type Later = Box<dyn FnOnce() + Send>;

/// The assumptions and what bounds them.
#[derive(Debug)]
pub(super) struct Arbiter {
    pub(super) assumptions: Assumptions,
    limit: usize,
    checks: Checks,
}

impl Arbiter {
    pub(super) fn new(limits: &super::Limits) -> Self {
        Self {
            assumptions: Assumptions::new(limits.assumption_lease),
            limit: limits.assumptions,
            checks: Checks::All,
        }
    }

    #[cfg(debug_assertions)]
    pub(super) fn without_checks(&mut self, without: bool) {
        self.checks = if without { Checks::Off } else { Checks::All };
    }

    /// Does it. `None`: nothing has to be published for it.
    pub(super) fn handle(&mut self, asked: Assuming, next: &mut World, newest: Option<&World>) -> Option<Later> {
        match asked {
            Assuming::Tick(tick) => {
                let ended = self.assumptions.tick(tick, &mut next.view);
                ended.then(|| Box::new(|| {}) as Later)
            }
            Assuming::Release(session, tasks, reply) => {
                let released = self.assumptions.release(&session, &tasks, &mut next.view);
                let revision = next.revision;
                Some(Box::new(move || reply.send(Ok((revision, released)))))
            }
            Assuming::Commit(commit, reply) => match self.commit(&commit, next, newest) {
                Ok(outcome) => Some(Box::new(move || reply.send(Ok(outcome)))),
                Err(error) => {
                    reply.send(Err(error));
                    None
                }
            },
        }
    }

    fn commit(&mut self, commit: &Commit, next: &mut World, newest: Option<&World>) -> Result<Committed, StateError> {
        let placements: usize = commit.jobs.iter().map(|job| job.placements.len()).sum();
        if self.assumptions.len() + placements > self.limit {
            let message = format!(
                "{} are there, and the commit has {placements} placements",
                self.assumptions.len()
            );
            return Err(limit("assumptions", self.limit, message));
        }
        let policy = policy_of(next, &commit.policy.0, &commit.policy.1)?;
        let mut released = Vec::new();
        for (task, node) in &commit.withdrawn {
            if self.assumptions.release_from(task, node, &mut next.view) {
                released.push(Arc::clone(task));
            }
        }
        let derived = match newest.filter(|_| released.is_empty()) {
            _ if !reads_derived(&policy) => DerivedSet::default(),
            Some(newest) => newest.derived(&policy),
            None => policy.policy.derive(&next.view),
        };
        let judged = judge(&next.view, &policy, derived, &commit.jobs, self.checks);
        next.view = judged.view;
        for told in judged.placed {
            self.assumptions.make(told, &next.view, &commit.session);
        }
        Ok(Committed {
            revision: next.revision,
            policy: (Arc::clone(&policy.name), policy.version, Arc::clone(&policy.hash)),
            applied_through: 0,
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
        self.send(Command::Assume(Box::new(release))).await?;
        released.await.map_err(|_| StateError::ShuttingDown)?
    }

    /// Tells the writer that time has passed: also while there are no leases, or else the first would pay for it.
    pub(super) fn let_time_pass(&self) {
        let now = self.clock.monotonic();
        let tick = Tick {
            now,
            heard: self.sources.heard(now),
        };
        // Where the queue is full, there is a next time.
        drop(self.commands.try_send(Command::Assume(Box::new(Assuming::Tick(tick)))));
    }

    fn send_now(&self, asked: Assuming) -> Result<(), StateError> {
        let command = Command::Assume(Box::new(asked));
        self.commands
            .blocking_send(command)
            .map_err(|_| StateError::ShuttingDown)
    }
}
