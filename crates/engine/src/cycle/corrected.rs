//! Changes under `compatibility: corrected`: a change that does not fit its task's status is rejected as a whole.

use std::sync::Arc;

use super::{ChangeOutcome, CycleState, RequestEffect, SessionChange, TaskPlacement};
use crate::devices::DeviceMask;
use crate::model::{RecordKind, TaskRecord, TaskStatus};

impl CycleState {
    /// Applies one change under `corrected`. The error has the reason why it does not fit.
    pub(super) fn apply_corrected(
        &mut self,
        change: &SessionChange,
        outcome: &mut ChangeOutcome,
    ) -> Result<RequestEffect, String> {
        use TaskStatus::{Allocated, Binding, Bound, Pipelined, Releasing, Running};
        match change {
            SessionChange::Allocate(to) => self.place_task(to, Allocated, outcome),
            SessionChange::Pipeline(to) => self.place_task(to, Pipelined, outcome),
            SessionChange::Evict(task) => {
                let before = self.expect_status(task, &[Allocated, Binding, Bound, Running])?;
                self.evicted.insert(Arc::clone(task), before);
                self.set_task(task, Releasing, None, outcome);
                Ok(RequestEffect::Deallocate)
            }
            SessionChange::Unevict(task) => {
                self.expect_status(task, &[Releasing])?;
                let Some(before) = self.evicted.remove(task) else {
                    return Err(format!("task `{task}` was not evicted in this session"));
                };
                self.set_task(task, before, None, outcome);
                Ok(RequestEffect::Allocate)
            }
            SessionChange::Unallocate(task) => self.withdraw(task, &[Allocated], outcome),
            SessionChange::BindFailed(task) => self.withdraw(task, &[Allocated, Binding], outcome),
            SessionChange::Unpipeline(task) => self.withdraw(task, &[Pipelined], outcome),
            SessionChange::JobEnqueued(_) | SessionChange::Savepoint(_) | SessionChange::RollbackTo(_) => {
                Err(format!("`{}` is no change of a task", change.wire_name()))
            }
        }
    }

    fn place_task(
        &mut self,
        to: &TaskPlacement,
        status: TaskStatus,
        outcome: &mut ChangeOutcome,
    ) -> Result<RequestEffect, String> {
        self.expect_status(&to.task, &[TaskStatus::Pending])?;
        if self.cluster_state.slot_of(&to.node).is_none() {
            return Err(format!("there is no node `{}`", to.node));
        }
        self.set_task(&to.task, status, Some((&to.node, to.devices)), outcome);
        Ok(RequestEffect::Allocate)
    }

    fn withdraw(
        &mut self,
        task: &Arc<str>,
        from: &[TaskStatus],
        outcome: &mut ChangeOutcome,
    ) -> Result<RequestEffect, String> {
        self.expect_status(task, from)?;
        self.set_task(task, TaskStatus::Pending, Some((&Arc::default(), 0)), outcome);
        Ok(RequestEffect::Deallocate)
    }

    /// Status of the task. It must be in `fitting`.
    pub(super) fn expect_status(&self, task: &str, fitting: &[TaskStatus]) -> Result<TaskStatus, String> {
        let status = self
            .cluster_state
            .tasks()
            .get(task)
            .map_or(TaskStatus::Unknown, |stored| stored.record.status);
        if fitting.contains(&status) {
            return Ok(status);
        }
        let fitting: Vec<String> = fitting.iter().map(|status| format!("{status:?}")).collect();
        Err(format!("task `{task}` is {status:?}, not {}", fitting.join(" or ")))
    }

    /// Sets a task's status, and its node and devices if they are given; updates the nodes and the job.
    fn set_task(
        &mut self,
        task: &str,
        status: TaskStatus,
        to: Option<(&Arc<str>, DeviceMask)>,
        outcome: &mut ChangeOutcome,
    ) {
        let Some(stored) = self.cluster_state.tasks().get(task).cloned() else {
            return;
        };
        let before = Arc::clone(&stored.record.node);
        let node = to.map_or_else(|| Arc::clone(&before), |(node, _)| Arc::clone(node));
        self.touch(&[&before, &node], &stored.record.job, outcome);
        let mut record = TaskRecord {
            node,
            status,
            ..stored.record.clone()
        };
        if let Some((node, given)) = to.filter(|_| record.device_request().is_some()) {
            let slot = self.cluster_state.slot_of(node);
            let chosen = slot.map_or(0, |slot| self.cluster_state.devices_for(&record, slot, status, given));
            record.assign_devices(chosen);
        }
        self.cluster_state.put_task(record, &stored.source);
        if stored.invalid().is_some() {
            self.cluster_state
                .set_invalid(RecordKind::Task, task, stored.invalid().cloned());
        }
    }
}
