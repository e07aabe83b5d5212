//! The writer's part of commits, holds and releases: it drafts their assumptions, and decides the commands by that.

use std::sync::Arc;

use super::assumption_command::{AssumptionCommand, SessionCommit};
use super::commit_judge::{COMMIT_PLUGIN, CommitChecks, CommitScope, judge_commit};
use super::commit_outcome::{CommitOutcome, ProposedJob};
use super::hold::{HeldTask, TaskHold};
use super::placed_calls::PlacedCalls;
use crate::error::{StateError, limit_error};
use crate::ledger::assumptions::{AssumedPlacements, AssumptionDraft};
use crate::limits::StateLimits;
use crate::policies::policy_in_snapshot;
use crate::store::{Durability, StoredState};
use pumice_engine::model::ClusterState;
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

    /// Checks that this many more placements can be assumed. `asked` describes the purpose in the error message.
    fn check_room(
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

    /// Drafts placements of calls: each as a whole, in their order. The outcome has a job for each call.
    fn draft_placed(
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

    /// Drafts a hold: tries the nodes in order.
    fn draft_hold(
        &self,
        hold: &TaskHold,
        draft: &mut AssumptionDraft,
        context: CommitContext<'_>,
    ) -> Result<HeldTask, StateError> {
        let CommitContext {
            cluster_state,
            next,
            newest,
            durability: _,
        } = context;
        self.check_room(draft, 1, || format!("task `{}` would be one more", hold.task))?;
        let policy = policy_in_snapshot(next, &hold.policy.0, &hold.policy.1)?;
        let before = [Arc::clone(&hold.task)];
        let released = self.assumptions.draft_release(draft, "", &before, cluster_state);
        let derived = states_to_judge(&policy, newest.filter(|_| released.is_empty()), cluster_state);
        let mut first = None;
        for node in &hold.nodes {
            let scope = (CommitScope::SingleTasks, self.checks);
            let judged = judge_commit(cluster_state, &policy, derived.clone(), &[&hold.on(node)], scope);
            let rejection = judged.jobs.into_iter().flat_map(|job| job.rejections).next();
            let Some(rejection) = rejection else {
                *cluster_state = judged.cluster_state;
                for reported in judged.placed {
                    let holder = (&hold.holder, Some(hold.lease));
                    self.assumptions.draft_placement(draft, reported, cluster_state, holder);
                }
                return Ok(HeldTask {
                    revision: next.revision,
                    node: Some(Arc::clone(node)),
                    rejection: None,
                });
            };
            // What is wrong with the task is wrong with it everywhere.
            let everywhere = &*rejection.reason.plugin == COMMIT_PLUGIN && rejection.reason.code.starts_with("Task");
            first.get_or_insert(rejection);
            if everywhere {
                break;
            }
        }
        Ok(HeldTask {
            revision: next.revision,
            node: None,
            rejection: first,
        })
    }
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
