//! Commit of a session: its changes, sorted for the writer, and its end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::commit_outcome::{CommitOutcome, ProposedJob, ProposedPlacement};
use super::placed_calls::{CommitScope, PlacedCall, PlacementCommit};
use super::session_entry::SessionEntry;
use super::transaction::SessionTransaction;
use crate::SharedState;
use crate::error::{StateError, limit_error};
use pumice_engine::cycle::{SchedulingCycle, SessionChange, TaskMoved, TaskPlacement};
use pumice_engine::model::{StoredRecord, TaskRecord, TaskStatus};

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
        let call = |job| PlacedCall {
            hold: Arc::clone(&own.name),
            job,
        };
        let commit = PlacementCommit {
            policy,
            calls: Arc::new(done.jobs.into_iter().map(call).collect()),
            scope: CommitScope::Session {
                session: Arc::clone(&own.name),
                withdrawn: done.withdrawn,
            },
        };
        before_wait();
        let outcome = self.send_commit(commit)?.wait()?;
        let outcome = Arc::new(CommitOutcome {
            evicted: done.evicted,
            pipelined: done.pipelined,
            applied_through: inner.applied,
            ..outcome
        });
        self.sessions.end_committed(own, Arc::clone(&outcome));
        Ok(outcome)
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
}
