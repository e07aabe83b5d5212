//! Tasks of one job that come to hold what they need, or give it back: one task, or many as if one came after the other.

use std::sync::Arc;

use super::amounts::QuotaAmounts;
use super::holding_status::{HoldingStatus, Moved};
use super::state::{CapacityState, TaskEvent};
use super::task_need::TaskNeed;
use crate::model::{ClusterState, TableCursor, TaskRecord, TaskShape};

/// Task that gets the amounts that it holds, or gives them back.
#[derive(Clone, Copy, Debug)]
pub(super) struct HoldingChange<'a> {
    /// Task that moves.
    pub(super) task: &'a TaskRecord,
    /// Change of the resources that it holds.
    pub(super) event: TaskEvent<'a>,
    /// True if the task waits afterwards.
    pub(super) waits: bool,
    /// Number of such tasks, if each holds the same and no name tells them apart.
    pub(super) repeated: Option<u64>,
}

/// Amounts that tasks of one template hold wherever they run.
struct TemplateHolding {
    shape: Arc<TaskShape>,
    holding: Arc<QuotaAmounts>,
}

impl CapacityState {
    /// Follows tasks of one job; under `corrected` only. Sums are exact, so that what the account takes step by step comes
    /// to what it takes at once. A task counts once, even if it is reported several times.
    pub(super) fn move_tasks<'m>(
        &mut self,
        cluster_state: &ClusterState,
        changes: impl Iterator<Item = HoldingChange<'m>>,
    ) {
        let mut changes = changes.peekable();
        let Some(first) = changes.peek() else { return };
        if let Some(times) = first.repeated {
            return self.hold_repeated(cluster_state, first.task, times);
        }
        let job = Arc::clone(&first.task.job);
        let Some(entry) = self.jobs.get(&job).cloned() else {
            return;
        };
        let (mut all, mut any, mut changes_least) = (Moved::default(), false, entry.has_request_errors);
        let (mut known, mut nears) = (None, [TableCursor::default(); 2]);
        while let Some(HoldingChange { task, event, waits, .. }) = changes.next() {
            let before = self.holding_status_near(&task.name, &mut nears);
            let is_row = changes
                .peek()
                .is_some_and(|next| Arc::ptr_eq(&next.task.shape, &task.shape));
            let holds = event
                .node_and_card()
                .map(|on| self.holding_on_node(cluster_state, task, on, is_row, &mut known));
            let after = HoldingStatus { holds, waits };
            if before == after {
                continue;
            }
            any = true;
            let of_template = known.as_ref().filter(|known| Arc::ptr_eq(&known.shape, &task.shape));
            if of_template.is_none() || task.gated {
                let context = self.need_context(cluster_state);
                changes_least |= before.changes_least(context, task) || after.changes_least(context, task);
            }
            match of_template {
                // Without cards it waited for what it holds now.
                Some(known) if before.holds.is_none() && after.holds.is_some() && !waits => {
                    all.held.add(&known.holding);
                    if before.waits {
                        all.pending.subtract(&known.holding);
                    }
                }
                _ => all.add(self.need_context(cluster_state), task, &before, &after),
            }
            let [near, _] = &mut nears;
            self.task_holdings.insert_with_cursor(&task.name, after, near);
        }
        if any {
            self.move_job(&job, entry, &all);
        }
        if any && changes_least {
            self.renew_least(cluster_state, &job);
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
        if is_row && self.node_independent_holding(task).is_some() {
            *known = Some(TemplateHolding {
                shape: Arc::clone(&task.shape),
                holding: Arc::clone(&holds),
            });
        }
        holds
    }
}
