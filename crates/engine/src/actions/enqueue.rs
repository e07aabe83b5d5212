//! Enqueue: jobs that wait are enqueued, one of the first queue after the other.

use std::sync::Arc;

use super::CycleEvent;
use super::session::ActionSession;
use crate::cycle::SessionChange;
use crate::decide::{AdmitQuery, AdmitSubject, SchedulingHeap, admit};
use crate::model::Problem;

/// Runs the action.
pub(super) fn run(session: &mut ActionSession<'_>) -> Result<(), Problem> {
    let mut queues = SchedulingHeap::new();
    let mut waiting = vec![SchedulingHeap::new(); session.queues.len()];
    let mut known = vec![false; session.queues.len()];
    for number in 0..session.jobs.len() {
        let Some(queue) = session.jobs.get(number).map(|job| job.queue) else {
            continue;
        };
        if let Some(known) = known.get_mut(queue).filter(|known| !**known) {
            *known = true;
            queues.push(queue, |left, right| session.queue_less(left, right));
        }
        if session.is_waiting(number)
            && let Some(heap) = waiting.get_mut(queue)
        {
            heap.push(number, |left, right| session.job_less(left, right));
        }
    }
    while let Some(queue) = queues.pop(|left, right| session.queue_less(left, right)) {
        let heap = waiting.get_mut(queue);
        let Some(job) = heap.and_then(|heap| heap.pop(|left, right| session.job_less(left, right))) else {
            continue;
        };
        session.enqueue(job)?;
        queues.push(queue, |left, right| session.queue_less(left, right));
    }
    Ok(())
}

impl ActionSession<'_> {
    /// Enqueues a job if the policy permits it.
    fn enqueue(&mut self, job: usize) -> Result<(), Problem> {
        let Some(record) = self.job_record(job) else {
            return Ok(());
        };
        let (name, record) = (Arc::clone(&record.name), Arc::new(record.clone()));
        // The reference does not ask about a job without minimum resources.
        let is_asked = record.min_resources.is_some() || !self.is_upstream();
        if is_asked && !self.permits(&name, AdmitSubject::Job(record))? {
            return Ok(());
        }
        let outcome = self
            .cycle
            .apply_in_place(&SessionChange::JobEnqueued(Arc::clone(&name)))?;
        self.note_change(Some(job), &outcome);
        self.events.push(CycleEvent::Enqueued(name));
        Ok(())
    }

    /// True if the policy permits to enqueue a job. Its needs are then reserved.
    fn permits(&mut self, name: &Arc<str>, subject: AdmitSubject) -> Result<bool, Problem> {
        let query = AdmitQuery {
            now: self.now,
            items: vec![Ok(subject)],
            plugins: Vec::new(),
        };
        let policy = self.policy;
        let verdicts = self
            .cycle
            .query_plugins(|cluster_state, states| admit(cluster_state, policy, states, &query))?;
        match verdicts.into_iter().next() {
            Some(Ok(verdict)) => Ok(verdict.permitted),
            Some(Err(problem)) => {
                self.pass_over(name, problem);
                Ok(false)
            }
            None => Ok(false),
        }
    }
}
