//! Admission of the tasks of a group, one after the other.

use std::sync::Arc;

use super::PlaceGroup;
use crate::decide::admit::{self, AdmitVerdict};
use crate::model::{ClusterState, ErrorCode, NodeSlot, Problem, TaskRecord, TaskStatus};
use crate::plugin::{DecisionTime, PluginContext};
use crate::plugin_state::{PlacementEvent, PluginStates, TaskTransition};
use crate::policy::Policy;

/// Verdict on the next task before any node is evaluated.
pub(super) enum NextTask {
    /// The task may be allocated.
    Admitted,
    /// The task may be allocated, but on other cards than before: plugins that read accounts judge the nodes again.
    CardsChanged,
    /// The task may not be allocated.
    Rejected(AdmitVerdict),
}

/// Admission of the tasks of one group, one after the other.
pub(super) struct GroupAdmitter<'q> {
    policy: &'q Policy,
    group: &'q PlaceGroup,
    /// Position of the group in the request, from 0.
    group_number: usize,
    /// True if every task is evaluated and reported to plugins, because the verdict may change.
    admits_each: bool,
    /// True if filters read accounts of plugins that take no part in admission: each placement may change their
    /// verdicts.
    refilters_each: bool,
    /// True if a plugin tells the tasks apart, so that each has a class of its own.
    pub(super) has_own_classes: bool,
    /// Number of placed tasks.
    pub(super) placed_count: usize,
    /// Time of the decision.
    now: Option<DecisionTime>,
    /// Cards that the next task may use.
    cards: Vec<Arc<str>>,
    /// Number of next tasks that are permitted with the verdict of the last evaluated task. They are reported to
    /// plugins together.
    preadmitted_count: u64,
    /// Number of placed tasks that are not reported to plugins yet, and their status.
    unreported: (u64, TaskStatus),
}

/// True if a plugin that takes no part in admission heeds placements of a queue's tasks.
fn has_unadmitted_reader(policy: &Policy, context: PluginContext<'_>, queue: &str) -> bool {
    let hooks = policy.hooks();
    let mut readers = hooks.filters.iter().chain(&hooks.scorers);
    let asked = |name: &str| hooks.allocators.iter().flatten().any(|hook| *hook.name == *name);
    readers.any(|hook| hook.plugin.heeds_placements(context, queue) && !asked(&hook.name))
}

impl<'q> GroupAdmitter<'q> {
    /// Admission in a state and at a time.
    pub(super) fn new(
        policy: &'q Policy,
        context: PluginContext<'_>,
        group_number: usize,
        group: &'q PlaceGroup,
    ) -> Self {
        let job = context.cluster_state.jobs().get(&group.task.job);
        let queue = job.map_or("", |job| &job.record.queue);
        let refilters_each = has_unadmitted_reader(policy, context, queue);
        Self {
            policy,
            group,
            group_number,
            admits_each: policy.places_by_plugin_state(),
            refilters_each,
            has_own_classes: refilters_each && policy.reads_task(context.cluster_state, &group.task),
            placed_count: 0,
            now: context.now,
            cards: Vec::new(),
            preadmitted_count: 0,
            unreported: (0, TaskStatus::Allocated),
        }
    }

    /// Next task: the stored one, or a hypothetical one like the others.
    pub(super) fn next_task(&self, cluster_state: &ClusterState) -> Arc<TaskRecord> {
        let named = self.group.names.get(self.placed_count);
        if let Some(stored) = named.and_then(|name| cluster_state.tasks().get(name)) {
            return Arc::new(stored.record.clone());
        }
        if !self.admits_each {
            return Arc::clone(&self.group.task);
        }
        Arc::new(hypothetical_task(
            self.group_number,
            self.placed_count,
            &self.group.task,
        ))
    }

    /// Evaluates the next task.
    pub(super) fn admit_next(
        &mut self,
        cluster_state: &ClusterState,
        plugin_states: &mut PluginStates,
    ) -> Result<NextTask, Problem> {
        if self.preadmitted_count > 0
            || (!self.admits_each && (self.placed_count > 0 || self.group.task.job.is_empty()))
        {
            return Ok(NextTask::Admitted);
        }
        self.report_placed(cluster_state, plugin_states)?;
        let task = self.next_task(cluster_state);
        if cluster_state.jobs().get(&task.job).is_none() {
            return Err(self.unknown_job(&task.job));
        }
        let context = PluginContext::new(cluster_state, plugin_states, self.now);
        let admission = admit::admit_task(context, self.policy, &task).map_err(|mut problem| {
            if problem.field == "queue" {
                problem.field = self.job_field();
            }
            problem
        })?;
        if !admission.permitted {
            return Ok(NextTask::Rejected(admission));
        }
        let cards: Vec<Arc<str>> = admission.cards.into_iter().map(|(card, _)| card).collect();
        if self.admits_each && cards.is_empty() && !self.refilters_each {
            self.preadmitted_count = self.repeat_count(context, &task);
        }
        if cards == self.cards && !(self.refilters_each && self.placed_count > 0) {
            return Ok(NextTask::Admitted);
        }
        self.cards = cards;
        Ok(NextTask::CardsChanged)
    }

    /// Field of the group that names the tasks' job.
    fn job_field(&self) -> String {
        let named = !self.group.names.is_empty();
        (if named { "names" } else { "task.job" }).to_owned()
    }

    fn unknown_job(&self, job: &str) -> Problem {
        let message = if job.is_empty() {
            "the tasks name no job, and this policy admits tasks by their jobs: name one".to_owned()
        } else {
            format!("there is no job `{job}`: name a stored job, or send the job itself")
        };
        Problem::new(ErrorCode::JobUnknown, self.job_field(), message)
    }

    /// True if nodes must be evaluated again after each task.
    pub(super) fn refilters_each(&self) -> bool {
        self.refilters_each
    }

    /// Number of equal tasks that are permitted in a row and can be reported together. 0: each task must be evaluated.
    fn repeat_count(&self, context: PluginContext<'_>, task: &TaskRecord) -> u64 {
        let Some(job) = context.cluster_state.jobs().get(&task.job) else {
            return 0;
        };
        let queue = &job.record.queue;
        let plugins = self.policy.hooks().allocators.iter().flatten();
        let least = plugins
            .filter(|hook| !hook.plugin.hooks().abstains_on_tasks)
            .map(|hook| {
                let quota = hook.plugin.quota();
                quota.map_or(1, |quota| quota.repeatable_admissions(context, queue, task))
            })
            .min();
        least.filter(|least| *least > 1).unwrap_or(0)
    }

    /// Reports the unreported tasks to the plugins.
    pub(super) fn report_placed(
        &mut self,
        cluster_state: &ClusterState,
        plugin_states: &mut PluginStates,
    ) -> Result<(), Problem> {
        let (times, status) = std::mem::take(&mut self.unreported);
        if times > 0 {
            let before = &self.group.task;
            let after = TaskRecord {
                status,
                ..TaskRecord::clone(before)
            };
            let moved = TaskTransition {
                repeated: Some(times),
                ..TaskTransition::new(before, &after, "")
            };
            plugin_states.apply(cluster_state, &[PlacementEvent::placed(moved)])?;
        }
        Ok(())
    }

    /// Places the next task on a node and returns the card that it uses there, if a plugin assigns one.
    pub(super) fn place_next(
        &mut self,
        cluster_state: &ClusterState,
        plugin_states: &mut PluginStates,
        slot: NodeSlot,
        status: TaskStatus,
    ) -> Result<Option<Arc<str>>, Problem> {
        let mut card = None;
        if self.preadmitted_count > 0 {
            if self.unreported.1 != status {
                self.report_placed(cluster_state, plugin_states)?;
            }
            self.unreported = (self.unreported.0 + 1, status);
            self.preadmitted_count -= 1;
        } else if self.admits_each {
            let node = cluster_state.node(slot).map(|entry| Arc::clone(&entry.record.name));
            let node = node.unwrap_or_default();
            let before = self.next_task(cluster_state);
            let context = PluginContext::new(cluster_state, plugin_states, self.now);
            card = self.policy.card_on_node(context, &before, &node, &self.cards);
            let after = TaskRecord {
                node,
                status,
                ..TaskRecord::clone(&before)
            };
            let moved = TaskTransition::new(&before, &after, card.as_deref().unwrap_or_default());
            plugin_states.apply(cluster_state, &[PlacementEvent::placed(moved)])?;
        }
        self.placed_count += 1;
        Ok(card)
    }
}

/// Hypothetical task of a group, which is not stored.
pub(super) fn hypothetical_task(group: usize, place: usize, task: &TaskRecord) -> TaskRecord {
    TaskRecord {
        // No pod can have this name, so no other task has it.
        name: Arc::from(format!("#{group}.{place}")),
        ..TaskRecord::clone(task)
    }
}
