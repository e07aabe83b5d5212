//! Requests of Filter and Score: tasks, candidates, and the requested detail of the result.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::limits::weight_ahead;
use crate::server::pb;
use crate::server::status::{CallError, RpcResult, check_limit};
use pumice_engine::decide::{FilterDetail, NodeQuery, QueryTask, ScoreQuery};
use pumice_engine::model::{ClusterState, ErrorCode, Problem, ResourceTable, TaskRecord, TaskShape};
use pumice_engine::plugin::DecisionTime;
use pumice_engine::policy::Compatibility;

use super::amounts::QueryResourceNames;
use super::nodes::{NodeEncoding, NodeSetReader};
use super::reader::{ReadOptions, WireReader};
use super::wire::read_known;

/// Number of rejected nodes shown per rejection if the request gives none.
pub(crate) const DEFAULT_SAMPLES: u32 = 3;

/// Basis on which a request is read into a query: nodes, compatibility, time and options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueryBasis<'a> {
    /// Reader of node sets, with the state that has the request's nodes and tasks.
    pub(crate) nodes: NodeSetReader<'a>,
    /// Compatibility of the policy that evaluates the query.
    pub(crate) compatibility: Compatibility,
    /// Time of the decision; `None`: the request gives none.
    pub(crate) now: Option<DecisionTime>,
    /// Options for reading the request's records.
    pub(crate) options: &'a ReadOptions,
}

/// Reads a request of Filter, whose `against` was taken out before, and the encoding of nodes in the response.
///
/// # Errors
/// A field that belongs to no task has a problem.
pub(crate) fn read_filter(request: pb::FilterRequest, basis: QueryBasis<'_>) -> RpcResult<(NodeQuery, NodeEncoding)> {
    let (query, encoding) = read_shared(request, basis)?;
    let sampled = samples_per_task(&query);
    check_size(&query, encoding, (basis, 0), [usize::MAX, sampled])?;
    Ok((query, encoding))
}

/// Reads a request of Score, whose `against` was taken out before, and the encoding of nodes in the response.
///
/// # Errors
/// A field that belongs to no task has a problem.
pub(crate) fn read_score(request: pb::ScoreRequest, basis: QueryBasis<'_>) -> RpcResult<(ScoreQuery, NodeEncoding)> {
    let pb::ScoreRequest {
        against: _,
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
        ahead,
    } = request;
    let ahead = read_ahead(ahead, limit, basis.options.limits.ahead)?;
    let asked = pb::FilterRequest {
        against: None,
        tasks,
        candidates,
        plugins,
        resource_fit,
        node_encoding,
        samples,
        detail: default_filter_detail(filter_detail, limit),
    };
    let (query, encoding) = read_shared(asked, basis)?;
    let shown = if with_filter && query.detail == FilterDetail::Nodes {
        usize::MAX
    } else {
        limit.map_or(usize::MAX, |limit| limit as usize)
    };
    let sampled = if with_filter { samples_per_task(&query) } else { 0 };
    check_size(&query, encoding, (basis, ahead), [shown, sampled])?;
    let query = ScoreQuery {
        node_query: query,
        with_filter,
        limit: limit.map(|limit| limit as usize),
        with_parts,
        ahead,
    };
    Ok((query, encoding))
}

/// Reads the fields that Filter and Score share from a request of Filter.
fn read_shared(asked: pb::FilterRequest, basis: QueryBasis<'_>) -> RpcResult<(NodeQuery, NodeEncoding)> {
    let pb::FilterRequest {
        against: _,
        tasks,
        candidates,
        plugins,
        resource_fit,
        node_encoding,
        samples,
        detail,
    } = asked;
    let (nodes, limits) = (basis.nodes, &basis.options.limits);
    nodes.check_table()?;
    let (tasks, resources) = read_tasks(tasks, basis)?;
    let candidates = candidates.map(|set| nodes.read("candidates", set)).transpose()?;
    let query = NodeQuery {
        now: basis.now,
        tasks,
        resources,
        candidates,
        plugins: read_plugins(plugins, limits.plugins)?,
        resource_fit: read_known::<pb::ResourceFit, _>("resource_fit", resource_fit)?,
        samples: (samples.unwrap_or(DEFAULT_SAMPLES) as usize).min(limits.samples),
        detail: read_known::<pb::FilterDetail, _>("detail", detail)?,
    };
    Ok((
        query,
        read_known::<pb::NodeEncoding, _>("node_encoding", node_encoding)?,
    ))
}

/// Reads the plugins that a request names.
pub(super) fn read_plugins(names: Vec<String>, limit: usize) -> RpcResult<Vec<Arc<str>>> {
    check_limit(names.len(), "plugins", limit, || {
        format!("plugins: {} names", names.len())
    })?;
    let mut seen = BTreeSet::new();
    if let Some(twice) = names.iter().find(|name| !seen.insert(name.as_str())) {
        let message = format!("plugins: `{twice}` is named twice");
        return Err(CallError::new(ErrorCode::PluginDuplicate, message));
    }
    Ok(names.into_iter().map(Arc::from).collect())
}

/// Reads the number of tasks to look ahead by.
fn read_ahead(ahead: u32, limit: Option<u32>, most: usize) -> RpcResult<usize> {
    let ahead = ahead as usize;
    check_limit(ahead, "ahead", most, || format!("ahead: {ahead} tasks"))?;
    if ahead > 0 && limit.is_some() {
        let message = "ahead: the best nodes are others after each task; leave `limit` out, or `ahead`";
        return Err(CallError::new(ErrorCode::AheadWithLimit, message));
    }
    Ok(ahead)
}

/// Detail of the Filter result of a request of Score. With a limit, a caller that names no detail gets no sets of nodes: they
/// would be larger than the result.
fn default_filter_detail(detail: i32, limit: Option<u32>) -> i32 {
    match pb::FilterDetail::try_from(detail) {
        Ok(pb::FilterDetail::Unspecified) if limit.is_some() => pb::FilterDetail::Samples.into(),
        _ => detail,
    }
}

/// Number of nodes that each task is evaluated on.
pub(crate) fn node_count(query: &NodeQuery, cluster_state: &ClusterState) -> usize {
    let candidates = query.candidates.as_ref();
    candidates.map_or(cluster_state.slots() as usize, Vec::len)
}

/// Maximum number of rejected nodes that a rejection shows with their names and measurements.
fn samples_per_task(query: &NodeQuery) -> usize {
    match query.detail {
        FilterDetail::Counts => 0,
        FilterDetail::Samples | FilterDetail::Nodes => query.samples,
    }
}

/// Checks the size of the result. `shown`: nodes per task in the result. `sampled`: nodes per task that are named in
/// any encoding. `ahead`: number of further tasks for which each node is evaluated and included again.
fn check_size(
    query: &NodeQuery,
    encoding: NodeEncoding,
    (basis, ahead): (QueryBasis<'_>, usize),
    [shown, sampled]: [usize; 2],
) -> RpcResult<()> {
    let limits = &basis.options.limits;
    let (tasks, width) = (query.tasks.len(), node_count(query, basis.nodes.state));
    let message = || {
        format!(
            "{tasks} tasks on {width} nodes are too much for one call: send fewer tasks or candidates, set `limit`, \
             ask for slots, for fewer `samples`, or less far `ahead`"
        )
    };
    let evaluated = tasks.saturating_mul(width).saturating_mul(weight_ahead(ahead));
    check_limit(evaluated, "pairs", limits.pairs, message)?;
    let (name, limit) = encoding.pair_limit(limits);
    let written = tasks.saturating_mul(width.min(shown)).saturating_mul(ahead + 1);
    check_limit(written, name, limit, message)?;
    let named = tasks.saturating_mul(width.min(sampled));
    check_limit(named, "named_pairs", limits.named_pairs, message)
}

/// Task without its name: tasks that differ only in name are equal.
pub(super) struct NamelessTask(pub(super) Arc<TaskRecord>);

impl NamelessTask {
    fn comparison_key(&self) -> impl Ord + '_ {
        let TaskRecord {
            name: _,
            uid: _,
            job,
            status,
            node,
            labels,
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
            container_nonzero_requests,
            container_requests,
            kubernetes_requests,
            card: _,
            unevaluated_fields,
            constraints,
            gang,
        } = &**shape;
        // Terms about other pods belong to a namespace.
        let namespace = self.0.namespace();
        (
            (requests, limits, nonzero_requests, counted_requests),
            (container_nonzero_requests, container_requests, kubernetes_requests),
            (annotations, job, node, nominated_node, gang),
            (priority, status, gated, creation_time, unevaluated_fields),
            (constraints, labels, namespace),
        )
    }
}

impl PartialEq for NamelessTask {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for NamelessTask {}

impl PartialOrd for NamelessTask {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for NamelessTask {
    fn cmp(&self, other: &Self) -> Ordering {
        self.comparison_key().cmp(&other.comparison_key())
    }
}

type ReadTasks = Vec<Result<QueryTask, Problem>>;

/// Reads the tasks of a request. Fields of problems are relative to the task.
fn read_tasks(tasks: Vec<pb::Task>, basis: QueryBasis<'_>) -> RpcResult<(ReadTasks, Arc<ResourceTable>)> {
    let (cluster_state, limits) = (basis.nodes.state, &basis.options.limits);
    check_limit(tasks.len(), "tasks", limits.tasks, || {
        format!("tasks: {} tasks", tasks.len())
    })?;
    let mut names = QueryResourceNames::new(cluster_state.resources(), limits.query_resources);
    let mut reader = WireReader::new(&mut names, basis.options, basis.compatibility);
    let mut distinct: BTreeSet<NamelessTask> = BTreeSet::new();
    let mut share = |task: Arc<TaskRecord>| {
        let nameless = NamelessTask(task);
        if let Some(NamelessTask(known)) = distinct.get(&nameless) {
            return Arc::clone(known);
        }
        let task = Arc::clone(&nameless.0);
        distinct.insert(nameless);
        task
    };
    let mut read = Vec::with_capacity(tasks.len());
    for task in tasks {
        let task = read_task(task, cluster_state, &mut reader);
        read.push(task.map(|QueryTask { task, warnings }| QueryTask {
            task: share(task),
            warnings,
        }));
    }
    Ok((read, names.into_table()))
}

/// Task of a request: the one sent, or the stored one. Fields of problems are relative to the task.
pub(super) fn read_task(
    task: pb::Task,
    cluster_state: &ClusterState,
    reader: &mut WireReader<'_>,
) -> Result<QueryTask, Problem> {
    if is_sent(&task) {
        read_sent_task(task, cluster_state, reader)
    } else {
        read_stored_task(&task, cluster_state)
    }
}

/// True of a task that the request gives itself, and does not only name.
pub(super) fn is_sent(task: &pb::Task) -> bool {
    task.requests.is_some() || !task.object.is_empty()
}

/// Task as the request gives it.
pub(super) fn read_sent_task(
    task: pb::Task,
    cluster_state: &ClusterState,
    reader: &mut WireReader<'_>,
) -> Result<QueryTask, Problem> {
    let mut task = reader.task(task);
    cluster_state.relate_task(&mut task);
    let task = Arc::new(task);
    let found = reader.take_problems();
    match found.problems.into_iter().next() {
        Some(problem) => Err(problem),
        None => Ok(QueryTask {
            task,
            warnings: found.warnings,
        }),
    }
}

/// Stored task that the request names.
pub(super) fn read_stored_task(task: &pb::Task, cluster_state: &ClusterState) -> Result<QueryTask, Problem> {
    let pb::Task { name, uid, .. } = task;
    if name.is_empty() {
        let message = "a task without `requests` means a stored one and needs its name; an empty list of requests \
                       is written `requests: {}`";
        return Err(Problem::new(ErrorCode::RequestsMissing, "requests", message));
    }
    let Some(stored) = cluster_state.tasks().get(name) else {
        let message = format!("there is no task `{name}`, and the request gives no `requests` for it");
        return Err(Problem::new(ErrorCode::TaskUnknown, "name", message));
    };
    let record = &stored.record;
    if !record.uid.may_equal(&uid.as_str().into()) {
        let message = format!("the existing task `{name}` is another incarnation, `{}`", record.uid);
        return Err(Problem::new(ErrorCode::UidMismatch, "uid", message));
    }
    let only = pb::Task {
        name: name.clone(),
        uid: uid.clone(),
        ..pb::Task::default()
    };
    let warnings = if *task == only {
        Vec::new()
    } else {
        let message = "without `requests` the task means the stored one; its other fields are ignored";
        vec![Problem::new(ErrorCode::FieldsIgnored, "", message)]
    };
    Ok(QueryTask {
        task: Arc::new(record.clone()),
        warnings,
    })
}
