//! Limits of queues on groups of nodes: what queues hold after events and steps, and what the plugin says about it.

use std::sync::Arc;

use proptest::prelude::*;

use super::group_limits::LIMITS;
use super::record_rules::LimitRules;
use super::state::NodeGroupState;
use super::{GROUP_LABEL, NAME};
use crate::cycle::{SchedulingCycle, SessionChange, TaskPlacement};
use crate::decide::tests::fixtures;
use crate::decide::{self, Parallelism, PlaceGroup, PlaceQuery};
use crate::model::{
    ClusterState, JobRecord, NodeRecord, NodeSlot, QueueRecord, ResourceAmounts, ResourceId, SortedTable, StateDiff,
    TaskFields, TaskRecord, TaskStatus, TextMap,
};
use crate::plugin::{PluginContext, RecordRules};
use crate::plugin_state::{PluginState, PluginStateChange};
use crate::policy::{Compatibility, PluginSwitches, Release};

const STATUSES: [TaskStatus; 6] = [
    TaskStatus::Pending,
    TaskStatus::Running,
    TaskStatus::Pipelined,
    TaskStatus::Allocated,
    TaskStatus::Releasing,
    TaskStatus::Succeeded,
];
const QUEUES: [&str; 3] = ["limited", "free", "also"];
const NODES: u32 = 5;

fn texts(name: &str, text: &str) -> TextMap {
    vec![(Arc::from(name), Arc::from(text))].into()
}

fn source() -> Arc<str> {
    "test".into()
}

fn node_name(number: u32) -> Arc<str> {
    format!("n{number}").into()
}

/// Node of the group of a variant; the third of them has none.
fn put_node(state: &mut ClusterState, number: u32, variant: u32) {
    let labels = match variant % 3 {
        0 => texts(GROUP_LABEL, "a"),
        1 => texts(GROUP_LABEL, "b"),
        _ => TextMap::default(),
    };
    let node = NodeRecord {
        name: node_name(number),
        labels,
        allocatable: ResourceAmounts::from_iter([(ResourceId::CPU, 64_000), (ResourceId::PODS, 110)]),
        ..NodeRecord::default()
    };
    state.put_node(Arc::new(node), &source());
}

fn put_queue(state: &mut ClusterState, name: &str, limits: &str) {
    let queue = QueueRecord {
        name: name.into(),
        annotations: texts(LIMITS, limits),
        ..QueueRecord::default()
    };
    state.put_queue(queue, &source());
}

fn put_job(state: &mut ClusterState, number: u32, queue: &str) {
    let job = JobRecord {
        name: format!("ns/j{number}").into(),
        queue: queue.into(),
        ..JobRecord::default()
    };
    state.put_job(job, &source());
}

fn task(number: u32, job: u32, node: u32, status: TaskStatus) -> TaskRecord {
    let fields = TaskFields {
        name: format!("ns/t{number}").into(),
        job: format!("ns/j{job}").into(),
        node: if status == TaskStatus::Pending {
            Arc::default()
        } else {
            node_name(node)
        },
        status,
        requests: ResourceAmounts::from_iter([(ResourceId::CPU, 500 + i64::from(number) * 100), (ResourceId::PODS, 1)]),
        ..TaskFields::default()
    };
    fields.into()
}

/// Nodes in two groups, two queues with limits and one without, and one job in each.
fn cluster() -> ClusterState {
    let mut index: SortedTable<NodeSlot> = SortedTable::default();
    for number in 0..NODES {
        index.insert(node_name(number), number);
    }
    let mut state = ClusterState::new(Arc::new(index), 1);
    for number in 0..NODES - 1 {
        put_node(&mut state, number, number);
    }
    put_queue(&mut state, "limited", r#"{"a": {"cpu": "4"}, "b": {"cpu": "2"}}"#);
    put_queue(&mut state, "free", "");
    put_queue(&mut state, "also", r#"{"b": {"cpu": "8"}}"#);
    for (number, queue) in (0..).zip(QUEUES) {
        put_job(&mut state, number, queue);
    }
    state.refresh_ranks();
    state
}

fn built(state: &ClusterState, compatibility: Compatibility) -> NodeGroupState {
    NodeGroupState::of(state, &PluginSwitches::default(), compatibility)
}

/// Follows a step. Returns false if the plugin state must be built again.
fn follow(own: &mut NodeGroupState, old: &ClusterState, new: &ClusterState) -> bool {
    own.apply(&PluginStateChange::Step(StateDiff { old, new })).is_ok()
}

/// Random change of a cluster.
fn change(state: &mut ClusterState, (kind, number, variant): (u32, u32, u32)) {
    let status = STATUSES[variant as usize % STATUSES.len()];
    match kind % 16 {
        0 => put_node(state, number % NODES, variant),
        1 => {
            state.remove_node(&node_name(number % NODES));
        }
        2 => put_job(state, number % 5, QUEUES[variant as usize % 3]),
        3 => {
            state.remove_job(&format!("ns/j{}", number % 5));
        }
        4 => put_queue(
            state,
            QUEUES[number as usize % 3],
            ["", "{", r#"{"a": {"cpu": "1"}}"#][variant as usize % 3],
        ),
        5 | 6 => {
            state.remove_task(&format!("ns/t{}", number % 12));
        }
        _ => state.put_task(task(number % 12, variant % 5, variant / 7 % NODES, status), &source()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn steps_equal_a_rebuild(
        steps in prop::collection::vec(prop::collection::vec(any::<(u32, u32, u32)>(), 1..4), 1..40),
        upstream in any::<bool>(),
    ) {
        let compatibility = if upstream { Compatibility::UPSTREAM } else { Compatibility::Corrected };
        let mut state = cluster();
        let mut own = built(&state, compatibility);
        for changes in steps {
            let old = state.clone();
            for own in changes {
                change(&mut state, own);
            }
            state.refresh_ranks();
            let rebuilt = built(&state, compatibility);
            if !follow(&mut own, &old, &state) {
                own = rebuilt.clone();
            }
            prop_assert_eq!(&own, &rebuilt);
        }
    }

    #[test]
    fn events_equal_a_rebuild_under_corrected(
        before in prop::collection::vec(any::<(u32, u32, u32)>(), 0..30),
        changes in prop::collection::vec((0_u32..12, 0_u32..NODES, 0_u8..6), 1..60),
    ) {
        let mut state = cluster();
        before.into_iter().filter(|(kind, ..)| kind % 16 > 4).for_each(|own| change(&mut state, own));
        let policy = fixtures::policy("{name: nodegroup}", Compatibility::Corrected).policy;
        let states = policy.compute_plugin_states(&state);
        let mut cycle = SchedulingCycle::new(state, policy.node_change_rules(), states);
        for (number, node, kind) in changes {
            let task: Arc<str> = format!("ns/t{number}").into();
            let to = TaskPlacement { task: Arc::clone(&task), node: node_name(node), card: Arc::default(), devices: 0 };
            let change = match kind {
                0 => SessionChange::Allocate(to),
                1 => SessionChange::Pipeline(to),
                2 => SessionChange::Evict(task),
                3 => SessionChange::Unevict(task),
                4 => SessionChange::Unpipeline(task),
                _ => SessionChange::Unallocate(task),
            };
            cycle.apply(&[change]).unwrap();
            let own: Option<&NodeGroupState> = cycle.plugin_states().get(NAME);
            prop_assert_eq!(own, Some(&built(cycle.cluster_state(), Compatibility::Corrected)));
        }
    }
}

#[test]
fn a_pipelined_task_holds_as_its_event_says() {
    let mut state = cluster();
    state.put_task(task(0, 0, 0, TaskStatus::Pipelined), &source());
    let held = |compatibility| {
        let own = built(&state, compatibility);
        own.queue("limited").unwrap().held("a").unwrap().get(ResourceId::CPU)
    };
    assert_eq!(held(Compatibility::Corrected), Some(500));
    assert_eq!(held(Compatibility::UPSTREAM), None);
}

#[test]
fn usual_steps_are_followed() {
    let mut old = cluster();
    old.put_task(task(0, 0, 0, TaskStatus::Running), &source());
    let follows = |of: &dyn Fn(&mut ClusterState)| {
        let (mut new, mut own) = (old.clone(), built(&old, Compatibility::Corrected));
        of(&mut new);
        let follows = follow(&mut own, &old, &new);
        assert!(!follows || own == built(&new, Compatibility::Corrected));
        follows
    };
    assert!(follows(
        &|state| state.put_task(task(1, 0, 1, TaskStatus::Running), &source())
    ));
    assert!(follows(&|state| {
        state.remove_task("ns/t0");
    }));
    assert!(follows(&|state| {
        put_job(state, 4, "limited");
        state.put_task(task(1, 4, 1, TaskStatus::Running), &source());
    }));
    assert!(follows(&|state| put_node(state, NODES - 1, 0)));
    assert!(follows(&|state| put_node(state, 1, 0)), "no task is there");
    assert!(
        !follows(&|state| put_node(state, 0, 1)),
        "the group of a node with a task"
    );
    assert!(
        !follows(&|state| put_job(state, 0, "free")),
        "the queue of a job with a task"
    );
    assert!(!follows(&|state| put_queue(state, "free", "{}")), "limits");
}

#[test]
fn a_release_that_reads_no_limits_follows_each_step() {
    let compatibility = Compatibility::Upstream(Release::Volcano1151);
    let old = cluster();
    let (mut new, mut own) = (old.clone(), built(&old, compatibility));
    put_queue(&mut new, "free", r#"{"a": {"cpu": "1"}}"#);
    assert!(follow(&mut own, &old, &new));
    assert_eq!(own, built(&new, compatibility));
}

#[test]
fn place_judges_all_nodes_after_each_task_only_for_a_queue_with_limits() {
    let mut state = cluster();
    let arguments = "{name: nodegroup, arguments: {strict: false}}, {name: binpack}";
    let policy = fixtures::policy(arguments, Compatibility::Corrected).policy;
    for number in 0..NODES - 1 {
        put_node(&mut state, number, 2);
    }
    let states = policy.compute_plugin_states(&state);
    let placed = |job| {
        let group = PlaceGroup {
            task: Arc::new(task(0, job, 0, TaskStatus::Pending)),
            count: 3,
            names: Vec::new(),
            warnings: Vec::new(),
            unevaluated: Vec::new(),
        };
        let query = PlaceQuery {
            now: None,
            job: None,
            groups: vec![Ok(group)],
            resources: Arc::clone(state.resources()),
            min_available: Some(1),
            candidates: None,
            exclusions: Vec::new(),
            idle_only: true,
            samples: 0,
            max_pairs: 3,
        };
        let group = decide::place(&state, &policy, &states, &query)
            .unwrap()
            .groups
            .remove(0);
        group
            .map(|group| group.allocated)
            .map_err(|problem| problem.code.name())
    };
    assert_eq!(placed(1), Ok(vec![0, 0, 0]));
    assert_eq!(placed(0), Err("LIMIT_EXCEEDED"), "12 pairs");
}

#[test]
fn a_group_gives_back_no_more_than_it_holds() {
    let mut state = cluster();
    // Under `upstream` a task that is pipelined when the session opens is not counted.
    state.put_task(task(5, 0, 0, TaskStatus::Pipelined), &source());
    let policy = fixtures::policy("{name: nodegroup}", Compatibility::UPSTREAM).policy;
    for holder in [None, Some(1), Some(9)] {
        let mut state = state.clone();
        if let Some(number) = holder {
            state.put_task(task(number, 0, 0, TaskStatus::Running), &source());
        }
        let states = policy.compute_plugin_states(&state);
        let before: NodeGroupState = NodeGroupState::clone(states.get(NAME).unwrap());
        let mut cycle = SchedulingCycle::new(state, policy.node_change_rules(), states);
        cycle.apply(&[SessionChange::Unpipeline("ns/t5".into())]).unwrap();
        let own: &NodeGroupState = cycle.plugin_states().get(NAME).unwrap();
        // What others hold covers the task: the reference takes it from them.
        assert_eq!(*own == before, holder != Some(9), "{holder:?}");
    }
}

#[test]
fn limits_that_cannot_be_read_are_named_where_they_reject_and_where_they_come_in() {
    const ERROR: &str = "`cpu` of group `a`: ";
    let mut state = cluster();
    put_queue(&mut state, "limited", r#"{"a": {"cpu": "four"}}"#);
    let message = |compatibility| {
        let policy = fixtures::policy("{name: nodegroup}", compatibility).policy;
        let states = policy.compute_plugin_states(&state);
        let context = PluginContext {
            cluster_state: &state,
            plugin_states: &states,
            now: None,
            after_release: false,
        };
        let query = fixtures::node_query(state.resources(), vec![task(0, 0, 0, TaskStatus::Pending)]);
        let found = decide::filter_with(context, &policy, &query, Parallelism::SEQUENTIAL);
        let verdict = found.unwrap().unwrap().remove(0).unwrap().result;
        assert_eq!(verdict.rejections.len(), 1);
        assert_eq!(verdict.rejections[0].reason.code, "NodeGroupLimitsInvalid");
        verdict.rejections[0].reason.message.clone()
    };
    assert_eq!(
        message(Compatibility::UPSTREAM),
        "node group resource limit annotation invalid"
    );
    let shown = message(Compatibility::Corrected);
    assert!(
        shown.starts_with(&format!("node group resource limit annotation invalid: {ERROR}")),
        "{shown}"
    );
    let queue = |name: &str| state.queues().get(name).unwrap().record.clone();
    let problem = LimitRules.queue_problem(&queue("limited")).unwrap();
    assert_eq!(problem.field, format!("queues[limited].annotations[{LIMITS}]"));
    assert!(problem.message.contains(ERROR), "{problem:?}");
    assert_eq!(LimitRules.queue_problem(&queue("also")), None);
    let warnings = LimitRules.warnings(&state);
    assert_eq!(warnings.len(), 1);
    assert_eq!(&*warnings[0].record.1, "limited");
}
