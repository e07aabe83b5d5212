//! Loading whole clusters through Sync: its time, the memory used after it, and one changed node after it.
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::time::{Duration, Instant};

use pb::StateServiceClient;
use prost::Message as _;
use prost::bytes::Bytes;
use pumice::server::pb;
use pumice_protocol::BytesCodec;
use tokio_stream::StreamExt as _;
use tonic::Request;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;

use super::fixtures::clock;
use super::fixtures::records::TASKS_PER_NODE;
use super::measurements::MeasurementReport;
use super::server::BenchServer;
use super::shapes::amounts;

/// Number of nodes in a batch: some hundred kilobytes.
const NODES_PER_BATCH: u32 = 500;
const TASKS_PER_BATCH: u32 = 5_000;
/// Number of changed nodes, one call each.
const CHANGES: u32 = 300;

/// Sizes of clusters, with their names and those of their tasks in keys.
const SIZES: [(u32, &str, &str); 3] = [(1_000, "1k", "10k"), (10_000, "10k", "100k"), (100_000, "100k", "1m")];

/// Node with eight resources and forty labels, of which plugins read ten.
fn node(number: u32, cpu: u32) -> pb::Node {
    let read = ["gpu", "mig-1g.10gb"].into_iter().flat_map(|kind| {
        let label = move |what: &str| format!("nvidia.com/{kind}.{what}");
        ["product", "count", "memory", "replicas"].map(label)
    });
    let read = read.chain(["example.com/npu.product".to_owned(), "example.com/npu.count".to_owned()]);
    let others = (0..30).map(|label| format!("topology.example.com/label-{label:02}"));
    let labels = read
        .chain(others)
        .zip(0..)
        .map(|(name, at)| (name, format!("{}", at + number % 8)));
    pb::Node {
        name: format!("node-{number:06}"),
        labels: labels.collect(),
        allocatable: Some(amounts([
            ("cpu", format!("{cpu}m")),
            ("memory", "256Gi".to_owned()),
            ("pods", "110".to_owned()),
            ("ephemeral-storage", "1Ti".to_owned()),
            ("hugepages-2Mi", "4Gi".to_owned()),
            ("nvidia.com/gpu", "8".to_owned()),
            ("nvidia.com/nic", "2".to_owned()),
            ("rdma/hca", "4".to_owned()),
        ])),
        ..pb::Node::default()
    }
}

fn task(number: u32, nodes: u32) -> pb::Task {
    pb::Task {
        name: format!("team/task-{number:07}"),
        job: format!("team/job-{:06}", number / 8),
        node: format!("node-{:06}", number % nodes),
        status: pb::TaskStatus::Running.into(),
        requests: Some(amounts([
            ("cpu", "500m".to_owned()),
            ("memory", "1Gi".to_owned()),
            ("nvidia.com/gpu", "1".to_owned()),
        ])),
        ..pb::Task::default()
    }
}

/// Full sync in parts, as bytes, so that the client's encoding is not measured.
fn full_sync(
    source: &str,
    records: u32,
    per_batch: u32,
    cluster: impl Fn(std::ops::Range<u32>) -> pb::Cluster,
) -> Vec<Bytes> {
    let parts = records.div_ceil(per_batch);
    let batch = |part: u32| pb::Batch {
        source: source.to_owned(),
        source_epoch: 1,
        sequence: (part + 1).into(),
        kind: if part + 1 == parts {
            pb::BatchKind::FullSyncLast
        } else {
            pb::BatchKind::FullSyncPart
        }
        .into(),
        put: Some(cluster(part * per_batch..records.min((part + 1) * per_batch))),
        part: part + 1,
        ..pb::Batch::default()
    };
    let request = |part| pb::SyncRequest {
        batch: Some(batch(part)),
    };
    (0..parts).map(|part| request(part).encode_to_vec().into()).collect()
}

/// Sends a full sync and waits until it is visible. Returns the time.
async fn sync(channel: Channel, batches: Vec<Bytes>) -> Duration {
    let (begin, expected) = (Instant::now(), batches.len() as u64);
    let mut client = tonic::client::Grpc::new(channel).max_decoding_message_size(64 << 20);
    client.ready().await.expect("a connection");
    let path = PathAndQuery::from_static("/pumice.v1.StateService/Sync");
    let batches = Request::new(tokio_stream::iter(batches));
    let mut replies = client
        .streaming(batches, path, BytesCodec)
        .await
        .expect("a stream")
        .into_inner();
    while let Some(reply) = replies.next().await {
        let reply = pb::SyncResponse::decode(reply.expect("a reply")).expect("a reply that can be read");
        let outcome = reply.outcome.expect("an outcome");
        assert!(
            outcome.refused.is_empty() && outcome.resync.is_none(),
            "everything is taken: {outcome:?}"
        );
        if outcome.position.is_some_and(|position| position.sequence == expected) {
            return begin.elapsed();
        }
    }
    Duration::MAX
}

/// Memory of the server at rest: the smallest of some readings. One small record changes in between, as in a real
/// cluster: the allocator returns memory of a full sync at the next allocation.
async fn held(server: &BenchServer, channel: &Channel, changes: &mut u64, patience: Duration) -> Option<f64> {
    let mut client = StateServiceClient::new(channel.clone());
    let (begin, mut least) = (Instant::now(), server.memory_bytes()?);
    while begin.elapsed() < patience {
        *changes += 1;
        let queue = pb::Queue {
            name: "rest".to_owned(),
            ..pb::Queue::default()
        };
        let batch = pb::Batch {
            source: "rest".to_owned(),
            source_epoch: 1,
            sequence: *changes,
            kind: pb::BatchKind::FullSyncLast.into(),
            part: 1,
            put: Some(pb::Cluster {
                queues: vec![queue],
                ..pb::Cluster::default()
            }),
            ..pb::Batch::default()
        };
        let applied = client.apply(pb::ApplyRequest { batch: Some(batch) }).await;
        applied.expect("a reply");
        tokio::time::sleep(Duration::from_millis(100)).await;
        least = least.min(server.memory_bytes()?);
    }
    Some(least)
}

/// Measures loading.
pub(crate) async fn measure(report: &mut MeasurementReport, quick: bool) {
    let patience = Duration::from_millis(if quick { 200 } else { 2_000 });
    for &(nodes, size, tasks_size) in SIZES.iter().filter(|(nodes, ..)| !quick || *nodes <= 1_000) {
        let tasks = nodes * TASKS_PER_NODE;
        let of_nodes = full_sync("nodes", nodes, NODES_PER_BATCH, |range| pb::Cluster {
            nodes: range.map(|number| node(number, 64_000)).collect(),
            ..pb::Cluster::default()
        });
        let of_tasks = full_sync("tasks", tasks, TASKS_PER_BATCH, |range| pb::Cluster {
            tasks: range.map(|number| task(number, nodes)).collect(),
            ..pb::Cluster::default()
        });
        let server = BenchServer::start();
        let channel = server.tcp().await;
        let mut changes = 0;
        let empty = held(&server, &channel, &mut changes, patience / 4).await;
        let took = sync(channel.clone(), of_nodes).await;
        let with_nodes = held(&server, &channel, &mut changes, patience).await;
        let took = took.saturating_add(sync(channel.clone(), of_tasks).await);
        let with_tasks = held(&server, &channel, &mut changes, patience).await;
        report.put(format!("load_{size}_nodes_{tasks_size}_tasks_s"), took.as_secs_f64());
        if let (Some(empty), Some(with_nodes), Some(with_tasks)) = (empty, with_nodes, with_tasks) {
            report.put(
                format!("memory_{size}_nodes_{tasks_size}_tasks_mib"),
                with_tasks / 1_048_576.0,
            );
            // The largest measured size comes last, and its value counts.
            report.put("bytes_per_node", (with_nodes - empty) / f64::from(nodes));
            report.put("bytes_per_task", (with_tasks - with_nodes) / f64::from(tasks));
        }
        change_one(report, channel, nodes, size).await;
    }
}

/// Measures one changed node in a call, until it is visible.
async fn change_one(report: &mut MeasurementReport, channel: Channel, nodes: u32, size: &str) {
    let mut client = StateServiceClient::new(channel);
    let mut times = Vec::new();
    for change in 1..=CHANGES {
        let batch = pb::Batch {
            source: "nodes".to_owned(),
            source_epoch: 1,
            sequence: u64::from(nodes.div_ceil(NODES_PER_BATCH) + change),
            kind: pb::BatchKind::Delta.into(),
            put: Some(pb::Cluster {
                nodes: vec![node(nodes / 2, 60_000 + change)],
                ..pb::Cluster::default()
            }),
            ..pb::Batch::default()
        };
        let started = Instant::now();
        let applied = client.apply(pb::ApplyRequest { batch: Some(batch) }).await;
        times.push(started.elapsed().as_secs_f64() * 1e6);
        let outcome = applied.expect("a reply").into_inner().outcome.expect("an outcome");
        assert!(
            outcome.refused.is_empty() && outcome.resync.is_none(),
            "it is taken: {outcome:?}"
        );
    }
    times.sort_unstable_by(f64::total_cmp);
    report.put(format!("grpc_apply_one_of_{size}_p50_us"), clock::median(&times));
}
