//! Changes as they are under `compatibility: corrected`: one that does not fit its task's status is refused whole.

use std::sync::Arc;

use super::{Change, Outcome, Placement, State, Step};
use crate::engine::model::{Kind, TaskRecord, TaskStatus};

impl State {
    /// One change under `corrected`; the error says why it does not fit.
    pub(super) fn corrected(&mut self, change: &Change, outcome: &mut Outcome) -> Result<Step, String> {
        use TaskStatus::{Allocated, Binding, Bound, Pipelined, Releasing, Running};
        match change {
            Change::Allocate(to) => self.place(to, Allocated, outcome).map(|()| Step::Allocate),
            Change::Pipeline(to) => self.place(to, Pipelined, outcome).map(|()| Step::Pipeline),
            Change::Evict(task) => {
                let before = self.expect(task, &[Allocated, Binding, Bound, Running])?;
                self.evicted.insert(Arc::clone(task), before);
                self.set(task, Releasing, None, outcome);
                Ok(Step::Deallocate)
            }
            Change::Unevict(task) => {
                self.expect(task, &[Releasing])?;
                let Some(before) = self.evicted.remove(task) else {
                    return Err(format!("task `{task}` was not evicted in this session"));
                };
                self.set(task, before, None, outcome);
                Ok(Step::Allocate)
            }
            Change::Unallocate(task) => self.withdraw(task, &[Allocated], outcome),
            Change::BindFailed(task) => self.withdraw(task, &[Allocated, Binding], outcome),
            Change::Unpipeline(task) => self.withdraw(task, &[Pipelined], outcome),
            Change::JobEnqueued(_) | Change::Savepoint(_) | Change::RollbackTo(_) => {
                Err(format!("`{}` is no change of a task", change.word()))
            }
        }
    }

    fn place(&mut self, to: &Placement, status: TaskStatus, outcome: &mut Outcome) -> Result<(), String> {
        self.expect(&to.task, &[TaskStatus::Pending])?;
        if self.view.slot_of(&to.node).is_none() {
            return Err(format!("there is no node `{}`", to.node));
        }
        self.set(&to.task, status, Some(&to.node), outcome);
        Ok(())
    }

    fn withdraw(&mut self, task: &Arc<str>, from: &[TaskStatus], outcome: &mut Outcome) -> Result<Step, String> {
        self.expect(task, from)?;
        self.set(task, TaskStatus::Pending, Some(&Arc::default()), outcome);
        Ok(Step::Deallocate)
    }

    /// The task's status, which must be one of these.
    pub(super) fn expect(&self, task: &str, fitting: &[TaskStatus]) -> Result<TaskStatus, String> {
        let status = self
            .view
            .tasks()
            .get(task)
            .map_or(TaskStatus::Unknown, |stored| stored.record.status);
        if fitting.contains(&status) {
            return Ok(status);
        }
        let fitting: Vec<String> = fitting.iter().map(|status| format!("{status:?}")).collect();
        Err(format!("task `{task}` is {status:?}, not {}", fitting.join(" or ")))
    }

    /// Gives a task a status, and a node if there is one; nodes and job follow.
    fn set(&mut self, task: &str, status: TaskStatus, node: Option<&Arc<str>>, outcome: &mut Outcome) {
        let Some(stored) = self.view.tasks().get(task).cloned() else {
            return;
        };
        let before = Arc::clone(&stored.record.node);
        let node = node.map_or_else(|| Arc::clone(&before), Arc::clone);
        self.touch(&[&before, &node], &stored.record.job, outcome);
        self.view.put_task(
            TaskRecord {
                node,
                status,
                ..stored.record.clone()
            },
            &stored.source,
        );
        if stored.invalid().is_some() {
            self.view.set_invalid(Kind::Task, task, stored.invalid().cloned());
        }
    }
}
