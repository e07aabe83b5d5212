//! State of the plugin: whether queues inherit affinities, and what queues with limits hold on the nodes of each group.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::GROUP_LABEL;
use super::group_limits::{GroupLimits, GroupLimitsError, LIMITS};
use crate::held_bytes::held_bytes;
use crate::model::{ClusterState, Problem, ResourceId, ResourceTotals, StateDiff, TaskRecord, TaskStatus, find_text};
use crate::plugin_state::{PlacementEvent, PluginState, PluginStateChange};
use crate::policy::{Compatibility, PluginSwitches, Switch};

/// Limits of a queue, and what it holds in the groups that it limits.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct LimitedQueue {
    pub(super) limits: GroupLimits,
    /// Why the annotation cannot be read; then nothing is permitted.
    pub(super) unreadable: Option<Arc<str>>,
    held: BTreeMap<Arc<str>, ResourceTotals>,
}

held_bytes! { LimitedQueue { limits, unreadable, held } }

impl LimitedQueue {
    fn of(limits: Result<Option<GroupLimits>, GroupLimitsError>) -> Option<Self> {
        match limits {
            Ok(limits) => limits.map(|limits| Self {
                held: limits
                    .groups()
                    .map(|group| (Arc::clone(group), ResourceTotals::default()))
                    .collect(),
                limits,
                ..Self::default()
            }),
            Err(error) => Some(Self {
                unreadable: Some(error.to_string().into()),
                ..Self::default()
            }),
        }
    }

    /// Amounts that the queue's tasks hold on nodes of a group; `None`: the group has no limits.
    pub(super) fn held(&self, group: &str) -> Option<&ResourceTotals> {
        self.held.get(group)
    }
}

/// Switch of the policy that lets queues inherit, and the queues with limits.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NodeGroupState {
    /// True if a queue without an affinity inherits the affinity of its nearest ancestor.
    pub(super) inherits: bool,
    compatibility: Compatibility,
    /// Queues that have limits, in releases that read them.
    queues: BTreeMap<Arc<str>, Arc<LimitedQueue>>,
}

held_bytes! { NodeGroupState { queues; inherits, compatibility } }

impl NodeGroupState {
    pub(super) fn of(cluster_state: &ClusterState, switches: &PluginSwitches, compatibility: Compatibility) -> Self {
        let mut state = Self {
            inherits: switches.is_on(Switch::Hierarchy),
            compatibility,
            queues: BTreeMap::new(),
        };
        if !state.reads_limits() {
            return state;
        }
        for (name, stored) in cluster_state.queues().iter() {
            if let Some(queue) = LimitedQueue::of(GroupLimits::of(&stored.record)) {
                state.queues.insert(Arc::clone(name), Arc::new(queue));
            }
        }
        if !state.queues.is_empty() {
            let held = cluster_state.tasks().iter().map(|(_, stored)| &stored.record);
            for task in held {
                state.count_holder(cluster_state, task, true);
            }
        }
        state
    }

    /// Queue with limits; `None`: it has none.
    pub(super) fn queue(&self, name: &str) -> Option<&LimitedQueue> {
        self.queues.get(name).map(|queue| &**queue)
    }

    /// True if the release that is followed reads limits.
    fn reads_limits(&self) -> bool {
        self.compatibility.release().rules().limits_node_groups
    }

    /// True if a queue of this name may hold tasks that count.
    fn is_limited(&self, queue: Option<&Arc<str>>) -> bool {
        queue.is_some_and(|queue| self.queues.contains_key(queue))
    }

    /// True if a step changes what tasks hold that it leaves as they are: their job has another queue, or their node another
    /// group.
    fn moves_holders(&self, changes: &StateDiff<'_>) -> bool {
        let has_moved_node = changes.nodes().into_iter().any(|node| {
            let [before, after] = [node.before, node.after]
                .map(|entry| entry.and_then(|entry| find_text(&entry.record.labels, GROUP_LABEL)));
            let known = node.before.or(node.after);
            before != after && known.is_some_and(|entry| !entry.usage.is_empty())
        });
        let has_moved_job = || {
            let moved = changes.jobs().into_iter().filter(|job| {
                let [before, after] = [job.before, job.after].map(|record| record.map(|record| &record.queue));
                before != after && (self.is_limited(before) || self.is_limited(after))
            });
            let moved: BTreeSet<&str> = moved.map(|job| &**job.name).collect();
            let waits = |task: &TaskRecord| task.status == TaskStatus::Pipelined && moved.contains(&*task.job);
            moved.iter().any(|job| changes.old.job_allocated(job).is_some())
                || !moved.is_empty() && changes.old.tasks().iter().any(|(_, stored)| waits(&stored.record))
        };
        has_moved_node || has_moved_job()
    }

    /// Follows the step to a newer cluster state.
    ///
    /// # Errors
    /// The limits of a queue changed, or tasks that the step leaves as they are hold elsewhere.
    fn follow(&mut self, changes: &StateDiff<'_>) -> Result<(), Problem> {
        if !self.reads_limits() {
            return Ok(());
        }
        let has_new_limits = changes.queues().into_iter().any(|queue| {
            let [before, after] = [queue.before, queue.after]
                .map(|record| record.and_then(|record| find_text(&record.annotations, LIMITS)));
            before != after
        });
        if has_new_limits {
            return Err(PluginStateChange::unfollowed());
        }
        if self.queues.is_empty() {
            return Ok(());
        }
        if !changes.same_slots() || self.moves_holders(changes) {
            return Err(PluginStateChange::unfollowed());
        }
        for task in changes.tasks() {
            if let Some(before) = task.before {
                self.count_holder(changes.old, before, false);
            }
            if let Some(after) = task.after {
                self.count_holder(changes.new, after, true);
            }
        }
        Ok(())
    }

    /// Counts a stored task like [`Self::count`], if it holds its requests. Under `corrected` a pipelined task does, as its
    /// event counts it.
    fn count_holder(&mut self, cluster_state: &ClusterState, task: &TaskRecord, holds: bool) {
        let counts_pipelined = self.compatibility == Compatibility::Corrected;
        if task.status.is_allocated() || counts_pipelined && task.status == TaskStatus::Pipelined {
            self.count(cluster_state, task, holds);
        }
    }

    /// Counts what a task holds on its node, or no longer.
    fn count(&mut self, cluster_state: &ClusterState, task: &TaskRecord, holds: bool) {
        let Some(job) = cluster_state.jobs().get(&task.job) else {
            return;
        };
        let Some(queue) = self.queues.get_mut(&job.record.queue) else {
            return;
        };
        let node = cluster_state.node_by_name(&task.node);
        let group = node.and_then(|node| find_text(&node.record.labels, GROUP_LABEL));
        let Some(group) = group.filter(|group| queue.held.contains_key(*group)) else {
            return;
        };
        if let Some(held) = Arc::make_mut(queue).held.get_mut(group) {
            let has = |(id, amount): (ResourceId, i64)| held.get(id).unwrap_or(0) >= i128::from(amount);
            if holds {
                held.add(&task.requests);
            } else if task.requests.iter().all(has) {
                // The reference ends where a task gives back more than its group holds: it was never counted.
                held.subtract(&task.requests);
            }
        }
    }
}

impl PluginState for NodeGroupState {
    /// A step is followed unless limits change, or tasks hold elsewhere without a change of their own.
    fn apply(&mut self, change: &PluginStateChange<'_>) -> Result<Vec<Arc<str>>, Problem> {
        match change {
            PluginStateChange::Step(changes) => self.follow(changes)?,
            PluginStateChange::Events(..) if self.queues.is_empty() => {}
            PluginStateChange::Events(cluster_state, events) => {
                for (moved, holds) in events.iter().filter_map(PlacementEvent::moved_task) {
                    let is_off = moved.after.node.is_empty();
                    let there = if is_off { moved.before } else { moved.after };
                    for _ in 0..moved.count() {
                        self.count(cluster_state, there, holds);
                    }
                }
            }
        }
        Ok(Vec::new())
    }
}
