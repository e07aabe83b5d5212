//! Batches of records by one source, and their outcomes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::connection_share::ConnectionShare;
use pumice_engine::model::{
    JobRecord, LabelKinds, NamespaceRecord, NodeRecord, PriorityClassRecord, Problem, QueueRecord, RecordKind,
    ResourceTable, TaskRecord, Uid,
};
use pumice_engine::policy::Release;

/// Record that replaces the one of its kind and name.
#[derive(Clone, Debug, PartialEq)]
pub enum BatchRecord {
    /// Record of a node, shared with snapshots.
    Node(Arc<NodeRecord>),
    /// Record of a queue, such as `research`.
    Queue(QueueRecord),
    /// Record of a job, such as `train/bert`.
    Job(JobRecord),
    /// Record of a task, such as `train/bert-0`.
    Task(TaskRecord),
    /// Record of a namespace with its labels.
    Namespace(NamespaceRecord),
    /// Record of a priority class with its value.
    PriorityClass(PriorityClassRecord),
}

impl BatchRecord {
    /// Kind and name of the record.
    pub fn key(&self) -> (RecordKind, &Arc<str>) {
        match self {
            Self::Node(record) => (RecordKind::Node, &record.name),
            Self::Queue(record) => (RecordKind::Queue, &record.name),
            Self::Job(record) => (RecordKind::Job, &record.name),
            Self::Task(record) => (RecordKind::Task, &record.name),
            Self::Namespace(record) => (RecordKind::Namespace, &record.name),
            Self::PriorityClass(record) => (RecordKind::PriorityClass, &record.name),
        }
    }
}

/// Location of a record in a request. A full sync stages millions of them, so the text of a field path is built only
/// for the few records that a message is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordLocation {
    parent: LocationParent,
    index: u32,
    /// Number of the object in a list that stands at `index` among the objects; `None`: the record is none of an object.
    object: Option<ObjectPlace>,
}

/// Place of an object in the bytes that hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ObjectPlace {
    /// The bytes are the object.
    Whole,
    /// The bytes are a list, and the object is its item of this number.
    Item(u32),
}

/// Message that a record location belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LocationParent {
    /// The records alone, without a message around them.
    #[default]
    Records,
    /// The batch that this reply is for.
    Batch,
    /// Earlier part of a full sync, by number; its own reply was sent before.
    SyncPart(u64),
}

impl RecordLocation {
    /// Location of the record at this index among the records of its kind.
    pub fn at(index: usize) -> Self {
        Self {
            parent: LocationParent::Records,
            index: u32::try_from(index).unwrap_or(u32::MAX),
            object: None,
        }
    }

    /// Location of the object at this index among the objects, or of an item of the list there.
    pub fn of_object(index: usize, item: Option<usize>) -> Self {
        let item = item.map(|item| ObjectPlace::Item(u32::try_from(item).unwrap_or(u32::MAX)));
        Self {
            object: Some(item.unwrap_or(ObjectPlace::Whole)),
            ..Self::at(index)
        }
    }

    /// Field path, such as `batch.put.nodes[3]`.
    pub fn field_path(self, kind: RecordKind) -> String {
        let records = match kind {
            RecordKind::Node => "nodes",
            RecordKind::Queue => "queues",
            RecordKind::Job => "jobs",
            RecordKind::Task => "tasks",
            RecordKind::Namespace => "namespaces",
            RecordKind::PriorityClass => "priority_classes",
        };
        let index = self.index;
        let (records, item) = match self.object {
            None => (records, String::new()),
            Some(ObjectPlace::Whole) => ("objects", String::new()),
            Some(ObjectPlace::Item(item)) => ("objects", format!(".items[{item}]")),
        };
        match self.parent {
            LocationParent::Records => format!("put.{records}[{index}]{item}"),
            LocationParent::Batch => format!("batch.put.{records}[{index}]{item}"),
            LocationParent::SyncPart(sequence) => format!("batch[{sequence}].put.{records}[{index}]{item}"),
        }
    }
}

/// Kind of a batch: changes, or a part of a full sync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BatchKind {
    /// Changes since the previous batch.
    #[default]
    Delta,
    /// Part of a full sync, staged until the last part.
    FullSyncPart,
    /// Last or only part of a full sync: the sync now replaces all records of the source.
    FullSyncLast,
}

/// Changes by one source, visible all at once: removals first, then records.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Owner of the records.
    pub source: Arc<str>,
    /// Epoch of the source. A higher one fences off the lower and begins with a full sync.
    pub source_epoch: u64,
    /// Number of this batch in its epoch.
    pub sequence: u64,
    /// Delta or part of a full sync.
    pub kind: BatchKind,
    /// Number of this part of a full sync, from 1. Part 1 restarts the sync; every other part must follow its
    /// predecessor.
    pub part: u32,
    /// Records to put, each with its location in the request.
    pub put: Vec<(BatchRecord, RecordLocation)>,
    /// Records that could not be read, by their source or here.
    pub rejected: Vec<RejectedRecord>,
    /// Records to remove. Unknown names are ignored.
    pub remove: Vec<(RecordKind, Arc<str>)>,
    /// Of records to take away, the incarnation that is meant, by kind and name; another one stays.
    pub removed_uids: BTreeMap<(RecordKind, Arc<str>), Uid>,
    /// Warnings about records that could be read, such as unknown fields.
    pub warnings: Vec<Problem>,
    /// Whether the source follows a cluster.
    pub source_kind: SourceKind,
    /// True if the source may have missed other changes. The batch then does not end the silence of the source.
    pub changes_missing: bool,
    /// Resource names with which the reading of the records began; `None`: the ids are of every table.
    pub names: Option<Arc<ResourceTable>>,
    /// Bytes of the records of a full sync, computed when it is staged.
    pub bytes: usize,
    /// By what the records were read.
    pub basis: RecordBasis,
    /// Connection that the batch came by; `None`: it came by none.
    pub connection: Option<ConnectionShare>,
}

/// By what records were read. Where that changes, the source has to send them again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordBasis {
    /// Labels that were left out, because no policy read them.
    pub dropped_labels: LabelKinds,
    /// Resources share one name, because there was no place for theirs: names that were offered then.
    pub others_since: Option<u64>,
    /// Release by whose rules the amounts of pods were derived; `None`: no pods were derived.
    pub pod_release: Option<Release>,
}

impl RecordBasis {
    /// True if records lack some of these labels, or this release derives amounts of their pods otherwise.
    pub fn is_outdated(&self, labels: LabelKinds, release: Release) -> bool {
        self.dropped_labels.intersects(labels) || self.release_other_than(release).is_some()
    }

    /// Release by which amounts of pods were derived, if this one derives some of them otherwise.
    pub fn release_other_than(&self, release: Release) -> Option<Release> {
        self.pod_release.filter(|derived| !derived.reads_pods_as(release))
    }

    /// Basis of these records and later ones together.
    #[must_use]
    pub(crate) fn and(self, later: Self) -> Self {
        Self {
            dropped_labels: self.dropped_labels.union(later.dropped_labels),
            others_since: self.others_since.into_iter().chain(later.others_since).min(),
            pod_release: self.pod_release.or(later.pod_release),
        }
    }
}

/// By what records are read now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadingRules {
    /// Labels that policies in force read.
    pub(crate) labels: LabelKinds,
    /// Resource names that became offered so far.
    pub(crate) offers: u64,
    /// Release by whose rules amounts of pods are derived.
    pub(crate) pod_release: Release,
}

/// Record that could not be read.
#[derive(Clone, Debug, PartialEq)]
pub struct RejectedRecord {
    /// Kind and name of the record; an empty name: it had none.
    pub key: (RecordKind, Arc<str>),
    /// All problems of the record.
    pub problems: Vec<Problem>,
    /// Of a task that occupies a node: the node; empty: none.
    pub node: Arc<str>,
}

impl RejectedRecord {
    /// Record that occupies no node.
    pub fn new(kind: RecordKind, name: Arc<str>, problems: Vec<Problem>) -> Self {
        Self {
            key: (kind, name),
            problems,
            node: Arc::default(),
        }
    }
}

/// Kind of a source: whether it follows a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceKind {
    /// Follows a cluster; a long silence makes it stale.
    #[default]
    Live,
    /// Was loaded once; never becomes stale.
    File,
}

impl Batch {
    /// Makes every field path start with its message: of a staged part of a full sync by the part's number.
    pub(crate) fn with_locations(mut self) -> Self {
        let (request, prefix) = match self.kind {
            BatchKind::FullSyncPart => (
                LocationParent::SyncPart(self.sequence),
                format!("batch[{}]", self.sequence),
            ),
            BatchKind::Delta | BatchKind::FullSyncLast => (LocationParent::Batch, "batch".to_owned()),
        };
        for (_, place) in &mut self.put {
            place.parent = request;
        }
        let within = |problems: Vec<Problem>| problems.into_iter().map(|problem| problem.within(&prefix)).collect();
        for rejected in &mut self.rejected {
            rejected.problems = within(std::mem::take(&mut rejected.problems));
        }
        self.warnings = within(self.warnings);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_names_its_request() {
        let field = |kind| {
            let put = vec![(BatchRecord::Task(TaskRecord::default()), RecordLocation::at(3))];
            let batch = Batch {
                sequence: 7,
                kind,
                put,
                ..Batch::default()
            };
            let (put, place) = &batch.with_locations().put[0];
            place.field_path(put.key().0)
        };
        assert_eq!(RecordLocation::at(0).field_path(RecordKind::Node), "put.nodes[0]");
        assert_eq!(field(BatchKind::Delta), "batch.put.tasks[3]");
        assert_eq!(field(BatchKind::FullSyncLast), "batch.put.tasks[3]");
        assert_eq!(field(BatchKind::FullSyncPart), "batch[7].put.tasks[3]");
    }
}
