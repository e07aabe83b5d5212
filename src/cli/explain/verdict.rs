//! From what was found out to one sentence: the first cause that applies, structural ones before those of capacity.

use super::phrases::{self, count, count_of};
use super::report::{
    AdmissionReport, ExplainReport, ExplainSubject, ExplainVerdict, GangReport, RejectionReason, TaskClassReport,
    VerdictCode,
};
use super::target::ResolvedTarget;
use crate::cli::not_evaluated;

/// The verdict on a complete report.
pub(super) fn build_verdict(report: &ExplainReport, focus: &ResolvedTarget) -> ExplainVerdict {
    let found = not_waiting(report)
        .or_else(|| invalid_record(focus))
        .or_else(|| missing_job(report, focus))
        .or_else(|| queue_problem(report, focus))
        .or_else(|| job_quota(report))
        .or_else(|| task_problem(report))
        .or_else(|| capacity_shortage(report))
        .unwrap_or_else(|| queue_turn(report));
    let (code, sentence, hints) = found;
    let what = format!("{} {}", report.subject.kind, report.subject.name);
    let waits = !matches!(code, VerdictCode::Completed | VerdictCode::Running);
    let settled = matches!(
        code,
        VerdictCode::Completed | VerdictCode::Running | VerdictCode::Placeable
    );
    let sentence = if settled {
        sentence
    } else if report.subject.placed > 0 {
        let rest = if report.subject.pending == 1 {
            "one more"
        } else {
            "the rest"
        };
        let placed = count_of(report.subject.placed, "task");
        format!("{what} runs with {placed}, and {rest} waits: {sentence}")
    } else if report.subject.kind == "tasks" {
        format!("{what} wait: {sentence}")
    } else {
        format!("{what} waits: {sentence}")
    };
    ExplainVerdict {
        code,
        waiting: waits,
        summary: sentence,
        hints,
    }
}

/// A kind of answer, its sentence, and what would change it.
type VerdictParts = (VerdictCode, String, Vec<String>);

fn verdict_parts(
    code: VerdictCode,
    sentence: impl Into<String>,
    hints: impl IntoIterator<Item = String>,
) -> VerdictParts {
    (code, sentence.into(), hints.into_iter().collect())
}

fn subject_title(report: &ExplainReport) -> String {
    format!("{} {}", report.subject.kind, report.subject.name)
}

/// It does not wait.
fn not_waiting(report: &ExplainReport) -> Option<VerdictParts> {
    let subject = &report.subject;
    let what = subject_title(report);
    let all = subject.tasks > 0 && subject.finished == subject.tasks;
    if subject.kind != "task" && subject.phase == "completed" || all {
        let sentence = format!("{what} does not wait: {}", end_text(subject));
        return Some(verdict_parts(VerdictCode::Completed, sentence, []));
    }
    if subject.pending > 0 {
        return None;
    }
    if subject.pipelined > 0 {
        let nodes = subject.nodes.join(", ");
        let sentence = format!("it is promised room on {nodes}, which other tasks are leaving");
        return Some(verdict_parts(VerdictCode::Releasing, sentence, []));
    }
    if subject.placed == 0 {
        return None;
    }
    let nodes = if subject.nodes.is_empty() {
        String::new()
    } else {
        format!(" on {}", subject.nodes.join(", "))
    };
    let sentence = if subject.kind == "task" {
        format!("{what} does not wait: it has a place{nodes}")
    } else {
        format!(
            "{what} does not wait: {} have a place{nodes}",
            count_of(subject.placed, "task")
        )
    };
    Some(verdict_parts(
        VerdictCode::Running,
        sentence.replace("1 task have", "its one task has"),
        [],
    ))
}

/// How something that holds no place any more, or soon none, came to its end.
fn end_text(subject: &ExplainSubject) -> String {
    let some = subject.tasks > 0;
    if subject.terminating > 0 {
        "it is ending".to_owned()
    } else if some && subject.failed == subject.tasks {
        "it failed".to_owned()
    } else if subject.failed > 0 {
        format!("it ended, and {} failed", count_of(subject.failed, "task"))
    } else {
        "it ended".to_owned()
    }
}

/// Records that were refused.
fn invalid_record(focus: &ResolvedTarget) -> Option<VerdictParts> {
    // Nodes stand in the list for information: one refused node is not why a job waits.
    let own = focus.invalid.iter().find(|one| !one.record.starts_with("queue "))?;
    let problem = own.problems.first().cloned().unwrap_or_default();
    let sentence = format!("the newest record of {} was refused: {problem}", own.record);
    let hint = format!(
        "send {} again with that field mended; until then its last good record counts",
        own.record
    );
    Some(verdict_parts(VerdictCode::RecordInvalid, sentence, [hint]))
}

/// The job of a task.
fn missing_job(report: &ExplainReport, focus: &ResolvedTarget) -> Option<VerdictParts> {
    let name = &report.subject.job;
    if name.is_empty() || focus.job.is_some() {
        return None;
    }
    let hint = format!("make PodGroup {name}, or mend the name in the pod's annotation");
    Some(verdict_parts(
        VerdictCode::JobUnknown,
        format!("there is no PodGroup {name}"),
        [hint],
    ))
}

/// The queue itself.
fn queue_problem(report: &ExplainReport, focus: &ResolvedTarget) -> Option<VerdictParts> {
    let job = focus.job.as_ref()?;
    let name = &report.subject.queue;
    let Some(queue) = &report.queue else {
        let sentence = if name.is_empty() {
            "it names no queue".to_owned()
        } else {
            format!("there is no queue {name}")
        };
        return Some(verdict_parts(
            VerdictCode::QueueUnknown,
            sentence,
            [format!("make the queue, or give job {} another", job.name)],
        ));
    };
    let own = format!("queue {name}");
    if let Some(invalid) = focus.invalid.iter().find(|one| one.record == own) {
        let problem = invalid.problems.first().cloned().unwrap_or_default();
        let sentence =
            format!("the newest record of queue {name} was refused, so nothing is admitted to it: {problem}");
        return Some(verdict_parts(
            VerdictCode::QueueInvalid,
            sentence,
            [format!("send queue {name} again with that field mended")],
        ));
    }
    if matches!(queue.state.as_str(), "closed" | "closing") {
        let sentence = format!("queue {name} is {}", queue.state);
        return Some(verdict_parts(
            VerdictCode::QueueClosed,
            sentence,
            [format!("open queue {name}")],
        ));
    }
    None
}

fn job_quota(report: &ExplainReport) -> Option<VerdictParts> {
    let admission = report.admission.as_ref()?;
    if let Some(problem) = &admission.problem {
        return Some(verdict_parts(
            VerdictCode::RequestInvalid,
            format!("it cannot be judged: {problem}"),
            [],
        ));
    }
    if admission.permitted {
        return None;
    }
    Some(quota_rejection(report, admission, "it"))
}

/// A refusal by the queue, in figures where it has them.
fn quota_rejection(report: &ExplainReport, admission: &AdmissionReport, who: &str) -> VerdictParts {
    let queue = &report.subject.queue;
    let Some(reason) = least_resolvable(&admission.reasons) else {
        let sentence = format!("queue {queue} does not admit {who}");
        return (VerdictCode::Quota, sentence, Vec::new());
    };
    let Some(quota) = phrases::quota_usage(reason) else {
        let hints = Vec::new();
        return (
            VerdictCode::Quota,
            format!("queue {queue} does not admit {who}: {}", reason.message),
            hints,
        );
    };
    let asked = match quota.unit.as_str() {
        "bytes" => phrases::amount(quota.requested, "bytes"),
        _ => crate::cli::output::number(quota.requested),
    };
    let left = phrases::quota_left(&quota, &reason.resource);
    let sentence = format!("queue {queue} has {left}, and {who} asks for {asked}");
    let ceiling = phrases::amount(quota.ceiling, &quota.unit);
    let mut hints = Vec::new();
    if let Some(problem) = phrases::unreadable_quota(reason) {
        hints.push(format!("the quota of queue {queue} counts as empty: {problem}"));
    } else if quota.requested > quota.ceiling {
        hints.push(format!(
            "it never fits: the whole quota of queue {queue} is {ceiling} of {}",
            reason.resource
        ));
    } else {
        let missing = phrases::amount(quota.missing, &quota.unit);
        hints.push(format!(
            "it fits when {missing} of {} are given back in queue {queue}",
            reason.resource
        ));
    }
    if quota.left > 0.0 {
        let left = phrases::amount(quota.left, &quota.unit);
        hints.push(format!(
            "asking for at most {left} of {} would be admitted by this quota",
            reason.resource
        ));
    }
    let holders = report.queue.iter().flat_map(|queue| &queue.holders);
    let holders = holders.map(phrases::holder_text);
    let holders: Vec<String> = holders.collect();
    if !holders.is_empty() {
        hints.push(format!("most is held by {}", holders.join(", ")));
    }
    (VerdictCode::Quota, sentence, hints)
}

/// Of several reasons the one that no eviction removes, else the first.
fn least_resolvable(reasons: &[RejectionReason]) -> Option<&RejectionReason> {
    let never = reasons.iter().find(|reason| !reason.eviction_may_help);
    never.or(reasons.first())
}

/// Its tasks themselves.
fn task_problem(report: &ExplainReport) -> Option<VerdictParts> {
    let subject = &report.subject;
    let needed = subject.min_member.max(1);
    if subject.kind != "tasks" && subject.kind != "task" && subject.tasks < needed {
        let known = match subject.tasks {
            0 => "none is known".to_owned(),
            known => format!(
                "only {} known",
                if known == 1 {
                    "one is".to_owned()
                } else {
                    format!("{} are", count(known))
                }
            ),
        };
        if subject.tasks == 0 && subject.phase == "pending" {
            // Volcano makes the pods when the job is enqueued.
            return None;
        }
        let sentence = format!("it starts with {}, and {known}", count_of(needed, "task"));
        return Some(verdict_parts(
            VerdictCode::TooFewTasks,
            sentence,
            ["whoever makes its pods has not made enough of them".to_owned()],
        ));
    }
    let free = subject.pending.saturating_sub(subject.gated);
    let held = subject
        .placed
        .saturating_add(subject.pipelined)
        .saturating_add(subject.succeeded);
    let gates = subject.gated > 0 && (free == 0 || held.saturating_add(free) < needed);
    if gates {
        let of = count_of(subject.pending, "waiting task");
        let sentence = if subject.pending == 1 && subject.kind != "task" {
            "its waiting task has a scheduling gate".to_owned()
        } else if subject.pending == 1 {
            "it has a scheduling gate".to_owned()
        } else {
            format!(
                "{} of its {of} {} a scheduling gate",
                count(subject.gated),
                if subject.gated == 1 { "has" } else { "have" }
            )
        };
        let hint =
            "whoever set spec.schedulingGates has to remove them; no scheduler looks at the pods before".to_owned();
        return Some(verdict_parts(VerdictCode::Gated, sentence, [hint]));
    }
    let problem = report.task_classes.iter().find_map(|class| class.problem.as_ref());
    problem.map(|problem| {
        verdict_parts(
            VerdictCode::RequestInvalid,
            format!("it cannot be judged: {problem}"),
            [],
        )
    })
}

/// Room in the queue and on the nodes.
fn capacity_shortage(report: &ExplainReport) -> Option<VerdictParts> {
    let gang = report.gang.as_ref()?;
    if unplaced_count(gang) == 0 {
        return None;
    }
    let free = || report.task_classes.iter().filter(|class| class.gated < class.count);
    let quota = free().find_map(|class| class.admission.as_ref().filter(|admission| !admission.permitted));
    if let Some(admission) = quota {
        let who = if report.subject.kind == "task" {
            "it"
        } else {
            "each of its tasks"
        };
        return Some(quota_rejection(report, admission, who));
    }
    if let Some(class) = free().find(|class| class.fit_later == 0) {
        return Some(no_node_fits(report, class));
    }
    if let Some(class) = free().find(|class| class.fit_now == 0) {
        let wanted = still_needed(gang);
        let later = gang.placeable_later;
        // Only the first kinds of tasks are counted: with more of them it may be more.
        let all_counted = report.task_classes.iter().map(|class| class.count).sum::<u64>() >= report.subject.pending;
        if all_counted && (1..wanted).contains(&later) {
            let sentence = format!(
                "{} must start together{}, and there is room for only {} even when what is being released is gone",
                count_of(gang.min_count, "task"),
                already_placed_text(gang),
                count(later)
            );
            return Some(verdict_parts(
                VerdictCode::Gang,
                sentence,
                [fewer_members_hint(wanted.saturating_sub(later))],
            ));
        }
        let nodes = count_of(class.fit_later, "node");
        let sentence = format!("no node has room now; {nodes} will, once what is being released there is gone");
        return Some(verdict_parts(VerdictCode::Releasing, sentence, []));
    }
    let blocked = match &gang.blocked_by {
        Some(blocked) => format!("; the next finds none ({blocked})"),
        None => String::new(),
    };
    let sentence = format!(
        "{} must start together{}, and only {} of the {} tried {} a place now{blocked}",
        count_of(gang.min_count, "task"),
        already_placed_text(gang),
        count(gang.placeable),
        count(gang.attempted),
        if gang.placeable == 1 { "finds" } else { "find" },
    );
    Some(verdict_parts(
        VerdictCode::Gang,
        sentence,
        [fewer_members_hint(unplaced_count(gang))],
    ))
}

fn already_placed_text(gang: &GangReport) -> String {
    match gang.placed_count {
        0 => String::new(),
        held => format!(", {} have a place", count(held)),
    }
}

fn fewer_members_hint(number: u64) -> String {
    format!("{} fewer in min_member would let it start", count(number))
}

/// Tasks that have to find a place yet.
fn still_needed(gang: &GangReport) -> u64 {
    gang.min_count.saturating_sub(gang.placed_count).max(1)
}

/// Of these, those that find none.
fn unplaced_count(gang: &GangReport) -> u64 {
    still_needed(gang).saturating_sub(gang.placeable)
}

fn no_node_fits(report: &ExplainReport, class: &TaskClassReport) -> VerdictParts {
    let asked = phrases::requests_text(class);
    let one = report.subject.kind == "task";
    let who = if one { "it" } else { "its tasks" };
    if class.nodes == 0 {
        return (
            VerdictCode::NoNode,
            "no node is known".to_owned(),
            vec!["`pumice state show` tells the sources".to_owned()],
        );
    }
    let most = class
        .rejections
        .first()
        .map(phrases::node_rejection)
        .unwrap_or_default();
    let sentence = format!("0 of {} take {who} ({asked}): {most}", count_of(class.nodes, "node"));
    let sentence = match class.rejections.get(1..).unwrap_or_default() {
        [] => sentence,
        others => format!(
            "{sentence}; {}",
            others
                .iter()
                .take(2)
                .map(phrases::node_rejection)
                .collect::<Vec<_>>()
                .join("; ")
        ),
    };
    let mut hints = Vec::new();
    for near in &class.nearest_nodes {
        if let ([short], 0) = (near.shortages.as_slice(), hints.len())
            && short.idle > 0.0
        {
            let idle = phrases::amount(short.idle, short.unit);
            hints.push(format!(
                "asking for at most {idle} of {} it would have room on {}",
                short.resource, near.node
            ));
        }
    }
    let helps: u64 = class
        .rejections
        .iter()
        .filter(|one| one.reason.eviction_may_help)
        .map(|one| one.count)
        .sum();
    hints.push(match helps {
        0 => "no eviction helps: even empty nodes would not take it".to_owned(),
        some => format!("evictions may help on {}", count_of(some, "node")),
    });
    (VerdictCode::NoNode, sentence, hints)
}

/// Its turn: others before it, or nobody.
fn queue_turn(report: &ExplainReport) -> VerdictParts {
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
    if let Some(after) = &gang.after_earlier_jobs {
        let wanted = still_needed(&gang);
        if !after.permitted || after.placeable < wanted {
            let blocked = after.blocked_by.clone().filter(|_| after.permitted);
            let blocked = blocked.unwrap_or_else(|| "its queue would not admit it any more".to_owned());
            let before = phrases::competing_jobs(after).unwrap_or(before);
            let sentence = format!("alone it would find a place now, but {before} and will take it: {blocked}");
            let own = after
                .competing_jobs
                .iter()
                .find(|taker| taker.queue == report.subject.queue);
            let hint = match (own, after.competing_jobs.first()) {
                (Some(own), _) => format!(
                    "job {} is before it in its queue; a higher priority would move it forward where the policy orders by it",
                    own.job
                ),
                (None, Some(other)) => format!("queue {}, with job {}, is before its queue", other.queue, other.job),
                (None, None) => "TURN tells who is before it".to_owned(),
            };
            return (VerdictCode::EarlierJobs, sentence, vec![hint]);
        }
    }
    placeable_now(report, &gang, &before)
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
    let hint = "its scheduler has yet to come round to it; if it does not, look at the scheduler's own log".to_owned();
    (VerdictCode::Placeable, sentence, vec![hint])
}
