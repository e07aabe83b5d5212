//! The cluster state against a rebuild, and the columns against the records.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;

const GPU: &str = "nvidia.com/gpu";

#[derive(Clone, Debug)]
enum ClusterStateStep {
    PutNode(u8, i64, bool),
    RemoveNode(u8),
    PutTask(u8, u8, u8, TaskStatus, i64, bool),
    RemoveTask(u8),
    PutJob(u8),
    RemoveJob(u8),
}

fn status() -> impl Strategy<Value = TaskStatus> {
    use TaskStatus::{Allocated, Binding, Bound, Failed, Pending, Pipelined, Releasing, Running, Succeeded, Unknown};
    prop::sample::select(vec![
        Pending, Allocated, Pipelined, Binding, Bound, Running, Releasing, Succeeded, Failed, Unknown,
    ])
}

fn step() -> impl Strategy<Value = ClusterStateStep> {
    prop_oneof![
        2 => (0u8..6, 0i64..9, any::<bool>()).prop_map(|(n, cpu, gpu)| ClusterStateStep::PutNode(n, cpu, gpu)),
        1 => (0u8..6).prop_map(ClusterStateStep::RemoveNode),
        6 => (0u8..12, 0u8..7, 0u8..4, status(), 0i64..9, any::<bool>())
            .prop_map(|(t, n, j, s, cpu, gpu)| ClusterStateStep::PutTask(t, n, j, s, cpu, gpu)),
        2 => (0u8..12).prop_map(ClusterStateStep::RemoveTask),
        1 => (0u8..4).prop_map(ClusterStateStep::PutJob),
        1 => (0u8..4).prop_map(ClusterStateStep::RemoveJob),
    ]
}

fn resources() -> (Arc<ResourceTable>, ResourceId) {
    let mut resources = ResourceTable::default();
    let gpu = resources.intern(GPU, 9).unwrap();
    (Arc::new(resources), gpu)
}

fn empty() -> ClusterState {
    let mut index = SortedTable::default();
    for slot in 0..6 {
        index.insert(format!("n{slot}").into(), slot);
    }
    let mut cluster_state = ClusterState::new(Arc::new(index), 1);
    cluster_state.set_resources(resources().0);
    cluster_state
}

fn amounts(cpu: i64, gpu: bool) -> ResourceAmounts {
    let with_gpu = gpu.then_some((resources().1, 1_000));
    [(ResourceId::CPU, cpu), (ResourceId::PODS, 1)]
        .into_iter()
        .chain(with_gpu)
        .collect()
}

fn apply(cluster_state: &mut ClusterState, step: &ClusterStateStep) {
    let source: Arc<str> = "s".into();
    match *step {
        ClusterStateStep::PutNode(node, cpu, gpu) => {
            let record = NodeRecord {
                name: format!("n{node}").into(),
                allocatable: amounts(cpu, gpu),
                unattributed_used: gpu.then(|| amounts(1, false)),
                ..NodeRecord::default()
            };
            assert!(cluster_state.put_node(Arc::new(record), &source));
        }
        ClusterStateStep::RemoveNode(node) => drop(cluster_state.remove_node(&format!("n{node}"))),
        ClusterStateStep::PutTask(task, node, job, status, cpu, gpu) => {
            let record = TaskRecord::from(TaskFields {
                name: format!("t{task}").into(),
                // Number 6 is a node that never comes, job 3 is no job.
                node: format!("n{node}").into(),
                job: if job == 3 {
                    Arc::default()
                } else {
                    format!("j{job}").into()
                },
                requests: amounts(cpu, gpu),
                status,
                ..TaskFields::default()
            });
            cluster_state.put_task(record, &source);
        }
        ClusterStateStep::RemoveTask(task) => drop(cluster_state.remove_task(&format!("t{task}"))),
        ClusterStateStep::PutJob(job) => cluster_state.put_job(
            JobRecord {
                name: format!("j{job}").into(),
                ..JobRecord::default()
            },
            &source,
        ),
        ClusterStateStep::RemoveJob(job) => drop(cluster_state.remove_job(&format!("j{job}"))),
    }
}

/// Rebuilt cluster state: equal records, put in another order, tasks before nodes.
fn rebuilt(cluster_state: &ClusterState) -> ClusterState {
    let mut again = empty();
    for (_, stored) in cluster_state.tasks().iter() {
        again.put_task(stored.record.clone(), &stored.source);
    }
    for (_, stored) in cluster_state.jobs().iter() {
        again.put_job(stored.record.clone(), &stored.source);
    }
    for (_, entry) in cluster_state.nodes() {
        again.put_node(Arc::clone(&entry.record), &entry.source);
    }
    again
}

fn same(a: &ClusterState, b: &ClusterState) {
    assert!(a.nodes().eq(b.nodes()), "nodes");
    assert!(a.tasks().iter().eq(b.tasks().iter()), "tasks");
    assert!(a.jobs().iter().eq(b.jobs().iter()), "jobs");
    for job in 0..4 {
        let job = format!("j{job}");
        assert_eq!(a.job_allocated(&job), b.job_allocated(&job), "{job}");
    }
    let chunk = |cluster_state: &ClusterState| {
        cluster_state
            .chunks()
            .first()
            .map_or_else(|| NodeChunk::at(0), |chunk| NodeChunk::clone(chunk))
    };
    let (left, right) = (chunk(a), chunk(b));
    assert_eq!(left.live(), right.live());
    assert_eq!(left, right, "columns");
}

/// Checks that the columns equal values computed from the records and tasks.
fn check_columns(cluster_state: &ClusterState) {
    let (_, gpu) = resources();
    for (slot, entry) in cluster_state.nodes() {
        for id in [ResourceId::CPU, ResourceId::PODS, gpu] {
            let on_node = |wanted: fn(TaskStatus) -> bool| -> f64 {
                let tasks = cluster_state.tasks().iter().map(|(_, task)| &task.record);
                tasks
                    .filter(|task| task.node == entry.record.name && wanted(task.status))
                    .filter_map(|task| task.requests.get(id))
                    .map(|amount| amount as f64)
                    .sum()
            };
            let foreign = entry
                .record
                .unattributed_used
                .as_ref()
                .and_then(|used| used.get(id))
                .unwrap_or(0) as f64;
            let used = foreign + on_node(|status| status.is_on_node() && status != TaskStatus::Pipelined);
            let chunk = cluster_state.chunks().get(slot as usize / CHUNK_SIZE).unwrap();
            let value = |vector| chunk.value(id, vector, slot as usize % CHUNK_SIZE).unwrap_or(0.0);
            assert_eq!(
                value(NodeVector::Allocatable),
                entry.record.allocatable.get(id).unwrap_or(0) as f64
            );
            assert_eq!(value(NodeVector::Used), used);
            assert_eq!(
                value(NodeVector::Releasing),
                on_node(|status| status == TaskStatus::Releasing)
            );
            assert_eq!(
                value(NodeVector::Pipelined),
                on_node(|status| status == TaskStatus::Pipelined)
            );
            let idle = chunk.idle(id).values[slot as usize % CHUNK_SIZE];
            assert_eq!(idle, value(NodeVector::Allocatable) - used);
            let future = chunk.future_idle(id).values[slot as usize % CHUNK_SIZE];
            assert_eq!(
                future,
                idle + value(NodeVector::Releasing) - value(NodeVector::Pipelined)
            );
        }
    }
}

proptest! {
    #[test]
    fn changes_in_any_order_equal_a_rebuild(steps in prop::collection::vec(step(), 0..120)) {
        let mut cluster_state = empty();
        let mut earlier = None;
        for (number, step) in steps.iter().enumerate() {
            apply(&mut cluster_state, step);
            if number == steps.len() / 2 {
                earlier = Some((cluster_state.clone(), rebuilt(&cluster_state)));
            }
        }
        check_columns(&cluster_state);
        same(&cluster_state, &rebuilt(&cluster_state));
        // A clone is a snapshot: what came later does not show in it.
        if let Some((clone, then)) = earlier {
            same(&clone, &then);
        }
    }
}

#[test]
fn ties_break_by_name_whatever_the_slots() {
    let mut cluster_state = empty();
    let mut index = SortedTable::default();
    for (slot, name) in ["zeta", "alpha", "mike"].into_iter().enumerate() {
        index.insert(Arc::from(name), NodeSlot::try_from(slot).unwrap());
    }
    cluster_state = cluster_state.with_index(Arc::new(index));
    for name in ["zeta", "alpha", "mike"] {
        let record = NodeRecord {
            name: name.into(),
            ..NodeRecord::default()
        };
        cluster_state.put_node(Arc::new(record), &"s".into());
    }
    cluster_state.refresh_ranks();
    assert_eq!(cluster_state.ranks(), [2, 0, 1]);
}

#[test]
fn full_chunks_of_equal_nodes_share_columns() {
    let mut index = SortedTable::default();
    for slot in 0..768 {
        index.insert(format!("n{slot}").into(), slot);
    }
    let mut cluster_state = ClusterState::new(Arc::new(index), 1);
    cluster_state.set_resources(resources().0);
    let source: Arc<str> = "s".into();
    let put = |cluster_state: &mut ClusterState, slot: NodeSlot, cpu: i64| {
        let record = NodeRecord {
            name: format!("n{slot}").into(),
            allocatable: amounts(cpu, true),
            ..NodeRecord::default()
        };
        cluster_state.put_node(Arc::new(record), &source);
    };
    // The second chunk is the last to be full.
    for slot in (0..CHUNK_SIZE)
        .chain(2 * CHUNK_SIZE..3 * CHUNK_SIZE)
        .chain(CHUNK_SIZE..2 * CHUNK_SIZE)
    {
        put(&mut cluster_state, NodeSlot::try_from(slot).unwrap(), 8);
    }
    let column = |cluster_state: &ClusterState, number: usize| -> *const ChunkColumn {
        cluster_state
            .chunks()
            .get(number)
            .unwrap()
            .column(ResourceId::CPU, NodeVector::Allocatable)
    };
    assert_eq!(column(&cluster_state, 0), column(&cluster_state, 1));
    let before = cluster_state.clone();
    put(&mut cluster_state, 300, 9);
    assert_ne!(column(&cluster_state, 0), column(&cluster_state, 1));
    let cpu = |cluster_state: &ClusterState, slot: usize| {
        let chunk = cluster_state.chunks().get(slot / CHUNK_SIZE).unwrap();
        chunk.value(ResourceId::CPU, NodeVector::Allocatable, slot % CHUNK_SIZE)
    };
    assert_eq!(
        (cpu(&cluster_state, 300), cpu(&cluster_state, 44), cpu(&before, 300)),
        (Some(9.0), Some(8.0), Some(8.0))
    );
    check_columns(&cluster_state);
    put(&mut cluster_state, 300, 8);
    assert_eq!(column(&cluster_state, 0), column(&cluster_state, 1));
    same(&cluster_state, &before);
}

fn minimums(tasks: i32) -> Option<Arc<GangMinimums>> {
    let gang = GangMinimums {
        min_task_member: vec![(Arc::from("worker"), tasks)],
        ..GangMinimums::default()
    };
    gang.into_field()
}

#[test]
fn a_job_is_another_if_nothing_differs() {
    let full = || JobRecord {
        name: "ns/j".into(),
        uid: "u".into(),
        queue: "q".into(),
        creation_time: Some(1),
        priority: 2,
        phase: JobPhase::Pending,
        min_member: 3,
        min_resources: Some(ResourceAmounts::from_iter([(ResourceId::CPU, 4)])),
        annotations: vec![(Arc::from("a"), Arc::from("b"))].into(),
        gang: minimums(1),
    };
    let changes: [fn(&mut JobRecord); 11] = [
        |job| job.name = "ns/k".into(),
        |job| job.uid = "v".into(),
        |job| job.queue = "r".into(),
        |job| job.creation_time = None,
        |job| job.priority = 1,
        |job| job.phase = JobPhase::Inqueue,
        |job| job.min_member = 1,
        |job| job.min_resources = None,
        |job| job.annotations = TextMap::default(),
        |job| job.gang = None,
        |job| job.gang = minimums(2),
    ];
    let own = full();
    assert!(own.same_as(&own.clone()) && own.same_as(&full()), "shared or not");
    for change in changes {
        let mut other = own.clone();
        change(&mut other);
        assert!(!own.same_as(&other) && own != other);
    }
}
