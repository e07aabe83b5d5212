//! Batches of records by a source, and their outcomes.

use std::sync::Arc;

use crate::limits::EdgeLimits;
use crate::server::pb;
use crate::server::status::{CallError, grpc_code};
use pumice_engine::model::{
    LabelKinds, Problem, ProblemKind, RecordKind, ResourceId, ResourceTable, TooManyResourcesError,
};
use pumice_engine::policy::Compatibility;
use pumice_state::{
    Batch, BatchKind, BatchOutcome, BatchRecord, RecordInterner, RecordLocation, RejectedRecord, ResourceNames,
    ResyncRequest, SourceKind,
};

use super::amounts::ResourceInterner;
use super::reader::{ReadOptions, WireReader};

/// Bytes of a field and of a message that are kept of an unreadable record.
const MAX_TEXT_BYTES: usize = 1_024;

/// Resource names that all records share.
#[derive(Debug)]
pub struct SharedResourceNames<'a> {
    shared: &'a ResourceNames,
    table: Arc<ResourceTable>,
    first: Arc<ResourceTable>,
}

impl<'a> SharedResourceNames<'a> {
    /// Shared names. Names that are known now are looked up without a lock.
    pub fn new(shared: &'a ResourceNames) -> Self {
        let table = shared.current_table();
        Self {
            shared,
            first: Arc::clone(&table),
            table,
        }
    }

    /// Table with which the reading began.
    pub fn into_first_table(self) -> Arc<ResourceTable> {
        self.first
    }
}

impl ResourceInterner for SharedResourceNames<'_> {
    fn lookup(&self, name: &str) -> Option<ResourceId> {
        self.table.get(name)
    }

    fn intern(&mut self, name: &str) -> Result<ResourceId, TooManyResourcesError> {
        let id = self.shared.intern(name)?;
        self.table = self.shared.current_table();
        Ok(id)
    }
}

/// Checks the name of a source, which is a label of metrics and a line of pages that operators read in terminals.
fn check_source(source: &str, limit: usize) -> Result<(), CallError> {
    if source.is_empty() || source.len() > limit {
        let message = format!("batch.source: the name of a source has 1 to {limit} bytes (limit `name_bytes`)");
        return Err(CallError::invalid("SOURCE_INVALID", message));
    }
    match source.find(char::is_control) {
        None => Ok(()),
        Some(at) => {
            let message = format!("batch.source: the name of a source has a control character at byte {at}");
            Err(CallError::invalid("SOURCE_INVALID", message))
        }
    }
}

/// Reads a batch, with all labels of the records in `stored_labels`, and those that plugins name of others, for policies of which
/// the strictest has this compatibility. A record that cannot be read is rejected alone.
///
/// # Errors
/// The batch as a whole is invalid.
pub fn read_batch(
    batch: pb::Batch,
    names: &mut dyn ResourceInterner,
    declared: &ReadOptions,
    (stored_labels, compatibility): (LabelKinds, Compatibility),
) -> Result<Batch, CallError> {
    let pb::Batch {
        source,
        source_epoch,
        sequence,
        kind,
        put,
        remove,
        part,
        unreadable,
        source_kind,
    } = batch;
    check_source(&source, declared.limits.name_bytes)?;
    let kind = match pb::BatchKind::try_from(kind) {
        Ok(pb::BatchKind::Unspecified | pb::BatchKind::Delta) => BatchKind::Delta,
        Ok(pb::BatchKind::FullSyncPart) => BatchKind::FullSyncPart,
        Ok(pb::BatchKind::FullSyncLast) => BatchKind::FullSyncLast,
        Err(_) => {
            let message = format!("batch.kind: {kind} is no value of this field");
            return Err(CallError::invalid("INVALID_ENUM", message));
        }
    };
    let source_kind = match pb::SourceKind::try_from(source_kind) {
        Ok(pb::SourceKind::Unspecified | pb::SourceKind::Live) => SourceKind::Live,
        Ok(pb::SourceKind::File) => SourceKind::File,
        Err(_) => {
            let message = format!("batch.source_kind: {source_kind} is no value of this field");
            return Err(CallError::invalid("INVALID_ENUM", message));
        }
    };
    let remove = read_removals(remove.unwrap_or_default());
    let put = put.unwrap_or_default();
    let records = record_count(&put) + remove.len() + unreadable.len();
    let limit = declared.limits.batch_records;
    if records > limit {
        let message = format!("batch: {records} records; send a full sync in parts, or changes in several batches");
        return Err(CallError::limit("BATCH_TOO_LARGE", "batch_records", limit, &message));
    }
    let mut batch = Batch {
        source: source.into(),
        source_epoch,
        sequence,
        kind,
        part,
        remove,
        source_kind,
        ..Batch::default()
    };
    for (i, record) in unreadable.into_iter().enumerate() {
        batch.rejected.push(read_unreadable(record, i, &declared.limits)?);
    }
    let mut reader = WireReader::new(names, declared)
        .keeping(stored_labels)
        .judged_under(compatibility);
    read_cluster(put, &mut reader, &mut batch);
    batch.dropped_labels = reader.dropped_labels;
    Ok(batch)
}

/// Number of records of all kinds.
pub(in crate::server) fn record_count(cluster: &pb::Cluster) -> usize {
    let pb::Cluster {
        nodes,
        queues,
        jobs,
        tasks,
        namespaces,
    } = cluster;
    nodes.len() + queues.len() + jobs.len() + tasks.len() + namespaces.len()
}

/// Reads the records of a cluster into a batch.
pub(super) fn read_cluster(cluster: pb::Cluster, reader: &mut WireReader<'_>, batch: &mut Batch) {
    batch.put.reserve(record_count(&cluster));
    let pb::Cluster {
        nodes,
        queues,
        jobs,
        tasks,
        namespaces,
    } = cluster;
    // Values that many records of a batch share are deduplicated where they are read.
    let mut pool = RecordInterner::default();
    for (i, node) in nodes.into_iter().enumerate() {
        let mut record = reader.node(node);
        pool.intern_batch_node(&mut record);
        push_record(BatchRecord::Node(Arc::new(record)), reader, batch, i);
    }
    for (i, queue) in queues.into_iter().enumerate() {
        let record = reader.queue(queue);
        push_record(BatchRecord::Queue(record), reader, batch, i);
    }
    for (i, job) in jobs.into_iter().enumerate() {
        let record = reader.job(job);
        push_record(BatchRecord::Job(record), reader, batch, i);
    }
    for (i, task) in tasks.into_iter().enumerate() {
        let mut record = reader.stored_task(task);
        pool.intern_batch_task(&mut record);
        push_record(BatchRecord::Task(record), reader, batch, i);
    }
    for (i, namespace) in namespaces.into_iter().enumerate() {
        let record = reader.namespace(namespace);
        push_record(BatchRecord::Namespace(record), reader, batch, i);
    }
}

fn push_record(put: BatchRecord, reader: &mut WireReader<'_>, batch: &mut Batch, index: usize) {
    let (found, place) = (reader.take_problems(), RecordLocation::at(index));
    if found.is_empty() {
        batch.put.push((put, place));
        return;
    }
    let (kind, name) = put.key();
    let node = occupied_node(&put, &found.problems);
    let found = found.within(&place.field_path(kind));
    batch.warnings.extend(found.warnings);
    if found.problems.is_empty() {
        batch.put.push((put, place));
    } else {
        batch.rejected.push(RejectedRecord {
            key: (kind, Arc::clone(name)),
            problems: found.problems,
            node,
        });
    }
}

/// Node that a task with problems occupies; a status that cannot be read may be any. Empty: none.
fn occupied_node(put: &BatchRecord, problems: &[Problem]) -> Arc<str> {
    match put {
        BatchRecord::Task(task)
            if task.status.is_on_node() || problems.iter().any(|problem| problem.field == "status") =>
        {
            Arc::clone(&task.node)
        }
        BatchRecord::Node(_)
        | BatchRecord::Queue(_)
        | BatchRecord::Job(_)
        | BatchRecord::Task(_)
        | BatchRecord::Namespace(_) => Arc::default(),
    }
}

/// Reads a record that its source could not read. `index`: its place in the batch.
fn read_unreadable(
    record: pb::UnreadableRecord,
    index: usize,
    limits: &EdgeLimits,
) -> Result<RejectedRecord, CallError> {
    let pb::UnreadableRecord {
        kind,
        name,
        field,
        message,
        node,
    } = record;
    let place = format!("unreadable[{index}]");
    let kind = match pb::RecordKind::try_from(kind) {
        Ok(pb::RecordKind::Node) => RecordKind::Node,
        Ok(pb::RecordKind::Queue) => RecordKind::Queue,
        Ok(pb::RecordKind::Job) => RecordKind::Job,
        Ok(pb::RecordKind::Task) => RecordKind::Task,
        Ok(pb::RecordKind::Namespace) => RecordKind::Namespace,
        Ok(pb::RecordKind::Unspecified) | Err(_) => {
            let message = format!("batch.{place}.kind: {kind} is no kind of a record");
            return Err(CallError::invalid("INVALID_ENUM", message));
        }
    };
    for (field, text) in [("name", &name), ("node", &node)] {
        let limit = limits.name_bytes;
        if text.len() > limit || (field == "name" && text.is_empty()) {
            let message = format!("batch.{place}.{field}: a name has 1 to {limit} bytes (limit `name_bytes`)");
            return Err(CallError::invalid("NAME_INVALID", message));
        }
    }
    let field = match truncated(&field) {
        "" => place,
        field => format!("{place}.{field}"),
    };
    let message = match truncated(&message) {
        "" => "its source could not read this record",
        message => message,
    };
    let problem = Problem::new(ProblemKind::Invalid, "UNREADABLE_RECORD", field, message);
    let node = if kind == RecordKind::Task { node } else { String::new() };
    Ok(RejectedRecord {
        key: (kind, name.into()),
        problems: vec![problem],
        node: node.into(),
    })
}

/// First bytes of a text of a source, which states and replies repeat.
fn truncated(text: &str) -> &str {
    let most = (0..=MAX_TEXT_BYTES).rev().find(|end| text.is_char_boundary(*end));
    text.get(..most.unwrap_or_default().min(text.len())).unwrap_or(text)
}

fn read_removals(removals: pb::Removals) -> Vec<(RecordKind, Arc<str>)> {
    let pb::Removals {
        nodes,
        queues,
        jobs,
        tasks,
        namespaces,
    } = removals;
    let of = |kind: RecordKind, names: Vec<String>| names.into_iter().map(move |name| (kind, Arc::from(name)));
    of(RecordKind::Node, nodes)
        .chain(of(RecordKind::Queue, queues))
        .chain(of(RecordKind::Job, jobs))
        .chain(of(RecordKind::Task, tasks))
        .chain(of(RecordKind::Namespace, namespaces))
        .collect()
}

/// Reply to a batch.
pub fn batch_outcome(outcome: BatchOutcome) -> pb::BatchOutcome {
    let BatchOutcome {
        position,
        revision,
        rejected: refused,
        warnings,
        resync,
    } = outcome;
    pb::BatchOutcome {
        position: Some(super::position(&position)),
        revision: Some(super::revision(revision)),
        refused: problems(&refused),
        resync: resync.map(|ResyncRequest { reason, message }| pb::Resync {
            reason: reason.code().to_owned(),
            message,
        }),
        warnings: problems(&warnings),
    }
}

/// Problems as the wire has them.
pub fn problems(problems: &[Problem]) -> Vec<pb::Problem> {
    problems.iter().map(problem).collect()
}

/// Problem as the wire has it.
pub fn problem(problem: &Problem) -> pb::Problem {
    let Problem {
        kind,
        reason,
        message,
        field,
    } = problem;
    pb::Problem {
        code: grpc_code(*kind).into(),
        reason: (*reason).to_owned(),
        message: message.clone(),
        field: field.clone(),
    }
}
