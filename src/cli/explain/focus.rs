//! Finds what is asked about among the records, and counts how its tasks stand.

use std::collections::BTreeMap;

use super::ask::Known;
use super::report::{Invalid, Subject};
use super::trial::Waiting;
use crate::cli::{Failure, output};
use crate::engine::policy::slip;
use crate::server::pb;

/// Names that are listed where more would only be noise.
const NAMED: usize = 10;

/// What is to be explained.
#[derive(Debug)]
pub(super) enum Wanted {
    /// A stored job.
    Job(String),
    /// A stored task.
    Task(String),
    /// Tasks out of a file, and the jobs that stood beside them.
    File { tasks: Vec<pb::Task>, jobs: Vec<pb::Job> },
}

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Focus {
    pub(super) subject: Subject,
    pub(super) job: Option<pb::Job>,
    /// The server has the job.
    pub(super) job_stored: bool,
    /// The server has the tasks.
    pub(super) tasks_stored: bool,
    /// Tasks that wait, the one asked about first, gated ones too.
    pub(super) waiting: Vec<pb::Task>,
    pub(super) invalid: Vec<Invalid>,
}

/// How a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Waiting,
    Pipelined,
    Placed,
    Succeeded,
    Gone,
}

/// How a task stands.
pub(super) fn standing(task: &pb::Task) -> Standing {
    match task.status() {
        pb::TaskStatus::Unspecified | pb::TaskStatus::Pending => Standing::Waiting,
        pb::TaskStatus::Pipelined => Standing::Pipelined,
        pb::TaskStatus::Allocated | pb::TaskStatus::Binding | pb::TaskStatus::Bound | pb::TaskStatus::Running => {
            Standing::Placed
        }
        pb::TaskStatus::Succeeded => Standing::Succeeded,
        pb::TaskStatus::Releasing | pb::TaskStatus::Failed | pb::TaskStatus::Unknown => Standing::Gone,
    }
}

/// Finds it.
///
/// # Errors
/// There is none of that name; the message says which one was probably meant.
pub(super) fn find(known: &Known, wanted: Wanted) -> Result<Focus, Failure> {
    match wanted {
        Wanted::Job(name) => {
            let name = resolve("job", &name, &known.jobs, &known.tasks)?;
            let mut focus = of_job(known, &name);
            focus.subject.kind = "job";
            focus.subject.name = name;
            Ok(focus)
        }
        Wanted::Task(name) => {
            let name = resolve("task", &name, &known.tasks, &known.jobs)?;
            Ok(of_task(known, name))
        }
        Wanted::File { tasks, jobs } => Ok(of_file(known, &tasks, jobs)),
    }
}

/// The full name of a record: as given, or the only one with that name in any namespace.
fn resolve<T, U>(
    kind: &str,
    name: &str,
    records: &BTreeMap<String, T>,
    others: &BTreeMap<String, U>,
) -> Result<String, Failure> {
    if records.contains_key(name) {
        return Ok(name.to_owned());
    }
    let ending = format!("/{name}");
    let like: Vec<&String> = records.keys().filter(|own| own.ends_with(&ending)).collect();
    if let [only] = like.as_slice() {
        return Ok((*only).clone());
    }
    let mut lines = vec![format!("error: there is no {kind} `{name}`")];
    if !like.is_empty() {
        let like: Vec<&str> = like.iter().take(NAMED).map(|name| name.as_str()).collect();
        lines.push(format!("hint: which one: {}?", like.join(", ")));
    } else if others.contains_key(name) {
        let other = if kind == "job" { "task" } else { "job" };
        lines.push(format!(
            "hint: there is a {other} of that name: pumice explain {other} {name}"
        ));
    } else if let Some(meant) = meant(name, records) {
        lines.push(format!("hint: did you mean `{meant}`?"));
    } else if records.is_empty() {
        lines.push(format!(
            "hint: the server knows no {kind}s; `pumice state show` tells its sources"
        ));
    } else {
        lines.push(format!("hint: `pumice state show {kind}s` lists them all"));
    }
    Err(Failure::said(lines.join("\n")))
}

/// The name that was probably meant, whether the namespace was written or not.
fn meant<'r, T>(name: &str, records: &'r BTreeMap<String, T>) -> Option<&'r str> {
    let names: Vec<&str> = records.keys().map(String::as_str).collect();
    if let Some(meant) = slip::nearest(name, &names) {
        return Some(meant);
    }
    let short = |name: &'r str| name.rsplit('/').next().unwrap_or(name);
    let shorts: Vec<&str> = names.iter().map(|name| short(name)).collect();
    let asked = name.rsplit('/').next().unwrap_or(name);
    let meant = slip::nearest(asked, &shorts).or_else(|| shorts.iter().copied().find(|own| *own == asked))?;
    names.into_iter().find(|name| short(name) == meant)
}

fn of_job(known: &Known, name: &str) -> Focus {
    let status = known.jobs.get(name);
    let job = status.and_then(|status| status.job.clone());
    let mut focus = Focus {
        job_stored: job.is_some(),
        tasks_stored: true,
        ..Focus::default()
    };
    if let Some(status) = status {
        note_invalid(&mut focus.invalid, "job", name, &status.invalid);
    }
    if let Some(job) = &job {
        describe(&mut focus.subject, job);
        if let Some(queue) = known.queues.get(&job.queue) {
            note_invalid(&mut focus.invalid, "queue", &job.queue, &queue.invalid);
        }
    }
    focus.job = job;
    for stored in known.tasks.values() {
        if let Some(task) = stored.task.as_ref().filter(|task| task.job == name) {
            note_invalid(&mut focus.invalid, "task", &task.name, &stored.invalid);
            count(&mut focus, task);
        }
    }
    focus
}

fn of_task(known: &Known, name: String) -> Focus {
    let stored = known.tasks.get(&name);
    let task = stored.and_then(|stored| stored.task.clone()).unwrap_or_default();
    let mut focus = if task.job.is_empty() {
        let mut focus = Focus {
            tasks_stored: true,
            ..Focus::default()
        };
        let faults = stored.map(|stored| stored.invalid.as_slice()).unwrap_or_default();
        note_invalid(&mut focus.invalid, "task", &name, faults);
        count(&mut focus, &task);
        focus
    } else {
        of_job(known, &task.job)
    };
    focus.subject.kind = "task";
    focus.subject.job.clone_from(&task.job);
    focus.waiting.sort_by_key(|waiting| waiting.name != name);
    if standing(&task) != Standing::Waiting {
        // What waits beside it is another question.
        focus.waiting.clear();
        let mut own = Subject {
            kind: "task",
            ..Subject::default()
        };
        std::mem::swap(&mut own, &mut focus.subject);
        focus.subject.job = own.job;
        focus.subject.queue = own.queue;
        focus.subject.phase = own.phase;
        focus.subject.min_member = own.min_member;
        count(&mut focus, &task);
    }
    focus.subject.name = name;
    focus
}

fn of_file(known: &Known, tasks: &[pb::Task], jobs: Vec<pb::Job>) -> Focus {
    let of = tasks.first().map(|task| task.job.clone()).unwrap_or_default();
    let stored = known.jobs.get(&of).and_then(|status| status.job.clone());
    let job = stored.clone().or_else(|| jobs.into_iter().find(|job| job.name == of));
    let mut focus = Focus {
        job_stored: stored.is_some(),
        ..Focus::default()
    };
    if let Some(job) = &job {
        describe(&mut focus.subject, job);
        if let Some(queue) = known.queues.get(&job.queue) {
            note_invalid(&mut focus.invalid, "queue", &job.queue, &queue.invalid);
        }
    }
    focus.job = job;
    focus.subject.job = of;
    for task in tasks {
        // A file may be the dump of a pod that runs: it is asked about as if it waited.
        let waiting = pb::Task {
            status: pb::TaskStatus::Pending.into(),
            node: String::new(),
            ..task.clone()
        };
        count(&mut focus, &waiting);
    }
    let (kind, name) = match tasks {
        [only] => ("task", only.name.clone()),
        many => (
            "tasks",
            many.iter()
                .take(3)
                .map(|task| task.name.as_str())
                .collect::<Vec<_>>()
                .join(", "),
        ),
    };
    focus.subject.kind = kind;
    focus.subject.name = name;
    focus
}

fn describe(subject: &mut Subject, job: &pb::Job) {
    subject.queue.clone_from(&job.queue);
    subject.phase = phase(job);
    subject.min_member = u64::try_from(job.min_member).unwrap_or(0);
}

/// The phase of a job in lower case; one that is not said is pending.
fn phase(job: &pb::Job) -> String {
    match job.phase() {
        pb::JobPhase::Unspecified | pb::JobPhase::Pending => "pending",
        pb::JobPhase::Inqueue => "inqueue",
        pb::JobPhase::Running => "running",
        pb::JobPhase::Unknown => "unknown",
        pb::JobPhase::Completed => "completed",
    }
    .to_owned()
}

fn count(focus: &mut Focus, task: &pb::Task) {
    let subject = &mut focus.subject;
    subject.tasks = subject.tasks.saturating_add(1);
    subject.succeeded = subject
        .succeeded
        .saturating_add((standing(task) == Standing::Succeeded).into());
    let is = |status: pb::TaskStatus| u64::from(task.status() == status);
    subject.failed = subject.failed.saturating_add(is(pb::TaskStatus::Failed));
    subject.ending = subject.ending.saturating_add(is(pb::TaskStatus::Releasing));
    let counter = match standing(task) {
        Standing::Waiting => {
            subject.gated = subject.gated.saturating_add(task.gated.into());
            focus.waiting.push(task.clone());
            &mut subject.pending
        }
        Standing::Pipelined => &mut subject.pipelined,
        Standing::Placed => &mut subject.placed,
        Standing::Succeeded | Standing::Gone => &mut subject.finished,
    };
    *counter = counter.saturating_add(1);
    if !task.node.is_empty() && subject.nodes.len() < NAMED && !subject.nodes.contains(&task.node) {
        subject.nodes.push(task.node.clone());
    }
}

fn note_invalid(invalid: &mut Vec<Invalid>, kind: &str, name: &str, faults: &[pb::Problem]) {
    if !faults.is_empty() {
        invalid.push(Invalid {
            record: format!("{kind} {name}"),
            faults: faults.iter().map(output::problem).collect(),
        });
    }
}

/// Nodes whose newest record was refused.
pub(super) fn invalid_nodes(nodes: &[pb::NodeStatus]) -> Vec<Invalid> {
    let mut invalid = Vec::new();
    for status in nodes {
        let name = status.node.as_ref().map(|node| node.name.as_str()).unwrap_or_default();
        note_invalid(&mut invalid, "node", name, &status.invalid);
    }
    invalid
}

/// All jobs that wait, with the tasks that a scheduler would try now.
pub(super) fn waiting_jobs(known: &Known) -> BTreeMap<String, Waiting> {
    let mut waiting: BTreeMap<String, Waiting> = BTreeMap::new();
    let mut held: BTreeMap<&str, usize> = BTreeMap::new();
    let mut total: BTreeMap<&str, usize> = BTreeMap::new();
    for task in known.tasks.values().filter_map(|stored| stored.task.as_ref()) {
        *total.entry(&task.job).or_default() += 1;
        match standing(task) {
            Standing::Waiting if !task.gated => {
                let job = waiting.entry(task.job.clone()).or_insert_with(|| Waiting {
                    job: task.job.clone(),
                    queue: String::new(),
                    to_be_admitted: false,
                    tasks: Vec::new(),
                    needed: 1,
                });
                job.tasks.push(task.clone());
            }
            Standing::Pipelined | Standing::Placed | Standing::Succeeded => *held.entry(&task.job).or_default() += 1,
            Standing::Waiting | Standing::Gone => {}
        }
    }
    waiting.retain(|job, _| known.jobs.contains_key(job));
    for (name, job) in known
        .jobs
        .iter()
        .filter_map(|(name, status)| Some((name, status.job.as_ref()?)))
    {
        let to_be_admitted = phase(job) == "pending";
        let without_tasks = !total.contains_key(name.as_str());
        if to_be_admitted && without_tasks {
            waiting.insert(
                name.clone(),
                Waiting {
                    job: name.clone(),
                    queue: job.queue.clone(),
                    to_be_admitted,
                    tasks: Vec::new(),
                    needed: 0,
                },
            );
        } else if let Some(waiting) = waiting.get_mut(name) {
            let min = usize::try_from(job.min_member).unwrap_or(0);
            let held = held.get(name.as_str()).copied().unwrap_or(0);
            waiting.queue.clone_from(&job.queue);
            waiting.to_be_admitted = to_be_admitted;
            waiting.needed = min.saturating_sub(held).max(1);
        }
    }
    waiting.retain(|name, _| {
        let job = known.jobs.get(name).and_then(|status| status.job.as_ref());
        job.is_some_and(|job| job.phase() != pb::JobPhase::Completed)
    });
    waiting
}
