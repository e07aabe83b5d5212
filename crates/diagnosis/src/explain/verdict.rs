//! Verdicts: the first cause that applies, as one sentence with remedies. Structural causes, such as a missing queue,
//! come before a lack of capacity.

use std::collections::BTreeSet;

use super::hint::{Hint, HintTrial};
use super::phrases::{self, count, count_of};
use super::report::{EvictionReport, ExplainReport, ExplainSubject, ExplainVerdict, TaskClassReport, VerdictCode};
use super::target::ResolvedTarget;
use super::verdict_parts::{VerdictInput, VerdictParts, verdict_parts};
use super::{entitlement, gang, quota, quota_changes, turn_verdict};
use pb::admit_subject::Subject;
use pumice_console::{output, remedies, task, unknown_name};
use pumice_engine::model::VOLCANO_GATE;
use pumice_protocol::v1 as pb;

/// Remedy for a request that cannot be evaluated.
const CORRECT_FIELD: &str = "correct the field that the sentence names, in the pod or the PodGroup";
/// Remedy where pods of a job are missing.
const NOT_ENOUGH_PODS: &str = "whoever makes its pods has not made enough of them";
/// Remedy where the capacity that is needed is being released already.
const WAIT: &str = "nothing is to be done: it starts when the tasks that are ending are gone";
/// Rejection codes whose remedies are named.
const REMEDIES_NAMED: usize = 3;

/// Verdict on a complete report, with hints that are not tried yet.
pub(super) fn build_verdict(input: VerdictInput<'_>) -> (ExplainVerdict, Vec<Hint>) {
    let report = input.report;
    let found = not_waiting(report)
        .or_else(|| invalid_record(input.focus))
        .or_else(|| missing_job(report, input.focus))
        .or_else(|| queue_problem(report, input.focus))
        .or_else(|| job_quota(input))
        .or_else(|| task_problem(input))
        .or_else(|| capacity_shortage(input))
        .unwrap_or_else(|| turn_verdict::queue_turn(input));
    let VerdictParts {
        code,
        sentence,
        mut hints,
        impossible,
    } = found;
    if !impossible {
        add_evictions(report, code, &mut hints);
    }
    if report.subject.queue_gated > 0 && code != VerdictCode::Gated {
        hints.push(format!(
            "Volcano takes the gate `{VOLCANO_GATE}` off itself when the queue admits the task, and places it in a later cycle, if its \
             feature SchedulingGatesQueueAdmission is on; by default it is off"
        ).into());
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
    let verdict = ExplainVerdict {
        code,
        waiting: waits,
        impossible,
        summary: sentence,
        hints: Vec::new(),
    };
    (verdict, hints)
}

/// Adds what evictions change: those that take back what the queue deserves come first, and in the place of other quotas.
fn add_evictions(report: &ExplainReport, code: VerdictCode, hints: &mut Vec<Hint>) {
    let found = report.task_classes.iter().flat_map(|class| &class.evictions);
    let found: Vec<&EvictionReport> = found.collect();
    let is_quota = code == VerdictCode::Quota;
    if !is_quota && !matches!(code, VerdictCode::NoNode | VerdictCode::Gang) {
        return;
    }
    let mut first = Vec::new();
    if !is_quota {
        first = entitlement::hints(report);
    } else if found.iter().any(|eviction| eviction.action == entitlement::RECLAIM) {
        // Reclaim gives the queue what it deserves: its quotas are not what it lacks.
        hints.truncate(1);
        first = entitlement::hints(report);
    }
    let usable = found.iter().filter(|eviction| eviction.in_policy);
    first.extend(usable.map(|eviction| Hint::from(phrases::eviction(eviction))));
    hints.splice(0..0, first);
}

/// Kind and name of the subject, such as `job a/b`.
pub(super) fn subject_title(report: &ExplainReport) -> String {
    format!("{} {}", report.subject.kind, report.subject.name)
}

/// Verdict on a subject that does not wait.
fn not_waiting(report: &ExplainReport) -> Option<VerdictParts> {
    let subject = &report.subject;
    let what = subject_title(report);
    let all = subject.tasks > 0 && subject.finished == subject.tasks;
    // The phase may be older than tasks that were made since.
    let is_empty = subject.tasks == 0 && subject.phase == "completed" && subject.kind != "task";
    if is_empty || all {
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

fn job_quota(input: VerdictInput<'_>) -> Option<VerdictParts> {
    let admission = input.report.admission.as_ref()?;
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
    let subject = input.focus.job.clone().map(Subject::Job);
    Some(quota::rejection(input, admission, "it", subject.as_ref()))
}

/// Verdict on tasks that are missing, gated or cannot be evaluated.
fn task_problem(input: VerdictInput<'_>) -> Option<VerdictParts> {
    let report = input.report;
    let subject = &report.subject;
    let needed = subject.min_member.max(1);
    if subject.kind != "tasks" && subject.kind != "task" && subject.tasks < needed {
        let known = known_tasks(subject.tasks);
        if subject.tasks == 0 && subject.phase == "pending" {
            // Volcano makes the pods when the job is enqueued.
            return None;
        }
        let sentence = format!("it starts with {}, and {known}", count_of(needed, "task"));
        return Some(verdict_parts(
            VerdictCode::TooFewTasks,
            sentence,
            [NOT_ENOUGH_PODS.to_owned()],
        ));
    }
    let free = subject.pending.saturating_sub(subject.gated);
    let held = subject
        .placed
        .saturating_add(subject.pipelined)
        .saturating_add(subject.succeeded);
    let gates = subject.gated > 0 && (free == 0 || held.saturating_add(free) < needed);
    if gates {
        return Some(gated_tasks(subject));
    }
    let problem = report.task_classes.iter().find_map(|class| class.problem.as_ref());
    let problem = problem.map(|problem| {
        verdict_parts(
            VerdictCode::RequestInvalid,
            format!("it cannot be judged: {problem}"),
            [CORRECT_FIELD.to_owned()],
        )
    });
    problem.or_else(|| invalid_gang(input))
}

/// Clause on the number of tasks that are known.
fn known_tasks(number: u64) -> String {
    match number {
        0 => "none is known".to_owned(),
        1 => "only one is known".to_owned(),
        several => format!("only {} are known", count(several)),
    }
}

/// Verdict on tasks with scheduling gates.
fn gated_tasks(subject: &ExplainSubject) -> VerdictParts {
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
    let hint = "whoever set spec.schedulingGates has to remove them; no scheduler looks at the pods before".to_owned();
    verdict_parts(VerdictCode::Gated, sentence, [hint])
}

/// Verdict on a job to which a plugin objects: too few tasks of it are known, or too few of a role or of its groups.
fn invalid_gang(input: VerdictInput<'_>) -> Option<VerdictParts> {
    let state = input.report.job_state.as_ref().filter(|state| !state.valid)?;
    let subject = &input.report.subject;
    if subject.tasks == 0 && subject.phase == "pending" {
        return None;
    }
    let short = input
        .focus
        .job
        .as_ref()
        .map(|job| input.focus.valid_members.short_of(job));
    let (sentence, hint) = match short.unwrap_or_default().first() {
        Some(short) => {
            let hint = if short.kind == "group" {
                format!(
                    "give its pods the labels that `spec.subGroupPolicy` names for {}, or lower its `minSubGroups`",
                    short.name
                )
            } else {
                format!(
                    "{NOT_ENOUGH_PODS}, or `spec.minTaskMember` names another role than their `volcano.sh/task-spec`"
                )
            };
            let needed = phrases::members(short, short.needed);
            let who = if subject.kind == "job" { "it" } else { "its job" };
            (
                format!("{who} starts with {needed}, and {}", known_tasks(short.found)),
                hint,
            )
        }
        None => (
            format!("no scheduler serves its job: {}", state.message),
            NOT_ENOUGH_PODS.to_owned(),
        ),
    };
    Some(verdict_parts(VerdictCode::TooFewTasks, sentence, [hint]))
}

/// Verdict on free capacity, of the queue and of the nodes.
fn capacity_shortage(input: VerdictInput<'_>) -> Option<VerdictParts> {
    let report = input.report;
    let gang = report.gang.as_ref().filter(|gang| !gang.starts)?;
    if let Some(problem) = &gang.problem {
        return Some(problem_of_place(input, problem));
    }
    let free = || report.task_classes.iter().filter(|class| class.gated < class.count);
    let quota = free().find_map(|class| {
        let admission = class.admission.as_ref().filter(|admission| !admission.permitted)?;
        Some((class, admission))
    });
    if let Some((class, admission)) = quota {
        let who = if report.subject.kind == "task" {
            "it"
        } else {
            "each of its tasks"
        };
        let tasks = input.focus.waiting.iter();
        let first = tasks.into_iter().find(|task| class.tasks.first() == Some(&task.name));
        let subject = first.filter(|task| !task.job.is_empty()).cloned().map(Subject::Task);
        return Some(quota::rejection(input, admission, who, subject.as_ref()));
    }
    if let Some(admission) = &report.gang_admission {
        return Some(quota::gang_rejection(input, admission));
    }
    if let Some(class) = free().find(|class| class.fit_later == 0) {
        return Some(no_node_fits(input, class));
    }
    if gang.starts_later {
        let sentence = match free().find(|class| class.fit_now == 0) {
            Some(class) => {
                let nodes = count_of(class.fit_later, "node");
                format!("no node has room now; {nodes} will, once what is being released there is gone")
            }
            None => format!(
                "{} must start together{}; {} find a place now, and {} once what is being released is gone",
                count_of(gang.min_count, "task"),
                phrases::already_placed(gang),
                count(gang.placeable),
                count(gang.placeable_later)
            ),
        };
        return Some(verdict_parts(VerdictCode::Releasing, sentence, [WAIT.to_owned()]));
    }
    Some(gang::shortage(input, gang))
}

/// Verdict on a problem for which Place evaluates nothing.
fn problem_of_place(input: VerdictInput<'_>, problem: &str) -> VerdictParts {
    let first = input.focus.waiting.first();
    // Volcano makes a job of a task without one, in a queue that has to be there.
    if let Some(task) = first.filter(|task| task.job.is_empty() && input.report.actions.is_some()) {
        let queue = task::job_of_one(task).queue;
        let sentence = format!("it has no PodGroup, and there is no queue {queue}, in which Volcano makes one for it");
        let hint = format!("make queue {queue}; Volcano makes `default` itself when it starts");
        return verdict_parts(VerdictCode::QueueUnknown, sentence, [hint]);
    }
    verdict_parts(
        VerdictCode::RequestInvalid,
        format!("it cannot be judged: {problem}"),
        [CORRECT_FIELD.to_owned()],
    )
}

fn no_node_fits(input: VerdictInput<'_>, class: &TaskClassReport) -> VerdictParts {
    let report = input.report;
    let asked = phrases::requests_text(class);
    let one = report.subject.kind == "task";
    let who = if one { "it" } else { "its tasks" };
    if class.nodes == 0 {
        let hint = "load nodes; `pumice state show` lists the sources".to_owned();
        return verdict_parts(VerdictCode::NoNode, "no node is known", [hint]);
    }
    let shown: Vec<String> = class.rejections.iter().take(3).map(phrases::node_rejection).collect();
    let nodes = count_of(class.nodes, "node");
    let take = if class.nodes == 1 { "takes" } else { "take" };
    let sentence = format!("0 of {nodes} {take} {who} ({asked}): {}", shown.join("; "));
    let known = input.rooms.resource_names();
    let never_fits = class.beyond_every_node.iter().map(|beyond| {
        let meant = unknown_name::nearest(&beyond.resource, &known).filter(|_| beyond.allocatable <= 0.0);
        let meant = meant.map_or_else(String::new, |meant| format!("; did you mean `{meant}`?"));
        format!("it never fits: {}{meant}", phrases::beyond_nodes(beyond))
    });
    let mut parts = verdict_parts(VerdictCode::NoNode, sentence, never_fits);
    parts.impossible = !class.beyond_every_node.is_empty();
    let task = input
        .focus
        .waiting
        .iter()
        .find(|task| class.tasks.first() == Some(&task.name));
    for near in class.nearest_nodes.iter().filter(|_| !parts.impossible) {
        if let ([short], Some(task)) = (near.shortages.as_slice(), task)
            && short.idle > 0.0
            && let Some(Subject::Task(smaller)) =
                quota_changes::smaller(&Subject::Task(task.clone()), &short.resource, short.idle)
        {
            let idle = output::with_unit(short.idle, short.unit);
            let (resource, node) = (&short.resource, near.node.clone());
            let text = format!("asking for at most {idle} of {resource} it would have room on {node}");
            let task = Box::new(smaller);
            parts.hints.push(Hint::tried(text, HintTrial::Takes { task, node }));
            break;
        }
    }
    let may_help = class.rejections.iter().filter(|one| one.reason.preemption_may_help);
    let helps: u64 = may_help.map(|one| one.count).sum();
    if helps > 0 && !parts.impossible && report.actions.is_none() {
        parts
            .hints
            .push(format!("preemption may help on {}", count_of(helps, "node")).into());
    }
    let mut codes = BTreeSet::new();
    let others = class.rejections.iter().filter(|one| codes.insert(&one.reason.code));
    for rejection in others.take(REMEDIES_NAMED) {
        let (nodes, code) = (count_of(rejection.count, "node"), &rejection.reason.code);
        let remedy = remedies::of_code(code);
        // The end of tasks makes no node larger.
        let beyond_waiting = remedy
            .strip_prefix("wait until tasks end, ")
            .filter(|_| parts.impossible);
        parts
            .hints
            .push(format!("{nodes} ({code}): {}", beyond_waiting.unwrap_or(remedy)).into());
    }
    parts
}
