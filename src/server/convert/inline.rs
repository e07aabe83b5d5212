//! Cluster in a request, as a cluster state of its own.

use std::sync::Arc;

use crate::server::pb;
use crate::server::status::{CallError, RpcResult, check_limit};
use pumice_engine::model::{
    ClusterState, ErrorCode, NodeRecord, NodeSlot, Problem, RecordKind, ResourceTable, SortedTable,
};
use pumice_engine::policy::Compatibility;
use pumice_state::{Batch, BatchRecord, RecordLocation};

use super::amounts::QueryResourceNames;
use super::batch::{read_cluster, record_count};
use super::reader::{ReadOptions, WireReader};

/// Owner of all records of an inline cluster.
pub const INLINE_SOURCE: &str = "inline";

/// Builds the cluster state, for a policy with this compatibility; the order of the nodes gives their slots. Also
/// returns warnings.
///
/// # Errors
/// A record cannot be read, or is given twice: no result could be trusted.
pub fn cluster_state(
    cluster: pb::Cluster,
    compatibility: Compatibility,
    declared: &ReadOptions,
) -> RpcResult<(ClusterState, Vec<Problem>)> {
    let limit = declared.limits.inline_records;
    let too_large = |records: usize| {
        let message = format!("against.inline.cluster: {records} records");
        CallError::limit("inline_records", limit, &message)
    };
    let records = record_count(&cluster);
    if records > limit {
        return Err(too_large(records));
    }
    let empty = ClusterState::new(Arc::new(SortedTable::<NodeSlot>::default()), 0);
    let mut names = QueryResourceNames::new(empty.resources(), declared.limits.query_resources);
    let mut batch = Batch::default();
    let mut reader = WireReader::new(&mut names, declared, compatibility);
    let place = "against.inline.cluster";
    read_cluster(place, cluster, limit, &too_large, &mut reader, &mut batch)?;
    let outside = |problem: Problem| Problem {
        field: format!("against.inline.cluster{}", problem.field.trim_start_matches("put")),
        ..problem
    };
    let rejected: Vec<Problem> = batch
        .rejected
        .into_iter()
        .flat_map(|rejected| rejected.problems)
        .map(outside)
        .collect();
    if !rejected.is_empty() {
        return Err(CallError::from_problems(&rejected));
    }
    let warnings = batch.warnings.into_iter().map(outside).collect();
    Ok((build_state(batch.put, names)?, warnings))
}

/// Reads nodes for a request, with the resource names that they add to a state's names. Unreadable nodes are left out.
///
/// # Errors
/// The request has too many nodes.
pub fn read_nodes(
    nodes: Vec<pb::Node>,
    names: &Arc<ResourceTable>,
    declared: &ReadOptions,
) -> RpcResult<(Vec<Arc<NodeRecord>>, Arc<ResourceTable>)> {
    let (count, limit) = (nodes.len(), declared.limits.inline_records);
    let message = || format!("{count} nodes that the state does not have");
    check_limit(count, "inline_records", limit, message)?;
    let mut names = QueryResourceNames::new(names, declared.limits.query_resources);
    // Nothing about a node depends on the policy.
    let mut reader = WireReader::new(&mut names, declared, Compatibility::default());
    let mut records = Vec::with_capacity(nodes.len());
    for node in nodes {
        let record = reader.node(node);
        if reader.take_problems().problems.is_empty() {
            records.push(Arc::new(record));
        }
    }
    Ok((records, names.into_table()))
}

fn build_state(mut put: Vec<(BatchRecord, RecordLocation)>, names: QueryResourceNames) -> RpcResult<ClusterState> {
    let mut index: SortedTable<NodeSlot> = SortedTable::default();
    for (record, place) in &put {
        let BatchRecord::Node(node) = record else { continue };
        let next = NodeSlot::try_from(index.len()).unwrap_or(NodeSlot::MAX);
        if index.insert(Arc::clone(&node.name), next).is_some() {
            return Err(duplicate_record(
                "node",
                &node.name,
                &place.field_path(RecordKind::Node),
            ));
        }
    }
    let mut cluster_state = ClusterState::new(Arc::new(index), 0);
    cluster_state.set_resources(names.into_table());
    let source: Arc<str> = Arc::from(INLINE_SOURCE);
    let is_dependent = |(record, _): &(BatchRecord, RecordLocation)| match record {
        BatchRecord::PriorityClass(_) | BatchRecord::Namespace(_) | BatchRecord::Node(_) | BatchRecord::Queue(_) => 0,
        BatchRecord::Job(_) => 1,
        BatchRecord::Task(_) => 2,
    };
    // Priorities and groups follow from classes and jobs.
    put.sort_by_key(is_dependent);
    for (record, place) in put {
        let known = match &record {
            BatchRecord::Node(_) => false,
            BatchRecord::Queue(queue) => cluster_state.queues().contains(&queue.name),
            BatchRecord::Job(job) => cluster_state.jobs().contains(&job.name),
            BatchRecord::Task(task) => cluster_state.tasks().contains(&task.name),
            BatchRecord::Namespace(namespace) => cluster_state.namespaces().contains(&namespace.name),
            BatchRecord::PriorityClass(class) => cluster_state.priority_classes().contains(&class.name),
        };
        if known {
            let (kind, name) = record.key();
            return Err(duplicate_record("record", name, &place.field_path(kind)));
        }
        match record {
            BatchRecord::Node(node) => {
                cluster_state.put_node(node, &source);
            }
            BatchRecord::Queue(queue) => cluster_state.put_queue(queue, &source),
            BatchRecord::Namespace(namespace) => cluster_state.put_namespace(namespace, &source),
            BatchRecord::Job(mut job) => {
                cluster_state.relate_job(&mut job);
                cluster_state.put_job(job, &source);
            }
            BatchRecord::Task(mut task) => {
                cluster_state.relate_task(&mut task);
                cluster_state.put_task(task, &source);
            }
            BatchRecord::PriorityClass(class) => cluster_state.put_priority_class(class, &source),
        }
    }
    cluster_state.refresh_ranks();
    Ok(cluster_state)
}

fn duplicate_record(what: &str, name: &str, place: &str) -> CallError {
    let place = place.trim_start_matches("put.");
    let message = format!("against.inline.cluster.{place}: the {what} `{name}` is given twice");
    CallError::new(ErrorCode::RecordDuplicate, message)
}
