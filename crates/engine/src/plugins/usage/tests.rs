//! Verdicts and scores, with values of the reference's recorded decisions, and the state over random histories.

use super::super::queue_accounts::testing::cluster::{amounts, cluster_state, put_task, task};
use super::super::queue_accounts::testing::histories::assert_follows;
use super::*;
use crate::model::{CHUNK_SIZE, GangMember, NodeLoad, TaskRecord, TaskStatus};
use crate::plugin_state::{PlacementEvent, PluginStateChange, PluginStates, TaskTransition};
use crate::policy::{CompileOptions, CompiledPolicy, compile as compile_policy};

/// Noon of the day on which the reference was recorded.
const NOON: i64 = 1_795_348_800;
/// GiB in bytes.
const GIB: i64 = 1 << 30;

fn compiled(arguments: &str, more: &str, compatibility: Compatibility) -> CompiledPolicy {
    let name = compatibility.name();
    let document = format!(
        "actions: allocate\ntiers:\n- plugins: [{{name: usage, arguments: {arguments}}}]\n{more}pumice: {{compatibility: {name}}}\n"
    );
    compile_policy(&document, &CompileOptions::default()).unwrap()
}

/// State with one node of 8 cores and 16 GiB, with this age and these percentages of load.
fn state(load: Option<(i64, f64, f64)>) -> ClusterState {
    let mut state = cluster_state(&[(8000, 16 * GIB, -1)]);
    let mut record = NodeRecord::clone(&state.node(0).unwrap().record);
    record.load = load.map(|(age, cpu_percent, memory_percent)| {
        Arc::new(NodeLoad {
            time: Some(NOON - age),
            cpu_percent,
            memory_percent,
            ..NodeLoad::default()
        })
    });
    state.put_node(Arc::new(record), &Arc::from("test"));
    state
}

/// Code of the rejection of the node (empty: it passes), and its score.
fn verdict_and_score(
    compiled: &CompiledPolicy,
    state: &ClusterState,
    states: &PluginStates,
    now: Option<i64>,
) -> (String, f64) {
    let class = TaskClass::of(
        &task("ns/p", "ns/j", &amounts(1000, 0, -1), TaskStatus::Pending),
        state.resources(),
    );
    let context = PluginContext::new(state, states, now.map(Into::into));
    let own = compiled.policy.registered(NAME).unwrap();
    let filter = own
        .filter
        .as_ref()
        .unwrap()
        .prepare_filter(context, &class)
        .unwrap()
        .unwrap();
    let mut rejections = ChunkRejections::default();
    let chunk = state.chunks().get(0).unwrap();
    let rejected = filter.filter(chunk, chunk.live(), &mut rejections);
    let code = rejections.drain().next().map(|(number, _)| filter.reason(number).code);
    assert_eq!(rejected.get(0), code.is_some());
    let scorer = own.score.as_ref().unwrap().prepare_scorer(context, &class).unwrap();
    let mut parts = [[0.0; CHUNK_SIZE]];
    if let Some(scorer) = scorer {
        scorer.score(chunk, &mut parts);
    }
    (code.unwrap_or_default().to_owned(), parts[0][0])
}

/// Answers without a session, at noon.
fn of(arguments: &str, state: &ClusterState, compatibility: Compatibility) -> (String, f64) {
    let compiled = compiled(arguments, "", compatibility);
    let states = compiled.policy.compute_plugin_states(state);
    verdict_and_score(&compiled, state, &states, Some(NOON))
}

#[test]
fn a_load_above_the_threshold_rejects_and_a_low_one_scores() {
    for compatibility in Compatibility::KINDS {
        let of = |arguments, load| of(arguments, &state(load), compatibility);
        assert_eq!(of("{}", Some((10, 50.0, 50.0))), (String::new(), 250.0));
        assert_eq!(of("{}", Some((10, 80.0, 80.0))).0, "");
        assert_eq!(of("{}", Some((10, 80.5, 90.0))).0, "NodeCpuLoad");
        assert_eq!(of("{}", Some((10, 80.0, 80.5))).0, "NodeMemoryLoad");
        assert_eq!(of("{thresholds: {cpu: 50}}", Some((10, 51.0, 0.0))).0, "NodeCpuLoad");
        assert_eq!(
            of("{cpu.weight: 3, usage.weight: 1}", Some((10, 50.0, 75.0))),
            (String::new(), 43.75)
        );
        assert_eq!(of("{}", Some((10, 150.0, 150.0))), ("NodeCpuLoad".to_owned(), 0.0));
        assert_eq!(of("{cpu.weight: 0, memory.weight: 0}", Some((10, 0.0, 0.0))).1, 0.0);
    }
}

#[test]
fn a_measurement_counts_for_five_minutes() {
    for compatibility in Compatibility::KINDS {
        let aged = |age| of("{}", &state(Some((age, 90.0, 0.0))), compatibility);
        assert_eq!([300, -1000].map(|age| aged(age).0), ["NodeCpuLoad", "NodeCpuLoad"]);
        assert_eq!(aged(301), (String::new(), 0.0));
        assert_eq!(of("{}", &state(None), compatibility), (String::new(), 0.0));
        let compiled = compiled("{}", "", compatibility);
        let state = state(Some((0, 90.0, 0.0)));
        let states = compiled.policy.compute_plugin_states(&state);
        assert_eq!(
            verdict_and_score(&compiled, &state, &states, None),
            (String::new(), 0.0)
        );
    }
}

/// Task of 2 cores on the node that started so long ago.
fn placed(name: &str, status: TaskStatus, age: Option<i64>) -> TaskRecord {
    let mut own = task(name, "ns/j", &amounts(2000, 0, -1), status);
    own.gang = GangMember {
        start_time: age.map(|age| NOON - age),
        ..GangMember::default()
    }
    .into_field();
    own
}

#[test]
fn tasks_that_are_not_measured_are_estimated_by_their_requests() {
    // Without estimates 500: 2 cores of 8 are 17.5 % at a ratio of 0.7, which is half of the score.
    let estimated = 500.0 - 17.5 * 2.5;
    for compatibility in Compatibility::KINDS {
        let is_corrected = compatibility == Compatibility::Corrected;
        for (status, age, counts) in [
            (TaskStatus::Bound, None, true),
            (TaskStatus::Allocated, None, true),
            (TaskStatus::Running, Some(29), true),
            (TaskStatus::Running, Some(30), false),
            (TaskStatus::Running, None, !is_corrected),
            (TaskStatus::Pipelined, None, is_corrected),
            (TaskStatus::Releasing, Some(5), false),
        ] {
            let mut state = state(Some((0, 0.0, 0.0)));
            put_task(&mut state, placed("ns/a", status, age));
            let score = of("{}", &state, compatibility).1;
            assert_eq!(score, if counts { estimated } else { 500.0 }, "{status:?} {age:?}");
        }
    }
}

#[test]
fn estimates_follow_limits_and_the_risk_of_the_node() {
    let with_limit = |arguments: &str, cpu_percent: f64, limit: i64| {
        let mut state = state(Some((0, cpu_percent, cpu_percent)));
        let mut own = placed("ns/a", TaskStatus::Bound, None);
        own.limits = Some(Box::new(amounts(limit, -1, -1)));
        put_task(&mut state, own);
        of(arguments, &state, Compatibility::UPSTREAM).1
    };
    let score = |cpu: f64, memory: f64| (2.0 - cpu - memory) * 250.0;
    let near = |own: f64, wanted: f64| assert!((own - wanted).abs() < 1e-9, "{own} {wanted}");
    near(with_limit("{}", 0.0, 4000), score(0.175, 0.0));
    near(
        with_limit("{estimator: {burst_ratio: 0.5}}", 0.0, 4000),
        score(0.3, 0.0),
    );
    near(
        with_limit(
            "{estimator: {request_ratio: 1, burst_ratio: 1, risk_threshold: 0}}",
            0.0,
            4000,
        ),
        score(0.5, 0.0),
    );
    near(with_limit("{}", 60.0, 1000), score(0.6 + 0.175 * 1.2, 0.6));
}

#[test]
fn events_of_a_session_add_and_take_back_estimates() {
    for compatibility in Compatibility::KINDS {
        let compiled = compiled("{}", "", compatibility);
        let mut state = state(Some((0, 0.0, 0.0)));
        put_task(&mut state, placed("ns/old", TaskStatus::Running, Some(1000)));
        let mut states = compiled.policy.compute_plugin_states(&state);
        let score = |states: &PluginStates| verdict_and_score(&compiled, &state, states, Some(NOON)).1;
        let waiting = task("ns/p", "ns/j", &amounts(2000, 0, -1), TaskStatus::Pending);
        let allocated = placed("ns/p", TaskStatus::Allocated, None);
        let there = TaskTransition::new(&waiting, &allocated, "");
        states.apply(&state, &[PlacementEvent::Allocate(there)]).unwrap();
        assert_eq!(score(&states), 456.25);
        let back = TaskTransition::new(&allocated, &waiting, "");
        states.apply(&state, &[PlacementEvent::Deallocate(back)]).unwrap();
        assert_eq!(score(&states), 500.0);
        let (running, evicted) = (
            placed("ns/old", TaskStatus::Running, Some(1000)),
            placed("ns/old", TaskStatus::Releasing, Some(1000)),
        );
        let eviction = TaskTransition::new(&running, &evicted, "");
        states.apply(&state, &[PlacementEvent::Deallocate(eviction)]).unwrap();
        assert_eq!(score(&states), 500.0);
        // The load of an old task is measured: its estimate would count twice.
        let undone = TaskTransition::new(&evicted, &running, "");
        states.apply(&state, &[PlacementEvent::Allocate(undone)]).unwrap();
        let counts_twice = compatibility.is_upstream();
        assert_eq!(score(&states), if counts_twice { 456.25 } else { 500.0 });
    }
}

#[test]
fn arguments_that_cannot_be_used_keep_the_default() {
    let read = |arguments: &str, more: &str| {
        let compiled = compiled(arguments, more, Compatibility::UPSTREAM);
        let own = compiled.policy.registered(NAME).unwrap().score.clone().unwrap();
        (format!("{own:?}"), compiled.report.diagnostics.len())
    };
    let (default, none) = read("{}", "");
    assert_eq!(none, 0);
    for arguments in [
        "{usage.weight: -2}",
        "{usage.weight: \"7\"}",
        "{thresholds: {cpu: 101}}",
        "{thresholds: {cpu: 60.5}}",
        "{thresholds: {memory: 40}}",
        "{thresholds: {1: 40, cpu: 50}}",
        "{thresholds: 40}",
        "{estimator: {request_ratio: 1.5}}",
        "{estimator: {risk_factor: 0.5}}",
        "{estimator: {be_cpu: 1.5}}",
        "{estimator: {be_mem: -1}}",
        "{estimator: {be_mem: x}}",
        "{usage.wieght: 2}",
    ] {
        assert_eq!(read(arguments, ""), (default.clone(), 1), "{arguments}");
    }
    assert_eq!(
        read("{estimator: {be_cpu: 250m, be_mem: 200Mi}}", ""),
        (default.clone(), 0)
    );
    assert_eq!(
        read("{estimator: {be_cpu: 250, be_mem: 200}}", ""),
        (default.clone(), 0)
    );
    assert_eq!(read("{}", "metrics: {interval: 30s}\n"), (default, 0));
    assert!(
        read("{}", "metrics: {interval: 2m}\n")
            .0
            .contains("interval: 120000000000")
    );
}

#[test]
fn a_state_that_followed_equals_a_rebuild() {
    assert_follows(ShadowTasks::of, |old, _, followed| {
        if let Some((_, stored)) = old.tasks().iter().next() {
            let moved = TaskTransition::new(&stored.record, &stored.record, "");
            let events = [PlacementEvent::Allocate(moved)];
            followed.apply(&PluginStateChange::Events(old, &events)).unwrap();
        }
    });
}

#[test]
fn averages_of_another_period_are_no_measurement() {
    let compiled = compiled("{}", "", Compatibility::Corrected);
    for (period, expected) in [("", "NodeCpuLoad"), ("10m", "NodeCpuLoad"), ("5m", "")] {
        let mut state = state(Some((60, 90.0, 10.0)));
        let mut record = NodeRecord::clone(&state.node(0).unwrap().record);
        let load = NodeLoad::clone(record.load.as_ref().unwrap());
        record.load = Some(Arc::new(NodeLoad {
            period: period.into(),
            ..load
        }));
        state.put_node(Arc::new(record), &Arc::from("test"));
        let states = compiled.policy.compute_plugin_states(&state);
        let (code, _) = verdict_and_score(&compiled, &state, &states, Some(NOON));
        assert_eq!(code, expected, "{period}");
    }
}
