//! Plugin state: the state that a plugin computes from a cluster state, updated by the changes of a cycle.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use super::held_bytes::{COUNT_BYTES, HeldMemory};
use super::model::{ClusterState, ErrorCode, Problem, StateDiff, TaskRecord, TaskStatus};
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
    /// Number of tasks that move so and differ only in name; the plugin declared them repeatable
    /// ([`QuotaPlugin::repeatable_admissions`](super::plugin::QuotaPlugin::repeatable_admissions)). Each moves once, so a
    /// plugin need not store holdings by name. `None`: the task itself moves.
    pub repeated: Option<u64>,
}

impl<'a> TaskTransition<'a> {
    /// Transition that no equal task repeats.
    pub fn new(before: &'a TaskRecord, after: &'a TaskRecord, card: &'a str) -> Self {
        Self {
            before,
            after,
            card,
            repeated: None,
        }
    }

    /// Number of tasks that move.
    pub fn count(&self) -> u64 {
        self.repeated.unwrap_or(1)
    }
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
    /// Event of a task that was put on a node.
    pub fn placed(moved: TaskTransition<'a>) -> Self {
        if moved.after.status == TaskStatus::Pipelined {
            Self::Pipeline(moved)
        } else {
            Self::Allocate(moved)
        }
    }

    /// Task whose requests the event adds (true) or removes. `None`: the event is not about a task.
    pub fn moved_task(&self) -> Option<(TaskTransition<'a>, bool)> {
        match self {
            Self::Allocate(moved) | Self::Pipeline(moved) => Some((*moved, true)),
            Self::Deallocate(moved) => Some((*moved, false)),
            Self::Enqueue(_) | Self::Dequeue(_) | Self::Reserve(_) => None,
        }
    }

    /// True if both events are about tasks of the same job.
    pub fn moves_same_job(&self, other: &Self) -> bool {
        let both = self.moved_task().zip(other.moved_task());
        both.is_some_and(|((one, _), (other, _))| one.after.job == other.after.job)
    }
}

/// Change of a cluster state that plugin states follow.
#[derive(Debug)]
pub enum PluginStateChange<'a> {
    /// Events of a cycle in their order; the cluster state shows all of them.
    Events(&'a ClusterState, &'a [PlacementEvent<'a>]),
    /// Step from the cluster state that the plugin state was computed from to a newer one.
    Step(StateDiff<'a>),
}

impl PluginStateChange<'_> {
    /// Problem of a plugin state that does not follow a step: the caller builds it from the newer cluster state.
    pub fn unfollowed() -> Problem {
        let message = "the plugin state does not follow this change";
        Problem::new(ErrorCode::PluginStateMissing, "", message)
    }
}

/// State of one plugin for a cluster state, as [`Plugin::build_state`](super::plugin::Plugin::build_state) computes it.
/// Clones must be cheap, since every savepoint of a cycle is one.
pub trait PluginState: PluginStateCopies + Any + Debug + Send + Sync {
    /// Follows a change. After a step the state equals the state that is built from the newer cluster state, to the last
    /// bit. Returns the queues whose order keys or accounts changed by events, other than the tasks' own queues.
    ///
    /// # Errors
    /// The plugin cannot follow the change, and the caller must discard this value. After events the error rejects them;
    /// after a step the caller builds the state.
    fn apply(&mut self, change: &PluginStateChange<'_>) -> Result<Vec<Arc<str>>, Problem>;

    /// Accounts of this state; `None`: it keeps none that anybody reads.
    fn accounts(&self) -> Option<&dyn PluginAccounts> {
        None
    }
}

/// Copies of a plugin state and their memory, for every state that is `Clone` and [`HeldMemory`].
pub trait PluginStateCopies {
    /// Copy that changes independently.
    fn copy(&self) -> Arc<dyn PluginState>;

    /// Bytes of this state that an older state of the same plugin, if there is one, does not share.
    fn unshared_bytes(&self, older: Option<&dyn Any>) -> usize;
}

impl<T: PluginState + Clone + HeldMemory> PluginStateCopies for T {
    fn copy(&self) -> Arc<dyn PluginState> {
        Arc::new(self.clone())
    }

    fn unshared_bytes(&self, older: Option<&dyn Any>) -> usize {
        let older = older.and_then(|older| older.downcast_ref());
        COUNT_BYTES + size_of::<Self>() + self.held_bytes(older)
    }
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

    /// State of a plugin for a newer cluster state, if the plugin has one and it follows the step.
    pub fn advance(&self, plugin: &str, changes: StateDiff<'_>) -> Option<Arc<dyn PluginState>> {
        // An id may have another name after names were forgotten.
        if !changes.old.resources().is_of_same_era(changes.new.resources()) {
            return None;
        }
        let (_, older) = self.entries.iter().find(|(name, _)| **name == *plugin)?;
        let mut newer = older.copy();
        Arc::get_mut(&mut newer)?
            .apply(&PluginStateChange::Step(changes))
            .ok()?;
        Some(newer)
    }

    /// True if a plugin has a state.
    pub fn contains(&self, plugin: &str) -> bool {
        self.entries.iter().any(|(name, _)| **name == *plugin)
    }

    /// True if no plugin has a state.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Applies events to every plugin's state in their order; the cluster state shows all of them. Returns the queues
    /// whose order keys or accounts changed, other than the tasks' own queues; a queue may repeat.
    ///
    /// # Errors
    /// A plugin cannot apply an event. Other plugins may have applied it, so the caller must discard the set.
    pub fn apply(
        &mut self,
        cluster_state: &ClusterState,
        events: &[PlacementEvent<'_>],
    ) -> Result<Vec<Arc<str>>, Problem> {
        let mut moved = Vec::new();
        for own in self.iter_mut() {
            moved.append(&mut own.apply(&PluginStateChange::Events(cluster_state, events))?);
        }
        Ok(moved)
    }

    /// Bytes that these states hold and older ones do not share.
    pub fn unshared_bytes(&self, older: &Self) -> usize {
        let states = self.entries.iter().map(|(name, own)| {
            let old = older.entries.iter().find(|(old, _)| old == name).map(|(_, old)| old);
            match old {
                Some(old) if Arc::ptr_eq(old, own) => 0,
                old => own.unshared_bytes(old.map(|old| -> &dyn Any { &**old })),
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
    use crate::held_bytes::held_bytes;
    use crate::model::{NodeSlot, SortedTable};

    #[derive(Clone, Debug, Default)]
    struct CountingPluginState(u32);

    held_bytes! { plain CountingPluginState }

    impl PluginState for CountingPluginState {
        fn apply(&mut self, _: &PluginStateChange<'_>) -> Result<Vec<Arc<str>>, Problem> {
            self.0 += 1;
            Ok(Vec::new())
        }
    }

    #[test]
    fn a_clone_keeps_what_it_had() {
        let cluster_state = ClusterState::new(Arc::new(SortedTable::<NodeSlot>::default()), 0);
        let mut set = PluginStates::default();
        set.insert("counter".into(), Arc::new(CountingPluginState::default()));
        let clone = set.clone();
        for _ in 0..3 {
            set.apply(&cluster_state, &[PlacementEvent::Enqueue("ns/j")]).unwrap();
        }
        let count = |set: &PluginStates| set.get::<CountingPluginState>("counter").map(|counter| counter.0);
        assert_eq!((count(&clone), count(&set)), (Some(0), Some(3)));
        assert!(set.get::<CountingPluginState>("another").is_none());
    }
}
