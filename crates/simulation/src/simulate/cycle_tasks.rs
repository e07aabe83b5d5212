//! Tasks and jobs of a simulation by whole cycles, as their records change: by the scheduler, by their controllers, by time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use prost_types::Timestamp;
use serde::Serialize;

use super::workload::Workload;
use crate::cycle_outcome::wire_phase;
use pumice_engine::actions::{CycleEvent, CycleReport, closing_phase};
use pumice_engine::model::JobPhase;
use pumice_engine::policy::Policy;
use pumice_protocol::v1 as pb;

/// Status of a task that was being deleted from the start, and has ended.
const GONE: &str = "GONE";

/// Task of a simulation.
#[derive(Debug, Clone)]
pub(super) struct CycleTask {
    pub(super) record: pb::Task,
    /// Seconds after the first arrival. Absent: it was there from the start.
    pub(super) arrived_at: Option<f64>,
    /// Seconds that it runs. Absent: without end.
    pub(super) run_seconds: Option<f64>,
    /// Time of its first place, if it had one, in seconds after the first arrival.
    pub(super) first_placed_at: Option<f64>,
    pub(super) evictions: u64,
}

impl CycleTask {
    /// Task as it is before anything happens to it.
    fn new(record: &pb::Task, arrived_at: Option<f64>, run_seconds: Option<f64>) -> Self {
        Self {
            record: record.clone(),
            arrived_at,
            run_seconds,
            first_placed_at: None,
            evictions: 0,
        }
    }
}

/// Outcome of one task: a line of the file of `--tasks`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TaskOutcome {
    policy: String,
    task: String,
    job: String,
    queue: String,
    /// `PENDING`, `PIPELINED`, `RUNNING`, `RELEASING`, `SUCCEEDED`, `GONE`, …
    status: String,
    /// Node that the task has, had last, or waits for.
    node: String,
    /// Seconds after the first arrival; absent: it was there from the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    arrived_seconds: Option<f64>,
    /// Seconds after the first arrival; absent: it got no place.
    #[serde(skip_serializing_if = "Option::is_none")]
    placed_seconds: Option<f64>,
    evictions: u64,
}

/// Job of a simulation.
#[derive(Debug, Clone)]
struct CycleJob {
    record: pb::Job,
    /// Names of its tasks.
    tasks: BTreeSet<String>,
}

/// Tasks and jobs of a simulation, and which of their records changed.
#[derive(Debug, Default)]
pub(super) struct CycleTasks {
    tasks: BTreeMap<String, CycleTask>,
    jobs: BTreeMap<String, CycleJob>,
    changed_tasks: BTreeSet<String>,
    changed_jobs: BTreeSet<String>,
    /// Jobs that may get another phase when the next cycle ends.
    unsettled_jobs: BTreeSet<String>,
    removed: pb::Removals,
    /// Nodes that the last cycle pipelined tasks to.
    pipelined: BTreeMap<String, String>,
    /// Outcomes of tasks that were removed, by name.
    ended: BTreeMap<String, TaskOutcome>,
}

impl CycleTasks {
    /// Records that are there from the start, and the tasks among them. Jobs whose tasks all arrive later come with them.
    pub(super) fn split(workload: &Workload) -> (pb::Cluster, Self) {
        let mut initial = workload.initial_cluster.clone();
        let present: BTreeSet<&str> = initial.tasks.iter().map(|task| task.job.as_str()).collect();
        let arriving = workload.arrivals.iter().filter_map(|arrival| arrival.job.as_ref());
        let arriving: BTreeSet<&str> = arriving.map(|job| job.name.as_str()).collect();
        let stays = |job: &pb::Job| present.contains(job.name.as_str()) || !arriving.contains(job.name.as_str());
        initial.jobs = std::mem::take(&mut initial.jobs).into_iter().filter(stays).collect();
        let mut tasks = Self::default();
        for job in &initial.jobs {
            tasks.put_job(job);
        }
        for task in &initial.tasks {
            tasks.put(task, None, None);
        }
        tasks.changed_tasks.clear();
        tasks.changed_jobs.clear();
        (initial, tasks)
    }

    /// Tasks that hold amounts of their node.
    pub(super) fn placed(&self) -> impl Iterator<Item = &CycleTask> {
        let ended =
            |task: &CycleTask| matches!(task.record.status(), pb::TaskStatus::Succeeded | pb::TaskStatus::Failed);
        self.tasks
            .values()
            .filter(move |task| !task.record.node.is_empty() && !ended(task))
    }

    /// Task of this name.
    pub(super) fn get(&self, name: &str) -> Option<&CycleTask> {
        self.tasks.get(name)
    }

    /// Name of the queue of a task; empty: it has none.
    pub(super) fn queue_of(&self, task: &pb::Task) -> &str {
        self.jobs.get(&task.job).map_or("", |job| job.record.queue.as_str())
    }

    /// Adds a job, unless it is there.
    pub(super) fn put_job(&mut self, job: &pb::Job) {
        if self.jobs.contains_key(&job.name) {
            return;
        }
        let made = CycleJob {
            record: job.clone(),
            tasks: BTreeSet::new(),
        };
        self.jobs.insert(job.name.clone(), made);
        self.changed_jobs.insert(job.name.clone());
        self.unsettled_jobs.insert(job.name.clone());
    }

    /// Adds a task.
    pub(super) fn put(&mut self, task: &pb::Task, arrived_at: Option<f64>, run_seconds: Option<f64>) {
        if let Some(job) = self.jobs.get_mut(&task.job) {
            job.tasks.insert(task.name.clone());
            self.unsettled_jobs.insert(task.job.clone());
        }
        self.changed_tasks.insert(task.name.clone());
        let made = CycleTask::new(task, arrived_at, run_seconds);
        self.tasks.insert(task.name.clone(), made);
    }

    fn change(&mut self, name: &str) -> Option<&mut CycleTask> {
        let task = self.tasks.get_mut(name)?;
        self.changed_tasks.insert(name.to_owned());
        self.unsettled_jobs.insert(task.record.job.clone());
        Some(task)
    }

    /// Marks a task as evicted.
    pub(super) fn evict(&mut self, name: &str) {
        if let Some(task) = self.change(name) {
            task.record.set_status(pb::TaskStatus::Releasing);
            task.evictions = task.evictions.saturating_add(1);
        }
    }

    /// Stores the node that a cycle pipelined a task to.
    pub(super) fn pipeline(&mut self, name: &str, node: &str) {
        self.pipelined.insert(name.to_owned(), node.to_owned());
    }

    /// Forgets the pipelined tasks of the last cycle.
    pub(super) fn forget_promises(&mut self) {
        self.pipelined.clear();
    }

    fn set_status(&mut self, name: &str, status: pb::TaskStatus) {
        if let Some(task) = self.change(name) {
            task.record.set_status(status);
        }
    }

    /// Gives a waiting task its node. Returns its record, the seconds that it waited for its first place, and its run time.
    pub(super) fn bind(&mut self, name: &str, node: &str, now: f64) -> Option<(pb::Task, Option<f64>, Option<f64>)> {
        let task = self.change(name)?;
        task.record.set_status(pb::TaskStatus::Running);
        node.clone_into(&mut task.record.node);
        let first = task.first_placed_at.is_none();
        task.first_placed_at.get_or_insert(now);
        let waited = task.arrived_at.filter(|_| first).map(|arrived| now - arrived);
        Some((task.record.clone(), waited, task.run_seconds))
    }

    /// Ends a task by itself.
    pub(super) fn finish(&mut self, name: &str) {
        self.set_status(name, pb::TaskStatus::Succeeded);
        if let Some(task) = self.tasks.get(name)
            && !self.jobs.contains_key(&task.record.job)
        {
            self.remove_task(name);
        }
    }

    /// Removes a task that was being deleted from the start. Returns the name of its job, if that has no other task.
    pub(super) fn end_terminating(&mut self, name: &str) -> Option<String> {
        let job = self.change(name)?.record.job.clone();
        self.remove_task(name);
        if let Some(outcome) = self.ended.get_mut(name) {
            GONE.clone_into(&mut outcome.status);
        }
        let tasks = &mut self.jobs.get_mut(&job)?.tasks;
        tasks.remove(name);
        tasks.is_empty().then_some(job)
    }

    /// True if tasks on a node are being released.
    pub(super) fn is_releasing_on(&self, node: &str) -> bool {
        let releasing = |task: &CycleTask| task.record.status() == pb::TaskStatus::Releasing;
        self.tasks
            .values()
            .any(|task| task.record.node == node && releasing(task))
    }

    /// Makes an evicted task again, as its controller does.
    pub(super) fn recreate(&mut self, name: &str, seconds: i64) {
        if let Some(task) = self.change(name) {
            task.record.set_status(pb::TaskStatus::Pending);
            task.record.node.clear();
            task.record.nominated_node.clear();
            task.record.creation_time = Some(Timestamp { seconds, nanos: 0 });
        }
    }

    /// Phases that a cycle with this end writes, of jobs that may get another one. A job whose tasks are still to come keeps its
    /// phase, where Volcano calls it completed if its minimum is 0.
    pub(super) fn closing_phases(&mut self, policy: &Policy, end: &CycleReport) -> Vec<(String, JobPhase)> {
        let mut jobs = std::mem::take(&mut self.unsettled_jobs);
        let state = end.cycle.cluster_state();
        let job_of = |task: &Arc<str>| state.tasks().get(task).map(|task| &task.record.job);
        let changed = end.events.iter().filter_map(|event| {
            if let CycleEvent::Enqueued(job) = event {
                Some(job)
            } else {
                event.task().and_then(job_of)
            }
        });
        jobs.extend(changed.map(ToString::to_string));
        let phases = jobs.into_iter().filter_map(|name| {
            let job = &state.jobs().get(name.as_str())?.record;
            let tasks = &self.jobs.get(&name)?.tasks;
            let stored = tasks.iter().filter_map(|task| state.tasks().get(task.as_str()));
            let phase = if tasks.is_empty() {
                job.phase
            } else {
                closing_phase(policy, job, stored.map(|task| &task.record))
            };
            Some((name, phase))
        });
        phases.collect()
    }

    /// Gives a job a phase. Returns true if it had another one.
    pub(super) fn set_phase(&mut self, name: &str, phase: JobPhase) -> bool {
        let phase = wire_phase(phase);
        let Some(job) = self.jobs.get_mut(name).filter(|job| job.record.phase() != phase) else {
            return false;
        };
        job.record.set_phase(phase);
        self.changed_jobs.insert(name.to_owned());
        true
    }

    /// True if a job has tasks, and all have ended.
    pub(super) fn has_ended(&self, name: &str) -> bool {
        let tasks = self.jobs.get(name).map(|job| &job.tasks);
        let ended = |task: &String| {
            let status = self.tasks.get(task).map(|task| task.record.status());
            matches!(status, Some(pb::TaskStatus::Succeeded | pb::TaskStatus::Failed))
        };
        tasks.is_some_and(|tasks| !tasks.is_empty() && tasks.iter().all(ended))
    }

    /// Names of the jobs that are not enqueued.
    pub(super) fn pending_jobs(&self) -> Vec<String> {
        let pending = |job: &CycleJob| matches!(job.record.phase(), pb::JobPhase::Pending | pb::JobPhase::Unspecified);
        let jobs = self.jobs.iter().filter(|(_, job)| pending(job));
        jobs.map(|(name, _)| name.clone()).collect()
    }

    pub(super) fn remove_job(&mut self, name: &str) {
        let tasks = self.jobs.get(name).map(|job| job.tasks.clone());
        for task in tasks.iter().flatten() {
            self.remove_task(task);
        }
        self.jobs.remove(name);
        self.changed_jobs.remove(name);
        self.unsettled_jobs.remove(name);
        self.removed.jobs.push(name.to_owned());
    }

    /// Outcomes of all tasks under a policy, by name.
    pub(super) fn into_outcomes(mut self, policy: &str) -> Vec<TaskOutcome> {
        let mut outcomes = std::mem::take(&mut self.ended);
        outcomes.extend(self.tasks.iter().map(|(name, task)| (name.clone(), self.outcome(task))));
        let named = |outcome| TaskOutcome {
            policy: policy.to_owned(),
            ..outcome
        };
        outcomes.into_values().map(named).collect()
    }

    fn outcome(&self, task: &CycleTask) -> TaskOutcome {
        let record = &task.record;
        let promised = self.pipelined.get(&record.name);
        let status = record.status().as_str_name().trim_start_matches("TASK_STATUS_");
        TaskOutcome {
            policy: String::new(),
            task: record.name.clone(),
            job: record.job.clone(),
            queue: self.queue_of(record).to_owned(),
            status: promised.map_or(status, |_| "PIPELINED").to_owned(),
            node: promised.unwrap_or(&record.node).clone(),
            arrived_seconds: task.arrived_at,
            placed_seconds: task.first_placed_at,
            evictions: task.evictions,
        }
    }

    fn remove_task(&mut self, name: &str) {
        if let Some(outcome) = self.tasks.get(name).map(|task| self.outcome(task)) {
            self.ended.insert(name.to_owned(), outcome);
        }
        self.tasks.remove(name);
        self.changed_tasks.remove(name);
        self.removed.tasks.push(name.to_owned());
    }

    /// Records that changed since the last call, and the names of removed records.
    pub(super) fn take_changes(&mut self) -> (pb::Cluster, pb::Removals) {
        let tasks = std::mem::take(&mut self.changed_tasks);
        let jobs = std::mem::take(&mut self.changed_jobs);
        let put = pb::Cluster {
            tasks: tasks
                .iter()
                .filter_map(|name| Some(self.tasks.get(name)?.record.clone()))
                .collect(),
            jobs: jobs
                .iter()
                .filter_map(|name| Some(self.jobs.get(name)?.record.clone()))
                .collect(),
            ..pb::Cluster::default()
        };
        (put, std::mem::take(&mut self.removed))
    }
}
