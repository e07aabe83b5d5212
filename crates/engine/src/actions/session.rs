//! Session of a cycle: queues, jobs and tasks by number, and the policy's decisions about them in the present state.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::order_keys::{KeyCaches, TaskOrderKeys, task_order_keys};
use super::{CycleAction, CycleClaims, CycleEvent, CycleQuery, CycleReport};
use crate::cycle::SchedulingCycle;
use crate::decide::{
    AdmitVerdict, LastRounds, NodeChooser, NodeRankings, admit_task, is_job_pipelined, is_job_ready, is_job_starving,
    job_objection, may_queue_reclaim, queue_overused,
};
use crate::model::{JobPhase, JobRecord, NodeSlot, Problem, StoredRecord, TaskRecord, TaskStatus};
use crate::plugin::{DecisionTime, PluginContext};
use crate::policy::{Policy, ReleaseRules};

/// Queue of a session: its name and creation time, which breaks ties.
#[derive(Clone, Debug)]
pub(super) struct SessionQueue {
    pub(super) name: Arc<str>,
    pub(super) creation_time: Option<i64>,
}

/// Job of a session; its queue exists.
#[derive(Clone, Debug)]
pub(super) struct SessionJob {
    pub(super) name: Arc<str>,
    pub(super) creation_time: Option<i64>,
    /// Number of its queue.
    pub(super) queue: usize,
    /// Numbers of its tasks, by name.
    pub(super) tasks: Vec<usize>,
    /// Roles with a task that could not be placed in this session.
    pub(super) failed_roles: BTreeSet<Arc<str>>,
}

/// Task of a session, as the last look at the cluster state found it.
#[derive(Clone, Debug)]
pub(super) struct SessionTask {
    pub(super) stored: Arc<StoredRecord<TaskRecord>>,
    /// Number of its job; `None`: the job is not in the session.
    pub(super) job: Option<usize>,
    /// Keys by which it is ordered.
    pub(super) order: TaskOrderKeys,
}

/// Session of a cycle.
pub(super) struct ActionSession<'p> {
    pub(super) cycle: SchedulingCycle,
    pub(super) policy: &'p Policy,
    pub(super) chooser: NodeChooser<'p>,
    pub(super) now: Option<DecisionTime>,
    pub(super) claims: &'p CycleClaims,
    pub(super) last_rounds: &'p LastRounds,
    /// Plugins that made a round of evictions without a preemptor.
    pub(super) rounds: Vec<Arc<str>>,
    /// Jobs with tasks that an action placed and whose binds wait until the job is ready.
    pub(super) unbound_jobs: BTreeSet<usize>,
    /// Action that runs.
    pub(super) action: CycleAction,
    pub(super) queues: Vec<SessionQueue>,
    pub(super) jobs: Vec<SessionJob>,
    pub(super) tasks: Vec<SessionTask>,
    pub(super) keys: KeyCaches,
    /// True if placements may change the order of tasks.
    pub(super) has_moving_orders: bool,
    /// Rankings of nodes by class of tasks.
    pub(super) rankings: NodeRankings,
    /// Nodes that changed, in the order of the changes.
    pub(super) changed_nodes: Vec<NodeSlot>,
    pub(super) events: Vec<CycleEvent>,
}

impl<'p> ActionSession<'p> {
    pub(super) fn new(cycle: SchedulingCycle, policy: &'p Policy, query: CycleQuery<'p>) -> Self {
        let state = cycle.cluster_state();
        let queues: Vec<SessionQueue> = state
            .queues()
            .iter()
            .map(|(name, stored)| SessionQueue {
                name: Arc::clone(name),
                creation_time: stored.record.creation_time,
            })
            .collect();
        let queue_of = |name: &str| queues.binary_search_by(|queue| (*queue.name).cmp(name)).ok();
        let job = |(name, stored): (&Arc<str>, &Arc<StoredRecord<JobRecord>>)| {
            Some(SessionJob {
                name: Arc::clone(name),
                creation_time: stored.record.creation_time,
                queue: queue_of(&stored.record.queue)?,
                tasks: Vec::new(),
                failed_roles: BTreeSet::new(),
            })
        };
        let mut jobs: Vec<SessionJob> = state.jobs().iter().filter_map(job).collect();
        let mut tasks = Vec::with_capacity(state.tasks().len());
        let records: Vec<&TaskRecord> = state.tasks().iter().map(|(_, stored)| &stored.record).collect();
        let mut task_orders = policy.hooks().task_orders.iter();
        let has_moving_orders = task_orders.any(|hook| hook.plugin.hooks().reads_tasks);
        let orders = task_order_keys(policy, cycle.plugin_context(query.now), &records);
        for ((_, stored), order) in state.tasks().iter().zip(orders) {
            let name = &stored.record.job;
            let job = jobs.binary_search_by(|job| job.name.cmp(name)).ok();
            if let Some(job) = job.and_then(|job| jobs.get_mut(job)) {
                job.tasks.push(tasks.len());
            }
            tasks.push(SessionTask {
                stored: Arc::clone(stored),
                job,
                order,
            });
        }
        let keys = KeyCaches::new(queues.len(), jobs.len());
        Self {
            cycle,
            policy,
            chooser: NodeChooser::new(policy),
            now: query.now,
            claims: query.claims,
            last_rounds: query.last_rounds,
            rounds: Vec::new(),
            unbound_jobs: BTreeSet::new(),
            action: CycleAction::Allocate,
            queues,
            jobs,
            tasks,
            keys,
            has_moving_orders,
            rankings: NodeRankings::default(),
            changed_nodes: Vec::new(),
            events: Vec::new(),
        }
    }

    pub(super) fn into_report(self) -> CycleReport {
        CycleReport {
            cycle: self.cycle,
            events: self.events,
            rounds: self.rounds,
        }
    }

    /// Rules of the release that is followed.
    pub(super) fn rules(&self) -> ReleaseRules {
        self.policy.compatibility().release().rules()
    }

    /// True if the policy follows a release exactly.
    pub(super) fn is_upstream(&self) -> bool {
        self.policy.compatibility().is_upstream()
    }

    pub(super) fn context(&self) -> PluginContext<'_> {
        self.cycle.plugin_context(self.now)
    }

    /// Reads all tasks again at the start of an action.
    pub(super) fn refresh_tasks(&mut self) {
        let present = self.cycle.cluster_state().tasks().iter();
        for (task, (_, stored)) in self.tasks.iter_mut().zip(present) {
            if !Arc::ptr_eq(&task.stored, stored) {
                task.stored = Arc::clone(stored);
            }
        }
    }

    /// Task in the present state.
    pub(super) fn present_task(&self, task: usize) -> Option<&TaskRecord> {
        let name = &self.tasks.get(task)?.stored.record.name;
        self.cycle
            .cluster_state()
            .tasks()
            .get(name)
            .map(|stored| &stored.record)
    }

    /// Numbers of the tasks of a job that had a status when the action began.
    pub(super) fn tasks_of(&self, job: usize, status: TaskStatus) -> Vec<usize> {
        let all = self.jobs.get(job).map_or(&[][..], |job| &job.tasks);
        let has_status = |task: &&usize| {
            let task = self.tasks.get(**task);
            task.is_some_and(|task| task.stored.record.status == status)
        };
        all.iter().filter(has_status).copied().collect()
    }

    /// Job in the present state.
    pub(super) fn job_record(&self, job: usize) -> Option<&JobRecord> {
        let name = &self.jobs.get(job)?.name;
        self.cycle.cluster_state().jobs().get(name).map(|stored| &stored.record)
    }

    /// True if a job waits to be enqueued.
    pub(super) fn is_waiting(&self, job: usize) -> bool {
        let phase = self.job_record(job).map(|job| job.phase);
        matches!(phase, Some(JobPhase::Pending | JobPhase::Unspecified))
    }

    /// True if a plugin objects to a job.
    pub(super) fn is_invalid(&self, job: usize) -> bool {
        let record = self.job_record(job);
        record.is_none_or(|job| job_objection(self.policy, self.context(), job).is_some())
    }

    pub(super) fn is_ready(&self, job: usize) -> bool {
        let record = self.job_record(job);
        record.is_some_and(|job| is_job_ready(self.policy, self.context(), job))
    }

    pub(super) fn is_pipelined(&self, job: usize) -> bool {
        let record = self.job_record(job);
        record.is_some_and(|job| is_job_pipelined(self.policy, self.context(), job))
    }

    /// True if a job may evict others to get its tasks.
    pub(super) fn is_starving(&self, job: usize) -> bool {
        let record = self.job_record(job);
        record.is_some_and(|job| is_job_starving(self.policy, self.context(), job))
    }

    /// True if the queue of a job may evict tasks of other queues for a task. False if the queue cannot be evaluated.
    pub(super) fn may_queue_preempt(&mut self, job: usize, task: usize) -> bool {
        let queue = self.jobs.get(job).and_then(|job| self.queues.get(job.queue));
        let (Some(queue), Some(task)) = (queue.map(|queue| Arc::clone(&queue.name)), self.tasks.get(task)) else {
            return false;
        };
        let judged = may_queue_reclaim(self.policy, self.context(), &queue, &task.stored.record);
        match judged {
            Ok(may) => may.unwrap_or(true),
            Err(problem) => {
                self.pass_over(&queue, problem);
                false
            }
        }
    }

    /// True if a queue holds too much to be served more tasks. A queue that cannot be evaluated is skipped.
    pub(super) fn is_overused(&mut self, queue: usize) -> bool {
        let Some(name) = self.queues.get(queue).map(|queue| Arc::clone(&queue.name)) else {
            return true;
        };
        match queue_overused(self.policy, self.context(), &name) {
            Ok(overused) => overused.unwrap_or(false),
            Err(problem) => {
                self.pass_over(&name, problem);
                true
            }
        }
    }

    /// Verdict on a task to allocate. `None`: the task is rejected or cannot be evaluated.
    pub(super) fn admitted(&mut self, task: &TaskRecord) -> Option<AdmitVerdict> {
        match admit_task(self.context(), self.policy, task) {
            Ok(verdict) => Some(verdict).filter(|verdict| verdict.permitted),
            Err(problem) => {
                self.pass_over(&task.name, problem);
                None
            }
        }
    }

    /// Records, once, a subject that cannot be evaluated.
    pub(super) fn pass_over(&mut self, name: &Arc<str>, problem: Problem) {
        let event = CycleEvent::PassedOver {
            name: Arc::clone(name),
            problem,
        };
        if !self.events.contains(&event) {
            self.events.push(event);
        }
    }
}
