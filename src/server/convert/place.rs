//! Request and result of Place.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::limits::EdgeLimits;
use crate::server::pb;
use crate::server::status::{CallError, RpcResult, check_limit};
use pumice_engine::decide::{PlaceGroup, PlaceQuery};
use pumice_engine::model::{
    ClusterState, CreationTime, ErrorCode, JobRecord, NodeSlot, Problem, TableCursor, TaskFields, TaskRecord,
    TaskStatus, UnevaluatedFields,
};

use super::admit;
use super::amounts::QueryResourceNames;
use super::nodes::NodeEncoding;
use super::query::{self, DEFAULT_SAMPLES, NamelessTask, QueryBasis};
use super::reader::{WireReader, check_name};
use super::wire::read_known;

/// Rejects a commit without a key, and a key without a commit.
fn check_commit_key(effect: pb::PlaceEffect, key: &str, limits: &EdgeLimits) -> RpcResult<()> {
    check_name("commit_key", key, limits)?;
    match (effect == pb::PlaceEffect::Commit, key.is_empty()) {
        (true, true) => {
            let message =
                "commit_key: effect COMMIT needs a key that no other commit has, so that a repeated call is known";
            Err(CallError::new(ErrorCode::CommitKeyMissing, message))
        }
        (false, false) => {
            let message = "commit_key: only a request with effect COMMIT has one";
            Err(CallError::new(ErrorCode::CommitKeyUnused, message))
        }
        (true, false) | (false, true) => Ok(()),
    }
}

/// Request of Place, before the parts that depend on the state are read.
#[derive(Clone, Debug)]
pub(crate) struct PlaceCall {
    /// Effect of the placement; never unspecified.
    pub(crate) effect: pb::PlaceEffect,
    /// Encoding of nodes in the response.
    pub(crate) encoding: NodeEncoding,
    /// Number of tasks of all groups.
    pub(crate) tasks: usize,
    /// Request as it was sent, without its `against`.
    pub(crate) request: pb::PlaceRequest,
}

fn group_size(group: &pb::TaskGroup) -> usize {
    match group.count {
        Some(count) => group.names.len().max(count as usize),
        None => group.names.len().max(1),
    }
}

impl PlaceCall {
    /// Reads the request, whose `against` was taken out before.
    ///
    /// # Errors
    /// A field that belongs to no group has a problem.
    pub(crate) fn read(request: pb::PlaceRequest, limits: &EdgeLimits) -> RpcResult<Self> {
        let effect = match pb::PlaceEffect::try_from(request.effect) {
            Ok(pb::PlaceEffect::Unspecified) => pb::PlaceEffect::Preview,
            Ok(effect) => effect,
            Err(_) => return Err(CallError::unknown_value("effect", request.effect)),
        };
        check_commit_key(effect, &request.commit_key, limits)?;
        if request.groups.is_empty() {
            return Err(CallError::new(
                ErrorCode::GroupsMissing,
                "groups: there is nothing to place",
            ));
        }
        let groups = request.groups.len();
        check_limit(groups, "tasks", limits.tasks, || format!("groups: {groups} groups"))?;
        let tasks = request.groups.iter().map(group_size).fold(0, usize::saturating_add);
        let encoding = read_known::<pb::NodeEncoding, NodeEncoding>("node_encoding", request.node_encoding)?;
        for (name, limit) in [("place_tasks", limits.place_tasks), encoding.pair_limit(limits)] {
            check_limit(tasks, name, limit, || {
                format!("groups: {tasks} tasks to place in one call")
            })?;
        }
        Ok(Self {
            effect,
            encoding,
            tasks,
            request,
        })
    }

    /// Reads the parts that depend on the state. Fields of groups' problems are relative to the request.
    ///
    /// # Errors
    /// A field that belongs to no group has a problem.
    pub(crate) fn into_query(self, basis: QueryBasis<'_>) -> RpcResult<PlaceQuery> {
        let pb::PlaceRequest {
            against: _,
            job,
            groups,
            min_available,
            effect: _,
            candidates,
            exclusions,
            idle_only,
            node_encoding: _,
            samples,
            commit_key: _,
        } = self.request;
        let (nodes, limits) = (basis.nodes, &basis.options.limits);
        nodes.check_table()?;
        let read = |field, set: Option<pb::NodeSet>| set.map(|set| nodes.read(field, set)).transpose();
        let (candidates, exclusions) = (read("candidates", candidates)?, read("exclusions", exclusions)?);
        check_pairs(groups.len(), candidates.as_deref(), nodes.state, limits)?;
        let mut names = QueryResourceNames::new(nodes.state.resources(), limits.query_resources);
        let mut reader = WireReader::new(&mut names, basis.options, basis.compatibility);
        let job = job
            .map(|job| admit::read_job(job, nodes.state, &mut reader))
            .transpose()
            .map_err(|found| found.within("job"))?;
        let hypothetical = job.clone().filter(|job| !is_stored(nodes.state, job));
        let stored_only = match self.effect {
            pb::PlaceEffect::Unspecified | pb::PlaceEffect::Preview => None,
            pb::PlaceEffect::Session => Some("effect SESSION"),
            pb::PlaceEffect::Commit => Some("effect COMMIT"),
        };
        if let Some((effect, job)) = stored_only.zip(hypothetical.as_ref()) {
            let message = format!(
                "job: with {effect} `{}` must be as it is stored: give its name only",
                job.name
            );
            return Err(CallError::new(ErrorCode::JobNotStored, message));
        }
        let mut sheet = GroupReader {
            state: nodes.state,
            stored_only,
            job: job.as_ref().map(|job| Arc::clone(&job.name)),
            seen: SeenNames::default(),
        };
        let groups = groups.into_iter().enumerate().map(|(number, group)| {
            let read = sheet.read_group(group, &mut reader);
            read.map_err(|problem| problem.within(&format!("groups[{number}]")))
        });
        Ok(PlaceQuery {
            now: basis.now,
            groups: groups.collect(),
            job: hypothetical,
            resources: names.into_table(),
            min_available: min_available.map(|count| count as usize),
            candidates,
            exclusions: exclusions.unwrap_or_default(),
            // Amounts that are being released are still in use, and nothing could commit them.
            idle_only: idle_only || self.effect == pb::PlaceEffect::Commit,
            samples: (samples.unwrap_or(DEFAULT_SAMPLES) as usize).min(limits.samples),
            max_pairs: limits.pairs as u64,
        })
    }
}

/// True if the state has a job equal to this one.
fn is_stored(cluster_state: &ClusterState, job: &JobRecord) -> bool {
    let known = cluster_state.jobs().get(&job.name);
    known.is_some_and(|known| known.record == *job)
}

fn check_pairs(
    groups: usize,
    candidates: Option<&[NodeSlot]>,
    cluster_state: &ClusterState,
    limits: &EdgeLimits,
) -> RpcResult<()> {
    let width = candidates.map_or(cluster_state.slots() as usize, <[NodeSlot]>::len);
    let message = || format!("{groups} groups on {width} nodes are too much for one call");
    check_limit(groups.saturating_mul(width), "pairs", limits.pairs, message)
}

/// First task of a group, the names of its tasks, and their unevaluated fields.
type StoredGroup = (Arc<TaskRecord>, Vec<Arc<str>>, Vec<(UnevaluatedFields, usize)>);

/// Reader of the groups of one job, in order.
struct GroupReader<'a> {
    state: &'a ClusterState,
    /// Words for the effect, if only stored tasks can be placed.
    stored_only: Option<&'static str>,
    /// Job of all tasks; `None`: none was given or seen yet.
    job: Option<Arc<str>>,
    /// Names of stored tasks that some group has.
    seen: SeenNames,
}

/// Names that were seen, mostly in ascending order.
#[derive(Debug, Default)]
struct SeenNames {
    ascending: Vec<Arc<str>>,
    others: BTreeSet<Arc<str>>,
}

impl SeenNames {
    /// Adds a name; false if it was seen before.
    fn insert(&mut self, name: &Arc<str>) -> bool {
        if self.ascending.last().is_none_or(|last| last < name) {
            self.ascending.push(Arc::clone(name));
            return true;
        }
        self.ascending.binary_search(name).is_err() && self.others.insert(Arc::clone(name))
    }
}

impl GroupReader<'_> {
    /// Reads a group. Fields of problems are relative to it.
    fn read_group(&mut self, group: pb::TaskGroup, reader: &mut WireReader<'_>) -> Result<PlaceGroup, Problem> {
        let pb::TaskGroup { task, count, names } = group;
        let given = task.filter(|task| !names.is_empty() || *task != pb::Task::default());
        let given = given.map(|task| query::read_task(task, self.state, reader));
        let given = given.transpose().map_err(|problem| problem.within("task"))?;
        let (sample, warnings) = given.map_or((None, Vec::new()), |given| (Some(given.task), given.warnings));
        let warnings = warnings.into_iter().map(|warning| warning.within("task")).collect();
        if names.is_empty() {
            if let Some(effect) = self.stored_only {
                let message = format!("{effect} places stored tasks: give their names");
                return Err(Problem::new(ErrorCode::NamesMissing, "names", message));
            }
            let Some(sample) = sample else {
                return Err(Problem::new(
                    ErrorCode::TaskMissing,
                    "task",
                    "a group needs a task, or names of stored tasks",
                ));
            };
            let mut task = TaskRecord {
                status: TaskStatus::Pending,
                node: Arc::default(),
                ..TaskRecord::clone(&sample)
            };
            self.assign_job(&mut task)?;
            let unevaluated = vec![(task.unevaluated_fields.clone(), count.unwrap_or(1) as usize)];
            return Ok(PlaceGroup {
                task: Arc::new(task),
                count: count.unwrap_or(1) as usize,
                names: Vec::new(),
                warnings,
                unevaluated,
            });
        }
        if let Some(count) = count.filter(|count| *count as usize != names.len()) {
            let message = format!("{count}, and there are {} names", names.len());
            return Err(Problem::new(ErrorCode::CountMismatch, "count", message));
        }
        let (task, names, unevaluated) = self.read_stored_tasks(names)?;
        if let Some(sample) = sample
            && !is_same_task(&sample, &task, false)
        {
            let message = format!("the task differs from the stored `{}`", task.name);
            return Err(Problem::new(ErrorCode::TaskMismatch, "task", message));
        }
        Ok(PlaceGroup {
            task,
            count: names.len(),
            names,
            warnings,
            unevaluated,
        })
    }

    /// Puts a task into the job of the request.
    fn assign_job(&mut self, task: &mut TaskRecord) -> Result<(), Problem> {
        match &self.job {
            Some(job) if task.job.is_empty() => task.job = Arc::clone(job),
            Some(job) if *job != task.job => {
                let message = format!(
                    "the task belongs to job `{}`, and the request is about `{job}`",
                    task.job
                );
                return Err(Problem::new(ErrorCode::JobMismatch, "task.job", message));
            }
            Some(_) => {}
            None if task.job.is_empty() => {}
            None => self.job = Some(Arc::clone(&task.job)),
        }
        Ok(())
    }

    /// First stored task with one of these names, all names, and the unevaluated fields of the tasks.
    fn read_stored_tasks(&mut self, names: Vec<String>) -> Result<StoredGroup, Problem> {
        let mut unevaluated: Vec<(UnevaluatedFields, usize)> = Vec::new();
        let mut first: Option<Arc<TaskRecord>> = None;
        let (mut found, mut near) = (Vec::with_capacity(names.len()), TableCursor::default());
        for (at, name) in names.into_iter().enumerate() {
            let at = || format!("names[{at}]");
            let Some(stored) = self.state.tasks().get_with_cursor(&name, &mut near) else {
                let message = format!("there is no task `{name}`");
                return Err(Problem::new(ErrorCode::TaskUnknown, at(), message));
            };
            let task = &stored.record;
            let reject = |reason, message: String| Err(Problem::new(reason, at(), message));
            if task.status != TaskStatus::Pending {
                return reject(ErrorCode::TaskNotPending, format!("task `{name}` is {:?}", task.status));
            }
            if task.gated {
                return reject(ErrorCode::TaskGated, format!("task `{name}` has a scheduling gate"));
            }
            if let Some(first) = &first
                && !is_same_stored(first, task)
            {
                let message = format!(
                    "task `{name}` differs from `{}`: put it into a group of its own",
                    first.name
                );
                return reject(ErrorCode::TasksDiffer, message);
            }
            if let Some(job) = self.job.as_ref().filter(|job| **job != task.job) {
                let message = format!(
                    "task `{name}` belongs to job `{}`, and the request is about `{job}`",
                    task.job
                );
                return reject(ErrorCode::JobMismatch, message);
            }
            if !self.seen.insert(&task.name) {
                return reject(ErrorCode::TaskDuplicate, format!("task `{name}` is named twice"));
            }
            found.push(Arc::clone(&task.name));
            if !task.unevaluated_fields.is_empty() {
                match unevaluated
                    .last_mut()
                    .filter(|(last, _)| *last == task.unevaluated_fields)
                {
                    Some((_, count)) => *count += 1,
                    None => unevaluated.push((task.unevaluated_fields.clone(), 1)),
                }
            }
            if first.is_none() {
                if !task.job.is_empty() {
                    self.job = Some(Arc::clone(&task.job));
                }
                first = Some(Arc::new(task.clone()));
            }
        }
        let first = first.ok_or_else(|| Problem::new(ErrorCode::NamesMissing, "names", "no task is named"))?;
        Ok((first, found, unevaluated))
    }
}

/// True if two stored tasks are equal in all that decisions read, in their job, and in their status.
fn is_same_stored(one: &TaskRecord, other: &TaskRecord) -> bool {
    // Tasks of one template share its shape.
    let shared = Arc::ptr_eq(&one.shape, &other.shape);
    shared && (&one.job, &one.node, one.status) == (&other.job, &other.node, other.status)
        || is_same_task(one, other, true)
}

/// True if two tasks are equal in all fields that decisions read; with `all`, also in job and status. Other fields are
/// ignored.
fn is_same_task(one: &TaskRecord, other: &TaskRecord, all: bool) -> bool {
    let plain = |task: &TaskRecord| {
        let mut task = TaskRecord {
            creation_time: CreationTime::default(),
            ..task.clone()
        };
        if !task.unevaluated_fields.is_empty() {
            task.unevaluated_fields = UnevaluatedFields::default();
        }
        if !all {
            let TaskFields {
                job,
                priority,
                status,
                node,
                gated,
                nominated_node,
                ..
            } = TaskFields::default();
            (task.job, task.priority, task.status) = (job, priority, status);
            (task.node, task.gated, task.nominated_node) = (node, gated, nominated_node);
        }
        NamelessTask(Arc::new(task))
    };
    plain(one) == plain(other)
}
