//! State that was changed step by step, compared with the state that is built at once from the same records.

use std::collections::BTreeMap;

use proptest::prelude::*;
use pumice::server::pb;

use crate::support::EmbeddedServer;
use crate::support::records::{amounts, delta, full_sync, job, node, queue, task, task_on_node};
use crate::support::wire::BlockingClients;

const SOURCES: [&str; 3] = ["s0", "s1", "s2"];

/// Change of one record of a source: put, or remove.
#[derive(Clone, Debug)]
enum RecordDelta {
    Put(SourceRecord),
    Remove(SourceRecord),
}

#[derive(Clone, Debug)]
enum SourceRecord {
    Node(pb::Node),
    Queue(pb::Queue),
    Job(pb::Job),
    Task(pb::Task),
}

/// Records of one source by kind and name.
type RecordsBySource = BTreeMap<(u8, String), SourceRecord>;

fn key(record: &SourceRecord) -> (u8, String) {
    match record {
        SourceRecord::Node(record) => (0, record.name.clone()),
        SourceRecord::Queue(record) => (1, record.name.clone()),
        SourceRecord::Job(record) => (2, record.name.clone()),
        SourceRecord::Task(record) => (3, record.name.clone()),
    }
}

fn cluster<'a>(records: impl IntoIterator<Item = &'a SourceRecord>) -> pb::Cluster {
    let mut cluster = pb::Cluster::default();
    for record in records {
        match record.clone() {
            SourceRecord::Node(record) => cluster.nodes.push(record),
            SourceRecord::Queue(record) => cluster.queues.push(record),
            SourceRecord::Job(record) => cluster.jobs.push(record),
            SourceRecord::Task(record) => cluster.tasks.push(record),
        }
    }
    cluster
}

const STATUSES: [pb::TaskStatus; 10] = [
    pb::TaskStatus::Pending,
    pb::TaskStatus::Allocated,
    pb::TaskStatus::Pipelined,
    pb::TaskStatus::Binding,
    pb::TaskStatus::Bound,
    pb::TaskStatus::Running,
    pb::TaskStatus::Releasing,
    pb::TaskStatus::Succeeded,
    pb::TaskStatus::Failed,
    pb::TaskStatus::Unknown,
];

fn list<'a>(items: BTreeMap<&'a str, &'a str>) -> Vec<(&'a str, &'a str)> {
    items.into_iter().collect()
}

/// Record of a source. Tasks name nodes and jobs of any source, whether or not these exist.
fn record(source: usize) -> impl Strategy<Value = SourceRecord> {
    let name = move |kind: &str, number: u8| format!("{kind}-{source}-{number}");
    let sizes = prop::sample::select(vec!["0", "1", "1500m", "7", "100u", "64Gi", "3e3"]);
    let resources = prop::collection::btree_map(
        prop::sample::select(vec![
            "cpu",
            "memory",
            "nvidia.com/gpu",
            "example.com/a",
            "hugepages-2Mi",
        ]),
        sizes,
        0..4,
    );
    let some_node = (0..4_usize, 0..3_u8).prop_map(|(of, number)| {
        if of == 3 {
            String::new()
        } else {
            format!("n-{of}-{number}")
        }
    });
    prop_oneof![
        2 => (0..3_u8, resources.clone(), any::<bool>(), prop::option::of(resources.clone())).prop_map(
            move |(number, items, unschedulable, used)| SourceRecord::Node(pb::Node {
                unschedulable,
                unattributed_used: used.map(|items| amounts(&list(items))),
                ..node(&name("n", number), &list(items))
            })
        ),
        1 => (0..2_u8).prop_map(move |number| SourceRecord::Queue(queue(&name("q", number)))),
        1 => (0..2_u8, 0..3_usize).prop_map(move |(number, of)| {
            SourceRecord::Job(job(&format!("ns/{}", name("j", number)), &format!("q-{of}-0")))
        }),
        6 => (0..5_u8, 0..3_usize, 0..3_u8, some_node, prop::sample::select(STATUSES.to_vec()), resources).prop_map(
            move |(number, of, job, node, status, items)| {
                let job = if job == 2 { String::new() } else { format!("ns/j-{of}-{job}") };
                let task = task(&format!("ns/{}", name("t", number)), &job, &list(items));
                SourceRecord::Task(task_on_node(task, status, &node))
            }
        ),
    ]
}

/// Batch of one source: changes, or a full sync.
#[derive(Clone, Debug)]
enum SourceBatch {
    Delta(Vec<RecordDelta>),
    FullSync(Vec<SourceRecord>),
}

fn source_batch() -> impl Strategy<Value = (usize, SourceBatch)> {
    (0..SOURCES.len()).prop_flat_map(|source| {
        let steps = (record(source), prop::bool::weighted(0.7));
        let steps = steps.prop_map(|(record, put)| {
            if put {
                RecordDelta::Put(record)
            } else {
                RecordDelta::Remove(record)
            }
        });
        let sent = prop_oneof![
            5 => prop::collection::vec(steps, 1..6).prop_map(SourceBatch::Delta),
            1 => prop::collection::vec(record(source), 0..8).prop_map(SourceBatch::FullSync),
        ];
        (Just(source), sent)
    })
}

/// Applies a batch to the owned records. The last put of a name counts; a delta's removals come before its puts.
fn take(owned: &mut RecordsBySource, sent: &SourceBatch) -> (pb::Cluster, Option<pb::Removals>) {
    let mut put = RecordsBySource::new();
    let mut removals = pb::Removals::default();
    match sent {
        SourceBatch::FullSync(records) => {
            owned.clear();
            put.extend(records.iter().map(|record| (key(record), record.clone())));
            owned.extend(put.clone());
            (cluster(put.values()), None)
        }
        SourceBatch::Delta(steps) => {
            for step in steps {
                match step {
                    RecordDelta::Put(record) => {
                        put.insert(key(record), record.clone());
                    }
                    RecordDelta::Remove(record) => {
                        let key = key(record);
                        let kind = match record {
                            SourceRecord::Node(_) => &mut removals.nodes,
                            SourceRecord::Queue(_) => &mut removals.queues,
                            SourceRecord::Job(_) => &mut removals.jobs,
                            SourceRecord::Task(_) => &mut removals.tasks,
                        };
                        kind.push(key.1.clone());
                        owned.remove(&key);
                    }
                }
            }
            owned.extend(put.clone());
            (cluster(put.values()), Some(removals))
        }
    }
}

/// Listings of a state, without owners and slots.
fn shown(
    wire: &BlockingClients,
    evaluation_ref: Option<pb::EvaluationRef>,
) -> (
    Vec<pb::NodeStatus>,
    Vec<pb::QueueStatus>,
    Vec<pb::JobStatus>,
    Vec<pb::StoredTask>,
) {
    let nodes = pb::ListNodesRequest {
        against: evaluation_ref.clone(),
        ..Default::default()
    };
    let queues = pb::ListQueuesRequest {
        against: evaluation_ref.clone(),
        ..Default::default()
    };
    let jobs = pb::ListJobsRequest {
        against: evaluation_ref.clone(),
        ..Default::default()
    };
    let tasks = pb::ListTasksRequest {
        against: evaluation_ref,
        ..Default::default()
    };
    let mut nodes = wire.list_nodes(nodes).unwrap().nodes;
    let mut queues = wire.list_queues(queues).unwrap().queues;
    let mut jobs = wire.list_jobs(jobs).unwrap().jobs;
    let mut tasks = wire.list_tasks(tasks).unwrap().tasks;
    for status in &mut nodes {
        (status.slot, status.source) = (0, String::new());
    }
    for status in &mut queues {
        status.source.clear();
    }
    for status in &mut jobs {
        status.source.clear();
    }
    for status in &mut tasks {
        status.source.clear();
    }
    (nodes, queues, jobs, tasks)
}

#[test]
fn changes_by_several_sources_come_to_what_one_cluster_shows() {
    let server = EmbeddedServer::start();
    let wire = &server.wire;
    let mut sequences = [0_u64; SOURCES.len()];
    let config = ProptestConfig {
        cases: 48,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let sequences = std::cell::RefCell::new(&mut sequences);
    proptest!(config, |(all in prop::collection::vec(source_batch(), 1..24))| {
        let mut owned: [RecordsBySource; SOURCES.len()] = Default::default();
        let next = |source: usize| {
            let mut sequences = sequences.borrow_mut();
            sequences[source] += 1;
            sequences[source]
        };
        for (source, name) in SOURCES.iter().enumerate() {
            wire.apply_batch(full_sync(name, next(source), pb::Cluster::default())).unwrap();
        }
        for (source, sent) in &all {
            let (put, remove) = take(&mut owned[*source], sent);
            let (name, sequence) = (SOURCES[*source], next(*source));
            let batch = match sent {
                SourceBatch::Delta(_) => pb::Batch { remove, ..delta(name, sequence, put) },
                SourceBatch::FullSync(_) => full_sync(name, sequence, put),
            };
            let outcome = wire.apply_batch(batch).unwrap();
            prop_assert!(outcome.refused.is_empty() && outcome.resync.is_none(), "{outcome:?}");
        }
        let left = cluster(owned.iter().flat_map(BTreeMap::values));
        let inline = pb::InlineSnapshot { cluster: Some(left), ..Default::default() };
        let evaluation_ref = pb::EvaluationRef { target: Some(pb::evaluation_ref::Target::Inline(Box::new(inline))), ..pb::EvaluationRef::default() };
        prop_assert_eq!(shown(wire, None), shown(wire, Some(evaluation_ref)));
    });
}
