//! Problems of card quotas, reported before any query of Admit.

use super::PLUGIN;
use super::annotations::{QUOTA, read_cards};
use crate::model::{Problem, ProblemKind, QueueRecord};
use crate::policy::{Compatibility, Policy};

/// True if a policy keeps quotas of cards and reports those that cannot be read. Under `upstream` they count as 0 without a
/// report.
pub fn checks_quotas(policy: &Policy) -> bool {
    policy.compatibility() == Compatibility::Corrected
        && policy.spec().plugins().any(|(_, plugin)| plugin.name == PLUGIN)
}

/// Problem of a queue's card quota. Its field is the annotation.
pub fn queue_quota_problem(queue: &QueueRecord) -> Option<Problem> {
    let error = read_cards(&queue.annotations, QUOTA, Compatibility::Corrected).err()?;
    let field = format!("queues[{}].annotations[{QUOTA}]", queue.name);
    Some(Problem::new(
        ProblemKind::Invalid,
        "CARD_QUOTA_INVALID",
        field,
        error.to_string(),
    ))
}
