//! Derived state: what a plugin works out from a View and keeps beside it, moved by the changes of a cycle.

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use super::model::{Changes, Problem, TaskRecord, View};

/// What a change did to a task.
#[derive(Clone, Copy, Debug)]
pub struct TaskMove<'a> {
    /// The task before the change.
    pub before: &'a TaskRecord,
    /// The task now. Under `compatibility: upstream` a task that is taken off its node still names it here.
    pub after: &'a TaskRecord,
    /// The card that it was put on; empty: none said.
    pub card: &'a str,
}

/// One thing that happened in a cycle, as plugins are told of it.
#[derive(Clone, Copy, Debug)]
pub enum Movement<'a> {
    /// A task's requests now count: it was given room, or its eviction was undone.
    Allocate(TaskMove<'a>),
    /// They count, for room that is being released.
    Pipeline(TaskMove<'a>),
    /// They no longer count.
    Deallocate(TaskMove<'a>),
    /// A job is enqueued for good.
    Enqueue(&'a str),
    /// A job that was enqueued waits again.
    Leave(&'a Arc<str>),
    /// The reservation of a job was put, changed or taken away; the View says which.
    Reserve(&'a Arc<str>),
}

impl<'a> Movement<'a> {
    /// The task that now counts, if that is what happened.
    pub fn arrival(&self) -> Option<&TaskMove<'a>> {
        match self {
            Self::Allocate(moved) | Self::Pipeline(moved) => Some(moved),
            Self::Deallocate(_) | Self::Enqueue(_) | Self::Leave(_) | Self::Reserve(_) => None,
        }
    }

    /// True if both are tasks of one job that now count.
    pub fn arrives_like(&self, other: &Self) -> bool {
        let both = self.arrival().zip(other.arrival());
        both.is_some_and(|(one, other)| one.after.job == other.after.job)
    }
}

/// What one plugin keeps beside a View. Clones must be cheap: every mark of a cycle is one.
pub trait Derived: Any + Debug + Send + Sync {
    /// Follows a change. `view` is the state after it. Answers which queues' order keys or accounts it moved, besides
    /// the task's own queue.
    ///
    /// # Errors
    /// It cannot be counted: the changes that it belongs to are refused, and this value is thrown away.
    fn follow(&mut self, view: &View, movement: &Movement<'_>) -> Result<Vec<Arc<str>>, Problem>;

    /// Follows changes of tasks in their order, all of which `view` shows already. Answers as [`Self::follow`] would in
    /// all.
    ///
    /// # Errors
    /// As [`Self::follow`].
    fn follow_all(&mut self, view: &View, movements: &[Movement<'_>]) -> Result<BTreeSet<Arc<str>>, Problem> {
        let mut moved = BTreeSet::new();
        for movement in movements {
            moved.extend(self.follow(view, movement)?);
        }
        Ok(moved)
    }

    /// Follows the same change of so many tasks that differ in name alone, of which the plugin said that they move this
    /// alike ([`Plugin::admits_in_a_row`](super::plugin::Plugin::admits_in_a_row)); `movement` is that of one of them.
    /// Each of these tasks moves once: what it holds need not be remembered by its name.
    ///
    /// # Errors
    /// As [`Self::follow`].
    fn follow_alike(&mut self, view: &View, movement: &Movement<'_>, times: u64) -> Result<(), Problem> {
        for _ in 0..times {
            self.follow(view, movement)?;
        }
        Ok(())
    }

    /// The same beside a newer View, for what changed since the one that it was worked out from; `None`: it is worked out
    /// anew. Both ways must give the same, to the last bit.
    fn carry(&self, changes: &Changes<'_>) -> Option<Arc<dyn Derived>> {
        let _ = changes;
        None
    }

    /// A copy that changes can move on its own.
    fn copy(&self) -> Arc<dyn Derived>;
}

/// The derived state of a policy's plugins, at most one per plugin name. A clone shares everything until a change moves
/// one of the two.
#[derive(Clone, Debug, Default)]
pub struct DerivedSet {
    /// In the order in which changes reach them.
    entries: Vec<(Arc<str>, Arc<dyn Derived>)>,
}

impl DerivedSet {
    /// Puts a plugin's derived state in the place of the one that it had.
    pub fn insert(&mut self, plugin: Arc<str>, derived: Arc<dyn Derived>) {
        match self.entries.iter_mut().find(|(name, _)| *name == plugin) {
            Some((_, old)) => *old = derived,
            None => self.entries.push((plugin, derived)),
        }
    }

    /// A plugin's derived state, if it keeps one and it is a `T`.
    pub fn get<T: Derived>(&self, plugin: &str) -> Option<&T> {
        let (_, derived) = self.entries.iter().find(|(name, _)| **name == *plugin)?;
        let derived: &dyn Any = &**derived;
        derived.downcast_ref()
    }

    /// Changes a plugin's derived state, if it keeps one and it is a `T`.
    pub fn change<T: Derived, R>(&mut self, plugin: &str, change: impl FnOnce(&mut T) -> R) -> Option<R> {
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
    pub(super) fn keep_only(&mut self, keep: impl Fn(&str) -> bool) {
        self.entries.retain(|(name, _)| keep(name));
    }

    /// A plugin's derived state beside a newer View, if it keeps some and can carry it there.
    pub fn carry(&self, plugin: &str, changes: &Changes<'_>) -> Option<Arc<dyn Derived>> {
        let (_, derived) = self.entries.iter().find(|(name, _)| **name == *plugin)?;
        derived.carry(changes)
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
    pub fn follow(&mut self, view: &View, movement: &Movement<'_>) -> Result<Vec<Arc<str>>, Problem> {
        let mut moved = Vec::new();
        for own in self.own() {
            moved.extend(own.follow(view, movement)?);
        }
        Ok(moved)
    }

    /// Tells every plugin of changes of tasks, as [`Derived::follow_all`].
    ///
    /// # Errors
    /// As [`Self::follow`].
    pub fn follow_all(&mut self, view: &View, movements: &[Movement<'_>]) -> Result<BTreeSet<Arc<str>>, Problem> {
        let mut moved = BTreeSet::new();
        for own in self.own() {
            moved.append(&mut own.follow_all(view, movements)?);
        }
        Ok(moved)
    }

    /// Tells every plugin of the same change of so many tasks, as [`Derived::follow_alike`].
    ///
    /// # Errors
    /// As [`Self::follow`].
    pub fn follow_alike(&mut self, view: &View, movement: &Movement<'_>, times: u64) -> Result<(), Problem> {
        self.own().try_for_each(|own| own.follow_alike(view, movement, times))
    }

    /// What each plugin keeps, to be changed.
    fn own(&mut self) -> impl Iterator<Item = &mut dyn Derived> {
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
    use crate::engine::model::{Slot, Table};

    #[derive(Clone, Debug, Default)]
    struct Counter(u32);

    impl Derived for Counter {
        fn follow(&mut self, _: &View, _: &Movement<'_>) -> Result<Vec<Arc<str>>, Problem> {
            self.0 += 1;
            Ok(Vec::new())
        }

        fn copy(&self) -> Arc<dyn Derived> {
            Arc::new(self.clone())
        }
    }

    #[test]
    fn a_clone_keeps_what_it_had() {
        let view = View::new(Arc::new(Table::<Slot>::default()), 0);
        let mut set = DerivedSet::default();
        set.insert("counter".into(), Arc::new(Counter::default()));
        let kept = set.clone();
        for _ in 0..3 {
            set.follow(&view, &Movement::Enqueue("ns/j")).unwrap();
        }
        let count = |set: &DerivedSet| set.get::<Counter>("counter").map(|counter| counter.0);
        assert_eq!((count(&kept), count(&set)), (Some(0), Some(3)));
        assert!(set.get::<Counter>("another").is_none());
    }
}
