//! Scheduling cycle: a private cluster state, the changes that a scheduler makes to it, and savepoints to return to.
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
//! Under `compatibility: corrected` a change that does not fit has no effect and gives a warning. Under `upstream` it
//! has the reference's effect (`upstream.rs`); where the reference panics, the changes are rejected.

mod assume;
mod change;
mod corrected;
mod enqueue;
mod puts;
mod upstream;
mod weight;

use std::collections::BTreeSet;
use std::sync::Arc;

use super::model::{ClusterState, ErrorCode, JobPhase, NodeSlot, Problem, SortedTable, TaskRecord, TaskStatus};
use super::plugin::{DecisionTime, PluginContext};
use super::plugin_state::{PlacementEvent, PluginStates, TaskTransition};
use super::policy::Compatibility;
pub(crate) use assume::assume;
pub(crate) use puts::{PendingPut, PutTarget};
use upstream::UpstreamState;

pub use change::{ChangeOutcome, SessionChange, ShareEvent, TaskMoved, TaskPlacement};

/// State that a savepoint restores.
#[derive(Clone, Debug)]
struct CycleState {
    cluster_state: ClusterState,
    /// Status before its eviction, of each task evicted in this cycle.
    evicted: SortedTable<TaskStatus>,
    upstream: Option<UpstreamState>,
    /// Plugin states of the cluster state.
    plugin_states: PluginStates,
    /// Jobs that were enqueued for good and are not confirmed or rejected yet, in order.
    enqueued: Arc<Vec<Arc<str>>>,
    /// Tasks that were moved since the beginning of the cycle.
    moved_tasks: SortedTable<Arc<TaskMoved>>,
    /// Number of moves.
    moves: u64,
    /// Bytes that the savepoints so far do not share with the state at the beginning.
    savepoint_bytes: usize,
    /// Records changed since the last savepoint; each savepoint holds only its own part.
    touched: Arc<TouchedRecords>,
}

/// Effect of a change on a task's requests.
#[derive(Clone, Copy, Debug)]
enum RequestEffect {
    Allocate,
    Deallocate,
}

#[derive(Clone, Debug, Default)]
struct TouchedRecords {
    nodes: BTreeSet<NodeSlot>,
    queues: BTreeSet<Arc<str>>,
}

/// Rules by which a cycle changes nodes.
#[derive(Clone, Copy, Debug)]
pub struct NodeChangeRules {
    /// Compatibility of the policy.
    pub compatibility: Compatibility,
    /// True if filters and scores of Kubernetes see which pods the cycle moves, see
    /// [`PluginHooks::moves_pods`](crate::plugin::PluginHooks::moves_pods).
    pub moves_pods: bool,
}

impl NodeChangeRules {
    /// True if filters and scores of Kubernetes show the pods as the cycle found them.
    pub fn keeps_pods(self) -> bool {
        self.compatibility.is_upstream() && !self.moves_pods
    }
}

#[cfg(test)]
impl From<Compatibility> for NodeChangeRules {
    fn from(compatibility: Compatibility) -> Self {
        Self {
            compatibility,
            moves_pods: true,
        }
    }
}

/// Private copy of the state, which one scheduler changes.
#[derive(Clone, Debug)]
pub struct SchedulingCycle {
    initial: Arc<CycleState>,
    state: CycleState,
    savepoints: Vec<(Arc<str>, Arc<CycleState>)>,
}

impl SchedulingCycle {
    /// Starts a cycle on a cluster state and its plugin states. Under `upstream` the reference panics if drf subtracts
    /// more than it has added. The cycle rejects such changes.
    pub fn new(mut cluster_state: ClusterState, rules: NodeChangeRules, derived: PluginStates) -> Self {
        let upstream = match rules.compatibility {
            Compatibility::Upstream(_) => {
                cluster_state.begin_upstream_cycle(rules.moves_pods);
                Some(UpstreamState::new(cluster_state.clone(), rules))
            }
            Compatibility::Corrected => None,
        };
        let state = CycleState {
            cluster_state,
            evicted: SortedTable::default(),
            upstream,
            plugin_states: derived,
            enqueued: Arc::default(),
            moved_tasks: SortedTable::default(),
            moves: 0,
            savepoint_bytes: 0,
            touched: Arc::default(),
        };
        Self {
            initial: Arc::new(state.clone()),
            state,
            savepoints: Vec::new(),
        }
    }

    /// Number of savepoints.
    pub fn savepoint_count(&self) -> usize {
        self.savepoints.len()
    }

    /// State at the beginning.
    pub fn initial_state(&self) -> &ClusterState {
        &self.initial.cluster_state
    }

    /// Plugin states at the beginning.
    pub fn initial_plugin_states(&self) -> &PluginStates {
        &self.initial.plugin_states
    }

    /// Present state.
    pub fn cluster_state(&self) -> &ClusterState {
        &self.state.cluster_state
    }

    /// Tasks that were moved and not restored by a rollback, by name.
    pub fn moved_tasks(&self) -> impl Iterator<Item = (&Arc<str>, &TaskMoved)> {
        self.state.moved_tasks.iter().map(|(task, moved)| (task, &**moved))
    }

    /// Plugin states of the present state.
    pub fn plugin_states(&self) -> &PluginStates {
        &self.state.plugin_states
    }

    /// Context of the present state, at a time in seconds since 1970.
    pub fn plugin_context(&self, now: Option<DecisionTime>) -> PluginContext<'_> {
        PluginContext::new(self.cluster_state(), self.plugin_states(), now)
    }

    /// Jobs that were enqueued for good since the last [`Self::resolve_enqueued`], in order.
    pub fn enqueued(&self) -> &[Arc<str>] {
        &self.state.enqueued
    }

    /// Resolves enqueued jobs: a confirmed job stays enqueued, a rejected job waits again. The outcome lists the queues
    /// whose accounts changed.
    ///
    /// # Errors
    /// A plugin cannot apply the change. The caller must discard the cycle.
    pub fn resolve_enqueued(&mut self, confirmed: &[Arc<str>], refused: &[Arc<str>]) -> Result<ChangeOutcome, Problem> {
        let mut outcome = ChangeOutcome::default();
        let resolved: BTreeSet<&Arc<str>> = confirmed.iter().chain(refused).collect();
        Arc::make_mut(&mut self.state.enqueued).retain(|job| !resolved.contains(job));
        for job in refused {
            self.state.dequeue(job, &mut outcome)?;
        }
        Ok(outcome)
    }

    /// Runs a query that changes the plugin states; after an error all plugin states are as before.
    ///
    /// # Errors
    /// The error of the query.
    pub fn query_plugins<T, E>(
        &mut self,
        query: impl FnOnce(&ClusterState, &mut PluginStates) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut derived = self.state.plugin_states.clone();
        let result = query(&self.state.cluster_state, &mut derived)?;
        self.state.plugin_states = derived;
        Ok(result)
    }

    /// Copies of tasks on a node, by name. They differ from the tasks only in a cycle under `upstream`.
    pub fn node_tasks(&self, node: &str) -> Vec<(Arc<str>, TaskStatus)> {
        let tasks = self.state.cluster_state.tasks().iter();
        let copies = tasks.filter_map(|(name, task)| {
            match &self.state.upstream {
                Some(upstream) => upstream
                    .copies(&self.state.cluster_state, name)
                    .iter()
                    .find(|copy| *copy.node == *node)
                    .map(|copy| copy.status),
                None => (*task.record.node == *node && task.record.status.is_on_node()).then_some(task.record.status),
            }
            .map(|status| (Arc::clone(name), status))
        });
        copies.collect()
    }

    /// Applies changes in order, all or none.
    ///
    /// # Errors
    /// One of the changes cannot be applied; none was.
    pub fn apply(&mut self, changes: &[SessionChange]) -> Result<ChangeOutcome, Problem> {
        self.apply_from(0, changes)
    }

    /// Applies changes like [`Self::apply`]. `before` is the number of changes before them in the caller's list, by
    /// which problems number them.
    ///
    /// # Errors
    /// The errors of [`Self::apply`].
    pub fn apply_from(&mut self, before: usize, changes: &[SessionChange]) -> Result<ChangeOutcome, Problem> {
        let (mut next, mut outcome) = (self.clone(), ChangeOutcome::default());
        let mut at = 0;
        while let Some(rest) = changes.get(at..).filter(|rest| !rest.is_empty()) {
            let puts = rest.iter().map_while(PendingPut::of);
            let row = if next.state.upstream.is_some() {
                0
            } else {
                puts.clone().count()
            };
            if row > 1 {
                if next.state.place_all(before + at, puts, &mut outcome).is_err() {
                    // Applying them one by one finds the one that failed.
                    return self.apply_one_by_one(before, changes);
                }
                at += row;
            } else {
                next.apply_numbered(before + at, rest.first(), &mut outcome)?;
                at += 1;
            }
        }
        *self = next;
        Ok(outcome)
    }

    /// Applies changes like [`Self::apply_from`], without batching placements.
    fn apply_one_by_one(&mut self, before: usize, changes: &[SessionChange]) -> Result<ChangeOutcome, Problem> {
        let (mut next, mut outcome) = (self.clone(), ChangeOutcome::default());
        for (number, change) in (before..).zip(changes) {
            next.apply_numbered(number, Some(change), &mut outcome)?;
        }
        *self = next;
        Ok(outcome)
    }

    /// Places tasks on nodes in order, all or none, with the effect of the corresponding changes.
    ///
    /// # Errors
    /// The errors of [`Self::apply`].
    pub(crate) fn place_all(&mut self, puts: &[PendingPut<'_>]) -> Result<ChangeOutcome, Problem> {
        if self.state.upstream.is_none() {
            let (mut next, mut outcome) = (self.state.clone(), ChangeOutcome::default());
            if next.place_all(0, puts.iter().copied(), &mut outcome).is_ok() {
                self.state = next;
                return Ok(outcome);
            }
        }
        let changes: Vec<SessionChange> = puts.iter().map(|put| put.to_change(self.cluster_state())).collect();
        self.apply_one_by_one(0, &changes)
    }

    /// Session form of Allocate and Pipeline in the reference. It leaves a rejected task half placed: status and node
    /// are set, but the node's usage does not include the task. Only for a cycle under `upstream`.
    ///
    /// # Errors
    /// The reference rejects the placement; the state is as the reference leaves it.
    pub fn place_without_rollback(
        &mut self,
        placement: &TaskPlacement,
        status: TaskStatus,
    ) -> Result<ChangeOutcome, Problem> {
        let mut outcome = ChangeOutcome::default();
        let Some(mut upstream) = self.state.upstream.take() else {
            return Err(Problem::new(
                ErrorCode::ChangeUpstreamOnly,
                "",
                "only under `compatibility: upstream`",
            ));
        };
        let placed = upstream.place(&mut self.state, placement, status, &mut outcome);
        self.state.upstream = Some(upstream);
        placed
            .map(|()| outcome)
            .map_err(|rejection| Problem::new(ErrorCode::PlaceRejected, "", rejection))
    }

    /// Applies one change. After an error the cycle is of no use any more.
    ///
    /// # Errors
    /// The errors of [`Self::apply`].
    pub(crate) fn apply_in_place(&mut self, change: &SessionChange) -> Result<ChangeOutcome, Problem> {
        let mut outcome = ChangeOutcome::default();
        self.apply_one(change, "", &mut outcome)?;
        Ok(outcome)
    }

    /// Sets the phase of a waiting job to Inqueue, without an event for plugins.
    pub(crate) fn count_as_enqueued(&mut self, job: &str) {
        let state = &mut self.state.cluster_state;
        if let Some(stored) = state.jobs().get(job).cloned() {
            enqueue::put_phase(state, &stored, JobPhase::Inqueue);
        }
    }

    /// Records that the scheduler has sent the bind of an allocated task. Only its status changes, to Binding. Returns
    /// its node. `None`: the task does not exist.
    pub fn bind(&mut self, task: &str) -> Option<Arc<str>> {
        let state = &mut self.state.cluster_state;
        if let Some(bound) = state.set_holding_status(task, TaskStatus::Binding) {
            return Some(Arc::clone(&bound.node));
        }
        let stored = state.tasks().get(task).cloned()?;
        state.set_task(TaskRecord {
            status: TaskStatus::Binding,
            ..stored.record.clone()
        });
        Some(Arc::clone(&stored.record.node))
    }

    fn apply_numbered(
        &mut self,
        number: usize,
        change: Option<&SessionChange>,
        outcome: &mut ChangeOutcome,
    ) -> Result<(), Problem> {
        let Some(change) = change else { return Ok(()) };
        let field = format!("changes[{number}].{}", change.wire_name());
        self.apply_one(change, &field, outcome)
    }

    fn apply_one(&mut self, change: &SessionChange, field: &str, outcome: &mut ChangeOutcome) -> Result<(), Problem> {
        match change {
            SessionChange::Savepoint(name) => {
                self.state.savepoint_bytes += self.bytes_since_savepoint();
                self.savepoints.push((Arc::clone(name), Arc::new(self.state.clone())));
                self.state.touched = Arc::default();
                Ok(())
            }
            SessionChange::RollbackTo(name) => self.roll_back(name, field, outcome),
            SessionChange::JobEnqueued(job) => self.state.enqueue(job, field, outcome),
            SessionChange::Allocate(_)
            | SessionChange::Pipeline(_)
            | SessionChange::Evict(_)
            | SessionChange::Unallocate(_)
            | SessionChange::Unpipeline(_)
            | SessionChange::Unevict(_)
            | SessionChange::BindFailed(_) => {
                let task = change.task().map_or("", |task| task);
                if self.state.cluster_state.tasks().contains(task) {
                    return self.state.apply_to_task(change, field, outcome);
                }
                outcome.warnings.push(Problem::new(
                    ErrorCode::TaskUnknown,
                    field,
                    format!("there is no task `{task}`; nothing was done"),
                ));
                Ok(())
            }
        }
    }

    fn roll_back(&mut self, name: &str, field: &str, outcome: &mut ChangeOutcome) -> Result<(), Problem> {
        let Some(at) = self.savepoints.iter().rposition(|(mark, _)| **mark == *name) else {
            let message = format!("there is no savepoint `{name}`");
            return Err(Problem::new(ErrorCode::SavepointUnknown, field, message));
        };
        let later = self.savepoints.iter().skip(at + 1).map(|(_, state)| &state.touched);
        for touched in later.chain([&self.state.touched]) {
            outcome.nodes.extend(&touched.nodes);
            outcome.queues.extend(touched.queues.iter().cloned());
        }
        self.savepoints.truncate(at + 1);
        if let Some((_, saved)) = self.savepoints.last() {
            self.state = CycleState::clone(saved);
            self.state.touched = Arc::default();
        }
        Ok(())
    }
}

impl CycleState {
    fn apply_to_task(
        &mut self,
        change: &SessionChange,
        field: &str,
        outcome: &mut ChangeOutcome,
    ) -> Result<(), Problem> {
        if let Some(mut upstream) = self.upstream.take() {
            let done = upstream.apply(self, change, field, outcome);
            self.upstream = Some(upstream);
            return done;
        }
        let Some(task) = change.task() else { return Ok(()) };
        let Some(before) = self.cluster_state.tasks().get(task).cloned() else {
            return Ok(());
        };
        match self.apply_corrected(change, outcome) {
            Ok(step) => self
                .notify_moved(step, &before.record, change.card(), outcome)
                .map_err(|problem| problem.within(field)),
            Err(misfit) => {
                let message = format!("{misfit}; nothing was done");
                outcome
                    .warnings
                    .push(Problem::new(ErrorCode::ChangeDoesNotFit, field, message));
                Ok(())
            }
        }
    }

    /// Reports a task's change to the plugins and to the outcome.
    fn notify_moved(
        &mut self,
        step: RequestEffect,
        before: &TaskRecord,
        card: &str,
        outcome: &mut ChangeOutcome,
    ) -> Result<(), Problem> {
        let task = Arc::clone(&before.name);
        self.record_moved(before, card);
        outcome.events.push(match step {
            RequestEffect::Allocate => ShareEvent::Allocate(task),
            RequestEffect::Deallocate => ShareEvent::Deallocate(task),
        });
        if self.plugin_states.is_empty() {
            return Ok(());
        }
        let Some(stored) = self.cluster_state.tasks().get(&before.name) else {
            return Ok(());
        };
        let after = &stored.record;
        let moved = TaskTransition::new(before, after, card);
        let event = match step {
            RequestEffect::Allocate => PlacementEvent::placed(moved),
            RequestEffect::Deallocate => PlacementEvent::Deallocate(moved),
        };
        let moved = self.plugin_states.apply(&self.cluster_state, &[event])?;
        self.touch_queues(&moved, outcome);
        Ok(())
    }

    fn record_moved(&mut self, before: &TaskRecord, card: &str) {
        self.moves += 1;
        let first = self.moved_tasks.get(&before.name);
        let moved = TaskMoved {
            order: self.moves,
            card: Arc::from(card),
            status: first.map_or(before.status, |first| first.status),
            node: Arc::clone(first.map_or(&before.node, |first| &first.node)),
        };
        self.moved_tasks.insert(Arc::clone(&before.name), Arc::new(moved));
    }

    fn touch_queues<'a>(
        &mut self,
        queues: impl IntoIterator<Item = &'a Arc<str>> + Clone,
        outcome: &mut ChangeOutcome,
    ) {
        let touched = Arc::make_mut(&mut self.touched);
        touched.queues.extend(queues.clone().into_iter().cloned());
        outcome.queues.extend(queues.into_iter().cloned());
    }

    fn touch(&mut self, nodes: &[&str], job: &str, outcome: &mut ChangeOutcome) {
        let touched = Arc::make_mut(&mut self.touched);
        let named = nodes.iter().filter(|node| !node.is_empty());
        for slot in named.filter_map(|node| self.cluster_state.slot_of(node)) {
            outcome.nodes.insert(slot);
            touched.nodes.insert(slot);
        }
        if let Some(job) = self.cluster_state.jobs().get(job) {
            outcome.queues.insert(Arc::clone(&job.record.queue));
            touched.queues.insert(Arc::clone(&job.record.queue));
        }
    }
}
