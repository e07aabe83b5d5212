//! Rejections by a queue in sentences: what its quota has left, what would change it, and whether it can ever fit.

use super::free_capacity;
use super::gang::fewer_members;
use super::hint::{Hint, HintTrial};
use super::phrases;
use super::quota_changes::{self, RejectedByQuota};
use super::report::{AdmissionReport, ExplainReport, RejectionReason, TaskClassReport, VerdictCode};
use super::verdict_parts::{VerdictInput, VerdictParts, verdict_parts};
use pb::admit_subject::Subject;
use pumice_console::{output, remedies, unknown_name};
use pumice_engine::model::RejectionCode;
use pumice_protocol::v1 as pb;

/// Rejection by the queue, with measurements where the reason has them. `who` asks: `it`, or each of the tasks. `subject`: what
/// Admit was asked about, if it can be asked again with a smaller request.
pub(super) fn rejection(
    input: VerdictInput<'_>,
    admission: &AdmissionReport,
    who: &str,
    subject: Option<&Subject>,
) -> VerdictParts {
    let own = &input.report.subject.queue;
    if let Some(parts) = subject.and_then(|subject| no_such_resource(input, admission, who, subject)) {
        return parts;
    }
    let Some(reason) = most_telling(&admission.reasons) else {
        let hint = "ask again without other plugins, or look at the votes below".to_owned();
        return verdict_parts(VerdictCode::Quota, format!("queue {own} does not admit {who}"), [hint]);
    };
    let queue = reason_queue(reason).unwrap_or(own);
    if let Some(promises) = phrases::promise_usage(reason) {
        return cluster_promises(reason, &promises, who);
    }
    let Some(quota) = phrases::quota_usage(reason) else {
        let sentence = format!("queue {own} does not admit {who}: {}", reason.message);
        return verdict_parts(
            VerdictCode::Quota,
            sentence,
            [remedies::of_code(&reason.code).to_owned()],
        );
    };
    let asked = match quota.unit.as_str() {
        "bytes" => output::with_unit(quota.requested, "bytes"),
        _ => output::number(quota.requested),
    };
    let left = phrases::quota_left(&quota, &reason.resource);
    let of_deserved = if quota.is_deserved {
        " in its deserved share"
    } else {
        ""
    };
    let mut parts = verdict_parts(
        VerdictCode::Quota,
        format!("queue {queue} has {left}{of_deserved}, and {who} asks for {asked}"),
        [quota_hint(reason, &quota, queue)],
    );
    parts.impossible = phrases::unreadable_quota(reason).is_none() && quota.never_fits();
    let case = RejectedByQuota {
        queue,
        reason,
        quota: &quota,
        subject,
    };
    add_changes(input, admission, &case, &mut parts);
    parts
}

/// Adds what changes the verdict: smaller requests, the end of others, and other quotas.
fn add_changes(
    input: VerdictInput<'_>,
    admission: &AdmissionReport,
    case: &RejectedByQuota<'_>,
    parts: &mut VerdictParts,
) {
    let (reason, quota) = (case.reason, case.quota);
    parts.hints.extend(quota_changes::other_guarantees(input, case));
    if quota.left > 0.0
        && let Some(smaller) = case
            .subject
            .and_then(|subject| quota_changes::smaller(subject, &reason.resource, quota.left))
    {
        let left = output::with_unit(quota.left, &quota.unit);
        let text = format!(
            "this quota would admit a request of at most {left} of {}",
            reason.resource
        );
        parts.hints.push(Hint::tried(
            text,
            HintTrial::Permits(Box::new(smaller), pb::Cluster::default()),
        ));
    }
    let holders = input.report.queue.iter().flat_map(|queue| &queue.holders);
    let texts: Vec<String> = holders.clone().map(phrases::holder_text).collect();
    if !texts.is_empty() && !parts.impossible {
        parts.hints.push(format!("most is held by {}", texts.join(", ")).into());
        let name = &input.report.subject.name;
        let endless =
            holders.filter_map(|holder| Some(phrases::endless_wait(name, &holder.job, holder.never_starts.as_ref()?)));
        parts.hints.extend(endless.map(Hint::from));
    }
    if let Some(changes) = quota_changes::changes(input, admission, case) {
        parts.hints.extend(changes);
    } else {
        let remedy = remedies::of_code(&reason.code);
        // A request beyond the whole quota does not fit when jobs of the queue end.
        let beyond_waiting = remedy.strip_prefix("wait until jobs of the queue end, ");
        let remedy = beyond_waiting.filter(|_| parts.impossible).unwrap_or(remedy);
        parts.hints.push(remedy.to_owned().into());
    }
}

/// Rejection for a resource that no node has, and of which the queue has no quota of its own.
fn no_such_resource(
    input: VerdictInput<'_>,
    admission: &AdmissionReport,
    who: &str,
    subject: &Subject,
) -> Option<VerdictParts> {
    let items = quota_changes::requested(subject)?;
    let has_quota = |name: &str| {
        let rows = input.report.queue.iter().flat_map(|queue| &queue.account);
        rows.into_iter()
            .any(|row| row.resource == name && row.capability.is_some())
    };
    let mut reasons = admission.reasons.iter();
    let (resource, asked) = reasons.find_map(|reason| {
        let (name, written) = items.get_key_value(&reason.resource)?;
        let asked = free_capacity::shown_amount(name, written);
        (!input.rooms.has_resource(name) && !has_quota(name)).then_some((name, asked))
    })?;
    let known = input.rooms.resource_names();
    let meant =
        unknown_name::nearest(resource, &known).map_or_else(String::new, |meant| format!("; did you mean `{meant}`?"));
    let hint = format!("it never fits: add a node that has {resource}, or ask for none of it{meant}");
    let sentence = format!("no node has {resource}, and {who} asks for {asked}");
    Some(VerdictParts {
        impossible: true,
        ..verdict_parts(VerdictCode::NoNode, sentence, [hint])
    })
}

/// Change of the quota or of what others hold that lets the request pass.
fn quota_hint(reason: &RejectionReason, quota: &phrases::QuotaUsage, queue: &str) -> String {
    let resource = &reason.resource;
    if let Some(problem) = phrases::unreadable_quota(reason) {
        return format!("the quota of queue {queue} counts as empty: {problem}");
    }
    if quota.is_deserved && quota.never_fits() {
        let bound = output::with_unit(quota.bound, &quota.unit);
        return format!("it never fits: queue {queue} may hold at most {bound} of {resource}");
    }
    if quota.is_deserved {
        // Without a job of the queue it would still ask for more than the queue deserves.
        let deserves_too_little = quota.requested > quota.ceiling;
        // A queue deserves at most what it may hold.
        let jobs_must_end = quota.total > quota.bound;
        let shown = |amount: f64| output::with_unit(amount, &quota.unit);
        let (lacking, missing) = (shown(quota.requested - quota.ceiling), shown(quota.missing));
        return match (deserves_too_little, jobs_must_end) {
            (true, true) => format!(
                "it fits when jobs of queue {queue} end and the queue deserves at least {lacking} of {resource} more, by its weight or because other queues ask for less"
            ),
            (true, false) => format!(
                "it fits when queue {queue} deserves at least {lacking} of {resource} more, by its weight or because other queues ask for less"
            ),
            (false, true) => {
                format!("it fits when {missing} of {resource} more are left: jobs of queue {queue} end")
            }
            (false, false) => format!(
                "it fits when {missing} of {resource} more are left: jobs of queue {queue} end, or it deserves more, by its weight or because other queues ask for less"
            ),
        };
    }
    if quota.requested > quota.ceiling && quota.ceiling <= 0.0 && quota.unit == "cards" {
        return format!(
            "it never fits: the quota of queue {queue} names no {}",
            resource.replace('|', " and no ")
        );
    }
    if quota.requested > quota.ceiling {
        let ceiling = output::with_unit(quota.ceiling, &quota.unit);
        let best = if resource.contains('|') {
            ", for the best of these cards"
        } else {
            ""
        };
        return format!("it never fits: the whole quota of queue {queue} is {ceiling} of {resource}{best}");
    }
    if quota.missing <= 0.0 {
        return format!("it fits when jobs of queue {queue} that accept the same cards end");
    }
    let missing = output::with_unit(quota.missing, &quota.unit);
    let of = if resource.contains('|') {
        format!("one of {}", resource.replace('|', ", "))
    } else {
        resource.clone()
    };
    let are = if missing.starts_with("1 ") { "is" } else { "are" };
    format!("it fits when {missing} of {of} {are} given back in queue {queue}")
}

/// Queue that a reason of capacity-card names: the job's own, or one above it.
pub(super) fn reason_queue(reason: &RejectionReason) -> Option<&str> {
    let (_, rest) = reason.message.split_once("Queue <")?;
    Some(rest.split_once('>')?.0)
}

/// Most important reason. A reason that preemption cannot resolve comes first, then a reason that the end of other jobs
/// cannot resolve, then a reason about the queue, then the first reason.
fn most_telling(reasons: &[RejectionReason]) -> Option<&RejectionReason> {
    let find = |is_wanted: &dyn Fn(&RejectionReason) -> bool| reasons.iter().find(|reason| is_wanted(reason));
    let never = |reason: &RejectionReason| phrases::quota_usage(reason).is_some_and(|quota| quota.never_fits());
    find(&|reason| !reason.preemption_may_help)
        .or_else(|| find(&never))
        .or_else(|| find(&|reason| phrases::quota_usage(reason).is_some()))
        .or(reasons.first())
}

/// Rejection because the cluster would promise more than it lends.
fn cluster_promises(reason: &RejectionReason, promises: &phrases::PromiseUsage, who: &str) -> VerdictParts {
    let shown = |amount: f64| output::with_unit(amount, &promises.unit);
    let resource = &reason.resource;
    let sentence = format!(
        "with overcommit, the cluster has {} of {resource} for waiting jobs; {} are reserved for admitted jobs, and {who} asks for {}",
        shown(promises.idle.max(0.0)),
        shown(promises.promised),
        shown(promises.requested),
    );
    let missing = shown(promises.promised + promises.requested - promises.idle);
    let hints = [
        format!("it fits when {missing} of {resource} less are used or reserved"),
        remedies::of_code(&reason.code).to_owned(),
    ];
    verdict_parts(VerdictCode::Quota, sentence, hints)
}

/// Rejection of tasks that must start together, although the queue would admit each task alone.
pub(super) fn gang_rejection(input: VerdictInput<'_>, admission: &AdmissionReport) -> VerdictParts {
    let classes = input.report.task_classes.iter();
    let admitted = classes
        .map(TaskClassReport::admitted_count)
        .fold(0, u64::saturating_add);
    let gang = input.report.gang.clone().unwrap_or_default();
    let needed = gang.min_count.saturating_sub(gang.placed_count);
    let who = format!("the gang of {}", phrases::count_of(needed, "task"));
    let together = input.report.gang_subject.clone().map(Subject::Task);
    let mut parts = rejection(input, admission, &who, together.as_ref());
    let takes_several = |reason: &RejectionReason| reason.resource.contains('|');
    if parts.impossible && most_telling(&admission.reasons).is_some_and(takes_several) {
        // Admit counted all tasks as cards of one kind, and each task takes its own.
        parts.impossible = false;
        if let Some(hint) = parts.hints.first_mut() {
            "it fits when jobs of its queue give back enough cards of one kind for each of its tasks"
                .clone_into(&mut hint.text);
        }
    }
    if admitted > 0 {
        let places = gang.placeable.min(admitted);
        let room = if places < admitted {
            format!(", and nodes have room for {} of them", phrases::count(places))
        } else {
            String::new()
        };
        let fact = format!("its queue admits {} of its tasks now{room}", phrases::count(admitted));
        parts.hints.push(fact.into());
        let changed = input.attempted.zip(input.focus.job.as_ref());
        let fewer = changed.and_then(|(attempted, job)| fewer_members(attempted, job, needed.saturating_sub(places)));
        parts.hints.extend(fewer);
    }
    parts
}

/// Verdict on a queue that takes nothing new, as Admit answered for the job or one of its tasks. Where Admit was not asked,
/// the record of the queue decides.
pub(super) fn closed_queue(report: &ExplainReport, job: &str) -> Option<VerdictParts> {
    let queue = report.queue.as_ref()?;
    let of_tasks = report.task_classes.iter().filter_map(|class| class.admission.as_ref());
    let asked: Vec<&AdmissionReport> = report.admission.iter().chain(of_tasks).collect();
    let mut reasons = asked.iter().flat_map(|admission| &admission.reasons);
    let name = match reasons.find(|reason| reason.code == RejectionCode::QueueNotOpen.name()) {
        Some(reason) => reason_queue(reason).unwrap_or(&queue.name),
        None if asked.is_empty() && matches!(queue.state.as_str(), "closed" | "closing" | "unknown") => &queue.name,
        None => return None,
    };
    let sentence = if name == queue.name {
        format!("queue {name} is {}, and takes nothing new", queue.state)
    } else {
        format!(
            "queue {name}, above queue {}, is not open and takes nothing new",
            queue.name
        )
    };
    let hint = format!("open queue {name}, or give job {job} another queue");
    Some(verdict_parts(VerdictCode::QueueClosed, sentence, [hint]))
}
