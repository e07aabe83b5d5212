//! Allocate and Pipeline of many tasks in a row under `compatibility: corrected`: the result equals applying one after
//! the other, but every table, node, account and plugin is updated once.

use std::sync::Arc;

use super::CycleState;
use super::change::{ChangeOutcome, SessionChange, ShareEvent, TaskMoved, TaskPlacement};
use crate::devices::DeviceMask;
use crate::model::{
    ClusterState, ErrorCode, NodeSlot, PlacedTask, Problem, StoredRecord, TableCursor, TaskRecord, TaskStatus,
};
use crate::plugin_state::{PlacementEvent, TaskTransition};

/// Task that is to be placed on a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingPut<'a> {
    /// Name of the task.
    pub(crate) task: &'a Arc<str>,
    /// Target node.
    pub(crate) to: PutTarget<'a>,
    /// True for a placement on amounts that are being released.
    pub(crate) pipelined: bool,
    /// Card that the task uses there; `None`: not given.
    pub(crate) card: Option<&'a Arc<str>>,
    /// Devices that the task uses there; 0: not given.
    pub(crate) devices: DeviceMask,
}

/// Target node of a placement.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PutTarget<'a> {
    /// Node of this name.
    Named(&'a Arc<str>),
    /// Node at this slot.
    Slot(NodeSlot),
}

impl<'a> PendingPut<'a> {
    /// Placement of a change, if it is one.
    pub(super) fn of(change: &'a SessionChange) -> Option<Self> {
        let (to, pipelined) = change.placement()?;
        Some(Self {
            task: &to.task,
            to: PutTarget::Named(&to.node),
            pipelined,
            card: Some(&to.card),
            devices: to.devices,
        })
    }

    /// Change with the same effect.
    pub(super) fn to_change(self, cluster_state: &ClusterState) -> SessionChange {
        let to = TaskPlacement {
            task: Arc::clone(self.task),
            node: self.node(cluster_state),
            card: self.card.cloned().unwrap_or_default(),
            devices: self.devices,
        };
        if self.pipelined {
            SessionChange::Pipeline(to)
        } else {
            SessionChange::Allocate(to)
        }
    }

    fn node(&self, cluster_state: &ClusterState) -> Arc<str> {
        match self.to {
            PutTarget::Named(node) => Arc::clone(node),
            PutTarget::Slot(slot) => cluster_state.name_of(slot).unwrap_or_default(),
        }
    }

    fn status(&self) -> TaskStatus {
        if self.pipelined {
            TaskStatus::Pipelined
        } else {
            TaskStatus::Allocated
        }
    }

    /// Wire name of the change.
    fn wire_name(&self) -> &'static str {
        if self.pipelined { "pipeline" } else { "allocate" }
    }
}

/// Reason why a task is not placed: code of the warning, and its message.
type PutWarning = (ErrorCode, String);

fn misfit(message: String) -> PutWarning {
    (ErrorCode::ChangeDoesNotFit, message)
}

impl CycleState {
    /// Places tasks on nodes, one after the other. `before` is the number of earlier changes in the caller's list. A
    /// placement that does not fit gives a warning.
    ///
    /// # Errors
    /// A plugin cannot apply a placement. The caller must discard this state.
    pub(super) fn place_all<'a>(
        &mut self,
        before: usize,
        puts: impl Iterator<Item = PendingPut<'a>>,
        outcome: &mut ChangeOutcome,
    ) -> Result<(), Problem> {
        let (mut near, mut arrivals, mut cards) = (TableCursor::default(), Vec::new(), Vec::new());
        let mut counted_count = 0;
        for (number, put) in (before..).zip(puts) {
            let waiting = self.waiting_task(&put, &mut near);
            let picks_devices = |task: &Arc<StoredRecord<TaskRecord>>| task.record.device_request().is_some();
            if put.devices == 0 && waiting.as_ref().is_ok_and(picks_devices) {
                // The devices that are left depend on the placements before.
                self.cluster_state
                    .count_placed(arrivals.get(counted_count..).unwrap_or_default());
                counted_count = arrivals.len();
            }
            match waiting.and_then(|task| self.assign_node(&put, task, &near)) {
                Ok(arrival) => {
                    arrivals.push(arrival);
                    cards.push(put.card);
                }
                Err((code, message)) => {
                    let field = format!("changes[{number}].{}", put.wire_name());
                    let message = format!("{message}; nothing was done");
                    outcome.warnings.push(Problem::new(code, &field, message));
                }
            }
        }
        if arrivals.is_empty() {
            return Ok(());
        }
        self.cluster_state
            .count_placed(arrivals.get(counted_count..).unwrap_or_default());
        self.record_touched(&arrivals, outcome);
        self.record_moved_all(&arrivals, &cards);
        if self.plugin_states.is_empty() {
            return Ok(());
        }
        let events = arrivals.iter().zip(&cards).map(|(arrival, card)| {
            let card = card.map_or("", |card| card);
            let moved = TaskTransition::new(&arrival.before.record, &arrival.after.record, card);
            PlacementEvent::placed(moved)
        });
        let events: Vec<PlacementEvent<'_>> = events.collect();
        let moved = self.plugin_states.apply(&self.cluster_state, &events)?;
        self.touch_queues(&moved, outcome);
        Ok(())
    }

    /// Task of a placement, which waits.
    fn waiting_task(
        &self,
        put: &PendingPut<'_>,
        near: &mut TableCursor,
    ) -> Result<Arc<StoredRecord<TaskRecord>>, PutWarning> {
        let unknown = || {
            let message = format!("there is no task `{}`", put.task);
            (ErrorCode::TaskUnknown, message)
        };
        let stored = self
            .cluster_state
            .tasks()
            .get_with_cursor(put.task, near)
            .ok_or_else(unknown)?;
        if stored.record.status != TaskStatus::Pending {
            self.expect_status(put.task, &[TaskStatus::Pending]).map_err(misfit)?;
        }
        Ok(Arc::clone(stored))
    }

    /// Gives a task its node; nodes and job are not updated yet. The task was found at the cursor.
    fn assign_node(
        &mut self,
        put: &PendingPut<'_>,
        task: Arc<StoredRecord<TaskRecord>>,
        near: &TableCursor,
    ) -> Result<PlacedTask, PutWarning> {
        let slot = match put.to {
            PutTarget::Named(node) => self.cluster_state.slot_of(node),
            PutTarget::Slot(slot) => Some(slot),
        };
        let seated = slot.and_then(|slot| {
            self.cluster_state
                .assign_node(task, put.status(), (slot, put.devices), near)
        });
        seated.ok_or_else(|| misfit(format!("there is no node `{}`", put.node(&self.cluster_state))))
    }

    /// Records changed nodes and queues, and events.
    fn record_touched(&mut self, arrivals: &[PlacedTask], outcome: &mut ChangeOutcome) {
        let cluster_state = &self.cluster_state;
        // A waiting task may name a node as well.
        let named = arrivals.iter().map(|arrival| &arrival.before.record.node);
        let named = named
            .filter(|node| !node.is_empty())
            .filter_map(|node| cluster_state.slot_of(node));
        let slots = arrivals.iter().map(|arrival| arrival.slot).chain(named);
        let mut slots: Vec<NodeSlot> = slots.collect();
        slots.sort_unstable();
        slots.dedup();
        let touched = Arc::make_mut(&mut self.touched);
        touched.nodes.append(&mut slots.iter().copied().collect());
        outcome.nodes.append(&mut slots.into_iter().collect());
        let same_job = |one: &PlacedTask, next: &PlacedTask| one.after.record.job == next.after.record.job;
        for first in arrivals.chunk_by(same_job).filter_map(<[PlacedTask]>::first) {
            if let Some(job) = cluster_state.jobs().get(&first.after.record.job) {
                outcome.queues.insert(Arc::clone(&job.record.queue));
                touched.queues.insert(Arc::clone(&job.record.queue));
            }
        }
        let tasks = arrivals.iter().map(|arrival| Arc::clone(&arrival.after.record.name));
        outcome.events.extend(tasks.map(ShareEvent::Allocate));
    }

    fn record_moved_all(&mut self, arrivals: &[PlacedTask], cards: &[Option<&Arc<str>>]) {
        let mut near = TableCursor::default();
        for (arrival, card) in arrivals.iter().zip(cards) {
            self.moves += 1;
            let before = &arrival.before.record;
            let first = self.moved_tasks.get_with_cursor(&before.name, &mut near);
            let moved = TaskMoved {
                order: self.moves,
                card: card.cloned().unwrap_or_default(),
                status: first.map_or(before.status, |first| first.status),
                node: Arc::clone(first.map_or(&before.node, |first| &first.node)),
            };
            self.moved_tasks
                .insert_with_cursor(&before.name, Arc::new(moved), &mut near);
        }
    }
}
