//! Batches of records by a source, and their outcomes.

use std::sync::Arc;

use crate::engine::model::{Kind, Problem, ResourceId, ResourceTable, TooManyResourcesError};
use crate::server::pb;
use crate::server::status::{Failure, code_of};
use crate::state::{Batch, BatchKind, BatchOutcome, Place, Pool, Put, ResourceNames, Resync};

use super::amounts::Names;
use super::reader::{Declared, Reader};

/// The names that all records share.
#[derive(Debug)]
pub struct SharedNames<'a> {
    shared: &'a ResourceNames,
    snapshot: Arc<ResourceTable>,
}

impl<'a> SharedNames<'a> {
    /// The shared names; what is known now is looked up without a lock.
    pub fn new(shared: &'a ResourceNames) -> Self {
        Self {
            shared,
            snapshot: shared.snapshot(),
        }
    }
}

impl Names for SharedNames<'_> {
    fn known(&self, name: &str) -> Option<ResourceId> {
        self.snapshot.get(name)
    }

    fn intern(&mut self, name: &str) -> Result<ResourceId, TooManyResourcesError> {
        let id = self.shared.intern(name)?;
        self.snapshot = self.shared.snapshot();
        Ok(id)
    }
}

/// Reads a batch. A record that cannot be read is refused alone.
///
/// # Errors
/// The batch as a whole makes no sense.
pub fn batch(batch: pb::Batch, names: &mut dyn Names, declared: &Declared) -> Result<Batch, Failure> {
    let pb::Batch {
        source,
        source_epoch,
        sequence,
        kind,
        put,
        remove,
        snapshot_part,
    } = batch;
    let limit = declared.limits.name_bytes;
    if source.is_empty() || source.len() > limit {
        let message = format!("batch.source: a source needs a name of 1 to {limit} bytes (limit `name_bytes`)");
        return Err(Failure::invalid("SOURCE_INVALID", message));
    }
    let kind = match pb::BatchKind::try_from(kind) {
        Ok(pb::BatchKind::Unspecified | pb::BatchKind::Delta) => BatchKind::Delta,
        Ok(pb::BatchKind::SnapshotPart) => BatchKind::SnapshotPart,
        Ok(pb::BatchKind::SnapshotLast) => BatchKind::SnapshotLast,
        Err(_) => {
            let message = format!("batch.kind: {kind} is no value of this field");
            return Err(Failure::invalid("INVALID_ENUM", message));
        }
    };
    let remove = removals(remove.unwrap_or_default());
    let put = put.unwrap_or_default();
    let records = put.nodes.len() + put.queues.len() + put.jobs.len() + put.tasks.len() + remove.len();
    let limit = declared.limits.batch_records;
    if records > limit {
        let message = format!("batch: {records} records; send a snapshot in parts, or several batches of changes");
        return Err(Failure::limit("BATCH_TOO_LARGE", "batch_records", limit, &message));
    }
    let mut batch = Batch {
        source: source.into(),
        source_epoch,
        sequence,
        kind,
        part: snapshot_part,
        remove,
        ..Batch::default()
    };
    cluster(put, &mut Reader::new(names, declared), &mut batch);
    Ok(batch)
}

/// Reads the records of a cluster into a batch.
pub(super) fn cluster(cluster: pb::Cluster, reader: &mut Reader<'_>, batch: &mut Batch) {
    let pb::Cluster {
        nodes,
        queues,
        jobs,
        tasks,
    } = cluster;
    batch.put.reserve(nodes.len() + queues.len() + jobs.len() + tasks.len());
    // Of a batch, what many say alike is thrown away where it was read.
    let mut pool = Pool::default();
    for (i, node) in nodes.into_iter().enumerate() {
        let mut record = reader.node(node);
        pool.node_of_batch(&mut record);
        take(Put::Node(Arc::new(record)), reader, batch, i);
    }
    for (i, queue) in queues.into_iter().enumerate() {
        let record = reader.queue(queue);
        take(Put::Queue(record), reader, batch, i);
    }
    for (i, job) in jobs.into_iter().enumerate() {
        let record = reader.job(job);
        take(Put::Job(record), reader, batch, i);
    }
    for (i, task) in tasks.into_iter().enumerate() {
        let mut record = reader.stored_task(task);
        pool.task_of_batch(&mut record);
        take(Put::Task(record), reader, batch, i);
    }
}

fn take(put: Put, reader: &mut Reader<'_>, batch: &mut Batch, index: usize) {
    let (found, place) = (reader.take(), Place::at(index));
    if found.is_empty() {
        batch.put.push((put, place));
        return;
    }
    let (kind, name) = put.key();
    let found = found.within(&place.field(kind));
    batch.warnings.extend(found.warnings);
    if found.problems.is_empty() {
        batch.put.push((put, place));
    } else {
        batch.refused.push((kind, Arc::clone(name), found.problems));
    }
}

fn removals(removals: pb::Removals) -> Vec<(Kind, Arc<str>)> {
    let pb::Removals {
        nodes,
        queues,
        jobs,
        tasks,
    } = removals;
    let of = |kind: Kind, names: Vec<String>| names.into_iter().map(move |name| (kind, Arc::from(name)));
    of(Kind::Node, nodes)
        .chain(of(Kind::Queue, queues))
        .chain(of(Kind::Job, jobs))
        .chain(of(Kind::Task, tasks))
        .collect()
}

/// The reply to a batch.
pub fn outcome(outcome: BatchOutcome) -> pb::BatchOutcome {
    let BatchOutcome {
        position,
        revision,
        refused,
        warnings,
        resync,
    } = outcome;
    pb::BatchOutcome {
        position: Some(super::position(&position)),
        revision: Some(super::revision(revision)),
        refused: problems(&refused),
        resync: resync.map(|Resync { reason, message }| pb::Resync {
            reason: reason.word().to_owned(),
            message,
        }),
        warnings: problems(&warnings),
    }
}

/// Problems as the wire has them.
pub fn problems(problems: &[Problem]) -> Vec<pb::Problem> {
    problems.iter().map(problem).collect()
}

/// A problem as the wire has it.
pub fn problem(problem: &Problem) -> pb::Problem {
    let Problem {
        kind,
        reason,
        message,
        field,
    } = problem;
    pb::Problem {
        code: code_of(*kind).into(),
        reason: (*reason).to_owned(),
        message: message.clone(),
        field: field.clone(),
    }
}
