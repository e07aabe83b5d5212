//! Readers during changes: one thread asks for the best of all nodes, while another applies deltas without a pause.
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use pb::StateServiceClient;
use pumice::server::pb;
use tonic::transport::Channel;

use super::calls::{BenchCall, BenchClient};
use super::measurements::MeasurementReport;
use super::server::BenchServer;
use super::shapes;

/// Number of nodes that change together.
const CHANGED: usize = 100;

/// Measures the storm on a server that has the cluster; the last measurement there.
pub(crate) async fn measure(report: &mut MeasurementReport, server: &BenchServer, calls: usize) {
    let (mut client, query) = (
        BenchClient::new(server.tcp().await),
        BenchCall::Score(Box::new(shapes::best())),
    );
    let stopped = Arc::new(AtomicBool::new(false));
    let writer = {
        let (stopped, address) = (Arc::clone(&stopped), server.address());
        std::thread::spawn(move || changes(address, &stopped))
    };
    let mut times = Vec::new();
    for _ in 0..calls {
        let started = Instant::now();
        client.ask(&query).await;
        times.push(started.elapsed().as_secs_f64() * 1e3);
    }
    stopped.store(true, Ordering::Relaxed);
    let per_second = writer.join().expect("the writer ends");
    times.sort_unstable_by(f64::total_cmp);
    for (percent, key) in [(50, "grpc_best_in_storm_p50_ms"), (99, "grpc_best_in_storm_p99_ms")] {
        if let Some(time) = times.get(times.len() * percent / 100) {
            report.put(key, *time);
        }
    }
    report.put("storm_changed_nodes_per_s", per_second);
}

/// Applies deltas until it is stopped. Returns the number of changed nodes per second.
fn changes(address: String, stopped: &AtomicBool) -> f64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let endpoint = Channel::from_shared(address).expect("an address");
        let mut client = StateServiceClient::new(endpoint.connect().await.expect("a connection"));
        let (begin, mut changed, mut sequence) = (Instant::now(), 0, 1);
        let nodes = shapes::cluster().nodes;
        for nodes in nodes.chunks(CHANGED).cycle() {
            if stopped.load(Ordering::Relaxed) {
                break;
            }
            sequence += 1;
            let batch = pb::Batch {
                source: "bench".to_owned(),
                source_epoch: 1,
                sequence,
                kind: pb::BatchKind::Delta.into(),
                put: Some(pb::Cluster {
                    nodes: nodes.iter().map(|node| changed_node(node, sequence)).collect(),
                    ..pb::Cluster::default()
                }),
                ..pb::Batch::default()
            };
            let applied = client.apply(pb::ApplyRequest { batch: Some(batch) }).await;
            let outcome = applied.expect("a reply").into_inner().outcome.expect("an outcome");
            assert!(
                outcome.refused.is_empty() && outcome.resync.is_none(),
                "it is taken: {outcome:?}"
            );
            changed += nodes.len();
        }
        changed as f64 / begin.elapsed().as_secs_f64()
    })
}

/// Node with a little less memory each time.
fn changed_node(node: &pb::Node, sequence: u64) -> pb::Node {
    let mut node = node.clone();
    if let Some(allocatable) = &mut node.allocatable {
        let memory = (256_u64 << 30) - (sequence % 1_000);
        allocatable.items.insert("memory".to_owned(), memory.to_string());
    }
    node
}
