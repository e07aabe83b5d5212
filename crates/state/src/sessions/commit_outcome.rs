//! Placements that are proposed to the writer, and the outcomes of commits.

use std::sync::Arc;

use crate::store::Durability;
use pumice_engine::cycle::TaskPlacement;
use pumice_engine::model::Uid;
use pumice_engine::plugin::{Measurement, Reason};
use pumice_engine::{PolicyInForce, Revision};

/// Outcome of a commit: accepted and rejected placements by job, with the first revision that shows them.
#[derive(Clone, Debug, PartialEq)]
pub struct CommitOutcome {
    /// First revision that shows the placements.
    pub revision: Revision,
    /// Name, version and hash of the evaluated policy.
    pub policy: (Arc<str>, u64, Arc<str>),
    /// Number of the session's last change.
    pub applied_through: u64,
    /// Durability of the placements.
    pub durability: Durability,
    /// Outcomes by job, in the order of evaluation.
    pub jobs: Vec<JobCommitOutcome>,
    /// Names of tasks whose assumption ended.
    pub released: Vec<Arc<str>>,
    /// Names of tasks that the session evicted; evictions are not committed.
    pub evicted: Vec<Arc<str>>,
    /// Names of tasks that the session pipelined; pipelined tasks are not committed.
    pub pipelined: Vec<Arc<str>>,
}

impl CommitOutcome {
    /// Outcome of an evaluated commit without further results.
    pub(crate) fn of_jobs(
        revision: Revision,
        policy: &PolicyInForce,
        durability: Durability,
        jobs: Vec<JobCommitOutcome>,
    ) -> Self {
        Self {
            revision,
            policy: (Arc::clone(&policy.name), policy.version, Arc::clone(&policy.hash)),
            applied_through: 0,
            durability,
            jobs,
            released: Vec::new(),
            evicted: Vec::new(),
            pipelined: Vec::new(),
        }
    }

    /// Number of jobs, tasks and conflicts in the outcome.
    pub(crate) fn item_count(&self) -> usize {
        let conflicts: usize = self.jobs.iter().map(|job| job.rejections.len()).sum();
        self.jobs.len() + conflicts + self.released.len() + self.evicted.len() + self.pipelined.len()
    }
}

/// Result of a commit, restricted to one job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobCommitOutcome {
    /// Name of the job; empty: tasks without a job.
    pub job: Arc<str>,
    /// True if any placement of the job was committed.
    pub committed: bool,
    /// Placements that were not committed.
    pub rejections: Vec<CommitRejection>,
}

/// Placement that was not committed, with its reason.
#[derive(Clone, Debug, PartialEq)]
pub struct CommitRejection {
    /// Rejected placement; `None`: the request named the job, and the session placed none of its tasks.
    pub placement: Option<TaskPlacement>,
    /// Reason with measurements, for example too few idle GPUs on the node.
    pub reason: Reason,
    /// Measurements of the reason.
    pub measurements: Vec<Measurement>,
}

/// Placement as it was decided.
#[derive(Clone, Debug, PartialEq)]
pub struct ProposedPlacement {
    /// The task, its node, its card and its devices.
    pub placement: TaskPlacement,
    /// Incarnation of the task when that was decided; empty: not given.
    pub uid: Uid,
    /// Incarnation of the node when that was decided; empty: not given.
    pub node_uid: Arc<str>,
}

/// Placements of one job, in the order in which they were decided.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProposedJob {
    /// Name of the job; empty: tasks without a job.
    pub job: Arc<str>,
    /// Kubernetes uid of the job at the decision. `None`: the job did not exist.
    pub uid: Option<Arc<str>>,
    /// Proposed nodes of the job's tasks.
    pub placements: Vec<ProposedPlacement>,
}
