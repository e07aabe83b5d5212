//! Reclaim: jobs that starve evict tasks of other queues, which hold more than they deserve.

use super::eviction::{MissingAmounts, NodeTasks};
use super::queued_jobs::QueuedJobs;
use super::session::ActionSession;
use super::statement::ActionStatement;
use crate::model::{NodeMask, Problem, TaskRecord, TaskStatus};
use crate::plugin::VictimKind;

/// Runs the action.
pub(super) fn run(session: &mut ActionSession<'_>) -> Result<(), Problem> {
    session.refresh_tasks();
    let tasks_by_node = NodeTasks::of(session);
    let mut jobs = QueuedJobs::new(session);
    for job in 0..session.jobs.len() {
        if session.is_waiting(job) || session.is_invalid(job) {
            continue;
        }
        jobs.add_queue(session, job);
        if session.is_starving(job) {
            jobs.push(session, job);
        }
    }
    while let Some(queue) = jobs.pop_queue(session) {
        if session.is_overused(queue) {
            continue;
        }
        while let Some(job) = jobs.pop_job(session, queue) {
            session.reclaim_for_job(&tasks_by_node, job)?;
        }
    }
    Ok(())
}

impl ActionSession<'_> {
    /// Evicts tasks of other queues for a job until it no longer starves. The evictions are undone unless the job is
    /// pipelined afterwards.
    fn reclaim_for_job(&mut self, tasks_by_node: &NodeTasks, job: usize) -> Result<(), Problem> {
        let mut statement = ActionStatement::default();
        let mut tasks = self.preemptors(job);
        while self.is_starving(job) {
            let Some(task) = tasks.pop(|left, right| self.numbered_task_less(left, right)) else {
                break;
            };
            let is_placed = !self.is_upstream() && self.place_without_eviction(&mut statement, (job, task))?;
            let never = self
                .present_task(task)
                .is_some_and(|record| self.cycle.cluster_state().never_preempts(record));
            if !is_placed && !never && self.may_queue_preempt(job, task) {
                self.reclaim_for(tasks_by_node, &mut statement, (job, task))?;
            }
        }
        self.commit_if_pipelined(job, statement)
    }

    /// Evicts tasks for one task on the first node where that makes room.
    fn reclaim_for(
        &mut self,
        tasks_by_node: &NodeTasks,
        statement: &mut ActionStatement,
        (job, task): (usize, usize),
    ) -> Result<(), Problem> {
        let Some(stored) = self.stored_task(task) else {
            return Ok(());
        };
        let record = &stored.record;
        let Ok(passing) = self.resolvable_nodes(record, job, &mut self.new_error_cache()) else {
            return Ok(());
        };
        let slots = passing.iter().flat_map(|(first, nodes): &(u32, NodeMask)| {
            let first = *first;
            nodes
                .iter()
                .filter_map(move |offset| first.checked_add(u32::try_from(offset).ok()?))
        });
        for slot in slots.collect::<Vec<u32>>() {
            let candidates = self.reclaimees(tasks_by_node.on(slot), job);
            if candidates.is_empty() {
                continue;
            }
            let Some(victims) = self.victims_on(VictimKind::Reclaim, record, slot, &candidates) else {
                continue;
            };
            let mut on_node = ActionStatement::default();
            let mut heap = self.victim_heap(&victims, task);
            let mut missing = MissingAmounts::of(self, record, slot);
            let looks_first = self.rules().undoes_vain_evictions;
            let mut fits = looks_first && missing.is_covered() && self.may_hold_reclaimed(record);
            while !fits {
                let Some(victim) = heap.pop(|left, right| self.is_evicted_first(left, right, task)) else {
                    break;
                };
                if let Some(victim) = self.present_task(victim) {
                    missing.free(victim);
                }
                self.evict(&mut on_node, victim, task)?;
                fits = missing.is_covered() && self.may_hold_reclaimed(record);
            }
            // Without a victim, too, the release that does not look first looks now.
            fits |= !looks_first && missing.is_covered();
            if self.apply_evictions(statement, on_node, (job, task), (slot, fits))? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// True if the queue of a task may hold it after the evictions so far: what victims of other queues give back does not
    /// help where a queue above is full. The reference does not ask.
    fn may_hold_reclaimed(&mut self, task: &TaskRecord) -> bool {
        self.is_upstream() || self.admitted(task).is_some()
    }

    /// Running tasks on a node, of other queues that may be reclaimed from.
    fn reclaimees(&self, on_node: &[usize], job: usize) -> Vec<usize> {
        let queue_of = |job: usize| self.jobs.get(job).map(|job| job.queue);
        let gives_back = |queue: usize| {
            let name = self.queues.get(queue).map_or("", |queue| &*queue.name);
            let stored = self.cycle.cluster_state().queues().get(name);
            stored.is_some_and(|stored| stored.record.reclaimable != Some(false))
        };
        let may_go = |number: &&usize| {
            let own = self.tasks.get(**number).and_then(|task| task.job).and_then(queue_of);
            let Some(task) = self.present_task(**number) else {
                return false;
            };
            let from_other = own.is_some_and(|own| Some(own) != queue_of(job) && gives_back(own));
            task.status == TaskStatus::Running && from_other && task.is_preemptable() && !self.is_spared(task)
        };
        on_node.iter().filter(may_go).copied().collect()
    }
}
