//! Division of the cluster among queues by weight, in rounds: what a queue does not ask for goes to the others.

use crate::model::ResourceVector;
use crate::policy::Compatibility;

/// Most rounds of a division; weights below 1 may never come to an end in the reference.
const MAX_ROUNDS: usize = 100_000;

/// Queue that takes part in the division.
#[derive(Clone, Debug)]
pub(super) struct DivisionShare<'a> {
    /// Weight.
    pub(super) weight: i32,
    /// Amounts held or waited for, which the queue does not get more than.
    pub(super) request: ResourceVector,
    /// Upper limit.
    pub(super) real_capability: &'a ResourceVector,
    /// Amounts that the queue gets in any case.
    pub(super) guarantee: &'a ResourceVector,
    /// Amounts that the queue deserves, so far.
    pub(super) deserved: ResourceVector,
    /// True if the queue gets no more in later rounds.
    pub(super) is_met: bool,
}

/// Divides the total of the cluster among queues, in their order. All queues of a round share the same remainder.
pub(super) fn divide(total: &ResourceVector, queues: &mut [DivisionShare<'_>], compatibility: Compatibility) {
    let mut rest = total.clone();
    for _ in 0..MAX_ROUNDS {
        let weights = weight_sum(queues, compatibility);
        if weights == 0.0 {
            return;
        }
        let mut given = ResourceVector::default();
        let mut returned = ResourceVector::default();
        for queue in queues.iter_mut().filter(|queue| !queue.is_met) {
            let before = queue.deserved.clone();
            let mut part = rest.clone();
            part.scale(f64::from(queue.weight) / weights);
            queue.deserved.add(&part);
            queue.deserved.lower_to_limit(queue.real_capability);
            queue.deserved.lower_to_request(&queue.request);
            queue.deserved = queue.deserved.larger_of(queue.guarantee);
            queue.is_met = queue.request.is_at_most(&queue.deserved) || queue.deserved == before;
            given.add(&queue.deserved.excess_over(&before));
            returned.add(&before.excess_over(&queue.deserved));
        }
        let mut left = rest.clone();
        left.add(&returned);
        let left = left.excess_over(&given);
        if left.is_empty() || left == rest {
            return;
        }
        rest = left;
    }
}

/// Sum of the weights of the queues that are not met. Under `upstream` it is a 32-bit integer that wraps, as in the
/// reference.
fn weight_sum(queues: &[DivisionShare<'_>], compatibility: Compatibility) -> f64 {
    let open = queues.iter().filter(|queue| !queue.is_met).map(|queue| queue.weight);
    match compatibility {
        Compatibility::Upstream => f64::from(open.fold(0_i32, i32::wrapping_add)),
        Compatibility::Corrected => open.map(f64::from).sum(),
    }
}
