//! Holds: an assumption for one task on the first valid node of a list. The scheduler that requests a hold then places
//! the task itself.

use std::sync::Arc;
use std::time::Duration;

use super::commit_outcome::{CommitRejection, ProposedJob, ProposedPlacement};
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
    /// Name of the holder. A release passes it as the session.
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

impl TaskHold {
    /// The task on a node, as a commit proposes it.
    pub(super) fn on(&self, node: &Arc<str>) -> ProposedJob {
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
