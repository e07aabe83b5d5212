//! Placements that the server chose in the call that commits them: each call's placement holds as a whole, or not at all.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::commit::{AssumptionCommand, CommitArbiter, CommitContext, assumption_command, states_to_judge};
use super::commit_judge::{CommitScope, judge_commit};
use super::commit_outcome::{CommitOutcome, ProposedJob};
use super::steps::policy_in_snapshot;
use crate::SharedState;
use crate::error::{StateError, limit_error};
use crate::ledger::assumptions::AssumptionDraft;
use crate::writer::ports::WriterRequest;
use pumice_engine::cycle::TaskPlacement;
use pumice_engine::devices::DeviceMask;
use pumice_engine::model::{ClusterState, Problem, RecordKind, TaskRecord, TaskStatus};
use pumice_engine::plugin_state::{PlacementEvent, PluginStates, TaskTransition};

/// Placement of one call.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacedCall {
    /// Name that the placement is held under: the one that a release gives as that of a session.
    pub hold: Arc<str>,
    /// Job of the call, with the nodes that were chosen for its tasks.
    pub job: ProposedJob,
}

/// Placements of calls under one policy, judged one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacedCalls {
    /// Name and profile of the policy.
    pub policy: (Arc<str>, Arc<str>),
    /// The calls, each with its placement.
    pub calls: Arc<Vec<PlacedCall>>,
}

/// Commit that the writer has, or will have after others.
#[derive(Debug)]
pub struct CommitUnderWay(oneshot::Receiver<Result<CommitOutcome, StateError>>);

impl CommitUnderWay {
    /// Outcome of the commit.
    ///
    /// # Errors
    /// The policy no longer exists, the store cannot be written, or the writer has ended: nothing was committed.
    pub async fn outcome(self) -> Result<CommitOutcome, StateError> {
        self.0.await.map_err(|_| StateError::ShuttingDown)?
    }

    /// Outcome of the commit, on a thread that may wait.
    fn wait(self) -> Result<CommitOutcome, StateError> {
        self.0.blocking_recv().map_err(|_| StateError::ShuttingDown)?
    }
}

impl PlacedCall {
    /// Counts the placement in a cluster state and in plugin states, as its commit will. Tasks that have their place already are
    /// not counted again.
    ///
    /// # Errors
    /// A plugin cannot count it: the caller discards both.
    pub fn count(&self, cluster_state: &mut ClusterState, plugin_states: &mut PluginStates) -> Result<(), Problem> {
        for proposed in &self.job.placements {
            let TaskPlacement {
                task,
                node,
                card,
                devices,
            } = &proposed.placement;
            let stored = cluster_state.tasks().get(task);
            let Some(stored) = stored.filter(|stored| stored.record.status == TaskStatus::Pending) else {
                continue;
            };
            let stored = Arc::clone(stored);
            let put = (&stored.record, node, card, *devices);
            count_placement(cluster_state, plugin_states, put)?;
        }
        Ok(())
    }
}

/// Counts a pending task on a node, with its card and devices, in the cluster state and in plugin states.
///
/// # Errors
/// A plugin cannot count it; nothing has changed.
pub(super) fn count_placement(
    cluster_state: &mut ClusterState,
    plugin_states: &mut PluginStates,
    (before, node, card, devices): (&TaskRecord, &Arc<str>, &Arc<str>, DeviceMask),
) -> Result<(), Problem> {
    if cluster_state.assume(&before.name, node, card, devices).is_none() || plugin_states.is_empty() {
        return Ok(());
    }
    let Some(stored) = cluster_state.tasks().get(&before.name).cloned() else {
        return Ok(());
    };
    let moved = TaskTransition {
        before,
        after: &stored.record,
        card,
    };
    let mut next = plugin_states.clone();
    if let Err(problem) = next.apply(cluster_state, &PlacementEvent::Allocate(moved)) {
        uncount_placement(cluster_state, before.clone());
        return Err(problem);
    }
    *plugin_states = next;
    Ok(())
}

/// Makes a cluster state show a counted task as it was before.
pub(super) fn uncount_placement(cluster_state: &mut ClusterState, before: TaskRecord) {
    let task = Arc::clone(&before.name);
    let Some(stored) = cluster_state.tasks().get(&task).cloned() else {
        return;
    };
    cluster_state.put_task(before, &stored.source);
    if stored.invalid().is_some() {
        cluster_state.set_invalid(RecordKind::Task, &task, stored.invalid().cloned());
    }
}

impl CommitArbiter {
    /// Drafts placements of calls: each as a whole, in their order. The outcome has a job for each call.
    pub(super) fn draft_placed(
        &self,
        asked: &PlacedCalls,
        draft: &mut AssumptionDraft,
        context: CommitContext<'_>,
    ) -> Result<CommitOutcome, StateError> {
        let CommitContext {
            cluster_state,
            next,
            newest,
            durability,
        } = context;
        let placements: usize = asked.calls.iter().map(|call| call.job.placements.len()).sum();
        self.check_room(draft, placements, || {
            format!("{placements} placements are to be committed")
        })?;
        let policy = policy_in_snapshot(next, &asked.policy.0, &asked.policy.1)?;
        let derived = states_to_judge(&policy, newest, cluster_state);
        let jobs: Vec<&ProposedJob> = asked.calls.iter().map(|call| &call.job).collect();
        let judged = judge_commit(
            cluster_state,
            &policy,
            derived,
            &jobs,
            (CommitScope::WholeJobs, self.checks),
        );
        *cluster_state = judged.cluster_state;
        let mut placed = judged.placed.into_iter();
        for (call, outcome) in asked.calls.iter().zip(&judged.jobs) {
            let own = if outcome.committed {
                call.job.placements.len()
            } else {
                0
            };
            for reported in placed.by_ref().take(own) {
                self.assumptions
                    .draft_placement(draft, reported, cluster_state, (&call.hold, None));
            }
        }
        Ok(CommitOutcome::of_jobs(next.revision, &policy, durability, judged.jobs))
    }
}

impl SharedState {
    /// Commits placements of calls under one policy, each call's as a whole. The outcome has a job for each call, in their
    /// order; a call that does not hold has its rejections there.
    ///
    /// This waits for the writer: never call it on an async thread. `before_wait` is called before it waits.
    ///
    /// # Errors
    /// A limit is exceeded, the policy no longer exists, the store cannot be written, or the writer has ended: nothing was
    /// committed.
    pub fn commit_placed(&self, calls: PlacedCalls, before_wait: impl FnOnce()) -> Result<CommitOutcome, StateError> {
        self.prepare_commit_placed(&calls)?;
        before_wait();
        self.send_placed(calls)?.wait()
    }

    /// Sends placements to the writer as [`Self::commit_placed`] does, without waiting for their outcome. Commits end in the
    /// order in which they were sent.
    ///
    /// This may wait for a place in the writer's queue: never call it on an async thread.
    ///
    /// # Errors
    /// A limit is exceeded, or the writer has ended: nothing was sent.
    pub fn begin_commit_placed(&self, calls: PlacedCalls) -> Result<CommitUnderWay, StateError> {
        self.prepare_commit_placed(&calls)?;
        self.send_placed(calls)
    }

    /// Checks the limit of placements, and computes the plugin states that the writer reads.
    fn prepare_commit_placed(&self, calls: &PlacedCalls) -> Result<(), StateError> {
        let most = self.limits.commit_placements;
        if let Some(large) = calls.calls.iter().find(|call| call.job.placements.len() > most) {
            let message = format!("the placement has {} tasks", large.job.placements.len());
            return Err(limit_error("commit_placements", most, message));
        }
        self.warm_plugin_states(&calls.policy);
        Ok(())
    }

    fn send_placed(&self, calls: PlacedCalls) -> Result<CommitUnderWay, StateError> {
        let (reply, outcome) = oneshot::channel();
        self.send_assumption_blocking(AssumptionCommand::Place(WriterRequest::new(Box::new(calls), reply)))?;
        Ok(CommitUnderWay(outcome))
    }

    /// Placements that are held under a name, by task, as the writer has them.
    ///
    /// # Errors
    /// The store cannot be read, or the writer has ended.
    pub async fn held_placements(&self, hold: Arc<str>) -> Result<Vec<TaskPlacement>, StateError> {
        let (reply, listed) = oneshot::channel();
        let asked = AssumptionCommand::Recall(WriterRequest::new(hold, reply));
        self.send(assumption_command(asked)).await?;
        listed.await.map_err(|_| StateError::ShuttingDown)?
    }
}
