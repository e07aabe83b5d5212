//! Verdict on a job that finds a place alone: jobs that are served earlier take it, or Pumice finds no reason.

use super::hint::{Hint, HintTrial};
use super::phrases::{self, count, count_of};
use super::report::{ExplainReport, GangAfterEarlierJobs, GangReport, VerdictCode};
use super::verdict::subject_title;
use super::verdict_parts::{VerdictInput, VerdictParts, verdict_parts};
use pumice_console::not_evaluated;
use pumice_protocol::v1 as pb;

/// Verdict on the order: jobs that are served earlier and take the capacity, or none.
pub(super) fn queue_turn(input: VerdictInput<'_>) -> VerdictParts {
    let report = input.report;
    let order = report.order.clone().unwrap_or_default();
    let ahead = order.jobs_ahead_count;
    let queues = order.queues_ahead.len() as u64;
    let before = match (queues, ahead) {
        (0, 0) => String::new(),
        (0, jobs) => format!(
            "{} of its queue {} before it",
            count_of(jobs, "job"),
            if jobs == 1 { "is" } else { "are" }
        ),
        (queues, 0) => format!(
            "{} with waiting jobs {} before its own",
            count_of(queues, "queue"),
            if queues == 1 { "is" } else { "are" }
        ),
        (queues, jobs) => format!(
            "{} of its queue and {} with waiting jobs are before it",
            count_of(jobs, "job"),
            count_of(queues, "queue")
        ),
    };
    let gang = report.gang.clone().unwrap_or_default();
    if let Some(after) = &gang.after_earlier_jobs
        && !(after.permitted && after.starts)
    {
        return earlier_jobs(input, after, &before);
    }
    placeable_now(report, &gang, &before)
}

/// Verdict on a job that those before it leave too little.
fn earlier_jobs(input: VerdictInput<'_>, after: &GangAfterEarlierJobs, before: &str) -> VerdictParts {
    let subject = &input.report.subject;
    let blocked = after.blocked_by.clone().filter(|_| after.permitted);
    let blocked = blocked.unwrap_or_else(|| "its queue would not admit it any more".to_owned());
    let before = phrases::competing_jobs(after).unwrap_or_else(|| before.to_owned());
    let taken = if after.permitted { "it" } else { "the quota" };
    let sentence = format!("alone it would find a place now, but {before} and will take {taken}: {blocked}");
    let endless = after.competing_jobs.iter().filter_map(|taker| {
        let reason = taker.never_starts.as_ref()?;
        Some(phrases::endless_wait(&subject.name, &taker.job, reason))
    });
    let mut parts = verdict_parts(VerdictCode::EarlierJobs, sentence, endless);
    let own = after.competing_jobs.iter().find(|taker| taker.queue == subject.queue);
    let fact = match (own, after.competing_jobs.first()) {
        (Some(own), _) => format!("job {} is before it in its queue", own.job),
        (None, Some(other)) => format!("queue {}, with job {}, is before its queue", other.queue, other.job),
        (None, None) => "TURN tells who is before it".to_owned(),
    };
    parts.hints.push(fact.into());
    let other = own.and_then(|own| input.known.jobs.get(&own.job)?.job.as_ref());
    if let Some((other, job)) = other.zip(input.focus.job.as_ref()) {
        let records = pb::Cluster {
            jobs: vec![pb::Job {
                priority: other.priority.saturating_add(1),
                priority_class_name: None,
                ..job.clone()
            }],
            ..pb::Cluster::default()
        };
        let text = format!(
            "a priority above {}, that of job {}, would move it forward",
            other.priority, other.name
        );
        let trial = HintTrial::Precedes {
            own: job.name.clone(),
            other: other.name.clone(),
            records,
        };
        parts.hints.push(Hint::tried(text, trial));
    }
    parts
}

fn placeable_now(report: &ExplainReport, gang: &GangReport, before: &str) -> VerdictParts {
    let what = subject_title(report);
    let best = report.task_classes.iter().find_map(|class| class.best_nodes.first());
    let best = best.map(|best| format!(", best on {}", best.node)).unwrap_or_default();
    let before = if before.is_empty() {
        String::new()
    } else {
        let tried = gang.after_earlier_jobs.is_some();
        let leave = if tried {
            "and leave enough"
        } else {
            "and whether they leave enough was not tried"
        };
        format!("; {before}, {leave}")
    };
    let sentence = if gang.attempted == 0 {
        format!("its queue admits it now; its tasks are not there yet{before}")
    } else if gang.attempted == 1 {
        format!("a node takes it now{best}{before}")
    } else {
        let places = count(gang.placeable);
        format!(
            "nodes take {places} of {} now{best}{before}",
            count_of(gang.attempted, "waiting task")
        )
    };
    let unevaluated = not_evaluated::sentence(&report.not_evaluated);
    let unevaluated = unevaluated.map(|limits| format!(". {limits}")).unwrap_or_default();
    let sentence = format!("Pumice finds no reason that keeps {what}: {sentence}{unevaluated}");
    let hint = "its scheduler has not placed it yet; if it does not in its next cycles, look at the pod's `FailedScheduling` events \
                and the scheduler's log"
        .to_owned();
    verdict_parts(VerdictCode::Placeable, sentence, [hint])
}
