//! Verdicts on gangs: some tasks of a job find a place, and the job does not start with them.

use super::hint::{Hint, HintTrial};
use super::phrases::{self, count, count_of};
use super::report::{GangReport, ShortMembers, VerdictCode};
use super::trial::WaitingJob;
use super::verdict_parts::{VerdictInput, VerdictParts, verdict_parts};
use pumice_protocol::v1 as pb;

/// Verdict on too few tasks with a place, or too few of a role or of the job's groups.
pub(super) fn shortage(input: VerdictInput<'_>, gang: &GangReport) -> VerdictParts {
    let subject = &input.report.subject;
    let blocked = match &gang.blocked_by {
        Some(blocked) => format!("; the next finds none ({blocked})"),
        None => String::new(),
    };
    let found = format!(
        "{} of the {} tried {} a place now{blocked}",
        count(gang.placeable),
        count(gang.attempted),
        if gang.placeable == 1 { "finds" } else { "find" },
    );
    let wanted = gang.min_count.saturating_sub(gang.placed_count).max(1);
    let enough = gang.placeable >= wanted;
    let short = gang.short_members.first().filter(|_| enough);
    let sentence = match short {
        Some(short) => format!(
            "it starts with {}, and {} a place in the order of its tasks: {found}",
            phrases::members(short, short.needed),
            match short.found {
                0 => "none of them finds".to_owned(),
                1 => "only 1 of them finds".to_owned(),
                several => format!("only {} of them find", count(several)),
            },
        ),
        None if gang.placeable_later > gang.placeable => format!(
            "{} must start together{}, and there is room for only {} even when what is being released is gone",
            count_of(gang.min_count, "task"),
            phrases::already_placed(gang),
            count(gang.placeable_later)
        ),
        None => format!(
            "{} must start together{}, and only {found}",
            count_of(gang.min_count, "task"),
            phrases::already_placed(gang),
        ),
    };
    let fact = match short {
        Some(_) => "it starts when more of its tasks find a place at once".to_owned(),
        None => format!("it starts when {} of its tasks find a place at once", count(wanted)),
    };
    let mut parts = verdict_parts(VerdictCode::Gang, sentence, []);
    if subject.kind != "tasks" {
        let places = gang.placeable.max(gang.placeable_later);
        let changed = input.attempted.zip(input.focus.job.as_ref());
        if let Some((attempted, job)) = changed {
            parts.hints.extend(match short {
                Some(short) => of_short_members(attempted, job, short),
                None => fewer_members(attempted, job, wanted.saturating_sub(places))
                    .into_iter()
                    .collect(),
            });
        }
    }
    parts.hints.push(fact.into());
    parts
}

/// Smaller minimum with which the job would start; `None`: it would be no minimum.
pub(super) fn fewer_members(attempted: &WaitingJob, job: &pb::Job, number: u64) -> Option<Hint> {
    let least = job
        .min_member
        .checked_sub(i32::try_from(number).ok()?)
        .filter(|least| *least >= 1)?;
    let changed = pb::Job {
        min_member: least,
        ..job.clone()
    };
    let text = format!("a minMember of at most {least} would let it start");
    Some(Hint::tried(text, starts(attempted, changed)))
}

/// Other minimum of a role, and another order of the tasks.
fn of_short_members(attempted: &WaitingJob, job: &pb::Job, short: &ShortMembers) -> Vec<Hint> {
    if short.kind != "task" {
        return Vec::new();
    }
    let least = job.min_task_member.get(&short.name).copied().unwrap_or(0);
    let missing = i32::try_from(short.needed.saturating_sub(short.found)).unwrap_or(least);
    let least = least.saturating_sub(missing);
    let mut changed = job.clone();
    changed.min_task_member.insert(short.name.clone(), least);
    let role = &short.name;
    let fewer = Hint::tried(
        format!("a minTaskMember of {least} for role {role} would let it start"),
        starts(attempted, changed),
    );
    let highest = attempted.tasks.iter().map(|task| task.priority).max().unwrap_or(0);
    let first = attempted.tasks.iter().filter(|task| task.role == *role);
    let first = first.map(|task| pb::Task {
        priority: highest.saturating_add(1),
        priority_from_class: false,
        ..task.clone()
    });
    let needed = usize::try_from(short.needed).unwrap_or(usize::MAX);
    let records = pb::Cluster {
        tasks: first.take(needed).collect(),
        ..pb::Cluster::default()
    };
    let trial = HintTrial::StartsInOrder(Box::new(attempted.clone()), records);
    let tasks = count_of(short.needed, "task");
    let sooner = Hint::tried(
        format!("with a higher priority of {tasks} of role {role} it would start: they would be served first"),
        trial,
    );
    vec![sooner, fewer]
}

fn starts(attempted: &WaitingJob, job: pb::Job) -> HintTrial {
    HintTrial::Starts(Box::new(WaitingJob {
        hypothetical: Some(job),
        ..attempted.clone()
    }))
}
