//! Verdicts: the first cause that applies, as one sentence with remedies. Structural causes, such as a missing queue,
//! come before a lack of capacity.

use std::collections::BTreeSet;

use super::entitlement;
use super::phrases::{self, count, count_of};
use super::quota;
use super::report::{ExplainReport, ExplainSubject, ExplainVerdict, GangReport, TaskClassReport, VerdictCode};
use super::target::ResolvedTarget;
use super::verdict_parts::{VerdictParts, verdict_parts};
use pumice_console::{not_evaluated, output, remedies};

/// Remedy for a request that cannot be evaluated.
const CORRECT_FIELD: &str = "correct the field that the sentence names, in the pod or the PodGroup";
/// Remedy where the capacity that is needed is being released already.
const WAIT: &str = "nothing is to be done: it starts when the tasks that are ending are gone";
/// Rejection codes whose remedies are named.
const REMEDIES_NAMED: usize = 3;

/// Verdict on a complete report.
pub(super) fn build_verdict(report: &ExplainReport, focus: &ResolvedTarget) -> ExplainVerdict {
    let found = not_waiting(report)
        .or_else(|| invalid_record(focus))
        .or_else(|| missing_job(report, focus))
        .or_else(|| queue_problem(report, focus))
        .or_else(|| job_quota(report))
        .or_else(|| task_problem(report))
        .or_else(|| capacity_shortage(report))
        .unwrap_or_else(|| queue_turn(report));
    let VerdictParts {
        code,
        sentence,
        mut hints,
        impossible,
    } = found;
    if matches!(code, VerdictCode::NoNode | VerdictCode::Gang) && !impossible {
        hints.splice(0..0, entitlement::hints(report));
    }
    let what = subject_title(report);
    let waits = !matches!(code, VerdictCode::Completed | VerdictCode::Running);
    let complete_sentence = matches!(
        code,
        VerdictCode::Completed | VerdictCode::Running | VerdictCode::Placeable
    );
    let sentence = if complete_sentence {
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
        impossible,
        summary: sentence,
        hints,
    }
}

fn subject_title(report: &ExplainReport) -> String {
    format!("{} {}", report.subject.kind, report.subject.name)
}

/// Verdict on a subject that does not wait.
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
        return Some(verdict_parts(VerdictCode::Releasing, sentence, [WAIT.to_owned()]));
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

/// Clause about the end of a subject that has no running task left.
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

/// Verdict on a job or task whose newest record was refused.
fn invalid_record(focus: &ResolvedTarget) -> Option<VerdictParts> {
    // Refused nodes are in the list for information: one of them is not why a job waits.
    let own = focus.invalid.iter().find(|one| !one.record.starts_with("queue "))?;
    let problem = own.problems.first().cloned().unwrap_or_default();
    let sentence = format!("the newest record of {} was refused: {problem}", own.record);
    let hint = format!(
        "send {} again with that field mended; until then its last good record counts",
        own.record
    );
    Some(verdict_parts(VerdictCode::RecordInvalid, sentence, [hint]))
}

/// Verdict on a task whose job is unknown.
fn missing_job(report: &ExplainReport, focus: &ResolvedTarget) -> Option<VerdictParts> {
    let name = &report.subject.job;
    if name.is_empty() || focus.job.is_some() {
        return None;
    }
    let hint = format!("make PodGroup {name}, or mend the name in the pod's annotation");
    Some(verdict_parts(
        VerdictCode::JobUnknown,
        format!("there is no PodGroup {name}"),
        [
            hint,
            "if the cluster has it, look at `/readyz?verbose`: it says whether PodGroups are watched".to_owned(),
        ],
    ))
}

/// Verdict on a queue that is unknown, invalid or not open.
fn queue_problem(report: &ExplainReport, focus: &ResolvedTarget) -> Option<VerdictParts> {
    let job = focus.job.as_ref()?;
    let name = &report.subject.queue;
    if report.queue.is_none() {
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
    }
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
    quota::closed_queue(report, &job.name)
}

fn job_quota(report: &ExplainReport) -> Option<VerdictParts> {
    let admission = report.admission.as_ref()?;
    if let Some(problem) = &admission.problem {
        return Some(verdict_parts(
            VerdictCode::RequestInvalid,
            format!("it cannot be judged: {problem}"),
            [CORRECT_FIELD.to_owned()],
        ));
    }
    if admission.permitted {
        return None;
    }
    Some(quota::rejection(report, admission, "it"))
}

/// Verdict on tasks that are missing, gated or cannot be evaluated.
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
            [CORRECT_FIELD.to_owned()],
        )
    })
}

/// Verdict on free capacity, of the queue and of the nodes.
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
        return Some(quota::rejection(report, admission, who));
    }
    if let Some(admission) = &report.gang_admission {
        return Some(quota::gang_rejection(report, admission));
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
                phrases::already_placed(gang),
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
        return Some(verdict_parts(VerdictCode::Releasing, sentence, [WAIT.to_owned()]));
    }
    let blocked = match &gang.blocked_by {
        Some(blocked) => format!("; the next finds none ({blocked})"),
        None => String::new(),
    };
    let sentence = format!(
        "{} must start together{}, and only {} of the {} tried {} a place now{blocked}",
        count_of(gang.min_count, "task"),
        phrases::already_placed(gang),
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

fn fewer_members_hint(number: u64) -> String {
    format!("{} fewer in min_member would let it start", count(number))
}

/// Number of tasks that still must be placed for the gang to start.
fn still_needed(gang: &GangReport) -> u64 {
    gang.min_count.saturating_sub(gang.placed_count).max(1)
}

/// Number of tasks of the gang that cannot be placed.
fn unplaced_count(gang: &GangReport) -> u64 {
    still_needed(gang).saturating_sub(gang.placeable)
}

fn no_node_fits(report: &ExplainReport, class: &TaskClassReport) -> VerdictParts {
    let asked = phrases::requests_text(class);
    let one = report.subject.kind == "task";
    let who = if one { "it" } else { "its tasks" };
    if class.nodes == 0 {
        let hint = "load nodes; `pumice state show` lists the sources".to_owned();
        return verdict_parts(VerdictCode::NoNode, "no node is known", [hint]);
    }
    let shown: Vec<String> = class.rejections.iter().take(3).map(phrases::node_rejection).collect();
    let nodes = count_of(class.nodes, "node");
    let sentence = format!("0 of {nodes} take {who} ({asked}): {}", shown.join("; "));
    let mut parts = verdict_parts(VerdictCode::NoNode, sentence, never_fits(class));
    parts.impossible = !class.beyond_every_node.is_empty();
    for near in &class.nearest_nodes {
        if let ([short], false) = (near.shortages.as_slice(), parts.impossible)
            && short.idle > 0.0
        {
            let idle = output::with_unit(short.idle, short.unit);
            let (resource, node) = (&short.resource, &near.node);
            parts.hints.push(format!(
                "asking for at most {idle} of {resource} it would have room on {node}"
            ));
            break;
        }
    }
    let may_help = class.rejections.iter().filter(|one| one.reason.preemption_may_help);
    let helps: u64 = may_help.map(|one| one.count).sum();
    if helps > 0 && !parts.impossible {
        parts
            .hints
            .push(format!("preemption may help on {}", count_of(helps, "node")));
    }
    let mut codes = BTreeSet::new();
    let others = class.rejections.iter().filter(|one| codes.insert(&one.reason.code));
    for rejection in others.take(REMEDIES_NAMED) {
        let (nodes, code) = (count_of(rejection.count, "node"), &rejection.reason.code);
        parts
            .hints
            .push(format!("{nodes} ({code}): {}", remedies::of_code(code)));
    }
    parts
}

/// Hints about requests that are larger than every node.
fn never_fits(class: &TaskClassReport) -> Vec<String> {
    let hint = |beyond: &super::report::ResourceShortage| {
        let asked = output::with_unit(beyond.requested, beyond.unit);
        let largest = output::with_unit(beyond.allocatable, beyond.unit);
        let resource = &beyond.resource;
        format!("it never fits: it asks for {asked} of {resource}, and the largest node has {largest}")
    };
    class.beyond_every_node.iter().map(hint).collect()
}

/// Verdict on the order: jobs that are served earlier and take the capacity, or none.
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
            return verdict_parts(VerdictCode::EarlierJobs, sentence, [hint]);
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
    let hint = "its scheduler has not placed it yet; if it does not in its next cycles, look at the scheduler's log"
        .to_owned();
    verdict_parts(VerdictCode::Placeable, sentence, [hint])
}
