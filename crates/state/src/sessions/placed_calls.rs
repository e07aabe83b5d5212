//! Placements to commit: of a session, of calls that choose nodes, or of a task that is held.

use std::sync::Arc;
use std::time::Duration;

use super::commit_outcome::ProposedJob;
use super::placement_count::count_placement;
use pumice_engine::cycle::TaskPlacement;
use pumice_engine::model::{ClusterState, Problem, TaskStatus};
use pumice_engine::plugin_state::PluginStates;

/// Placement of one job, or of one call.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacedCall {
    /// Name of the placement, such as the name of its session. A release passes it as the session.
    pub hold: Arc<str>,
    /// Job of the call, with the nodes that were chosen for its tasks.
    pub job: ProposedJob,
}

/// Kind of commit, which decides what has to hold.
#[derive(Clone, Debug, PartialEq)]
pub enum CommitScope {
    /// A session, which leaves everything to the server: nodes need free capacity, and gangs have to be whole.
    Session {
        /// Name of the session. An earlier commit of it whose outcome was unknown is replaced.
        session: Arc<str>,
        /// Tasks that the session took off these nodes.
        withdrawn: Vec<(Arc<str>, Arc<str>)>,
    },
    /// Calls for which the server chose nodes: likewise, and each placement holds as a whole, or not at all.
    Calls,
    /// A scheduler that sees to free capacity and gangs itself. Each placement is the same task on another node, and the first
    /// that holds is taken. A hold of the task before it ends.
    Hold {
        /// Name of the task.
        task: Arc<str>,
        /// Time for which the task is held.
        lease: Duration,
    },
}

/// Placements under one policy, evaluated one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacementCommit {
    /// Name and profile of the policy.
    pub policy: (Arc<str>, Arc<str>),
    /// Kind of commit.
    pub scope: CommitScope,
    /// Placements, in the order of their evaluation.
    pub calls: Arc<Vec<PlacedCall>>,
}

impl PlacementCommit {
    /// Number of placements that may be assumed.
    pub(super) fn placement_count(&self) -> usize {
        match self.scope {
            CommitScope::Session { .. } | CommitScope::Calls => {
                self.calls.iter().map(|call| call.job.placements.len()).sum()
            }
            CommitScope::Hold { .. } => 1,
        }
    }

    /// Session, placement or task by which the commit is found again.
    pub(crate) fn key(&self) -> String {
        match (&self.scope, self.calls.as_slice()) {
            (CommitScope::Session { session, .. }, _) => format!("session `{session}`"),
            (CommitScope::Hold { task, .. }, _) => format!("task `{task}`"),
            (CommitScope::Calls, [call]) => format!("placement `{}`", call.hold),
            (CommitScope::Calls, _) => String::new(),
        }
    }
}

impl PlacedCall {
    /// Applies the placement to a cluster state and to plugin states, as its commit does. Tasks that already have a
    /// node are skipped.
    ///
    /// # Errors
    /// A plugin cannot apply the placement. The caller must discard both states.
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
