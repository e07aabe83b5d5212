//! Many equal tasks that use no cards: how many of them a queue admits in a row, and what they hold together.

use std::sync::Arc;

use super::amounts::QuotaAmounts;
use super::quota_accounts::fit_count;
use super::state::CapacityState;
use super::task_request::TaskRequest;
use crate::cards::CARD_NAME_ANNOTATION;
use crate::model::{ClusterState, ResourceId, TaskRecord, find_text};
use crate::policy::Compatibility;

impl CapacityState {
    /// How many tasks like this one, which is permitted, are permitted in a row; `None`: each is to be asked about.
    pub(super) fn repeated_admit_limit(
        &self,
        cluster_state: &ClusterState,
        queue: &str,
        task: &TaskRecord,
    ) -> Option<u64> {
        let wanted = self.node_independent_holding(task)?;
        match self.compatibility {
            Compatibility::Corrected if self.task_holding(&task.name).is_some() => None,
            Compatibility::Corrected => {
                let queue = Arc::from(queue);
                let path = self.queue_path(&queue).ok()?;
                // What a job without figures holds is counted nowhere.
                let counts = cluster_state.jobs().contains(&task.job) && self.jobs.contains(&task.job);
                let room = path.task_quota_accounts().task_headroom(&wanted).filter(|_| counts);
                Some(room.unwrap_or(u64::MAX))
            }
            Compatibility::Upstream(_) => {
                let account = self.accounts.get(queue)?;
                let (capability, held) = (&account.limits.capability, &account.allocated);
                let room = |wanted: i128, room: i128| (wanted > 0).then(|| fit_count(room, wanted));
                let cpu = room(wanted.cpu, capability.cpu - held.cpu);
                let memory = room(wanted.memory, capability.memory - held.memory);
                Some(cpu.into_iter().chain(memory).min().unwrap_or(u64::MAX))
            }
        }
    }

    /// Counts `times` more tasks like this one, of which [`Self::in_a_row`] has spoken, as holding what they need.
    pub(super) fn hold_repeated(&mut self, cluster_state: &ClusterState, task: &TaskRecord, times: u64) {
        let Some(each) = self.node_independent_holding(task) else {
            return;
        };
        let all = QuotaAmounts::new(each.cpu * i128::from(times), each.memory * i128::from(times));
        match self.compatibility {
            Compatibility::Corrected => {
                if let Some(mut entry) = self.jobs.get(&task.job).cloned() {
                    entry.allocated.add(&all);
                    self.replace_job(&task.job, Some(entry));
                }
            }
            Compatibility::Upstream(_) => {
                let queue = cluster_state.jobs().get(&task.job).map(|job| &job.record.queue);
                if let Some(account) = queue.and_then(|queue| self.accounts.get_mut(queue)) {
                    Arc::make_mut(account).allocated.add(&all);
                }
            }
        }
    }

    /// Amounts that a task holds on any node; `None`: that depends on the node, for it uses cards.
    pub(super) fn node_independent_holding(&self, task: &TaskRecord) -> Option<QuotaAmounts> {
        let named = find_text(&task.annotations, CARD_NAME_ANNOTATION).is_some_and(|name| !name.is_empty());
        let asks = TaskRequest::from(task);
        let kinds = self.cards.node_kinds();
        let on_some = |id: ResourceId| {
            kinds
                .map_kinds(|kind| kind.iter().any(|(_, own)| *own == id))
                .contains(&true)
        };
        let uses = |id: ResourceId| !self.cards.cards_of_resource(id).is_empty() || on_some(id);
        if named || asks.requested_resources().any(uses) {
            return None;
        }
        let amount = |id| task.requests.get(id).unwrap_or(0);
        Some(QuotaAmounts::new(amount(ResourceId::CPU), amount(ResourceId::MEMORY)))
    }
}
