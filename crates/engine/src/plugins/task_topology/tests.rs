//! Orders and scores with values of the reference's recorded decisions, and the state over random histories.

use super::super::queue_accounts::testing::cluster::{
    amounts, cluster_state, job, put_job, put_queue, put_task, queue, task,
};
use super::super::queue_accounts::testing::histories::assert_follows;
use super::*;
use crate::decide::{self, Parallelism, PlaceGroup, PlaceQuery, PluginStateOrigin};
use crate::model::{CHUNK_SIZE, GangMember, JobPhase, JobRecord, TaskStatus, TextMap};
use crate::plugin_state::{PlacementEvent, PluginStates, TaskTransition};
use crate::policy::{CompileOptions, Policy, compile as compile_policy};

fn policy(arguments: &str, compatibility: Compatibility) -> Arc<Policy> {
    let name = compatibility.name();
    let document = format!(
        "actions: allocate\ntiers:\n- plugins: [{{name: task-topology, arguments: {arguments}}}]\npumice: {{compatibility: {name}}}\n"
    );
    compile_policy(&document, &CompileOptions::default()).unwrap().policy
}

/// Task of one core: its role is its name without the last letter.
fn pod(name: &str, status: TaskStatus) -> TaskRecord {
    let mut own = task(&format!("ns/{name}"), "ns/j", &amounts(1000, 0, -1), status);
    own.gang = GangMember {
        role: name.split_at(name.len() - 1).0.into(),
        ..GangMember::default()
    }
    .into_field();
    own
}

/// State with two nodes of 8 cores and a job with these annotations and waiting tasks.
fn state(annotations: &[(&str, &str)], tasks: &[&str]) -> ClusterState {
    let mut state = cluster_state(&[(8000, 8000, -1), (8000, 8000, -1)]);
    let texts: TextMap = annotations
        .iter()
        .map(|(name, text)| (format!("volcano.sh/task-topology-{name}").into(), (*text).into()))
        .collect();
    put_queue(&mut state, queue("q", 1));
    put_job(
        &mut state,
        JobRecord {
            annotations: texts,
            ..job("ns/j", "q", None, JobPhase::Inqueue)
        },
    );
    for name in tasks {
        put_task(&mut state, pod(name, TaskStatus::Pending));
    }
    state
}

/// Keys of tasks, empty ones too.
fn keys(policy: &Policy, state: &ClusterState, states: &PluginStates, tasks: &[&str]) -> Vec<Vec<f64>> {
    let records: Vec<TaskRecord> = tasks
        .iter()
        .map(|name| state.tasks().get(&format!("ns/{name}")).unwrap().record.clone())
        .collect();
    let records: Vec<&TaskRecord> = records.iter().collect();
    let context = PluginContext::new(state, states, None);
    let plugin = policy.registered(NAME).unwrap().task_order.clone().unwrap();
    let keys = plugin.task_keys(context, &records).unwrap();
    keys.into_iter().map(Result::unwrap).collect()
}

/// Scores of the two nodes for a task.
fn scores(policy: &Policy, state: &ClusterState, states: &PluginStates, task: &str) -> [f64; 2] {
    let record = &state.tasks().get(&format!("ns/{task}")).unwrap().record;
    let class = TaskClass::of(record, state.resources()).charged(
        record,
        Arc::default(),
        Arc::default(),
        Arc::clone(&record.name),
    );
    let context = PluginContext::new(state, states, None);
    let plugin = policy.registered(NAME).unwrap().score.clone().unwrap();
    assert!(plugin.reads_task(state, record));
    let mut parts = [[0.0; CHUNK_SIZE]];
    if let Some(scorer) = plugin.prepare_scorer(context, &class).unwrap() {
        scorer.score(state.chunks().get(0).unwrap(), &mut parts);
    }
    [parts[0][0], parts[0][1]]
}

/// Places a waiting task on a node, and takes a placed one off again.
fn allocate(state: &ClusterState, states: &mut PluginStates, name: &str, node: &str) {
    let (before, mut after) = (pod(name, TaskStatus::Pending), pod(name, TaskStatus::Allocated));
    after.node = node.into();
    states
        .apply(
            state,
            &[PlacementEvent::Allocate(TaskTransition::new(&before, &after, ""))],
        )
        .unwrap();
}

fn unallocate(state: &ClusterState, states: &mut PluginStates, name: &str, node: &str) {
    let (mut before, after) = (pod(name, TaskStatus::Allocated), pod(name, TaskStatus::Pending));
    before.node = node.into();
    states
        .apply(
            state,
            &[PlacementEvent::Deallocate(TaskTransition::new(&before, &after, ""))],
        )
        .unwrap();
}

#[test]
fn roles_that_belong_together_share_buckets_and_those_apart_do_not() {
    let annotations = [("affinity", "ps,worker"), ("anti-affinity", "ps")];
    let state = state(&annotations, &["ps0", "ps1", "worker0", "worker1", "worker2", "other0"]);
    for compatibility in Compatibility::KINDS {
        let policy = policy("{}", compatibility);
        let states = policy.compute_plugin_states(&state);
        let keys = keys(
            &policy,
            &state,
            &states,
            &["ps0", "ps1", "worker0", "worker1", "worker2", "other0"],
        );
        // Both ps have a bucket of their own; workers go where less is requested, or to the first.
        let buckets: Vec<f64> = keys.iter().map(|key| key.get(2).copied().unwrap_or(-1.0)).collect();
        assert_eq!(buckets, [0.0, 1.0, 0.0, 1.0, 0.0, -1.0]);
        let waiting: Vec<f64> = keys.iter().map(|key| key.get(1).copied().unwrap_or(-1.0)).collect();
        assert_eq!(waiting, [-3.0, -2.0, -3.0, -2.0, -3.0, -1.0]);
        assert_eq!(keys[5], [1.0], "outside");
        assert_eq!(scores(&policy, &state, &states, "ps0"), [100.0, 100.0]);
        assert_eq!(scores(&policy, &state, &states, "ps1"), [200.0 / 3.0; 2]);
        assert_eq!(scores(&policy, &state, &states, "other0"), [0.0, 0.0]);
    }
}

#[test]
fn a_wrong_name_drops_the_whole_topology() {
    for text in ["ps,nobody", "ps,ps", "ps, worker"] {
        let state = state(&[("affinity", text)], &["ps0", "worker0"]);
        let policy = policy("{}", Compatibility::Corrected);
        let states = policy.compute_plugin_states(&state);
        assert_eq!(
            keys(&policy, &state, &states, &["ps0", "worker0"]),
            [Vec::<f64>::new(), Vec::new()],
            "{text}"
        );
    }
}

#[test]
fn an_order_of_roles_decides_inside_of_a_bucket() {
    let state = state(
        &[("affinity", "ps,worker"), ("task-order", "worker,ps")],
        &["ps0", "worker0"],
    );
    let policy = policy("{}", Compatibility::UPSTREAM);
    let states = policy.compute_plugin_states(&state);
    let keys = keys(&policy, &state, &states, &["ps0", "worker0"]);
    assert_eq!(keys, [[0.0, -2.0, 0.0, -1.0, -3.0], [0.0, -2.0, 0.0, -2.0, -3.0]]);
}

#[test]
fn nodes_with_tasks_of_the_bucket_come_first() {
    let state = state(&[("affinity", "ps,worker")], &["ps0", "worker0"]);
    for compatibility in Compatibility::KINDS {
        let policy = policy("{task-topology.weight: 2}", compatibility);
        let mut states = policy.compute_plugin_states(&state);
        allocate(&state, &mut states, "ps0", "n01");
        assert_eq!(scores(&policy, &state, &states, "worker0"), [100.0, 200.0]);
        unallocate(&state, &mut states, "ps0", "n01");
        // The reference forgets that the task waits again.
        let wanted = if compatibility.is_upstream() {
            [100.0, 200.0]
        } else {
            [200.0, 200.0]
        };
        assert_eq!(scores(&policy, &state, &states, "worker0"), wanted);
    }
}

#[test]
fn corrected_keeps_apart_from_tasks_that_ran_before() {
    let mut state = state(&[("anti-affinity", "ps")], &["ps0"]);
    put_task(&mut state, pod("ps9", TaskStatus::Running));
    for (compatibility, wanted) in [
        (Compatibility::UPSTREAM, [100.0, 100.0]),
        (Compatibility::Corrected, [0.0, 100.0]),
    ] {
        let policy = policy("{}", compatibility);
        let states = policy.compute_plugin_states(&state);
        assert_eq!(scores(&policy, &state, &states, "ps0"), wanted);
    }
}

#[test]
fn a_bucket_that_does_not_fit_counts_what_fits() {
    let mut state = state(&[("affinity", "w")], &["w0", "w1", "w2", "w3"]);
    let mut held = pod("x0", TaskStatus::Running);
    held.requests = amounts(6000, 0, -1);
    put_task(&mut state, held);
    for compatibility in Compatibility::KINDS {
        let policy = policy("{}", compatibility);
        let states = policy.compute_plugin_states(&state);
        assert_eq!(scores(&policy, &state, &states, "w0"), [50.0, 100.0]);
    }
}

#[test]
fn a_role_of_a_label_is_a_role_under_corrected() {
    let mut state = state(&[("affinity", "w")], &[]);
    for name in ["w0", "w1"] {
        let mut own = pod(name, TaskStatus::Pending);
        own.gang = GangMember {
            role: "w".into(),
            role_from_label: true,
            ..GangMember::default()
        }
        .into_field();
        put_task(&mut state, own);
    }
    for (compatibility, wanted) in [(Compatibility::UPSTREAM, 1), (Compatibility::Corrected, 5)] {
        let policy = policy("{}", compatibility);
        let states = policy.compute_plugin_states(&state);
        assert_eq!(keys(&policy, &state, &states, &["w0"])[0].len(), wanted);
    }
}

#[test]
fn place_scores_each_task_by_its_own_bucket() {
    let state = state(
        &[("affinity", "ps,worker"), ("anti-affinity", "ps")],
        &["ps0", "ps1", "worker0", "worker1"],
    );
    let policy = policy("{}", Compatibility::Corrected);
    let states = policy.compute_plugin_states(&state);
    let group = |names: [&str; 2]| {
        let names = names.map(|name| Arc::<str>::from(format!("ns/{name}")));
        Ok(PlaceGroup {
            task: Arc::new(state.tasks().get(&names[0]).unwrap().record.clone()),
            count: 2,
            names: names.to_vec(),
            warnings: Vec::new(),
            unevaluated: Vec::new(),
        })
    };
    let query = PlaceQuery {
        groups: vec![group(["ps0", "ps1"]), group(["worker0", "worker1"])],
        resources: Arc::clone(state.resources()),
        max_pairs: 1000,
        now: None,
        job: None,
        min_available: None,
        candidates: None,
        exclusions: Vec::new(),
        idle_only: false,
        samples: 0,
    };
    let origin = PluginStateOrigin::Computed(&states);
    let placed = decide::place_cancellable(&state, &policy, origin, &query, Parallelism::SEQUENTIAL);
    let groups = placed.unwrap().unwrap().groups;
    let nodes = |number: usize| groups[number].as_ref().unwrap().allocated.clone();
    let of_ps = nodes(0);
    assert_ne!(of_ps[0], of_ps[1], "{groups:?}");
    assert_eq!(nodes(1), of_ps, "each worker follows the ps of its bucket");
}

#[test]
fn a_state_that_followed_equals_a_rebuild() {
    assert_follows(TopologyJobs::of, |_, state, _| {
        let jobs: Vec<JobRecord> = state.jobs().iter().map(|(_, stored)| stored.record.clone()).collect();
        for mut record in jobs {
            record.annotations = [(affinities::AFFINITY.into(), "a;b".into())].into();
            put_job(state, record);
        }
        let tasks: Vec<TaskRecord> = state.tasks().iter().map(|(_, stored)| stored.record.clone()).collect();
        for (number, mut record) in tasks.into_iter().enumerate() {
            record.gang = GangMember {
                role: ["a", "b"][number % 2].into(),
                ..GangMember::default()
            }
            .into_field();
            put_task(state, record);
        }
    });
}
