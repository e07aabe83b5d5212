//! Evictions over several cycles: who they serve, and who keeps what they left.

use std::sync::Arc;

use super::tests::{change_task, cluster, end, put_job, put_queue};
use super::{CycleAction, CycleClaims, CycleEvent, CycleQuery, CycleReport, run_cycle_with};
use crate::decide::LastRounds;
use crate::model::{ClusterState, ResourceAmounts, ResourceId, TaskStatus};
use crate::policy::{CompileOptions, compile};

/// Configuration of Volcano's chart, with these actions.
fn document(actions: &str, compatibility: &str) -> String {
    let chart = include_str!("../../../../examples/queues/policy.yaml");
    let own = chart.replace("enqueue, allocate, backfill", actions);
    assert_ne!(own, chart);
    format!("{own}pumice: {{compatibility: {compatibility}}}\n")
}

/// Cycles, and what they leave for each other.
struct CycleSeries {
    document: String,
    claims: CycleClaims,
}

impl CycleSeries {
    fn new(actions: &str, compatibility: &str) -> Self {
        Self {
            document: document(actions, compatibility),
            claims: CycleClaims::default(),
        }
    }

    fn run(&mut self, state: &ClusterState) -> CycleReport {
        let policy = compile(&self.document, &CompileOptions::default()).unwrap().policy;
        let actions: Vec<CycleAction> = policy
            .spec()
            .actions
            .iter()
            .filter_map(|name| CycleAction::from_name(name))
            .collect();
        let query = CycleQuery {
            actions: &actions,
            now: None,
            claims: &self.claims,
            last_rounds: &LastRounds::default(),
        };
        let plugin_states = policy.compute_plugin_states(state);
        let report = run_cycle_with(state.clone(), plugin_states, &policy, query).unwrap();
        self.claims.record(&report.events);
        report
    }
}

fn evictions(report: &CycleReport) -> Vec<&str> {
    let evicted = report.events.iter().filter_map(|event| match event {
        CycleEvent::Evicted { task, .. } => Some(&**task),
        CycleEvent::Enqueued(_)
        | CycleEvent::Bound { .. }
        | CycleEvent::Pipelined { .. }
        | CycleEvent::Nominated { .. }
        | CycleEvent::PassedOver { .. } => None,
    });
    evicted.collect()
}

/// Evicted task that waits again, as its controller makes it.
fn come_back(state: &mut ClusterState, task: &str) {
    change_task(state, task, |task| {
        task.status = TaskStatus::Pending;
        task.node = Arc::default();
    });
}

fn release(state: &mut ClusterState, task: &str) {
    change_task(state, task, |task| task.status = TaskStatus::Releasing);
}

#[test]
fn a_task_that_allocate_lets_wait_is_reported_before_its_job_is_ready() {
    let mut state = cluster(&[4]);
    put_job(&mut state, ("x/old", "q"), (1, 1), &[(1, "n00"); 3]);
    release(&mut state, "x/old-0");
    put_job(&mut state, ("x/new", "q"), (2, 1), &[(1, ""), (1, "")]);
    let report = CycleSeries::new("enqueue, allocate", "upstream").run(&state);
    assert_eq!(end(&report, "x/new-0").0, TaskStatus::Allocated);
    assert_eq!(end(&report, "x/new-1").0, TaskStatus::Pipelined);
    let waits = |event: &&CycleEvent| matches!(event, CycleEvent::Pipelined { task, .. } if &**task == "x/new-1");
    assert_eq!(report.events.iter().filter(waits).count(), 1);
    assert!(
        !report
            .events
            .iter()
            .any(|event| matches!(event, CycleEvent::Bound { .. }))
    );
}

#[test]
fn a_claimant_takes_the_place_that_was_freed_in_whatever_order_the_actions_stand() {
    for (actions, waits_for_ever) in [
        ("enqueue, preempt, allocate, backfill", true),
        ("enqueue, allocate, preempt, backfill", false),
    ] {
        for compatibility in ["corrected", "upstream"] {
            let mut state = cluster(&[4]);
            put_job(&mut state, ("x/low", "q"), (1, 1), &[(1, "n00"); 4]);
            put_job(&mut state, ("x/high", "q"), (1, 9), &[(1, "")]);
            let mut series = CycleSeries::new(actions, compatibility);
            let first = series.run(&state);
            let evicted = evictions(&first)[0].to_owned();
            assert_eq!(end(&first, "x/high-0").0, TaskStatus::Pipelined);
            release(&mut state, &evicted);
            assert_eq!(
                evictions(&series.run(&state)),
                Vec::<&str>::new(),
                "one eviction is enough"
            );
            come_back(&mut state, &evicted);
            let wanted = if compatibility == "upstream" && waits_for_ever {
                TaskStatus::Pipelined
            } else {
                TaskStatus::Binding
            };
            assert_eq!(
                end(&series.run(&state), "x/high-0").0,
                wanted,
                "{actions} {compatibility}"
            );
        }
    }
}

#[test]
fn what_was_freed_for_a_task_goes_to_no_other_one_first() {
    // The queue of x/a deserves one core of four, has none left after the eviction, and so comes first: without a claim its task
    // would take its place again, cycle after cycle.
    for compatibility in ["corrected", "upstream"] {
        let mut state = cluster(&[4]);
        for (name, cpu) in [("q", 1), ("other", 3)] {
            put_queue(&mut state, name);
            let mut queue = state.queues().get(name).unwrap().record.clone();
            queue.deserved = Some(ResourceAmounts::from_iter([(ResourceId::CPU, cpu * 1000)]));
            state.put_queue(queue, &Arc::from("test"));
        }
        put_job(&mut state, ("x/a", "q"), (0, 1), &[(2, "n00")]);
        put_job(&mut state, ("x/kept", "other"), (1, 1), &[(1, "n00")]);
        put_job(&mut state, ("x/b", "other"), (1, 1), &[(2, "")]);
        let mut series = CycleSeries::new("enqueue, allocate, reclaim, backfill", compatibility);
        series.document = series.document.replace("proportion", "capacity");
        assert_eq!(evictions(&series.run(&state)), ["x/a-0"]);
        assert!(series.claims.claimant_of("x/a-0").is_some());
        come_back(&mut state, "x/a-0");
        let next = series.run(&state);
        let starts = if compatibility == "corrected" { "x/b-0" } else { "x/a-0" };
        assert_eq!(end(&next, starts).0, TaskStatus::Binding, "{compatibility}");
    }
}

#[test]
fn a_task_is_spared_until_the_claimant_of_its_last_eviction_has_started() {
    let mut claims = CycleClaims::default();
    let evicted = |task: &str, preemptor: &str| CycleEvent::Evicted {
        task: task.into(),
        node: "n00".into(),
        preemptor: preemptor.into(),
    };
    claims.record(&[evicted("x/low-0", "x/other-0")]);
    let mut state = cluster(&[4]);
    put_job(&mut state, ("x/low", "q"), (1, 1), &[(4, "n00")]);
    put_job(&mut state, ("x/high", "q"), (1, 9), &[(4, "")]);
    let mut series = CycleSeries::new("enqueue, allocate, preempt, backfill", "corrected");
    series.claims = claims.clone();
    assert_eq!(evictions(&series.run(&state)), Vec::<&str>::new());
    let bound = CycleEvent::Bound {
        task: "x/other-0".into(),
        node: "n01".into(),
    };
    claims.record(&[bound]);
    assert_eq!(claims, CycleClaims::default());
    assert_eq!(evictions(&series.run(&state)), Vec::<&str>::new());
    series.claims.remove_claimant("x/other-0");
    assert_eq!(evictions(&series.run(&state)), ["x/low-0"]);
}

#[test]
fn pods_without_requests_preempt_each_other_on_a_node_that_is_full_of_pods() {
    for compatibility in ["corrected", "upstream"] {
        let mut state = cluster(&[4]);
        let node = state.node_by_name("n00").unwrap();
        let mut record = node.record.as_ref().clone();
        record.allocatable.set(ResourceId::PODS, 2);
        state.put_node(Arc::new(record), &Arc::from("test"));
        put_job(&mut state, ("x/low", "q"), (1, 1), &[(0, "n00"), (0, "n00")]);
        put_job(&mut state, ("x/high", "q"), (1, 9), &[(0, ""), (0, "")]);
        for name in ["x/low-0", "x/low-1", "x/high-0", "x/high-1"] {
            change_task(&mut state, name, |task| {
                task.requests = ResourceAmounts::from_iter([(ResourceId::PODS, 1)]);
            });
        }
        let mut series = CycleSeries::new("enqueue, allocate, preempt, backfill", compatibility);
        let first = series.run(&state);
        let evicted: Vec<String> = evictions(&first).into_iter().map(str::to_owned).collect();
        assert_eq!(evicted.len(), 1, "{compatibility}: {:?}", first.events);
        if compatibility == "upstream" {
            continue;
        }
        release(&mut state, &evicted[0]);
        assert_eq!(evictions(&series.run(&state)), Vec::<&str>::new(), "{compatibility}");
        come_back(&mut state, &evicted[0]);
        let last = series.run(&state);
        let started = |name: &str| end(&last, name).0 == TaskStatus::Binding;
        assert_eq!(
            (started("x/high-0"), started(&evicted[0])),
            (true, false),
            "{compatibility}"
        );
    }
}
