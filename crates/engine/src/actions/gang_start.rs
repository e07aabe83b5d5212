//! Start of a gang: places the tasks that a job needs to be ready in one pass over the nodes. The result equals placing
//! one task after the other.

use std::sync::Arc;

use super::allocation_unit::TaskHeap;
use super::session::ActionSession;
use super::statement::ActionStatement;
use crate::decide::{Parallelism, PlaceGroup, PlaceQuery, place_in_cycle};
use crate::model::{Problem, TaskRecord, TaskStatus};

/// Result of the attempt to start a gang in one pass.
pub(super) enum GangStart {
    /// Tasks were placed, or none need be.
    Started,
    /// Tasks must be placed one after the other.
    TaskByTask,
    /// The job cannot get what it needs, and nothing was changed.
    Impossible,
}

impl ActionSession<'_> {
    /// Places the missing tasks of a job, if all of them fit on nodes.
    ///
    /// # Errors
    /// A plugin cannot apply a placement.
    pub(super) fn start_gang(
        &mut self,
        job: usize,
        waiting: &mut TaskHeap,
        statement: &mut ActionStatement,
    ) -> Result<GangStart, Problem> {
        // Mistakes of the reference show only task by task.
        if self.is_upstream() || self.policy.hooks().job_ready.is_empty() || self.is_ready(job) {
            return Ok(GangStart::TaskByTask);
        }
        let missing = self.missing_tasks(job);
        if missing < 2 {
            return Ok(GangStart::TaskByTask);
        }
        let before = waiting.clone();
        let next = || waiting.pop(|left, right| self.numbered_task_less(left, right));
        let tasks: Vec<usize> = std::iter::from_fn(next).take(missing).collect();
        let last = waiting.is_empty();
        let Some(groups) = self.task_groups(&tasks) else {
            *waiting = before;
            return Ok(GangStart::TaskByTask);
        };
        let query = PlaceQuery {
            now: self.now,
            job: None,
            groups: groups.into_iter().map(Ok).collect(),
            resources: Arc::clone(self.cycle.cluster_state().resources()),
            min_available: Some(missing),
            candidates: None,
            exclusions: Vec::new(),
            idle_only: false,
            samples: 0,
            max_pairs: u64::MAX,
        };
        let placed = place_in_cycle(&mut self.cycle, self.policy, &query, Parallelism::SEQUENTIAL)?;
        let Some((result, outcome)) = placed.filter(|(result, _)| result.placed) else {
            *waiting = before;
            let never = last && self.only_ready_jobs_are_pipelined();
            return Ok(if never {
                GangStart::Impossible
            } else {
                GangStart::TaskByTask
            });
        };
        self.note_change(Some(job), &outcome);
        let mut tasks = tasks.into_iter();
        for group in result.groups.iter().flatten() {
            tasks
                .by_ref()
                .take(group.allocated.len())
                .for_each(|task| statement.record(task, TaskStatus::Allocated));
            tasks
                .by_ref()
                .take(group.pipelined.len())
                .for_each(|task| statement.record(task, TaskStatus::Pipelined));
        }
        Ok(GangStart::Started)
    }

    /// Number of tasks that a job lacks of its minimum; 0: none, or its tasks are too few.
    fn missing_tasks(&self, job: usize) -> usize {
        let (Some(own), Some(record)) = (self.jobs.get(job), self.job_record(job)) else {
            return 0;
        };
        let needs_nothing = |task: &TaskRecord| task.status == TaskStatus::Pending && task.requests.is_only_pods();
        let starts = |task: &&TaskRecord| task.status.is_started() || needs_nothing(task);
        let started = own
            .tasks
            .iter()
            .filter_map(|task| self.present_task(*task))
            .filter(starts);
        usize::try_from(record.min_member)
            .unwrap_or(0)
            .saturating_sub(started.count())
    }

    /// True if the same plugins decide whether a job is pipelined and whether it is ready. A job with too few tasks is
    /// then neither.
    fn only_ready_jobs_are_pipelined(&self) -> bool {
        let hooks = self.policy.hooks();
        let mut voters = hooks.job_pipelined.iter().flatten();
        voters.all(|voter| hooks.job_ready.iter().any(|judge| judge.name == voter.name))
    }

    /// Groups of neighbouring equal tasks. `None`: a task must be evaluated alone.
    fn task_groups(&self, tasks: &[usize]) -> Option<Vec<PlaceGroup>> {
        let mut groups: Vec<PlaceGroup> = Vec::new();
        for task in tasks {
            let record = &self.tasks.get(*task)?.stored.record;
            if record.gated || !record.nominated_node.is_empty() {
                return None;
            }
            let name = Arc::clone(&record.name);
            match groups.last_mut().filter(|last| is_like(&last.task, record)) {
                Some(last) => {
                    last.count += 1;
                    last.names.push(name);
                }
                None => groups.push(PlaceGroup {
                    task: Arc::new(record.clone()),
                    count: 1,
                    names: vec![name],
                    warnings: Vec::new(),
                    unevaluated: Vec::new(),
                }),
            }
        }
        Some(groups)
    }
}

/// True if every node has the same verdict for two tasks of a job.
fn is_like(one: &TaskRecord, other: &TaskRecord) -> bool {
    let shape = Arc::ptr_eq(&one.shape, &other.shape) || one.shape == other.shape;
    shape && (Arc::ptr_eq(&one.labels, &other.labels) || one.labels == other.labels)
}
