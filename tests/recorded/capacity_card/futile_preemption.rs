//! With `cardVictims` no task is evicted for a preemptor that the quota of its queue would still keep out.

use serde_json::{Value as Json, json};

use super::case::cluster_state;
use super::nodes::{cluster_of_jobs, policy};
use pumice_engine::cycle::SchedulingCycle;
use pumice_engine::decide::{self, LastRounds, VictimGroup, VictimVerdict, VictimsQuery};
use pumice_engine::model::ClusterState;
use pumice_engine::plugin::VictimKind;

/// Victims for `preemptor` on a node, by capacity-card and the given plugins.
fn ask(
    cluster_state: &ClusterState,
    beside: &str,
    node: &str,
    preemptor: &str,
    candidates: &[&str],
    irreducible: bool,
) -> VictimVerdict {
    let policy = policy(&format!(
        "actions: preempt\ntiers:\n- plugins:\n  - name: capacity-card\n    arguments: {{cardVictims: true}}\n{beside}"
    ));
    let cycle = SchedulingCycle::new(
        cluster_state.clone(),
        policy.node_change_rules(),
        policy.compute_plugin_states(cluster_state),
    );
    let task = |name: &&str| cluster_state.tasks().get(name).unwrap().record.clone();
    let query = VictimsQuery {
        now: None,
        kind: VictimKind::Preempt,
        groups: vec![Ok(VictimGroup {
            preemptor: task(&preemptor),
            node: node.into(),
            candidates: candidates.iter().map(task).collect(),
            assumptions: Vec::new(),
        })],
        plugins: Vec::new(),
        irreducible,
        last_rounds: LastRounds::new(),
    };
    decide::victims(&cycle, &policy, &query).unwrap().remove(0).unwrap()
}

#[test]
fn the_preemptor_fits_only_when_its_quota_has_headroom() {
    let (running, waiting) = ([("A", "Running", "na"); 2], [("A", "Pending", "")]);
    let candidates = ["ns/j/t0", "ns/j/t1"];
    let ask = |quota: &str, node: &str| {
        let cluster_state = cluster_of_jobs(quota, &[("ns/j", &running), ("ns/new", &waiting)]);
        let verdict = ask(&cluster_state, "", node, "ns/new/t0", &candidates, false);
        (verdict.victims, verdict.fits_after)
    };
    // The node has capacity for all tasks; the quota is the bound.
    assert_eq!(ask(r#"{"A": 3}"#, "na"), (vec![0, 1], Some(0)));
    assert_eq!(ask(r#"{"A": 2}"#, "na"), (vec![0, 1], Some(1)));
    assert_eq!(ask(r#"{"A": 1}"#, "na"), (vec![0, 1], Some(2)));
    assert_eq!(ask(r#"{"A": 0}"#, "na"), (vec![], None));
    // On a node without the card the preemptor cannot run, whichever task is evicted.
    assert_eq!(ask(r#"{"A": 2}"#, "nb"), (vec![], None));
}

/// Queue with `quota` cards `A`, a job `ns/big` that runs four tasks of one each, and `ns/new` that wants `wanted`.
fn two_jobs(quota: u32, wanted: u32) -> ClusterState {
    let task = |name: &str, cards: u32, node: &str| {
        json!({"name": name, "annotations": {"volcano.sh/card.name": "A"}, "node": node,
            "status": if node.is_empty() { "Pending" } else { "Running" },
            "requests": {"nvidia.com/gpu": cards.to_string()}})
    };
    let job = |name: &str, tasks: Vec<Json>| {
        json!({"uid": format!("ns/{name}"), "queue": "q", "phase": "Running", "min_member": 1, "annotations": {},
            "tasks": tasks})
    };
    let big = (0..4).map(|number| task(&format!("t{number}"), 1, "na")).collect();
    cluster_state(&json!({
        "nodes": [{"name": "na", "labels": {"nvidia.com/gpu.product": "A"}, "allocatable": {"nvidia.com/gpu": "16", "pods": "110"}}],
        "queues": [{"name": "q", "annotations": {"volcano.sh/card.quota": format!(r#"{{"A": {quota}}}"#)}}],
        "jobs": [job("big", big), job("new", vec![task("t", wanted, "")])],
    }))
}

#[test]
fn what_other_plugins_leave_must_still_be_enough() {
    let candidates = ["ns/big/t0", "ns/big/t1", "ns/big/t2", "ns/big/t3"];
    let ask = |quota, wanted, irreducible| {
        let cluster_state = two_jobs(quota, wanted);
        let verdict = ask(
            &cluster_state,
            "  - name: drf\n",
            "na",
            "ns/new/t",
            &candidates,
            irreducible,
        );
        (verdict.victims.len(), verdict.fits_after)
    };
    // One card is missing: one task has to go, whatever the node has.
    assert_eq!(ask(4, 1, true), (1, Some(1)));
    assert_eq!(ask(5, 1, true), (0, Some(0)));
    // Three cards are missing, and drf lets one task go only: better none.
    assert_eq!(ask(4, 3, false), (0, None));
}

#[test]
fn no_victim_is_chosen_where_the_job_cannot_use_the_card() {
    // Once the job uses `B`, filter and admission reject the preemptor on nodes with `A`, whichever task is evicted.
    let ask = |quota: &str, used: &str| {
        let own = [("A|B", "Running", used), ("A|B", "Pending", "")];
        let cluster_state = cluster_of_jobs(quota, &[("ns/j", &own), ("ns/other", &[("A", "Running", "na")])]);
        let verdict = ask(&cluster_state, "", "na", "ns/j/t1", &["ns/other/t0"], false);
        (verdict.victims, verdict.fits_after)
    };
    assert_eq!(ask(r#"{"A": 1, "B": 2}"#, "nb"), (vec![], None));
    assert_eq!(ask(r#"{"A": 2, "B": 2}"#, "na"), (vec![0], Some(1)));
}
