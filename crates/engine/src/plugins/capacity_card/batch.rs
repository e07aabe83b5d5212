//! Many tasks of one job that come to hold what they need: booked together, as if one came after the other.

use std::sync::Arc;

use super::amounts::QuotaAmounts;
use super::holding_status::{HoldingStatus, Moved};
use super::state::CapacityState;
use super::task_need::TaskNeed;
use crate::model::{ClusterState, TableCursor, TaskRecord, TaskShape};
use crate::plugin_state::TaskTransition;

/// Amounts that tasks of one template hold wherever they run.
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
        let (mut all, mut any, mut changes_least) = (Moved::default(), false, entry.has_request_errors);
        let (mut known, mut nears) = (None, [TableCursor::default(); 2]);
        for moved in moves {
            let task = moved.after;
            let before = self.holding_status_near(&task.name, &mut nears);
            let after = HoldingStatus {
                holds: Some(self.holding_on_node(cluster_state, moved, &mut known)),
                waits: false,
            };
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
                Some(known) if before.holds.is_none() => {
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
            self.move_job(&job, &entry, &all);
        }
        if any && changes_least {
            self.renew_least(cluster_state, &job);
        }
    }

    /// How a task stands, whose name is beside the last one.
    fn holding_status_near(&self, task: &str, [held, opened]: &mut [TableCursor; 2]) -> HoldingStatus {
        if let Some(context) = self.task_holdings.get_with_cursor(task, held) {
            return context.clone();
        }
        let stored = self.opening_state.tasks().get_with_cursor(task, opened);
        stored.map_or_else(HoldingStatus::default, |stored| self.holding_status_of(&stored.record))
    }

    /// Amounts that a task holds on its node; tasks of the last template hold the same, if nodes do not matter to it.
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
