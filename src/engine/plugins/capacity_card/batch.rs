//! Many tasks of one job that come to hold what they need: booked together, as if one came after the other.

use std::sync::Arc;

use super::amounts::QuotaAmounts;
use super::job_entry::{current_need, holds_resources};
use super::state::CapacityState;
use super::task_need::TaskNeed;
use crate::engine::model::{ClusterState, TableCursor, TaskRecord, TaskShape};
use crate::engine::plugin_state::TaskTransition;

/// What tasks of one template hold wherever they run.
struct TemplateHolding {
    shape: Arc<TaskShape>,
    holding: Arc<QuotaAmounts>,
}

impl CapacityState {
    /// Tasks of one job now hold what they need on their nodes; under `corrected` only. Sums are exact, so that what the
    /// account takes step by step comes to what it takes at once.
    pub(super) fn hold_batch<'m>(
        &mut self,
        cluster_state: &ClusterState,
        moves: impl Iterator<Item = &'m TaskTransition<'m>>,
    ) {
        let mut moves = moves.peekable();
        let Some(job) = moves.peek().map(|first| Arc::clone(&first.after.job)) else {
            return;
        };
        let Some(entry) = self.jobs.get(&job).cloned() else {
            return;
        };
        let mut next = entry.clone();
        let (mut more, mut any) = (QuotaAmounts::default(), false);
        let (mut known, mut nears) = (None, [TableCursor::default(); 2]);
        for moved in moves {
            let task = moved.after;
            let before = self.task_holding_at_cursor(&task.name, &mut nears);
            let after = self.holding_on_node(cluster_state, moved, &mut known);
            if before.as_ref() == Some(&after) {
                continue;
            }
            any = true;
            if let Some(before) = &before {
                more.subtract(before);
                next.update_card_use(&task.annotations, before, false);
            }
            more.add(&after);
            next.update_card_use(&task.annotations, &after, true);
            let [near, _] = &mut nears;
            self.task_holdings.insert_with_cursor(&task.name, Some(after), near);
        }
        if !any {
            return;
        }
        let book = |allocated: &mut QuotaAmounts| {
            allocated.add(&more);
            allocated.drop_zero_cards();
        };
        book(&mut next.allocated);
        let (taken, added) = (entry.contribution(), next.contribution());
        self.update_accounts(&entry.queue, |_, account| {
            account.remove_contribution(&taken);
            book(&mut account.allocated);
            account.add_contribution(&added);
        });
        self.jobs.insert(job, next);
    }

    /// As [`Self::held`], of a task whose name stands beside the last one.
    fn task_holding_at_cursor(&self, task: &str, [held, opened]: &mut [TableCursor; 2]) -> Option<Arc<QuotaAmounts>> {
        if let Some(held) = self.task_holdings.get_with_cursor(task, held) {
            return held.clone();
        }
        let record = &self.opening_state.tasks().get_with_cursor(task, opened)?.record;
        let holds = || Arc::new(current_need(self.need_context(&self.opening_state), record).amounts());
        holds_resources(record.status).then(holds)
    }

    /// What a task holds on its node; tasks of the template that came last hold the same, if nodes do not matter to it.
    fn holding_on_node(
        &self,
        cluster_state: &ClusterState,
        moved: &TaskTransition<'_>,
        known: &mut Option<TemplateHolding>,
    ) -> Arc<QuotaAmounts> {
        let task: &TaskRecord = moved.after;
        let last = known.as_ref().filter(|known| Arc::ptr_eq(&known.shape, &task.shape));
        if let Some(last) = last {
            return Arc::clone(&last.holding);
        }
        let need = TaskNeed::on_node(self.need_context(cluster_state), task, &task.node, moved.card);
        let holds = Arc::new(need.amounts());
        if self.node_independent_holding(task).is_some() {
            *known = Some(TemplateHolding {
                shape: Arc::clone(&task.shape),
                holding: Arc::clone(&holds),
            });
        }
        holds
    }
}
