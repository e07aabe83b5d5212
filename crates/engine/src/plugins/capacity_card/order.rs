//! The order of queues: larger priority first, then smaller share.

use super::state::CapacityState;
use crate::model::{ErrorCode, Problem};
use crate::policy::Compatibility;

impl CapacityState {
    /// The order key of a queue: numbers compared one by one, smaller first.
    ///
    /// # Errors
    /// The queue is not there.
    pub fn order_key(&self, queue: &str) -> Result<[f64; 2], Problem> {
        let Some(stored) = self.opening_state.queues().get(queue) else {
            return Err(super::state::not_found_problem(
                ErrorCode::QueueUnknown,
                format!("there is no queue `{queue}`"),
            ));
        };
        let share = self.account(queue).map_or(0.0, |account| account.share());
        Ok([-f64::from(stored.record.priority), share])
    }

    /// Compares two queues as the reference does: below 0 if `left` comes first.
    ///
    /// # Errors
    /// A queue is not there; or, under `upstream`, the reference panics: of two queues of equal priority one has no
    /// jobs.
    pub fn compare_queues(&self, left: &str, right: &str) -> Result<i64, Problem> {
        let ([_, left_share], [_, right_share]) = (self.order_key(left)?, self.order_key(right)?);
        let priority = |queue| {
            self.opening_state
                .queues()
                .get(queue)
                .map_or(0, |stored| stored.record.priority)
        };
        if priority(left) != priority(right) {
            return Ok(i64::from(priority(right)) - i64::from(priority(left)));
        }
        let without = [left, right].into_iter().find(|queue| self.account(queue).is_none());
        if let (Compatibility::Upstream(_), Some(queue)) = (self.compatibility, without) {
            let message = format!("queue `{queue}` has no jobs; the reference panics here");
            return Err(Problem::new(ErrorCode::ReferencePanics, "", message));
        }
        Ok(match left_share.total_cmp(&right_share) {
            std::cmp::Ordering::Less => -1,
            std::cmp::Ordering::Equal => 0,
            std::cmp::Ordering::Greater => 1,
        })
    }
}
