//! Backfill: places tasks without requests, also on full nodes.

use std::sync::Arc;

use super::allocation_unit::TaskHeap;
use super::queued_jobs::QueuedJobs;
use super::session::ActionSession;
use super::statement::ActionStatement;
use crate::cycle::{SessionChange, TaskPlacement};
use crate::decide::{NodeChoice, NodeGradient};
use crate::model::{Problem, TaskStatus};

/// Runs the action.
pub(super) fn run(session: &mut ActionSession<'_>) -> Result<(), Problem> {
    for (job, task) in waiting_tasks(session)? {
        session.backfill(job, task)?;
    }
    Ok(())
}

/// Waiting tasks without requests, with their jobs: by queue, then by job, then by task.
fn waiting_tasks(session: &mut ActionSession<'_>) -> Result<Vec<(usize, usize)>, Problem> {
    session.refresh_tasks();
    let mut jobs = QueuedJobs::new(session);
    let mut tasks: Vec<TaskHeap> = vec![TaskHeap::new(); session.jobs.len()];
    for job in 0..session.jobs.len() {
        if session.is_waiting(job) || session.is_invalid(job) {
            continue;
        }
        let waiting = session.tasks_without_requests(job)?;
        if waiting.is_empty() {
            continue;
        }
        if let Some(heap) = tasks.get_mut(job) {
            for task in waiting {
                heap.push(task, |left, right| session.numbered_task_less(left, right));
            }
        }
        jobs.push(session, job);
    }
    let mut ordered = Vec::new();
    while let Some(queue) = jobs.pop_queue(session) {
        while let Some(job) = jobs.pop_job(session, queue) {
            let Some(waiting) = tasks.get_mut(job) else { continue };
            while let Some(task) = waiting.pop(|left, right| session.numbered_task_less(left, right)) {
                ordered.push((job, task));
            }
        }
    }
    Ok(ordered)
}

impl ActionSession<'_> {
    /// Waiting tasks of a job that request nothing. Pipelined ones lose their places and wait again.
    fn tasks_without_requests(&mut self, job: usize) -> Result<Vec<usize>, Problem> {
        let asks_nothing = |session: &Self, task: usize| {
            let task = session.tasks.get(task).map(|task| &task.stored.record);
            task.is_some_and(|task| task.requests.is_only_pods())
        };
        let mut waiting = self.tasks_of(job, TaskStatus::Pending);
        waiting.retain(|task| {
            let gated = self.tasks.get(*task).is_none_or(|task| task.stored.record.gated);
            !gated && asks_nothing(self, *task)
        });
        // Under `corrected` the place of such a task is kept until it is free.
        let mut pipelined = self.tasks_of(job, TaskStatus::Pipelined);
        pipelined.retain(|_| self.is_upstream());
        pipelined.retain(|task| asks_nothing(self, *task));
        for task in pipelined {
            let name = self.tasks.get(task).map(|task| Arc::clone(&task.stored.record.name));
            if self.change(task, &SessionChange::Unpipeline(name.unwrap_or_default()))? {
                waiting.push(task);
            }
        }
        Ok(waiting)
    }

    /// Places a task on the best node that passes the policy's filters. The bind is sent when the job is ready.
    fn backfill(&mut self, job: usize, task: usize) -> Result<(), Problem> {
        let Some(stored) = self.stored_task(task) else {
            return Ok(());
        };
        let record = &stored.record;
        let Ok(passing) = self.chooser.passing(self.context(), record, NodeGradient::Any, None) else {
            return Ok(());
        };
        let choice = self
            .chooser
            .rank(self.context(), record, NodeGradient::Any, &passing, true);
        let NodeChoice::Ranked(slots) = choice else {
            return Ok(());
        };
        let Some(slot) = slots.first().copied() else {
            return Ok(());
        };
        let placed = if self.is_upstream() {
            let to = TaskPlacement {
                task: Arc::clone(&record.name),
                node: self.cycle.cluster_state().name_of(slot).unwrap_or_default(),
                card: Arc::default(),
                devices: 0,
            };
            let outcome = self.cycle.place_without_rollback(&to, TaskStatus::Allocated);
            outcome.is_ok_and(|outcome| {
                self.note_change(Some(job), &outcome);
                true
            })
        } else {
            let mut statement = ActionStatement::default();
            self.place(&mut statement, task, (slot, Arc::default()), TaskStatus::Allocated)?
        };
        if placed && self.is_ready(job) {
            self.bind_allocated(job);
        } else if placed {
            self.note_unbound(job);
        }
        Ok(())
    }

    /// Sends the binds of all allocated tasks of a job.
    pub(super) fn bind_allocated(&mut self, job: usize) {
        let tasks = self.jobs.get(job).map(|job| job.tasks.clone()).unwrap_or_default();
        for task in tasks {
            let status = self.present_task(task).map(|task| task.status);
            if status == Some(TaskStatus::Allocated) {
                self.bind(task);
            }
        }
    }
}
