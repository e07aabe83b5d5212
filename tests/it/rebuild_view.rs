//! The engine's View changed step by step is the View that is built at once, bit for bit.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use pumice::engine::model::{
    Amounts, Chunk, JobRecord, NodeRecord, ResourceId, ResourceTable, Slot, Table, TaskFields, TaskRecord,
    TaskStatus as Status, View,
};

/// A change of the engine's own View.
#[derive(Clone, Debug)]
enum Touch {
    Node(u8, Vec<(u16, i64)>),
    NoNode(u8),
    Job(u8),
    NoJob(u8),
    Task(u8, u8, u8, Status, Vec<(u16, i64)>),
    NoTask(u8),
}

fn touch() -> impl Strategy<Value = Touch> {
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
        2 => (0..6_u8, amounts()).prop_map(|(name, amounts)| Touch::Node(name, amounts)),
        1 => (0..6_u8).prop_map(Touch::NoNode),
        1 => (0..3_u8).prop_map(Touch::Job),
        1 => (0..3_u8).prop_map(Touch::NoJob),
        5 => (0..9_u8, 0..4_u8, 0..7_u8, status, amounts())
            .prop_map(|(name, job, node, status, amounts)| Touch::Task(name, job, node, status, amounts)),
        2 => (0..9_u8).prop_map(Touch::NoTask),
    ]
}

const NAMES: [&str; 6] = ["cpu", "memory", "pods", "a/a", "b/b", "c/c"];

fn empty(view_nodes: u8) -> View {
    let mut index: Table<Slot> = Table::default();
    // Slots are spread over two chunks, and not in the order of names.
    for number in 0..view_nodes {
        index.insert(format!("n{number}").into(), (u32::from(number) * 101) % 512);
    }
    let mut table = ResourceTable::default();
    for name in NAMES {
        table.intern(name, 6).unwrap();
    }
    let mut view = View::new(Arc::new(index), 1);
    view.set_resources(Arc::new(table));
    view
}

fn given(ids: &[ResourceId], amounts: &[(u16, i64)]) -> Amounts {
    amounts
        .iter()
        .map(|&(id, amount)| (ids[usize::from(id)], amount))
        .collect()
}

/// What is left, by name.
#[derive(Default)]
struct Left {
    nodes: BTreeMap<Arc<str>, Arc<NodeRecord>>,
    jobs: BTreeMap<Arc<str>, JobRecord>,
    tasks: BTreeMap<Arc<str>, TaskRecord>,
}

/// Makes one change to the View, and to what is left.
fn apply(view: &mut View, left: &mut Left, ids: &[ResourceId], touch: Touch) {
    let source: Arc<str> = Arc::from("s");
    match touch {
        Touch::Node(name, amounts) => {
            let (name, allocatable): (Arc<str>, _) = (format!("n{name}").into(), given(ids, &amounts));
            let record = Arc::new(NodeRecord {
                name: Arc::clone(&name),
                allocatable,
                ..Default::default()
            });
            view.put_node(Arc::clone(&record), &source);
            left.nodes.insert(name, record);
        }
        Touch::NoNode(name) => {
            let name = format!("n{name}");
            assert_eq!(view.remove_node(&name), left.nodes.remove(&*name).is_some());
        }
        Touch::Job(name) => {
            let record = JobRecord {
                name: format!("j{name}").into(),
                ..Default::default()
            };
            view.put_job(record.clone(), &source);
            left.jobs.insert(Arc::clone(&record.name), record);
        }
        Touch::NoJob(name) => {
            let name = format!("j{name}");
            assert_eq!(view.remove_job(&name), left.jobs.remove(&*name).is_some());
        }
        Touch::Task(name, job, node, status, amounts) => {
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
            view.put_task(record.clone(), &source);
            left.tasks.insert(Arc::clone(&record.name), record);
        }
        Touch::NoTask(name) => {
            let name = format!("t{name}");
            assert_eq!(view.remove_task(&name), left.tasks.remove(&*name).is_some());
        }
    }
}

/// The View of what is left, built in another order.
fn build(left: &Left) -> View {
    let (mut view, source): (_, Arc<str>) = (empty(6), Arc::from("s"));
    for task in left.tasks.values() {
        view.put_task(task.clone(), &source);
    }
    for node in left.nodes.values().rev() {
        view.put_node(Arc::clone(node), &source);
    }
    for job in left.jobs.values() {
        view.put_job(job.clone(), &source);
    }
    view.refresh_ranks();
    view
}

#[test]
fn a_view_changed_step_by_step_is_a_view_built_at_once() {
    let config = ProptestConfig {
        cases: 256,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |(touches in prop::collection::vec(touch(), 1..60))| {
        let (mut view, mut left) = (empty(6), Left::default());
        let ids: Vec<ResourceId> = NAMES.iter().map(|name| view.resources().get(name).unwrap()).collect();
        for touch in touches {
            apply(&mut view, &mut left, &ids, touch);
        }
        view.refresh_ranks();
        let rebuilt = build(&left);
        for chunk in 0..view.chunks().len().max(rebuilt.chunks().len()) {
            let of = |view: &View| view.chunks().get(chunk).map_or_else(|| Chunk::at(u32::try_from(chunk).unwrap()), |chunk| (**chunk).clone());
            prop_assert_eq!(of(&view), of(&rebuilt), "columns and entries of chunk {}", chunk);
        }
        for job in ["j0", "j1", "j2"] {
            prop_assert_eq!(view.job_allocated(job), rebuilt.job_allocated(job));
        }
        let ranks = |view: &View| view.nodes().map(|(slot, _)| view.ranks()[slot as usize]).collect::<Vec<_>>();
        prop_assert_eq!(ranks(&view), ranks(&rebuilt));
    });
}
