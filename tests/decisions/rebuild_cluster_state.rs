//! Engine's cluster state changed step by step, compared bit for bit with the one that is built at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use pumice_engine::model::{
    ClusterState, JobRecord, NodeChunk, NodeRecord, NodeSlot, ResourceAmounts, ResourceId, ResourceTable, SortedTable,
    TaskFields, TaskRecord, TaskStatus as Status,
};

/// Change of the engine's own cluster state.
#[derive(Clone, Debug)]
enum StateMutation {
    Node(u8, Vec<(u16, i64)>),
    NoNode(u8),
    Job(u8),
    NoJob(u8),
    Task(u8, u8, u8, Status, Vec<(u16, i64)>),
    NoTask(u8),
}

fn state_mutation() -> impl Strategy<Value = StateMutation> {
    let amounts = || prop::collection::vec((0..6_u16, prop_oneof![Just(0), 1..1_000_i64, Just(i64::MAX)]), 0..4);
    let status = prop::sample::select(vec![
        Status::Pending,
        Status::Allocated,
        Status::Pipelined,
        Status::Releasing,
        Status::Running,
        Status::Succeeded,
        Status::Unknown,
    ]);
    prop_oneof![
        2 => (0..6_u8, amounts()).prop_map(|(name, amounts)| StateMutation::Node(name, amounts)),
        1 => (0..6_u8).prop_map(StateMutation::NoNode),
        1 => (0..3_u8).prop_map(StateMutation::Job),
        1 => (0..3_u8).prop_map(StateMutation::NoJob),
        5 => (0..9_u8, 0..4_u8, 0..7_u8, status, amounts())
            .prop_map(|(name, job, node, status, amounts)| StateMutation::Task(name, job, node, status, amounts)),
        2 => (0..9_u8).prop_map(StateMutation::NoTask),
    ]
}

const NAMES: [&str; 6] = ["cpu", "memory", "pods", "a/a", "b/b", "c/c"];

fn empty(view_nodes: u8) -> ClusterState {
    let mut index: SortedTable<NodeSlot> = SortedTable::default();
    // Slots are spread over two chunks, and not in the order of names.
    for number in 0..view_nodes {
        index.insert(format!("n{number}").into(), (u32::from(number) * 101) % 512);
    }
    let mut table = ResourceTable::default();
    for name in NAMES {
        table.intern(name, 6).unwrap();
    }
    let mut cluster_state = ClusterState::new(Arc::new(index), 1);
    cluster_state.set_resources(Arc::new(table));
    cluster_state
}

fn given(ids: &[ResourceId], amounts: &[(u16, i64)]) -> ResourceAmounts {
    amounts
        .iter()
        .map(|&(id, amount)| (ids[usize::from(id)], amount))
        .collect()
}

/// Remaining records, by name.
#[derive(Default)]
struct RemainingRecords {
    nodes: BTreeMap<Arc<str>, Arc<NodeRecord>>,
    jobs: BTreeMap<Arc<str>, JobRecord>,
    tasks: BTreeMap<Arc<str>, TaskRecord>,
}

/// Applies one change to the cluster state and to the remaining records.
fn apply(cluster_state: &mut ClusterState, left: &mut RemainingRecords, ids: &[ResourceId], touch: StateMutation) {
    let source: Arc<str> = Arc::from("s");
    match touch {
        StateMutation::Node(name, amounts) => {
            let (name, allocatable): (Arc<str>, _) = (format!("n{name}").into(), given(ids, &amounts));
            let record = Arc::new(NodeRecord {
                name: Arc::clone(&name),
                allocatable,
                ..Default::default()
            });
            cluster_state.put_node(Arc::clone(&record), &source);
            left.nodes.insert(name, record);
        }
        StateMutation::NoNode(name) => {
            let name = format!("n{name}");
            assert_eq!(cluster_state.remove_node(&name), left.nodes.remove(&*name).is_some());
        }
        StateMutation::Job(name) => {
            let record = JobRecord {
                name: format!("j{name}").into(),
                ..Default::default()
            };
            cluster_state.put_job(record.clone(), &source);
            left.jobs.insert(Arc::clone(&record.name), record);
        }
        StateMutation::NoJob(name) => {
            let name = format!("j{name}");
            assert_eq!(cluster_state.remove_job(&name), left.jobs.remove(&*name).is_some());
        }
        StateMutation::Task(name, job, node, status, amounts) => {
            let record = TaskRecord::from(TaskFields {
                name: format!("t{name}").into(),
                job: if job == 3 {
                    Arc::default()
                } else {
                    format!("j{job}").into()
                },
                node: if node == 6 {
                    Arc::default()
                } else {
                    format!("n{node}").into()
                },
                status,
                requests: given(ids, &amounts),
                ..Default::default()
            });
            cluster_state.put_task(record.clone(), &source);
            left.tasks.insert(Arc::clone(&record.name), record);
        }
        StateMutation::NoTask(name) => {
            let name = format!("t{name}");
            assert_eq!(cluster_state.remove_task(&name), left.tasks.remove(&*name).is_some());
        }
    }
}

/// Cluster state of the remaining records, built in another order.
fn build(left: &RemainingRecords) -> ClusterState {
    let (mut cluster_state, source): (_, Arc<str>) = (empty(6), Arc::from("s"));
    for task in left.tasks.values() {
        cluster_state.put_task(task.clone(), &source);
    }
    for node in left.nodes.values().rev() {
        cluster_state.put_node(Arc::clone(node), &source);
    }
    for job in left.jobs.values() {
        cluster_state.put_job(job.clone(), &source);
    }
    cluster_state.refresh_ranks();
    cluster_state
}

#[test]
fn a_cluster_state_changed_step_by_step_equals_one_built_at_once() {
    let config = ProptestConfig {
        cases: 256,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |(touches in prop::collection::vec(state_mutation(), 1..60))| {
        let (mut cluster_state, mut left) = (empty(6), RemainingRecords::default());
        let ids: Vec<ResourceId> = NAMES.iter().map(|name| cluster_state.resources().get(name).unwrap()).collect();
        for touch in touches {
            apply(&mut cluster_state, &mut left, &ids, touch);
        }
        cluster_state.refresh_ranks();
        let rebuilt = build(&left);
        for chunk in 0..cluster_state.chunks().len().max(rebuilt.chunks().len()) {
            let of = |cluster_state: &ClusterState| cluster_state.chunks().get(chunk).map_or_else(|| NodeChunk::at(u32::try_from(chunk).unwrap()), |chunk| (**chunk).clone());
            prop_assert_eq!(of(&cluster_state), of(&rebuilt), "columns and entries of chunk {}", chunk);
        }
        for job in ["j0", "j1", "j2"] {
            prop_assert_eq!(cluster_state.job_allocated(job), rebuilt.job_allocated(job));
        }
        let ranks = |cluster_state: &ClusterState| cluster_state.nodes().map(|(slot, _)| cluster_state.ranks()[slot as usize]).collect::<Vec<_>>();
        prop_assert_eq!(ranks(&cluster_state), ranks(&rebuilt));
    });
}
