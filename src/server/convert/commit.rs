//! Outcomes of commits as the wire has them.

use std::sync::Arc;

use crate::server::pb;
use pumice_state::{CommitOutcome, CommitRejection, JobCommitOutcome};

use super::result;
use super::wire::Wire;

/// Reply to a commit. `decision_id`: id of this reply.
pub(crate) fn commit_response(decision_id: String, committed: &CommitOutcome) -> pb::CommitSessionResponse {
    let CommitOutcome {
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
        metadata: Some(pb::ResponseMetadata {
            decision_id,
            revision: Some(revision.write()),
            policy: policy.to_string(),
            policy_version: *policy_version,
            policy_hash: policy_hash.to_string(),
            effects: Some(effects),
            ..pb::ResponseMetadata::default()
        }),
        jobs: jobs.iter().map(job).collect(),
        durability: durability.into(),
        released: name_strings(released),
        evicted: name_strings(evicted),
        pipelined: name_strings(pipelined),
    }
}

/// Names as the wire has them.
pub(crate) fn name_strings(names: &[Arc<str>]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

fn job(job: &JobCommitOutcome) -> pb::JobCommit {
    let JobCommitOutcome {
        job,
        committed,
        rejections: conflicts,
    } = job;
    pb::JobCommit {
        job: job.to_string(),
        committed: *committed,
        rejections: conflicts.iter().map(rejection).collect(),
    }
}

/// Placement that was not committed.
pub(crate) fn rejection(conflict: &CommitRejection) -> pb::PlacementRejection {
    let CommitRejection {
        placement,
        reason,
        measurements,
    } = conflict;
    pb::PlacementRejection {
        placement: placement.write(),
        reason: Some(pb::Reason {
            measurements: measurements.iter().map(result::measurement).collect(),
            ..result::reason(reason)
        }),
    }
}
