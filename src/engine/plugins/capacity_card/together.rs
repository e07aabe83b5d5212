//! Many tasks of one job that come to hold what they need: booked together, as if one came after the other.

use std::sync::Arc;

use super::counts::Counts;
use super::entry::{counts, need_of};
use super::need::Need;
use super::state::CapacityState;
use crate::engine::derived::TaskMove;
use crate::engine::model::{Near, TaskRecord, TaskShape, View};

/// What tasks of one template hold wherever they run.
struct Known {
    shape: Arc<TaskShape>,
    holds: Arc<Counts>,
}

impl CapacityState {
    /// Tasks of one job now hold what they need on their nodes; under `corrected` only. Sums are exact, so that what the
    /// account takes step by step comes to what it takes at once.
    pub(super) fn hold_all<'m>(&mut self, view: &View, moves: impl Iterator<Item = &'m TaskMove<'m>>) {
        let mut moves = moves.peekable();
        let Some(job) = moves.peek().map(|first| Arc::clone(&first.after.job)) else {
            return;
        };
        let Some(entry) = self.jobs.get(&job).cloned() else {
            return;
        };
        let mut next = entry.clone();
        let (mut more, mut any) = (Counts::default(), false);
        let (mut known, mut nears) = (None, [Near::default(); 2]);
        for moved in moves {
            let task = moved.after;
            let before = self.held_near(&task.name, &mut nears);
            let after = self.holds(view, moved, &mut known);
            if before.as_ref() == Some(&after) {
                continue;
            }
            any = true;
            if let Some(before) = &before {
                more.subtract(before);
                next.use_cards(&task.annotations, before, false);
            }
            more.add(&after);
            next.use_cards(&task.annotations, &after, true);
            let [near, _] = &mut nears;
            self.held.insert_near(&task.name, Some(after), near);
        }
        if !any {
            return;
        }
        let book = |allocated: &mut Counts| {
            allocated.add(&more);
            allocated.forget_zeros();
        };
        book(&mut next.allocated);
        let (taken, added) = (entry.contribution(), next.contribution());
        self.shift(&entry.queue, |_, account| {
            account.take(&taken);
            book(&mut account.allocated);
            account.add(&added);
        });
        self.jobs.insert(job, next);
    }

    /// As [`Self::held`], of a task whose name stands beside the last one.
    fn held_near(&self, task: &str, [held, opened]: &mut [Near; 2]) -> Option<Arc<Counts>> {
        if let Some(held) = self.held.get_near(task, held) {
            return held.clone();
        }
        let record = &self.opened.tasks().get_near(task, opened)?.record;
        let holds = || Arc::new(need_of(self.context(&self.opened), record).counts());
        counts(record.status).then(holds)
    }

    /// What a task holds on its node; tasks of the template that came last hold the same, if nodes do not matter to it.
    fn holds(&self, view: &View, moved: &TaskMove<'_>, known: &mut Option<Known>) -> Arc<Counts> {
        let task: &TaskRecord = moved.after;
        let last = known.as_ref().filter(|known| Arc::ptr_eq(&known.shape, &task.shape));
        if let Some(last) = last {
            return Arc::clone(&last.holds);
        }
        let need = Need::on_node(self.context(view), task, &task.node, moved.card);
        let holds = Arc::new(need.counts());
        if self.held_anywhere(task).is_some() {
            *known = Some(Known {
                shape: Arc::clone(&task.shape),
                holds: Arc::clone(&holds),
            });
        }
        holds
    }
}
