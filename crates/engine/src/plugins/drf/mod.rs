//! Dominant resource fairness: shares of jobs and, with hierarchy, of a tree of queues (Volcano ed72c7c81,
//! pkg/scheduler/plugins/drf; the paper on H-DRF of 2013 for `compatibility: corrected`).

mod advance;
mod columns;
mod go_float;
mod hierarchy;
mod layout;
mod listing;
mod order;
mod plugin;
mod record_rules;
mod resource_set;
mod saturation;
mod share;
#[cfg(test)]
mod tests;
mod tree;
mod victims;

use std::sync::Arc;

use layout::{LeafPosition, TreeLayout};
use resource_set::ResourceSet;
use saturation::SaturationRule;
use share::{ExactAmounts, add_amounts, subtract_amounts, to_floats};
use tree::{JobLeaf, ShareRules, ShareTree};

pub use hierarchy::{HIERARCHY, WEIGHTS};
pub(super) use plugin::DEF;
pub use plugin::NAME;

use crate::held_bytes::held_bytes;
use crate::model::{ClusterState, ErrorCode, MIN_AMOUNT, Problem, ResourceAmounts, SharedList, TaskShape, TaskStatus};
use crate::plugin::PluginAccounts;
use crate::plugin_state::{PlacementEvent, PluginState, PluginStateChange, TaskTransition};
use crate::policy::Compatibility;

/// List of shared items, with an item for each job or node.
type DrfList<T> = SharedList<Arc<T>, 64>;

/// Account of a job: its holdings, and the requests of its waiting tasks.
#[derive(Clone, Debug, Default, PartialEq)]
struct JobAccount {
    held: ExactAmounts,
    /// Kinds of waiting tasks, by the resources that they request, with their numbers; under `corrected` only.
    waiting_kinds: Vec<(ResourceSet, u32)>,
}

held_bytes! { JobAccount { held, waiting_kinds } }

/// Shares of all jobs and, with hierarchy, of the tree over them. Events change it; clones share what they have in
/// common.
#[derive(Clone, Debug, PartialEq)]
pub struct DrfState {
    layout: Arc<TreeLayout>,
    accounts: DrfList<JobAccount>,
    /// Amounts that all jobs hold.
    allocated: ExactAmounts,
    /// Amounts that the jobs below each inner node hold, not rescaled.
    held_below: DrfList<ExactAmounts>,
    tree: Option<ShareTree>,
}

held_bytes! { DrfState { layout, accounts, allocated, held_below, tree } }

impl DrfState {
    /// Computes the shares of a cluster state; with `hierarchy` also the tree of its queues.
    pub fn build(cluster_state: &ClusterState, compatibility: Compatibility, hierarchy: bool) -> Self {
        let shape = TreeLayout::build(cluster_state, compatibility, hierarchy);
        let mut accounts: Vec<JobAccount> = shape
            .jobs
            .iter()
            .map(|job| opening_account(&shape, cluster_state, &job.name))
            .collect();
        if compatibility == Compatibility::Corrected {
            for (_, stored) in cluster_state.tasks().iter() {
                let task = &stored.record;
                let Some(account) = shape.job_number(&task.job).and_then(|job| accounts.get_mut(job)) else {
                    continue;
                };
                let (requests, _) = shape.dimensions.by_position(&task.requests);
                if task.status == TaskStatus::Pipelined {
                    // The event counts the task, so a state computed afterwards must count it as well.
                    add_amounts(&mut account.held, &requests);
                } else if shape.is_waiting(task) {
                    account.count_waiting(&requests, true);
                }
            }
        }
        let mut allocated = shape.dimensions.zero_amounts();
        for account in &accounts {
            add_amounts(&mut allocated, &account.held);
        }
        let tree = hierarchy.then(|| {
            let rules = ShareRules::of(&shape, shape.dimensions.exhausted(&allocated));
            let empty = JobAccount::default();
            let leaf = |job: usize| job_leaf(&shape, job, accounts.get(job).unwrap_or(&empty));
            ShareTree::new(&shape, rules, leaf)
        });
        Self {
            held_below: shape
                .sum_by_node(|job| accounts.get(job).map(|account| &account.held))
                .into_iter()
                .map(Arc::new)
                .collect(),
            accounts: accounts.into_iter().map(Arc::new).collect(),
            layout: Arc::new(shape),
            allocated,
            tree,
        }
    }

    /// Adds the requests of tasks of one job to its holdings, or subtracts them, one after the other. Tasks of unknown
    /// jobs do not count. Returns the queues whose keys changed at any of them.
    ///
    /// # Errors
    /// The job would hold less than nothing; the reference panics there.
    fn apply_tasks<'t>(
        &mut self,
        tasks: impl Iterator<Item = (TaskTransition<'t>, bool)> + Clone,
    ) -> Result<Vec<Arc<str>>, Problem> {
        let job = tasks
            .clone()
            .next()
            .and_then(|(first, _)| self.layout.job_number(&first.after.job));
        let Some((job, mut account)) = job.and_then(|job| Some((job, JobAccount::clone(self.accounts.get(job)?))))
        else {
            return Ok(Vec::new());
        };
        let mut allocated = self.allocated.clone();
        let mut exhausted = self.tree.as_ref().map(|tree| tree.rules.exhausted.clone());
        let (mut here, mut everywhere) = (false, false);
        let mut template: Option<(&Arc<TaskShape>, ExactAmounts)> = None;
        for (moved, adds) in tasks {
            let task = moved.after;
            let known = template.take().filter(|(shape, _)| Arc::ptr_eq(shape, &task.shape));
            let (shape, requests) =
                known.unwrap_or_else(|| (&task.shape, self.layout.dimensions.by_position(&task.requests).0));
            for _ in 0..moved.count() {
                if adds {
                    add_amounts(&mut account.held, &requests);
                    add_amounts(&mut allocated, &requests);
                } else {
                    self.subtract_requests(&mut account.held, &task.requests, &task.job)?;
                    subtract_amounts(&mut allocated, &requests);
                }
                if self.layout.compatibility == Compatibility::Corrected && !task.gated {
                    account.count_waiting(&requests, !adds);
                }
                let now = exhausted
                    .is_some()
                    .then(|| self.layout.dimensions.exhausted(&allocated));
                let flipped = now != exhausted;
                (here, everywhere) = (here || !flipped, everywhere || flipped);
                exhausted = now;
            }
            template = Some((shape, requests));
        }
        self.update_job(job, account, allocated);
        let queues = |everywhere| self.layout.moved_queues(job, everywhere);
        Ok(match (here, everywhere) {
            (false, false) => Vec::new(),
            (true, true) => [queues(false), queues(true)].concat(),
            (_, everywhere) => queues(everywhere),
        })
    }

    /// Subtracts a task's requests from the holdings of its job.
    fn subtract_requests(&self, held: &mut ExactAmounts, requests: &ResourceAmounts, job: &str) -> Result<(), Problem> {
        let (placed, foreign) = self.layout.dimensions.by_position(requests);
        let short = placed.iter().zip(held.iter()).position(|(amount, held)| amount > held);
        let short = short
            .and_then(|at| self.layout.dimensions.resource(at))
            .map(|(id, _)| id);
        let short = short.or_else(|| foreign.iter().find(|(_, amount)| *amount > 0).map(|(id, _)| *id));
        if let Some(id) = short {
            let resource = self.layout.dimensions.name(id);
            let message = format!(
                "job `{job}` would give back more {resource} than is counted for it; the reference panics here"
            );
            return Err(Problem::new(ErrorCode::ReferencePanics, "", message));
        }
        subtract_amounts(held, &placed);
        Ok(())
    }

    /// Sets the holdings of a job and of all jobs.
    fn update_job(&mut self, job: usize, account: JobAccount, allocated: ExactAmounts) {
        self.allocated = allocated;
        if let Some(tree) = &mut self.tree {
            if let Some(Ok(Some(place))) = self.layout.jobs.get(job).map(|job| &job.leaf) {
                tree.set_leaf(&self.layout, *place, job_leaf(&self.layout, job, &account));
            }
            tree.set_exhausted(&self.layout, &self.layout.dimensions.exhausted(&self.allocated));
        }
        self.set_account(job, account);
    }

    /// Sets the account of a job, and updates the nodes above it.
    fn set_account(&mut self, job: usize, account: JobAccount) {
        let mut above = self.leaf_position(job).map(|place| place.node);
        let Some(entry) = self.accounts.get_mut(job).map(Arc::make_mut) else {
            return;
        };
        let mut more = account.held.clone();
        subtract_amounts(&mut more, &entry.held);
        *entry = account;
        while let Some(number) = above {
            if let Some(held) = self.held_below.get_mut(number).map(Arc::make_mut) {
                add_amounts(held, &more);
            }
            above = self
                .layout
                .nodes
                .get(number)
                .map(|node| node.parent)
                .filter(|_| number > 0);
        }
    }

    /// Position of a job's leaf.
    fn leaf_position(&self, job: usize) -> Option<LeafPosition> {
        self.layout.jobs.get(job)?.leaf.as_ref().ok().copied().flatten()
    }
}

impl PluginState for DrfState {
    fn accounts(&self) -> Option<&dyn PluginAccounts> {
        Some(self)
    }

    fn apply(&mut self, change: &PluginStateChange<'_>) -> Result<Vec<Arc<str>>, Problem> {
        match change {
            PluginStateChange::Events(_, events) => {
                let mut moved = Vec::new();
                for of_job in events.chunk_by(PlacementEvent::moves_same_job) {
                    let queues = self.apply_tasks(of_job.iter().filter_map(PlacementEvent::moved_task))?;
                    if moved.is_empty() {
                        moved = queues;
                    } else {
                        moved.extend(queues);
                    }
                }
                Ok(moved)
            }
            PluginStateChange::Step(changes) => {
                *self = self.advanced(changes).ok_or_else(PluginStateChange::unfollowed)?;
                Ok(Vec::new())
            }
        }
    }
}

impl JobAccount {
    /// Counts one more waiting task with these requests, or one less.
    fn count_waiting(&mut self, requests: &ExactAmounts, more: bool) {
        let mut kind = ResourceSet::empty(requests.len());
        for (at, _) in requests.iter().enumerate().filter(|(_, amount)| **amount > 0) {
            kind.insert(at);
        }
        match self.waiting_kinds.binary_search_by(|(known, _)| known.cmp(&kind)) {
            Ok(found) => {
                let number = self.waiting_kinds.get_mut(found).map(|(_, number)| {
                    *number = if more {
                        number.saturating_add(1)
                    } else {
                        number.saturating_sub(1)
                    };
                    *number
                });
                if number == Some(0) {
                    self.waiting_kinds.remove(found);
                }
            }
            Err(place) if more => self.waiting_kinds.insert(place, (kind, 1)),
            Err(_) => {}
        }
    }
}

/// Holdings of a job at the beginning: its tasks in Allocated, Binding, Bound and Running.
fn opening_account(shape: &TreeLayout, cluster_state: &ClusterState, job: &str) -> JobAccount {
    let mut held = shape.dimensions.zero_amounts();
    if let Some(totals) = cluster_state.job_allocated(job) {
        shape.dimensions.add_totals(totals, &mut held);
    }
    JobAccount {
        held,
        waiting_kinds: Vec::new(),
    }
}

/// Leaf of a job. Under `upstream` it is saturated if, for some resource that it holds and its tasks request, it has
/// all that it requests or nothing is left. Under `corrected` it is saturated if none of its waiting tasks can be
/// served.
fn job_leaf(shape: &TreeLayout, job: usize, account: &JobAccount) -> JobLeaf {
    let held = to_floats(&account.held);
    let need = match shape.compatibility {
        Compatibility::Upstream(_) => {
            let requested = shape
                .jobs
                .get(job)
                .map(|job| to_floats(&job.requested))
                .unwrap_or_default();
            let (mut counted, mut met) = (ResourceSet::empty(shape.dimensions.len()), false);
            for (at, (held, requested)) in held.iter().zip(&requested).enumerate() {
                if *held >= MIN_AMOUNT && *requested != 0.0 {
                    counted.insert(at);
                    met |= held >= requested;
                }
            }
            if met {
                SaturationRule::Always
            } else {
                SaturationRule::AnyExhausted(counted)
            }
        }
        Compatibility::Corrected => match account.waiting_kinds.as_slice() {
            [] => SaturationRule::Always,
            [(kind, _)] => SaturationRule::AnyExhausted(kind.clone()),
            kinds => SaturationRule::EachExhausted(kinds.iter().map(|(kind, _)| kind.clone()).collect()),
        },
    };
    JobLeaf {
        share: shape.dimensions.share(&held),
        held,
        saturation: need,
    }
}
