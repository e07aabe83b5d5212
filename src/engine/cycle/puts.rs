//! Allocate and Pipeline of many tasks in a row under `compatibility: corrected`: just as one after the other, but every
//! table, node, account and plugin is gone through once.

use std::sync::Arc;

use super::change::{Change, Event, Moved, Outcome, Placement};
use super::{State, problem};
use crate::engine::derived::{Movement, TaskMove};
use crate::engine::model::{Arrival, Near, Problem, ProblemKind, Slot, TaskStatus, View};

/// A task that is to be put on a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Put<'a> {
    /// Task.
    pub(crate) task: &'a Arc<str>,
    /// Node.
    pub(crate) to: To<'a>,
    /// Onto room that is being released.
    pub(crate) pipelined: bool,
    /// The card that it uses there; `None`: none said.
    pub(crate) card: Option<&'a Arc<str>>,
}

/// A node.
#[derive(Clone, Copy, Debug)]
pub(crate) enum To<'a> {
    /// Of this name.
    Named(&'a Arc<str>),
    /// At this slot.
    Slot(Slot),
}

impl<'a> Put<'a> {
    /// The change as a put, if it is one.
    pub(super) fn of(change: &'a Change) -> Option<Self> {
        let (Placement { task, node, card }, pipelined) = match change {
            Change::Allocate(to) => (to, false),
            Change::Pipeline(to) => (to, true),
            Change::Evict(_)
            | Change::Unallocate(_)
            | Change::Unpipeline(_)
            | Change::Unevict(_)
            | Change::BindFailed(_)
            | Change::JobEnqueued(_)
            | Change::Savepoint(_)
            | Change::RollbackTo(_) => return None,
        };
        Some(Self {
            task,
            to: To::Named(node),
            pipelined,
            card: Some(card),
        })
    }

    /// The same as a change.
    pub(super) fn change(&self, view: &View) -> Change {
        let to = Placement {
            task: Arc::clone(self.task),
            node: self.node(view),
            card: self.card.cloned().unwrap_or_default(),
        };
        if self.pipelined {
            Change::Pipeline(to)
        } else {
            Change::Allocate(to)
        }
    }

    fn node(&self, view: &View) -> Arc<str> {
        match self.to {
            To::Named(node) => Arc::clone(node),
            To::Slot(slot) => view.name_of(slot).unwrap_or_default(),
        }
    }

    fn status(&self) -> TaskStatus {
        if self.pipelined {
            TaskStatus::Pipelined
        } else {
            TaskStatus::Allocated
        }
    }

    /// The word of its change.
    fn word(&self) -> &'static str {
        if self.pipelined { "pipeline" } else { "allocate" }
    }
}

/// Why a task is not put: kind and reason of the warning, and its message.
type Misfit = (ProblemKind, &'static str, String);

impl State {
    /// Puts tasks on nodes, one after the other; `before`: so many changes stand before them in the caller's list. What
    /// does not fit is warned of.
    ///
    /// # Errors
    /// A plugin cannot count one of them: this state is to be thrown away.
    pub(super) fn put_all<'a>(
        &mut self,
        before: usize,
        puts: impl Iterator<Item = Put<'a>>,
        outcome: &mut Outcome,
    ) -> Result<(), Problem> {
        let (mut near, mut arrivals, mut cards) = (Near::default(), Vec::new(), Vec::new());
        for (number, put) in (before..).zip(puts) {
            match self.seat(&put, &mut near) {
                Ok(arrival) => {
                    arrivals.push(arrival);
                    cards.push(put.card);
                }
                Err((kind, reason, message)) => {
                    let field = format!("changes[{number}].{}", put.word());
                    let message = format!("{message}; nothing was done");
                    outcome.warnings.push(problem(kind, reason, &field, message));
                }
            }
        }
        if arrivals.is_empty() {
            return Ok(());
        }
        self.view.arrive(&arrivals);
        self.note(&arrivals, outcome);
        self.remember_all(&arrivals, &cards);
        if self.derived.is_empty() {
            return Ok(());
        }
        let movements = arrivals.iter().zip(&cards).map(|(arrival, card)| {
            let moved = TaskMove {
                before: &arrival.before.record,
                after: &arrival.after.record,
                card: card.map_or("", |card| card),
            };
            if arrival.after.record.status == TaskStatus::Pipelined {
                Movement::Pipeline(moved)
            } else {
                Movement::Allocate(moved)
            }
        });
        let movements: Vec<Movement<'_>> = movements.collect();
        let moved = self.derived.follow_all(&self.view, &movements)?;
        self.touch_queues(&moved, outcome);
        Ok(())
    }

    /// Gives a task its node; nothing follows yet.
    fn seat(&mut self, put: &Put<'_>, near: &mut Near) -> Result<Arrival, Misfit> {
        let unknown = || {
            let message = format!("there is no task `{}`", put.task);
            (ProblemKind::NotFound, "UNKNOWN_TASK", message)
        };
        let stored = self.view.tasks().get_near(put.task, near).ok_or_else(unknown)?;
        let misfit = |message| (ProblemKind::Refused, "CHANGE_DOES_NOT_FIT", message);
        if stored.record.status != TaskStatus::Pending {
            self.expect(put.task, &[TaskStatus::Pending]).map_err(misfit)?;
        }
        let slot = match put.to {
            To::Named(node) => self.view.slot_of(node),
            To::Slot(slot) => Some(slot),
        };
        let seated = slot.and_then(|slot| self.view.seat(put.task, put.status(), slot, near));
        seated.ok_or_else(|| misfit(format!("there is no node `{}`", put.node(&self.view))))
    }

    /// Nodes and queues that changed, and events.
    fn note(&mut self, arrivals: &[Arrival], outcome: &mut Outcome) {
        let view = &self.view;
        // A task that waits may name a node all the same.
        let named = arrivals.iter().map(|arrival| &arrival.before.record.node);
        let named = named
            .filter(|node| !node.is_empty())
            .filter_map(|node| view.slot_of(node));
        let slots = arrivals.iter().map(|arrival| arrival.slot).chain(named);
        let mut slots: Vec<Slot> = slots.collect();
        slots.sort_unstable();
        slots.dedup();
        let touched = Arc::make_mut(&mut self.touched);
        touched.nodes.append(&mut slots.iter().copied().collect());
        outcome.nodes.append(&mut slots.into_iter().collect());
        let same_job = |one: &Arrival, next: &Arrival| one.after.record.job == next.after.record.job;
        for first in arrivals.chunk_by(same_job).filter_map(<[Arrival]>::first) {
            if let Some(job) = view.jobs().get(&first.after.record.job) {
                outcome.queues.insert(Arc::clone(&job.record.queue));
                touched.queues.insert(Arc::clone(&job.record.queue));
            }
        }
        let tasks = arrivals.iter().map(|arrival| Arc::clone(&arrival.after.record.name));
        outcome.events.extend(tasks.map(Event::Allocate));
    }

    fn remember_all(&mut self, arrivals: &[Arrival], cards: &[Option<&Arc<str>>]) {
        let mut near = Near::default();
        for (arrival, card) in arrivals.iter().zip(cards) {
            self.moves += 1;
            let before = &arrival.before.record;
            let first = self.moved.get_near(&before.name, &mut near);
            let moved = Moved {
                order: self.moves,
                card: card.cloned().unwrap_or_default(),
                status: first.map_or(before.status, |first| first.status),
                node: Arc::clone(first.map_or(&before.node, |first| &first.node)),
            };
            self.moved.insert_near(&before.name, Arc::new(moved), &mut near);
        }
    }
}
