//! Jobs of a phase by queue, in the order in which their queues and they take turns.

use super::session::ActionSession;
use crate::decide::SchedulingHeap;

/// Jobs that wait for their turn: a heap of queues, and a heap of jobs for each queue.
pub(super) struct QueuedJobs {
    queues: SchedulingHeap<usize>,
    /// Jobs by queue; `None`: the queue was not added.
    jobs: Vec<Option<SchedulingHeap<usize>>>,
}

impl QueuedJobs {
    pub(super) fn new(session: &ActionSession<'_>) -> Self {
        Self {
            queues: SchedulingHeap::new(),
            jobs: vec![None; session.queues.len()],
        }
    }

    /// Adds a job. Its queue is added with the first one.
    pub(super) fn push(&mut self, session: &ActionSession<'_>, job: usize) {
        if let Some(heap) = self.add_queue(session, job) {
            heap.push(job, |left, right| session.job_less(left, right));
        }
    }

    /// Adds the queue of a job, but not the job. Returns the heap of the queue's jobs.
    pub(super) fn add_queue(&mut self, session: &ActionSession<'_>, job: usize) -> Option<&mut SchedulingHeap<usize>> {
        let queue = session.jobs.get(job)?.queue;
        let place = self.jobs.get_mut(queue)?;
        if place.is_none() {
            self.queues.push(queue, |left, right| session.queue_less(left, right));
        }
        Some(place.get_or_insert_with(SchedulingHeap::new))
    }

    /// Takes the first queue.
    pub(super) fn pop_queue(&mut self, session: &ActionSession<'_>) -> Option<usize> {
        self.queues.pop(|left, right| session.queue_less(left, right))
    }

    /// Returns a queue that was taken, for another turn.
    pub(super) fn return_queue(&mut self, session: &ActionSession<'_>, queue: usize) {
        self.queues.push(queue, |left, right| session.queue_less(left, right));
    }

    /// Takes the first job of a queue.
    pub(super) fn pop_job(&mut self, session: &ActionSession<'_>, queue: usize) -> Option<usize> {
        let heap = self.jobs.get_mut(queue)?.as_mut()?;
        heap.pop(|left, right| session.job_less(left, right))
    }
}
