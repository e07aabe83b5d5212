//! Batches of records by a source, and their outcomes.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::limits::EdgeLimits;
use crate::server::pb;
use crate::server::status::{CallError, RpcResult, grpc_code};
use pumice_engine::model::{
    ErrorCode, LabelKinds, Problem, RecordKind, ResourceId, ResourceNaming, ResourceTable, TooManyResourcesError, Uid,
};
use pumice_engine::policy::Compatibility;
use pumice_kubernetes::claims::PodClaims;
use pumice_kubernetes::object::{ObjectKind, ObjectRecord};
use pumice_state::{
    Batch, BatchKind, BatchOutcome, BatchRecord, RecordBasis, RecordInterner, RecordLocation, RejectedRecord,
    ResourceNames, ResyncRequest, SourceKind,
};

use super::objects::{kinds_with_records, pod_rules, record_kind};
use super::policy::read_compatibility;
use super::reader::{ReadOptions, ReadProblems, ResourceInterner, WireReader};
use super::wire::{Wire, read_known};

/// Bytes of a field and of a message that are kept of an unreadable record.
const MAX_TEXT_BYTES: usize = 1_024;

/// Resource names that all records share.
#[derive(Debug)]
pub(crate) struct SharedResourceNames<'a> {
    shared: &'a ResourceNames,
    table: Arc<ResourceTable>,
    first: Arc<ResourceTable>,
}

impl<'a> SharedResourceNames<'a> {
    /// Shared names. Names that are known now are looked up without a lock.
    pub(crate) fn new(shared: &'a ResourceNames) -> Self {
        let table = shared.current_table();
        Self {
            shared,
            first: Arc::clone(&table),
            table,
        }
    }

    /// Table with which the reading began.
    pub(crate) fn into_first_table(self) -> Arc<ResourceTable> {
        self.first
    }
}

impl ResourceInterner for SharedResourceNames<'_> {
    fn lookup(&self, name: &str) -> Option<ResourceId> {
        self.table.get(name)
    }

    fn intern(&mut self, name: &str, named_by: ResourceNaming) -> Result<ResourceId, TooManyResourcesError> {
        let known = self.table.get(name);
        if let Some(id) = known.filter(|id| self.table.is_offered(*id)) {
            return Ok(id);
        }
        let id = self.shared.intern(name, named_by)?;
        self.table = self.shared.current_table();
        Ok(id)
    }

    fn others(&mut self) -> Option<ResourceId> {
        self.shared.intern_others().ok()
    }
}

/// Checks the name of a source, which is a label of metrics and a line of pages that operators read in terminals.
fn check_source(source: &str, limit: usize) -> RpcResult<()> {
    if source.is_empty() || source.len() > limit {
        let message = format!("batch.source: the name of a source has 1 to {limit} bytes (limit `name_bytes`)");
        return Err(CallError::new(ErrorCode::SourceInvalid, message));
    }
    match source.find(char::is_control) {
        None => Ok(()),
        Some(at) => {
            let message = format!("batch.source: the name of a source has a control character at byte {at}");
            Err(CallError::new(ErrorCode::SourceInvalid, message))
        }
    }
}

/// Reads a batch for policies whose strictest compatibility is `compatibility`. Kinds of records in `stored_labels`
/// keep all labels; other records keep the labels that plugins name. An unreadable record is rejected alone.
///
/// # Errors
/// The batch as a whole is invalid.
pub(crate) fn read_batch(
    batch: pb::Batch,
    names: &mut SharedResourceNames<'_>,
    declared: &ReadOptions,
    (stored_labels, compatibility): (LabelKinds, Compatibility),
) -> RpcResult<Batch> {
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
        changes_missing,
        pod_release,
    } = batch;
    check_source(&source, declared.limits.name_bytes)?;
    let kind = read_known::<pb::BatchKind, BatchKind>("batch.kind", kind)?;
    let source_kind = read_known::<pb::SourceKind, SourceKind>("batch.source_kind", source_kind)?;
    let (remove, removed_uids) = read_removals(remove.unwrap_or_default())?;
    let put = put.unwrap_or_default();
    let limit = declared.limits.batch_records;
    let too_large = |records: usize| {
        let message = format!("batch: {records} records; send a full sync in parts, or changes in several batches");
        CallError::limit("batch_records", limit, &message)
    };
    let others = remove.len() + unreadable.len();
    let records = record_count(&put) + others;
    if records > limit {
        return Err(too_large(records));
    }
    let mut batch = Batch {
        source: source.into(),
        source_epoch,
        sequence,
        kind,
        part,
        remove,
        removed_uids,
        source_kind,
        changes_missing,
        ..Batch::default()
    };
    for (i, record) in unreadable.into_iter().enumerate() {
        batch.rejected.push(read_unreadable(record, i, &declared.limits)?);
    }
    let named_release = match pod_release.as_str() {
        "" => None,
        name => Some(read_compatibility("batch.pod_release", name)?.release()),
    };
    let most = limit.saturating_sub(others);
    let offers = names.first.offers();
    let mut reader = WireReader::new(names, declared, compatibility).keeping(stored_labels);
    let too_large = |records: usize| too_large(records.saturating_add(others));
    read_cluster("batch.put", put, most, &too_large, &mut reader, &mut batch)?;
    batch.basis = RecordBasis {
        dropped_labels: reader.dropped_labels,
        others_since: reader.has_others.then_some(offers),
        pod_release: named_release.or(reader.derived_by),
    };
    Ok(batch)
}

/// Number of records of a cluster. An unread list of objects is one record.
pub(crate) fn record_count(cluster: &pb::Cluster) -> usize {
    let pb::Cluster {
        nodes,
        queues,
        jobs,
        tasks,
        namespaces,
        objects,
        pod_rules: _,
        priority_classes,
    } = cluster;
    let others = namespaces.len() + objects.len() + priority_classes.len();
    nodes.len() + queues.len() + jobs.len() + tasks.len() + others
}

/// Bytes of the objects of a cluster, and of the pods and pod groups among its records.
pub(crate) fn object_bytes(cluster: &pb::Cluster) -> usize {
    let objects = cluster.objects.iter().map(Vec::len);
    let nodes = cluster.nodes.iter().map(|node| node.object.len());
    let queues = cluster.queues.iter().map(|queue| queue.object.len());
    let jobs = cluster.jobs.iter().map(|job| job.object.len());
    let tasks = cluster.tasks.iter().map(|task| task.object.len());
    objects.chain(nodes).chain(queues).chain(jobs).chain(tasks).sum()
}

/// Reads the records and at most `most` objects of a cluster, which the request has at `place`, into a batch. `too_large`:
/// error of at least this number of records.
///
/// # Errors
/// There are more records, or the rules for pods have no value of their field.
pub(super) fn read_cluster(
    place: &str,
    cluster: pb::Cluster,
    most: usize,
    too_large: &dyn Fn(usize) -> CallError,
    reader: &mut WireReader<'_>,
    batch: &mut Batch,
) -> RpcResult<()> {
    let records = record_count(&cluster);
    let pb::Cluster {
        nodes,
        queues,
        jobs,
        tasks,
        namespaces,
        objects,
        pod_rules: rules,
        priority_classes,
    } = cluster;
    let rules = pod_rules(rules).ok_or_else(|| CallError::unknown_value(&format!("{place}.pod_rules"), rules))?;
    batch.put.reserve(records);
    let most_objects = most.saturating_sub(records - objects.len());
    let mut into = BatchFiller {
        reader,
        batch,
        pool: RecordInterner::default(),
    };
    into.put_all(priority_classes, ObjectRecord::PriorityClass);
    into.put_all(nodes, ObjectRecord::Node);
    into.put_all(queues, ObjectRecord::Queue);
    into.put_all(jobs, ObjectRecord::Job);
    into.put_all(tasks, |task| ObjectRecord::Task(task, None, PodClaims::default()));
    into.put_all(namespaces, ObjectRecord::Namespace);
    let came = into.read_objects(objects, rules, most_objects);
    if came > most_objects {
        return Err(too_large(most.saturating_add(came - most_objects)));
    }
    Ok(())
}

/// Batch that is filled with the records of messages and objects.
pub(super) struct BatchFiller<'b, 'r> {
    pub(super) reader: &'b mut WireReader<'r>,
    pub(super) batch: &'b mut Batch,
    /// Values that many records of a batch share, which are deduplicated where they are read.
    pool: RecordInterner,
}

impl BatchFiller<'_, '_> {
    fn put_all<T>(&mut self, messages: Vec<T>, record: fn(T) -> ObjectRecord) {
        for (i, message) in messages.into_iter().enumerate() {
            self.put(record(message), RecordLocation::at(i));
        }
    }

    /// Reads a message, and adds its record, or its problems.
    pub(super) fn put(&mut self, message: ObjectRecord, place: RecordLocation) {
        let Self { reader, pool, .. } = self;
        let record = match message {
            ObjectRecord::Node(node) => {
                let mut record = reader.node(node);
                pool.intern_batch_node(&mut record);
                BatchRecord::Node(Arc::new(record))
            }
            ObjectRecord::Queue(queue) => BatchRecord::Queue(reader.queue(queue)),
            ObjectRecord::Job(job) => {
                let record = reader.job(job);
                reader.keep_labels_for(&record);
                BatchRecord::Job(record)
            }
            ObjectRecord::Task(task, ..) => {
                let mut record = reader.stored_task(task);
                pool.intern_batch_task(&mut record);
                BatchRecord::Task(record)
            }
            ObjectRecord::PriorityClass(class) => BatchRecord::PriorityClass(reader.priority_class(class)),
            ObjectRecord::Namespace(namespace) => BatchRecord::Namespace(reader.namespace(namespace)),
            // These become no records.
            ObjectRecord::Owner(_) | ObjectRecord::Device(_) | ObjectRecord::Part(_) => return,
        };
        let found = self.reader.take_problems();
        push_record(record, found, self.batch, place);
    }
}

/// Adds a record to a batch, or its problems.
fn push_record(put: BatchRecord, found: ReadProblems, batch: &mut Batch, place: RecordLocation) {
    if found.is_empty() {
        batch.put.push((put, place));
        return;
    }
    let (kind, name) = put.key();
    let node = occupied_node(&put, &found.problems);
    // Without them the task takes no less of its node, and a node without its task would take no others.
    let is_beside = !node.is_empty() && found.problems.iter().all(|problem| is_beside_amounts(&problem.field));
    let found = found.within(&place.field_path(kind));
    batch.warnings.extend(found.warnings);
    if is_beside || found.problems.is_empty() {
        batch.warnings.extend(found.problems);
        batch.put.push((put, place));
    } else {
        batch.rejected.push(RejectedRecord {
            key: (kind, Arc::clone(name)),
            problems: found.problems,
            node,
        });
    }
}

/// True for a field of a task that is left out where it cannot be read, and that says nothing about what the task takes of its node.
fn is_beside_amounts(field: &str) -> bool {
    const BESIDE: [&str; 6] = [
        "role",
        "sub_group",
        "priority_class_name",
        "scheduling_gates",
        "job",
        "nominated_node",
    ];
    BESIDE.contains(&field) || field.starts_with("constraints")
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
        | BatchRecord::Namespace(_)
        | BatchRecord::PriorityClass(_) => Arc::default(),
    }
}

/// Reads a record that its source could not read. `index`: its place in the batch.
fn read_unreadable(record: pb::UnreadableRecord, index: usize, limits: &EdgeLimits) -> RpcResult<RejectedRecord> {
    let pb::UnreadableRecord {
        kind,
        name,
        field,
        message,
        node,
    } = record;
    let place = format!("unreadable[{index}]");
    let Some(kind) = pb::RecordKind::try_from(kind).ok().and_then(record_kind) else {
        return Err(CallError::unknown_value(&format!("batch.{place}.kind"), kind));
    };
    for (field, text) in [("name", &name), ("node", &node)] {
        let limit = limits.name_bytes;
        if text.len() > limit || (field == "name" && text.is_empty()) {
            let message = format!("batch.{place}.{field}: a name has 1 to {limit} bytes (limit `name_bytes`)");
            return Err(CallError::new(ErrorCode::NameInvalid, message));
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
    let problem = Problem::new(ErrorCode::UnreadableRecord, field, message);
    let node = if kind == RecordKind::Task { node } else { String::new() };
    Ok(RejectedRecord {
        key: (kind, name.into()),
        problems: vec![problem],
        node: node.into(),
    })
}

/// First bytes of a text of a source, which states and replies repeat.
pub(super) fn truncated(text: &str) -> &str {
    let most = (0..=MAX_TEXT_BYTES).rev().find(|end| text.is_char_boundary(*end));
    text.get(..most.unwrap_or_default().min(text.len())).unwrap_or(text)
}

type RemovedRecords = Vec<(RecordKind, Arc<str>)>;
/// Incarnations that removals name.
type RemovedUids = BTreeMap<(RecordKind, Arc<str>), Uid>;

/// Reads removals, with the uids of removals that name a uid.
fn read_removals(removals: pb::Removals) -> RpcResult<(RemovedRecords, RemovedUids)> {
    let pb::Removals {
        nodes,
        queues,
        jobs,
        tasks,
        namespaces,
        priority_classes,
        objects,
    } = removals;
    let of = |kind: RecordKind, names: Vec<String>| names.into_iter().map(move |name| (kind, Arc::from(name)));
    let mut removed: RemovedRecords = of(RecordKind::Node, nodes)
        .chain(of(RecordKind::Queue, queues))
        .chain(of(RecordKind::Job, jobs))
        .chain(of(RecordKind::Task, tasks))
        .chain(of(RecordKind::Namespace, namespaces))
        .chain(of(RecordKind::PriorityClass, priority_classes))
        .collect();
    let mut uids = RemovedUids::new();
    for (number, object) in objects.into_iter().enumerate() {
        let pb::ObjectReference {
            kind,
            namespace,
            name,
            uid,
        } = object;
        let known = ObjectKind::ALL.into_iter().find(|known| known.name() == kind);
        let key = known.and_then(|known| Some((record_kind(known.record_kind())?, known)));
        let Some((kind, known)) = key else {
            let message = format!(
                "batch.remove.objects[{number}].kind: no records are made of `{}`; known are {}",
                truncated(&kind),
                kinds_with_records()
            );
            return Err(CallError::new(ErrorCode::KindInvalid, message));
        };
        let key = (kind, Arc::from(known.record_name(&namespace, &name)));
        if !uid.is_empty() {
            uids.insert(key.clone(), uid.as_str().into());
        }
        removed.push(key);
    }
    Ok((removed, uids))
}

/// Reply to a batch.
pub(crate) fn batch_outcome(outcome: BatchOutcome) -> pb::BatchOutcome {
    let BatchOutcome {
        position,
        revision,
        rejected: refused,
        warnings,
        resync,
    } = outcome;
    pb::BatchOutcome {
        position: Some(position.write()),
        revision: Some(revision.write()),
        refused: problems(&refused),
        resync: resync.map(resync_request),
        warnings: problems(&warnings),
    }
}

fn resync_request(request: ResyncRequest) -> pb::Resync {
    let ResyncRequest {
        reason,
        message,
        pod_release,
    } = request;
    pb::Resync {
        reason: reason.code().name().to_owned(),
        message,
        pod_release: pod_release.name().to_owned(),
    }
}

/// Problems as the wire has them.
pub(crate) fn problems<P: Borrow<Problem>>(problems: impl IntoIterator<Item = P>) -> Vec<pb::Problem> {
    let problems = problems.into_iter();
    problems.map(|found| problem(found.borrow())).collect()
}

/// Problem of one item, whose place the engine may not have named.
pub(crate) fn within_item(found: &Problem, place: &str) -> Problem {
    if found.field.starts_with(place) {
        return found.clone();
    }
    found.clone().within(place)
}

/// Problem as the wire has it.
pub(crate) fn problem(problem: &Problem) -> pb::Problem {
    let Problem { code, message, field } = problem;
    pb::Problem {
        code: grpc_code(code.class()).into(),
        reason: code.name().to_owned(),
        message: message.clone(),
        field: field.clone(),
    }
}
