//! Interner: equal values of many records, such as shapes of tasks and labels of nodes, are stored once.
#![expect(
    clippy::disallowed_types,
    reason = "values are found and dropped, never walked: no order of theirs can show"
)]

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use pumice_engine::model::{
    ClusterState, GangMinimums, JobRecord, NodeRecord, ResourceAmounts, TaskRecord, TaskShape, UnevaluatedFields,
    constraints::NodeProperties,
};

/// Number of values up to which an interner does not look for unused ones.
const SWEEP_MIN: usize = 1_024;

/// Values that records share. An interner holds at most 1,024 values or twice the values in use at its last sweep,
/// whichever is more. The next sweep comes after as many look-ups.
#[derive(Debug)]
struct ValueInterner<T: ?Sized> {
    known: HashSet<Arc<T>>,
    /// Number of look-ups before the next sweep drops the values that no record uses.
    sweep_in: usize,
}

impl<T: Eq + Hash + ?Sized> Default for ValueInterner<T> {
    fn default() -> Self {
        Self {
            known: HashSet::new(),
            sweep_in: SWEEP_MIN,
        }
    }
}

impl<T: Eq + Hash + ?Sized> ValueInterner<T> {
    /// Interned value that is equal to this one, if there is one.
    fn find(&mut self, value: &T) -> Option<&Arc<T>> {
        if self.sweep_in == 0 {
            self.known.retain(|known| Arc::strong_count(known) > 1);
            let alive = self.known.len();
            self.sweep_in = SWEEP_MIN.saturating_sub(alive).max(alive);
        }
        self.sweep_in -= 1;
        self.known.get(value)
    }

    /// Adds a value that [`Self::find`] did not return.
    fn insert(&mut self, value: &Arc<T>) {
        self.known.insert(Arc::clone(value));
    }

    /// Replaces a value by the equal interned value. Without an equal value, it adds the copy from `copy`, or the value
    /// itself if `copy` returns `None`.
    fn intern(&mut self, value: &mut Arc<T>, copy: impl FnOnce(&T) -> Option<Arc<T>>) {
        if let Some(known) = self.find(value) {
            *value = Arc::clone(known);
            return;
        }
        if let Some(copy) = copy(value) {
            *value = copy;
        }
        self.insert(value);
    }
}

/// Values that records of the shared state have in common. Lists are compared as a whole first, then text by text.
#[derive(Debug, Default)]
pub struct RecordInterner {
    shapes: ValueInterner<TaskShape>,
    labels: ValueInterner<[(Arc<str>, Arc<str>)]>,
    node_fields: ValueInterner<Vec<Arc<str>>>,
    properties: ValueInterner<NodeProperties>,
    texts: TextInterner,
}

/// Texts that records share.
#[derive(Debug, Default)]
struct TextInterner {
    values: ValueInterner<str>,
    /// True if new texts are copied.
    copies_new: bool,
}

impl TextInterner {
    fn intern(&mut self, text: &mut Arc<str>) {
        let last = self.copies_new;
        self.values.intern(text, |text| last.then(|| text.into()));
    }

    fn intern_pairs(&mut self, list: &[(Arc<str>, Arc<str>)]) -> Arc<[(Arc<str>, Arc<str>)]> {
        if list.is_empty() {
            return Arc::default();
        }
        let mut shared = |text: &Arc<str>| {
            let mut own = Arc::clone(text);
            self.intern(&mut own);
            own
        };
        list.iter().map(|(name, text)| (shared(name), shared(text))).collect()
    }

    fn intern_names(&mut self, names: &[Arc<str>]) -> Vec<Arc<str>> {
        let mut names = names.to_vec();
        for name in &mut names {
            self.intern(name);
        }
        names
    }

    /// Copy of a shape in its own memory.
    fn copy_shape(&mut self, shape: &TaskShape) -> TaskShape {
        let copied =
            |amounts: &Option<Box<ResourceAmounts>>| amounts.as_ref().map(|amounts| Box::new(amounts.copied()));
        let mut own = TaskShape {
            requests: shape.requests.copied(),
            limits: copied(&shape.limits),
            nonzero_requests: copied(&shape.nonzero_requests),
            counted_requests: copied(&shape.counted_requests),
            container_nonzero_requests: copied(&shape.container_nonzero_requests),
            container_requests: copied(&shape.container_requests),
            kubernetes_requests: copied(&shape.kubernetes_requests),
            ..shape.clone()
        };
        own.annotations = self.intern_pairs(&shape.annotations);
        if let Some(names) = own.unevaluated_fields.shared_mut() {
            *names = Arc::new(self.intern_names(names));
        }
        self.intern(&mut own.nominated_node);
        if let Some(constraints) = &mut own.constraints {
            Arc::make_mut(constraints).each_text(&mut |text| self.intern(text));
        }
        if let Some(gang) = &mut own.gang {
            Arc::make_mut(gang).texts_mut().for_each(|text| self.intern(text));
        }
        own
    }
}

/// Moves a name to its own memory.
fn copy_name(name: &mut Arc<str>) {
    if !name.is_empty() {
        *name = Arc::from(&**name);
    }
}

impl RecordInterner {
    /// Interner for records that stay in the state. Retained fields are copied: they share allocator pages with the
    /// discarded request, which could otherwise not be reused.
    pub(crate) fn copying() -> Self {
        Self {
            texts: TextInterner {
                copies_new: true,
                ..TextInterner::default()
            },
            ..Self::default()
        }
    }

    /// Makes a task share its shape with other tasks.
    fn intern_task_shape(&mut self, task: &mut TaskRecord) {
        let texts = &mut self.texts;
        self.shapes.intern(&mut task.shape, |shape| {
            texts.copies_new.then(|| Arc::new(texts.copy_shape(shape)))
        });
    }

    /// Makes a task of a batch share its shape, and the names of its job and its node, with other tasks.
    pub fn intern_batch_task(&mut self, task: &mut TaskRecord) {
        self.intern_task_shape(task);
        self.texts.intern(&mut task.job);
        self.texts.intern(&mut task.node);
        self.intern_labels(&mut task.labels);
    }

    /// Makes a node of a batch share its labels with other nodes.
    pub fn intern_batch_node(&mut self, node: &mut NodeRecord) {
        self.intern_labels(&mut node.labels);
        self.intern_node_fields(&mut node.unevaluated_fields);
        self.intern_properties(&mut node.properties);
    }

    /// Makes a task that stays in the state share its shape with other tasks. `is_new`: the state has no task of its
    /// name.
    pub(crate) fn intern_task(&mut self, task: &mut TaskRecord, is_new: bool) {
        self.intern_task_shape(task);
        if is_new {
            copy_name(&mut task.name);
            copy_name(&mut task.job);
            copy_name(&mut task.node);
            task.uid = task.uid.copied();
        }
        self.intern_labels(&mut task.labels);
    }

    /// Makes a job that stays in the state share its texts with other jobs.
    pub(crate) fn intern_job(&mut self, job: &mut JobRecord) {
        copy_name(&mut job.name);
        copy_name(&mut job.uid);
        self.texts.intern(&mut job.queue);
        job.min_resources = job.min_resources.as_ref().map(ResourceAmounts::copied);
        job.annotations = self.texts.intern_pairs(&job.annotations);
        if let Some(gang) = &mut job.gang {
            let texts = &mut self.texts;
            *gang = Arc::new(GangMinimums::clone(gang));
            Arc::make_mut(gang).texts_mut().for_each(|text| texts.intern(text));
        }
    }

    /// Makes a node that stays in the state share values with the record that it replaces, and its labels with other
    /// nodes.
    pub(crate) fn intern_node(&mut self, record: Arc<NodeRecord>, cluster_state: &ClusterState) -> Arc<NodeRecord> {
        let before = cluster_state.node_by_name(&record.name).map(|entry| &entry.record);
        if let Some(before) = before.filter(|before| **before == record) {
            return Arc::clone(before);
        }
        let mut record = Arc::unwrap_or_clone(record);
        match before {
            Some(before) => record.name = Arc::clone(&before.name),
            None => copy_name(&mut record.name),
        }
        match before.filter(|before| before.uid == record.uid) {
            Some(before) => record.uid = Arc::clone(&before.uid),
            None => copy_name(&mut record.uid),
        }
        record.allocatable = match before.filter(|before| before.allocatable == record.allocatable) {
            Some(before) => before.allocatable.clone(),
            None => record.allocatable.copied(),
        };
        for amounts in [
            &mut record.oversubscription,
            &mut record.unattributed_used,
            &mut record.unattributed_nonzero_used,
        ] {
            *amounts = amounts.as_ref().map(ResourceAmounts::copied);
        }
        self.intern_labels(&mut record.labels);
        self.intern_node_fields(&mut record.unevaluated_fields);
        self.intern_properties(&mut record.properties);
        Arc::new(record)
    }

    fn intern_properties(&mut self, properties: &mut Option<Arc<NodeProperties>>) {
        let texts = &mut self.texts;
        if let Some(own) = properties {
            self.properties.intern(own, |own| {
                let mut copy = own.clone();
                copy.each_text(&mut |text| texts.intern(text));
                Some(Arc::new(copy))
            });
        }
    }

    fn intern_node_fields(&mut self, fields: &mut UnevaluatedFields) {
        let texts = &mut self.texts;
        if let Some(names) = fields.shared_mut() {
            self.node_fields
                .intern(names, |names| Some(Arc::new(texts.intern_names(names))));
        }
    }

    fn intern_labels(&mut self, labels: &mut Arc<[(Arc<str>, Arc<str>)]>) {
        if labels.is_empty() {
            return;
        }
        let texts = &mut self.texts;
        self.labels.intern(labels, |labels| Some(texts.intern_pairs(labels)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pumice_engine::model::{ResourceAmounts, ResourceId, TaskFields};

    fn task(cpu: i64) -> TaskRecord {
        TaskRecord::from(TaskFields {
            requests: ResourceAmounts::from_iter([(ResourceId::CPU, cpu)]),
            ..TaskFields::default()
        })
    }

    #[test]
    fn equal_shapes_become_one() {
        let mut pool = RecordInterner::default();
        let (mut one, mut other, mut third) = (task(1), task(1), task(2));
        for task in [&mut one, &mut other, &mut third] {
            pool.intern_task_shape(task);
        }
        assert!(Arc::ptr_eq(&one.shape, &other.shape) && !Arc::ptr_eq(&one.shape, &third.shape));
    }

    #[test]
    fn unused_values_are_dropped() {
        let mut pool = RecordInterner::default();
        let mut used = task(-1);
        pool.intern_task_shape(&mut used);
        for cpu in 0..100_000 {
            pool.intern_task_shape(&mut task(cpu));
            assert!(pool.shapes.known.len() <= SWEEP_MIN);
        }
        let mut again = task(-1);
        pool.intern_task_shape(&mut again);
        assert!(Arc::ptr_eq(&again.shape, &used.shape));
    }

    #[test]
    fn a_former_peak_is_dropped() {
        let mut pool = RecordInterner::default();
        let mut peak: Vec<TaskRecord> = (0..50_000).map(task).collect();
        for task in &mut peak {
            pool.intern_task_shape(task);
        }
        assert_eq!(pool.shapes.known.len(), 50_000);
        peak.truncate(100);
        for _ in 0..50_000 {
            pool.intern_task_shape(&mut task(1));
        }
        assert!(pool.shapes.known.len() <= SWEEP_MIN);
    }

    #[test]
    fn copied_records_are_equal() {
        let mut pool = RecordInterner::copying();
        let amounts = || -> ResourceAmounts { (0..9).map(|id| (ResourceId::from_index(id), 1)).collect() };
        let text = |text: &str| -> Arc<str> { text.into() };
        let sent = TaskRecord::from(TaskFields {
            name: text("a/t"),
            uid: "u1".into(),
            job: text("a/j"),
            node: text("n1"),
            nominated_node: text("n2"),
            annotations: [(text("a"), text("b"))].into(),
            requests: amounts(),
            limits: Some(Box::new(amounts())),
            ..TaskFields::default()
        });
        let mut stored = sent.clone();
        pool.intern_task(&mut stored, true);
        assert_eq!(stored, sent);
        for (own, sent) in [
            (&stored.name, &sent.name),
            (&stored.job, &sent.job),
            (&stored.node, &sent.node),
        ] {
            assert!(!Arc::ptr_eq(own, sent));
        }
        assert!(!Arc::ptr_eq(&stored.nominated_node, &sent.nominated_node));
        assert!(!Arc::ptr_eq(&stored.annotations[0].0, &sent.annotations[0].0));
        let mut again = sent.clone();
        pool.intern_task(&mut again, false);
        assert!(Arc::ptr_eq(&again.shape, &stored.shape) && Arc::ptr_eq(&again.name, &sent.name));
        let job = JobRecord {
            name: text("a/j"),
            uid: text("u1"),
            queue: text("q"),
            min_resources: Some(amounts()),
            annotations: [(text("a"), text("b"))].into(),
            ..JobRecord::default()
        };
        let (mut one, mut other) = (job.clone(), job.clone());
        pool.intern_job(&mut one);
        pool.intern_job(&mut other);
        assert_eq!((&one, &other), (&job, &job));
        assert!(Arc::ptr_eq(&one.queue, &other.queue) && !Arc::ptr_eq(&one.queue, &job.queue));
    }

    #[test]
    fn nodes_of_a_batch_share_labels() {
        let mut pool = RecordInterner::default();
        let node = |name: &str| NodeRecord {
            name: name.into(),
            labels: [("a.count".into(), "8".into())].into(),
            ..NodeRecord::default()
        };
        let (mut one, mut other) = (node("n1"), node("n2"));
        for node in [&mut one, &mut other] {
            pool.intern_batch_node(node);
        }
        assert!(Arc::ptr_eq(&one.labels, &other.labels));
        assert_eq!(other, node("n2"));
    }

    #[test]
    fn labels_share_lists_and_texts() {
        let mut pool = RecordInterner::default();
        let labels = |product: &str| -> Arc<[(Arc<str>, Arc<str>)]> {
            [("a.count", "8"), ("a.product", product)]
                .map(|(name, text)| (name.into(), text.into()))
                .into()
        };
        let (mut one, mut same, mut other) = (labels("A100"), labels("A100"), labels("H100"));
        for labels in [&mut one, &mut same, &mut other] {
            pool.intern_labels(labels);
        }
        assert!(Arc::ptr_eq(&one, &same) && !Arc::ptr_eq(&one, &other));
        assert!(Arc::ptr_eq(&one[0].0, &other[0].0) && Arc::ptr_eq(&one[0].1, &other[0].1));
        assert_eq!(*other, *labels("H100"));
    }
}
