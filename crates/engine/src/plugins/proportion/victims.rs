//! Reclaim: tasks of queues that hold more than they deserve.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::queue_accounts::{IntegerAmounts, QuotaState, missing_amount, reference_panics, sum_with};
use super::state::ProportionState;
use crate::model::{ClusterState, Problem, ResourceId, ResourceVector, TaskRecord};
use crate::plugin::{Shortfall, VictimQuery};
use crate::policy::Compatibility;

impl ProportionState {
    /// For each candidate whether it may go, those before it gone. Under `corrected` a task goes once, only to another
    /// queue, only from a queue that others may reclaim from, and only if it holds some of what its queue has too much of.
    ///
    /// # Errors
    /// Under `upstream` a queue would give back more than it holds; the reference panics there.
    pub(super) fn reclaimable(
        &self,
        cluster_state: &ClusterState,
        query: &VictimQuery<'_>,
    ) -> Result<Vec<bool>, Problem> {
        let corrected = self.compatibility() == Compatibility::Corrected;
        let own_queue = self.accounts.job(&query.preemptor.job).map(|job| &job.queue);
        let mut left: BTreeMap<&Arc<str>, IntegerAmounts> = BTreeMap::new();
        let mut seen: BTreeSet<&Arc<str>> = BTreeSet::new();
        let mut may = vec![false; query.candidates.len()];
        for (task, may) in query.candidates.iter().zip(&mut may) {
            let Some((queue, account)) = self.queue_of(task) else {
                continue;
            };
            if corrected {
                let again = !task.name.is_empty() && !seen.insert(&task.name);
                if again || own_queue == Some(queue) || !is_reclaimable(cluster_state, queue) {
                    continue;
                }
            }
            let left = left.entry(queue).or_insert_with(|| account.allocated.clone());
            let requests = IntegerAmounts::from(&task.requests);
            let held = ResourceVector::from(&*left);
            if held.is_at_most(&account.deserved) {
                continue;
            }
            if corrected {
                let over =
                    |(id, amount): (ResourceId, i128)| amount > 0 && held.amount(id) > account.deserved.amount(id);
                if !requests.iter().any(over) {
                    continue;
                }
            }
            if requests.first_beyond(left).is_some() {
                if corrected {
                    continue;
                }
                return Err(reference_panics(&format!(
                    "task `{}` would give back more than is counted for queue `{queue}`",
                    task.name
                )));
            }
            left.subtract(&requests);
            *may = true;
        }
        Ok(may)
    }

    fn queue_of(&self, task: &TaskRecord) -> Option<(&Arc<str>, &super::super::queue_accounts::QueueTotals)> {
        let queue = &self.accounts.job(&task.job)?.queue;
        Some((queue, self.accounts.account(queue)?))
    }

    /// Amounts that the preemptor's queue would hold beyond what it deserves, each with the gains from candidates of the
    /// same queue; under `corrected` only.
    pub(super) fn shortfalls(&self, query: &VictimQuery<'_>) -> Vec<Shortfall> {
        let Some((queue, account)) = self.queue_of(query.preemptor) else {
            return Vec::new();
        };
        if self.compatibility() == Compatibility::Upstream {
            return Vec::new();
        }
        let requests = IntegerAmounts::from(&query.preemptor.requests);
        let (sum, requested) = (sum_with(account, &requests), ResourceVector::from(&requests));
        let mut shortfalls = Vec::new();
        for id in sum.misfits(&account.deserved, &requested) {
            let held = account.allocated.get(id) + requests.get(id);
            let gains = query.candidates.iter().map(|task| {
                let is_own = self.queue_of(task).is_some_and(|(own, _)| own == queue);
                if is_own {
                    IntegerAmounts::from(&task.requests).get(id)
                } else {
                    0
                }
            });
            shortfalls.push(Shortfall {
                missing: missing_amount(held, account.deserved.amount(id)),
                gains: gains.collect(),
            });
        }
        shortfalls
    }
}

fn is_reclaimable(cluster_state: &ClusterState, queue: &str) -> bool {
    let stored = cluster_state.queues().get(queue);
    stored.is_some_and(|stored| stored.record.reclaimable != Some(false))
}
