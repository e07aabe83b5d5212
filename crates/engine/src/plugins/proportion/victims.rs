//! Reclaim: tasks of queues that hold more than they deserve.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::queue_accounts::{IntegerAmounts, QuotaState, is_reclaimable, reference_panics};
use super::state::ProportionState;
use crate::model::{ClusterState, Problem, ResourceId, ResourceVector};
use crate::plugin::VictimQuery;
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
        let rules = self.compatibility().release().rules();
        rules.check_orphans(cluster_state, query.candidates)?;
        let own_queue = self.accounts.job(&query.preemptor.job).map(|job| &job.queue);
        let mut left: BTreeMap<&Arc<str>, IntegerAmounts> = BTreeMap::new();
        let mut seen: BTreeSet<&Arc<str>> = BTreeSet::new();
        let mut may = vec![false; query.candidates.len()];
        for (task, may) in query.candidates.iter().zip(&mut may) {
            let Some(charged) = self.charged_task(task) else {
                continue;
            };
            let (queue, account, requests) = (charged.queue, charged.account, &charged.requests);
            if corrected {
                let again = !task.name.is_empty() && !seen.insert(&task.name);
                if again || own_queue == Some(queue) || !is_reclaimable(cluster_state, queue) {
                    continue;
                }
            }
            let left = left.entry(queue).or_insert_with(|| account.allocated.clone());
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
            left.subtract(requests);
            *may = true;
        }
        Ok(may)
    }
}
