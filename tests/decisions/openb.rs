//! Real GPU cluster: the first thousand tasks of the openb trace in order of creation, none leaving, each put on the
//! best node of a Score with Filter, in one session. `PUMICE_OPENB` names the trace's folder.
#![expect(clippy::print_stdout, reason = "says when the trace is absent, and what came out")]

use std::collections::BTreeSet;
use std::path::PathBuf;

use pumice::server::pb;
use pumice::server::pb::session_change::Change;
use pumice_kubernetes::import::{AmountRules, ClusterImport, GPU_MILLI_RESOURCE, GPU_RESOURCE};

use crate::support::EmbeddedServer;
use crate::support::records::{full_sync, session_ref};
use crate::support::wire::BlockingClients;

const TASKS: usize = 1_000;
const SPREAD: &str = "actions: allocate\ntiers:\n- plugins:\n  - name: resource-strategy-fit\n    arguments:\n      \
    resources: {cpu: {type: LeastAllocated, weight: 1}, memory: {type: LeastAllocated, weight: 1}}\n";

fn requests(task: &pb::Task, name: &str) -> bool {
    task.requests.as_ref().is_some_and(|list| list.items.contains_key(name))
}

fn trace(folder: &std::path::Path) -> pb::Cluster {
    let mut import = ClusterImport::new(AmountRules::default());
    for file in ["openb_node_list_all_node.csv", "openb_pod_list_default.csv"] {
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        import.read(file, &text).unwrap();
    }
    let imported = import.finish();
    assert_eq!(imported.rejected, []);
    imported.cluster
}

/// Number of CPU tasks placed, and of those on GPU nodes.
fn place(wire: &BlockingClients, policy: &str, tasks: &[pb::Task], gpu_nodes: &BTreeSet<String>) -> (usize, usize) {
    let snapshot = pb::LatestRef {
        policy: policy.to_owned(),
        ..Default::default()
    };
    let evaluation_ref = pb::EvaluationRef {
        target: Some(pb::evaluation_ref::Target::Latest(snapshot)),
        ..pb::EvaluationRef::default()
    };
    let opened = wire.open_session(pb::OpenSessionRequest {
        against: Some(evaluation_ref),
        ..Default::default()
    });
    let session = opened.unwrap().session;
    let (mut after, mut changes, mut placed, mut on_gpu_nodes) = (0, Vec::new(), 0, 0);
    for task in tasks {
        let carried = changes.len() as u64;
        let reply = wire.score(pb::ScoreRequest {
            against: Some(session_ref(&session, after, std::mem::take(&mut changes))),
            tasks: vec![pb::Task {
                name: task.name.clone(),
                ..Default::default()
            }],
            with_filter: true,
            limit: Some(1),
            filter_detail: pb::FilterDetail::Counts.into(),
            ..Default::default()
        });
        after += carried;
        let item = reply.unwrap().result.unwrap_or_default().items.remove(0);
        assert_eq!(item.problem, None, "{}", task.name);
        let Some(node) = item.nodes.unwrap_or_default().names.pop() else {
            continue;
        };
        if !requests(task, GPU_MILLI_RESOURCE) {
            placed += 1;
            on_gpu_nodes += usize::from(gpu_nodes.contains(&node));
        }
        changes.push(Change::Allocate(pb::TaskPlacement {
            task: task.name.clone(),
            node,
            card: String::new(),
            devices: Vec::new(),
        }));
    }
    wire.close_session(pb::CloseSessionRequest { session }).unwrap();
    (placed, on_gpu_nodes)
}

#[test]
fn the_best_practice_keeps_cpu_tasks_off_gpu_nodes() {
    let Some(folder) = std::env::var_os("PUMICE_OPENB").map(PathBuf::from) else {
        println!("openb: PUMICE_OPENB names no folder, so the trace was not run");
        return;
    };
    let cluster = trace(&folder);
    let gpu_nodes = cluster.nodes.iter().filter(|node| {
        node.allocatable
            .as_ref()
            .is_some_and(|list| list.items.contains_key(GPU_RESOURCE))
    });
    let gpu_nodes: BTreeSet<String> = gpu_nodes.map(|node| node.name.clone()).collect();
    let mut tasks = cluster.tasks.clone();
    tasks.sort_by_key(|task| (task.creation_time.map_or(0, |time| time.seconds), task.name.clone()));
    tasks.truncate(TASKS);
    let server = EmbeddedServer::start();
    let wire = &server.wire;
    let outcome = wire.apply_batch(full_sync("openb", 1, cluster)).unwrap();
    assert!(outcome.refused.is_empty(), "{:?}", outcome.refused);
    let spread = pb::ReloadPolicyRequest {
        name: "spread".to_owned(),
        document: SPREAD.to_owned(),
        ..Default::default()
    };
    wire.reload_policy(spread).unwrap();
    let cpu_tasks = tasks.iter().filter(|task| !requests(task, GPU_MILLI_RESOURCE)).count();
    let mut shares = Vec::new();
    for (policy, title) in [
        ("spread", "LeastAllocated cpu and memory"),
        ("default", "the best practice"),
    ] {
        let (placed, on_gpu_nodes) = place(wire, policy, &tasks, &gpu_nodes);
        println!("openb: under {title} {on_gpu_nodes} of {placed} CPU tasks went to GPU nodes");
        assert_eq!(placed, cpu_tasks, "there is room for the first thousand tasks");
        shares.push(on_gpu_nodes);
    }
    assert!(shares[1] < shares[0], "{shares:?}");
}
