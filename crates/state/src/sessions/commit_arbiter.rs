//! The writer's part of commits and holds: it drafts their assumptions.

use std::sync::Arc;

use super::commit_judge::{CommitChecks, judge_commit};
use super::commit_outcome::{CommitOutcome, CommitRejection, JobCommitOutcome, ProposedJob};
use super::placed_calls::{CommitScope, PlacementCommit};
use crate::error::{LimitHolder, StateError, held_limit_error};
use crate::ledger::assumptions::{AssumedPlacements, AssumptionDraft};
use crate::limits::StateLimits;
use crate::policies::policy_in_snapshot;
use crate::store::{Durability, StoredState};
use pumice_engine::model::{ClusterState, RejectionCode};
use pumice_engine::plugin_state::PluginStates;
use pumice_engine::{PolicyInForce, Snapshot};

/// Context in which the writer evaluates a commit.
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
    limit: usize,
    checks: CommitChecks,
}

impl CommitArbiter {
    pub(crate) fn open(limits: &StateLimits, stored_state: &StoredState) -> Self {
        Self {
            assumptions: AssumedPlacements::open(limits, stored_state),
            limit: limits.assumptions,
            checks: CommitChecks::All,
        }
    }

    #[cfg(any(test, feature = "test-doors"))]
    pub(crate) fn without_checks(&mut self, without: bool) {
        self.checks = if without { CommitChecks::Off } else { CommitChecks::All };
    }

    /// Checks that this many more placements can be assumed.
    fn check_room(&self, draft: &AssumptionDraft, placements: usize) -> Result<(), StateError> {
        let there = self.assumptions.len_with(draft);
        if there + placements <= self.limit {
            return Ok(());
        }
        let message = format!("{there} are in use, and {placements} more are to be committed");
        Err(held_limit_error(
            LimitHolder::Callers,
            "assumptions",
            self.limit,
            message,
        ))
    }

    /// Drafts placements, in their order. The outcome has a job for each that was evaluated.
    pub(crate) fn draft_commit(
        &self,
        commit: &PlacementCommit,
        draft: &mut AssumptionDraft,
        context: CommitContext<'_>,
    ) -> Result<CommitOutcome, StateError> {
        let CommitContext {
            cluster_state,
            next,
            newest,
            durability,
        } = context;
        self.check_room(draft, commit.placement_count())?;
        let policy = policy_in_snapshot(next, &commit.policy.0, &commit.policy.1)?;
        let mut replaced = self.draft_replaced(&commit.scope, draft, cluster_state);
        let mut released = self.draft_withdrawn(&commit.scope, draft, cluster_state);
        let is_same = released.is_empty() && replaced.is_empty();
        let derived = states_to_judge(&policy, newest.filter(|_| is_same), cluster_state);
        // The nodes of a hold are tried one by one.
        let (lease, together) = match &commit.scope {
            CommitScope::Session { .. } | CommitScope::Calls => (None, commit.calls.len().max(1)),
            CommitScope::Hold { lease, .. } => (Some(*lease), 1),
        };
        let mut outcomes = Vec::with_capacity(commit.calls.len());
        for calls in commit.calls.chunks(together) {
            let jobs: Vec<&ProposedJob> = calls.iter().map(|call| &call.job).collect();
            let scope = (&commit.scope, self.checks);
            let judged = judge_commit(cluster_state, &policy, derived.clone(), &jobs, scope);
            *cluster_state = judged.cluster_state;
            let mut placed = judged.placed.into_iter();
            for (call, outcome) in calls.iter().zip(&judged.jobs).filter(|(_, outcome)| outcome.committed) {
                let count = call.job.placements.len().saturating_sub(outcome.rejections.len());
                for reported in placed.by_ref().take(count) {
                    replaced.retain(|task| *task != reported.name);
                    self.assumptions
                        .draft_placement(draft, reported, cluster_state, (&call.hold, lease));
                }
            }
            let is_over = judged.jobs.iter().any(ends_attempts);
            outcomes.extend(judged.jobs);
            if is_over {
                break;
            }
        }
        released.extend(replaced);
        Ok(CommitOutcome {
            released,
            ..CommitOutcome::of_jobs(next.revision, &policy, durability, outcomes)
        })
    }

    /// Drafts the end of what a commit replaces: a hold of the same task, or an earlier commit of the same session whose
    /// outcome was not known and which is in the log.
    fn draft_replaced(
        &self,
        scope: &CommitScope,
        draft: &mut AssumptionDraft,
        cluster_state: &mut ClusterState,
    ) -> Vec<Arc<str>> {
        match scope {
            CommitScope::Session { session, .. } => self.assumptions.draft_repeat(draft, session, cluster_state),
            CommitScope::Calls => Vec::new(),
            CommitScope::Hold { task, .. } => {
                let own = std::slice::from_ref(task);
                self.assumptions.draft_release(draft, "", own, cluster_state)
            }
        }
    }

    /// Drafts the end of assumptions whose tasks a session took off their nodes.
    fn draft_withdrawn(
        &self,
        scope: &CommitScope,
        draft: &mut AssumptionDraft,
        cluster_state: &mut ClusterState,
    ) -> Vec<Arc<str>> {
        let withdrawn: &[(Arc<str>, Arc<str>)] = match scope {
            CommitScope::Session { withdrawn, .. } => withdrawn,
            CommitScope::Calls | CommitScope::Hold { .. } => &[],
        };
        let mut released = Vec::new();
        for (task, node) in withdrawn {
            if self.assumptions.draft_release_from(draft, task, node, cluster_state) {
                released.push(Arc::clone(task));
            }
        }
        released
    }
}

/// True if a hold tries no further node: it is held, or what is wrong with the task is wrong with it everywhere.
fn ends_attempts(outcome: &JobCommitOutcome) -> bool {
    let is_of_task = |rejection: &CommitRejection| {
        matches!(
            RejectionCode::from_name(rejection.reason.code),
            Some(RejectionCode::TaskGone | RejectionCode::TaskReplaced | RejectionCode::TaskNotPending)
        )
    };
    outcome.committed || outcome.rejections.iter().any(is_of_task)
}

/// Plugin states of a cluster state, as far as judging placements needs them; `newest`: the published snapshot that has the state.
fn states_to_judge(
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
