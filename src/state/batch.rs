//! Batches of records by one source, and what becomes of them.

use std::sync::Arc;

use crate::engine::model::{JobRecord, Kind, NodeRecord, Problem, QueueRecord, TaskRecord};
use crate::engine::{Position, Revision};

/// A record to put in the place of the one of its name.
#[derive(Clone, Debug, PartialEq)]
pub enum Put {
    /// A node.
    Node(Arc<NodeRecord>),
    /// A queue.
    Queue(QueueRecord),
    /// A job.
    Job(JobRecord),
    /// A task.
    Task(TaskRecord),
}

impl Put {
    /// Its kind and name.
    pub fn key(&self) -> (Kind, &Arc<str>) {
        match self {
            Self::Node(record) => (Kind::Node, &record.name),
            Self::Queue(record) => (Kind::Queue, &record.name),
            Self::Job(record) => (Kind::Job, &record.name),
            Self::Task(record) => (Kind::Task, &record.name),
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
    SnapshotPart,
    /// Last or only part: now the snapshot replaces all records of the source.
    SnapshotLast,
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
    /// Records to put, each with its field: `put.nodes[3]`.
    pub put: Vec<(Put, String)>,
    /// Records that could not be read: kind, name (empty: it had none) and all faults.
    pub refused: Vec<(Kind, Arc<str>, Vec<Problem>)>,
    /// Records to take away. Unknown names are no fault.
    pub remove: Vec<(Kind, Arc<str>)>,
    /// What was overlooked in records that could be read.
    pub warnings: Vec<Problem>,
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
    /// Stable word for programs.
    pub fn word(self) -> &'static str {
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
pub struct Resync {
    /// Why.
    pub reason: ResyncReason,
    /// Sentence for people.
    pub message: String,
}

/// What became of a batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BatchOutcome {
    /// Position of the source now.
    pub position: Position,
    /// Its changes are visible from here on.
    pub revision: Revision,
    /// Records not taken, by field.
    pub refused: Vec<Problem>,
    /// What was overlooked in records that were taken, by field.
    pub warnings: Vec<Problem>,
    /// Set: nothing was taken, send a snapshot.
    pub resync: Option<Resync>,
}

impl Batch {
    /// Says of every field which request it stands in: of a part of a snapshot that is answered later, by number.
    pub(super) fn placed(mut self) -> Self {
        let prefix = match self.kind {
            BatchKind::SnapshotPart => format!("batch[{}]", self.sequence),
            BatchKind::Delta | BatchKind::SnapshotLast => "batch".to_owned(),
        };
        for (_, field) in &mut self.put {
            *field = format!("{prefix}.{field}");
        }
        let within = |problems: Vec<Problem>| problems.into_iter().map(|problem| problem.within(&prefix)).collect();
        for (_, _, problems) in &mut self.refused {
            *problems = within(std::mem::take(problems));
        }
        self.warnings = within(self.warnings);
        self
    }
}
