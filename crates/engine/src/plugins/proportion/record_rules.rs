//! Rules about the weights of queues.

use super::PLUGIN;
use crate::model::{ErrorCode, Problem, QueueRecord};
use crate::plugin::RecordRules;
use crate::policy::{Compatibility, Policy};

/// Rules about weights.
#[derive(Debug)]
pub(super) struct WeightRules;

/// Problem of a weight that divides nothing: below 1, which the reference's admission webhook refuses, too.
pub(super) fn weight_problem(queue: &QueueRecord) -> Option<Problem> {
    let weight = queue.weight.filter(|weight| *weight < 1)?;
    let field = format!("queues[{}].weight", queue.name);
    let message = format!(
        "the weight {weight} of queue `{}` is below 1; set it to 1 or more, or leave it out",
        queue.name
    );
    Some(Problem::new(ErrorCode::QueueWeightInvalid, field, message))
}

impl RecordRules for WeightRules {
    /// True if the policy divides the cluster by weight. Under `upstream` every weight counts as it is.
    fn apply_to(&self, policy: &Policy) -> bool {
        policy.compatibility() == Compatibility::Corrected
            && policy.spec().plugins().any(|(_, plugin)| plugin.name == PLUGIN)
    }

    fn queue_problem(&self, queue: &QueueRecord) -> Option<Problem> {
        weight_problem(queue)
    }
}
