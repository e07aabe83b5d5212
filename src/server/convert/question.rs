//! Questions of Filter and Score: tasks, candidates, and how much of the answer is wanted.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::engine::decide::{Detail, Question, QuestionTask, ResourceFit, ScoreQuestion};
use crate::engine::model::{Problem, ProblemKind, ResourceTable, TaskRecord, TaskShape, View};
use crate::server::limits::EdgeLimits;
use crate::server::pb;
use crate::server::status::Failure;

use super::amounts::QuestionNames;
use super::nodes::{Encoding, Nodes};
use super::reader::{Declared, Reader};

/// Refused nodes shown per rejection when nothing is said.
pub const SAMPLES: u32 = 3;

/// A question of Filter, and how its answer is to be written.
#[derive(Debug)]
pub struct FilterCall {
    /// The question.
    pub question: Question,
    /// How the answer names nodes.
    pub encoding: Encoding,
}

/// A question of Score, and how its answer is to be written.
#[derive(Debug)]
pub struct ScoreCall {
    /// The question.
    pub question: ScoreQuestion,
    /// How the answer names nodes.
    pub encoding: Encoding,
}

/// The parts that Filter and Score share, as they arrive.
struct Asked {
    tasks: Vec<pb::Task>,
    candidates: Option<pb::NodeSet>,
    plugins: Vec<String>,
    resource_fit: i32,
    node_encoding: i32,
    samples: Option<u32>,
    detail: i32,
}

/// Reads a question of Filter; its ground has been taken out before.
///
/// # Errors
/// Something that belongs to no task is wrong.
pub fn filter(
    request: pb::FilterRequest,
    nodes: Nodes<'_>,
    table: Option<&pb::NodeTableVersion>,
    declared: &Declared,
) -> Result<FilterCall, Failure> {
    let pb::FilterRequest {
        ground: _,
        tasks,
        candidates,
        plugins,
        resource_fit,
        node_encoding,
        samples,
        detail,
    } = request;
    let asked = Asked {
        tasks,
        candidates,
        plugins,
        resource_fit,
        node_encoding,
        samples,
        detail,
    };
    let (question, encoding) = read(asked, nodes, table, declared)?;
    let sampled = sampled(&question);
    check_size(&question, encoding, nodes.view, [u64::MAX, sampled], &declared.limits)?;
    Ok(FilterCall { question, encoding })
}

/// Reads a question of Score; its ground has been taken out before.
///
/// # Errors
/// Something that belongs to no task is wrong.
pub fn score(
    request: pb::ScoreRequest,
    nodes: Nodes<'_>,
    table: Option<&pb::NodeTableVersion>,
    declared: &Declared,
) -> Result<ScoreCall, Failure> {
    let pb::ScoreRequest {
        ground: _,
        tasks,
        candidates,
        plugins,
        resource_fit,
        node_encoding,
        samples,
        with_filter,
        limit,
        with_parts,
        filter_detail,
    } = request;
    let asked = Asked {
        tasks,
        candidates,
        plugins,
        resource_fit,
        node_encoding,
        samples,
        detail: filter_detail,
    };
    let (question, encoding) = read(asked, nodes, table, declared)?;
    let shown = if with_filter && question.detail == Detail::Nodes {
        u64::MAX
    } else {
        limit.map_or(u64::MAX, u64::from)
    };
    let sampled = if with_filter { sampled(&question) } else { 0 };
    check_size(&question, encoding, nodes.view, [shown, sampled], &declared.limits)?;
    let question = ScoreQuestion {
        question,
        with_filter,
        limit: limit.map(|limit| limit as usize),
        with_parts,
    };
    Ok(ScoreCall { question, encoding })
}

fn read(
    asked: Asked,
    nodes: Nodes<'_>,
    table: Option<&pb::NodeTableVersion>,
    declared: &Declared,
) -> Result<(Question, Encoding), Failure> {
    nodes.check_table(table)?;
    let (tasks, resources) = tasks(asked.tasks, nodes.view, declared)?;
    let candidates = asked
        .candidates
        .map(|set| nodes.read("candidates", set, table))
        .transpose()?;
    let question = Question {
        tasks,
        resources,
        candidates,
        plugins: plugins(asked.plugins, declared.limits.plugins)?,
        resource_fit: fit(asked.resource_fit)?,
        samples: (asked.samples.unwrap_or(SAMPLES) as usize).min(declared.limits.samples),
        detail: detail(asked.detail)?,
    };
    Ok((question, Encoding::read(asked.node_encoding)?))
}

/// Reads the plugins that a question names.
pub(super) fn plugins(names: Vec<String>, limit: usize) -> Result<Vec<Arc<str>>, Failure> {
    if names.len() > limit {
        let message = format!("plugins: {} names", names.len());
        return Err(Failure::limit("TOO_MANY_PLUGINS", "plugins", limit, &message));
    }
    let mut seen = BTreeSet::new();
    if let Some(twice) = names.iter().find(|name| !seen.insert(name.as_str())) {
        let message = format!("plugins: `{twice}` stands there twice");
        return Err(Failure::invalid("DUPLICATE_PLUGIN", message));
    }
    Ok(names.into_iter().map(Arc::from).collect())
}

fn fit(fit: i32) -> Result<ResourceFit, Failure> {
    match pb::ResourceFit::try_from(fit) {
        Ok(pb::ResourceFit::Unspecified | pb::ResourceFit::FutureIdle) => Ok(ResourceFit::FutureIdle),
        Ok(pb::ResourceFit::Idle) => Ok(ResourceFit::Idle),
        Ok(pb::ResourceFit::None) => Ok(ResourceFit::None),
        Err(_) => {
            let message = format!("resource_fit: {fit} is no value of this field");
            Err(Failure::invalid("INVALID_ENUM", message))
        }
    }
}

fn detail(detail: i32) -> Result<Detail, Failure> {
    match pb::FilterDetail::try_from(detail) {
        Ok(pb::FilterDetail::Unspecified | pb::FilterDetail::Nodes) => Ok(Detail::Nodes),
        Ok(pb::FilterDetail::Samples) => Ok(Detail::Samples),
        Ok(pb::FilterDetail::Counts) => Ok(Detail::Counts),
        Err(_) => {
            let message = format!("the detail of the filter: {detail} is no value of this field");
            Err(Failure::invalid("INVALID_ENUM", message))
        }
    }
}

/// Number of nodes that each task is judged on.
pub fn width(question: &Question, view: &View) -> u64 {
    match &question.candidates {
        Some(candidates) => candidates.len() as u64,
        None => view.slots().into(),
    }
}

/// Most refused nodes that a rejection shows with their names and figures.
fn sampled(question: &Question) -> u64 {
    match question.detail {
        Detail::Counts => 0,
        Detail::Samples | Detail::Nodes => question.samples as u64,
    }
}

/// `shown` of a task's nodes are in the answer, `sampled` are named there whatever the encoding is.
fn check_size(
    question: &Question,
    encoding: Encoding,
    view: &View,
    [shown, sampled]: [u64; 2],
    limits: &EdgeLimits,
) -> Result<(), Failure> {
    let (tasks, width) = (question.tasks.len() as u64, width(question, view));
    let (limit, name) = match encoding {
        Encoding::Names => (limits.named_pairs, "named_pairs"),
        Encoding::Slots => (limits.slot_pairs, "slot_pairs"),
    };
    for (pairs, limit, name) in [
        (tasks.saturating_mul(width), limits.pairs, "pairs"),
        (tasks.saturating_mul(width.min(shown)), limit, name),
        (
            tasks.saturating_mul(width.min(sampled)),
            limits.named_pairs,
            "named_pairs",
        ),
    ] {
        if pairs > limit as u64 {
            let message = format!(
                "{tasks} tasks on {width} nodes are too much for one call: send fewer tasks or candidates, set `limit`, \
                 ask for slots, or for fewer `samples`"
            );
            return Err(Failure::limit("QUESTION_TOO_LARGE", name, limit, &message));
        }
    }
    Ok(())
}

/// A task whose name says nothing: tasks that differ in name only are one.
pub(super) struct Nameless(pub(super) Arc<TaskRecord>);

impl Nameless {
    fn key(&self) -> impl Ord + '_ {
        let TaskRecord {
            name: _,
            uid: _,
            job,
            status,
            node,
            creation_time,
            shape,
        } = &*self.0;
        let TaskShape {
            priority,
            gated,
            nominated_node,
            annotations,
            requests,
            limits,
            nonzero_requests,
            counted_requests,
            card: _,
        } = &**shape;
        (
            (requests, limits, nonzero_requests, counted_requests),
            (annotations, job, node, nominated_node),
            (priority, status, gated, creation_time),
        )
    }
}

impl PartialEq for Nameless {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Nameless {}

impl PartialOrd for Nameless {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Nameless {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

type Tasks = Vec<Result<QuestionTask, Problem>>;

/// Reads the tasks of a question. Fields of problems are relative to the task.
fn tasks(tasks: Vec<pb::Task>, view: &View, declared: &Declared) -> Result<(Tasks, Arc<ResourceTable>), Failure> {
    let limit = declared.limits.tasks;
    if tasks.len() > limit {
        let message = format!("tasks: {} of them", tasks.len());
        return Err(Failure::limit("TOO_MANY_TASKS", "tasks", limit, &message));
    }
    let mut names = QuestionNames::new(view.resources(), declared.limits.question_resources);
    let mut reader = Reader::new(&mut names, declared);
    let mut distinct: BTreeSet<Nameless> = BTreeSet::new();
    let mut share = |task: Arc<TaskRecord>| {
        let nameless = Nameless(task);
        if let Some(Nameless(known)) = distinct.get(&nameless) {
            return Arc::clone(known);
        }
        let task = Arc::clone(&nameless.0);
        distinct.insert(nameless);
        task
    };
    let mut read = Vec::with_capacity(tasks.len());
    for task in tasks {
        let task = self::task(task, view, &mut reader);
        read.push(task.map(|QuestionTask { task, warnings }| QuestionTask {
            task: share(task),
            warnings,
        }));
    }
    Ok((read, names.into_table()))
}

/// A task of a question: as it is sent, or the stored one. Fields of problems are relative to the task.
pub(super) fn task(task: pb::Task, view: &View, reader: &mut Reader<'_>) -> Result<QuestionTask, Problem> {
    if task.requests.is_some() {
        sent(task, reader)
    } else {
        stored(&task, view)
    }
}

/// A task as the question has it.
pub(super) fn sent(task: pb::Task, reader: &mut Reader<'_>) -> Result<QuestionTask, Problem> {
    let task = Arc::new(reader.task(task));
    let found = reader.take();
    match found.problems.into_iter().next() {
        Some(problem) => Err(problem),
        None => Ok(QuestionTask {
            task,
            warnings: found.warnings,
        }),
    }
}

/// The stored task of the question's name.
pub(super) fn stored(task: &pb::Task, view: &View) -> Result<QuestionTask, Problem> {
    let pb::Task { name, uid, .. } = task;
    if name.is_empty() {
        let message = "a task without `requests` stands for a stored one and needs its name; an empty list of requests \
                       is written `requests: {}`";
        return Err(Problem::new(
            ProblemKind::Invalid,
            "REQUESTS_MISSING",
            "requests",
            message,
        ));
    }
    let Some(stored) = view.tasks().get(name) else {
        let message = format!("there is no task `{name}`, and no `requests` say what it would be");
        return Err(Problem::new(ProblemKind::NotFound, "TASK_NOT_FOUND", "name", message));
    };
    let record = &stored.record;
    if !record.uid.may_be(&uid.as_str().into()) {
        let message = format!(
            "the task `{name}` that is there is another incarnation, `{}`",
            record.uid
        );
        return Err(Problem::new(ProblemKind::NotFound, "UID_MISMATCH", "uid", message));
    }
    let only = pb::Task {
        name: name.clone(),
        uid: uid.clone(),
        ..pb::Task::default()
    };
    let warnings = if *task == only {
        Vec::new()
    } else {
        let message = "without `requests` the task stands for the stored one; its other fields are not looked at";
        vec![Problem::new(ProblemKind::Invalid, "FIELDS_IGNORED", "", message)]
    };
    Ok(QuestionTask {
        task: Arc::new(record.clone()),
        warnings,
    })
}
