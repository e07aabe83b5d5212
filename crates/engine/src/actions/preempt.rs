//! Preempt: jobs that starve evict tasks of other jobs of their queue, and then tasks of their own.

use super::allocation_unit::TaskHeap;
use super::error_cache::RoleErrorCache;
use super::eviction::NodeTasks;
use super::queued_jobs::QueuedJobs;
use super::session::ActionSession;
use super::statement::ActionStatement;
use crate::decide::{NodeChoice, NodeGradient};
use crate::model::{NodeSlot, Problem, TaskRecord, TaskStatus};
use crate::plugin::VictimKind;

/// Tasks that a preemptor may evict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PreemptScope {
    /// Tasks of other jobs of its queue.
    OtherJobs,
    /// Tasks of its own job.
    OwnJob,
}

/// State of the action.
struct PreemptAction {
    tasks_by_node: NodeTasks,
    errors: RoleErrorCache,
}

/// Runs the action.
pub(super) fn run(session: &mut ActionSession<'_>) -> Result<(), Problem> {
    session.refresh_tasks();
    let mut action = PreemptAction {
        tasks_by_node: NodeTasks::of(session),
        errors: session.new_error_cache(),
    };
    let starving = session.starving_jobs();
    let mut jobs = QueuedJobs::new(session);
    for job in &starving {
        jobs.push(session, *job);
    }
    while let Some(queue) = jobs.pop_queue(session) {
        while let Some(job) = jobs.pop_job(session, queue) {
            session.preempt_for_job(&mut action, job)?;
        }
        let in_queue = |job: &&usize| session.jobs.get(**job).is_some_and(|job| job.queue == queue);
        let own: Vec<usize> = starving.iter().filter(in_queue).copied().collect();
        for job in own {
            session.preempt_within_job(&mut action, job)?;
        }
    }
    Ok(())
}

impl ActionSession<'_> {
    /// Enqueued jobs that may evict others, by name.
    pub(super) fn starving_jobs(&self) -> Vec<usize> {
        let may_evict = |job: &usize| !self.is_waiting(*job) && !self.is_invalid(*job) && self.is_starving(*job);
        (0..self.jobs.len()).filter(may_evict).collect()
    }

    /// Pending tasks of a job without a scheduling gate, in a heap.
    pub(super) fn preemptors(&self, job: usize) -> TaskHeap {
        let mut heap = TaskHeap::new();
        let pending = self.jobs.get(job).map_or(&[][..], |job| &job.tasks);
        for task in pending {
            let waits = |task: &TaskRecord| task.status == TaskStatus::Pending && !task.gated;
            if self.present_task(*task).is_some_and(waits) {
                heap.push(*task, |left, right| self.numbered_task_less(left, right));
            }
        }
        heap
    }

    /// Evicts tasks of other jobs for a job until it no longer starves. The evictions are undone unless the job is
    /// pipelined afterwards.
    fn preempt_for_job(&mut self, action: &mut PreemptAction, job: usize) -> Result<(), Problem> {
        let mut statement = ActionStatement::default();
        let mut tasks = self.preemptors(job);
        while self.is_starving(job) {
            let Some(task) = tasks.pop(|left, right| self.numbered_task_less(left, right)) else {
                break;
            };
            self.preempt_for(action, &mut statement, (job, task), PreemptScope::OtherJobs)?;
        }
        self.commit_if_pipelined(job, statement)
    }

    /// Evicts tasks of a job for other tasks of it, until one finds no place.
    fn preempt_within_job(&mut self, action: &mut PreemptAction, job: usize) -> Result<(), Problem> {
        let mut tasks = self.preemptors(job);
        while let Some(task) = tasks.pop(|left, right| self.numbered_task_less(left, right)) {
            let mut statement = ActionStatement::default();
            let placed = self.preempt_for(action, &mut statement, (job, task), PreemptScope::OwnJob)?;
            if !placed && self.rules().undoes_vain_evictions {
                return self.discard(statement);
            }
            self.commit_claims(job, statement, false);
            if !placed {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Evicts tasks for one task on the best node where that makes room; true: the task waits there.
    fn preempt_for(
        &mut self,
        action: &mut PreemptAction,
        statement: &mut ActionStatement,
        (job, task): (usize, usize),
        scope: PreemptScope,
    ) -> Result<bool, Problem> {
        let Some(stored) = self.stored_task(task) else {
            return Ok(false);
        };
        let record = &stored.record;
        if self.is_upstream() {
            if !self.may_preempt_again(record) {
                return Ok(false);
            }
        } else if self.place_without_eviction(statement, (job, task))? {
            return Ok(true);
        } else if self.cycle.cluster_state().never_preempts(record) {
            return Ok(false);
        }
        for slot in self.preemptable_nodes(record, job, &mut action.errors) {
            let candidates = self.preemptees(action.tasks_by_node.on(slot), record, job, scope);
            let Some(victims) = self.victims_on(VictimKind::Preempt, record, slot, &candidates) else {
                continue;
            };
            let mut on_node = ActionStatement::default();
            let mut heap = self.victim_heap(&victims, task);
            let mut fits = self.fits_after_evictions(record, slot);
            while !fits {
                let Some(victim) = heap.pop(|left, right| self.is_evicted_first(left, right, task)) else {
                    break;
                };
                self.evict(&mut on_node, victim, task)?;
                fits = self.fits_after_evictions(record, slot);
            }
            if self.apply_evictions(statement, on_node, (job, task), (slot, fits))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// False if no task is evicted for this one, or it already has a node for which others were evicted and which passes every
    /// filter.
    fn may_preempt_again(&self, task: &TaskRecord) -> bool {
        if self.cycle.cluster_state().never_preempts(task) {
            return false;
        }
        if task.nominated_node.is_empty() {
            return true;
        }
        let slot = self.cycle.cluster_state().slot_of(&task.nominated_node);
        slot.is_some_and(|slot| !self.passes_filters(task, slot))
    }

    /// Nodes that pass every filter, or where evictions can make them pass; the best one first.
    fn preemptable_nodes(&self, task: &TaskRecord, job: usize, errors: &mut RoleErrorCache) -> Vec<NodeSlot> {
        let Ok(passing) = self.resolvable_nodes(task, job, errors) else {
            return Vec::new();
        };
        let ranked = self
            .chooser
            .rank(self.context(), task, NodeGradient::Released, &passing, false);
        match ranked {
            NodeChoice::Ranked(slots) => slots,
            NodeChoice::NoneFits | NodeChoice::Unscored(_) => Vec::new(),
        }
    }

    /// Nodes that pass every filter, or where evictions can make them pass.
    pub(super) fn resolvable_nodes(
        &self,
        task: &TaskRecord,
        job: usize,
        errors: &mut RoleErrorCache,
    ) -> Result<crate::decide::PassingNodes, Problem> {
        let state = self.cycle.cluster_state();
        let untried = errors.untried(state, job, task.role());
        let passing = self.chooser.resolvable(self.context(), task, untried.as_ref())?;
        errors.record(state, (job, task.role()), untried.as_ref(), &passing);
        Ok(passing)
    }

    /// Tasks on a node that a preemptor may evict as far as the action itself decides.
    fn preemptees(&self, on_node: &[usize], preemptor: &TaskRecord, job: usize, scope: PreemptScope) -> Vec<usize> {
        let queue_of = |job: usize| self.jobs.get(job).map(|job| job.queue);
        let may_go = |number: &&usize| {
            let Some(task) = self.present_task(**number) else {
                return false;
            };
            let own = self.tasks.get(**number).and_then(|task| task.job);
            let in_scope = match scope {
                PreemptScope::OwnJob => own == Some(job),
                PreemptScope::OtherJobs => own.is_some_and(|own| own != job && queue_of(own) == queue_of(job)),
            };
            let spares = preemptor.requests.is_only_pods() && !task.requests.is_only_pods();
            let goes = matches!(task.status, TaskStatus::Running | TaskStatus::Bound);
            goes && in_scope && !spares && task.is_preemptable() && !self.is_spared(task)
        };
        on_node.iter().filter(may_go).copied().collect()
    }
}
