//! From what was found out to one sentence: the first cause that applies, structural ones before those of capacity.

use super::focus::Focus;
use super::report::{Admission, Class, Code, Gang, Reason, Report, Subject, Verdict};
use super::words::{self, count, many};

/// The verdict on a complete report.
pub(super) fn of(report: &Report, focus: &Focus) -> Verdict {
    let found = settled(report)
        .or_else(|| records(focus))
        .or_else(|| job(report, focus))
        .or_else(|| queue(report, focus))
        .or_else(|| quota_of_job(report))
        .or_else(|| tasks(report))
        .or_else(|| room(report))
        .unwrap_or_else(|| turn(report));
    let (code, sentence, hints) = found;
    let what = format!("{} {}", report.subject.kind, report.subject.name);
    let waits = !matches!(code, Code::Completed | Code::Running);
    let settled = matches!(code, Code::Completed | Code::Running | Code::Placeable);
    let sentence = if settled {
        sentence
    } else if report.subject.placed > 0 {
        let rest = if report.subject.pending == 1 {
            "one more"
        } else {
            "the rest"
        };
        let placed = many(report.subject.placed, "task");
        format!("{what} runs with {placed}, and {rest} waits: {sentence}")
    } else if report.subject.kind == "tasks" {
        format!("{what} wait: {sentence}")
    } else {
        format!("{what} waits: {sentence}")
    };
    Verdict {
        code,
        waits,
        sentence,
        hints,
    }
}

/// A kind of answer, its sentence, and what would change it.
type Judged = (Code, String, Vec<String>);

fn judged(code: Code, sentence: impl Into<String>, hints: impl IntoIterator<Item = String>) -> Judged {
    (code, sentence.into(), hints.into_iter().collect())
}

fn what(report: &Report) -> String {
    format!("{} {}", report.subject.kind, report.subject.name)
}

/// It does not wait.
fn settled(report: &Report) -> Option<Judged> {
    let subject = &report.subject;
    let what = what(report);
    let all = subject.tasks > 0 && subject.finished == subject.tasks;
    if subject.kind != "task" && subject.phase == "completed" || all {
        let sentence = format!("{what} does not wait: {}", ended(subject));
        return Some(judged(Code::Completed, sentence, []));
    }
    if subject.pending > 0 {
        return None;
    }
    if subject.pipelined > 0 {
        let nodes = subject.nodes.join(", ");
        let sentence = format!("it is promised room on {nodes}, which other tasks are leaving");
        return Some(judged(Code::Releasing, sentence, []));
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
            many(subject.placed, "task")
        )
    };
    Some(judged(
        Code::Running,
        sentence.replace("1 task have", "its one task has"),
        [],
    ))
}

/// How something that holds no place any more, or soon none, came to its end.
fn ended(subject: &Subject) -> String {
    let some = subject.tasks > 0;
    if subject.ending > 0 {
        "it is ending".to_owned()
    } else if some && subject.failed == subject.tasks {
        "it failed".to_owned()
    } else if subject.failed > 0 {
        format!("it ended, and {} failed", many(subject.failed, "task"))
    } else {
        "it ended".to_owned()
    }
}

/// Records that were refused.
fn records(focus: &Focus) -> Option<Judged> {
    // Nodes stand in the list for information: one refused node is not why a job waits.
    let own = focus.invalid.iter().find(|one| !one.record.starts_with("queue "))?;
    let fault = own.faults.first().cloned().unwrap_or_default();
    let sentence = format!("the newest record of {} was refused: {fault}", own.record);
    let hint = format!(
        "send {} again with that field mended; until then its last good record counts",
        own.record
    );
    Some(judged(Code::RecordInvalid, sentence, [hint]))
}

/// The job of a task.
fn job(report: &Report, focus: &Focus) -> Option<Judged> {
    let name = &report.subject.job;
    if name.is_empty() || focus.job.is_some() {
        return None;
    }
    let hint = format!("make PodGroup {name}, or mend the name in the pod's annotation");
    Some(judged(Code::JobUnknown, format!("there is no PodGroup {name}"), [hint]))
}

/// The queue itself.
fn queue(report: &Report, focus: &Focus) -> Option<Judged> {
    let job = focus.job.as_ref()?;
    let name = &report.subject.queue;
    let Some(queue) = &report.queue else {
        let sentence = if name.is_empty() {
            "it names no queue".to_owned()
        } else {
            format!("there is no queue {name}")
        };
        return Some(judged(
            Code::QueueUnknown,
            sentence,
            [format!("make the queue, or give job {} another", job.name)],
        ));
    };
    let own = format!("queue {name}");
    if let Some(invalid) = focus.invalid.iter().find(|one| one.record == own) {
        let fault = invalid.faults.first().cloned().unwrap_or_default();
        let sentence = format!("the newest record of queue {name} was refused, so nothing is admitted to it: {fault}");
        return Some(judged(
            Code::QueueInvalid,
            sentence,
            [format!("send queue {name} again with that field mended")],
        ));
    }
    if matches!(queue.state.as_str(), "closed" | "closing") {
        let sentence = format!("queue {name} is {}", queue.state);
        return Some(judged(Code::QueueClosed, sentence, [format!("open queue {name}")]));
    }
    None
}

fn quota_of_job(report: &Report) -> Option<Judged> {
    let admission = report.admission.as_ref()?;
    if let Some(problem) = &admission.problem {
        return Some(judged(
            Code::RequestInvalid,
            format!("it cannot be judged: {problem}"),
            [],
        ));
    }
    if admission.permitted {
        return None;
    }
    Some(refused(report, admission, "it"))
}

/// A refusal by the queue, in figures where it has them.
fn refused(report: &Report, admission: &Admission, who: &str) -> Judged {
    let queue = &report.subject.queue;
    let Some(reason) = hardest(&admission.reasons) else {
        let sentence = format!("queue {queue} does not admit {who}");
        return (Code::Quota, sentence, Vec::new());
    };
    let Some(quota) = words::quota(reason) else {
        let hints = Vec::new();
        return (
            Code::Quota,
            format!("queue {queue} does not admit {who}: {}", reason.message),
            hints,
        );
    };
    let asked = match quota.unit.as_str() {
        "bytes" => words::amount(quota.asked, "bytes"),
        _ => crate::cli::output::number(quota.asked),
    };
    let left = words::left(&quota, &reason.resource);
    let sentence = format!("queue {queue} has {left}, and {who} asks for {asked}");
    let ceiling = words::amount(quota.ceiling, &quota.unit);
    let mut hints = Vec::new();
    if let Some(fault) = words::unread_quota(reason) {
        hints.push(format!("the quota of queue {queue} counts as empty: {fault}"));
    } else if quota.asked > quota.ceiling {
        hints.push(format!(
            "it never fits: the whole quota of queue {queue} is {ceiling} of {}",
            reason.resource
        ));
    } else {
        let missing = words::amount(quota.missing, &quota.unit);
        hints.push(format!(
            "it fits when {missing} of {} are given back in queue {queue}",
            reason.resource
        ));
    }
    if quota.left > 0.0 {
        let left = words::amount(quota.left, &quota.unit);
        hints.push(format!(
            "asking for at most {left} of {} would be admitted by this quota",
            reason.resource
        ));
    }
    let holders = report.queue.iter().flat_map(|queue| &queue.holders);
    let holders = holders.map(words::holder);
    let holders: Vec<String> = holders.collect();
    if !holders.is_empty() {
        hints.push(format!("most is held by {}", holders.join(", ")));
    }
    (Code::Quota, sentence, hints)
}

/// Of several reasons the one that no eviction removes, else the first.
fn hardest(reasons: &[Reason]) -> Option<&Reason> {
    let never = reasons.iter().find(|reason| !reason.eviction_may_help);
    never.or(reasons.first())
}

/// Its tasks themselves.
fn tasks(report: &Report) -> Option<Judged> {
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
        let sentence = format!("it starts with {}, and {known}", many(needed, "task"));
        return Some(judged(
            Code::TooFewTasks,
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
        let of = many(subject.pending, "waiting task");
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
        return Some(judged(Code::Gated, sentence, [hint]));
    }
    let problem = report.classes.iter().find_map(|class| class.problem.as_ref());
    problem.map(|problem| judged(Code::RequestInvalid, format!("it cannot be judged: {problem}"), []))
}

/// Room in the queue and on the nodes.
fn room(report: &Report) -> Option<Judged> {
    let gang = report.gang.as_ref()?;
    if missing(gang) == 0 {
        return None;
    }
    let free = || report.classes.iter().filter(|class| class.gated < class.count);
    let quota = free().find_map(|class| class.admission.as_ref().filter(|admission| !admission.permitted));
    if let Some(admission) = quota {
        let who = if report.subject.kind == "task" {
            "it"
        } else {
            "each of its tasks"
        };
        return Some(refused(report, admission, who));
    }
    if let Some(class) = free().find(|class| class.fit_later == 0) {
        return Some(no_node(report, class));
    }
    if let Some(class) = free().find(|class| class.fit_now == 0) {
        let wanted = wanted(gang);
        let later = gang.placeable_later;
        // Only the first kinds of tasks are counted: with more of them it may be more.
        let all_counted = report.classes.iter().map(|class| class.count).sum::<u64>() >= report.subject.pending;
        if all_counted && (1..wanted).contains(&later) {
            let sentence = format!(
                "{} must start together{}, and there is room for only {} even when what is being released is gone",
                many(gang.needed, "task"),
                held(gang),
                count(later)
            );
            return Some(judged(Code::Gang, sentence, [fewer(wanted.saturating_sub(later))]));
        }
        let nodes = many(class.fit_later, "node");
        let sentence = format!("no node has room now; {nodes} will, once what is being released there is gone");
        return Some(judged(Code::Releasing, sentence, []));
    }
    let blocked = match &gang.blocked_by {
        Some(blocked) => format!("; the next finds none ({blocked})"),
        None => String::new(),
    };
    let sentence = format!(
        "{} must start together{}, and only {} of the {} tried {} a place now{blocked}",
        many(gang.needed, "task"),
        held(gang),
        count(gang.placeable),
        count(gang.tried),
        if gang.placeable == 1 { "finds" } else { "find" },
    );
    Some(judged(Code::Gang, sentence, [fewer(missing(gang))]))
}

fn held(gang: &Gang) -> String {
    match gang.held {
        0 => String::new(),
        held => format!(", {} have a place", count(held)),
    }
}

fn fewer(number: u64) -> String {
    format!("{} fewer in min_member would let it start", count(number))
}

/// Tasks that have to find a place yet.
fn wanted(gang: &Gang) -> u64 {
    gang.needed.saturating_sub(gang.held).max(1)
}

/// Of these, those that find none.
fn missing(gang: &Gang) -> u64 {
    wanted(gang).saturating_sub(gang.placeable)
}

fn no_node(report: &Report, class: &Class) -> Judged {
    let asked = words::requests(class);
    let one = report.subject.kind == "task";
    let who = if one { "it" } else { "its tasks" };
    if class.nodes == 0 {
        return (
            Code::NoNode,
            "no node is known".to_owned(),
            vec!["`pumice state show` tells the sources".to_owned()],
        );
    }
    let most = class.refusals.first().map(words::refusal).unwrap_or_default();
    let sentence = format!("0 of {} take {who} ({asked}): {most}", many(class.nodes, "node"));
    let sentence = match class.refusals.get(1..).unwrap_or_default() {
        [] => sentence,
        others => format!(
            "{sentence}; {}",
            others.iter().take(2).map(words::refusal).collect::<Vec<_>>().join("; ")
        ),
    };
    let mut hints = Vec::new();
    for near in &class.nearest {
        if let ([short], 0) = (near.short.as_slice(), hints.len())
            && short.idle > 0.0
        {
            let idle = words::amount(short.idle, short.unit);
            hints.push(format!(
                "asking for at most {idle} of {} it would have room on {}",
                short.resource, near.node
            ));
        }
    }
    let helps: u64 = class
        .refusals
        .iter()
        .filter(|one| one.reason.eviction_may_help)
        .map(|one| one.count)
        .sum();
    hints.push(match helps {
        0 => "no eviction helps: even empty nodes would not take it".to_owned(),
        some => format!("evictions may help on {}", many(some, "node")),
    });
    (Code::NoNode, sentence, hints)
}

/// Its turn: others before it, or nobody.
fn turn(report: &Report) -> Judged {
    let order = report.order.clone().unwrap_or_default();
    let ahead = order.jobs_ahead_count;
    let queues = order.queues_ahead.len() as u64;
    let before = match (queues, ahead) {
        (0, 0) => String::new(),
        (0, jobs) => format!(
            "{} of its queue {} before it",
            many(jobs, "job"),
            if jobs == 1 { "is" } else { "are" }
        ),
        (queues, 0) => format!(
            "{} with waiting jobs {} before its own",
            many(queues, "queue"),
            if queues == 1 { "is" } else { "are" }
        ),
        (queues, jobs) => format!(
            "{} of its queue and {} with waiting jobs are before it",
            many(jobs, "job"),
            many(queues, "queue")
        ),
    };
    let gang = report.gang.clone().unwrap_or_default();
    if let Some(after) = &gang.after_those_ahead {
        let wanted = wanted(&gang);
        if !after.permitted || after.placeable < wanted {
            let blocked = after.blocked_by.clone().filter(|_| after.permitted);
            let blocked = blocked.unwrap_or_else(|| "its queue would not admit it any more".to_owned());
            let before = words::takers(after).unwrap_or(before);
            let sentence = format!("alone it would find a place now, but {before} and will take it: {blocked}");
            let own = after.taken_by.iter().find(|taker| taker.queue == report.subject.queue);
            let hint = match (own, after.taken_by.first()) {
                (Some(own), _) => format!(
                    "job {} is before it in its queue; a higher priority would move it forward where the policy orders by it",
                    own.job
                ),
                (None, Some(other)) => format!("queue {}, with job {}, is before its queue", other.queue, other.job),
                (None, None) => "TURN tells who is before it".to_owned(),
            };
            return (Code::Behind, sentence, vec![hint]);
        }
    }
    placeable(report, &gang, &before)
}

fn placeable(report: &Report, gang: &Gang, before: &str) -> Judged {
    let what = what(report);
    let best = report.classes.iter().find_map(|class| class.best.first());
    let best = best.map(|best| format!(", best on {}", best.node)).unwrap_or_default();
    let before = if before.is_empty() {
        String::new()
    } else {
        let tried = gang.after_those_ahead.is_some();
        let leave = if tried {
            "and leave enough"
        } else {
            "and whether they leave enough was not tried"
        };
        format!("; {before}, {leave}")
    };
    let sentence = if gang.tried == 0 {
        format!("nothing known here keeps {what}: its queue admits it now; its tasks are not there yet{before}")
    } else if gang.tried == 1 {
        format!("nothing known here keeps {what}: it finds a place now{best}{before}")
    } else {
        let places = count(gang.placeable);
        format!(
            "nothing known here keeps {what}: {places} of {} find a place now{best}{before}",
            many(gang.tried, "waiting task")
        )
    };
    let hint = "its scheduler has yet to come round to it; if it does not, look at the scheduler's own log".to_owned();
    (Code::Placeable, sentence, vec![hint])
}
