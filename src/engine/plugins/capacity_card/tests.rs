//! State that is carried from View to View equals one worked out anew, whatever happens in whatever order.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;

use super::annotations::{NAME, QUOTA, REQUEST};
use super::{CapacityState, Config};
use crate::engine::derived::{Derived, Movement, TaskMove};
use crate::engine::model::{
    Amounts, Changes, JobPhase, JobRecord, NodeRecord, QueueRecord, Reservation, ResourceId, ResourceTable, Slot,
    Table, TaskFields, TaskRecord, TaskStatus, Texts, View,
};
use crate::engine::policy::Compatibility;

const NODES: u32 = 5;
const STATUSES: [TaskStatus; 6] = [
    TaskStatus::Pending,
    TaskStatus::Allocated,
    TaskStatus::Pipelined,
    TaskStatus::Running,
    TaskStatus::Releasing,
    TaskStatus::Succeeded,
];
const PHASES: [JobPhase; 4] = [
    JobPhase::Pending,
    JobPhase::Inqueue,
    JobPhase::Running,
    JobPhase::Completed,
];
const NAMES: [&str; 5] = ["", "A", "A|B", "B|C", "C"];
const QUOTAS: [&str; 5] = ["", r#"{"A": 2, "B": 1}"#, r#"{"B": 3, "C": 0}"#, "{", r#"{"A|B": 1}"#];

/// What may happen: which record, and three numbers that say how it is.
#[derive(Clone, Copy, Debug)]
enum Event {
    Node(u32, bool, [usize; 2]),
    Queue(usize, bool, [usize; 2]),
    Job(usize, bool, [usize; 3]),
    Task(usize, bool, [usize; 4]),
    Row(usize, bool, usize),
    Look,
}

fn event() -> impl Strategy<Value = Event> {
    let n = || 0usize..6;
    prop_oneof![
        2 => (0..NODES, prop::bool::weighted(0.8), [n(), n()]).prop_map(|(at, put, how)| Event::Node(at, put, how)),
        2 => (0usize..4, prop::bool::weighted(0.8), [n(), n()]).prop_map(|(at, put, how)| Event::Queue(at, put, how)),
        3 => (0usize..5, prop::bool::weighted(0.8), [n(), n(), n()]).prop_map(|(at, put, how)| Event::Job(at, put, how)),
        8 => (0usize..12, prop::bool::weighted(0.8), [n(), n(), n(), n()])
            .prop_map(|(at, put, how)| Event::Task(at, put, how)),
        1 => (0usize..5, any::<bool>(), n()).prop_map(|(at, put, how)| Event::Row(at, put, how)),
        6 => Just(Event::Look),
    ]
}

fn texts(entries: &[(&str, &str)]) -> Texts {
    let given = entries.iter().filter(|(_, text)| !text.is_empty());
    let mut texts: Vec<(Arc<str>, Arc<str>)> = given.map(|(name, text)| (Arc::from(*name), Arc::from(*text))).collect();
    texts.sort();
    texts.into()
}

struct World {
    view: View,
    gpu: ResourceId,
    npu: ResourceId,
}

impl World {
    fn new() -> Self {
        let mut resources = ResourceTable::default();
        let gpu = resources.intern("nvidia.com/gpu", 9).unwrap();
        let npu = resources.intern("huawei.com/npu", 9).unwrap();
        let mut index: Table<Slot> = Table::default();
        for slot in 0..NODES {
            // Slots of several chunks.
            index.insert(format!("n{slot}").into(), slot * 100);
        }
        let mut view = View::new(Arc::new(index), 1);
        view.set_resources(Arc::new(resources));
        Self { view, gpu, npu }
    }

    #[expect(clippy::too_many_lines, reason = "one arm per kind of record")]
    fn put(&mut self, event: Event) {
        let source = Arc::from("s");
        match event {
            Event::Look => {}
            Event::Node(at, put, [product, count]) => {
                let name: Arc<str> = format!("n{at}").into();
                if !put {
                    self.view.remove_node(&name);
                    return;
                }
                let (label, id) = if product % 2 == 0 {
                    ("nvidia.com/gpu.product", self.gpu)
                } else {
                    ("huawei.com/npu.product", self.npu)
                };
                let count = i64::try_from(count).unwrap();
                self.view.put_node(
                    Arc::new(NodeRecord {
                        name,
                        labels: texts(&[(label, ["A", "B", "C", "A", "B", ""][product])]),
                        allocatable: Amounts::from_iter([(ResourceId::CPU, 1000 * count), (id, 1000 * count)]),
                        ..NodeRecord::default()
                    }),
                    &source,
                );
            }
            Event::Queue(at, put, [quota, parent]) => {
                let name: Arc<str> = format!("q{at}").into();
                if !put {
                    self.view.remove_queue(&name);
                    return;
                }
                let capability = (parent % 2 == 0).then(|| Amounts::from_iter([(ResourceId::CPU, 4000)]));
                let record = QueueRecord {
                    name,
                    annotations: texts(&[(QUOTA, QUOTAS[quota % 5])]),
                    parent: ["", "q0", "q1", "q2", "gone", "root"][parent].into(),
                    capability,
                    ..QueueRecord::default()
                };
                self.view.put_queue(record, &source);
            }
            Event::Job(at, put, [queue, phase, request]) => {
                let name: Arc<str> = format!("j{at}").into();
                if !put {
                    self.view.remove_job(&name);
                    return;
                }
                let record = JobRecord {
                    name,
                    queue: format!("q{queue}").into(),
                    phase: PHASES[phase % 4],
                    min_member: i32::try_from(request % 3).unwrap(),
                    annotations: texts(&[(REQUEST, QUOTAS[request % 5])]),
                    min_resources: (phase % 2 == 0).then(|| Amounts::from_iter([(ResourceId::CPU, 1000)])),
                    ..JobRecord::default()
                };
                self.view.put_job(record, &source);
            }
            Event::Task(at, put, how) => self.put_task(at, put, how),
            Event::Row(at, put, how) => {
                let job: Arc<str> = format!("j{at}").into();
                if put {
                    let amounts = [("cpu", 1000), ("memory", 5), (["A", "B", "A|B"][how % 3], 2000)];
                    self.view.put_reservation(Arc::new(Reservation {
                        job,
                        queue: format!("q{how}").into(),
                        amounts: amounts
                            .iter()
                            .map(|(name, amount)| (Arc::from(*name), *amount))
                            .collect(),
                        ..Reservation::default()
                    }));
                } else {
                    self.view.remove_reservation(&job);
                }
            }
        }
    }

    fn put_task(&mut self, at: usize, put: bool, [job, status, node, name]: [usize; 4]) {
        let own: Arc<str> = format!("t{at}").into();
        if !put {
            self.view.remove_task(&own);
            return;
        }
        let status = STATUSES[status];
        let on = if status == TaskStatus::Pending {
            String::new()
        } else {
            format!("n{node}")
        };
        let requests = Amounts::from_iter([
            (ResourceId::CPU, 500),
            (if name % 2 == 0 { self.gpu } else { self.npu }, 1000),
        ]);
        self.view.put_task(
            TaskRecord::from(TaskFields {
                name: own,
                job: if job == 5 {
                    Arc::default()
                } else {
                    format!("j{job}").into()
                },
                status,
                node: on.into(),
                gated: name == 5,
                annotations: texts(&[(NAME, NAMES[name % 5])]),
                requests,
                ..TaskFields::default()
            }),
            &Arc::from("s"),
        );
    }
}

/// Everything that the state holds, in words.
fn all(state: &CapacityState, view: &View) -> Vec<String> {
    let mut lines = vec![format!("{:?} {:?}", state.guaranteed(), state.cards().total())];
    lines.extend(state.accounts().map(|(name, account)| format!("{name} {account:?}")));
    lines.extend(state.jobs.iter().map(|(name, entry)| format!("{name} {entry:?}")));
    lines.extend(state.rows.iter().map(|(name, entry)| format!("row {name} {entry:?}")));
    lines.extend(state.tasks_of.iter().map(|(name, tasks)| format!("{name} {tasks:?}")));
    lines.extend(state.cards().nodes().map(|(name, cards)| format!("{name} {cards:?}")));
    lines.extend(
        state
            .cards()
            .kinds()
            .map(|(card, resource)| format!("{card} {resource}")),
    );
    let resources = (0..view.resources().len()).map(|id| ResourceId(u16::try_from(id).unwrap()));
    lines.extend(resources.map(|id| format!("{id:?} {:?}", state.cards().of_resource(id))));
    let slots = 0..NODES * 100;
    lines.extend(slots.map(|slot| format!("{:?}", state.cards().kinds_of_nodes().set_at(slot))));
    lines
}

#[test]
fn a_vote_on_a_stored_job_knows_nothing_of_another_record_of_its_name() {
    let mut world = World::new();
    let cpu = |amount: i64| Some(Amounts::from_iter([(ResourceId::CPU, amount)]));
    let queue = QueueRecord {
        name: "q".into(),
        capability: cpu(10_000),
        ..QueueRecord::default()
    };
    let stored = JobRecord {
        name: "j".into(),
        queue: "q".into(),
        min_resources: cpu(100_000),
        ..JobRecord::default()
    };
    let source = Arc::from("s");
    world.view.put_queue(queue, &source);
    world.view.put_job(stored.clone(), &source);
    let other = JobRecord {
        min_resources: cpu(1_000),
        ..stored.clone()
    };
    let view = &world.view;
    let mut state = CapacityState::of(view, Config::default(), Compatibility::Corrected);
    assert!(!state.vote_job(view, &stored).unwrap().permitted());
    let verdict = state.vote_job(view, &other).unwrap();
    assert!(verdict.permitted());
    state.reserve(view, &other, &verdict).unwrap();
    assert!(!state.vote_job(view, &stored).unwrap().permitted());
    assert_eq!(state.vote_job(view, &other).unwrap(), verdict);
}

/// One thing that befalls the permit of a job.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// It asks, as it is stored or, with a number, as one that needs so much cpu.
    Ask(usize, Option<i64>),
    Keep(usize),
    Leave(usize),
    End,
}

fn step() -> impl Strategy<Value = Step> {
    let other = prop::option::weighted(0.2, (0i64..3).prop_map(|cores| cores * 1000));
    prop_oneof![
        6 => (0usize..5, other).prop_map(|(job, other)| Step::Ask(job, other)),
        1 => (0usize..5).prop_map(Step::Keep),
        1 => (0usize..5).prop_map(Step::Leave),
        1 => Just(Step::End),
    ]
}

/// Jobs whose permits end with the next vote.
fn tentative(state: &CapacityState) -> BTreeSet<Arc<str>> {
    let flagged = state.jobs.iter().filter(|(_, entry)| entry.tentative);
    let flagged: BTreeSet<Arc<str>> = flagged.map(|(job, _)| Arc::clone(job)).collect();
    let noted: BTreeSet<Arc<str>> = state.tentative.iter().map(Arc::clone).collect();
    assert!(flagged.is_subset(&noted), "{flagged:?} of {noted:?}");
    flagged
}

proptest! {
    /// A permit in one go is a vote and a reservation, and a copy of the state knows nothing of it.
    #[test]
    fn permits_in_one_go_equal_those_in_two_steps(
        events in prop::collection::vec(event(), 10..50),
        steps in prop::collection::vec(step(), 1..20),
        hierarchy in any::<bool>(),
        upstream in any::<bool>(),
    ) {
        let config = Config { hierarchy, ..Config::default() };
        let compatibility = if upstream { Compatibility::Upstream } else { Compatibility::Corrected };
        let mut world = World::new();
        for event in events {
            world.put(event);
        }
        let view = &world.view;
        let mut at_once = CapacityState::of(view, config, compatibility);
        let (mut in_steps, opened) = (at_once.clone(), all(&at_once, view));
        let (kept, mut ends) = (at_once.clone(), BTreeSet::new());
        for step in steps {
            match step {
                Step::Ask(job, other) => {
                    let Some(stored) = view.jobs().get(&format!("j{job}")) else { continue };
                    let mut record = stored.record.clone();
                    if let Some(cpu) = other {
                        record.min_resources = Some(Amounts::from_iter([(ResourceId::CPU, cpu)]));
                    }
                    let admitted = in_steps.jobs.get(&record.name).is_some_and(|entry| entry.admitted);
                    let verdict = in_steps.vote_job(view, &record);
                    if let Some(verdict) = verdict.as_ref().ok().filter(|verdict| verdict.permitted()) {
                        in_steps.reserve(view, &record, verdict).unwrap();
                        if !admitted && !upstream {
                            ends.insert(Arc::clone(&record.name));
                        }
                    }
                    prop_assert_eq!(at_once.permit(view, &record), verdict);
                }
                Step::Keep(job) => {
                    let job: Arc<str> = format!("j{job}").into();
                    for state in [&mut at_once, &mut in_steps] {
                        state.keep(&job);
                    }
                    ends.remove(&job);
                }
                Step::Leave(job) => {
                    let job = format!("j{job}").into();
                    for state in [&mut at_once, &mut in_steps] {
                        state.leave(&job);
                    }
                }
                Step::End => {
                    at_once.end_tentative();
                    for job in std::mem::take(&mut ends) {
                        in_steps.leave(&job);
                    }
                    in_steps.end_tentative();
                }
            }
            prop_assert_eq!(all(&at_once, view), all(&in_steps, view));
            prop_assert_eq!(tentative(&at_once), ends.clone());
        }
        prop_assert_eq!(all(&kept, view), opened);
    }
}

/// Every task that waits is put on some node, and now and then told twice.
fn follow_both(view: &View, state: &CapacityState) -> [Vec<String>; 2] {
    let tasks = view.tasks().iter().map(|(_, task)| &task.record);
    let waiting: Vec<&TaskRecord> = tasks.filter(|task| task.status == TaskStatus::Pending).collect();
    let put = |(at, task): (usize, &&TaskRecord)| TaskRecord {
        node: format!("n{}", at * 7 % 6).into(),
        status: TaskStatus::Allocated,
        ..TaskRecord::clone(task)
    };
    let put: Vec<TaskRecord> = waiting.iter().enumerate().map(put).collect();
    let mut movements = Vec::new();
    for (at, (before, after)) in waiting.iter().zip(&put).enumerate() {
        let card = ["", "A", "B", "C"][at % 4];
        let moved = TaskMove { before, after, card };
        let movement = if at % 3 == 0 {
            Movement::Pipeline(moved)
        } else {
            Movement::Allocate(moved)
        };
        movements.extend(std::iter::repeat_n(movement, 1 + usize::from(at % 5 == 2)));
    }
    let [mut together, mut alone] = [state.clone(), state.clone()];
    together.follow_all(view, &movements).unwrap();
    for movement in &movements {
        Derived::follow(&mut alone, view, movement).unwrap();
    }
    [together, alone].map(|state| {
        let mut lines = all(&state, view);
        lines.extend(state.held.iter().map(|(task, held)| format!("{task} {held:?}")));
        lines
    })
}

proptest! {
    #[test]
    fn tasks_that_are_told_of_together_count_as_one_after_the_other(
        events in prop::collection::vec(event(), 1..60),
        hierarchy in any::<bool>(),
        unlimited in any::<bool>(),
        upstream in any::<bool>(),
    ) {
        let config = Config { unlimited, hierarchy, ..Config::default() };
        let compatibility = if upstream { Compatibility::Upstream } else { Compatibility::Corrected };
        let mut world = World::new();
        for event in events {
            world.put(event);
            if matches!(event, Event::Look) {
                let state = CapacityState::of(&world.view, config, compatibility);
                let [together, alone] = follow_both(&world.view, &state);
                prop_assert_eq!(together, alone);
            }
        }
    }

    #[test]
    fn carried_state_equals_one_worked_out_anew(
        events in prop::collection::vec(event(), 1..60),
        hierarchy in any::<bool>(),
        upstream in any::<bool>(),
    ) {
        let config = Config { hierarchy, ..Config::default() };
        let compatibility = if upstream { Compatibility::Upstream } else { Compatibility::Corrected };
        let mut world = World::new();
        let mut old = world.view.clone();
        let mut kept = CapacityState::of(&old, config, compatibility);
        for event in events {
            world.put(event);
            if matches!(event, Event::Look) {
                let view = world.view.clone();
                kept = kept.carried(&Changes { old: &old, new: &view }).unwrap();
                let anew = CapacityState::of(&view, config, compatibility);
                prop_assert_eq!(all(&kept, &view), all(&anew, &view));
                old = view;
            }
        }
    }
}
