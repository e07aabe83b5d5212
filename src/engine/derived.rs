//! Derived state: what a plugin works out from a View and keeps beside it, moved by the events of a cycle.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use super::cycle::Event;
use super::model::{Problem, View};

/// What one plugin keeps beside a View. Clones must be cheap: every mark of a cycle is one.
pub trait Derived: Any + Debug + Send + Sync {
    /// Follows an event. `view` is the state after the change that caused it.
    ///
    /// # Errors
    /// The event cannot be counted: the changes that it belongs to are refused, and this value is thrown away.
    fn event(&mut self, view: &View, event: &Event) -> Result<(), Problem>;

    /// A copy that events can move on its own.
    fn copy(&self) -> Arc<dyn Derived>;
}

/// The derived state of a policy's plugins, at most one per plugin name. A clone shares everything until an event moves
/// one of the two.
#[derive(Clone, Debug, Default)]
pub struct DerivedSet {
    /// In the order in which events reach them.
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

    /// True if no plugin keeps any.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Tells every plugin of an event.
    ///
    /// # Errors
    /// One of them cannot count it. Some may have: the set is to be thrown away.
    pub fn event(&mut self, view: &View, event: &Event) -> Result<(), Problem> {
        for (_, derived) in &mut self.entries {
            if Arc::get_mut(derived).is_none() {
                *derived = derived.copy();
            }
            if let Some(own) = Arc::get_mut(derived) {
                own.event(view, event)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::model::{Slot, Table};

    #[derive(Clone, Debug, Default)]
    struct Counter(u32);

    impl Derived for Counter {
        fn event(&mut self, _: &View, _: &Event) -> Result<(), Problem> {
            self.0 += 1;
            Ok(())
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
            set.event(&view, &Event::Allocate("ns/t".into())).unwrap();
        }
        let count = |set: &DerivedSet| set.get::<Counter>("counter").map(|counter| counter.0);
        assert_eq!((count(&kept), count(&set)), (Some(0), Some(3)));
        assert!(set.get::<Counter>("another").is_none());
    }
}
