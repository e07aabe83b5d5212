//! Holds: one task is assumed on the first of several nodes that takes it, for a scheduler that was told about it and will
//! place it itself.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::commit::{AssumptionCommand, CommitArbiter, CommitContext, states_to_judge};
use super::commit_judge::{COMMIT_PLUGIN, CommitScope, judge_commit};
use super::commit_outcome::{CommitRejection, ProposedJob, ProposedPlacement};
use super::steps::policy_in_snapshot;
use crate::SharedState;
use crate::error::StateError;
use crate::ledger::assumptions::AssumptionDraft;
use crate::writer::ports::WriterRequest;
use pumice_engine::Revision;
use pumice_engine::cycle::TaskPlacement;
use pumice_engine::devices::DeviceMask;
use pumice_engine::model::Uid;

/// Task to hold on one of several nodes. A hold of the task before it ends.
#[derive(Clone, Debug)]
pub struct TaskHold {
    /// Name of the task.
    pub task: Arc<str>,
    /// Incarnation of the task; empty: any.
    pub uid: Uid,
    /// Name of its job; empty: none.
    pub job: Arc<str>,
    /// Nodes, the best first. Empty: the task is held nowhere.
    pub nodes: Vec<Arc<str>>,
    /// Name and profile of the policy.
    pub policy: (Arc<str>, Arc<str>),
    /// Who holds: the name that a release gives as that of a session.
    pub holder: Arc<str>,
    /// Time for which the task is held, unless its source shows it on a node or at its end before.
    pub lease: Duration,
}

/// Outcome of a hold.
#[derive(Clone, Debug, PartialEq)]
pub struct HeldTask {
    /// First revision that shows the hold.
    pub revision: Revision,
    /// Node that the task is held on; `None`: none takes it.
    pub node: Option<Arc<str>>,
    /// Why the first node does not take it; `None`: it does, or there is none.
    pub rejection: Option<CommitRejection>,
}

impl CommitArbiter {
    /// Drafts a hold: tries the nodes in order.
    pub(super) fn draft_hold(
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

impl TaskHold {
    /// The task on a node, as a commit proposes it.
    fn on(&self, node: &Arc<str>) -> ProposedJob {
        let placement = TaskPlacement {
            task: Arc::clone(&self.task),
            node: Arc::clone(node),
            card: Arc::default(),
            devices: DeviceMask::default(),
        };
        ProposedJob {
            job: Arc::clone(&self.job),
            uid: None,
            placements: vec![ProposedPlacement {
                placement,
                uid: self.uid.clone(),
                node_uid: Arc::default(),
            }],
        }
    }
}

impl SharedState {
    /// Holds a task on the first of its nodes that takes it, by the newest state.
    ///
    /// This waits for the writer: never call it on an async thread. `before_wait` is called before it waits.
    ///
    /// # Errors
    /// A limit is exceeded, the policy no longer exists, the store cannot be written, or the writer has ended.
    pub fn hold_task(&self, hold: TaskHold, before_wait: impl FnOnce()) -> Result<HeldTask, StateError> {
        self.warm_plugin_states(&hold.policy);
        let (reply, outcome) = oneshot::channel();
        before_wait();
        let request = WriterRequest::new(Box::new(hold), reply);
        self.send_assumption_blocking(AssumptionCommand::Hold(request))?;
        outcome.blocking_recv().map_err(|_| StateError::ShuttingDown)?
    }
}
