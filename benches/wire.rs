//! What the service costs over the wire, from a client in the same process: a cluster synced, and small questions.
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a bench that cannot ask has nothing to measure"
)]

use std::sync::atomic::{AtomicU64, Ordering};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use pb::decision_service_client::DecisionServiceClient;
use pb::state_service_client::StateServiceClient;
use pumice::app;
use pumice::config::Config;
use pumice::server::pb;
use tokio::runtime::Runtime;
use tokio_stream::StreamExt;
use tonic::transport::Channel;

const TASKS_PER_NODE: usize = 10;
const RECORDS_PER_BATCH: usize = 5_000;

fn amounts<const N: usize>(items: [(&str, &str); N]) -> pb::ResourceList {
    let items = items
        .iter()
        .map(|(name, amount)| ((*name).to_owned(), (*amount).to_owned()));
    pb::ResourceList { items: items.collect() }
}

fn node(number: usize) -> pb::Node {
    let gpus = if number.is_multiple_of(4) { "8" } else { "0" };
    pb::Node {
        name: format!("node-{number:06}"),
        allocatable: Some(amounts([
            ("cpu", "64"),
            ("memory", "256Gi"),
            ("pods", "110"),
            ("nvidia.com/gpu", gpus),
        ])),
        ..pb::Node::default()
    }
}

fn task(number: usize, nodes: usize) -> pb::Task {
    pb::Task {
        name: format!("team/task-{number:07}"),
        job: format!("team/job-{:06}", number / 8),
        node: format!("node-{:06}", number % nodes),
        status: pb::TaskStatus::Running.into(),
        requests: Some(amounts([("cpu", "500m"), ("memory", "1Gi")])),
        ..pb::Task::default()
    }
}

/// A snapshot in parts; source epoch and sequence are set when it is sent.
fn snapshot(nodes: usize) -> Vec<pb::Batch> {
    let nodes_put: Vec<pb::Node> = (0..nodes).map(node).collect();
    let tasks_put: Vec<pb::Task> = (0..nodes * TASKS_PER_NODE).map(|number| task(number, nodes)).collect();
    let of_nodes = nodes_put.chunks(RECORDS_PER_BATCH);
    let of_nodes = of_nodes.map(|nodes| pb::Cluster {
        nodes: nodes.to_vec(),
        ..pb::Cluster::default()
    });
    let of_tasks = tasks_put.chunks(RECORDS_PER_BATCH);
    let of_tasks = of_tasks.map(|tasks| pb::Cluster {
        tasks: tasks.to_vec(),
        ..pb::Cluster::default()
    });
    let parts: Vec<pb::Cluster> = of_nodes.chain(of_tasks).collect();
    let last = parts.len();
    (1..)
        .zip(parts)
        .map(|(part, put)| pb::Batch {
            source: "bench".to_owned(),
            kind: if part as usize == last {
                pb::BatchKind::SnapshotLast
            } else {
                pb::BatchKind::SnapshotPart
            }
            .into(),
            put: Some(put),
            snapshot_part: part,
            ..pb::Batch::default()
        })
        .collect()
}

/// A server on a free port, and a connection to it.
fn start(runtime: &Runtime) -> Channel {
    runtime.block_on(async {
        let bound = app::bind(Config::on_free_ports()).await.expect("the server starts");
        let address = format!("http://{}", bound.grpc_address());
        tokio::spawn(bound.run(std::future::pending()));
        Channel::from_shared(address)
            .expect("an address")
            .connect()
            .await
            .expect("a connection")
    })
}

/// Sends a snapshot and waits until it is visible.
async fn sync(client: &mut StateServiceClient<Channel>, snapshot: &[pb::Batch], epoch: u64) {
    let batches: Vec<pb::SyncRequest> = (1..)
        .zip(snapshot)
        .map(|(sequence, batch)| pb::Batch {
            source_epoch: epoch,
            sequence,
            ..batch.clone()
        })
        .map(|batch| pb::SyncRequest { batch: Some(batch) })
        .collect();
    let expected = batches.len() as u64;
    let mut replies = client
        .sync(tokio_stream::iter(batches))
        .await
        .expect("a stream")
        .into_inner();
    while let Some(reply) = replies.next().await {
        let outcome = reply.expect("a reply").outcome.expect("an outcome");
        assert!(
            outcome.refused.is_empty() && outcome.resync.is_none(),
            "everything is taken"
        );
        if outcome.position.is_some_and(|position| position.sequence == expected) {
            return;
        }
    }
    panic!("the stream ended early");
}

fn synced(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let mut client = StateServiceClient::new(start(&runtime)).max_decoding_message_size(64 << 20);
    let (mut group, epoch) = (criterion.benchmark_group("grpc_sync"), AtomicU64::new(0));
    group.sample_size(10);
    for nodes in [1_000, 10_000] {
        let snapshot = snapshot(nodes);
        group.throughput(Throughput::Elements((nodes * (TASKS_PER_NODE + 1)) as u64));
        group.bench_function(BenchmarkId::new("nodes_with_10_tasks", nodes), |bencher| {
            bencher.iter(|| {
                let epoch = epoch.fetch_add(1, Ordering::Relaxed) + 1;
                runtime.block_on(sync(&mut client, &snapshot, epoch));
            });
        });
    }
    group.finish();
}

fn questions(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let channel = start(&runtime);
    let mut state = StateServiceClient::new(channel.clone());
    let mut decision = DecisionServiceClient::new(channel).max_decoding_message_size(64 << 20);
    runtime.block_on(sync(&mut state, &snapshot(10_000), 1));
    let mut group = criterion.benchmark_group("grpc_question");
    let empty = pb::FilterRequest::default();
    group.bench_function("empty", |bencher| {
        bencher.iter(|| runtime.block_on(decision.filter(empty.clone())).expect("an answer"));
    });
    let asked = pb::Task {
        requests: Some(amounts([("cpu", "2"), ("memory", "4Gi")])),
        ..pb::Task::default()
    };
    let best = pb::ScoreRequest {
        tasks: vec![asked],
        with_filter: true,
        limit: Some(1),
        filter_detail: pb::FilterDetail::Counts.into(),
        node_encoding: pb::NodeEncoding::Slots.into(),
        ..pb::ScoreRequest::default()
    };
    group.bench_function("best_of_10000", |bencher| {
        bencher.iter(|| runtime.block_on(decision.score(best.clone())).expect("an answer"));
    });
    let all = pb::ScoreRequest {
        limit: None,
        with_filter: false,
        ..best.clone()
    };
    group.bench_function("all_of_10000", |bencher| {
        bencher.iter(|| runtime.block_on(decision.score(all.clone())).expect("an answer"));
    });
    group.finish();
}

criterion_group!(benches, synced, questions);
criterion_main!(benches);
