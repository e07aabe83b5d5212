//! Groups of a job (`subGroupPolicy`): the tasks of one get places together, or none of them does.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::group::GroupPlacer;
use super::{GANG, PlaceBlocker, PlaceQuery, PlacedGroup};
use crate::model::{ClusterState, JobRecord, Problem, TaskRecord, TaskStatus};
use crate::plugin::{Reason, Resolution};
use crate::policy::Policy;

/// Groups of a query whose tasks get places together.
#[derive(Debug, Default)]
pub(super) struct TaskUnit {
    /// Numbers of the query's groups, in order.
    groups: Vec<usize>,
    /// Name of the group of the job; empty: none.
    name: Arc<str>,
    /// Number of tasks that need a place; with fewer none gets one.
    needed: usize,
}

/// Units of a query, in the order in which they first appear.
pub(super) fn task_units(
    stored: &ClusterState,
    with_job: &ClusterState,
    policy: &Policy,
    query: &PlaceQuery,
) -> Vec<TaskUnit> {
    let job = unit_job(with_job, policy, query);
    let mut units: Vec<TaskUnit> = Vec::new();
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    for (number, group) in query.groups.iter().enumerate() {
        let name = match (job, group) {
            (Some(_), Ok(group)) => group.task.sub_group(),
            _ => "",
        };
        let known = numbers.get(name).filter(|_| !name.is_empty());
        if let Some(unit) = known.and_then(|unit| units.get_mut(*unit)) {
            unit.groups.push(number);
            continue;
        }
        numbers.insert(name, units.len());
        units.push(TaskUnit {
            groups: vec![number],
            name: Arc::from(name),
            needed: job
                .filter(|_| !name.is_empty())
                .map_or(0, |job| missing_tasks(stored, query, job, name)),
        });
    }
    units
}

/// Job of the query, if it has sub-group policies and a plugin of the policy evaluates groups. If the query sets a
/// minimum, the caller evaluates groups.
fn unit_job<'a>(with_job: &'a ClusterState, policy: &Policy, query: &PlaceQuery) -> Option<&'a JobRecord> {
    let mut judges = policy.hooks().group_pipelined.iter().flatten();
    if query.min_available.is_some() || judges.next().is_none() {
        return None;
    }
    let mut groups = query.groups.iter().flatten();
    let stored = groups.find_map(|group| with_job.jobs().get(&group.task.job))?;
    let has_groups = stored
        .record
        .gang
        .as_ref()
        .is_some_and(|gang| !gang.sub_groups.is_empty());
    has_groups.then_some(&stored.record)
}

/// Number of tasks that a group lacks to keep its places.
fn missing_tasks(stored: &ClusterState, query: &PlaceQuery, job: &JobRecord, name: &str) -> usize {
    let is_asked = |task: &TaskRecord| {
        query
            .groups
            .iter()
            .flatten()
            .any(|group| group.names.contains(&task.name))
    };
    let needs_nothing = |task: &TaskRecord| {
        let waits = task.status == TaskStatus::Pending && !is_asked(task);
        waits && task.requests.is_only_pods()
    };
    let counts =
        |task: &TaskRecord| task.status.is_started() || task.status == TaskStatus::Pipelined || needs_nothing(task);
    let tasks = stored.tasks().iter().map(|(_, stored)| &stored.record);
    let started = tasks.filter(|task| task.job == job.name && task.sub_group() == name && counts(task));
    let size = job.gang.as_ref().map_or(1, |gang| gang.group_size(name));
    usize::try_from(size).unwrap_or(0).saturating_sub(started.count())
}

impl GroupPlacer<'_> {
    /// Places the tasks of a unit: its groups by number. `None`: cancelled.
    pub(super) fn place_unit(&mut self, unit: &TaskUnit) -> Option<Vec<(usize, Result<PlacedGroup, Problem>)>> {
        let before = (unit.needed > 1).then(|| self.clone());
        let mut placed = Vec::with_capacity(unit.groups.len());
        for number in &unit.groups {
            let result = match self.query.groups.get(*number)? {
                Err(problem) => Err(problem.clone()),
                Ok(group) => match self.place_group(*number, group) {
                    Ok(group) => Ok(group?),
                    Err(problem) => Err(problem),
                },
            };
            placed.push((*number, result));
        }
        let count: usize = placed
            .iter()
            .flat_map(|(_, group)| group)
            .map(PlacedGroup::placed_count)
            .sum();
        if let Some(before) = before.filter(|_| count < unit.needed) {
            *self = before;
            unit.give_up_places(&mut placed, count);
        }
        Some(placed)
    }
}

impl TaskUnit {
    /// Removes the placements and stores the reason.
    fn give_up_places(&self, placed: &mut [(usize, Result<PlacedGroup, Problem>)], count: usize) {
        let mut groups: Vec<&mut PlacedGroup> = placed.iter_mut().flat_map(|(_, group)| group).collect();
        let is_explained = groups.iter().any(|group| !group.blockers.is_empty());
        for group in &mut groups {
            group.allocated.clear();
            group.pipelined.clear();
            group.cards.clear();
        }
        if let Some(first) = groups.first_mut().filter(|_| !is_explained) {
            let (name, needed) = (&self.name, self.needed);
            let message = format!("group `{name}` needs {needed} more tasks, and {count} were to be placed");
            let reason = Reason::new(GANG, "TooFewOfGroup", message, Resolution::Unresolvable);
            first.blockers.push(PlaceBlocker::without_nodes(reason, Vec::new()));
        }
    }
}
