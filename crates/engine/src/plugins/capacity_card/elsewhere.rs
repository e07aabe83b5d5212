//! Tasks whose status changes what their job needs at least, for example those that hold other cards than they name.

use std::sync::Arc;

use super::holding_status::HoldingStatus;
use super::job_entry::JobEntry;
use super::state::CapacityState;
use super::task_need::{CardDemand, NeedContext, TaskNeed};
use crate::model::{ClusterState, TaskRecord};

impl HoldingStatus {
    /// True if what a job needs at least changes with this status of a task: behind gates, with a request that cannot be
    /// evaluated, of sizes that count, or with cards that it does not name, or without one that it names.
    pub(super) fn changes_least(&self, context: NeedContext<'_>, task: &TaskRecord) -> bool {
        let need = TaskNeed::of(context, task);
        let demands = &need.demands;
        if task.gated || need.request_error.is_some() || (context.mixed && demands.iter().any(CardDemand::is_choice)) {
            return true;
        }
        let Some(held) = &self.holds else { return false };
        let names = |card: &str| {
            let mut all = demands.iter().flat_map(|demand| &demand.alternatives);
            all.any(|(own, _)| **own == *card)
        };
        let holds_some = |card: &str| held.card(card).is_some_and(|amount| amount > 0);
        let has_other = held.cards().any(|(card, amount)| amount > 0 && !names(card));
        let mut lacks = demands.iter();
        has_other || lacks.any(|demand| !demand.alternatives.iter().any(|(card, _)| holds_some(card)))
    }
}

impl CapacityState {
    /// Computes again what a job needs at least, from its tasks as they are now; what it holds stays.
    pub(super) fn renew_least(&mut self, cluster_state: &ClusterState, job: &Arc<str>) {
        let Some(entry) = self.jobs.get(job).cloned() else {
            return;
        };
        let Some(stored) = entry.stored.clone().filter(|_| entry.is_of_stored) else {
            return;
        };
        let tasks = self.job_tasks(cluster_state, job);
        let computed = JobEntry::of(self.need_context(cluster_state), &stored.record, tasks);
        let mut next = entry.clone();
        next.min = Arc::clone(&computed.min);
        next.finished = Arc::clone(&computed.finished);
        next.sizes.clone_from(&computed.sizes);
        next.annotation_error.clone_from(&computed.annotation_error);
        next.has_request_errors = computed.has_request_errors;
        next.behind_gates.clone_from(&computed.behind_gates);
        if next != entry {
            self.replace_job(job, Some(next));
        }
    }
}
