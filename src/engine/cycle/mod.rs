//! One scheduling cycle: a private View, the changes that a scheduler makes to it, and marks to return to.
//!
//! Effects on node vectors (`r`: the task's requests), task, and its job's allocated amount:
//!
//! | change | task before → after | node | job |
//! |---|---|---|---|
//! | Allocate | Pending → Allocated on the node | used + r | + r |
//! | Pipeline | Pending → Pipelined on the node | pipelined + r | |
//! | Evict | Allocated, Binding, Bound or Running → Releasing, stays | releasing + r | − r |
//! | Unallocate, `BindFailed` | Allocated, `BindFailed` also Binding → Pending, no node | used − r | − r |
//! | Unpipeline | Pipelined → Pending, no node | pipelined − r | |
//! | Unevict | evicted in this cycle → as it was | releasing − r | + r |
//! | `JobEnqueued` | job Pending → Inqueue | | |
//!
//! Under `compatibility: corrected` a change that does not fit is a no-op with a warning. Under `upstream` it does what
//! the reference does (`upstream.rs`), and where the reference panics the changes are refused.

mod assume;
mod change;
mod corrected;
mod puts;
mod upstream;

use std::collections::BTreeSet;
use std::sync::Arc;

use super::derived::{DerivedSet, Movement, TaskMove};
use super::model::{JobPhase, JobRecord, Kind, Problem, ProblemKind, Slot, Table, TaskRecord, TaskStatus, View};
use super::policy::Compatibility;
pub(crate) use assume::assume;
pub(crate) use puts::{Put, To};
use upstream::Upstream;

pub use change::{Change, Event, Moved, Outcome, Placement};

/// A moved task, in bytes: its record and its part of the tables.
const TASK_BYTES: usize = 1_024;

/// State that a mark brings back.
#[derive(Clone, Debug)]
struct State {
    view: View,
    /// Status before its eviction, of each task evicted in this cycle.
    evicted: Table<TaskStatus>,
    upstream: Option<Upstream>,
    /// What plugins keep beside the View.
    derived: DerivedSet,
    /// Jobs that were enqueued for good, in that order, and are not settled yet.
    enqueued: Arc<Vec<Arc<str>>>,
    /// Tasks that were moved since the beginning.
    moved: Table<Arc<Moved>>,
    /// Number of moves.
    moves: u64,
    /// Bytes of the chunks that marks up to here hold of their own.
    kept: usize,
    /// What changed since the mark before, so that marks do not each hold all that ever changed.
    touched: Arc<Touched>,
}

/// What happened to a task's requests.
#[derive(Clone, Copy, Debug)]
enum Step {
    Allocate,
    Pipeline,
    Deallocate,
}

#[derive(Clone, Debug, Default)]
struct Touched {
    nodes: BTreeSet<Slot>,
    queues: BTreeSet<Arc<str>>,
}

/// A private copy of the state, as one scheduler changes it.
#[derive(Clone, Debug)]
pub struct Cycle {
    opened: View,
    state: State,
    marks: Vec<(Arc<str>, Arc<State>)>,
}

impl Cycle {
    /// Begins a cycle on a View, and what plugins derived from it. Under `upstream` the reference panics, and changes
    /// are refused, where drf would have to take away more than was ever counted.
    pub fn new(view: View, compatibility: Compatibility, derived: DerivedSet) -> Self {
        let upstream = match compatibility {
            Compatibility::Upstream => Some(Upstream::new(view.clone())),
            Compatibility::Corrected => None,
        };
        let opened = view.clone();
        let state = State {
            view,
            evicted: Table::default(),
            upstream,
            derived,
            enqueued: Arc::default(),
            moved: Table::default(),
            moves: 0,
            kept: 0,
            touched: Arc::default(),
        };
        Self {
            opened,
            state,
            marks: Vec::new(),
        }
    }

    /// Marks that can be returned to.
    pub fn marks(&self) -> usize {
        self.marks.len()
    }

    /// The state at the beginning.
    pub fn opened(&self) -> &View {
        &self.opened
    }

    /// Bytes that the cycle and its marks hold of their own, beside the state at the beginning: copied chunks, and a
    /// flat amount for every task that was moved.
    pub fn bytes(&self) -> usize {
        self.state.kept + self.since_mark() + self.state.moved.len() * TASK_BYTES
    }

    /// Bytes of the chunks that changed since the last mark.
    fn since_mark(&self) -> usize {
        let before = self.marks.last().map_or(&self.opened, |(_, state)| &state.view);
        self.state.view.bytes_beside(before)
    }

    /// The state as it stands.
    pub fn view(&self) -> &View {
        &self.state.view
    }

    /// Tasks that were moved, and not taken back by a mark, by name.
    pub fn moved(&self) -> impl Iterator<Item = (&Arc<str>, &Moved)> {
        self.state.moved.iter().map(|(task, moved)| (task, &**moved))
    }

    /// What plugins keep beside it.
    pub fn derived(&self) -> &DerivedSet {
        &self.state.derived
    }

    /// Jobs that were enqueued for good, in that order, since the last [`Self::settle`].
    pub fn enqueued(&self) -> &[Arc<str>] {
        &self.state.enqueued
    }

    /// Jobs that were enqueued have been confirmed, or refused: those wait again. The queues whose accounts moved.
    ///
    /// # Errors
    /// A plugin cannot count it: the cycle is to be thrown away.
    pub fn settle(&mut self, confirmed: &[Arc<str>], refused: &[Arc<str>]) -> Result<Outcome, Problem> {
        let mut outcome = Outcome::default();
        let settled: BTreeSet<&Arc<str>> = confirmed.iter().chain(refused).collect();
        Arc::make_mut(&mut self.state.enqueued).retain(|job| !settled.contains(job));
        for job in refused {
            self.state.leave(job, &mut outcome)?;
        }
        Ok(outcome)
    }

    /// Asks what changes what plugins keep beside the View; after an error everything is as it was.
    ///
    /// # Errors
    /// The question's own.
    pub fn ask<T, E>(&mut self, question: impl FnOnce(&View, &mut DerivedSet) -> Result<T, E>) -> Result<T, E> {
        let mut derived = self.state.derived.clone();
        let answer = question(&self.state.view, &mut derived)?;
        self.state.derived = derived;
        Ok(answer)
    }

    /// A node's own copies of its tasks, by name: only in a cycle under `upstream` they can differ from the tasks.
    pub fn node_tasks(&self, node: &str) -> Vec<(Arc<str>, TaskStatus)> {
        let tasks = self.state.view.tasks().iter();
        let copies = tasks.filter_map(|(name, task)| {
            match &self.state.upstream {
                Some(upstream) => upstream
                    .copies(&self.state.view, name)
                    .iter()
                    .find(|(at, _)| **at == *node)
                    .map(|&(_, status)| status),
                None => (*task.record.node == *node && task.record.status.is_on_node()).then_some(task.record.status),
            }
            .map(|status| (Arc::clone(name), status))
        });
        copies.collect()
    }

    /// Applies changes in order, all or none.
    ///
    /// # Errors
    /// One of them cannot be applied; nothing was.
    pub fn apply(&mut self, changes: &[Change]) -> Result<Outcome, Problem> {
        self.apply_from(0, changes)
    }

    /// As [`Self::apply`], for changes before which so many stand in the caller's list: problems name them by their place
    /// in it.
    ///
    /// # Errors
    /// As [`Self::apply`].
    pub fn apply_from(&mut self, before: usize, changes: &[Change]) -> Result<Outcome, Problem> {
        let (mut next, mut outcome) = (self.clone(), Outcome::default());
        let mut at = 0;
        while let Some(rest) = changes.get(at..).filter(|rest| !rest.is_empty()) {
            let puts = rest.iter().map_while(Put::of);
            let row = if next.state.upstream.is_some() {
                0
            } else {
                puts.clone().count()
            };
            if row > 1 {
                if next.state.put_all(before + at, puts, &mut outcome).is_err() {
                    // Which of them it was is said by what takes them one by one.
                    return self.apply_one_by_one(before, changes);
                }
                at += row;
            } else {
                next.numbered(before + at, rest.first(), &mut outcome)?;
                at += 1;
            }
        }
        *self = next;
        Ok(outcome)
    }

    /// The same, with no two of them taken together.
    fn apply_one_by_one(&mut self, before: usize, changes: &[Change]) -> Result<Outcome, Problem> {
        let (mut next, mut outcome) = (self.clone(), Outcome::default());
        for (number, change) in (before..).zip(changes) {
            next.numbered(number, Some(change), &mut outcome)?;
        }
        *self = next;
        Ok(outcome)
    }

    /// Puts tasks on nodes, in order, all or none: as changes that do so.
    ///
    /// # Errors
    /// As [`Self::apply`].
    pub(crate) fn put_all(&mut self, puts: &[Put<'_>]) -> Result<Outcome, Problem> {
        if self.state.upstream.is_none() {
            let (mut next, mut outcome) = (self.state.clone(), Outcome::default());
            if next.put_all(0, puts.iter().copied(), &mut outcome).is_ok() {
                self.state = next;
                return Ok(outcome);
            }
        }
        let changes: Vec<Change> = puts.iter().map(|put| put.change(self.view())).collect();
        self.apply_one_by_one(0, &changes)
    }

    /// The reference's session form of Allocate and Pipeline, which leaves a refused task half placed: status and node
    /// set, the node without it. Only for a cycle under `upstream`.
    ///
    /// # Errors
    /// The reference refuses; the state is as it leaves it.
    pub fn place_without_rollback(&mut self, placement: &Placement, status: TaskStatus) -> Result<Outcome, Problem> {
        let mut outcome = Outcome::default();
        let Some(mut upstream) = self.state.upstream.take() else {
            return Err(problem(
                ProblemKind::Unserved,
                "UPSTREAM_ONLY",
                "",
                "only under `compatibility: upstream`",
            ));
        };
        let placed = upstream.place(&mut self.state, placement, status, &mut outcome);
        self.state.upstream = Some(upstream);
        placed
            .map(|()| outcome)
            .map_err(|refusal| problem(ProblemKind::Refused, "PLACE_REFUSED", "", refusal))
    }

    /// The scheduler has sent the bind of an allocated task: its status, and nothing else, becomes Binding.
    pub fn bind(&mut self, task: &str) {
        if let Some(stored) = self.state.view.tasks().get(task).cloned() {
            self.state.view.set_task(TaskRecord {
                status: TaskStatus::Binding,
                ..stored.record.clone()
            });
        }
    }

    fn numbered(&mut self, number: usize, change: Option<&Change>, outcome: &mut Outcome) -> Result<(), Problem> {
        let Some(change) = change else { return Ok(()) };
        let field = format!("changes[{number}].{}", change.word());
        self.one(change, &field, outcome)
    }

    fn one(&mut self, change: &Change, field: &str, outcome: &mut Outcome) -> Result<(), Problem> {
        match change {
            Change::Savepoint(name) => {
                self.state.kept += self.since_mark();
                self.marks.push((Arc::clone(name), Arc::new(self.state.clone())));
                self.state.touched = Arc::default();
                Ok(())
            }
            Change::RollbackTo(name) => self.roll_back(name, field, outcome),
            Change::JobEnqueued(job) => self.state.enqueue(job, field, outcome),
            Change::Allocate(_)
            | Change::Pipeline(_)
            | Change::Evict(_)
            | Change::Unallocate(_)
            | Change::Unpipeline(_)
            | Change::Unevict(_)
            | Change::BindFailed(_) => {
                let task = change.task().map_or("", |task| task);
                if self.state.view.tasks().contains(task) {
                    return self.state.on_task(change, field, outcome);
                }
                outcome.warnings.push(problem(
                    ProblemKind::NotFound,
                    "UNKNOWN_TASK",
                    field,
                    format!("there is no task `{task}`; nothing was done"),
                ));
                Ok(())
            }
        }
    }

    fn roll_back(&mut self, name: &str, field: &str, outcome: &mut Outcome) -> Result<(), Problem> {
        let Some(at) = self.marks.iter().rposition(|(mark, _)| **mark == *name) else {
            let message = format!("there is no savepoint `{name}`");
            return Err(problem(ProblemKind::NotFound, "UNKNOWN_SAVEPOINT", field, message));
        };
        let later = self.marks.iter().skip(at + 1).map(|(_, state)| &state.touched);
        for touched in later.chain([&self.state.touched]) {
            outcome.nodes.extend(&touched.nodes);
            outcome.queues.extend(touched.queues.iter().cloned());
        }
        self.marks.truncate(at + 1);
        if let Some((_, saved)) = self.marks.last() {
            self.state = State::clone(saved);
            self.state.touched = Arc::default();
        }
        Ok(())
    }
}

impl State {
    fn on_task(&mut self, change: &Change, field: &str, outcome: &mut Outcome) -> Result<(), Problem> {
        if let Some(mut upstream) = self.upstream.take() {
            let done = upstream.apply(self, change, field, outcome);
            self.upstream = Some(upstream);
            return done;
        }
        let Some(task) = change.task() else { return Ok(()) };
        let Some(before) = self.view.tasks().get(task).cloned() else {
            return Ok(());
        };
        match self.corrected(change, outcome) {
            Ok(step) => self
                .moved(step, &before.record, change.card(), outcome)
                .map_err(|problem| problem.within(field)),
            Err(misfit) => {
                let message = format!("{misfit}; nothing was done");
                outcome
                    .warnings
                    .push(problem(ProblemKind::Refused, "CHANGE_DOES_NOT_FIT", field, message));
                Ok(())
            }
        }
    }

    /// Tells plugins, and the outcome, of what happened to a task.
    fn moved(&mut self, step: Step, before: &TaskRecord, card: &str, outcome: &mut Outcome) -> Result<(), Problem> {
        let task = Arc::clone(&before.name);
        self.remember(before, card);
        outcome.events.push(match step {
            Step::Allocate | Step::Pipeline => Event::Allocate(task),
            Step::Deallocate => Event::Deallocate(task),
        });
        if self.derived.is_empty() {
            return Ok(());
        }
        let Some(stored) = self.view.tasks().get(&before.name) else {
            return Ok(());
        };
        let after = &stored.record;
        let moved = TaskMove { before, after, card };
        let movement = match step {
            Step::Allocate => Movement::Allocate(moved),
            Step::Pipeline => Movement::Pipeline(moved),
            Step::Deallocate => Movement::Deallocate(moved),
        };
        let moved = self.derived.follow(&self.view, &movement)?;
        self.touch_queues(&moved, outcome);
        Ok(())
    }

    fn remember(&mut self, before: &TaskRecord, card: &str) {
        self.moves += 1;
        let first = self.moved.get(&before.name);
        let moved = Moved {
            order: self.moves,
            card: Arc::from(card),
            status: first.map_or(before.status, |first| first.status),
            node: Arc::clone(first.map_or(&before.node, |first| &first.node)),
        };
        self.moved.insert(Arc::clone(&before.name), Arc::new(moved));
    }

    fn touch_queues<'a>(&mut self, queues: impl IntoIterator<Item = &'a Arc<str>> + Clone, outcome: &mut Outcome) {
        let touched = Arc::make_mut(&mut self.touched);
        touched.queues.extend(queues.clone().into_iter().cloned());
        outcome.queues.extend(queues.into_iter().cloned());
    }

    fn touch(&mut self, nodes: &[&str], job: &str, outcome: &mut Outcome) {
        let touched = Arc::make_mut(&mut self.touched);
        let named = nodes.iter().filter(|node| !node.is_empty());
        for slot in named.filter_map(|node| self.view.slot_of(node)) {
            outcome.nodes.insert(slot);
            touched.nodes.insert(slot);
        }
        if let Some(job) = self.view.jobs().get(job) {
            outcome.queues.insert(Arc::clone(&job.record.queue));
            touched.queues.insert(Arc::clone(&job.record.queue));
        }
    }

    fn enqueue(&mut self, job: &str, field: &str, outcome: &mut Outcome) -> Result<(), Problem> {
        let Some(stored) = self.view.jobs().get(job).cloned() else {
            let message = format!("there is no job `{job}`; nothing was done");
            outcome
                .warnings
                .push(problem(ProblemKind::NotFound, "UNKNOWN_JOB", field, message));
            return Ok(());
        };
        if !matches!(stored.record.phase, JobPhase::Pending | JobPhase::Unspecified) {
            let message = format!(
                "job `{job}` is {:?}, not Pending; nothing was done",
                stored.record.phase
            );
            outcome
                .warnings
                .push(problem(ProblemKind::Refused, "CHANGE_DOES_NOT_FIT", field, message));
            return Ok(());
        }
        self.touch(&[], job, outcome);
        self.view.put_job(
            JobRecord {
                phase: JobPhase::Inqueue,
                ..stored.record.clone()
            },
            &stored.source,
        );
        if stored.invalid().is_some() {
            self.view.set_invalid(Kind::Job, job, stored.invalid().cloned());
        }
        Arc::make_mut(&mut self.enqueued).push(Arc::clone(&stored.record.name));
        let moved = self.derived.follow(&self.view, &Movement::Enqueue(job));
        self.touch_queues(&moved.map_err(|problem| problem.within(field))?, outcome);
        Ok(())
    }

    /// A job that was enqueued in this cycle waits again.
    fn leave(&mut self, job: &Arc<str>, outcome: &mut Outcome) -> Result<(), Problem> {
        let Some(stored) = self.view.jobs().get(job).cloned() else {
            return Ok(());
        };
        if stored.record.phase == JobPhase::Inqueue {
            self.touch(&[], job, outcome);
            let record = JobRecord {
                phase: JobPhase::Pending,
                ..stored.record.clone()
            };
            self.view.put_job(record, &stored.source);
        }
        let moved = self.derived.follow(&self.view, &Movement::Leave(job))?;
        self.touch_queues(&moved, outcome);
        Ok(())
    }
}

fn problem(kind: ProblemKind, reason: &'static str, field: &str, message: impl Into<String>) -> Problem {
    Problem::new(kind, reason, field, message)
}
