//! Whether a queue may take from others at all (Volcano's Preemptive): by its limits, those of the queues above it, and what it
//! deserves.

use super::super::queue_accounts::{IntegerAmounts, QueueTotals, QuotaState, is_reclaimable, missing_amount, sum_with};
use super::state::QueueCapacityState;
use super::tree::ROOT;
use crate::model::{ClusterState, Problem, ResourceId, ResourceVector, TaskRecord};

impl QueueCapacityState {
    /// True if a queue may evict tasks of others for these tasks.
    ///
    /// # Errors
    /// There is no such queue, or it cannot count.
    pub(super) fn may_preempt(
        &self,
        cluster_state: &ClusterState,
        queue: &str,
        tasks: &[&TaskRecord],
    ) -> Result<bool, Problem> {
        let requests = IntegerAmounts::of_tasks(tasks);
        if self.unready_reason().is_some() {
            return Ok(false);
        }
        let account = self.known_account(queue)?;
        let is_limited = self.compatibility().release().rules().preempts_within_limit;
        let may_hold =
            account.limits.is_open && (!is_limited || self.reasons_against_sum(queue, &requests, 0).is_empty());
        if !may_hold || !self.may_queues_above_hold(cluster_state, queue, &requests)? {
            return Ok(false);
        }
        let requested = ResourceVector::from(&requests);
        let counted = self.chain(queue).take(self.reclaim_level.saturating_add(1));
        let mut counted = counted.filter(|(name, _)| *name == queue || **name != *ROOT);
        Ok(counted.any(|(_, account)| sum_with(account, &requests).fits_partly(&account.deserved, &requested)))
    }

    /// True if the queues above one are open, and could hold its requests once others below them have given back what they
    /// can: a victim below a full queue gives back there, too. Under `upstream` nobody looks at them.
    fn may_queues_above_hold(
        &self,
        cluster_state: &ClusterState,
        queue: &str,
        requests: &IntegerAmounts,
    ) -> Result<bool, Problem> {
        if self.compatibility().is_upstream() {
            return Ok(true);
        }
        if !self.reasons_against_levels(&self.levels(queue)?).is_empty() {
            return Ok(false);
        }
        let requested = ResourceVector::from(requests);
        let mut above = self.chain(queue).skip(1);
        Ok(above.all(|(name, account)| {
            let limit = &account.limits.real_capability;
            let sum = sum_with(account, requests);
            let mut short = sum.misfits(limit, &requested).peekable();
            if short.peek().is_none() {
                return true;
            }
            let given_back = self.most_given_back(cluster_state, name, queue);
            short.all(|id| {
                let held = account.allocated.get(id) + requests.get(id);
                missing_amount(held, limit.amount(id)) <= given_back.get(id)
            })
        }))
    }

    /// Amounts that queues below one can give back to a reclaimer at most: what those that hold more than they deserve hold
    /// beyond their guarantees.
    fn most_given_back(&self, cluster_state: &ClusterState, above: &str, reclaimer: &str) -> IntegerAmounts {
        let is_below = |name: &str| self.accounts.ancestors(name).iter().any(|own| **own == *above);
        let is_leaf = |name: &str| self.tree.as_ref().is_none_or(|tree| tree.is_leaf(name));
        let queues = self.accounts.by_queue.iter().filter(|(name, account)| {
            let is_other = ***name != *reclaimer && is_leaf(name) && is_below(name);
            is_other && is_reclaimable(cluster_state, name) && holds_undeserved(account)
        });
        let mut sum = IntegerAmounts::default();
        for (_, account) in queues {
            sum.add(&unguaranteed_holding(account));
        }
        sum
    }
}

/// True if a queue holds more of some resource than it deserves.
fn holds_undeserved(account: &QueueTotals) -> bool {
    let mut held = account.allocated.iter().filter(|(id, _)| *id != ResourceId::PODS);
    held.any(|(id, held)| held as f64 > account.deserved.amount(id))
}

/// Amounts that a queue holds beyond its guarantee.
fn unguaranteed_holding(account: &QueueTotals) -> IntegerAmounts {
    let held = account.allocated.iter();
    held.map(|(id, held)| (id, held - least_whole(account.limits.guarantee.amount(id))))
        .filter(|(_, beyond)| *beyond > 0)
        .collect()
}

/// Least whole amount that is not below a guarantee.
#[expect(clippy::cast_possible_truncation, reason = "an amount beyond all others saturates")]
fn least_whole(guarantee: f64) -> i128 {
    guarantee.max(0.0).ceil() as i128
}
