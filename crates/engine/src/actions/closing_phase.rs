//! Phase that a session writes to a job when it closes (Volcano ed72c7c81, pkg/scheduler/framework/session.go, getPodGroupPhase,
//! and `OnSessionClose` of pkg/scheduler/plugins/gang).

use crate::model::{JobPhase, JobRecord, TaskRecord, TaskStatus};
use crate::policy::Policy;

/// Numbers of tasks of a job by which its phase is decided.
#[derive(Clone, Copy, Default)]
struct ClosingTally {
    all: i32,
    /// Running tasks.
    running: i32,
    /// Tasks that a node has or had: bound, running and ended ones.
    scheduled: i32,
    /// Succeeded and failed tasks.
    ended: i32,
    /// Tasks on a node that are being deleted.
    terminating: i32,
    /// Tasks that count for the gang: placed and succeeded ones, and pending ones without requests.
    ready: i32,
    /// Pending and pipelined tasks.
    waiting: i32,
}

impl ClosingTally {
    fn add(mut self, task: &TaskRecord) -> Self {
        let counts: &mut [&mut i32] = match task.status {
            TaskStatus::Running => &mut [&mut self.running, &mut self.scheduled, &mut self.ready],
            TaskStatus::Bound => &mut [&mut self.scheduled, &mut self.ready],
            TaskStatus::Allocated | TaskStatus::Binding => &mut [&mut self.ready],
            TaskStatus::Succeeded => &mut [&mut self.scheduled, &mut self.ended, &mut self.ready],
            TaskStatus::Failed => &mut [&mut self.scheduled, &mut self.ended],
            TaskStatus::Releasing if !task.node.is_empty() => &mut [&mut self.terminating],
            TaskStatus::Pending if task.requests.is_only_pods() => &mut [&mut self.waiting, &mut self.ready],
            TaskStatus::Pending | TaskStatus::Pipelined => &mut [&mut self.waiting],
            TaskStatus::Releasing | TaskStatus::Unknown => &mut [],
        };
        for count in counts {
            **count = count.saturating_add(1);
        }
        self.all = self.all.saturating_add(1);
        self
    }

    fn occupying(&self) -> i32 {
        self.scheduled.saturating_add(self.terminating)
    }

    /// True if a plugin that marks unready jobs marks one with this minimum.
    fn lacks_tasks(&self, least: i32) -> bool {
        let only_terminates = self.terminating > 0 && self.waiting == 0 && self.occupying() >= least;
        self.all > 0 && self.ready < least && !only_terminates
    }
}

/// Phase that a session under a policy writes to a job with these tasks, as they are when it closes.
///
/// A job is running or completed once its minimum of tasks has a node. A task whose bind is under way has none yet. With
/// `gang`, a job with running tasks and too few in all is unknown. An admitted job stays admitted; any other is pending again.
pub fn closing_phase<'t>(policy: &Policy, job: &JobRecord, tasks: impl Iterator<Item = &'t TaskRecord>) -> JobPhase {
    let mut tally = tasks.fold(ClosingTally::default(), ClosingTally::add);
    if !policy.compatibility().release().rules().counts_terminating {
        tally.terminating = 0;
    }
    if tally.running > 0 && policy.marks_unready_jobs() && tally.lacks_tasks(job.min_member) {
        JobPhase::Unknown
    } else if tally.occupying() < job.min_member {
        if job.phase == JobPhase::Inqueue {
            JobPhase::Inqueue
        } else {
            JobPhase::Pending
        }
    } else if tally.occupying() == tally.ended {
        JobPhase::Completed
    } else {
        JobPhase::Running
    }
}
