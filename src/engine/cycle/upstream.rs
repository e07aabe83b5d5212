//! Changes exactly as the reference makes them (Volcano ed72c7c81, framework/statement.go and session.go), mistakes
//! included: a node keeps copies of its tasks and an idle vector of its own, and no verb looks at the status before.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Change, Outcome, Placement, Problem, ProblemKind, State, Step, problem};
use crate::engine::model::{
    Amounts, NodeEntry, ResourceId, Stored, Table, TaskRecord, TaskStatus, UpstreamNode, Vector, View,
};

/// A task's copies: nodes that hold one, and the status that it has there.
type Copies = Vec<(Arc<str>, TaskStatus)>;

type Amounts128 = BTreeMap<ResourceId, i128>;

/// What the reference keeps beside the tasks.
#[derive(Clone, Debug)]
pub(super) struct Upstream {
    /// The state at the beginning.
    opened: View,
    /// Of tasks that were touched.
    copies: Table<Arc<Copies>>,
}

impl Upstream {
    pub(super) fn new(opened: View) -> Self {
        Self {
            opened,
            copies: Table::default(),
        }
    }

    pub(super) fn copies(&self, view: &View, task: &str) -> Copies {
        if let Some(copies) = self.copies.get(task) {
            return Copies::clone(copies);
        }
        let Some(stored) = self.opened.tasks().get(task) else {
            return Vec::new();
        };
        let record = &stored.record;
        let on_node = record.status.is_on_node() && view.slot_of(&record.node).is_some();
        if on_node {
            vec![(Arc::clone(&record.node), record.status)]
        } else {
            Vec::new()
        }
    }

    pub(super) fn apply(
        &mut self,
        state: &mut State,
        change: &Change,
        field: &str,
        outcome: &mut Outcome,
    ) -> Result<(), Problem> {
        let refused = match change {
            Change::Allocate(to) => self.place_or_roll_back(state, to, TaskStatus::Allocated, outcome),
            Change::Pipeline(to) => self.place_or_roll_back(state, to, TaskStatus::Pipelined, outcome),
            Change::Evict(task) => self.restate(state, task, TaskStatus::Releasing, outcome).map(|()| None),
            Change::Unevict(task) => self.restate(state, task, TaskStatus::Running, outcome).map(|()| None),
            Change::Unallocate(task) | Change::Unpipeline(task) | Change::BindFailed(task) => {
                self.withdraw(state, task, outcome).map(|()| None)
            }
            Change::JobEnqueued(_) | Change::Savepoint(_) | Change::RollbackTo(_) => Ok(None),
        };
        match refused {
            Ok(None) => Ok(()),
            Ok(Some(refusal)) => {
                let message = format!("{refusal}; as in the reference, the task lost its place and is Pending");
                outcome
                    .warnings
                    .push(problem(ProblemKind::Refused, "PLACE_REFUSED", field, message));
                Ok(())
            }
            Err(panic) => Err(problem(ProblemKind::Refused, "REFERENCE_PANICS", field, panic)),
        }
    }

    /// Allocate and Pipeline as a Statement does them: what is refused is rolled back, and events fire for both.
    fn place_or_roll_back(
        &mut self,
        state: &mut State,
        to: &Placement,
        status: TaskStatus,
        outcome: &mut Outcome,
    ) -> Result<Option<String>, String> {
        let before = task_of(state, &to.task);
        let refused = self.join(state, to, status, outcome).err();
        tell(state, step(status), before.as_deref(), &to.card, outcome)?;
        if refused.is_some() {
            self.withdraw(state, &to.task, outcome)?;
        }
        Ok(refused)
    }

    /// Allocate and Pipeline as a Session does them: what is refused stays half done, without an event.
    pub(super) fn place(
        &mut self,
        state: &mut State,
        to: &Placement,
        status: TaskStatus,
        outcome: &mut Outcome,
    ) -> Result<(), String> {
        if state.view.slot_of(&to.node).is_none() {
            set(state, &to.task, status, Some(&to.node));
            return Err(format!("there is no node `{}`", to.node));
        }
        let before = task_of(state, &to.task);
        self.join(state, to, status, outcome)?;
        tell(state, step(status), before.as_deref(), &to.card, outcome)
    }

    fn join(
        &mut self,
        state: &mut State,
        to: &Placement,
        status: TaskStatus,
        outcome: &mut Outcome,
    ) -> Result<(), String> {
        let copies = self.copies(&state.view, &to.task);
        set(state, &to.task, status, Some(&to.node));
        let Some(record) = state.view.tasks().get(&to.task).map(|stored| stored.record.clone()) else {
            return Ok(());
        };
        state.touch(&[&to.node], &record.job, outcome);
        self.copies.insert(Arc::clone(&to.task), Arc::new(copies));
        self.add_copy(state, &record, &to.node)
    }

    /// Evict and unevict: another status, on the same node.
    fn restate(
        &mut self,
        state: &mut State,
        task: &Arc<str>,
        status: TaskStatus,
        outcome: &mut Outcome,
    ) -> Result<(), String> {
        let before = task_of(state, task);
        let copies = self.copies(&state.view, task);
        self.copies.insert(Arc::clone(task), Arc::new(copies));
        set(state, task, status, None);
        let Some(record) = state.view.tasks().get(task).map(|stored| stored.record.clone()) else {
            return Ok(());
        };
        state.touch(&[&record.node], &record.job, outcome);
        if state.view.slot_of(&record.node).is_some() {
            self.remove_copy(state, &record, &record.node);
            self.add_copy(state, &record, &record.node)?;
        }
        let step = if status == TaskStatus::Running {
            Step::Allocate
        } else {
            Step::Deallocate
        };
        tell(state, step, before.as_deref(), "", outcome)
    }

    /// Unallocate and unpipeline.
    fn withdraw(&mut self, state: &mut State, task: &Arc<str>, outcome: &mut Outcome) -> Result<(), String> {
        let before = task_of(state, task);
        let copies = self.copies(&state.view, task);
        self.copies.insert(Arc::clone(task), Arc::new(copies));
        set(state, task, TaskStatus::Pending, None);
        let Some(record) = state.view.tasks().get(task).map(|stored| stored.record.clone()) else {
            return Ok(());
        };
        state.touch(&[&record.node], &record.job, outcome);
        self.remove_copy(state, &record, &record.node);
        tell(state, Step::Deallocate, before.as_deref(), "", outcome)?;
        set(state, task, TaskStatus::Pending, Some(&Arc::default()));
        Ok(())
    }

    fn add_copy(&mut self, state: &mut State, task: &TaskRecord, node: &Arc<str>) -> Result<(), String> {
        if state.view.slot_of(node).is_none() {
            return Err(format!("there is no node `{node}`"));
        }
        let mut copies = self.copies(&state.view, &task.name);
        if copies.iter().any(|(at, _)| at == node) {
            return Err(format!("task `{}` is already on node `{node}`", task.name));
        }
        change_node(&mut state.view, node, task, task.status, true);
        copies.push((Arc::clone(node), task.status));
        self.copies.insert(Arc::clone(&task.name), Arc::new(copies));
        Ok(())
    }

    fn remove_copy(&mut self, state: &mut State, task: &TaskRecord, node: &str) {
        let mut copies = self.copies(&state.view, &task.name);
        let Some(at) = copies.iter().position(|(at, _)| **at == *node) else {
            return;
        };
        let (_, status) = copies.remove(at);
        change_node(&mut state.view, node, task, status, false);
        self.copies.insert(Arc::clone(&task.name), Arc::new(copies));
    }
}

fn task_of(state: &State, task: &str) -> Option<Arc<Stored<TaskRecord>>> {
    state.view.tasks().get(task).cloned()
}

fn step(status: TaskStatus) -> Step {
    if status == TaskStatus::Pipelined {
        Step::Pipeline
    } else {
        Step::Allocate
    }
}

/// Events fire whatever the task's status was. An error is a panic of the reference.
fn tell(
    state: &mut State,
    step: Step,
    before: Option<&Stored<TaskRecord>>,
    card: &str,
    outcome: &mut Outcome,
) -> Result<(), String> {
    let Some(before) = before else { return Ok(()) };
    state
        .moved(step, &before.record, card, outcome)
        .map_err(|problem| problem.message)
}

/// Status, and a node if there is one, of the task alone; its job follows.
fn set(state: &mut State, task: &str, status: TaskStatus, node: Option<&Arc<str>>) {
    let Some(stored) = state.view.tasks().get(task) else {
        return;
    };
    let node = Arc::clone(node.unwrap_or(&stored.record.node));
    let record = TaskRecord {
        node,
        status,
        ..stored.record.clone()
    };
    state.view.set_task(record);
}

type Sum = fn(&mut Amounts128, &Amounts);

/// Puts a task on the node as one of this status, or takes it away.
fn change_node(view: &mut View, node: &str, task: &TaskRecord, status: TaskStatus, joins: bool) {
    view.change_node(node, |entry| change_entry(entry, task, status, joins));
}

/// The same on the node itself.
pub(super) fn change_entry(entry: &mut NodeEntry, task: &TaskRecord, status: TaskStatus, joins: bool) {
    let (forward, back): (Sum, Sum) = if joins { (add, subtract) } else { (subtract, add) };
    let requests = &task.requests;
    let mut own = entry.upstream.take().unwrap_or_else(|| Arc::new(vectors(entry)));
    let vectors = Arc::make_mut(&mut own);
    match (status, joins) {
        (TaskStatus::Pipelined, _) => {}
        (_, true) => vectors.surplus.add_task(task),
        (_, false) => vectors.surplus.subtract_task(task),
    }
    match status {
        TaskStatus::Pipelined => forward(&mut vectors.pipelined, requests),
        TaskStatus::Releasing => {
            back(&mut vectors.idle, requests);
            forward(&mut vectors.used, requests);
            forward(&mut vectors.releasing, requests);
        }
        TaskStatus::Pending
        | TaskStatus::Allocated
        | TaskStatus::Binding
        | TaskStatus::Bound
        | TaskStatus::Running
        | TaskStatus::Succeeded
        | TaskStatus::Failed
        | TaskStatus::Unknown => {
            back(&mut vectors.idle, requests);
            forward(&mut vectors.used, requests);
        }
    }
    entry.upstream = Some(own);
}

/// A node's vectors at the beginning. Idle lacks all scalars where allocatable has none.
fn vectors(entry: &NodeEntry) -> UpstreamNode {
    let all = |vector| -> Amounts128 {
        entry
            .resources()
            .filter_map(|id| entry.exact(id, vector).map(|amount| (id, amount)))
            .collect()
    };
    let (mut idle, used) = (all(Vector::Allocatable), all(Vector::Used));
    let scalars = idle.keys().any(|id| is_scalar(*id));
    for (id, amount) in &used {
        if scalars || !is_scalar(*id) {
            *idle.entry(*id).or_default() -= amount;
        }
    }
    UpstreamNode {
        idle,
        used,
        releasing: all(Vector::Releasing),
        pipelined: all(Vector::Pipelined),
        surplus: entry.surplus(),
    }
}

fn is_scalar(id: ResourceId) -> bool {
    id != ResourceId::CPU && id != ResourceId::MEMORY
}

fn add(total: &mut Amounts128, requests: &Amounts) {
    for (id, amount) in requests.iter() {
        *total.entry(id).or_default() += i128::from(amount);
    }
}

/// A total without any scalar is not charged for scalars.
fn subtract(total: &mut Amounts128, requests: &Amounts) {
    let scalars = total.keys().any(|id| is_scalar(*id));
    for (id, amount) in requests.iter().filter(|(id, _)| scalars || !is_scalar(*id)) {
        *total.entry(id).or_default() -= i128::from(amount);
    }
}
