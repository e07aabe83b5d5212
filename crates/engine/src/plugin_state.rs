//! Plugin state: the state that a plugin computes from a cluster state, updated by the changes of a cycle.

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use super::model::{ClusterState, Problem, StateDiff, TaskRecord};
use super::plugin::PluginAccounts;

/// Transition of a task by a change.
#[derive(Clone, Copy, Debug)]
pub struct TaskTransition<'a> {
    /// Task before the change.
    pub before: &'a TaskRecord,
    /// Task after the change. Under `compatibility: upstream` a task that was taken off its node still names the node
    /// here.
    pub after: &'a TaskRecord,
    /// Card of the placement; empty: not given.
    pub card: &'a str,
}

/// Event of a cycle that plugins receive.
#[derive(Clone, Copy, Debug)]
pub enum PlacementEvent<'a> {
    /// The task's requests are added: the task was placed, or its eviction was undone.
    Allocate(TaskTransition<'a>),
    /// The task's requests are added, on amounts that are being released.
    Pipeline(TaskTransition<'a>),
    /// The task's requests are removed.
    Deallocate(TaskTransition<'a>),
    /// Job that is enqueued for good.
    Enqueue(&'a str),
    /// Enqueued job that waits again.
    Dequeue(&'a Arc<str>),
    /// Reservation of a job that was put, changed or removed; the cluster state has the present one.
    Reserve(&'a Arc<str>),
}

impl<'a> PlacementEvent<'a> {
    /// Task whose requests the event adds. `None`: the event removes requests.
    pub fn counted_task(&self) -> Option<&TaskTransition<'a>> {
        match self {
            Self::Allocate(moved) | Self::Pipeline(moved) => Some(moved),
            Self::Deallocate(_) | Self::Enqueue(_) | Self::Dequeue(_) | Self::Reserve(_) => None,
        }
    }

    /// True if both events add requests of tasks of the same job.
    pub fn counts_same_job(&self, other: &Self) -> bool {
        let both = self.counted_task().zip(other.counted_task());
        both.is_some_and(|(one, other)| one.after.job == other.after.job)
    }
}

/// Older state of the same plugin, of its own type.
pub fn older_as<T: PluginState>(older: Option<&dyn PluginState>) -> Option<&T> {
    let older: &dyn Any = older?;
    older.downcast_ref()
}

/// State of one plugin for a cluster state. Clones must be cheap, since every savepoint of a cycle is one.
pub trait PluginState: Any + Debug + Send + Sync {
    /// Applies an event. `cluster_state` is the state after it. Returns the queues whose order keys or accounts
    /// changed, other than the task's own queue.
    ///
    /// # Errors
    /// The plugin cannot apply the event: its changes are rejected, and the caller must discard this value.
    fn apply(&mut self, cluster_state: &ClusterState, event: &PlacementEvent<'_>) -> Result<Vec<Arc<str>>, Problem>;

    /// Applies events of tasks in their order; `cluster_state` already shows all of them. Returns the queues as
    /// [`Self::apply`] would over all events.
    ///
    /// # Errors
    /// The errors of [`Self::apply`].
    fn apply_batch(
        &mut self,
        cluster_state: &ClusterState,
        events: &[PlacementEvent<'_>],
    ) -> Result<BTreeSet<Arc<str>>, Problem> {
        let mut moved = BTreeSet::new();
        for event in events {
            moved.extend(self.apply(cluster_state, event)?);
        }
        Ok(moved)
    }

    /// Applies the event of one task `times` times, for tasks that differ only in name and that the plugin declared
    /// repeatable ([`QuotaPlugin::repeatable_admissions`](super::plugin::QuotaPlugin::repeatable_admissions)). Each
    /// task moves once, so a plugin need not store holdings by name.
    ///
    /// # Errors
    /// The errors of [`Self::apply`].
    fn apply_repeated(
        &mut self,
        cluster_state: &ClusterState,
        event: &PlacementEvent<'_>,
        times: u64,
    ) -> Result<(), Problem> {
        for _ in 0..times {
            self.apply(cluster_state, event)?;
        }
        Ok(())
    }

    /// Plugin state of a newer cluster state, advanced by the differences; `None`: the caller computes it from the
    /// newer state. Both ways must give the same state, to the last bit.
    fn advance(&self, changes: &StateDiff<'_>) -> Option<Arc<dyn PluginState>> {
        let _ = changes;
        None
    }

    /// Accounts of this state; `None`: it keeps none that anybody reads.
    fn accounts(&self) -> Option<&dyn PluginAccounts> {
        None
    }

    /// Bytes that this state holds, and that an older one of the same history, if any, does not share.
    fn held_bytes(&self, older: Option<&dyn PluginState>) -> usize;

    /// Copy that changes independently.
    fn copy(&self) -> Arc<dyn PluginState>;
}

/// Plugin states of a policy, at most one per plugin name. Clones share everything until one of them changes.
#[derive(Clone, Debug, Default)]
pub struct PluginStates {
    /// States in the order in which events reach them.
    entries: Vec<(Arc<str>, Arc<dyn PluginState>)>,
}

impl PluginStates {
    /// Puts a plugin's state, replacing the earlier one.
    pub fn insert(&mut self, plugin: Arc<str>, derived: Arc<dyn PluginState>) {
        match self.entries.iter_mut().find(|(name, _)| *name == plugin) {
            Some((_, old)) => *old = derived,
            None => self.entries.push((plugin, derived)),
        }
    }

    /// State of a plugin, if it has one of type `T`.
    pub fn get<T: PluginState>(&self, plugin: &str) -> Option<&T> {
        let (_, derived) = self.entries.iter().find(|(name, _)| **name == *plugin)?;
        let derived: &dyn Any = &**derived;
        derived.downcast_ref()
    }

    /// Accounts of all plugins that keep some, by name of the plugin.
    pub fn accounts(&self) -> Vec<(&Arc<str>, &dyn PluginAccounts)> {
        let entries = self.entries.iter();
        let mut accounts: Vec<_> = entries
            .filter_map(|(name, state)| Some((name, state.accounts()?)))
            .collect();
        accounts.sort_by_key(|(name, _)| *name);
        accounts
    }

    /// Changes a plugin's state, if it has one of type `T`.
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

    /// Removes the states of other plugins.
    pub(super) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.entries.retain(|(name, _)| keep(name));
    }

    /// State of a plugin for a newer cluster state, if the plugin has one and can advance it.
    pub fn advance(&self, plugin: &str, changes: &StateDiff<'_>) -> Option<Arc<dyn PluginState>> {
        // An id may have another name after names were forgotten.
        if !changes.old.resources().is_of_same_era(changes.new.resources()) {
            return None;
        }
        let (_, derived) = self.entries.iter().find(|(name, _)| **name == *plugin)?;
        derived.advance(changes)
    }

    /// True if a plugin has a state.
    pub fn contains(&self, plugin: &str) -> bool {
        self.entries.iter().any(|(name, _)| **name == *plugin)
    }

    /// True if no plugin has a state.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Applies an event to every plugin's state. Returns the queues whose order keys or accounts changed, other than
    /// the task's own queue; a queue may repeat.
    ///
    /// # Errors
    /// A plugin cannot apply the event. Other plugins may have applied it, so the caller must discard the set.
    pub fn apply(
        &mut self,
        cluster_state: &ClusterState,
        event: &PlacementEvent<'_>,
    ) -> Result<Vec<Arc<str>>, Problem> {
        let mut moved = Vec::new();
        for own in self.iter_mut() {
            moved.extend(own.apply(cluster_state, event)?);
        }
        Ok(moved)
    }

    /// Applies events to every plugin's state, see [`PluginState::apply_batch`].
    ///
    /// # Errors
    /// The errors of [`Self::apply`].
    pub fn apply_batch(
        &mut self,
        cluster_state: &ClusterState,
        events: &[PlacementEvent<'_>],
    ) -> Result<BTreeSet<Arc<str>>, Problem> {
        let mut moved = BTreeSet::new();
        for own in self.iter_mut() {
            moved.append(&mut own.apply_batch(cluster_state, events)?);
        }
        Ok(moved)
    }

    /// Applies one event `times` times to every plugin's state, see [`PluginState::apply_repeated`].
    ///
    /// # Errors
    /// The errors of [`Self::apply`].
    pub fn apply_repeated(
        &mut self,
        cluster_state: &ClusterState,
        event: &PlacementEvent<'_>,
        times: u64,
    ) -> Result<(), Problem> {
        self.iter_mut()
            .try_for_each(|own| own.apply_repeated(cluster_state, event, times))
    }

    /// Bytes that these states hold and older ones do not share.
    pub fn unshared_bytes(&self, older: &Self) -> usize {
        let states = self.entries.iter().map(|(name, own)| {
            let old = older.entries.iter().find(|(old, _)| old == name).map(|(_, old)| old);
            match old {
                Some(old) if Arc::ptr_eq(old, own) => 0,
                old => own.held_bytes(old.map(|old| &**old)),
            }
        });
        states.sum()
    }

    /// States of all plugins, mutable.
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
    use crate::model::{NodeSlot, SortedTable};

    #[derive(Clone, Debug, Default)]
    struct CountingPluginState(u32);

    impl PluginState for CountingPluginState {
        fn apply(&mut self, _: &ClusterState, _: &PlacementEvent<'_>) -> Result<Vec<Arc<str>>, Problem> {
            self.0 += 1;
            Ok(Vec::new())
        }

        fn held_bytes(&self, _: Option<&dyn PluginState>) -> usize {
            size_of::<Self>()
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
        let clone = set.clone();
        for _ in 0..3 {
            set.apply(&cluster_state, &PlacementEvent::Enqueue("ns/j")).unwrap();
        }
        let count = |set: &PluginStates| set.get::<CountingPluginState>("counter").map(|counter| counter.0);
        assert_eq!((count(&clone), count(&set)), (Some(0), Some(3)));
        assert!(set.get::<CountingPluginState>("another").is_none());
    }
}
