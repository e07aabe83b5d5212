//! Batches of records by one source, and what becomes of them.

use std::sync::Arc;

use crate::engine::model::{JobRecord, NodeRecord, Problem, QueueRecord, RecordKind, TaskRecord};
use crate::engine::{Revision, SourcePosition};

/// A record to put in the place of the one of its name.
#[derive(Clone, Debug, PartialEq)]
pub enum BatchRecord {
    /// A node.
    Node(Arc<NodeRecord>),
    /// A queue.
    Queue(QueueRecord),
    /// A job.
    Job(JobRecord),
    /// A task.
    Task(TaskRecord),
}

impl BatchRecord {
    /// Its kind and name.
    pub fn key(&self) -> (RecordKind, &Arc<str>) {
        match self {
            Self::Node(record) => (RecordKind::Node, &record.name),
            Self::Queue(record) => (RecordKind::Queue, &record.name),
            Self::Job(record) => (RecordKind::Job, &record.name),
            Self::Task(record) => (RecordKind::Task, &record.name),
        }
    }
}

/// Where a record stands in a request. A snapshot holds a million of them back, so it is put into words only for the few of
/// which something is to be said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordLocation {
    parent: LocationParent,
    index: u32,
}

/// What a place is said of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LocationParent {
    /// The records themselves.
    #[default]
    Records,
    /// The batch that is answered.
    Batch,
    /// A part of a snapshot, by its number, that was answered before.
    SyncPart(u64),
}

impl RecordLocation {
    /// The place of a record among those of its kind.
    pub fn at(index: usize) -> Self {
        Self {
            parent: LocationParent::Records,
            index: u32::try_from(index).unwrap_or(u32::MAX),
        }
    }

    /// In words: `batch.put.nodes[3]`.
    pub fn field_path(self, kind: RecordKind) -> String {
        let records = match kind {
            RecordKind::Node => "nodes",
            RecordKind::Queue => "queues",
            RecordKind::Job => "jobs",
            RecordKind::Task => "tasks",
        };
        let index = self.index;
        match self.parent {
            LocationParent::Records => format!("put.{records}[{index}]"),
            LocationParent::Batch => format!("batch.put.{records}[{index}]"),
            LocationParent::SyncPart(sequence) => format!("batch[{sequence}].put.{records}[{index}]"),
        }
    }
}

/// What a batch is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BatchKind {
    /// Changes.
    #[default]
    Delta,
    /// Part of a snapshot, held back until the last part.
    FullSyncPart,
    /// Last or only part: now the snapshot replaces all records of the source.
    FullSyncLast,
}

/// Changes by one source, visible all at once: removals first, then records.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Owner of the records.
    pub source: Arc<str>,
    /// A higher one fences the lower and starts with a snapshot.
    pub source_epoch: u64,
    /// Counts batches of an epoch.
    pub sequence: u64,
    /// What it is.
    pub kind: BatchKind,
    /// Of a snapshot: number of this part, from 1. Part 1 begins a snapshot anew; every other must follow the one before.
    pub part: u32,
    /// Records to put, each with its place among what was sent.
    pub put: Vec<(BatchRecord, RecordLocation)>,
    /// Records that could not be read, by their source or here.
    pub rejected: Vec<RejectedRecord>,
    /// Records to take away. Unknown names are no fault.
    pub remove: Vec<(RecordKind, Arc<str>)>,
    /// What was overlooked in records that could be read.
    pub warnings: Vec<Problem>,
    /// Whether the source follows a cluster.
    pub source_kind: SourceKind,
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

/// Why a source has to send a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResyncReason {
    /// A batch is missing.
    Gap,
    /// A newer incarnation of the source has taken over.
    Fenced,
    /// The source has not sent a snapshot yet.
    UnknownSource,
    /// The source's epoch is newer than what is known of it.
    EpochChanged,
}

impl ResyncReason {
    /// True of a fenced batch, or one of an epoch that has not begun: it says nothing about the records that are stored.
    pub(super) fn is_of_another_epoch(self) -> bool {
        matches!(self, Self::Fenced | Self::EpochChanged)
    }

    /// Stable word for programs.
    pub fn code(self) -> &'static str {
        match self {
            Self::Gap => "GAP",
            Self::Fenced => "FENCED",
            Self::UnknownSource => "UNKNOWN_SOURCE",
            Self::EpochChanged => "EPOCH_CHANGED",
        }
    }
}

/// Asks a source for a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResyncRequest {
    /// Why.
    pub reason: ResyncReason,
    /// Sentence for people.
    pub message: String,
}

/// What became of a batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BatchOutcome {
    /// Position of the source now.
    pub position: SourcePosition,
    /// Its changes are visible from here on.
    pub revision: Revision,
    /// Records not taken, by field.
    pub rejected: Vec<Problem>,
    /// What was overlooked in records that were taken, by field.
    pub warnings: Vec<Problem>,
    /// Set: nothing was taken, send a snapshot.
    pub resync: Option<ResyncRequest>,
}

impl Batch {
    /// Says of every field which request it stands in: of a part of a snapshot that is answered later, by number.
    pub(super) fn with_locations(mut self) -> Self {
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
