//! Tasks of one job that come to hold what they need, or give it back: one task, or many as if one came after the other.

use std::sync::Arc;

use super::holding_status::HoldingStatus;
use super::job_entry::{JobAmounts, current_need};
use super::job_minimum::JobMinimum;
use super::state::CapacityState;
use super::task_need::{TaskNeed, holds_resources};
use crate::model::{ClusterState, TableCursor, TaskRecord, TaskShape, TaskStatus};
use crate::plugin_state::PlacementEvent;
use crate::plugins::capacity_card::QuotaAmounts;

impl JobAmounts {
    /// Takes over the change of the status of a task that needs this.
    fn change_holding(&mut self, need: &TaskNeed, before: &HoldingStatus, after: &HoldingStatus) {
        if before.waits != after.waits {
            let pending = Arc::make_mut(&mut self.pending);
            if after.waits {
                pending.add(&need.amounts());
            } else {
                pending.subtract(&need.amounts());
                pending.drop_zero_cards();
            }
        }
        if let Some(held) = &before.holds {
            self.allocated.subtract(held);
            self.allocated.drop_zero_cards();
            self.update_card_use(need, held, false);
        }
        if let Some(held) = &after.holds {
            self.allocated.add(held);
            self.update_card_use(need, held, true);
        }
    }
}

/// Amounts that tasks of one template hold wherever they run.
struct TemplateHolding {
    shape: Arc<TaskShape>,
    holding: Arc<QuotaAmounts>,
}

impl CapacityState {
    /// Follows tasks of one job. Sums are exact, so that what the account takes step by step comes
    /// to what it takes at once. A task counts once, even if it is reported several times.
    pub(super) fn follow_moves(&mut self, cluster_state: &ClusterState, moves: &[PlacementEvent<'_>]) {
        let mut moves = moves.iter().filter_map(PlacementEvent::moved_task).peekable();
        let Some((first, _)) = moves.peek() else { return };
        if let Some(times) = first.repeated {
            return self.hold_repeated(first.after, times);
        }
        let job = Arc::clone(&first.after.job);
        let Some(mut entry) = self.jobs.get(&job).cloned() else {
            return;
        };
        let (mut any, mut changes_minimum) = (false, entry.minimum.has_request_errors);
        let (mut known, mut nears) = (None, [TableCursor::default(); 2]);
        while let Some((moved, is_given)) = moves.next() {
            let task = if is_given { moved.after } else { moved.before };
            let before = self.holding_status_near(&task.name, &mut nears);
            let next = moves.peek();
            let is_row = next.is_some_and(|(next, _)| Arc::ptr_eq(&next.after.shape, &task.shape));
            let on_node = (&*moved.after.node, moved.card);
            let holds = is_given.then(|| self.holding_on_node(cluster_state, task, on_node, is_row, &mut known));
            let waits = !is_given && moved.after.status == TaskStatus::Pending;
            let after = HoldingStatus { holds, waits };
            if before == after {
                continue;
            }
            any = true;
            let of_template = known.as_ref().filter(|known| Arc::ptr_eq(&known.shape, &task.shape));
            match of_template {
                // Without cards it waited for what it holds now.
                Some(known) if before.holds.is_none() && is_given && !task.gated => {
                    entry.allocated.add(&known.holding);
                    if before.waits {
                        Arc::make_mut(&mut entry.pending).subtract(&known.holding);
                    }
                }
                _ => {
                    let need = TaskNeed::of(self.need_context(cluster_state), task);
                    let changes = |status: &HoldingStatus| status.changes_minimum(&need, self.config.mixed_cards);
                    changes_minimum |= task.gated || changes(&before) || changes(&after);
                    entry.change_holding(&need, &before, &after);
                }
            }
            let [near, _] = &mut nears;
            self.task_holdings.insert_with_cursor(&task.name, after, near);
        }
        if any {
            self.replace_job(&job, Some(entry));
        }
        if any && changes_minimum {
            self.renew_minimum(cluster_state, &job);
        }
    }

    /// Status of a task in the accounts, whose name is beside the last one.
    pub(super) fn holding_status_near(&self, task: &str, [held, opened]: &mut [TableCursor; 2]) -> HoldingStatus {
        if let Some(context) = self.task_holdings.get_with_cursor(task, held) {
            return context.clone();
        }
        let stored = self.opening_state.tasks().get_with_cursor(task, opened);
        stored.map_or_else(HoldingStatus::default, |stored| self.holding_status_of(&stored.record))
    }

    /// Amounts that a task holds on its node. Tasks in a row of one template hold the same, if nodes do not matter to them.
    fn holding_on_node(
        &self,
        cluster_state: &ClusterState,
        task: &TaskRecord,
        (node, card): (&str, &str),
        is_row: bool,
        known: &mut Option<TemplateHolding>,
    ) -> Arc<QuotaAmounts> {
        let last = known.as_ref().filter(|known| Arc::ptr_eq(&known.shape, &task.shape));
        if let Some(last) = last {
            return Arc::clone(&last.holding);
        }
        let need = TaskNeed::on_node(self.need_context(cluster_state), task, node, card);
        let holds = Arc::new(need.amounts());
        if is_row && self.cards.node_independent_holding(task).is_some() {
            *known = Some(TemplateHolding {
                shape: Arc::clone(&task.shape),
                holding: Arc::clone(&holds),
            });
        }
        holds
    }

    /// Status of a task by its record, before anything was reported of it.
    fn holding_status_of(&self, record: &TaskRecord) -> HoldingStatus {
        let need = || Arc::new(current_need(self.need_context(&self.opening_state), record).amounts());
        HoldingStatus {
            holds: holds_resources(record.status).then(need),
            waits: record.status == TaskStatus::Pending,
        }
    }

    /// Amounts that a task holds, as it is counted now; `None`: it does not count.
    pub(super) fn task_holding(&self, task: &str) -> Option<Arc<QuotaAmounts>> {
        self.holding_status_near(task, &mut Default::default()).holds
    }

    /// Computes again what a job needs at least, from its tasks as they are now; what it holds stays.
    fn renew_minimum(&mut self, cluster_state: &ClusterState, job: &Arc<str>) {
        let Some(known) = self.jobs.find(job) else { return };
        let own = self.jobs.at(known).filter(|entry| entry.is_of_stored);
        let Some((own, stored)) = own.and_then(|entry| Some((entry, entry.stored.as_ref()?))) else {
            return;
        };
        let tasks: Vec<&TaskRecord> = self.job_tasks(cluster_state, job).collect();
        let next = JobMinimum::of(self.need_context(cluster_state), &stored.record, &tasks);
        if next != *own.minimum {
            self.change_job(known, |entry| entry.minimum = Arc::new(next));
        }
    }

    /// Counts `times` more tasks like this one, which uses no cards, as holding what they need.
    fn hold_repeated(&mut self, task: &TaskRecord, times: u64) {
        let holding = self.cards.node_independent_holding(task);
        if let (Some(mut all), Some(known)) = (holding, self.jobs.find(&task.job)) {
            all.multiply(times);
            self.change_job(known, |entry| entry.allocated.add(&all));
        }
    }
}
