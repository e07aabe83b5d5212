//! Holds: an assumption for one task on the first valid node of a list. The scheduler that requests a hold then places
//! the task itself.

use std::sync::Arc;
use std::time::Duration;

use super::commit_outcome::{ProposedJob, ProposedPlacement};
use super::placed_calls::{CommitScope, PlacedCall, PlacementCommit};
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

impl TaskHold {
    /// The commit that holds the task on the first of its nodes.
    pub(super) fn into_commit(self) -> PlacementCommit {
        let call = |node: Arc<str>| PlacedCall {
            hold: Arc::clone(&self.holder),
            job: ProposedJob {
                job: Arc::clone(&self.job),
                uid: None,
                placements: vec![ProposedPlacement {
                    placement: TaskPlacement {
                        task: Arc::clone(&self.task),
                        node,
                        card: Arc::default(),
                        devices: DeviceMask::default(),
                    },
                    uid: self.uid.clone(),
                    node_uid: Arc::default(),
                }],
            },
        };
        PlacementCommit {
            policy: self.policy,
            calls: Arc::new(self.nodes.into_iter().map(call).collect()),
            scope: CommitScope::Hold {
                task: self.task,
                lease: self.lease,
            },
        }
    }
}
