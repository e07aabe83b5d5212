//! Changes of records: what a batch puts and removes.

use std::collections::BTreeMap;

use prost::Message as _;
use pumice_kubernetes::object::{ObjectKind, ObjectRecord};
use pumice_protocol::EncodedApply;
use pumice_protocol::v1 as pb;

/// Changed object, as the API server wrote it.
#[derive(Debug)]
pub(crate) struct ChangedObject {
    pub(crate) kind: ObjectKind,
    /// True if the object was deleted.
    pub(crate) is_deleted: bool,
    pub(crate) bytes: Vec<u8>,
}

#[derive(Debug)]
pub(crate) enum ChangedRecord {
    /// The encoded record, as the only one of a [`pb::Cluster`].
    Put(Vec<u8>),
    Unreadable(pb::UnreadableRecord),
    Remove,
}

/// Bytes of one batch. Several are in memory at a time, encoded, decoded and as records; with parts of 2 MiB a full sync of 100,000
/// pods took a third more memory at its peak.
const BATCH_BYTES: usize = 256 << 10;

/// Changes of records in the order in which they are applied, in batches of a bounded size: a pod may have 256 KiB of annotations.
#[derive(Debug, Default)]
pub(crate) struct ChangeBatches {
    full: Vec<RecordChanges>,
    open: RecordChanges,
}

impl ChangeBatches {
    /// Puts a record of a kind.
    pub(crate) fn put(&mut self, kind: pb::RecordKind, record: ObjectRecord) {
        let name = record.name_and_uid().0.to_owned();
        self.set(kind, name, ChangedRecord::Put(alone(record).encode_to_vec()));
    }

    /// Changes the record of a name.
    pub(crate) fn set(&mut self, kind: pb::RecordKind, name: String, change: ChangedRecord) {
        // What was said before still holds: a good record counts on, and a deleted one does not.
        if matches!(change, ChangedRecord::Unreadable(_)) && self.open.has(kind, &name) {
            self.close();
        }
        self.open.set(kind, name, change);
        if self.open.bytes > BATCH_BYTES {
            self.close();
        }
    }

    fn close(&mut self) {
        self.full.push(std::mem::take(&mut self.open));
    }

    /// Batches that take no more changes.
    pub(crate) fn take_full(&mut self) -> Vec<RecordChanges> {
        std::mem::take(&mut self.full)
    }

    /// All batches; the last one is empty where nothing follows the others.
    pub(crate) fn into_batches(self) -> (Vec<RecordChanges>, RecordChanges) {
        (self.full, self.open)
    }
}

/// Changes of records, the last one of each name.
#[derive(Debug, Default)]
pub(crate) struct RecordChanges {
    changes: BTreeMap<(i32, String), ChangedRecord>,
    /// Bytes on the wire, roughly.
    bytes: usize,
}

impl RecordChanges {
    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    fn has(&self, kind: pb::RecordKind, name: &str) -> bool {
        self.changes.contains_key(&(kind.into(), name.to_owned()))
    }

    fn set(&mut self, kind: pb::RecordKind, name: String, change: ChangedRecord) {
        let bytes = match &change {
            ChangedRecord::Put(record) => record.len(),
            ChangedRecord::Unreadable(record) => record.encoded_len(),
            ChangedRecord::Remove => name.len(),
        };
        self.bytes = self.bytes.saturating_add(bytes);
        self.changes.insert((kind.into(), name), change);
    }

    /// True if a record is removed.
    pub(crate) fn has_removals(&self) -> bool {
        self.changes
            .values()
            .any(|change| matches!(change, ChangedRecord::Remove))
    }

    /// Request that applies the changes as this batch.
    pub(crate) fn into_apply(self, batch: pb::Batch) -> EncodedApply {
        let mut removals = pb::Removals::default();
        let (mut unreadable, mut put) = (Vec::new(), Vec::new());
        for ((kind, name), change) in self.changes {
            match change {
                ChangedRecord::Put(record) => put.push(record),
                ChangedRecord::Unreadable(record) => unreadable.push(record),
                ChangedRecord::Remove => remove_record(&mut removals, kind, name),
            }
        }
        let batch = pb::Batch {
            remove: (removals != pb::Removals::default()).then_some(removals),
            unreadable,
            ..batch
        };
        EncodedApply::new(&batch, put.iter().map(Vec::as_slice))
    }
}

#[cfg(test)]
impl ChangeBatches {
    /// The only batch, as a server reads it: records to put, names to remove, and records that could not be read.
    pub(crate) fn decoded(self) -> (pb::Cluster, pb::Removals, Vec<pb::UnreadableRecord>) {
        assert!(self.full.is_empty());
        self.open.decoded()
    }
}

#[cfg(test)]
impl RecordChanges {
    /// Changes as a server reads them: records to put, names to remove, and records that could not be read.
    pub(crate) fn decoded(self) -> (pb::Cluster, pb::Removals, Vec<pb::UnreadableRecord>) {
        let apply = self.into_apply(pb::Batch::default());
        let request = pb::ApplyRequest::decode(apply.bytes()).unwrap();
        let pb::Batch {
            put,
            remove,
            unreadable,
            ..
        } = request.batch.unwrap();
        (put.unwrap_or_default(), remove.unwrap_or_default(), unreadable)
    }
}

/// Cluster of one record.
fn alone(record: ObjectRecord) -> pb::Cluster {
    let mut put = pb::Cluster::default();
    match record {
        ObjectRecord::Node(record) => put.nodes.push(record),
        ObjectRecord::Queue(record) => put.queues.push(record),
        ObjectRecord::Job(record) => put.jobs.push(record),
        ObjectRecord::Task(record, ..) => put.tasks.push(record),
        ObjectRecord::PriorityClass(record) => put.priority_classes.push(record),
        ObjectRecord::Namespace(record) => put.namespaces.push(record),
        // These become no records.
        ObjectRecord::Owner(_) | ObjectRecord::Device(_) | ObjectRecord::Part(_) => {}
    }
    put
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
