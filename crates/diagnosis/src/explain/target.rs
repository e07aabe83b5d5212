//! Target of an explanation among the records, with the number of its tasks in each state.

use std::collections::BTreeMap;

use super::report::{ExplainSubject, InvalidRecord, TaskDevices};
use super::trial::{MemberCounts, WaitingJob};
use pumice_console::pinned_client::KnownRecords;
use pumice_console::task::job_of_one;
use pumice_console::{CommandError, output, unknown_name};
use pumice_engine::model::VOLCANO_GATE;
use pumice_protocol::v1 as pb;

/// Number of names that are listed.
const NAMED: usize = 10;

/// Target of an explanation, as the command line names it.
#[derive(Debug)]
pub(super) enum ExplainTarget {
    /// A stored job.
    Job(String),
    /// A stored task.
    Task(String),
    /// Tasks of a file, and the jobs of that file.
    File { tasks: Vec<pb::Task>, jobs: Vec<pb::Job> },
}

/// Target of an explanation, resolved among the records.
#[derive(Debug, Default)]
pub(super) struct ResolvedTarget {
    pub(super) subject: ExplainSubject,
    pub(super) job: Option<pb::Job>,
    /// True: the server has the job.
    pub(super) job_stored: bool,
    /// True: the server has the tasks.
    pub(super) tasks_stored: bool,
    /// Waiting tasks, the one asked about first; gated ones included.
    pub(super) waiting: Vec<pb::Task>,
    /// Tasks of the job that are valid: they wait without a gate of others, have a place, or succeeded.
    pub(super) valid_members: MemberCounts,
    /// Tasks of the job that have a place, or succeeded.
    pub(super) started_members: MemberCounts,
    pub(super) invalid: Vec<InvalidRecord>,
}

/// Where a task is in its life, as far as `explain` distinguishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TaskState {
    Waiting,
    Pipelined,
    Placed,
    Succeeded,
    Ended,
}

/// State of a task by its status.
pub(super) fn task_state(task: &pb::Task) -> TaskState {
    match task.status() {
        pb::TaskStatus::Unspecified | pb::TaskStatus::Pending => TaskState::Waiting,
        pb::TaskStatus::Pipelined => TaskState::Pipelined,
        pb::TaskStatus::Allocated | pb::TaskStatus::Binding | pb::TaskStatus::Bound | pb::TaskStatus::Running => {
            TaskState::Placed
        }
        pb::TaskStatus::Succeeded => TaskState::Succeeded,
        pb::TaskStatus::Releasing | pb::TaskStatus::Failed | pb::TaskStatus::Unknown => TaskState::Ended,
    }
}

/// True if a scheduler tries a waiting task: it has no scheduling gate, or only the one that Volcano's scheduler takes off
/// itself when the queue admits the task.
pub(super) fn is_open(task: &pb::Task) -> bool {
    !task.gated || (task.scheduling_gates.len() == 1 && task.scheduling_gates.iter().all(|gate| gate == VOLCANO_GATE))
}

/// Resolves a target. `is_volcano`: the policy is one of Volcano, which makes jobs of tasks that name none.
///
/// # Errors
/// The record does not exist. The message suggests the closest name.
pub(super) fn resolve_target(
    known: &KnownRecords,
    wanted: ExplainTarget,
    is_volcano: bool,
) -> Result<ResolvedTarget, CommandError> {
    match wanted {
        ExplainTarget::Job(name) => {
            let name = full_name("job", &name, &known.jobs, &known.tasks)?;
            let mut focus = of_job(known, &name);
            focus.subject.kind = "job";
            focus.subject.name = name;
            Ok(focus)
        }
        ExplainTarget::Task(name) => {
            let name = full_name("task", &name, &known.tasks, &known.jobs)?;
            Ok(of_task(known, name, is_volcano))
        }
        ExplainTarget::File { tasks, jobs } => Ok(of_file(known, &tasks, jobs, is_volcano)),
    }
}

/// Full name of a record: as given, or the only one with that name in any namespace.
fn full_name<T, U>(
    kind: &str,
    name: &str,
    records: &BTreeMap<String, T>,
    others: &BTreeMap<String, U>,
) -> Result<String, CommandError> {
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
    } else if let Some(meant) = unknown_name::nearest(name, &records.keys().cloned().collect::<Vec<String>>()) {
        lines.push(format!("hint: did you mean `{meant}`?"));
    } else if records.is_empty() {
        lines.push(format!(
            "hint: the server knows no {kind}s; `pumice state show` lists its sources"
        ));
    } else {
        lines.push(format!("hint: `pumice state show {kind}s` lists them all"));
    }
    Err(CommandError::message(lines.join("\n")))
}

fn of_job(known: &KnownRecords, name: &str) -> ResolvedTarget {
    let status = known.jobs.get(name);
    let job = status.and_then(|status| status.job.clone());
    let mut focus = ResolvedTarget {
        job_stored: job.is_some(),
        tasks_stored: true,
        ..ResolvedTarget::default()
    };
    if let Some(status) = status {
        add_invalid(&mut focus.invalid, "job", name, &status.invalid);
    }
    set_job(&mut focus, known, job);
    for stored in known.tasks.values() {
        if let Some(task) = stored.task.as_ref().filter(|task| task.job == name) {
            add_invalid(&mut focus.invalid, "task", &task.name, &stored.invalid);
            count_task(&mut focus, task);
        }
    }
    focus
}

fn of_task(known: &KnownRecords, name: String, is_volcano: bool) -> ResolvedTarget {
    let stored = known.tasks.get(&name);
    let task = stored.and_then(|stored| stored.task.clone()).unwrap_or_default();
    let mut focus = if task.job.is_empty() {
        let mut focus = ResolvedTarget {
            tasks_stored: true,
            ..ResolvedTarget::default()
        };
        let problems = stored.map(|stored| stored.invalid.as_slice()).unwrap_or_default();
        add_invalid(&mut focus.invalid, "task", &name, problems);
        if is_volcano {
            set_job_of_one(&mut focus, known, &task);
        }
        count_task(&mut focus, &task);
        focus
    } else {
        of_job(known, &task.job)
    };
    focus.subject.kind = "task";
    focus.subject.job.clone_from(&task.job);
    focus.waiting.sort_by_key(|waiting| waiting.name != name);
    if task_state(&task) != TaskState::Waiting {
        // Other waiting tasks of the job are not asked about.
        focus.waiting.clear();
        let of_job = std::mem::take(&mut focus.subject);
        focus.subject = ExplainSubject {
            kind: "task",
            job: of_job.job,
            queue: of_job.queue,
            phase: of_job.phase,
            min_member: of_job.min_member,
            ..ExplainSubject::default()
        };
        count_task(&mut focus, &task);
    }
    focus.subject.name = name;
    focus
}

fn of_file(known: &KnownRecords, tasks: &[pb::Task], jobs: Vec<pb::Job>, is_volcano: bool) -> ResolvedTarget {
    let of = tasks.first().map(|task| task.job.clone()).unwrap_or_default();
    let stored = known.jobs.get(&of).and_then(|status| status.job.clone());
    let job = stored.clone().or_else(|| jobs.into_iter().find(|job| job.name == of));
    let mut focus = ResolvedTarget {
        job_stored: stored.is_some(),
        ..ResolvedTarget::default()
    };
    set_job(&mut focus, known, job);
    if let ([only], "", true) = (tasks, of.as_str(), is_volcano) {
        set_job_of_one(&mut focus, known, only);
    }
    focus.subject.job = of;
    for task in tasks {
        // The file may be the dump of a running pod: the query treats the pod as waiting.
        let waiting = pb::Task {
            status: pb::TaskStatus::Pending.into(),
            node: String::new(),
            ..task.clone()
        };
        count_task(&mut focus, &waiting);
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

fn set_job(focus: &mut ResolvedTarget, known: &KnownRecords, job: Option<pb::Job>) {
    if let Some(job) = &job {
        focus.subject.queue.clone_from(&job.queue);
        focus.subject.phase = phase(job);
        focus.subject.min_member = u64::try_from(job.min_member).unwrap_or(0);
        if let Some(queue) = known.queues.get(&job.queue) {
            add_invalid(&mut focus.invalid, "queue", &job.queue, &queue.invalid);
        }
    }
    focus.job = job;
}

/// Gives a task without a job the one that Volcano makes of it, if the queue of that job is known.
fn set_job_of_one(focus: &mut ResolvedTarget, known: &KnownRecords, task: &pb::Task) {
    let job = job_of_one(task);
    if known.queues.contains_key(&job.queue) && !known.jobs.contains_key(&job.name) {
        set_job(focus, known, Some(job));
    }
}

/// Phase of a job in lower case; an absent one is pending.
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

fn count_task(focus: &mut ResolvedTarget, task: &pb::Task) {
    let subject = &mut focus.subject;
    subject.tasks = subject.tasks.saturating_add(1);
    subject.succeeded = subject
        .succeeded
        .saturating_add((task_state(task) == TaskState::Succeeded).into());
    let is = |status: pb::TaskStatus| u64::from(task.status() == status);
    subject.failed = subject.failed.saturating_add(is(pb::TaskStatus::Failed));
    subject.terminating = subject.terminating.saturating_add(is(pb::TaskStatus::Releasing));
    let state = task_state(task);
    if matches!(state, TaskState::Pipelined | TaskState::Placed | TaskState::Succeeded) {
        focus.started_members.add(task, 1);
        focus.valid_members.add(task, 1);
    } else if state == TaskState::Waiting && is_open(task) {
        focus.valid_members.add(task, 1);
    }
    let counter = match state {
        TaskState::Waiting => {
            let is_gated = u64::from(task.gated);
            let is_withheld = u64::from(!is_open(task));
            subject.gated = subject.gated.saturating_add(is_withheld);
            subject.queue_gated = subject.queue_gated.saturating_add(is_gated.saturating_sub(is_withheld));
            focus.waiting.push(task.clone());
            &mut subject.pending
        }
        TaskState::Pipelined => &mut subject.pipelined,
        TaskState::Placed => &mut subject.placed,
        TaskState::Succeeded | TaskState::Ended => &mut subject.finished,
    };
    *counter = counter.saturating_add(1);
    if !task.node.is_empty() && subject.nodes.len() < NAMED && !subject.nodes.contains(&task.node) {
        subject.nodes.push(task.node.clone());
    }
    let assigned = task.constraints.as_ref().and_then(|own| own.devices.as_ref());
    let assigned = assigned.map(|own| own.assigned.clone()).unwrap_or_default();
    if !task.node.is_empty() && !assigned.is_empty() && subject.devices.len() < NAMED {
        subject.devices.push(TaskDevices {
            task: task.name.clone(),
            node: task.node.clone(),
            devices: assigned,
        });
    }
}

fn add_invalid(invalid: &mut Vec<InvalidRecord>, kind: &str, name: &str, problems: &[pb::Problem]) {
    if !problems.is_empty() {
        invalid.push(InvalidRecord {
            record: format!("{kind} {name}"),
            problems: problems.iter().map(output::problem).collect(),
        });
    }
}

/// Nodes whose newest record was refused, with the problems.
pub(super) fn invalid_nodes(nodes: &[pb::NodeStatus]) -> Vec<InvalidRecord> {
    let mut invalid = Vec::new();
    for status in nodes {
        let name = status.node.as_ref().map(|node| node.name.as_str()).unwrap_or_default();
        add_invalid(&mut invalid, "node", name, &status.invalid);
    }
    invalid
}

/// Waiting jobs, with the tasks that a scheduler would try now.
pub(super) fn waiting_jobs(known: &KnownRecords) -> BTreeMap<String, WaitingJob> {
    let mut tasks: BTreeMap<&str, Vec<&pb::Task>> = BTreeMap::new();
    for task in known.tasks.values().filter_map(|stored| stored.task.as_ref()) {
        tasks.entry(&task.job).or_default().push(task);
    }
    let waiting = known.jobs.iter().filter_map(|(name, status)| {
        let job = status.job.as_ref()?;
        let all = tasks.remove(name.as_str()).unwrap_or_default();
        let not_enqueued = phase(job) == "pending";
        let tried = |task: &&&pb::Task| task_state(task) == TaskState::Waiting && !task.gated;
        let tried: Vec<pb::Task> = all.iter().filter(tried).map(|task| (*task).clone()).collect();
        // Volcano makes the pods when the job is enqueued.
        let has_no_pods_yet = not_enqueued && all.is_empty();
        if tried.is_empty() && !has_no_pods_yet {
            return None;
        }
        let waiting = WaitingJob {
            job: name.clone(),
            queue: job.queue.clone(),
            not_enqueued,
            tasks: tried,
            tasks_stored: true,
            has_minimum: job.min_member > 0,
            hypothetical: None,
        };
        Some((name.clone(), waiting))
    });
    waiting.collect()
}
