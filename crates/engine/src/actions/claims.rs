//! Claims: tasks for which others were evicted keep their places from cycle to cycle until they start.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::CycleEvent;
use super::allocation_unit::TaskHeap;
use super::session::ActionSession;
use super::statement::ActionStatement;
use crate::cycle::SessionChange;
use crate::decide::{NodeGradient, SchedulingHeap};
use crate::model::{NodeSlot, Problem, StoredRecord, TaskRecord, TaskStatus};

/// Claims that one cycle hands to the next. A claimant is a task for which others were evicted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CycleClaims {
    /// Nodes that are claimed, by claimant.
    nodes: BTreeMap<Arc<str>, Arc<str>>,
    /// Claimants that have not started since, by the task that was evicted for them.
    evictions: BTreeMap<Arc<str>, Arc<str>>,
}

impl CycleClaims {
    /// Records a cycle: its places replace the places of the previous cycle.
    pub fn record(&mut self, events: &[CycleEvent]) {
        self.nodes.clear();
        for event in events {
            match event {
                CycleEvent::Nominated { task, node } => {
                    self.nodes.insert(Arc::clone(task), Arc::clone(node));
                }
                CycleEvent::Evicted { task, preemptor, .. } if !preemptor.is_empty() => {
                    self.evictions.insert(Arc::clone(task), Arc::clone(preemptor));
                }
                CycleEvent::Bound { task, .. } => self.remove_claimant(task),
                CycleEvent::Enqueued(_)
                | CycleEvent::Evicted { .. }
                | CycleEvent::Pipelined { .. }
                | CycleEvent::PassedOver { .. } => {}
            }
        }
    }

    /// Forgets a claimant that started or is gone.
    pub fn remove_claimant(&mut self, task: &str) {
        self.nodes.remove(task);
        self.evictions.retain(|_, claimant| **claimant != *task);
    }

    /// Tasks for which others were evicted and that have not started since.
    fn claimants(&self) -> BTreeSet<&str> {
        self.evictions.values().map(|claimant| &**claimant).collect()
    }

    /// Claimant that waits and for which this task was evicted.
    pub fn claimant_of(&self, evicted: &str) -> Option<&Arc<str>> {
        self.evictions.get(evicted)
    }
}

/// Gives claimants their places, before any action can give them to others. Under `upstream` each action decides anew.
pub(super) fn run(session: &mut ActionSession<'_>) -> Result<(), Problem> {
    let mut heaps: Vec<TaskHeap> = vec![TaskHeap::new(); session.jobs.len()];
    let mut jobs = SchedulingHeap::new();
    for (number, task) in session.tasks.iter().enumerate() {
        let Some(job) = task.job.filter(|_| session.claimed_node(&task.stored.record).is_some()) else {
            continue;
        };
        let Some(heap) = heaps.get_mut(job) else { continue };
        if heap.is_empty() && !session.is_invalid(job) {
            jobs.push(job, |left, right| session.is_claim_first(left, right));
        }
        heap.push(number, |left, right| session.numbered_task_less(left, right));
    }
    while let Some(job) = jobs.pop(|left, right| session.is_claim_first(left, right)) {
        let mut statement = ActionStatement::default();
        let Some(heap) = heaps.get_mut(job) else { continue };
        while let Some(task) = heap.pop(|left, right| session.numbered_task_less(left, right)) {
            session.place_claimant(&mut statement, (job, task))?;
        }
        if session.is_ready(job) || session.is_pipelined(job) {
            session.commit_claims(job, statement, true);
        } else {
            session.discard(statement)?;
        }
    }
    Ok(())
}

/// Places tasks that wait for releases, and claimants without a place, on amounts that are idle by now: later evictions may
/// have freed more than they needed, of a node or of a queue.
pub(super) fn use_idle_amounts(session: &mut ActionSession<'_>) -> Result<(), Problem> {
    let evicts = |event: &CycleEvent| matches!(event, CycleEvent::Evicted { .. });
    if session.is_upstream() || !session.events.iter().any(evicts) {
        return Ok(());
    }
    session.refresh_tasks();
    let claims = session.claims;
    let claimants = claims.claimants();
    for task in 0..session.tasks.len() {
        session.move_to_idle(task, &claimants)?;
    }
    Ok(())
}

impl ActionSession<'_> {
    /// Moves a task that waits for a release, or a claimant without a place, to idle amounts, if there are enough.
    fn move_to_idle(&mut self, task: usize, claimants: &BTreeSet<&str>) -> Result<(), Problem> {
        let Some((job, record)) = self
            .tasks
            .get(task)
            .and_then(|own| Some((own.job?, Arc::clone(&own.stored))))
        else {
            return Ok(());
        };
        let (name, status) = (&record.record.name, record.record.status);
        let waits = || status == TaskStatus::Pending && !record.record.gated && claimants.contains(&**name);
        let may_start = || !self.is_waiting(job) && !self.is_invalid(job);
        if status != TaskStatus::Pipelined && !(waits() && may_start()) {
            return Ok(());
        }
        let mut before = None;
        if status == TaskStatus::Pipelined {
            self.change(task, &SessionChange::Unpipeline(Arc::clone(name)))?;
            before = self.cycle.cluster_state().slot_of(&record.record.node);
        }
        let Some(waiting) = self.cycle.cluster_state().tasks().get(name).cloned() else {
            return Ok(());
        };
        if let Some(task) = self.tasks.get_mut(task) {
            task.stored = Arc::clone(&waiting);
        }
        let mut statement = ActionStatement::default();
        if self.place_on_idle(&mut statement, (job, task))? {
            if self.is_ready(job) || self.is_pipelined(job) {
                self.commit_claims(job, statement, true);
                return Ok(());
            }
            self.discard(std::mem::take(&mut statement))?;
        }
        if let Some(node) = before {
            self.place_admitted(&mut statement, task, &waiting, (node, TaskStatus::Pipelined))?;
        }
        Ok(())
    }

    /// True if the task was evicted for one that has not started yet: it is not evicted again.
    pub(super) fn is_spared(&self, task: &TaskRecord) -> bool {
        !self.is_upstream() && self.claims.claimant_of(&task.name).is_some()
    }

    /// Node that is claimed for a task that waits.
    fn claimed_node(&self, task: &TaskRecord) -> Option<NodeSlot> {
        if task.status != TaskStatus::Pending || task.gated {
            return None;
        }
        let node = self.claims.nodes.get(&task.name).unwrap_or(&task.nominated_node);
        self.cycle.cluster_state().slot_of(node)
    }

    /// True if the claims of the left job are served before those of the right one.
    fn is_claim_first(&self, left: usize, right: usize) -> bool {
        let queue = |job: usize| self.jobs.get(job).map_or(usize::MAX, |job| job.queue);
        match (queue(left), queue(right)) {
            (own, other) if own == other => self.job_less(left, right),
            (own, other) => self.queue_less(own, other),
        }
    }

    /// Places a claimant: on idle amounts of its node or of another one, else on its node, else where amounts will be idle.
    fn place_claimant(
        &mut self,
        statement: &mut ActionStatement,
        (job, task): (usize, usize),
    ) -> Result<bool, Problem> {
        let Some(stored) = self.stored_task(task) else {
            return Ok(false);
        };
        let claimed = self.claimed_node(&stored.record);
        let claimed = claimed.and_then(|node| self.place_on(&stored.record, node));
        if let Some((node, TaskStatus::Allocated)) = claimed {
            return self.place_admitted(statement, task, &stored, (node, TaskStatus::Allocated));
        }
        let best = self.best_place(job, &stored);
        let best = match (best, claimed) {
            (Some((_, TaskStatus::Allocated)), _) | (_, None) => best,
            (_, Some(_)) => claimed,
        };
        best.map_or(Ok(false), |place| self.place_admitted(statement, task, &stored, place))
    }

    /// Places a task where it fits without an eviction, now or once others are gone; false: it does not.
    pub(super) fn place_without_eviction(
        &mut self,
        statement: &mut ActionStatement,
        (job, task): (usize, usize),
    ) -> Result<bool, Problem> {
        self.place_if(statement, job, task, |_| true)
    }

    /// Places a task on amounts that are idle now; false: it fits nowhere. Under `upstream` a task for which others were
    /// evicted always waits.
    pub(super) fn place_on_idle(
        &mut self,
        statement: &mut ActionStatement,
        (job, task): (usize, usize),
    ) -> Result<bool, Problem> {
        if self.is_upstream() {
            return Ok(false);
        }
        self.place_if(statement, job, task, |status| status == TaskStatus::Allocated)
    }

    /// Places a task on its best node, if its status there passes a condition.
    fn place_if(
        &mut self,
        statement: &mut ActionStatement,
        job: usize,
        task: usize,
        condition: impl Fn(TaskStatus) -> bool,
    ) -> Result<bool, Problem> {
        let Some(stored) = self.stored_task(task) else {
            return Ok(false);
        };
        let best = self.best_place(job, &stored).filter(|(_, status)| condition(*status));
        best.map_or(Ok(false), |place| self.place_admitted(statement, task, &stored, place))
    }

    /// One node as the place of a task, with the status of the task there; `None`: it does not fit.
    fn place_on(&self, task: &TaskRecord, node: NodeSlot) -> Option<(NodeSlot, TaskStatus)> {
        let only = super::allocate::one_node(node, None);
        let passes = |gradient| {
            let passing = self.chooser.passing(self.context(), task, gradient, Some(&only));
            passing.is_ok_and(|passing| !passing.is_empty())
        };
        let gradient = [NodeGradient::Idle, NodeGradient::FutureIdle];
        let gradient = gradient.into_iter().find(|gradient| passes(*gradient))?;
        Some((node, gradient.status()))
    }

    /// Places a task that its queue may take.
    fn place_admitted(
        &mut self,
        statement: &mut ActionStatement,
        task: usize,
        stored: &Arc<StoredRecord<TaskRecord>>,
        (node, status): (NodeSlot, TaskStatus),
    ) -> Result<bool, Problem> {
        let Some(verdict) = self.admitted(&stored.record) else {
            return Ok(false);
        };
        let card = self.card_on(&stored.record, node, verdict);
        self.place(statement, task, (node, card), status)
    }

    /// Records that a job is not ready and has tasks with places. The reference leaves their binds to another cycle.
    pub(super) fn note_unbound(&mut self, job: usize) {
        if !self.is_upstream() {
            self.unbound_jobs.insert(job);
        }
    }

    /// Reports tasks of a job that is not ready and wait on their nodes, as sessions of the reference have them to their end.
    pub(super) fn report_waiting(&mut self, statement: ActionStatement) {
        if self.is_upstream() {
            self.commit(statement.without_binds());
        }
    }

    /// Commits what a job got that is ready: binds are sent, also of tasks that an earlier action of the cycle placed.
    pub(super) fn commit_ready(&mut self, job: usize, statement: ActionStatement) {
        self.commit(statement);
        if self.unbound_jobs.remove(&job) {
            self.bind_allocated(job);
        }
    }

    /// Commits the evictions and places of a preemptor's job if they let it start; otherwise takes them back.
    pub(super) fn commit_if_pipelined(&mut self, job: usize, statement: ActionStatement) -> Result<(), Problem> {
        if !self.is_pipelined(job) {
            return self.discard(statement);
        }
        self.commit_claims(job, statement, false);
        Ok(())
    }

    /// Commits what a job got by evictions or beside them. Binds are sent once the job is ready; until then it keeps its
    /// places, if others were evicted for them.
    pub(super) fn commit_claims(&mut self, job: usize, statement: ActionStatement, keeps: bool) {
        if self.is_upstream() {
            return self.commit(statement);
        }
        let keeps = keeps || statement.evicts();
        let placed = statement.placed_tasks();
        let is_ready = self.is_ready(job);
        if is_ready {
            self.commit_ready(job, statement);
        } else {
            self.commit(statement.without_binds());
            self.unbound_jobs.insert(job);
        }
        for task in placed {
            let waits = |task: &&TaskRecord| matches!(task.status, TaskStatus::Allocated | TaskStatus::Pipelined);
            if let Some(record) = self.present_task(task).filter(|task| keeps && waits(task)) {
                let (task, node) = (Arc::clone(&record.name), Arc::clone(&record.node));
                self.events.push(CycleEvent::Nominated { task, node });
            }
        }
    }
}
