//! Statement: changes of an action that are committed or discarded together.

use std::sync::Arc;

use super::CycleEvent;
use super::session::ActionSession;
use crate::cycle::{SessionChange, TaskPlacement};
use crate::model::{NodeSlot, Problem, TaskStatus};

/// Operation on a task, by its number.
#[derive(Clone, Copy, Debug)]
enum ActionOperation {
    Allocate(usize),
    Pipeline(usize),
    Evict {
        task: usize,
        /// Task that needs the place.
        preemptor: usize,
    },
}

/// Operations in order.
#[derive(Debug, Default)]
pub(super) struct ActionStatement(Vec<ActionOperation>);

impl ActionStatement {
    /// Records a placement that was made.
    pub(super) fn record(&mut self, task: usize, status: TaskStatus) {
        self.0.push(if status == TaskStatus::Pipelined {
            ActionOperation::Pipeline(task)
        } else {
            ActionOperation::Allocate(task)
        });
    }

    /// True if the statement has no operations.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if tasks were evicted.
    pub(super) fn evicts(&self) -> bool {
        let evicts = |operation: &ActionOperation| matches!(operation, ActionOperation::Evict { .. });
        self.0.iter().any(evicts)
    }

    /// Numbers of the tasks that were placed.
    pub(super) fn placed_tasks(&self) -> Vec<usize> {
        let placed = |operation: &ActionOperation| match operation {
            ActionOperation::Allocate(task) | ActionOperation::Pipeline(task) => Some(*task),
            ActionOperation::Evict { .. } => None,
        };
        self.0.iter().filter_map(placed).collect()
    }

    /// Removes the operations that send a bind.
    pub(super) fn without_binds(mut self) -> Self {
        self.0
            .retain(|operation| !matches!(operation, ActionOperation::Allocate(_)));
        self
    }

    /// Appends the operations of another statement.
    pub(super) fn append(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}

impl ActionSession<'_> {
    /// Applies a change of a task; false: it was refused.
    pub(super) fn change(&mut self, task: usize, change: &SessionChange) -> Result<bool, Problem> {
        let outcome = self.cycle.apply_in_place(change)?;
        let job = self.tasks.get(task).and_then(|task| task.job);
        self.note_change(job, &outcome);
        Ok(outcome.warnings.is_empty())
    }

    fn name_of(&self, task: usize) -> Arc<str> {
        self.tasks
            .get(task)
            .map(|task| Arc::clone(&task.stored.record.name))
            .unwrap_or_default()
    }

    /// Places a task on a node; false: the placement was refused.
    pub(super) fn place(
        &mut self,
        statement: &mut ActionStatement,
        task: usize,
        (node, card): (NodeSlot, Arc<str>),
        status: TaskStatus,
    ) -> Result<bool, Problem> {
        let to = TaskPlacement {
            task: self.name_of(task),
            node: self.cycle.cluster_state().name_of(node).unwrap_or_default(),
            card,
            devices: 0,
        };
        let (change, operation) = if status == TaskStatus::Pipelined {
            (SessionChange::Pipeline(to), ActionOperation::Pipeline(task))
        } else {
            (SessionChange::Allocate(to), ActionOperation::Allocate(task))
        };
        let placed = self.change(task, &change)?;
        if placed {
            statement.0.push(operation);
        }
        Ok(placed)
    }

    /// Evicts a task for another one.
    pub(super) fn evict(
        &mut self,
        statement: &mut ActionStatement,
        task: usize,
        preemptor: usize,
    ) -> Result<(), Problem> {
        if self.change(task, &SessionChange::Evict(self.name_of(task)))? {
            statement.0.push(ActionOperation::Evict { task, preemptor });
        }
        Ok(())
    }

    /// Commits a statement: binds are sent, and evicted tasks are deleted.
    pub(super) fn commit(&mut self, statement: ActionStatement) {
        for operation in statement.0 {
            match operation {
                ActionOperation::Allocate(task) => self.bind(task),
                ActionOperation::Pipeline(task) => {
                    if let Some(record) = self.present_task(task) {
                        let (task, node) = (Arc::clone(&record.name), Arc::clone(&record.node));
                        let action = self.action;
                        self.events.push(CycleEvent::Pipelined { task, node, action });
                    }
                }
                ActionOperation::Evict { task, preemptor } => {
                    let preemptor = self.name_of(preemptor);
                    if let Some(record) = self.present_task(task) {
                        let (task, node) = (Arc::clone(&record.name), Arc::clone(&record.node));
                        self.events.push(CycleEvent::Evicted { task, node, preemptor });
                    }
                }
            }
        }
    }

    /// Sends the bind of an allocated task.
    pub(super) fn bind(&mut self, task: usize) {
        let task = self.name_of(task);
        if let Some(node) = self.cycle.bind(&task) {
            self.events.push(CycleEvent::Bound { task, node });
        }
    }

    /// Undoes the operations of a statement, the last one first.
    pub(super) fn discard(&mut self, statement: ActionStatement) -> Result<(), Problem> {
        for operation in statement.0.into_iter().rev() {
            let (task, change) = match operation {
                ActionOperation::Allocate(task) => (task, SessionChange::Unallocate(self.name_of(task))),
                ActionOperation::Pipeline(task) => (task, SessionChange::Unpipeline(self.name_of(task))),
                ActionOperation::Evict { task, .. } => (task, SessionChange::Unevict(self.name_of(task))),
            };
            self.change(task, &change)?;
        }
        Ok(())
    }
}
