//! Many equal tasks that use no cards: how many of them a queue admits in a row, and what they hold together.

use std::sync::Arc;

use super::annotations::NAME;
use super::books::times;
use super::counts::Counts;
use super::need::Asks;
use super::state::CapacityState;
use crate::engine::model::{ResourceId, TaskRecord, View, text};
use crate::engine::policy::Compatibility;

impl CapacityState {
    /// How many tasks like this one, which is permitted, are permitted in a row; `None`: each is to be asked about.
    pub(super) fn in_a_row(&self, view: &View, queue: &str, task: &TaskRecord) -> Option<u64> {
        let wanted = self.held_anywhere(task)?;
        match self.compatibility {
            Compatibility::Corrected if self.held(&task.name).is_some() => None,
            Compatibility::Corrected => {
                let queue = Arc::from(queue);
                let path = self.path(&queue).ok()?;
                // What a job without figures holds is counted nowhere.
                let counts = view.jobs().contains(&task.job) && self.jobs.contains(&task.job);
                let room = path.for_task().headroom(&wanted).filter(|_| counts);
                Some(room.unwrap_or(u64::MAX))
            }
            Compatibility::Upstream => {
                let account = self.accounts.get(queue)?;
                let (capability, held) = (&account.limits.capability, &account.allocated);
                let room = |wanted: i128, room: i128| (wanted > 0).then(|| times(room, wanted));
                let cpu = room(wanted.cpu, capability.cpu - held.cpu);
                let memory = room(wanted.memory, capability.memory - held.memory);
                Some(cpu.into_iter().chain(memory).min().unwrap_or(u64::MAX))
            }
        }
    }

    /// So many tasks like this one, of which [`Self::in_a_row`] has spoken, now hold what they need.
    pub(super) fn hold_alike(&mut self, view: &View, task: &TaskRecord, times: u64) {
        let Some(each) = self.held_anywhere(task) else { return };
        let all = Counts::new(each.cpu * i128::from(times), each.memory * i128::from(times));
        match self.compatibility {
            Compatibility::Corrected => {
                let Some(entry) = self.jobs.get(&task.job).cloned() else {
                    return;
                };
                let mut next = entry.clone();
                next.allocated.add(&all);
                let (taken, added) = (entry.contribution(), next.contribution());
                self.shift(&entry.queue, |_, account| {
                    account.take(&taken);
                    account.allocated.add(&all);
                    account.allocated.forget_zeros();
                    account.add(&added);
                });
                self.jobs.insert(Arc::clone(&task.job), next);
            }
            Compatibility::Upstream => {
                let queue = view.jobs().get(&task.job).map(|job| &job.record.queue);
                if let Some(account) = queue.and_then(|queue| self.accounts.get_mut(queue)) {
                    Arc::make_mut(account).allocated.add(&all);
                }
            }
        }
    }

    /// What a task holds on any node; `None`: that depends on the node, for it uses cards.
    pub(super) fn held_anywhere(&self, task: &TaskRecord) -> Option<Counts> {
        let named = text(&task.annotations, NAME).is_some_and(|name| !name.is_empty());
        let asks = Asks::from(task);
        let kinds = self.cards.kinds_of_nodes();
        let on_some = |id: ResourceId| {
            kinds
                .each(|kind| kind.iter().any(|(_, own)| *own == id))
                .contains(&true)
        };
        let uses = |id: ResourceId| !self.cards.of_resource(id).is_empty() || on_some(id);
        if named || asks.resources().any(uses) {
            return None;
        }
        let amount = |id| task.requests.get(id).unwrap_or(0);
        Some(Counts::new(amount(ResourceId::CPU), amount(ResourceId::MEMORY)))
    }
}
