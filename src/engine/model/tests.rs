//! The View against a rebuild, and the columns against the records.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;

const GPU: &str = "nvidia.com/gpu";

#[derive(Clone, Debug)]
enum Step {
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

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0u8..6, 0i64..9, any::<bool>()).prop_map(|(n, cpu, gpu)| Step::PutNode(n, cpu, gpu)),
        1 => (0u8..6).prop_map(Step::RemoveNode),
        6 => (0u8..12, 0u8..7, 0u8..4, status(), 0i64..9, any::<bool>())
            .prop_map(|(t, n, j, s, cpu, gpu)| Step::PutTask(t, n, j, s, cpu, gpu)),
        2 => (0u8..12).prop_map(Step::RemoveTask),
        1 => (0u8..4).prop_map(Step::PutJob),
        1 => (0u8..4).prop_map(Step::RemoveJob),
    ]
}

fn resources() -> (Arc<ResourceTable>, ResourceId) {
    let mut resources = ResourceTable::default();
    let gpu = resources.intern(GPU, 9).unwrap();
    (Arc::new(resources), gpu)
}

fn empty() -> View {
    let mut index = Table::default();
    for slot in 0..6 {
        index.insert(format!("n{slot}").into(), slot);
    }
    let mut view = View::new(Arc::new(index), 1);
    view.set_resources(resources().0);
    view
}

fn amounts(cpu: i64, gpu: bool) -> Amounts {
    let with_gpu = gpu.then_some((resources().1, 1_000));
    [(ResourceId::CPU, cpu), (ResourceId::PODS, 1)]
        .into_iter()
        .chain(with_gpu)
        .collect()
}

fn apply(view: &mut View, step: &Step) {
    let source: Arc<str> = "s".into();
    match *step {
        Step::PutNode(node, cpu, gpu) => {
            let record = NodeRecord {
                name: format!("n{node}").into(),
                allocatable: amounts(cpu, gpu),
                unattributed_used: gpu.then(|| amounts(1, false)),
                ..NodeRecord::default()
            };
            assert!(view.put_node(Arc::new(record), &source));
        }
        Step::RemoveNode(node) => drop(view.remove_node(&format!("n{node}"))),
        Step::PutTask(task, node, job, status, cpu, gpu) => {
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
            view.put_task(record, &source);
        }
        Step::RemoveTask(task) => drop(view.remove_task(&format!("t{task}"))),
        Step::PutJob(job) => view.put_job(
            JobRecord {
                name: format!("j{job}").into(),
                ..JobRecord::default()
            },
            &source,
        ),
        Step::RemoveJob(job) => drop(view.remove_job(&format!("j{job}"))),
    }
}

/// The same records, put into an empty View in another order: tasks before nodes.
fn rebuilt(view: &View) -> View {
    let mut again = empty();
    for (_, stored) in view.tasks().iter() {
        again.put_task(stored.record.clone(), &stored.source);
    }
    for (_, stored) in view.jobs().iter() {
        again.put_job(stored.record.clone(), &stored.source);
    }
    for (_, entry) in view.nodes() {
        again.put_node(Arc::clone(&entry.record), &entry.source);
    }
    again
}

fn same(a: &View, b: &View) {
    assert!(a.nodes().eq(b.nodes()), "nodes");
    assert!(a.tasks().iter().eq(b.tasks().iter()), "tasks");
    assert!(a.jobs().iter().eq(b.jobs().iter()), "jobs");
    for job in 0..4 {
        let job = format!("j{job}");
        assert_eq!(a.job_allocated(&job), b.job_allocated(&job), "{job}");
    }
    let chunk = |view: &View| {
        view.chunks()
            .first()
            .map_or_else(|| Chunk::at(0), |chunk| Chunk::clone(chunk))
    };
    let (left, right) = (chunk(a), chunk(b));
    assert_eq!(left.live(), right.live());
    assert_eq!(left, right, "columns");
}

/// What the columns show is what the records and tasks say, computed anew.
fn check_columns(view: &View) {
    let (_, gpu) = resources();
    for (slot, entry) in view.nodes() {
        for id in [ResourceId::CPU, ResourceId::PODS, gpu] {
            let on_node = |wanted: fn(TaskStatus) -> bool| -> f64 {
                let tasks = view.tasks().iter().map(|(_, task)| &task.record);
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
            let chunk = view.chunks().get(slot as usize / CHUNK).unwrap();
            let value = |vector| chunk.value(id, vector, slot as usize % CHUNK).unwrap_or(0.0);
            assert_eq!(
                value(Vector::Allocatable),
                entry.record.allocatable.get(id).unwrap_or(0) as f64
            );
            assert_eq!(value(Vector::Used), used);
            assert_eq!(
                value(Vector::Releasing),
                on_node(|status| status == TaskStatus::Releasing)
            );
            assert_eq!(
                value(Vector::Pipelined),
                on_node(|status| status == TaskStatus::Pipelined)
            );
            let idle = chunk.idle(id).values[slot as usize % CHUNK];
            assert_eq!(idle, value(Vector::Allocatable) - used);
            let future = chunk.future_idle(id).values[slot as usize % CHUNK];
            assert_eq!(future, idle + value(Vector::Releasing) - value(Vector::Pipelined));
        }
    }
}

proptest! {
    #[test]
    fn changes_in_any_order_equal_a_rebuild(steps in prop::collection::vec(step(), 0..120)) {
        let mut view = empty();
        let mut earlier = None;
        for (number, step) in steps.iter().enumerate() {
            apply(&mut view, step);
            if number == steps.len() / 2 {
                earlier = Some((view.clone(), rebuilt(&view)));
            }
        }
        check_columns(&view);
        same(&view, &rebuilt(&view));
        // A clone is a snapshot: what came later does not show in it.
        if let Some((clone, then)) = earlier {
            same(&clone, &then);
        }
    }
}

#[test]
fn ties_break_by_name_whatever_the_slots() {
    let mut view = empty();
    let mut index = Table::default();
    for (slot, name) in ["zeta", "alpha", "mike"].into_iter().enumerate() {
        index.insert(Arc::from(name), Slot::try_from(slot).unwrap());
    }
    view = view.moved_to(Arc::new(index));
    for name in ["zeta", "alpha", "mike"] {
        let record = NodeRecord {
            name: name.into(),
            ..NodeRecord::default()
        };
        view.put_node(Arc::new(record), &"s".into());
    }
    view.refresh_ranks();
    assert_eq!(view.ranks(), [2, 0, 1]);
}

#[test]
fn full_chunks_of_equal_nodes_share_columns() {
    let mut index = Table::default();
    for slot in 0..768 {
        index.insert(format!("n{slot}").into(), slot);
    }
    let mut view = View::new(Arc::new(index), 1);
    view.set_resources(resources().0);
    let source: Arc<str> = "s".into();
    let put = |view: &mut View, slot: Slot, cpu: i64| {
        let record = NodeRecord {
            name: format!("n{slot}").into(),
            allocatable: amounts(cpu, true),
            ..NodeRecord::default()
        };
        view.put_node(Arc::new(record), &source);
    };
    // The second chunk is the last to be full.
    for slot in (0..CHUNK).chain(2 * CHUNK..3 * CHUNK).chain(CHUNK..2 * CHUNK) {
        put(&mut view, Slot::try_from(slot).unwrap(), 8);
    }
    let column = |view: &View, number: usize| -> *const Column {
        view.chunks()
            .get(number)
            .unwrap()
            .column(ResourceId::CPU, Vector::Allocatable)
    };
    assert_eq!(column(&view, 0), column(&view, 1));
    let before = view.clone();
    put(&mut view, 300, 9);
    assert_ne!(column(&view, 0), column(&view, 1));
    let cpu = |view: &View, slot: usize| {
        let chunk = view.chunks().get(slot / CHUNK).unwrap();
        chunk.value(ResourceId::CPU, Vector::Allocatable, slot % CHUNK)
    };
    assert_eq!(
        (cpu(&view, 300), cpu(&view, 44), cpu(&before, 300)),
        (Some(9.0), Some(8.0), Some(8.0))
    );
    check_columns(&view);
    put(&mut view, 300, 8);
    assert_eq!(column(&view, 0), column(&view, 1));
    same(&view, &before);
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
        min_resources: Some(Amounts::from_iter([(ResourceId::CPU, 4)])),
        annotations: vec![(Arc::from("a"), Arc::from("b"))].into(),
    };
    let changes: [fn(&mut JobRecord); 9] = [
        |job| job.name = "ns/k".into(),
        |job| job.uid = "v".into(),
        |job| job.queue = "r".into(),
        |job| job.creation_time = None,
        |job| job.priority = 1,
        |job| job.phase = JobPhase::Inqueue,
        |job| job.min_member = 1,
        |job| job.min_resources = None,
        |job| job.annotations = Texts::default(),
    ];
    let own = full();
    assert!(own.is(&own.clone()) && own.is(&full()), "shared or not");
    for change in changes {
        let mut other = own.clone();
        change(&mut other);
        assert!(!own.is(&other) && own != other);
    }
}
