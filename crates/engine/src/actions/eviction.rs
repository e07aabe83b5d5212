//! Evictions that preempt and reclaim share: the victims of a preemptor on a node, and the order in which they go.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::session::ActionSession;
use super::statement::ActionStatement;
use crate::decide::reduce_order::victim_queue_less;
use crate::decide::reduce_victims::{VictimJobs, VictimRelation, evicted_first};
use crate::decide::{NodeGradient, SchedulingHeap, tier_victims};
use crate::model::{NodeSlot, Problem, ResourceId, StoredRecord, TaskRecord, TaskStatus};
use crate::plugin::VictimKind;

/// Tasks that ran or were bound when an action began, by node.
pub(super) struct NodeTasks(BTreeMap<NodeSlot, Vec<usize>>);

impl NodeTasks {
    /// Tasks of a session on their nodes.
    pub(super) fn of(session: &ActionSession<'_>) -> Self {
        let mut by_node: BTreeMap<NodeSlot, Vec<usize>> = BTreeMap::new();
        for (number, task) in session.tasks.iter().enumerate() {
            let record = &task.stored.record;
            let slot = session.cycle.cluster_state().slot_of(&record.node);
            if let (Some(slot), TaskStatus::Running | TaskStatus::Bound) = (slot, record.status) {
                by_node.entry(slot).or_default().push(number);
            }
        }
        Self(by_node)
    }

    /// Numbers of the tasks on a node, by name.
    pub(super) fn on(&self, slot: NodeSlot) -> &[usize] {
        self.0.get(&slot).map_or(&[], Vec::as_slice)
    }
}

/// Amounts that a preemptor lacks on a node.
pub(super) struct MissingAmounts(Vec<(ResourceId, i128)>);

impl MissingAmounts {
    /// Amounts beyond those that will be idle on a node. The reference compares cpu and memory in any
    /// case, and what is written, also with 0.
    pub(super) fn of(session: &ActionSession<'_>, task: &TaskRecord, slot: NodeSlot) -> Self {
        let Some(node) = session.cycle.cluster_state().node(slot) else {
            return Self(vec![(ResourceId::PODS, 1)]);
        };
        let is_upstream = session.policy.compatibility().is_upstream();
        let asked = task.requests.iter().filter(|(_, amount)| *amount > 0 || is_upstream);
        let mut asked: BTreeMap<ResourceId, i64> = asked.collect();
        if is_upstream {
            for id in [ResourceId::CPU, ResourceId::MEMORY] {
                asked.entry(id).or_insert(0);
            }
        }
        let asked = asked.into_iter();
        let missing = asked.map(|(id, amount)| (id, i128::from(amount) - node.exact_idle(id, true)));
        Self(missing.collect())
    }

    /// Adds the requests of a victim to the free amounts.
    pub(super) fn free(&mut self, victim: &TaskRecord) {
        for (id, amount) in &mut self.0 {
            *amount -= i128::from(victim.requests.get(*id).unwrap_or(0));
        }
    }

    /// True if nothing is missing.
    pub(super) fn is_covered(&self) -> bool {
        self.0.iter().all(|(_, amount)| *amount <= 0)
    }
}

impl ActionSession<'_> {
    /// Victims among the tasks on a node, if all of them together make room for the preemptor; `None`: they do not.
    pub(super) fn victims_on(
        &mut self,
        kind: VictimKind,
        preemptor: &TaskRecord,
        slot: NodeSlot,
        candidates: &[usize],
    ) -> Option<Vec<usize>> {
        let records: Vec<&TaskRecord> = candidates.iter().filter_map(|task| self.present_task(*task)).collect();
        let chosen = tier_victims(self.policy, kind, self.context(), preemptor, &records);
        let chosen = match chosen {
            Ok(chosen) => chosen,
            Err(problem) => {
                let name = Arc::clone(&preemptor.name);
                self.pass_over(&name, problem);
                return None;
            }
        };
        let victims: Vec<usize> = chosen
            .into_iter()
            .filter_map(|at| candidates.get(at).copied())
            .collect();
        let mut missing = MissingAmounts::of(self, preemptor, slot);
        for victim in victims.iter().filter_map(|task| self.present_task(*task)) {
            missing.free(victim);
        }
        missing.is_covered().then_some(victims)
    }

    /// Heap of victims in the order in which they are evicted.
    pub(super) fn victim_heap(&self, victims: &[usize], preemptor: usize) -> SchedulingHeap<usize> {
        let mut heap = SchedulingHeap::new();
        for victim in victims {
            heap.push(*victim, |left, right| self.is_evicted_first(left, right, preemptor));
        }
        heap
    }

    /// True if the left victim is evicted before the right one, in the present state.
    pub(super) fn is_evicted_first(&self, left: usize, right: usize, preemptor: usize) -> bool {
        let (Some(one), Some(other)) = (self.tasks.get(left), self.tasks.get(right)) else {
            return false;
        };
        let queue = |job: Option<usize>| job.and_then(|job| self.jobs.get(job)).map(|job| job.queue);
        let (queues, jobs) = ((queue(one.job), queue(other.job)), (one.job, other.job));
        let relation = match (jobs, queues) {
            _ if one.stored.record.job == other.stored.record.job => VictimRelation::SameJob,
            ((None, _), _) => VictimRelation::LeftJobMissing,
            ((_, None), _) => VictimRelation::RightJobMissing,
            (_, (own, their)) if own == their => VictimRelation::SameQueue,
            _ => VictimRelation::OtherQueue,
        };
        let compare_jobs = || match (one.job, other.job) {
            (Some(one), Some(other)) if !self.rules().orders_victims_by_task => {
                VictimJobs::Strict(self.job_less(one, other))
            }
            (Some(one), Some(other)) => VictimJobs::Compared(self.compare_jobs(one, other) as i64),
            _ => VictimJobs::Compared(0),
        };
        let for_queue = self.tasks.get(preemptor).and_then(|task| queue(task.job));
        evicted_first(
            relation,
            || self.numbered_task_less(left, right),
            compare_jobs,
            || match (queues, for_queue) {
                ((Some(own), Some(their)), Some(preemptor)) => self.is_victim_queue_first(own, their, preemptor),
                _ => false,
            },
        )
    }

    /// True if tasks of the left queue are evicted before tasks of the right queue.
    fn is_victim_queue_first(&self, left: usize, right: usize, preemptor: usize) -> bool {
        let name = |queue: usize| self.queues.get(queue).map_or("", |queue| &*queue.name);
        let hooks = self.policy.hooks().queue_orders.iter();
        let values = hooks.filter_map(|hook| {
            let plugin = &hook.plugin;
            plugin.victim_queue_order(self.context(), name(preemptor), name(left), name(right))
        });
        let values: Vec<i64> = values.collect();
        victim_queue_less(values, || self.queue_less(left, right))
    }

    /// True if a task that makes others go fits a node now: its queue may take it, nothing is missing, and, except in older
    /// releases, every filter passes the node.
    pub(super) fn fits_after_evictions(&mut self, task: &TaskRecord, slot: NodeSlot) -> bool {
        self.admitted(task).is_some()
            && MissingAmounts::of(self, task, slot).is_covered()
            && (!self.rules().filters_after_eviction || self.passes_filters(task, slot))
    }

    /// True if every filter passes a node, independently of its free amounts.
    pub(super) fn passes_filters(&self, task: &TaskRecord, slot: NodeSlot) -> bool {
        let node = super::allocate::one_node(slot, None);
        let passing = self
            .chooser
            .passing(self.context(), task, NodeGradient::Released, Some(&node));
        passing.is_ok_and(|passing| !passing.is_empty())
    }

    /// Places a preemptor on a node for whose amounts others were evicted, and adds all of it to the statement of its job;
    /// otherwise undoes the evictions, except in older releases. If its queue alone lacked room, the preemptor gets amounts that are idle already,
    /// under `corrected`.
    pub(super) fn apply_evictions(
        &mut self,
        statement: &mut ActionStatement,
        mut on_node: ActionStatement,
        (job, task): (usize, usize),
        (slot, fits): (NodeSlot, bool),
    ) -> Result<bool, Problem> {
        let card = Arc::default();
        if fits
            && (self.place_on_idle(&mut on_node, (job, task))?
                || self.place(&mut on_node, task, (slot, card), TaskStatus::Pipelined)?)
        {
            statement.append(on_node);
            return Ok(true);
        }
        if self.rules().undoes_vain_evictions {
            self.discard(on_node)?;
        } else {
            statement.append(on_node);
        }
        Ok(false)
    }

    /// Task as the action found it.
    pub(super) fn stored_task(&self, task: usize) -> Option<Arc<StoredRecord<TaskRecord>>> {
        self.tasks.get(task).map(|task| Arc::clone(&task.stored))
    }
}
