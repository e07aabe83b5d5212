//! Allocate: tasks of enqueued jobs are placed, a job of the first queue after the other. A job gets its tasks together until it
//! is ready, and then one task each time that it comes first.

use std::sync::Arc;

use super::allocation_unit::{AllocationUnit, TaskHeap};
use super::error_cache::RoleErrorCache;
use super::gang_start::GangStart;
use super::group_worksheet::GroupWorksheet;
use super::queued_jobs::QueuedJobs;
use super::session::ActionSession;
use super::statement::ActionStatement;
use crate::decide::{AdmitVerdict, IdleChoice, NodeChoice, NodeGradient, PassingNodes, is_group_ready};
use crate::model::{CHUNK_SIZE, NodeMask, NodeSlot, Problem, StoredRecord, TaskRecord, TaskStatus};

/// Runs the action. Without the action enqueue, waiting jobs are treated as enqueued.
pub(super) fn run(session: &mut ActionSession<'_>, enqueues: bool) -> Result<(), Problem> {
    session.refresh_tasks();
    let mut jobs = QueuedJobs::new(session);
    let mut tasks: Vec<TaskHeap> = vec![TaskHeap::new(); session.jobs.len()];
    let mut groups: Vec<Option<GroupWorksheet>> = vec![None; session.jobs.len()];
    for job in 0..session.jobs.len() {
        if session.is_waiting(job) {
            if enqueues {
                continue;
            }
            session.count_as_enqueued(job);
        }
        if session.is_invalid(job) {
            continue;
        }
        let pending = session.allocatable_tasks(job);
        if pending.is_empty() {
            continue;
        }
        if let Some(sheet) = session.group_worksheet(job, &pending) {
            if let Some(place) = groups.get_mut(job) {
                *place = Some(sheet);
            }
        } else if let Some(heap) = tasks.get_mut(job) {
            for task in pending {
                heap.push(task, |left, right| session.numbered_task_less(left, right));
            }
        }
        jobs.push(session, job);
    }
    while let Some(queue) = jobs.pop_queue(session) {
        if session.is_overused(queue) {
            continue;
        }
        let Some(job) = jobs.pop_job(session, queue) else {
            continue;
        };
        let left = match (groups.get_mut(job).and_then(Option::as_mut), tasks.get_mut(job)) {
            (Some(sheet), _) => session.allocate_groups(job, sheet)?,
            (None, Some(waiting)) => session.allocate_job(job, waiting)?,
            (None, None) => false,
        };
        if left {
            jobs.push(session, job);
        }
        jobs.return_queue(session, queue);
    }
    Ok(())
}

/// Place that was found for a task.
pub(super) enum TaskPlace {
    /// Node, and the status of the task there.
    Found(NodeSlot, TaskStatus),
    /// No node passes every filter.
    NoneFits,
    /// Nodes pass, and none can be chosen.
    Unscored(Problem),
}

impl ActionSession<'_> {
    /// Treats a waiting job as enqueued, because the policy has no action enqueue.
    fn count_as_enqueued(&mut self, job: usize) {
        if let Some(name) = self.jobs.get(job).map(|job| Arc::clone(&job.name)) {
            self.cycle.count_as_enqueued(&name);
        }
    }

    /// Pending tasks of a job that request something and have no foreign gate.
    fn allocatable_tasks(&self, job: usize) -> Vec<usize> {
        let mut pending = self.tasks_of(job, TaskStatus::Pending);
        pending.retain(|task| {
            let task = self.tasks.get(*task).map(|task| &task.stored.record);
            task.is_some_and(|task| !task.has_foreign_gate() && !task.requests.is_only_pods())
        });
        pending
    }

    /// Places tasks of a job; true: the job is ready, and tasks are left.
    fn allocate_job(&mut self, job: usize, waiting: &mut TaskHeap) -> Result<bool, Problem> {
        let Some((statement, is_ready)) = self.allocate_tasks(job, waiting)? else {
            return Ok(false);
        };
        // The places of a job that is pipelined stay taken, and no bind is sent.
        if !is_ready {
            self.note_unbound(job);
            self.report_waiting(statement);
            return Ok(false);
        }
        self.commit_ready(job, statement);
        Ok(!waiting.is_empty())
    }

    /// Places tasks of a job until it is ready. Returns whether it is ready. `None`: the job is neither ready nor
    /// pipelined, and all changes were undone.
    fn allocate_tasks(
        &mut self,
        job: usize,
        waiting: &mut TaskHeap,
    ) -> Result<Option<(ActionStatement, bool)>, Problem> {
        let mut statement = ActionStatement::default();
        match self.start_gang(job, waiting, &mut statement)? {
            GangStart::Impossible => return Ok(None),
            GangStart::Started if self.is_ready(job) => return Ok(Some((statement, true))),
            GangStart::Started | GangStart::TaskByTask => {}
        }
        let unit = AllocationUnit {
            job,
            group: None,
            needs_all_tasks: self.needs_all_tasks(job),
        };
        self.allocate_one_by_one(unit, waiting, &mut statement)?;
        let is_ready = self.is_ready(job);
        if is_ready || self.is_pipelined(job) {
            return Ok(Some((statement, is_ready)));
        }
        self.discard(statement)?;
        Ok(None)
    }

    /// Places one task after the other until the job or the group is ready, or cannot get what it needs.
    pub(super) fn allocate_one_by_one(
        &mut self,
        unit: AllocationUnit<'_>,
        waiting: &mut TaskHeap,
        statement: &mut ActionStatement,
    ) -> Result<(), Problem> {
        let job = unit.job;
        let mut errors = self.new_error_cache();
        while let Some(task) = waiting.pop(|left, right| self.numbered_task_less(left, right)) {
            let Some(stored) = self.stored_task(task) else { continue };
            let record = &stored.record;
            let Some(verdict) = self.admitted(record) else { continue };
            if record.gated || self.has_failed_role(job, record) {
                continue;
            }
            match self.find_node(&stored, job, &mut errors) {
                TaskPlace::Found(node, status) => {
                    let card = self.card_on(record, node, verdict);
                    if !self.place(statement, task, (node, card), status)? {
                        continue;
                    }
                    if self.is_unit_ready(&unit) {
                        break;
                    }
                }
                TaskPlace::NoneFits => {
                    self.record_failed_role(job, record);
                    if unit.needs_all_tasks || !self.may_continue(job) {
                        break;
                    }
                }
                TaskPlace::Unscored(problem) => self.pass_over(&record.name, problem),
            }
        }
        Ok(())
    }

    fn is_unit_ready(&self, unit: &AllocationUnit<'_>) -> bool {
        match unit.group {
            None => self.is_ready(unit.job),
            Some(group) => is_group_ready(self.policy, self.context(), group),
        }
    }

    /// True if a job cannot start without all its tasks.
    fn needs_all_tasks(&self, job: usize) -> bool {
        let (Some(own), Some(record)) = (self.jobs.get(job), self.job_record(job)) else {
            return true;
        };
        usize::try_from(record.min_member).is_ok_and(|least| least >= own.tasks.len())
    }

    /// Card that a task uses on a node, if a plugin assigns one.
    pub(super) fn card_on(&self, task: &TaskRecord, node: NodeSlot, verdict: AdmitVerdict) -> Arc<str> {
        let cards: Vec<Arc<str>> = verdict.cards.into_iter().map(|(card, _)| card).collect();
        let name = self.cycle.cluster_state().name_of(node).unwrap_or_default();
        let card = self.policy.card_on_node(self.context(), task, &name, &cards);
        card.unwrap_or_default()
    }

    /// True if an earlier task of the role found no node in this session, after which the reference tries no other.
    fn has_failed_role(&self, job: usize, task: &TaskRecord) -> bool {
        let role = task.role();
        let job = self.jobs.get(job);
        !role.is_empty() && self.is_upstream() && job.is_some_and(|job| job.failed_roles.contains(role))
    }

    fn record_failed_role(&mut self, job: usize, task: &TaskRecord) {
        if let Some(job) = self.jobs.get_mut(job) {
            job.failed_roles.insert(Arc::from(task.role()));
        }
    }

    /// Best node for a task: the nominated one under `upstream` (under `corrected` it was tried first of all), else among those with enough idle, else among those that will have it.
    fn find_node(
        &mut self,
        stored: &Arc<StoredRecord<TaskRecord>>,
        job: usize,
        errors: &mut RoleErrorCache,
    ) -> TaskPlace {
        let task = &stored.record;
        let is_nominated = self.is_upstream() && !task.nominated_node.is_empty();
        if !is_nominated && !errors.is_used_for(task.role()) {
            let mut rankings = std::mem::take(&mut self.rankings);
            let choice = self
                .chooser
                .best_idle(&mut rankings, self.context(), stored, &self.changed_nodes);
            self.rankings = rankings;
            match choice {
                IdleChoice::Node(slot) => return TaskPlace::Found(slot, TaskStatus::Allocated),
                IdleChoice::Unscored(problem) => return TaskPlace::Unscored(problem),
                IdleChoice::NoneIdle | IdleChoice::Unranked => {}
            }
        }
        let Ok(passing) = self.passing_nodes(task, job, errors) else {
            return TaskPlace::NoneFits;
        };
        if passing.is_empty() {
            return TaskPlace::NoneFits;
        }
        let idle = self
            .chooser
            .passing(self.context(), task, NodeGradient::Idle, Some(&passing));
        let (gradient, among) = match idle {
            Ok(idle) if !idle.is_empty() => (NodeGradient::Idle, idle),
            _ => (NodeGradient::FutureIdle, passing),
        };
        let status = gradient.status();
        match self.chooser.rank(self.context(), task, gradient, &among, true) {
            NodeChoice::Ranked(slots) => slots
                .first()
                .map_or(TaskPlace::NoneFits, |slot| TaskPlace::Found(*slot, status)),
            NodeChoice::NoneFits => TaskPlace::NoneFits,
            NodeChoice::Unscored(problem) => TaskPlace::Unscored(problem),
        }
    }

    /// Best node for a task by its amounts, with the status of the task there; `None`: none can be chosen.
    pub(super) fn best_place(
        &mut self,
        job: usize,
        stored: &Arc<StoredRecord<TaskRecord>>,
    ) -> Option<(NodeSlot, TaskStatus)> {
        let mut errors = self.new_error_cache();
        match self.find_node(stored, job, &mut errors) {
            TaskPlace::Found(node, status) => Some((node, status)),
            TaskPlace::NoneFits => None,
            TaskPlace::Unscored(problem) => {
                self.pass_over(&stored.record.name, problem);
                None
            }
        }
    }

    /// Nodes that pass every filter for a task.
    fn passing_nodes(
        &self,
        task: &TaskRecord,
        job: usize,
        errors: &mut RoleErrorCache,
    ) -> Result<PassingNodes, Problem> {
        let state = self.cycle.cluster_state();
        let untried = errors.untried(state, job, task.role());
        if let Some(slot) = state
            .slot_of(&task.nominated_node)
            .filter(|_| self.is_upstream() && !task.nominated_node.is_empty())
        {
            let nominated = one_node(slot, untried.as_ref());
            let passing = self
                .chooser
                .passing(self.context(), task, NodeGradient::FutureIdle, Some(&nominated))?;
            errors.record(state, (job, task.role()), Some(&nominated), &passing);
            if !passing.is_empty() {
                return Ok(passing);
            }
        }
        let untried = errors.untried(state, job, task.role());
        let passing = self
            .chooser
            .passing(self.context(), task, NodeGradient::FutureIdle, untried.as_ref())?;
        errors.record(state, (job, task.role()), untried.as_ref(), &passing);
        Ok(passing)
    }

    /// True if a job may still become ready although one of its tasks was not placed.
    fn may_continue(&self, job: usize) -> bool {
        let (Some(own), Some(record)) = (self.jobs.get(job), self.job_record(job)) else {
            return false;
        };
        let Some(gang) = record.gang.as_ref() else { return true };
        if !gang.sub_groups.is_empty() {
            return true;
        }
        let present = || own.tasks.iter().filter_map(|task| self.present_task(*task));
        let sum = gang
            .min_task_member
            .iter()
            .fold(0_i32, |sum, (_, least)| sum.wrapping_add(*least));
        if record.min_member < sum {
            let waits =
                |task: &TaskRecord| task.status == TaskStatus::Pending && !own.failed_roles.contains(task.role());
            let counts = |task: &&TaskRecord| task.status.is_started() || waits(task);
            let left = present().filter(counts).count();
            return i32::try_from(left).is_ok_and(|left| left >= record.min_member);
        }
        let has_enough = |role: &Arc<str>| {
            let least = gang.min_task_member.iter().find(|(name, _)| name == role);
            let least = least.map_or(0, |(_, least)| *least);
            let counts = |task: &&TaskRecord| {
                let needs_nothing = task.status == TaskStatus::Pending && task.requests.is_only_pods();
                (task.status.is_started() || needs_nothing) && *task.role() == **role
            };
            least == 0 || i32::try_from(present().filter(counts).count()).is_ok_and(|count| count >= least)
        };
        own.failed_roles.iter().all(has_enough)
    }
}

/// One node, if it is among these.
pub(super) fn one_node(slot: NodeSlot, among: Option<&PassingNodes>) -> PassingNodes {
    let offset = slot as usize % CHUNK_SIZE;
    let first = slot - NodeSlot::try_from(offset).unwrap_or(0);
    let only = NodeMask::single(offset);
    let nodes = match among {
        None => only,
        Some(among) => {
            let own = among.iter().find(|(at, _)| *at == first);
            own.map_or(NodeMask::NONE, |(_, nodes)| nodes.and(&only))
        }
    };
    vec![(first, nodes)]
}
