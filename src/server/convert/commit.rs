//! What became of a commit, as the wire has it.

use std::sync::Arc;

use crate::engine::cycle::Placement;
use crate::server::pb;
use crate::state::{Committed, Conflict, JobCommitted};

use super::answer;

/// The reply to a commit. `decision_id`: of this reply.
pub fn response(decision_id: String, committed: &Committed) -> pb::CommitSessionResponse {
    let Committed {
        revision,
        policy: (policy, policy_version, policy_hash),
        applied_through,
        durability,
        jobs,
        released,
        evicted,
        pipelined,
    } = committed;
    let effects = pb::SessionEffects {
        applied_through: *applied_through,
        ..pb::SessionEffects::default()
    };
    let wrote = !released.is_empty() || jobs.iter().any(|job| job.committed);
    let durability = if wrote {
        super::durability(*durability)
    } else {
        pb::Durability::Unspecified
    };
    pb::CommitSessionResponse {
        stamp: Some(pb::Stamp {
            decision_id,
            revision: Some(super::revision(*revision)),
            policy: policy.to_string(),
            policy_version: *policy_version,
            policy_hash: policy_hash.to_string(),
            effects: Some(effects),
            ..pb::Stamp::default()
        }),
        jobs: jobs.iter().map(job).collect(),
        durability: durability.into(),
        released: names(released),
        evicted: names(evicted),
        pipelined: names(pipelined),
    }
}

/// Names as the wire has them.
pub fn names(names: &[Arc<str>]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

fn job(job: &JobCommitted) -> pb::JobCommit {
    let JobCommitted {
        job,
        committed,
        conflicts,
    } = job;
    pb::JobCommit {
        job: job.to_string(),
        committed: *committed,
        conflicts: conflicts.iter().map(conflict).collect(),
    }
}

fn conflict(conflict: &Conflict) -> pb::Conflict {
    let Conflict {
        placement,
        reason,
        figures,
    } = conflict;
    pb::Conflict {
        placement: placement.as_ref().map(task_on_node),
        reason: Some(pb::Reason {
            figures: figures.iter().map(answer::figure).collect(),
            ..answer::reason(reason)
        }),
    }
}

fn task_on_node(placement: &Placement) -> pb::TaskOnNode {
    let Placement { task, node, card } = placement;
    pb::TaskOnNode {
        task: task.to_string(),
        node: node.to_string(),
        card: card.to_string(),
    }
}
