//! Reclaim: tasks of queues that hold more than they deserve, in a tree at several levels.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::queue_accounts::{
    ChargedTask, IntegerAmounts, QueueTotals, QuotaState, is_reclaimable, reference_panics,
};
use super::state::QueueCapacityState;
use super::tree::ROOT;
use crate::model::{ClusterState, Problem, ResourceId, ResourceVector};
use crate::plugin::VictimQuery;
use crate::policy::Compatibility;

/// Amounts that queues still hold after the victims chosen so far.
#[derive(Default)]
struct RemainingAmounts<'a>(BTreeMap<&'a str, IntegerAmounts>);

impl<'a> RemainingAmounts<'a> {
    fn of(&mut self, queue: &'a str, account: &QueueTotals) -> &mut IntegerAmounts {
        self.0.entry(queue).or_insert_with(|| account.allocated.clone())
    }
}

/// True if both have some of one resource, of those that count.
fn share_names(one: &ResourceVector, other: &ResourceVector, counts: impl Fn(ResourceId) -> bool) -> bool {
    one.named_resources()
        .any(|id| counts(id) && other.named_resources().any(|other| other == id))
}

impl QueueCapacityState {
    /// Candidates that may be reclaimed, in the order in which they would be evicted, those before gone.
    ///
    /// # Errors
    /// Under `upstream` a queue would give back more than it holds; the reference panics there.
    pub(super) fn reclaimable(
        &self,
        cluster_state: &ClusterState,
        query: &VictimQuery<'_>,
    ) -> Result<Vec<usize>, Problem> {
        if self.unready_reason().is_some() {
            return Ok(Vec::new());
        }
        let rules = self.compatibility().release().rules();
        if !rules.reclaims_in_victim_order {
            rules.check_orphans(cluster_state, query.candidates)?;
            let requests = ResourceVector::from(&IntegerAmounts::from(&query.preemptor.requests));
            return self.reclaimable_in_turn(query, Some(&requests));
        }
        let Some(reclaimer) = self.charged_task(query.preemptor) else {
            return Ok(Vec::new());
        };
        let corrected = self.compatibility() == Compatibility::Corrected;
        let (mut left, mut seen, mut victims) = (RemainingAmounts::default(), BTreeSet::new(), Vec::new());
        for position in query.eviction_order.positions(query.candidates.len()) {
            let Some(task) = query.candidates.get(position) else {
                continue;
            };
            let Some(candidate) = self.charged_task(task) else {
                continue;
            };
            if corrected {
                let again = !task.name.is_empty() && !seen.insert(&task.name);
                if again || candidate.queue == reclaimer.queue || !is_reclaimable(cluster_state, candidate.queue) {
                    continue;
                }
            }
            if !share_names(&candidate.vector, &reclaimer.vector, |id| id != ResourceId::PODS) {
                continue;
            }
            let Some(immediate) = self.is_above_deserved(&mut left, &candidate)? else {
                continue;
            };
            if immediate && self.is_beside_undeserved(&reclaimer, &candidate) {
                continue;
            }
            let Some(above) = self.levels_above_deserved(&mut left, &reclaimer, &candidate) else {
                continue;
            };
            for (queue, account) in std::iter::once((&**candidate.queue, candidate.account)).chain(above) {
                left.of(queue, account).subtract(&candidate.requests);
            }
            victims.push(position);
        }
        Ok(victims)
    }

    /// Candidates that may be reclaimed, in the given order, as those of whole gangs are: whoever reclaims, a queue gives up
    /// what it holds above what it deserves, and keeps its guarantee. With the requests of a reclaimer only candidates
    /// count that have some of its resources.
    ///
    /// # Errors
    /// The errors of [`Self::reclaimable`].
    pub(super) fn reclaimable_in_turn(
        &self,
        query: &VictimQuery<'_>,
        reclaimer: Option<&ResourceVector>,
    ) -> Result<Vec<usize>, Problem> {
        let (mut left, mut victims) = (RemainingAmounts::default(), Vec::new());
        if self.unready_reason().is_some() {
            return Ok(victims);
        }
        for (position, task) in query.candidates.iter().enumerate() {
            let shares = |candidate: &ChargedTask<'_>| {
                reclaimer.is_none_or(|own| share_names(&candidate.vector, own, |id| id != ResourceId::PODS))
            };
            let Some(candidate) = self.charged_task(task).filter(shares) else {
                continue;
            };
            if self.is_above_deserved(&mut left, &candidate)?.is_some() {
                let own = left.of(candidate.queue, candidate.account);
                own.subtract(&candidate.requests);
                victims.push(position);
            }
        }
        Ok(victims)
    }

    /// True if the queue of a candidate deserves none of its resources, false if it holds more than it deserves of one;
    /// `None`: neither, or its guarantee needs the candidate.
    fn is_above_deserved<'a>(
        &self,
        left: &mut RemainingAmounts<'a>,
        candidate: &ChargedTask<'a>,
    ) -> Result<Option<bool>, Problem> {
        let (account, queue) = (candidate.account, candidate.queue);
        let held = left.of(queue, account);
        if candidate.requests.first_beyond(held).is_some() {
            if self.compatibility() == Compatibility::Corrected {
                return Ok(None);
            }
            return Err(reference_panics(&format!(
                "queue `{queue}` would give back more than is counted for it"
            )));
        }
        let mut after = held.clone();
        after.subtract(&candidate.requests);
        if !account.limits.guarantee.is_at_most(&ResourceVector::from(&after)) {
            return Ok(None);
        }
        let held = ResourceVector::from(&*held);
        Ok(self.over_deserved(&held, &account.deserved, &candidate.vector))
    }

    /// True if reclaimer and candidate have a queue other than the root in common within the levels that count, and the
    /// reclaimer's own queue deserves nothing of what the reclaimer requests.
    fn is_beside_undeserved(&self, reclaimer: &ChargedTask<'_>, candidate: &ChargedTask<'_>) -> bool {
        let near = |queue: &str| {
            let above = self.accounts.ancestors(queue).iter().take(self.reclaim_level);
            above.filter(|name| ***name != *ROOT).cloned().collect::<Vec<_>>()
        };
        if self.tree.is_none() {
            return false;
        }
        let own = near(reclaimer.queue);
        let has_common = near(candidate.queue).iter().any(|queue| own.contains(queue));
        has_common
            && !share_names(&reclaimer.vector, &reclaimer.account.deserved, |id| {
                self.tells_deserved(id)
            })
    }

    /// Queues above a candidate, of those that count, that are others than the reclaimer's at the same distance; `None`: one
    /// of them holds no more than it deserves.
    fn levels_above_deserved<'a>(
        &'a self,
        left: &mut RemainingAmounts<'a>,
        reclaimer: &ChargedTask<'_>,
        candidate: &ChargedTask<'a>,
    ) -> Option<Vec<(&'a str, &'a Arc<QueueTotals>)>> {
        let (own, other) = (
            self.accounts.ancestors(candidate.queue),
            self.accounts.ancestors(reclaimer.queue),
        );
        let mut above = Vec::new();
        if self.tree.is_none() {
            return Some(above);
        }
        for (distance, queue) in own.iter().enumerate().take(self.reclaim_level) {
            let is_passed = **queue == *ROOT || other.get(distance) == Some(queue);
            let Some(account) = self.accounts.account(queue).filter(|_| !is_passed) else {
                continue;
            };
            let held = ResourceVector::from(&*left.of(queue, account));
            self.over_deserved(&held, &account.deserved, &candidate.vector)?;
            above.push((&**queue, account));
        }
        Some(above)
    }

    /// True if a resource tells whether a queue deserves some of what a task requests. Every task requests pods: under
    /// `corrected` they do not.
    fn tells_deserved(&self, id: ResourceId) -> bool {
        id != ResourceId::PODS || self.compatibility().is_upstream()
    }

    /// True if nothing of the requests is deserved, false if more is held than deserved of one of them; `None`: neither.
    fn over_deserved(
        &self,
        held: &ResourceVector,
        deserved: &ResourceVector,
        requests: &ResourceVector,
    ) -> Option<bool> {
        if !share_names(requests, deserved, |id| self.tells_deserved(id)) {
            return Some(true);
        }
        held.exceeds_partly(deserved, requests).then_some(false)
    }
}
