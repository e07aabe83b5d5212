//! Dominant resource fairness: shares of jobs and, with hierarchy, of a tree of queues (Volcano ed72c7c81,
//! pkg/scheduler/plugins/drf; the paper on H-DRF of 2013 for `compatibility: corrected`).

mod bits;
mod carry;
mod chunked;
mod columns;
mod faults;
mod go_float;
mod hierarchy;
mod listing;
mod needs;
mod order;
mod plugin;
mod shape;
mod share;
#[cfg(test)]
mod tests;
mod tree;
mod victims;

use std::collections::BTreeSet;
use std::sync::Arc;

use bits::Bits;
use chunked::Chunked;
use needs::Need;
use shape::{Place, Shape};
use share::{Exact, add, floats, subtract};
use tree::{Leaf, Rules, Tree};

pub use faults::{checks_places, fault_of, faults};
pub use hierarchy::{HIERARCHY, WEIGHTS};
pub use listing::{JobShare, TreeNode};
pub(super) use plugin::DEF;
pub use plugin::NAME;

use crate::engine::derived::{Derived, Movement};
use crate::engine::model::{Amounts, Changes, MIN_AMOUNT, Problem, ProblemKind, TaskRecord, TaskStatus, View};
use crate::engine::policy::Compatibility;

/// What a job holds, and what its waiting tasks ask for.
#[derive(Clone, Debug, Default, PartialEq)]
struct Account {
    held: Exact,
    /// Kinds of tasks that wait, by the resources that they request, with their numbers; under `corrected` only.
    waiting: Vec<(Bits, u32)>,
}

/// Shares of all jobs and, with hierarchy, of the tree over them. Events move it; clones share what they have in common.
#[derive(Clone, Debug, PartialEq)]
pub struct Drf {
    shape: Arc<Shape>,
    accounts: Chunked<Account>,
    /// What all jobs hold.
    allocated: Exact,
    /// What the jobs below each inner node hold, as it is.
    below: Chunked<Exact>,
    tree: Option<Tree>,
}

impl Drf {
    /// The shares of a View; with `hierarchy` also the tree of its queues.
    pub fn build(view: &View, compatibility: Compatibility, hierarchy: bool) -> Self {
        let shape = Shape::build(view, compatibility, hierarchy);
        let mut accounts: Vec<Account> = shape.jobs.iter().map(|job| opening(&shape, view, &job.name)).collect();
        if compatibility == Compatibility::Corrected {
            for (_, stored) in view.tasks().iter() {
                let task = &stored.record;
                let Some(account) = shape.job_number(&task.job).and_then(|job| accounts.get_mut(job)) else {
                    continue;
                };
                let (requests, _) = shape.dims.place(&task.requests);
                if task.status == TaskStatus::Pipelined {
                    // Counted by its event, and so it must be counted in a fresh state as well.
                    add(&mut account.held, &requests);
                } else if matches!(task.status, TaskStatus::Pending | TaskStatus::Releasing) && !task.gated {
                    account.wait(&requests, true);
                }
            }
        }
        let mut allocated = shape.dims.zero();
        for account in &accounts {
            add(&mut allocated, &account.held);
        }
        let tree = hierarchy.then(|| {
            let rules = Rules::of(&shape, shape.dims.exhausted(&allocated));
            let empty = Account::default();
            let leaf = |job: usize| leaf(&shape, job, accounts.get(job).unwrap_or(&empty));
            Tree::new(&shape, rules, leaf)
        });
        Self {
            below: shape
                .sum_up(|job| accounts.get(job).map(|account| &account.held))
                .into_iter()
                .collect(),
            accounts: accounts.into_iter().collect(),
            shape: Arc::new(shape),
            allocated,
            tree,
        }
    }

    /// True if queues have an order of their own.
    pub fn has_hierarchy(&self) -> bool {
        self.tree.is_some()
    }

    /// A task's requests now count for its job, or no longer. Tasks of unknown jobs do not count. Answers which queues'
    /// keys moved.
    ///
    /// # Errors
    /// The job would hold less than nothing; the reference panics there.
    fn count(&mut self, task: &TaskRecord, add_them: bool) -> Result<Vec<Arc<str>>, Problem> {
        let Some(job) = self.shape.job_number(&task.job) else {
            return Ok(Vec::new());
        };
        let Some(mut account) = self.accounts.get(job).cloned() else {
            return Ok(Vec::new());
        };
        let (requests, _) = self.shape.dims.place(&task.requests);
        let mut allocated = self.allocated.clone();
        if add_them {
            add(&mut account.held, &requests);
            add(&mut allocated, &requests);
        } else {
            self.take(&mut account.held, &task.requests, &task.job)?;
            subtract(&mut allocated, &requests);
        }
        if self.shape.compatibility == Compatibility::Corrected && !task.gated {
            account.wait(&requests, !add_them);
        }
        let everywhere = self.restate(job, account, allocated);
        Ok(self.shape.moved_queues(job, everywhere))
    }

    /// Tasks of one job now count, one after the other. Answers which queues' keys moved at any of them.
    fn count_all<'t>(&mut self, mut tasks: impl Iterator<Item = &'t TaskRecord>) -> BTreeSet<Arc<str>> {
        let Some(first) = tasks.next() else {
            return BTreeSet::new();
        };
        let job = self.shape.job_number(&first.job);
        let Some((job, mut account)) = job.and_then(|job| Some((job, self.accounts.get(job)?.clone()))) else {
            return BTreeSet::new();
        };
        let mut allocated = self.allocated.clone();
        let mut exhausted = self.shape.dims.exhausted(&allocated);
        let (mut here, mut everywhere) = (false, false);
        let (mut of, mut requests) = (&first.shape, self.shape.dims.place(&first.requests).0);
        for task in std::iter::once(first).chain(tasks) {
            if !Arc::ptr_eq(of, &task.shape) {
                (of, requests) = (&task.shape, self.shape.dims.place(&task.requests).0);
            }
            add(&mut account.held, &requests);
            add(&mut allocated, &requests);
            if self.shape.compatibility == Compatibility::Corrected && !task.gated {
                account.wait(&requests, false);
            }
            let now = self.shape.dims.exhausted(&allocated);
            let flipped = self.tree.is_some() && now != exhausted;
            (here, everywhere) = (here || !flipped, everywhere || flipped);
            exhausted = now;
        }
        self.restate(job, account, allocated);
        let moved = [(here, false), (everywhere, true)]
            .into_iter()
            .filter(|(moved, _)| *moved);
        moved
            .flat_map(|(_, everywhere)| self.shape.moved_queues(job, everywhere))
            .collect()
    }

    /// Takes a task's requests from what its job holds.
    fn take(&self, held: &mut Exact, requests: &Amounts, job: &str) -> Result<(), Problem> {
        let (placed, foreign) = self.shape.dims.place(requests);
        let short = placed.iter().zip(held.iter()).position(|(amount, held)| amount > held);
        let short = short.and_then(|at| self.shape.dims.resource(at)).map(|(id, _)| id);
        let short = short.or_else(|| foreign.iter().find(|(_, amount)| *amount > 0).map(|(id, _)| *id));
        if let Some(id) = short {
            let resource = self.shape.dims.name(id);
            let message = format!(
                "job `{job}` would give back more {resource} than is counted for it; the reference panics here"
            );
            return Err(Problem::new(ProblemKind::Refused, "REFERENCE_PANICS", "", message));
        }
        subtract(held, &placed);
        Ok(())
    }

    /// Takes over what a job holds and what all jobs hold. True if a resource ran out by that or came back.
    fn restate(&mut self, job: usize, account: Account, allocated: Exact) -> bool {
        self.allocated = allocated;
        let mut flipped = false;
        if let Some(tree) = &mut self.tree {
            if let Some(Ok(Some(place))) = self.shape.jobs.get(job).map(|job| &job.leaf) {
                tree.set_leaf(&self.shape, *place, leaf(&self.shape, job, &account));
            }
            flipped = tree.set_exhausted(&self.shape, &self.shape.dims.exhausted(&self.allocated));
        }
        self.put_account(job, account);
        flipped
    }

    /// Sets a job's account; the nodes above it follow.
    fn put_account(&mut self, job: usize, account: Account) {
        let mut above = self.place(job).map(|place| place.node);
        let Some(entry) = self.accounts.get_mut(job) else {
            return;
        };
        let mut more = account.held.clone();
        subtract(&mut more, &entry.held);
        *entry = account;
        while let Some(number) = above {
            if let Some(held) = self.below.get_mut(number) {
                add(held, &more);
            }
            above = self
                .shape
                .nodes
                .get(number)
                .map(|node| node.parent)
                .filter(|_| number > 0);
        }
    }

    /// Where a job's leaf hangs.
    fn place(&self, job: usize) -> Option<Place> {
        self.shape.jobs.get(job)?.leaf.as_ref().ok().copied().flatten()
    }
}

impl Derived for Drf {
    fn follow(&mut self, _: &View, movement: &Movement<'_>) -> Result<Vec<Arc<str>>, Problem> {
        match movement {
            Movement::Allocate(task) | Movement::Pipeline(task) => self.count(task.after, true),
            Movement::Deallocate(task) => self.count(task.after, false),
            Movement::Enqueue(_) | Movement::Leave(_) | Movement::Reserve(_) => Ok(Vec::new()),
        }
    }

    fn follow_all(&mut self, view: &View, movements: &[Movement<'_>]) -> Result<BTreeSet<Arc<str>>, Problem> {
        let mut moved = BTreeSet::new();
        for row in movements.chunk_by(Movement::arrives_like) {
            if row.len() > 1 {
                moved.extend(self.count_all(row.iter().filter_map(|movement| Some(movement.arrival()?.after))));
                continue;
            }
            for movement in row {
                moved.extend(self.follow(view, movement)?);
            }
        }
        Ok(moved)
    }

    fn carry(&self, changes: &Changes<'_>) -> Option<Arc<dyn Derived>> {
        Some(Arc::new(self.carried(changes)?))
    }

    fn copy(&self) -> Arc<dyn Derived> {
        Arc::new(self.clone())
    }
}

impl Account {
    /// One more task with these requests waits, or one less.
    fn wait(&mut self, requests: &Exact, more: bool) {
        let mut kind = Bits::none(requests.len());
        for (at, _) in requests.iter().enumerate().filter(|(_, amount)| **amount > 0) {
            kind.insert(at);
        }
        match self.waiting.binary_search_by(|(known, _)| known.cmp(&kind)) {
            Ok(found) => {
                let number = self.waiting.get_mut(found).map(|(_, number)| {
                    *number = if more {
                        number.saturating_add(1)
                    } else {
                        number.saturating_sub(1)
                    };
                    *number
                });
                if number == Some(0) {
                    self.waiting.remove(found);
                }
            }
            Err(place) if more => self.waiting.insert(place, (kind, 1)),
            Err(_) => {}
        }
    }
}

/// What a job holds at the beginning: its tasks in Allocated, Binding, Bound and Running.
fn opening(shape: &Shape, view: &View, job: &str) -> Account {
    let mut held = shape.dims.zero();
    if let Some(totals) = view.job_allocated(job) {
        shape.dims.place_totals(totals, &mut held);
    }
    Account {
        held,
        waiting: Vec::new(),
    }
}

/// A job as the tree sees it. Under `upstream` it is saturated if, of a resource that it holds and its tasks request,
/// it has all that it asks for or nothing is left; under `corrected`, if none of its waiting tasks can be served.
fn leaf(shape: &Shape, job: usize, account: &Account) -> Leaf {
    let held = floats(&account.held);
    let need = match shape.compatibility {
        Compatibility::Upstream => {
            let requested = shape
                .jobs
                .get(job)
                .map(|job| floats(&job.requested))
                .unwrap_or_default();
            let (mut counted, mut met) = (Bits::none(shape.dims.len()), false);
            for (at, (held, requested)) in held.iter().zip(&requested).enumerate() {
                if *held >= MIN_AMOUNT && *requested != 0.0 {
                    counted.insert(at);
                    met |= held >= requested;
                }
            }
            if met { Need::Met } else { Need::Any(counted) }
        }
        Compatibility::Corrected => match account.waiting.as_slice() {
            [] => Need::Met,
            [(kind, _)] => Need::Any(kind.clone()),
            kinds => Need::All(kinds.iter().map(|(kind, _)| kind.clone()).collect()),
        },
    };
    Leaf {
        share: shape.dims.share(&held),
        held,
        need,
    }
}
