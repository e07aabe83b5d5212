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
    /// True if no task of the class has others evicted for it.
    pub never_preempts: bool,
}

/// Rules of a class for its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ClassRules {
    value: i32,
    never_preempts: bool,
}

/// Priority classes by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PriorityClasses {
    /// Rules of each class, and whether it is the global default.
    by_name: BTreeMap<Arc<str>, (ClassRules, bool)>,
    /// Rules of the global default with the least value, as Kubernetes has it.
    global_default: Option<ClassRules>,
}

impl PriorityClasses {
    /// Puts a class, replacing the one of its name.
    pub fn insert(&mut self, class: &PriorityClassRecord) {
        let rules = ClassRules {
            value: class.value,
            never_preempts: class.never_preempts,
        };
        self.by_name
            .insert(Arc::clone(&class.name), (rules, class.global_default));
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
            .map(|(rules, _)| *rules)
            .min();
    }

    /// Value of a record that names a class, or none (empty); `None`: there is neither the class nor a global default.
    pub fn value(&self, class: &str) -> Option<i32> {
        self.rules(class).map(|rules| rules.value)
    }

    /// True if a class, or without one the global default, says that no task is evicted for its own.
    pub fn never_preempts(&self, class: &str) -> bool {
        self.rules(class).is_some_and(|rules| rules.never_preempts)
    }

    fn rules(&self, class: &str) -> Option<ClassRules> {
        self.own_rules(class).or(self.global_default)
    }

    /// True if there is a class of the name.
    pub fn is_known(&self, class: &str) -> bool {
        self.own_rules(class).is_some()
    }

    /// Value of records without a class.
    pub fn global_default(&self) -> Option<i32> {
        self.global_default.map(|rules| rules.value)
    }

    fn own_rules(&self, class: &str) -> Option<ClassRules> {
        let built_in = || {
            let found = BUILT_IN.iter().find(|(name, _)| *name == class);
            found.map(|(_, value)| ClassRules {
                value: *value,
                never_preempts: false,
            })
        };
        self.by_name.get(class).map(|(rules, _)| *rules).or_else(built_in)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_global_defaults_the_least_counts() {
        let mut classes = PriorityClasses::default();
        assert_eq!((classes.value(""), classes.value("high")), (None, None));
        let default = |name: &str, value, never_preempts| PriorityClassRecord {
            name: name.into(),
            value,
            global_default: true,
            never_preempts,
        };
        classes.insert(&default("high", 9, false));
        classes.insert(&default("low", -4, true));
        assert_eq!(
            (classes.value(""), classes.value("high"), classes.value("gone")),
            (Some(-4), Some(9), Some(-4))
        );
        assert!(classes.never_preempts("") && !classes.never_preempts("high"));
        assert!(!classes.never_preempts("system-node-critical"));
        classes.remove("low");
        assert!(!classes.never_preempts(""));
        assert_eq!(classes.value(""), Some(9));
        assert!(classes.is_known("system-node-critical") && !classes.is_known("low"));
    }
}
