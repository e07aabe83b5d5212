//! Place: a whole job in one call, with the result of filter, score and assume task by task.
//!
//! Each task gets the node that Volcano's allocate action would choose: the best node that passes every filter and has
//! enough idle resources. Without such a node, the task is pipelined on the best node that will have enough after
//! releasing tasks have ended. The best node has the highest score; ties are broken by name. For example, with equal
//! scores `node-1` precedes `node-2`. After each task only changed nodes are evaluated again, and effects on other
//! nodes are evaluated by peers.

mod admission;
mod choose;
mod devices;
mod gang_minimums;
mod group;
mod lookahead;
mod node_keys;
mod node_rankings;
mod pass;
mod pass_steps;
mod peer_picker;
mod peers;
mod picker;
mod ranking;
#[cfg(test)]
mod ranking_tests;
mod task_units;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(crate) use choose::{NodeChoice, NodeChooser, NodeGradient, PassingNodes};
pub(crate) use node_rankings::{IdleChoice, NodeRankings};

use super::parallelism::Parallelism;
use super::query::RejectionGroup;
use crate::cycle::{ChangeOutcome, PendingPut, PutTarget, SchedulingCycle};
use crate::devices::DeviceMask;
use crate::model::{
    ClusterState, ErrorCode, JobRecord, NodeSlot, Problem, ResourceTable, ResourceTotals, TaskRecord, TaskStatus,
    UnevaluatedFields,
};
use crate::plugin::{DecisionTime, Measurement, PluginContext, Reason, Resolution};
use crate::plugin_state::PluginStates;
use crate::plugins::started_tasks;
use crate::policy::Policy;

/// Query of Place: groups of equal tasks, and the minimum number to place. For example, one group of 16 workers with a
/// minimum of 16.
#[derive(Clone, Debug)]
pub struct PlaceQuery {
    /// Time of the decision, for plugins that compare with it; `None`: the caller gave none.
    pub now: Option<DecisionTime>,
    /// Hypothetical job of the tasks, for a preview; `None`: the stored one.
    pub job: Option<Arc<JobRecord>>,
    /// Groups to place, in order. A group that could not be read is its problem.
    pub groups: Vec<Result<PlaceGroup, Problem>>,
    /// Names of the tasks' resources: the cluster state's table, or an extension of it.
    pub resources: Arc<ResourceTable>,
    /// Least number of tasks to place; with fewer none is placed. `None`: the job's minimum less the tasks that hold
    /// resources already, or that succeeded or wait for resources being released if a plugin counts those; all tasks if it
    /// has no minimum.
    pub min_available: Option<usize>,
    /// Nodes to use, each once; `None`: all.
    pub candidates: Option<Vec<NodeSlot>>,
    /// Nodes not to use.
    pub exclusions: Vec<NodeSlot>,
    /// True: no task is pipelined on releasing amounts.
    pub idle_only: bool,
    /// Number of sampled nodes per blocker.
    pub samples: usize,
    /// Maximum number of task-node pairs that may be evaluated one by one, if the policy requires it.
    pub max_pairs: u64,
}

/// Group of equal tasks.
#[derive(Clone, Debug)]
pub struct PlaceGroup {
    /// Task with its job.
    pub task: Arc<TaskRecord>,
    /// Number of tasks.
    pub count: usize,
    /// Names of the stored tasks, in order; empty for a preview of tasks that are not stored.
    pub names: Vec<Arc<str>>,
    /// Warnings about the group's input.
    pub warnings: Vec<Problem>,
    /// Fields of the tasks that no record carries, with the number of tasks; tasks without such fields are left out.
    pub unevaluated: Vec<(UnevaluatedFields, usize)>,
}

/// Result of Place: the nodes of each group, and what blocked the first incomplete group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlaceResult {
    /// True if enough tasks are placed, and every group could be read.
    pub placed: bool,
    /// Placements, one item per group.
    pub groups: Vec<Result<PlacedGroup, Problem>>,
    /// Number of tasks placed.
    pub placed_count: usize,
    /// Number of tasks that must be placed.
    pub min_count: usize,
    /// Blockers of the next task, for the first group that is not completely placed.
    pub blockers: Vec<PlaceBlocker>,
}

/// Placement of a group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlacedGroup {
    /// Nodes of the first tasks, on idle amounts.
    pub allocated: Vec<NodeSlot>,
    /// Nodes of the tasks after those, on releasing amounts.
    pub pipelined: Vec<NodeSlot>,
    /// Card of each task; empty if no plugin assigns any.
    pub cards: Vec<Arc<str>>,
    /// Devices of each task; empty if no task has any.
    pub devices: Vec<DeviceMask>,
    /// Blockers of the next task; empty: all tasks are placed.
    pub blockers: Vec<PlaceBlocker>,
    /// Warnings about the group.
    pub warnings: Vec<Problem>,
}

impl PlacedGroup {
    /// Number of tasks placed.
    pub fn placed_count(&self) -> usize {
        self.allocated.len() + self.pipelined.len()
    }
}

/// Reason that origin a task from being placed.
#[derive(Clone, Debug, PartialEq)]
pub struct PlaceBlocker {
    /// Reason with its rejected nodes. Without nodes if the task was rejected before any node was evaluated.
    pub rejection: RejectionGroup,
    /// Measurements of a reason that is not about nodes.
    pub measurements: Vec<Measurement>,
}

pub use crate::plugins::GANG;

/// Places the groups on a state without changing it.
///
/// # Errors
/// A problem that does not belong to a single group. Nothing was evaluated.
pub fn place(
    cluster_state: &ClusterState,
    policy: &Policy,
    plugin_states: &PluginStates,
    query: &PlaceQuery,
) -> Result<PlaceResult, Problem> {
    Ok(place_cancellable(
        cluster_state,
        policy,
        PluginStateOrigin::Modified(plugin_states),
        query,
        Parallelism::SEQUENTIAL,
    )?
    .unwrap_or_default())
}

/// Origin of the plugin states of a query.
#[derive(Clone, Copy, Debug)]
pub enum PluginStateOrigin<'a> {
    /// States computed from the cluster state: a hypothetical job is added by advancing them.
    Computed(&'a PluginStates),
    /// States that changes of a cycle have modified: with a hypothetical job they are computed again.
    Modified(&'a PluginStates),
}

/// Places like [`place()`], on one thread; `None` if the execution is cancelled.
///
/// # Errors
/// The errors of [`place()`].
pub fn place_cancellable(
    cluster_state: &ClusterState,
    policy: &Policy,
    origin: PluginStateOrigin<'_>,
    query: &PlaceQuery,
    execution: Parallelism<'_>,
) -> Result<Option<PlaceResult>, Problem> {
    let (mut hypothetical_state, plugin_states) = hypothetical_state(cluster_state, policy, origin, query);
    if policy.compatibility().is_upstream() && hypothetical_state.cycle_beginning().is_none() {
        hypothetical_state.begin_upstream_cycle(policy.node_change_rules().moves_pods);
    }
    let needed = min_count(&hypothetical_state, origin, query);
    count_pods(&hypothetical_state, policy, query);
    let mut desk = group::GroupPlacer {
        initial_state: hypothetical_state.clone(),
        state: hypothetical_state,
        plugin_states,
        policy,
        query,
        execution,
        pass_log: Vec::new(),
        applied_passes: 0,
        current_entries: BTreeSet::new(),
    };
    let mut placing = PlaceResult {
        min_count: needed,
        ..PlaceResult::default()
    };
    let mut groups = BTreeMap::new();
    for unit in task_units::task_units(cluster_state, &desk.state, policy, query) {
        match desk.place_unit(&unit) {
            Some(placed) => groups.extend(placed),
            None => return Ok(None),
        }
    }
    for placed in groups.into_values() {
        if let Ok(group) = &placed {
            placing.placed_count += group.placed_count();
            if placing.blockers.is_empty() {
                placing.blockers.clone_from(&group.blockers);
            }
        }
        placing.groups.push(placed);
    }
    placing.placed = placing.placed_count >= needed && placing.groups.iter().all(Result::is_ok);
    if let Some(blocker) =
        gang_minimums::short_of_minimums(cluster_state, origin, &desk.initial_state, policy, query, &placing)
    {
        placing.placed = false;
        if placing.blockers.is_empty() {
            placing.blockers.push(blocker);
        }
    }
    if !placing.placed && placing.blockers.is_empty() {
        placing.blockers.extend(too_few_tasks(&placing, query));
    }
    Ok(Some(placing))
}

/// Counts the pods of a state before hypothetical pods are added, if a group needs the counts. States that are equal up
/// to here share the counts.
fn count_pods(cluster_state: &ClusterState, policy: &Policy, query: &PlaceQuery) {
    let selects = |group: &PlaceGroup| {
        let constraints = group.task.constraints.as_ref();
        constraints.is_some_and(|own| own.selects_pods())
    };
    let is_needed = cluster_state.has_repelling_pods() || query.groups.iter().flatten().any(selects);
    if is_needed && policy.registered_constraints(&[]).selects_pods() {
        cluster_state.pods();
    }
}

/// State with the hypothetical job, and the plugin states that the policy reads.
fn hypothetical_state(
    cluster_state: &ClusterState,
    policy: &Policy,
    origin: PluginStateOrigin<'_>,
    query: &PlaceQuery,
) -> (ClusterState, PluginStates) {
    let is_asked = |name: &str| {
        let mut allocators = policy.hooks().allocators.iter().flatten();
        allocators.any(|hook| *hook.name == *name) || policy.reads_plugin_state(&[Arc::from(name)])
    };
    let mut with_job = cluster_state.clone();
    with_job.set_resources(Arc::clone(&query.resources));
    if let Some(job) = &query.job {
        with_job.put_job(JobRecord::clone(job), &Arc::from(""));
    }
    let waiting = add_pending_tasks(&mut with_job, policy, query);
    if query.job.is_none() && !waiting {
        let (PluginStateOrigin::Computed(derived) | PluginStateOrigin::Modified(derived)) = origin;
        let mut derived = derived.clone();
        derived.retain(is_asked);
        return (with_job, derived);
    }
    let before = match origin {
        // New resource names may be names of cards.
        PluginStateOrigin::Computed(derived) if query.resources.len() == cluster_state.resources().len() => {
            Some((cluster_state, derived))
        }
        PluginStateOrigin::Computed(_) | PluginStateOrigin::Modified(_) => None,
    };
    let derived = policy.compute_selected_plugin_states(is_asked, &with_job, before);
    (with_job, derived)
}

/// Adds hypothetical tasks as pending tasks to the cluster state, if a plugin chooses a card by the number of the job's
/// waiting tasks and no task of the job is stored. Returns true if tasks were added.
fn add_pending_tasks(cluster_state: &mut ClusterState, policy: &Policy, query: &PlaceQuery) -> bool {
    let reads_job = |task: &TaskRecord| {
        let allocators = policy.hooks().allocators.iter().flatten();
        let mut quotas = allocators.filter_map(|hook| hook.plugin.quota());
        policy.reads_job(task) || quotas.any(|quota| quota.reads_job(task))
    };
    let groups = query.groups.iter().enumerate();
    let groups = groups.filter_map(|(number, group)| Some((number, group.as_ref().ok()?)));
    let hypothetical: Vec<(usize, &PlaceGroup)> = groups.filter(|(_, group)| group.names.is_empty()).collect();
    let Some((_, first)) = hypothetical.iter().find(|(_, group)| reads_job(&group.task)) else {
        return false;
    };
    let waits = |record: &TaskRecord| record.job == first.task.job && record.status == TaskStatus::Pending;
    if cluster_state.tasks().iter().any(|(_, task)| waits(&task.record)) {
        return false;
    }
    for (number, group) in hypothetical {
        for place in 0..group.count {
            cluster_state.put_task(admission::hypothetical_task(number, place, &group.task), &Arc::from(""));
        }
    }
    true
}

/// Places the groups in a cycle: if enough tasks are placed, the placements become the cycle's next changes.
///
/// # Errors
/// The errors of [`place()`], or the changes cannot be applied; the cycle is unchanged.
pub fn place_in_cycle(
    cycle: &mut SchedulingCycle,
    policy: &Policy,
    query: &PlaceQuery,
    execution: Parallelism<'_>,
) -> Result<Option<(PlaceResult, ChangeOutcome)>, Problem> {
    let Some(placing) = place_cancellable(
        cycle.cluster_state(),
        policy,
        PluginStateOrigin::Modified(cycle.plugin_states()),
        query,
        execution,
    )?
    else {
        return Ok(None);
    };
    if !placing.placed {
        return Ok(Some((placing, ChangeOutcome::default())));
    }
    let mut next = cycle.clone();
    let outcome = next.place_all(&pending_puts(query, &placing))?;
    if let Some(warning) = outcome.warnings.first() {
        // Under `upstream` a node may still have a copy of a task that was taken off it.
        return Err(warning.clone());
    }
    *cycle = next;
    Ok(Some((placing, outcome)))
}

fn pending_puts<'a>(query: &'a PlaceQuery, placing: &'a PlaceResult) -> Vec<PendingPut<'a>> {
    let mut puts = Vec::with_capacity(placing.placed_count);
    let groups = query.groups.iter().zip(&placing.groups);
    for (asked, placed) in groups.filter_map(|(asked, placed)| Some((asked.as_ref().ok()?, placed.as_ref().ok()?))) {
        let allocated = placed.allocated.iter().map(|slot| (slot, false));
        let nodes = allocated.chain(placed.pipelined.iter().map(|slot| (slot, true)));
        let mut cards = placed.cards.iter();
        let mut devices = placed.devices.iter().copied();
        puts.extend(
            asked
                .names
                .iter()
                .zip(nodes)
                .map(|(task, (slot, pipelined))| PendingPut {
                    task,
                    to: PutTarget::Slot(*slot),
                    pipelined,
                    card: cards.next(),
                    devices: devices.next().unwrap_or(0),
                }),
        );
    }
    puts
}

/// Number of tasks that must be placed.
fn min_count(cluster_state: &ClusterState, origin: PluginStateOrigin<'_>, query: &PlaceQuery) -> usize {
    if let Some(given) = query.min_available {
        return given;
    }
    let groups = || query.groups.iter().filter_map(|group| group.as_ref().ok());
    let job = groups().find_map(|group| cluster_state.jobs().get(&group.task.job));
    match job.map(|job| (&job.record, usize::try_from(job.record.min_member).unwrap_or(0))) {
        Some((job, members)) if members > 0 => {
            let (PluginStateOrigin::Computed(states) | PluginStateOrigin::Modified(states)) = origin;
            let started = started_tasks(PluginContext::new(cluster_state, states, query.now), &job.name);
            let holding = || {
                cluster_state
                    .job_allocated(&job.name)
                    .map_or(0, ResourceTotals::records)
            };
            members.saturating_sub(started.unwrap_or_else(|| holding() as usize))
        }
        _ => groups().map(|group| group.count).sum(),
    }
}

/// Blocker for a query whose tasks are all placed and still too few.
fn too_few_tasks(placing: &PlaceResult, query: &PlaceQuery) -> Option<PlaceBlocker> {
    if placing.groups.iter().any(Result::is_err) {
        return None;
    }
    let asked: usize = query.groups.iter().flatten().map(|group| group.count).sum();
    let needed = placing.min_count;
    let message = format!("at least {needed} more tasks are needed, and {asked} were to be placed");
    let reason = Reason::new(GANG, "TooFewTasks", message, Resolution::Unresolvable);
    Some(PlaceBlocker::without_nodes(reason, Vec::new()))
}

impl PlaceBlocker {
    /// Blocker that is not about nodes.
    fn without_nodes(reason: Reason, measurements: Vec<Measurement>) -> Self {
        let rejection = RejectionGroup {
            reason,
            nodes: Vec::new(),
            count: 0,
            samples: Vec::new(),
        };
        Self {
            rejection,
            measurements,
        }
    }
}

/// Problem of a group that this policy cannot place without judging more pairs than the limit.
fn query_too_large(count: usize, nodes: usize, limit: u64) -> Problem {
    let message = format!(
        "{count} tasks on {nodes} nodes: under this policy every node must be looked at after each task, and limit `pairs` \
         is {limit}"
    );
    Problem::new(ErrorCode::LimitExceeded, "count", message)
}
