//! Commits and releases: their way to the writer, and how the writer carries them out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::oneshot;

use super::commit_judge::{CommitChecks, CommitScope, judge_commit};
use super::commit_outcome::{CommitOutcome, ProposedJob, ProposedPlacement};
use super::hold::{HeldTask, TaskHold};
use super::placed_calls::PlacedCalls;
use super::registry::{SessionEntry, SessionState};
use super::steps::policy_in_snapshot;
use super::transaction::SessionTransaction;
use crate::SharedState;
use crate::error::{StateError, limit_error};
use crate::ledger::assumptions::{AssumedPlacements, AssumptionDraft};
use crate::limits::StateLimits;
use crate::store::{Durability, StoredState};
use crate::writer::WriterCommand;
use crate::writer::apply_durable::DurableCommand;
use crate::writer::ports::WriterRequest;
use pumice_engine::cycle::{SchedulingCycle, SessionChange, TaskMoved, TaskPlacement};
use pumice_engine::model::{ClusterState, StoredRecord, TaskRecord, TaskStatus};
use pumice_engine::plugin_state::PluginStates;
use pumice_engine::{PolicyInForce, Revision, Snapshot};

/// Commit that a session asks for.
#[derive(Debug)]
pub(crate) struct SessionCommit {
    pub(crate) session: Arc<str>,
    /// Name and profile of the policy.
    pub(crate) policy: (Arc<str>, Arc<str>),
    pub(crate) jobs: Vec<ProposedJob>,
    /// Tasks that the session took off these nodes.
    pub(crate) withdrawn: Vec<(Arc<str>, Arc<str>)>,
}

/// Tasks whose assumption ended, and the first revision that does not count them.
type ReleasedTasks = (Revision, Vec<Arc<str>>);

/// Command about assumptions.
#[derive(Debug)]
pub(crate) enum AssumptionCommand {
    /// Judge a session's placements and assume those that hold.
    Commit(WriterRequest<Box<SessionCommit>, CommitOutcome>),
    /// Judge the placements of calls, and assume those that hold.
    Place(WriterRequest<Box<PlacedCalls>, CommitOutcome>),
    /// List what is held under a name. Changes nothing.
    Recall(WriterRequest<Arc<str>, Vec<TaskPlacement>>),
    /// Assume one task on the first of several nodes that holds.
    Hold(WriterRequest<Box<TaskHold>, HeldTask>),
    /// Release assumptions of a session (empty: of any) and of these tasks (none: of all).
    Release(WriterRequest<(Arc<str>, Vec<Arc<str>>), ReleasedTasks>),
}

impl AssumptionCommand {
    /// True if it was decided, and waits for its group to be written.
    pub(crate) fn waits(&self) -> bool {
        match self {
            Self::Commit(commit) => commit.waits(),
            Self::Place(placed) => placed.waits(),
            Self::Recall(recall) => recall.waits(),
            Self::Hold(hold) => hold.waits(),
            Self::Release(release) => release.waits(),
        }
    }

    /// Sends the reply: the change is durable, and visible from this revision on.
    pub(crate) fn reply(self, revision: Revision) {
        match self {
            Self::Commit(commit) => commit.reply(|outcome| CommitOutcome { revision, ..outcome }),
            Self::Place(placed) => placed.reply(|outcome| CommitOutcome { revision, ..outcome }),
            Self::Recall(recall) => recall.reply(|held| held),
            Self::Hold(hold) => hold.reply(|held| HeldTask { revision, ..held }),
            Self::Release(release) => release.reply(|(_, released)| (revision, released)),
        }
    }

    /// Reports an error: the command had no effect.
    pub(crate) fn reply_error(self, error: StateError) {
        match self {
            Self::Commit(commit) => commit.reply_error(error),
            Self::Place(placed) => placed.reply_error(error),
            Self::Recall(recall) => recall.reply_error(error),
            Self::Hold(hold) => hold.reply_error(error),
            Self::Release(release) => release.reply_error(error),
        }
    }
}

/// Context in which the writer judges a commit.
#[derive(Debug)]
pub(crate) struct CommitContext<'a> {
    /// State that accepted placements are put into.
    pub(crate) cluster_state: &'a mut ClusterState,
    /// Next snapshot, with its policies.
    pub(crate) next: &'a Snapshot,
    /// Newest published snapshot, if it has the same state.
    pub(crate) newest: Option<Arc<Snapshot>>,
    /// Durability that the commit will have.
    pub(crate) durability: Durability,
}

/// Assumptions and their limits.
#[derive(Debug)]
pub(crate) struct CommitArbiter {
    pub(crate) assumptions: AssumedPlacements,
    pub(super) limit: usize,
    pub(super) checks: CommitChecks,
}

impl CommitArbiter {
    pub(crate) fn open(limits: &StateLimits, stored_state: &StoredState) -> Self {
        Self {
            assumptions: AssumedPlacements::open(limits, stored_state),
            limit: limits.assumptions,
            checks: CommitChecks::All,
        }
    }

    #[cfg(debug_assertions)]
    pub(crate) fn without_checks(&mut self, without: bool) {
        self.checks = if without { CommitChecks::Off } else { CommitChecks::All };
    }

    /// Drafts a commit, a hold or a release, and decides it by that.
    pub(crate) fn draft(&self, asked: &mut AssumptionCommand, draft: &mut AssumptionDraft, context: CommitContext<'_>) {
        match asked {
            AssumptionCommand::Release(release) => {
                let (session, tasks) = &release.asked;
                let state = context.cluster_state;
                let released = self.assumptions.draft_release(draft, session, tasks, state);
                release.decide(Ok((context.next.revision, released)));
            }
            AssumptionCommand::Place(placed) => placed.decide(self.draft_placed(&placed.asked, draft, context)),
            AssumptionCommand::Recall(recall) => {
                let held = self.assumptions.held_under(draft, &recall.asked);
                recall.decide(Ok(held));
            }
            AssumptionCommand::Hold(hold) => hold.decide(self.draft_hold(&hold.asked, draft, context)),
            AssumptionCommand::Commit(commit) => commit.decide(self.draft_commit(&commit.asked, draft, context)),
        }
    }

    /// Checks that this many more placements can be assumed. `asked` says what for, in the message of the error.
    pub(super) fn check_room(
        &self,
        draft: &AssumptionDraft,
        placements: usize,
        asked: impl FnOnce() -> String,
    ) -> Result<(), StateError> {
        let there = self.assumptions.len_with(draft);
        if there + placements <= self.limit {
            return Ok(());
        }
        let message = format!("{there} are in use, and {}", asked());
        Err(limit_error("assumptions", self.limit, message))
    }

    fn draft_commit(
        &self,
        commit: &SessionCommit,
        draft: &mut AssumptionDraft,
        context: CommitContext<'_>,
    ) -> Result<CommitOutcome, StateError> {
        let CommitContext {
            cluster_state,
            next,
            newest,
            durability,
        } = context;
        let placements: usize = commit.jobs.iter().map(|job| job.placements.len()).sum();
        self.check_room(draft, placements, || format!("the commit has {placements} placements"))?;
        let policy = policy_in_snapshot(next, &commit.policy.0, &commit.policy.1)?;
        // A commit takes the place of an earlier one of its session, whose outcome was not known and which is in the log.
        let mut replaced = self.assumptions.draft_repeat(draft, &commit.session, cluster_state);
        let mut released = Vec::new();
        for (task, node) in &commit.withdrawn {
            if self.assumptions.draft_release_from(draft, task, node, cluster_state) {
                released.push(Arc::clone(task));
            }
        }
        let derived = states_to_judge(
            &policy,
            newest.filter(|_| released.is_empty() && replaced.is_empty()),
            cluster_state,
        );
        let scope = (CommitScope::Sessions, self.checks);
        let jobs: Vec<&ProposedJob> = commit.jobs.iter().collect();
        let judged = judge_commit(cluster_state, &policy, derived, &jobs, scope);
        *cluster_state = judged.cluster_state;
        for reported in judged.placed {
            replaced.retain(|task| *task != reported.name);
            self.assumptions
                .draft_placement(draft, reported, cluster_state, (&commit.session, None));
        }
        released.extend(replaced);
        Ok(CommitOutcome {
            released,
            ..CommitOutcome::of_jobs(next.revision, &policy, durability, judged.jobs)
        })
    }
}

/// Plugin states of a cluster state, as far as judging placements needs them; `newest`: the published snapshot that has the state.
pub(super) fn states_to_judge(
    policy: &PolicyInForce,
    newest: Option<Arc<Snapshot>>,
    cluster_state: &ClusterState,
) -> PluginStates {
    match newest {
        _ if !policy.policy.places_by_plugin_state() => PluginStates::default(),
        Some(newest) => newest.plugin_states(policy),
        None => policy.policy.compute_plugin_states(cluster_state),
    }
}

/// Changes of a session, sorted for the commit.
#[derive(Debug, Default)]
struct SessionOutcome {
    /// Jobs in the order of their first placements.
    jobs: Vec<ProposedJob>,
    withdrawn: Vec<(Arc<str>, Arc<str>)>,
    evicted: Vec<Arc<str>>,
    pipelined: Vec<Arc<str>>,
}

impl SessionOutcome {
    fn of_cycle(cycle: &SchedulingCycle) -> Self {
        let mut done = Self::default();
        let mut placed: Vec<(&TaskMoved, &StoredRecord<TaskRecord>)> = Vec::new();
        for (task, moved) in cycle.moved_tasks() {
            let Some(stored) = cycle.cluster_state().tasks().get(task) else {
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
                done.jobs.push(ProposedJob {
                    job: Arc::clone(job),
                    uid: cycle
                        .cluster_state()
                        .jobs()
                        .get(job)
                        .map(|job| Arc::clone(&job.record.uid)),
                    placements: Vec::new(),
                });
            }
            if let Some(own) = done.jobs.get_mut(place) {
                own.placements.push(proposed_placement(cycle, moved, stored));
            }
        }
        done
    }

    /// Maximum number of items that the outcome of the commit can have: a job, each of its placements, and the job as a
    /// whole may be rejected.
    fn max_outcome_items(&self) -> usize {
        let jobs: usize = self.jobs.iter().map(|job| job.placements.len() + 2).sum();
        jobs + self.withdrawn.len() + self.evicted.len() + self.pipelined.len()
    }

    /// Selects the named jobs, in this order; all jobs if none is named.
    fn select_jobs(&mut self, names: &[Arc<str>]) {
        if names.is_empty() {
            return;
        }
        let mut all: BTreeMap<Arc<str>, ProposedJob> = std::mem::take(&mut self.jobs)
            .into_iter()
            .map(|job| (Arc::clone(&job.job), job))
            .collect();
        let one = |name: &Arc<str>| {
            all.remove(name).unwrap_or_else(|| ProposedJob {
                job: Arc::clone(name),
                ..ProposedJob::default()
            })
        };
        self.jobs = names.iter().map(one).collect();
    }
}

fn proposed_placement(
    cycle: &SchedulingCycle,
    moved: &TaskMoved,
    stored: &StoredRecord<TaskRecord>,
) -> ProposedPlacement {
    let record = &stored.record;
    let node = cycle.cluster_state().node_by_name(&record.node);
    ProposedPlacement {
        placement: TaskPlacement {
            task: Arc::clone(&record.name),
            node: Arc::clone(&record.node),
            card: Arc::clone(&moved.card),
            devices: record.assigned_devices(),
        },
        uid: record.uid.clone(),
        node_uid: node.map_or_else(Arc::default, |node| Arc::clone(&node.record.uid)),
    }
}

impl SharedState {
    /// Commits the allocations of a session as they are after these changes, job by job: the named jobs in that order,
    /// or all in the order of their first placements. Ends the session; a retry gets the recorded outcome.
    ///
    /// This waits for the writer: never call it on an async thread. `before_wait` is called before it waits.
    ///
    /// # Errors
    /// The errors of [`Self::step_session`]; a job is named twice; the session is on a cluster of its own; a limit is exceeded;
    /// or the policy no longer exists. The session stays open.
    pub fn commit_session(
        &self,
        session: &str,
        after: u64,
        changes: &[SessionChange],
        jobs: &[Arc<str>],
        before_wait: impl FnOnce(),
    ) -> Result<Arc<CommitOutcome>, StateError> {
        if let Some(outcome) = self.sessions.ended.commit_outcome(session) {
            return Ok(outcome);
        }
        let names: BTreeSet<&Arc<str>> = jobs.iter().collect();
        if names.len() < jobs.len() {
            return Err(StateError::JobsRepeated);
        }
        let busy = self.sessions.find(session)?;
        let begun = SessionTransaction::begin(&self.sessions, busy);
        // Another commit may have ended it since it was looked up.
        if let Some(outcome) = self.sessions.ended.commit_outcome(session) {
            return Ok(outcome);
        }
        let transaction = begun?;
        let own = transaction.session();
        let Some(policy) = own.shared.clone() else {
            return Err(StateError::SessionInline {
                session: session.into(),
            });
        };
        let inner = transaction.apply(after, changes)?;
        let mut done = SessionOutcome::of_cycle(&inner.cycle);
        done.select_jobs(jobs);
        self.check_commit_limit(own, &done)?;
        let _room = self.sessions.reserve_outcome(done.max_outcome_items())?;
        self.warm_plugin_states(&policy);
        let commit = SessionCommit {
            session: Arc::clone(&own.name),
            policy,
            jobs: done.jobs,
            withdrawn: done.withdrawn,
        };
        let (reply, outcome) = oneshot::channel();
        before_wait();
        let request = WriterRequest::new(Box::new(commit), reply);
        self.send_assumption_blocking(AssumptionCommand::Commit(request))?;
        let outcome = outcome.blocking_recv().map_err(|_| StateError::ShuttingDown)??;
        Ok(self.end_committed(
            own,
            &inner,
            CommitOutcome {
                evicted: done.evicted,
                pipelined: done.pipelined,
                ..outcome
            },
        ))
    }

    fn end_committed(
        &self,
        session: &SessionEntry,
        inner: &SessionState,
        outcome: CommitOutcome,
    ) -> Arc<CommitOutcome> {
        let outcome = Arc::new(CommitOutcome {
            applied_through: inner.applied,
            ..outcome
        });
        self.sessions.end_committed(session, Arc::clone(&outcome));
        outcome
    }

    fn check_commit_limit(&self, session: &SessionEntry, done: &SessionOutcome) -> Result<(), StateError> {
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
        Err(limit_error("commit_placements", most, message))
    }

    /// Computes plugin states on this thread, so that the writer need not compute them while others wait.
    pub(super) fn warm_plugin_states(&self, (name, profile): &(Arc<str>, Arc<str>)) {
        let snapshot = self.snapshot();
        if let Ok(policy) = policy_in_snapshot(&snapshot, name, profile)
            && policy.policy.places_by_plugin_state()
        {
            snapshot.plugin_states(&policy);
        }
    }

    /// Releases assumptions: those that a session's commit made (empty: any commit), of these tasks, or of all tasks if
    /// none is named. Returns the first revision that does not count them, and their tasks.
    ///
    /// # Errors
    /// Neither a session nor a task is named; or the writer has ended.
    pub async fn release_assumptions(
        &self,
        session: &str,
        tasks: Vec<Arc<str>>,
    ) -> Result<(Revision, Vec<Arc<str>>), StateError> {
        if session.is_empty() && tasks.is_empty() {
            return Err(StateError::NothingNamed);
        }
        let (reply, released) = oneshot::channel();
        let release = AssumptionCommand::Release(WriterRequest::new((session.into(), tasks), reply));
        self.send(assumption_command(release)).await?;
        released.await.map_err(|_| StateError::ShuttingDown)?
    }

    pub(super) fn send_assumption_blocking(&self, asked: AssumptionCommand) -> Result<(), StateError> {
        self.commands
            .blocking_send(assumption_command(asked))
            .map_err(|_| StateError::ShuttingDown)
    }
}

pub(super) fn assumption_command(asked: AssumptionCommand) -> WriterCommand {
    WriterCommand::Durable(DurableCommand::Assume(Box::new(asked)))
}
