//! Enqueue: jobs that wait are enqueued, one of the first queue after the other.

use std::sync::Arc;

use super::CycleEvent;
use super::queued_jobs::QueuedJobs;
use super::session::ActionSession;
use crate::cycle::SessionChange;
use crate::decide::{AdmitQuery, AdmitSubject, admit};
use crate::model::Problem;

/// Runs the action.
pub(super) fn run(session: &mut ActionSession<'_>) -> Result<(), Problem> {
    let mut jobs = QueuedJobs::new(session);
    for job in 0..session.jobs.len() {
        jobs.add_queue(session, job);
        if session.is_waiting(job) {
            jobs.push(session, job);
        }
    }
    while let Some(queue) = jobs.pop_queue(session) {
        let Some(job) = jobs.pop_job(session, queue) else {
            continue;
        };
        session.enqueue(job)?;
        jobs.return_queue(session, queue);
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
