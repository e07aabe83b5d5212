//! Derived state: what a plugin works out from a cluster state and keeps beside it, moved by the changes of a cycle.

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use super::model::{ClusterState, Problem, StateDiff, TaskRecord};

/// What a change did to a task.
#[derive(Clone, Copy, Debug)]
pub struct TaskTransition<'a> {
    /// The task before the change.
    pub before: &'a TaskRecord,
    /// The task now. Under `compatibility: upstream` a task that is taken off its node still names it here.
    pub after: &'a TaskRecord,
    /// The card that it was put on; empty: none said.
    pub card: &'a str,
}

/// One thing that happened in a cycle, as plugins are told of it.
#[derive(Clone, Copy, Debug)]
pub enum PlacementEvent<'a> {
    /// A task's requests now count: it was given room, or its eviction was undone.
    Allocate(TaskTransition<'a>),
    /// They count, for room that is being released.
    Pipeline(TaskTransition<'a>),
    /// They no longer count.
    Deallocate(TaskTransition<'a>),
    /// A job is enqueued for good.
    Enqueue(&'a str),
    /// A job that was enqueued waits again.
    Dequeue(&'a Arc<str>),
    /// The reservation of a job was put, changed or taken away; the cluster state says which.
    Reserve(&'a Arc<str>),
}

impl<'a> PlacementEvent<'a> {
    /// The task that now counts, if that is what happened.
    pub fn counted_task(&self) -> Option<&TaskTransition<'a>> {
        match self {
            Self::Allocate(moved) | Self::Pipeline(moved) => Some(moved),
            Self::Deallocate(_) | Self::Enqueue(_) | Self::Dequeue(_) | Self::Reserve(_) => None,
        }
    }

    /// True if both are tasks of one job that now count.
    pub fn counts_same_job(&self, other: &Self) -> bool {
        let both = self.counted_task().zip(other.counted_task());
        both.is_some_and(|(one, other)| one.after.job == other.after.job)
    }
}

/// What one plugin keeps beside a cluster state. Clones must be cheap: every mark of a cycle is one.
pub trait PluginState: Any + Debug + Send + Sync {
    /// Follows a change. `view` is the state after it. Answers which queues' order keys or accounts it moved, besides
    /// the task's own queue.
    ///
    /// # Errors
    /// It cannot be counted: the changes that it belongs to are refused, and this value is thrown away.
    fn apply(&mut self, cluster_state: &ClusterState, movement: &PlacementEvent<'_>) -> Result<Vec<Arc<str>>, Problem>;

    /// Follows changes of tasks in their order, all of which `view` shows already. Answers as [`Self::follow`] would in
    /// all.
    ///
    /// # Errors
    /// As [`Self::follow`].
    fn apply_batch(
        &mut self,
        cluster_state: &ClusterState,
        movements: &[PlacementEvent<'_>],
    ) -> Result<BTreeSet<Arc<str>>, Problem> {
        let mut moved = BTreeSet::new();
        for movement in movements {
            moved.extend(self.apply(cluster_state, movement)?);
        }
        Ok(moved)
    }

    /// Follows the same change of so many tasks that differ in name alone, of which the plugin said that they move this
    /// alike ([`Plugin::admits_in_a_row`](super::plugin::Plugin::admits_in_a_row)); `movement` is that of one of them.
    /// Each of these tasks moves once: what it holds need not be remembered by its name.
    ///
    /// # Errors
    /// As [`Self::follow`].
    fn apply_repeated(
        &mut self,
        cluster_state: &ClusterState,
        movement: &PlacementEvent<'_>,
        times: u64,
    ) -> Result<(), Problem> {
        for _ in 0..times {
            self.apply(cluster_state, movement)?;
        }
        Ok(())
    }

    /// The same beside a newer cluster state, for what changed since the one that it was worked out from; `None`: it is worked out
    /// anew. Both ways must give the same, to the last bit.
    fn advance(&self, changes: &StateDiff<'_>) -> Option<Arc<dyn PluginState>> {
        let _ = changes;
        None
    }

    /// A copy that changes can move on its own.
    fn copy(&self) -> Arc<dyn PluginState>;
}

/// The derived state of a policy's plugins, at most one per plugin name. A clone shares everything until a change moves
/// one of the two.
#[derive(Clone, Debug, Default)]
pub struct PluginStates {
    /// In the order in which changes reach them.
    entries: Vec<(Arc<str>, Arc<dyn PluginState>)>,
}

impl PluginStates {
    /// Puts a plugin's derived state in the place of the one that it had.
    pub fn insert(&mut self, plugin: Arc<str>, derived: Arc<dyn PluginState>) {
        match self.entries.iter_mut().find(|(name, _)| *name == plugin) {
            Some((_, old)) => *old = derived,
            None => self.entries.push((plugin, derived)),
        }
    }

    /// A plugin's derived state, if it keeps one and it is a `T`.
    pub fn get<T: PluginState>(&self, plugin: &str) -> Option<&T> {
        let (_, derived) = self.entries.iter().find(|(name, _)| **name == *plugin)?;
        let derived: &dyn Any = &**derived;
        derived.downcast_ref()
    }

    /// Changes a plugin's derived state, if it keeps one and it is a `T`.
    pub fn update<T: PluginState, R>(&mut self, plugin: &str, change: impl FnOnce(&mut T) -> R) -> Option<R> {
        let (_, derived) = self.entries.iter_mut().find(|(name, _)| **name == *plugin)?;
        let own: &mut dyn Any = if let Some(own) = Arc::get_mut(derived) {
            own
        } else {
            *derived = derived.copy();
            Arc::get_mut(derived)?
        };
        own.downcast_mut().map(change)
    }

    /// Forgets what other plugins keep.
    pub(super) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.entries.retain(|(name, _)| keep(name));
    }

    /// A plugin's derived state beside a newer cluster state, if it keeps some and can carry it there.
    pub fn advance(&self, plugin: &str, changes: &StateDiff<'_>) -> Option<Arc<dyn PluginState>> {
        let (_, derived) = self.entries.iter().find(|(name, _)| **name == *plugin)?;
        derived.advance(changes)
    }

    /// True if a plugin keeps some.
    pub fn contains(&self, plugin: &str) -> bool {
        self.entries.iter().any(|(name, _)| **name == *plugin)
    }

    /// True if no plugin keeps any.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Tells every plugin of a change. Answers which queues' order keys or accounts it moved, besides the task's own
    /// queue; one may stand there twice.
    ///
    /// # Errors
    /// One of them cannot count it. Some may have: the set is to be thrown away.
    pub fn apply(
        &mut self,
        cluster_state: &ClusterState,
        movement: &PlacementEvent<'_>,
    ) -> Result<Vec<Arc<str>>, Problem> {
        let mut moved = Vec::new();
        for own in self.iter_mut() {
            moved.extend(own.apply(cluster_state, movement)?);
        }
        Ok(moved)
    }

    /// Tells every plugin of changes of tasks, as [`PluginState::follow_all`].
    ///
    /// # Errors
    /// As [`Self::follow`].
    pub fn apply_batch(
        &mut self,
        cluster_state: &ClusterState,
        movements: &[PlacementEvent<'_>],
    ) -> Result<BTreeSet<Arc<str>>, Problem> {
        let mut moved = BTreeSet::new();
        for own in self.iter_mut() {
            moved.append(&mut own.apply_batch(cluster_state, movements)?);
        }
        Ok(moved)
    }

    /// Tells every plugin of the same change of so many tasks, as [`PluginState::follow_alike`].
    ///
    /// # Errors
    /// As [`Self::follow`].
    pub fn apply_repeated(
        &mut self,
        cluster_state: &ClusterState,
        movement: &PlacementEvent<'_>,
        times: u64,
    ) -> Result<(), Problem> {
        self.iter_mut()
            .try_for_each(|own| own.apply_repeated(cluster_state, movement, times))
    }

    /// What each plugin keeps, to be changed.
    fn iter_mut(&mut self) -> impl Iterator<Item = &mut dyn PluginState> {
        self.entries.iter_mut().filter_map(|(_, derived)| {
            if Arc::get_mut(derived).is_none() {
                *derived = derived.copy();
            }
            Arc::get_mut(derived)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::model::{NodeSlot, SortedTable};

    #[derive(Clone, Debug, Default)]
    struct CountingPluginState(u32);

    impl PluginState for CountingPluginState {
        fn apply(&mut self, _: &ClusterState, _: &PlacementEvent<'_>) -> Result<Vec<Arc<str>>, Problem> {
            self.0 += 1;
            Ok(Vec::new())
        }

        fn copy(&self) -> Arc<dyn PluginState> {
            Arc::new(self.clone())
        }
    }

    #[test]
    fn a_clone_keeps_what_it_had() {
        let cluster_state = ClusterState::new(Arc::new(SortedTable::<NodeSlot>::default()), 0);
        let mut set = PluginStates::default();
        set.insert("counter".into(), Arc::new(CountingPluginState::default()));
        let kept = set.clone();
        for _ in 0..3 {
            set.apply(&cluster_state, &PlacementEvent::Enqueue("ns/j")).unwrap();
        }
        let count = |set: &PluginStates| set.get::<CountingPluginState>("counter").map(|counter| counter.0);
        assert_eq!((count(&kept), count(&set)), (Some(0), Some(3)));
        assert!(set.get::<CountingPluginState>("another").is_none());
    }
}
