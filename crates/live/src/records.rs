//! Records of objects: what a batch puts and removes, with the selectors of the owners of pods.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message as _;
use pumice_kubernetes::object::{
    self, AmountRules, ObjectKind, ObjectLimits, ObjectRecord, OwnerChange, PodOwners, RecordIdentity, UnreadableObject,
};
use pumice_protocol::v1 as pb;

use crate::requests::RequestError;

/// Changed object, as the API server wrote it.
#[derive(Debug)]
pub(crate) struct ChangedObject {
    pub(crate) kind: ObjectKind,
    /// True if the object was deleted.
    pub(crate) is_deleted: bool,
    pub(crate) bytes: Vec<u8>,
}

/// Change of one record.
#[derive(Debug)]
enum ChangedRecord {
    Put(Box<ObjectRecord>),
    Unreadable(pb::UnreadableRecord),
    Remove,
}

/// Changes of records, the last one of each name.
#[derive(Debug, Default)]
pub(crate) struct RecordChanges {
    changes: BTreeMap<(i32, String), ChangedRecord>,
    bytes: usize,
}

impl RecordChanges {
    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Bytes of the records on the wire, roughly.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn set(&mut self, kind: pb::RecordKind, name: &str, change: ChangedRecord) {
        let bytes = match &change {
            ChangedRecord::Put(record) => record_bytes(record),
            ChangedRecord::Unreadable(record) => record.encoded_len(),
            ChangedRecord::Remove => name.len(),
        };
        self.bytes = self.bytes.saturating_add(bytes);
        self.changes.insert((kind.into(), name.to_owned()), change);
    }

    /// Parts of a batch: records to put, names to remove, and records that could not be read.
    pub(crate) fn into_parts(self) -> (pb::Cluster, pb::Removals, Vec<pb::UnreadableRecord>) {
        let mut put = pb::Cluster::default();
        let mut removals = pb::Removals::default();
        let mut unreadable = Vec::new();
        for ((kind, name), change) in self.changes {
            match change {
                ChangedRecord::Put(record) => put_record(&mut put, *record),
                ChangedRecord::Unreadable(record) => unreadable.push(record),
                ChangedRecord::Remove => remove_record(&mut removals, kind, name),
            }
        }
        (put, removals, unreadable)
    }
}

fn record_bytes(record: &ObjectRecord) -> usize {
    match record {
        ObjectRecord::Node(record) => record.encoded_len(),
        ObjectRecord::Queue(record) => record.encoded_len(),
        ObjectRecord::Job(record) => record.encoded_len(),
        ObjectRecord::Task(record, _) => record.encoded_len(),
        ObjectRecord::PriorityClass(record) => record.encoded_len(),
        ObjectRecord::Namespace(record) => record.encoded_len(),
        ObjectRecord::Owner(_) => 0,
    }
}

fn put_record(put: &mut pb::Cluster, record: ObjectRecord) {
    match record {
        ObjectRecord::Node(record) => put.nodes.push(record),
        ObjectRecord::Queue(record) => put.queues.push(record),
        ObjectRecord::Job(record) => put.jobs.push(record),
        ObjectRecord::Task(record, _) => put.tasks.push(record),
        ObjectRecord::PriorityClass(record) => put.priority_classes.push(record),
        ObjectRecord::Namespace(record) => put.namespaces.push(record),
        // Owners become no records.
        ObjectRecord::Owner(_) => {}
    }
}

fn remove_record(removals: &mut pb::Removals, kind: i32, name: String) {
    match pb::RecordKind::try_from(kind).unwrap_or_default() {
        pb::RecordKind::Unspecified => {}
        pb::RecordKind::Node => removals.nodes.push(name),
        pb::RecordKind::Queue => removals.queues.push(name),
        pb::RecordKind::Job => removals.jobs.push(name),
        pb::RecordKind::Task => removals.tasks.push(name),
        pb::RecordKind::Namespace => removals.namespaces.push(name),
        pb::RecordKind::PriorityClass => removals.priority_classes.push(name),
    }
}

/// Reader of objects, which knows the owners of pods.
#[derive(Debug, Default)]
pub(crate) struct ObjectReader {
    owners: PodOwners,
    /// True if all kinds of owners are watched.
    pub(crate) has_owners: bool,
    /// True if queues are watched.
    pub(crate) has_queues: bool,
    /// Namespaces in which an owner changed what it selects.
    stale_namespaces: BTreeSet<String>,
    /// Objects that could not be read since the last look.
    unreadable: Vec<String>,
    unreadable_count: usize,
}

/// Messages about unreadable objects that are kept.
const UNREADABLE_REPORTED: usize = 20;

impl ObjectReader {
    /// Reader that expects all kinds of owners.
    pub(crate) fn new() -> Self {
        ObjectReader {
            has_owners: true,
            has_queues: true,
            ..ObjectReader::default()
        }
    }

    /// Adds the record of an object to changes.
    pub(crate) fn read(&mut self, kind: ObjectKind, is_deleted: bool, bytes: &[u8], changes: &mut RecordChanges) {
        let read = object::read_json_of(kind, bytes, AmountRules::Auto, ObjectLimits::default());
        if is_deleted {
            self.remove(kind, read, changes);
        } else {
            self.put(kind, read, changes);
        }
    }

    /// Adds the records of a page of a list to changes.
    pub(crate) fn read_page(
        &mut self,
        kind: ObjectKind,
        page: &[u8],
        changes: &mut RecordChanges,
    ) -> Result<(), RequestError> {
        let mut put = |read| self.put(kind, read, changes);
        let read = object::read_json_list(kind, page, AmountRules::Auto, ObjectLimits::default(), &mut put);
        read.map_err(|error| RequestError::Unreadable(error.to_string()))
    }

    fn put(
        &mut self,
        kind: ObjectKind,
        read: Result<ObjectRecord, Box<UnreadableObject>>,
        changes: &mut RecordChanges,
    ) {
        match read {
            Ok(ObjectRecord::Owner(owner)) => {
                if let OwnerChange::Changed(namespace) = self.owners.add(owner) {
                    self.stale_namespaces.insert(namespace);
                }
            }
            Ok(mut record) => {
                if let ObjectRecord::Task(task, controller) = &mut record {
                    if self.has_owners {
                        self.owners.complete(task, controller.as_ref());
                    } else {
                        self.owners.complete_partly(task, controller.as_ref());
                    }
                }
                if let ObjectRecord::Job(job) = &record
                    && kind == ObjectKind::WorkloadPodGroup
                    && !self.has_queues
                {
                    Self::put_own_queue(&job.queue, changes);
                }
                let name = record.name_and_uid().0.to_owned();
                changes.set(kind.record_kind(), &name, ChangedRecord::Put(Box::new(record)));
            }
            Err(unreadable) => self.note_unreadable(*unreadable, changes),
        }
    }

    /// Adds the queue of a pod group, where the cluster has no queues and the group names none.
    fn put_own_queue(queue: &str, changes: &mut RecordChanges) {
        if queue == object::DEFAULT_QUEUE {
            let record = pb::Queue {
                name: queue.to_owned(),
                ..pb::Queue::default()
            };
            let change = ChangedRecord::Put(Box::new(ObjectRecord::Queue(record)));
            changes.set(pb::RecordKind::Queue, queue, change);
        }
    }

    fn remove(
        &mut self,
        kind: ObjectKind,
        read: Result<ObjectRecord, Box<UnreadableObject>>,
        changes: &mut RecordChanges,
    ) {
        match read {
            Ok(ObjectRecord::Owner(owner)) => {
                if let OwnerChange::Changed(namespace) = self.owners.remove(&owner) {
                    self.stale_namespaces.insert(namespace);
                }
            }
            Ok(record) => changes.set(kind.record_kind(), record.name_and_uid().0, ChangedRecord::Remove),
            // An object that cannot be read goes by its name.
            Err(unreadable) => {
                if let Some(RecordIdentity { kind, name, .. }) = unreadable.record {
                    changes.set(kind, &name, ChangedRecord::Remove);
                }
            }
        }
    }

    fn note_unreadable(&mut self, unreadable: UnreadableObject, changes: &mut RecordChanges) {
        let UnreadableObject { title, error, record } = unreadable;
        self.unreadable_count = self.unreadable_count.saturating_add(1);
        if self.unreadable.len() < UNREADABLE_REPORTED {
            self.unreadable.push(format!("{title}: {error}"));
        }
        if let Some(RecordIdentity { kind, name, node }) = record {
            let record = pb::UnreadableRecord {
                kind: kind.into(),
                name: name.clone(),
                field: error.field,
                message: error.reason,
                node,
            };
            changes.set(kind, &name, ChangedRecord::Unreadable(record));
        }
    }

    /// Namespaces whose waiting pods have to be read again, since the last call.
    pub(crate) fn take_stale_namespaces(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.stale_namespaces)
    }

    /// Number of objects that could not be read since the last call, and messages about the first of them.
    pub(crate) fn take_unreadable(&mut self) -> (usize, Vec<String>) {
        (
            std::mem::take(&mut self.unreadable_count),
            std::mem::take(&mut self.unreadable),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str =
        r#"{"metadata":{"name":"a","namespace":"web","labels":{"app":"front"}},"spec":{"containers":[{"name":"c"}]}}"#;

    #[test]
    fn the_last_change_of_a_name_counts() {
        let mut reader = ObjectReader::default();
        let mut changes = RecordChanges::default();
        reader.read(ObjectKind::Pod, false, POD.as_bytes(), &mut changes);
        reader.read(ObjectKind::Pod, true, POD.as_bytes(), &mut changes);
        reader.read(
            ObjectKind::Node,
            false,
            r#"{"metadata":{"name":"n"}}"#.as_bytes(),
            &mut changes,
        );
        let (put, removals, unreadable) = changes.into_parts();
        assert_eq!((put.tasks.len(), put.nodes.len()), (0, 1));
        assert_eq!(removals.tasks, ["web/a"]);
        assert_eq!(unreadable, []);
    }

    #[test]
    fn a_pod_group_without_any_queues_gets_one() {
        let group = |labels: &str| {
            format!(
                r#"{{"metadata":{{"name":"g","namespace":"web","labels":{labels}}},"spec":{{"schedulingPolicy":{{"gang":{{"minCount":3}}}}}}}}"#
            )
        };
        let read = |has_queues: bool, labels: &str| {
            let mut reader = ObjectReader::new();
            reader.has_queues = has_queues;
            let mut changes = RecordChanges::default();
            reader.read(
                ObjectKind::WorkloadPodGroup,
                false,
                group(labels).as_bytes(),
                &mut changes,
            );
            let (put, ..) = changes.into_parts();
            let job = &put.jobs[0];
            assert_eq!((&*job.name, job.min_member), ("web/g", 3));
            (
                job.queue.clone(),
                put.queues.iter().map(|queue| queue.name.clone()).collect::<Vec<_>>(),
            )
        };
        assert_eq!(read(false, "{}"), ("default".to_owned(), vec!["default".to_owned()]));
        assert_eq!(read(true, "{}"), ("default".to_owned(), vec![]));
        let named = r#"{"scheduling.volcano.sh/queue-name":"team"}"#;
        assert_eq!(read(false, named), ("team".to_owned(), vec![]));
    }

    #[test]
    fn an_object_that_cannot_be_read_is_named_and_removed_by_name() {
        let mut reader = ObjectReader::default();
        let mut changes = RecordChanges::default();
        let node = r#"{"metadata":{"name":"n"},"status":{"allocatable":{"cpu":{}}}}"#;
        reader.read(ObjectKind::Node, false, node.as_bytes(), &mut changes);
        let (_, _, unreadable) = std::mem::take(&mut changes).into_parts();
        assert_eq!(unreadable[0].name, "n");
        assert_eq!(reader.take_unreadable().0, 1);
        reader.read(ObjectKind::Node, true, node.as_bytes(), &mut changes);
        assert_eq!(changes.into_parts().1.nodes, ["n"]);
    }

    #[test]
    fn an_owner_that_selects_otherwise_makes_its_namespace_stale_once() {
        let mut reader = ObjectReader::new();
        let mut changes = RecordChanges::default();
        let service = r#"{"metadata":{"name":"s","namespace":"web"},"spec":{"selector":{"app":"front"}}}"#;
        reader.read(ObjectKind::Service, false, service.as_bytes(), &mut changes);
        assert_eq!(reader.take_stale_namespaces(), BTreeSet::from(["web".to_owned()]));
        reader.read(ObjectKind::Service, false, service.as_bytes(), &mut changes);
        assert_eq!(reader.take_stale_namespaces(), BTreeSet::new());
        reader.read(ObjectKind::Pod, false, POD.as_bytes(), &mut changes);
        let (put, ..) = std::mem::take(&mut changes).into_parts();
        let selector = |put: &pb::Cluster| put.tasks[0].constraints.as_ref()?.owner_selector.clone();
        assert!(selector(&put).is_some());
        reader.read(ObjectKind::Service, true, service.as_bytes(), &mut changes);
        assert_eq!(reader.take_stale_namespaces().len(), 1);
        reader.read(ObjectKind::Pod, false, POD.as_bytes(), &mut changes);
        assert_eq!(selector(&changes.into_parts().0), None);
    }
}
