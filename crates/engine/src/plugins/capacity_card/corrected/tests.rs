//! State that is carried from cluster state to cluster state equals one computed again in full, whatever happens in
//! whatever order.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;

use super::CapacityState;
use crate::cards::CARD_NAME_ANNOTATION;
use crate::model::{
    ClusterState, JobPhase, JobRecord, NodeRecord, NodeSlot, QueueRecord, Reservation, ResourceAmounts, ResourceId,
    ResourceTable, SortedTable, StateDiff, TaskFields, TaskRecord, TaskStatus, TextMap,
};
use crate::plugin_state::{PlacementEvent, PluginState, PluginStateChange, TaskTransition};
use crate::plugins::capacity_card::annotations::{QUOTA, REQUEST};
use crate::plugins::capacity_card::{
    CapacityConfig, CardAccounts, CardVotes as _, QuotaVerdict, UpstreamCapacityState,
};

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

/// Event that may happen: which record, and three numbers that say how it is.
#[derive(Clone, Copy, Debug)]
enum RecordEvent {
    Node(u32, bool, [usize; 2]),
    Queue(usize, bool, [usize; 2]),
    Job(usize, bool, [usize; 3]),
    Task(usize, bool, [usize; 4]),
    Reservation(usize, bool, usize),
    Check,
}

fn record_event() -> impl Strategy<Value = RecordEvent> {
    let n = || 0usize..6;
    prop_oneof![
        2 => (0..NODES, prop::bool::weighted(0.8), [n(), n()]).prop_map(|(at, put, how)| RecordEvent::Node(at, put, how)),
        2 => (0usize..4, prop::bool::weighted(0.8), [n(), n()]).prop_map(|(at, put, how)| RecordEvent::Queue(at, put, how)),
        3 => (0usize..5, prop::bool::weighted(0.8), [n(), n(), n()]).prop_map(|(at, put, how)| RecordEvent::Job(at, put, how)),
        8 => (0usize..12, prop::bool::weighted(0.8), [n(), n(), n(), n()])
            .prop_map(|(at, put, how)| RecordEvent::Task(at, put, how)),
        1 => (0usize..5, any::<bool>(), n()).prop_map(|(at, put, how)| RecordEvent::Reservation(at, put, how)),
        6 => Just(RecordEvent::Check),
    ]
}

fn texts(entries: &[(&str, &str)]) -> TextMap {
    let given = entries.iter().filter(|(_, text)| !text.is_empty());
    let mut texts: Vec<(Arc<str>, Arc<str>)> = given.map(|(name, text)| (Arc::from(*name), Arc::from(*text))).collect();
    texts.sort();
    texts.into()
}

struct FakeCluster {
    cluster_state: ClusterState,
    gpu: ResourceId,
    npu: ResourceId,
}

impl FakeCluster {
    fn new() -> Self {
        let mut resources = ResourceTable::default();
        let gpu = resources.intern("nvidia.com/gpu", 9).unwrap();
        let npu = resources.intern("huawei.com/npu", 9).unwrap();
        let mut index: SortedTable<NodeSlot> = SortedTable::default();
        for slot in 0..NODES {
            // Slots of several chunks.
            index.insert(format!("n{slot}").into(), slot * 100);
        }
        let mut cluster_state = ClusterState::new(Arc::new(index), 1);
        cluster_state.set_resources(Arc::new(resources));
        Self {
            cluster_state,
            gpu,
            npu,
        }
    }

    #[expect(clippy::too_many_lines, reason = "one arm per kind of record")]
    fn apply_event(&mut self, event: RecordEvent) {
        let source = Arc::from("s");
        match event {
            RecordEvent::Check => {}
            RecordEvent::Node(at, put, [product, count]) => {
                let name: Arc<str> = format!("n{at}").into();
                if !put {
                    self.cluster_state.remove_node(&name);
                    return;
                }
                let (label, id) = if product % 2 == 0 {
                    ("nvidia.com/gpu.product", self.gpu)
                } else {
                    ("huawei.com/npu.product", self.npu)
                };
                let count = i64::try_from(count).unwrap();
                self.cluster_state.put_node(
                    Arc::new(NodeRecord {
                        name,
                        labels: texts(&[(label, ["A", "B", "C", "A", "B", ""][product])]),
                        allocatable: ResourceAmounts::from_iter([(ResourceId::CPU, 1000 * count), (id, 1000 * count)]),
                        ..NodeRecord::default()
                    }),
                    &source,
                );
            }
            RecordEvent::Queue(at, put, [quota, parent]) => {
                let name: Arc<str> = format!("q{at}").into();
                if !put {
                    self.cluster_state.remove_queue(&name);
                    return;
                }
                let capability = (parent % 2 == 0).then(|| ResourceAmounts::from_iter([(ResourceId::CPU, 4000)]));
                let record = QueueRecord {
                    name,
                    annotations: texts(&[(QUOTA, QUOTAS[quota % 5])]),
                    parent: ["", "q0", "q1", "q2", "gone", "root"][parent].into(),
                    capability,
                    guarantee: (quota % 3 == 0).then(|| ResourceAmounts::from_iter([(ResourceId::CPU, 1000)])),
                    ..QueueRecord::default()
                };
                self.cluster_state.put_queue(record, &source);
            }
            RecordEvent::Job(at, put, [queue, phase, request]) => {
                let name: Arc<str> = format!("j{at}").into();
                if !put {
                    self.cluster_state.remove_job(&name);
                    return;
                }
                let record = JobRecord {
                    name,
                    queue: format!("q{queue}").into(),
                    phase: PHASES[phase % 4],
                    min_member: i32::try_from(request % 3).unwrap(),
                    annotations: texts(&[(REQUEST, QUOTAS[request % 5])]),
                    min_resources: (phase % 2 == 0).then(|| ResourceAmounts::from_iter([(ResourceId::CPU, 1000)])),
                    ..JobRecord::default()
                };
                self.cluster_state.put_job(record, &source);
            }
            RecordEvent::Task(at, put, how) => self.put_task(at, put, how),
            RecordEvent::Reservation(at, put, how) => {
                let job: Arc<str> = format!("j{at}").into();
                if put {
                    let amounts = [("cpu", 1000), ("memory", 5), (["A", "B", "A|B"][how % 3], 2000)];
                    self.cluster_state.put_reservation(Arc::new(Reservation {
                        job,
                        queue: format!("q{how}").into(),
                        amounts: amounts
                            .iter()
                            .map(|(name, amount)| (Arc::from(*name), *amount))
                            .collect(),
                        ..Reservation::default()
                    }));
                } else {
                    self.cluster_state.remove_reservation(&job);
                }
            }
        }
    }

    fn put_task(&mut self, at: usize, put: bool, [job, status, node, name]: [usize; 4]) {
        let own: Arc<str> = format!("t{at}").into();
        if !put {
            self.cluster_state.remove_task(&own);
            return;
        }
        let status = STATUSES[status];
        let on = if status == TaskStatus::Pending {
            String::new()
        } else {
            format!("n{node}")
        };
        let requests = ResourceAmounts::from_iter([
            (ResourceId::CPU, 500),
            (if name % 2 == 0 { self.gpu } else { self.npu }, 1000),
        ]);
        self.cluster_state.put_task(
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
                annotations: texts(&[(CARD_NAME_ANNOTATION, NAMES[name % 5])]),
                requests,
                ..TaskFields::default()
            }),
            &Arc::from("s"),
        );
    }
}

/// Cards, limits and accounts, in words.
fn describe_shared(state: &CardAccounts, cluster_state: &ClusterState) -> Vec<String> {
    let mut lines = vec![format!("{:?} {:?}", state.total_guaranteed(), state.cards().total())];
    lines.extend(state.accounts().map(|(name, account)| format!("{name} {account:?}")));
    let tasks = state.tasks_by_job.iter();
    lines.extend(tasks.map(|(name, tasks)| format!("{name} {tasks:?}")));
    lines.extend(state.cards().nodes().map(|(name, cards)| format!("{name} {cards:?}")));
    let cards = state.cards().nodes().flat_map(|(_, node)| node.cards.keys());
    lines.extend(cards.map(|card| format!("{card} {:?}", state.cards().resource(card))));
    let resources = (0..cluster_state.resources().len()).map(|id| ResourceId(u16::try_from(id).unwrap()));
    lines.extend(resources.map(|id| format!("{id:?} {:?}", state.cards().cards_of_resource(id))));
    let slots = 0..NODES * 100;
    lines.extend(slots.map(|slot| format!("{:?}", state.cards().node_kinds().set_at(slot))));
    lines
}

/// Everything that the state holds, in words.
fn describe_state(state: &CapacityState, cluster_state: &ClusterState) -> Vec<String> {
    let mut lines = describe_shared(state, cluster_state);
    lines.extend(state.jobs.iter().map(|(name, entry)| format!("{name} {entry:?}")));
    let rows = state.detached_reservations.iter();
    lines.extend(rows.map(|(name, entry)| format!("row {name} {entry:?}")));
    lines
}

#[test]
fn vote_on_a_stored_job_ignores_other_records_of_its_name() {
    let mut snapshot = FakeCluster::new();
    let cpu = |amount: i64| Some(ResourceAmounts::from_iter([(ResourceId::CPU, amount)]));
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
    snapshot.cluster_state.put_queue(queue, &source);
    snapshot.cluster_state.put_job(stored.clone(), &source);
    let other = JobRecord {
        min_resources: cpu(1_000),
        ..stored.clone()
    };
    let cluster_state = &snapshot.cluster_state;
    let mut state = CapacityState::of(cluster_state, CapacityConfig::default());
    assert!(!state.vote_job(cluster_state, &stored).unwrap().is_permitted());
    let verdict = state.permit(cluster_state, &other).unwrap();
    assert!(verdict.is_permitted());
    assert!(!state.vote_job(cluster_state, &stored).unwrap().is_permitted());
    assert_eq!(state.vote_job(cluster_state, &other).unwrap(), verdict);
}

/// One thing that befalls the permit of a job.
#[derive(Clone, Copy, Debug)]
enum PermitStep {
    /// The job asks, as it is stored or, with a number, as one that needs that amount of cpu.
    Vote(usize, Option<i64>),
    Confirm(usize),
    Revoke(usize),
    EndTentative,
}

fn permit_step() -> impl Strategy<Value = PermitStep> {
    let other = prop::option::weighted(0.2, (0i64..3).prop_map(|cores| cores * 1000));
    prop_oneof![
        6 => (0usize..5, other).prop_map(|(job, other)| PermitStep::Vote(job, other)),
        1 => (0usize..5).prop_map(PermitStep::Confirm),
        1 => (0usize..5).prop_map(PermitStep::Revoke),
        1 => Just(PermitStep::EndTentative),
    ]
}

/// Jobs whose permits end with the next vote.
fn tentative_jobs(state: &CapacityState) -> BTreeSet<Arc<str>> {
    let flagged = state.jobs.iter().filter(|(_, entry)| entry.tentative);
    let flagged: BTreeSet<Arc<str>> = flagged.map(|(job, _)| Arc::clone(job)).collect();
    let noted: BTreeSet<Arc<str>> = state.tentative_jobs.iter().map(Arc::clone).collect();
    assert!(flagged.is_subset(&noted), "{flagged:?} of {noted:?}");
    flagged
}

fn admitted_jobs(state: &CapacityState) -> BTreeSet<Arc<str>> {
    let admitted = state.jobs.iter().filter(|(_, entry)| entry.admitted);
    admitted.map(|(job, _)| Arc::clone(job)).collect()
}

proptest! {
    /// A permit answers as a vote and leaves accounts that equal the sums over all jobs; a copy of the state knows nothing of
    /// it.
    #[test]
    fn permits_keep_accounts_equal_to_sums(
        events in prop::collection::vec(record_event(), 10..50),
        steps in prop::collection::vec(permit_step(), 1..20),
        hierarchy in any::<bool>(),
        mixed in any::<bool>(),
    ) {
        let config = CapacityConfig { hierarchy, mixed_cards: mixed, ..CapacityConfig::default() };
        let mut snapshot = FakeCluster::new();
        for event in events {
            snapshot.apply_event(event);
        }
        let cluster_state = &snapshot.cluster_state;
        let mut state = CapacityState::of(cluster_state, config);
        let (carried, opened) = (state.clone(), describe_state(&state, cluster_state));
        let mut ends = BTreeSet::new();
        for step in steps {
            match step {
                PermitStep::Vote(job, other) => {
                    let Some(stored) = cluster_state.jobs().get(&format!("j{job}")) else { continue };
                    let mut record = stored.record.clone();
                    if let Some(cpu) = other {
                        record.min_resources = Some(ResourceAmounts::from_iter([(ResourceId::CPU, cpu)]));
                    }
                    let admitted = state.jobs.get(&record.name).is_some_and(|entry| entry.admitted);
                    let verdict = state.vote_job(cluster_state, &record);
                    if verdict.as_ref().is_ok_and(QuotaVerdict::is_permitted) && !admitted {
                        ends.insert(Arc::clone(&record.name));
                    }
                    prop_assert_eq!(state.permit(cluster_state, &record), verdict.clone());
                    if let Some(verdict) = verdict.ok().filter(QuotaVerdict::is_permitted) {
                        let entry = state.jobs.get(&record.name).unwrap();
                        let chooses = entry.minimum.min.choices().next().is_some();
                        let stored = (entry.admitted, entry.chosen.clone());
                        prop_assert_eq!(stored, (true, chooses.then_some(verdict.min_amounts)));
                        let amounts = verdict.amounts.unwrap_or_else(|| Arc::clone(&entry.amounts));
                        prop_assert_eq!(&entry.amounts, &amounts);
                    }
                }
                PermitStep::Confirm(job) => {
                    let job = format!("j{job}");
                    state.confirm_permit(cluster_state, &job);
                    ends.remove(&*job);
                }
                PermitStep::Revoke(job) => {
                    state.revoke_admission(&format!("j{job}"));
                }
                PermitStep::EndTentative => {
                    let remaining: BTreeSet<Arc<str>> = admitted_jobs(&state).difference(&ends).cloned().collect();
                    state.end_tentative();
                    prop_assert_eq!(admitted_jobs(&state), remaining);
                    let chosen = |job: &Arc<str>| state.jobs.get(job).is_some_and(|entry| entry.chosen.is_some());
                    prop_assert!(!std::mem::take(&mut ends).iter().any(chosen));
                }
            }
            let mut summed = state.clone();
            summed.sum_accounts(cluster_state);
            prop_assert_eq!(describe_state(&state, cluster_state), describe_state(&summed, cluster_state));
            prop_assert_eq!(tentative_jobs(&state), ends.clone());
        }
        prop_assert_eq!(describe_state(&carried, cluster_state), opened);
    }
}

/// Every task that waits is put on some node, and now and then told twice: together, and one by one.
fn batched_and_single<S: PluginState + Clone>(cluster_state: &ClusterState, state: &S) -> [S; 2] {
    let tasks = cluster_state.tasks().iter().map(|(_, task)| &task.record);
    let waiting: Vec<&TaskRecord> = tasks.filter(|task| task.status == TaskStatus::Pending).collect();
    let put = |(at, task): (usize, &&TaskRecord)| TaskRecord {
        node: format!("n{}", at * 7 % 6).into(),
        status: TaskStatus::Allocated,
        ..TaskRecord::clone(task)
    };
    let put: Vec<TaskRecord> = waiting.iter().enumerate().map(put).collect();
    let mut events = Vec::new();
    for (at, (before, after)) in waiting.iter().zip(&put).enumerate() {
        let card = ["", "A", "B", "C"][at % 4];
        let moved = TaskTransition::new(before, after, card);
        let event = if at % 3 == 0 {
            PlacementEvent::Pipeline(moved)
        } else {
            PlacementEvent::Allocate(moved)
        };
        events.extend(std::iter::repeat_n(event, 1 + usize::from(at % 5 == 2)));
    }
    let [mut together, mut alone] = [state.clone(), state.clone()];
    together
        .apply(&PluginStateChange::Events(cluster_state, &events))
        .unwrap();
    for event in &events {
        alone
            .apply(&PluginStateChange::Events(cluster_state, &[*event]))
            .unwrap();
    }
    [together, alone]
}

proptest! {
    #[test]
    fn batch_of_events_equals_single_events(
        events in prop::collection::vec(record_event(), 1..60),
        hierarchy in any::<bool>(),
        unlimited in any::<bool>(),
        mixed in any::<bool>(),
    ) {
        let config = CapacityConfig { unlimited_cpu_memory: unlimited, hierarchy, mixed_cards: mixed, ..CapacityConfig::default() };
        let mut snapshot = FakeCluster::new();
        for event in events {
            snapshot.apply_event(event);
            if matches!(event, RecordEvent::Check) {
                let cluster_state = &snapshot.cluster_state;
                let described = batched_and_single(cluster_state, &CapacityState::of(cluster_state, config)).map(|state| {
                    let mut lines = describe_state(&state, cluster_state);
                    lines.extend(state.task_holdings.iter().map(|(task, held)| format!("{task} {held:?}")));
                    lines
                });
                prop_assert_eq!(&described[0], &described[1]);
                let reference = batched_and_single(cluster_state, &UpstreamCapacityState::of(cluster_state, config));
                let [together, alone] = reference.map(|state| describe_shared(&state, cluster_state));
                prop_assert_eq!(together, alone);
            }
        }
    }

    #[test]
    fn advanced_state_equals_a_rebuilt_one(
        events in prop::collection::vec(record_event(), 1..60),
        hierarchy in any::<bool>(),
        mixed in any::<bool>(),
    ) {
        let config = CapacityConfig { hierarchy, mixed_cards: mixed, ..CapacityConfig::default() };
        let mut snapshot = FakeCluster::new();
        let mut old = snapshot.cluster_state.clone();
        let (mut carried, mut reference) = (CapacityState::of(&old, config), UpstreamCapacityState::of(&old, config));
        for event in events {
            snapshot.apply_event(event);
            if matches!(event, RecordEvent::Check) {
                let cluster_state = snapshot.cluster_state.clone();
                let step = PluginStateChange::Step(StateDiff { old: &old, new: &cluster_state });
                carried.apply(&step).unwrap();
                let computed = CapacityState::of(&cluster_state, config);
                prop_assert_eq!(describe_state(&carried, &cluster_state), describe_state(&computed, &cluster_state));
                reference.apply(&step).unwrap();
                let computed = UpstreamCapacityState::of(&cluster_state, config);
                prop_assert_eq!(describe_shared(&reference, &cluster_state), describe_shared(&computed, &cluster_state));
                old = cluster_state;
            }
        }
    }
}
