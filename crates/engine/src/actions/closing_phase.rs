//! Phase that a session writes to a job when it closes (Volcano ed72c7c81, pkg/scheduler/framework/session.go, getPodGroupPhase,
//! and `OnSessionClose` of pkg/scheduler/plugins/gang).

use crate::model::{JobPhase, JobRecord, StatusCounts, TaskRecord, TaskStatus};
use crate::policy::Policy;

/// Phase that a session under a policy writes to a job with these tasks, as they are when it closes.
///
/// A job is running or completed once its minimum of tasks has a node. A task whose bind is under way has none yet. With
/// `gang`, a job with running tasks and too few in all is unknown. An admitted job stays admitted; any other is pending again.
pub fn closing_phase<'t>(policy: &Policy, job: &JobRecord, tasks: impl Iterator<Item = &'t TaskRecord>) -> JobPhase {
    let counts_terminating = policy.compatibility().release().rules().counts_terminating;
    let (mut counts, mut terminating) = (StatusCounts::default(), 0);
    for task in tasks {
        counts.change(task, true);
        let terminates = task.status == TaskStatus::Releasing && !task.node.is_empty();
        terminating += i64::from(counts_terminating && terminates);
    }
    let least = i64::from(job.min_member);
    let ended = counts.of(TaskStatus::Succeeded) + counts.of(TaskStatus::Failed);
    let running = counts.of(TaskStatus::Running);
    let occupying = running + counts.of(TaskStatus::Bound) + ended + terminating;
    let waits = counts.of(TaskStatus::Pending) + counts.of(TaskStatus::Pipelined) > 0;
    let only_terminates = terminating > 0 && !waits && occupying >= least;
    let lacks_tasks = counts.ready() + counts.without_requests() < least && !only_terminates;
    if running > 0 && lacks_tasks && policy.marks_unready_jobs() {
        JobPhase::Unknown
    } else if occupying < least {
        if job.phase == JobPhase::Inqueue {
            JobPhase::Inqueue
        } else {
            JobPhase::Pending
        }
    } else if occupying == ended {
        JobPhase::Completed
    } else {
        JobPhase::Running
    }
}
