//! What many records say alike is kept once: shapes of tasks, labels of nodes.
#![expect(
    clippy::disallowed_types,
    reason = "values are found and dropped, never walked: no order of theirs can show"
)]

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use crate::engine::model::{NodeRecord, TaskRecord, TaskShape, Texts, View};

/// Up to so many values a pool does not look for those that nobody uses any more.
const SMALL: usize = 1_024;

/// Values that records share. It holds at most twice what they used when it looked last, or a thousand; it looks again
/// after as many questions.
#[derive(Debug)]
struct Shared<T: ?Sized> {
    known: HashSet<Arc<T>>,
    /// Number of questions after which those are dropped that no record uses any more.
    sweep_in: usize,
}

impl<T: Eq + Hash + ?Sized> Default for Shared<T> {
    fn default() -> Self {
        Self {
            known: HashSet::new(),
            sweep_in: SMALL,
        }
    }
}

impl<T: Eq + Hash + ?Sized> Shared<T> {
    /// The value as it is known, if it is.
    fn find(&mut self, value: &T) -> Option<&Arc<T>> {
        if self.sweep_in == 0 {
            self.known.retain(|known| Arc::strong_count(known) > 1);
            let alive = self.known.len();
            self.sweep_in = SMALL.saturating_sub(alive).max(alive);
        }
        self.sweep_in -= 1;
        self.known.get(value)
    }

    /// Makes a value known that was not found.
    fn put(&mut self, value: &Arc<T>) {
        self.known.insert(Arc::clone(value));
    }

    /// Puts the known value in the place of an equal one, or makes it known.
    fn share(&mut self, value: &mut Arc<T>) {
        match self.find(value) {
            Some(known) => *value = Arc::clone(known),
            None => self.put(value),
        }
    }
}

/// What the records of the shared state have in common. Texts are compared whole, then one by one.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    shapes: Shared<TaskShape>,
    labels: Shared<[(Arc<str>, Arc<str>)]>,
    texts: Shared<str>,
}

impl Pool {
    /// Lets a task use the shape that others have.
    pub(crate) fn task(&mut self, task: &mut TaskRecord) {
        self.shapes.share(&mut task.shape);
    }

    /// The same, and the names of its job and its node, as far as others name them.
    pub(crate) fn task_of_batch(&mut self, task: &mut TaskRecord) {
        self.task(task);
        self.texts.share(&mut task.job);
        self.texts.share(&mut task.node);
    }

    /// Lets a node use the labels that others have.
    pub(crate) fn node_of_batch(&mut self, node: &mut NodeRecord) {
        self.labels_of(&mut node.labels);
    }

    /// Lets a node use what the record before it has, and labels that others have.
    pub(super) fn node(&mut self, record: Arc<NodeRecord>, view: &View) -> Arc<NodeRecord> {
        let before = view.node_named(&record.name).map(|entry| &entry.record);
        if let Some(before) = before.filter(|before| **before == record) {
            return Arc::clone(before);
        }
        let mut record = Arc::unwrap_or_clone(record);
        if let Some(before) = before {
            record.name = Arc::clone(&before.name);
            if record.uid == before.uid {
                record.uid = Arc::clone(&before.uid);
            }
            if record.allocatable == before.allocatable {
                record.allocatable = before.allocatable.clone();
            }
        }
        self.labels_of(&mut record.labels);
        Arc::new(record)
    }

    fn labels_of(&mut self, labels: &mut Texts) {
        if let Some(known) = self.labels.find(labels) {
            *labels = Arc::clone(known);
            return;
        }
        let texts = &mut self.texts;
        let mut shared = |text: &Arc<str>| {
            let mut own = Arc::clone(text);
            texts.share(&mut own);
            own
        };
        *labels = labels.iter().map(|(name, text)| (shared(name), shared(text))).collect();
        self.labels.put(labels);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::model::{Amounts, ResourceId, TaskFields};

    fn task(cpu: i64) -> TaskRecord {
        TaskRecord::from(TaskFields {
            requests: Amounts::from_iter([(ResourceId::CPU, cpu)]),
            ..TaskFields::default()
        })
    }

    #[test]
    fn equal_shapes_become_one() {
        let mut pool = Pool::default();
        let (mut one, mut other, mut third) = (task(1), task(1), task(2));
        for task in [&mut one, &mut other, &mut third] {
            pool.task(task);
        }
        assert!(Arc::ptr_eq(&one.shape, &other.shape) && !Arc::ptr_eq(&one.shape, &third.shape));
    }

    #[test]
    fn what_no_record_uses_any_more_is_dropped() {
        let mut pool = Pool::default();
        let mut kept = task(-1);
        pool.task(&mut kept);
        for cpu in 0..100_000 {
            pool.task(&mut task(cpu));
            assert!(pool.shapes.known.len() <= SMALL);
        }
        let mut again = task(-1);
        pool.task(&mut again);
        assert!(Arc::ptr_eq(&again.shape, &kept.shape));
    }

    #[test]
    fn a_former_peak_is_dropped() {
        let mut pool = Pool::default();
        let mut peak: Vec<TaskRecord> = (0..50_000).map(task).collect();
        for task in &mut peak {
            pool.task(task);
        }
        assert_eq!(pool.shapes.known.len(), 50_000);
        peak.truncate(100);
        for _ in 0..50_000 {
            pool.task(&mut task(1));
        }
        assert!(pool.shapes.known.len() <= SMALL);
    }

    #[test]
    fn nodes_of_a_batch_share_labels() {
        let mut pool = Pool::default();
        let node = |name: &str| NodeRecord {
            name: name.into(),
            labels: [("a.count".into(), "8".into())].into(),
            ..NodeRecord::default()
        };
        let (mut one, mut other) = (node("n1"), node("n2"));
        for node in [&mut one, &mut other] {
            pool.node_of_batch(node);
        }
        assert!(Arc::ptr_eq(&one.labels, &other.labels));
        assert_eq!(other, node("n2"));
    }

    #[test]
    fn labels_share_lists_and_texts() {
        let mut pool = Pool::default();
        let labels = |product: &str| -> Texts {
            [("a.count", "8"), ("a.product", product)]
                .map(|(name, text)| (name.into(), text.into()))
                .into()
        };
        let (mut one, mut same, mut other) = (labels("A100"), labels("A100"), labels("H100"));
        for labels in [&mut one, &mut same, &mut other] {
            pool.labels_of(labels);
        }
        assert!(Arc::ptr_eq(&one, &same) && !Arc::ptr_eq(&one, &other));
        assert!(Arc::ptr_eq(&one[0].0, &other[0].0) && Arc::ptr_eq(&one[0].1, &other[0].1));
        assert_eq!(*other, *labels("H100"));
    }
}
