//! Priority classes: the numbers of tasks and jobs that name their priority by class.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Classes that every cluster has.
const BUILT_IN: [(&str, i32); 2] = [
    ("system-cluster-critical", 2_000_000_000),
    ("system-node-critical", 2_000_001_000),
];

/// Priority class (scheduling.k8s.io): a name for a priority value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PriorityClassRecord {
    /// Name of the class, such as `high-priority`.
    pub name: Arc<str>,
    /// Value of the class, such as 1000. A larger value is served first.
    pub value: i32,
    /// True if the value also applies to records without a class.
    pub global_default: bool,
}

/// Priority classes by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PriorityClasses {
    /// Value of each class, and whether it is the global default.
    by_name: BTreeMap<Arc<str>, (i32, bool)>,
    /// Least value of the classes that are the global default, as Kubernetes has it.
    global_default: Option<i32>,
}

impl PriorityClasses {
    /// Puts a class, replacing the one of its name.
    pub fn insert(&mut self, name: Arc<str>, value: i32, global_default: bool) {
        self.by_name.insert(name, (value, global_default));
        self.find_default();
    }

    /// Removes a class.
    pub fn remove(&mut self, name: &str) {
        self.by_name.remove(name);
        self.find_default();
    }

    fn find_default(&mut self) {
        let classes = self.by_name.values();
        self.global_default = classes
            .filter(|(_, is_default)| *is_default)
            .map(|(value, _)| *value)
            .min();
    }

    /// Value of a record that names a class, or none (empty); `None`: there is neither the class nor a global default.
    pub fn value(&self, class: &str) -> Option<i32> {
        self.own_value(class).or(self.global_default)
    }

    /// True if there is a class of the name.
    pub fn is_known(&self, class: &str) -> bool {
        self.own_value(class).is_some()
    }

    /// Value of records without a class.
    pub fn global_default(&self) -> Option<i32> {
        self.global_default
    }

    fn own_value(&self, class: &str) -> Option<i32> {
        let built_in = || {
            BUILT_IN
                .iter()
                .find(|(name, _)| *name == class)
                .map(|(_, value)| *value)
        };
        self.by_name.get(class).map(|(value, _)| *value).or_else(built_in)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_global_defaults_the_least_counts() {
        let mut classes = PriorityClasses::default();
        assert_eq!((classes.value(""), classes.value("high")), (None, None));
        classes.insert("high".into(), 9, true);
        classes.insert("low".into(), -4, true);
        assert_eq!(
            (classes.value(""), classes.value("high"), classes.value("gone")),
            (Some(-4), Some(9), Some(-4))
        );
        classes.remove("low");
        assert_eq!(classes.value(""), Some(9));
        assert!(classes.is_known("system-node-critical") && !classes.is_known("low"));
    }
}
