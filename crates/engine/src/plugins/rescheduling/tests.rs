//! Rounds of evictions by load, with values of the reference's recorded decisions, alone and in the action `shuffle`.

use super::super::queue_accounts::testing::cluster::{amounts, cluster_state, put_task, task};
use super::*;
use crate::actions::{CycleAction, CycleClaims, CycleEvent, CycleQuery, CycleReport, run_cycle_with};
use crate::cycle::SchedulingCycle;
use crate::decide::{self, LastRounds, VictimGroup, VictimVerdict, VictimsQuery};
use crate::model::constraints::LabelSelector;
use crate::model::{
    ClusterState, DisruptionBudget, GangMember, JobRecord, NamespaceRecord, NodeLoad, NodeRecord, QosClass,
    QueueRecord, TaskRecord, TaskStatus,
};
use crate::policy::{CompileOptions, CompiledPolicy, DiagnosticReport as Report, compile as compile_policy};

/// Noon of the day on which the reference was recorded.
const NOON: i64 = 1_795_348_800;
/// GiB in bytes.
const GIB: i64 = 1 << 30;
const STRATEGIES: &str = "strategies: [{name: lowNodeUtilization, params: {thresholds: {cpu: 30, memory: 30}, \
                          targetThresholds: {cpu: 60, memory: 60}}}]";

fn document(plugins: &str, compatibility: Compatibility) -> Result<CompiledPolicy, Report> {
    let name = compatibility.name();
    let document = format!("actions: shuffle\ntiers: {plugins}\npumice: {{compatibility: {name}}}\n");
    compile_policy(&document, &CompileOptions::default())
}

/// Policy of the plugin alone, with the usual thresholds.
fn plugin(more: &str, compatibility: Compatibility) -> CompiledPolicy {
    let tiers = format!("[{{plugins: [{{name: rescheduling, arguments: {{{more}{STRATEGIES}}}}}]}}]");
    document(&tiers, compatibility).unwrap()
}

fn both(test: impl Fn(Compatibility)) {
    Compatibility::KINDS.into_iter().for_each(test);
}

/// Load by percentages of CPU and memory, measured a minute ago.
#[expect(clippy::unnecessary_wraps, reason = "a node may have no load")]
fn load(cpu_percent: f64, memory_percent: f64) -> Option<NodeLoad> {
    Some(NodeLoad {
        time: Some(NOON - 60),
        cpu_percent,
        memory_percent,
        period: "5m".into(),
        ..NodeLoad::default()
    })
}

/// State with nodes of 10 cores and 10 GiB, with these loads, and a job without tasks.
fn state(loads: &[Option<NodeLoad>]) -> ClusterState {
    let mut state = cluster_state(&vec![(10_000, 10 * GIB, -1); loads.len()]);
    for (slot, load) in (0..).zip(loads) {
        let mut record = NodeRecord::clone(&state.node(slot).unwrap().record);
        record.load = load.clone().map(Arc::new);
        state.put_node(Arc::new(record), &Arc::from("test"));
    }
    let queue = QueueRecord {
        name: "q".into(),
        ..QueueRecord::default()
    };
    state.put_queue(queue, &Arc::from("test"));
    let job = JobRecord {
        name: "ns/j".into(),
        queue: "q".into(),
        ..JobRecord::default()
    };
    state.put_job(job, &Arc::from("test"));
    state
}

/// Adds running tasks of one core and one GiB to the first node.
fn add_tasks(state: &mut ClusterState, names: &[&str]) {
    for name in names {
        put_task(state, task(name, "ns/j", &amounts(1000, GIB, -1), TaskStatus::Running));
    }
}

fn change_task(state: &mut ClusterState, name: &str, change: impl FnOnce(&mut TaskRecord)) {
    let mut task = state.tasks().get(name).unwrap().record.clone();
    change(&mut task);
    put_task(state, task);
}

/// Verdict on all running tasks.
fn verdict(
    compiled: &CompiledPolicy,
    state: &ClusterState,
    last_rounds: &LastRounds,
    now: Option<i64>,
    plugins: &[&str],
) -> (VictimVerdict, Vec<TaskRecord>) {
    let tasks = state.tasks().iter().map(|(_, stored)| stored.record.clone());
    let candidates: Vec<TaskRecord> = tasks.filter(|task| task.status == TaskStatus::Running).collect();
    let policy = &compiled.policy;
    let cycle = SchedulingCycle::new(
        state.clone(),
        policy.node_change_rules(),
        policy.compute_plugin_states(state),
    );
    let query = VictimsQuery {
        now: now.map(Into::into),
        kind: VictimKind::Shuffle,
        groups: vec![Ok(VictimGroup {
            candidates: candidates.clone(),
            ..VictimGroup::default()
        })],
        plugins: plugins.iter().map(|name| Arc::from(*name)).collect(),
        irreducible: false,
        last_rounds: last_rounds.clone(),
    };
    let verdict = decide::victims(&cycle, policy, &query).unwrap().remove(0).unwrap();
    (verdict, candidates)
}

/// Names of the victims at noon, after no other round.
fn victims(compiled: &CompiledPolicy, state: &ClusterState) -> Vec<String> {
    let (verdict, candidates) = verdict(compiled, state, &LastRounds::new(), Some(NOON), &[]);
    let victims = verdict.victims.iter();
    victims.map(|at| candidates[*at].name.to_string()).collect()
}

#[test]
fn tasks_leave_a_node_until_its_load_is_below_the_target() {
    both(|compatibility| {
        let compiled = plugin("", compatibility);
        let mut state = state(&[load(80.0, 40.0), load(10.0, 10.0)]);
        add_tasks(&mut state, &["ns/a", "ns/b", "ns/c", "ns/d"]);
        assert_eq!(victims(&compiled, &state), ["ns/a", "ns/b", "ns/c"]);
        change_task(&mut state, "ns/a", |task| task.priority = 5);
        change_task(&mut state, "ns/c", |task| task.priority = -1);
        change_task(&mut state, "ns/d", |task| {
            let member = GangMember {
                without_priority: true,
                ..GangMember::default()
            };
            task.gang = member.into_field();
        });
        assert_eq!(victims(&compiled, &state), ["ns/d", "ns/c", "ns/b"]);
    });
}

#[test]
fn among_equal_priorities_the_class_of_the_pod_decides() {
    both(|compatibility| {
        let mut state = state(&[load(80.0, 40.0), load(10.0, 10.0)]);
        add_tasks(&mut state, &["ns/a", "ns/b", "ns/c", "ns/d"]);
        for (name, qos_class) in [("ns/a", QosClass::Guaranteed), ("ns/d", QosClass::BestEffort)] {
            change_task(&mut state, name, |task| {
                let member = GangMember {
                    qos_class,
                    ..GangMember::default()
                };
                task.gang = member.into_field();
            });
        }
        assert_eq!(victims(&plugin("", compatibility), &state), ["ns/d", "ns/b", "ns/c"]);
    });
}

#[test]
fn loads_at_a_threshold_are_neither_low_nor_high() {
    both(|compatibility| {
        let count = |high: (f64, f64), low: (f64, f64), cordoned: bool| {
            let mut state = state(&[load(high.0, high.1), load(low.0, low.1)]);
            add_tasks(&mut state, &["ns/a"]);
            let mut record = NodeRecord::clone(&state.node(1).unwrap().record);
            record.unschedulable = cordoned;
            state.put_node(Arc::new(record), &Arc::from("test"));
            victims(&plugin("", compatibility), &state).len()
        };
        assert_eq!(count((61.0, 10.0), (29.0, 29.0), false), 1);
        assert_eq!(count((10.0, 61.0), (29.0, 29.0), false), 1);
        assert_eq!(count((60.0, 60.0), (29.0, 29.0), false), 0);
        assert_eq!(count((61.0, 10.0), (30.0, 29.0), false), 0);
        assert_eq!(
            count((61.0, 10.0), (29.0, 29.0), true),
            0,
            "a cordoned node takes no tasks"
        );
    });
}

#[test]
fn a_round_begins_after_the_interval() {
    both(|compatibility| {
        let compiled = plugin("interval: 1m, ", compatibility);
        let mut state = state(&[load(80.0, 40.0), load(10.0, 10.0)]);
        add_tasks(&mut state, &["ns/a"]);
        let abstains = |last: i64, now: Option<i64>| {
            let last_rounds = LastRounds::from([(NAME.into(), NOON - last)]);
            let (verdict, _) = verdict(&compiled, &state, &last_rounds, now, &[]);
            let (named, _) = self::verdict(&compiled, &state, &last_rounds, now, &[NAME]);
            assert_eq!(verdict.votes, named.votes);
            verdict.votes[0].victims.is_none()
        };
        assert_eq!([59, 60, 61].map(|last| abstains(last, Some(NOON))), [true, true, false]);
        assert!(abstains(61, None), "without a time");
    });
}

#[test]
fn measurements_of_the_period_count() {
    let with_period = |period: &str| {
        load(80.0, 40.0).map(|load| NodeLoad {
            period: period.into(),
            ..load
        })
    };
    let count = |arguments: &str, period: &str, compatibility| {
        let mut state = state(&[with_period(period), load(10.0, 10.0)]);
        add_tasks(&mut state, &["ns/a"]);
        victims(&plugin(arguments, compatibility), &state).len()
    };
    both(|compatibility| {
        assert_eq!(count("metricsPeriod: 5m, ", "5m", compatibility), 1);
        assert_eq!(count("metricsPeriod: 5m, ", "10m", compatibility), 0);
        assert_eq!(count("metricsPeriod: 5m, ", "", compatibility), 0);
    });
    assert_eq!(count("", "", Compatibility::UPSTREAM), 0, "the default of 5m");
    assert_eq!(count("", "", Compatibility::Corrected), 1);
}

#[test]
fn corrected_uses_no_load_that_is_missing_or_old() {
    let old = |age: i64, load: Option<NodeLoad>| {
        let time = Some(NOON - age);
        load.map(|load| NodeLoad { time, ..load })
    };
    for (high, low, corrected) in [
        (load(80.0, 40.0), None, 0),
        (old(300, load(80.0, 40.0)), load(10.0, 10.0), 1),
        (old(301, load(80.0, 40.0)), load(10.0, 10.0), 0),
        (load(80.0, 40.0), old(301, load(10.0, 10.0)), 0),
    ] {
        let mut state = state(&[high, low]);
        add_tasks(&mut state, &["ns/a"]);
        assert_eq!(victims(&plugin("", Compatibility::UPSTREAM), &state).len(), 1);
        assert_eq!(victims(&plugin("", Compatibility::Corrected), &state).len(), corrected);
    }
}

#[test]
fn corrected_moves_no_task_for_which_there_is_no_room() {
    let count = |low: f64, compatibility| {
        let mut state = state(&[load(100.0, 40.0), load(low, 10.0)]);
        add_tasks(&mut state, &["ns/a", "ns/b", "ns/c", "ns/d"]);
        for name in ["ns/a", "ns/b", "ns/c", "ns/d"] {
            change_task(&mut state, name, |task| task.requests = amounts(2000, GIB / 16, -1));
        }
        victims(&plugin("", compatibility), &state).len()
    };
    // Room for 3.1 cores, or for exactly 4.
    assert_eq!(count(29.0, Compatibility::UPSTREAM), 3);
    assert_eq!(count(29.0, Compatibility::Corrected), 1);
    both(|compatibility| assert_eq!(count(20.0, compatibility), 2));
}

#[test]
fn corrected_tells_namespaces_apart() {
    let mut state = state(&[load(80.0, 40.0), load(10.0, 10.0)]);
    add_tasks(&mut state, &["aa/x", "ns/x"]);
    change_task(&mut state, "aa/x", |task| task.node = "n01".into());
    assert_eq!(victims(&plugin("", Compatibility::UPSTREAM), &state), ["aa/x"]);
    assert_eq!(victims(&plugin("", Compatibility::Corrected), &state), ["ns/x"]);
}

#[test]
fn a_strategy_that_is_listed_twice_names_tasks_twice_under_upstream_only() {
    let mut state = state(&[load(80.0, 40.0), load(10.0, 10.0)]);
    add_tasks(&mut state, &["ns/a"]);
    for (compatibility, votes) in [
        (Compatibility::UPSTREAM, vec![0, 0]),
        (Compatibility::Corrected, vec![0]),
    ] {
        let twice = STRATEGIES.replace("[{", "[{name: lowNodeUtilization}, {");
        let tiers = format!("[{{plugins: [{{name: rescheduling, arguments: {{{twice}}}}}]}}]");
        let compiled = document(&tiers, compatibility).unwrap();
        let (verdict, _) = verdict(&compiled, &state, &LastRounds::new(), Some(NOON), &[]);
        assert_eq!(verdict.votes[0].victims, Some(votes));
        assert_eq!(verdict.victims, [0]);
    }
}

#[test]
fn arguments_with_which_volcano_ends_reject_the_document() {
    let params = |params: &str| format!("strategies: [{{name: lowNodeUtilization, params: {params}}}]");
    let read = |arguments: &str, compatibility| {
        document(
            &format!("[{{plugins: [{{name: rescheduling, arguments: {{{arguments}}}}}]}}]"),
            compatibility,
        )
    };
    both(|compatibility| {
        for arguments in [
            "interval: 5",
            "metricsPeriod: null",
            &params("{thresholds: {cpu: 30.5}}"),
            &params("{targetThresholds: {memory: \"30\"}}"),
            &params("{thresholds: {pods: 1.5}}"),
        ] {
            assert!(read(arguments, compatibility).is_err(), "{arguments}");
        }
        for (arguments, warnings) in [
            ("interval: \"\"", 1),
            ("interval: 5m", 0),
            ("strategies: x", 1),
            ("strategies: []", 0),
            ("strategies: [x]", 1),
            ("strategies: [{name: other}]", 1),
            (&*params("[1]"), 1),
            (&*params("{thresholds: [1], targetThresholds: {cpu: 1.5}}"), 1),
            (&*params("{nodeFit: true}"), 1),
            (&*params("{thresholds: {pods: 3}}"), 1),
        ] {
            let report = read(arguments, compatibility).unwrap().report;
            assert_eq!(report.diagnostics.len(), warnings, "{arguments}");
        }
    });
}

/// Cycle of the action at noon.
fn shuffle(compiled: &CompiledPolicy, state: &ClusterState, last_rounds: &LastRounds) -> CycleReport {
    let policy = &compiled.policy;
    let query = CycleQuery {
        actions: &[CycleAction::Shuffle],
        now: Some(NOON.into()),
        claims: &CycleClaims::default(),
        last_rounds,
    };
    run_cycle_with(state.clone(), policy.compute_plugin_states(state), policy, query).unwrap()
}

fn evicted(report: &CycleReport) -> Vec<&str> {
    let events = report.events.iter();
    let evicted = events.filter(|event| matches!(event, CycleEvent::Evicted { .. }));
    evicted.filter_map(CycleEvent::task).map(|task| &**task).collect()
}

#[test]
fn shuffle_evicts_what_plugins_name_and_none_spares() {
    let mut state = state(&[load(80.0, 40.0), load(10.0, 10.0)]);
    add_tasks(&mut state, &["ns/a", "ns/b", "ns/c", "ns/d"]);
    let label = |task: &mut TaskRecord| task.labels = [("app".into(), "web".into())].into();
    change_task(&mut state, "ns/a", label);
    change_task(&mut state, "ns/d", label);
    change_task(&mut state, "ns/b", |task| {
        task.annotations = [("volcano.sh/cooldown-time".into(), "10m".into())].into();
        let member = GangMember {
            scheduled_time: Some(NOON - 60),
            ..GangMember::default()
        };
        task.gang = member.into_field();
    });
    let selector = LabelSelector {
        match_labels: [("app".into(), "web".into())].into(),
        ..LabelSelector::default()
    };
    let budget = DisruptionBudget {
        name: "web".into(),
        selector: Some(selector),
        disruptions_allowed: 0,
        disrupted_pods: Vec::new(),
    };
    let namespace = |disruptions_allowed| NamespaceRecord {
        name: "ns".into(),
        disruption_budgets: vec![DisruptionBudget {
            disruptions_allowed,
            ..budget.clone()
        }],
        ..NamespaceRecord::default()
    };
    state.put_namespace(namespace(0), &Arc::from("test"));
    let compiled = |plugins: &str, compatibility| {
        let tiers =
            format!("[{{plugins: [{{name: rescheduling, arguments: {{{STRATEGIES}}}}}]}}, {{plugins: [{plugins}]}}]");
        document(&tiers, compatibility).unwrap()
    };
    let none = LastRounds::new();
    let names = |plugins: &str, compatibility, state: &ClusterState| -> Vec<String> {
        let report = shuffle(&compiled(plugins, compatibility), state, &none);
        assert_eq!(report.rounds, [Arc::from(NAME)]);
        evicted(&report).into_iter().map(str::to_owned).collect()
    };
    both(|compatibility| assert_eq!(names("{name: gang}", compatibility, &state), ["ns/a", "ns/b", "ns/c"]));
    let others = "{name: pdb}, {name: cdp}";
    assert_eq!(names(others, Compatibility::UPSTREAM, &state), ["ns/a", "ns/b", "ns/c"]);
    assert_eq!(names(others, Compatibility::Corrected, &state), ["ns/c"]);
    let off = "{name: pdb, enabledVictim: false}, {name: cdp}";
    assert_eq!(names(off, Compatibility::Corrected, &state), ["ns/a", "ns/c"]);
    // Alone, a budget that allows evictions causes them in the reference.
    state.put_namespace(namespace(1), &Arc::from("test"));
    let alone = |compatibility| document("[{plugins: [{name: pdb}]}]", compatibility).unwrap();
    let report = shuffle(&alone(Compatibility::UPSTREAM), &state, &none);
    assert_eq!(evicted(&report), ["ns/a"]);
    assert!(evicted(&shuffle(&alone(Compatibility::Corrected), &state, &none)).is_empty());
}

#[test]
fn shuffle_evicts_only_running_tasks_of_jobs_and_at_most_once_in_an_interval() {
    both(|compatibility| {
        let mut state = state(&[load(80.0, 40.0), load(10.0, 10.0)]);
        add_tasks(&mut state, &["ns/a", "ns/b", "ns/c"]);
        change_task(&mut state, "ns/a", |task| task.status = TaskStatus::Bound);
        change_task(&mut state, "ns/c", |task| task.job = "ns/unknown".into());
        let compiled = plugin("interval: 1m, ", compatibility);
        let report = shuffle(&compiled, &state, &LastRounds::new());
        let stored = report.cycle.cluster_state().tasks().get("ns/b").unwrap();
        assert_eq!(
            (evicted(&report), stored.record.status),
            (vec!["ns/b"], TaskStatus::Releasing)
        );
        let again = shuffle(&compiled, &state, &LastRounds::from([(NAME.into(), NOON - 30)]));
        assert!(again.events.is_empty() && again.rounds.is_empty());
    });
}
