//! Changed tasks in small and large batches, as fast as a Sync stream accepts them: how many become visible in a
//! second, and how long readers wait meanwhile.
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pb::StateServiceClient;
use pumice::server::pb;
use tokio_stream::StreamExt as _;
use tonic::transport::Channel;

use super::calls::{BenchCall, BenchClient};
use super::measurements::MeasurementReport;
use super::server::BenchServer;
use super::shapes::{self, amounts};

/// Number of tasks that change, ten for each node.
const TASKS: u64 = 10 * shapes::NODES as u64;

/// Task that moves with every turn.
fn task(change: u64) -> pb::Task {
    let (number, turn) = (change * 7_919 % TASKS, change / TASKS);
    pb::Task {
        name: format!("storm/task-{number:06}"),
        job: format!("storm/job-{:05}", number / 10),
        node: format!("node-{:06}", (number + turn) % u64::from(shapes::NODES)),
        status: pb::TaskStatus::Running.into(),
        requests: Some(amounts([("cpu", "10m".to_owned()), ("memory", "16Mi".to_owned())])),
        ..pb::Task::default()
    }
}

/// Endless Sync stream of batches with a fixed number of changes each, on a thread of its own.
struct DeltaStream {
    over: Arc<AtomicBool>,
    visible: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl DeltaStream {
    fn start(server: &BenchServer, source: &str, changes: u64) -> Self {
        let (over, visible) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let batch = {
            let source = source.to_owned();
            move |number: u64| pb::Batch {
                source: source.clone(),
                source_epoch: 1,
                sequence: number + 1,
                // A source must begin with a full sync, here an empty one.
                kind: if number == 0 {
                    pb::BatchKind::FullSyncLast
                } else {
                    pb::BatchKind::Delta
                }
                .into(),
                part: u32::from(number == 0),
                put: (number > 0).then(|| pb::Cluster {
                    tasks: ((number - 1) * changes..number * changes).map(task).collect(),
                    ..pb::Cluster::default()
                }),
                ..pb::Batch::default()
            }
        };
        let (address, ends, counts) = (server.address(), Arc::clone(&over), Arc::clone(&visible));
        let batches = (0..)
            .take_while(move |_| !ends.load(Ordering::Relaxed))
            .map(move |number| pb::SyncRequest {
                batch: Some(batch(number)),
            });
        let run = async move {
            let endpoint = Channel::from_shared(address).expect("an address");
            let channel = endpoint.connect().await.expect("a connection");
            let mut replies = StateServiceClient::new(channel)
                .sync(tokio_stream::iter(batches))
                .await
                .expect("a stream")
                .into_inner();
            while let Some(reply) = replies.next().await {
                let outcome = reply.expect("a reply").outcome.expect("an outcome");
                assert!(outcome.refused.is_empty() && outcome.resync.is_none(), "{outcome:?}");
                counts.fetch_add(changes, Ordering::Relaxed);
            }
        };
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(run);
        });
        Self { over, visible, thread }
    }

    fn visible(&self) -> u64 {
        self.visible.load(Ordering::Relaxed)
    }

    fn end(self) {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().expect("every change is taken");
    }
}

/// Asks for the best node again and again. Returns the 50th and the 99th percentile of the response times in
/// microseconds.
async fn ask(channel: Channel, lasts: Duration) -> [f64; 2] {
    let (mut client, query) = (BenchClient::new(channel), BenchCall::Score(Box::new(shapes::best())));
    let (begin, mut times) = (Instant::now(), Vec::new());
    while times.len() < 10 || begin.elapsed() < lasts {
        let started = Instant::now();
        client.ask(&query).await;
        times.push(started.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_unstable_by(f64::total_cmp);
    [50, 99].map(|part| times.get(times.len() * part / 100).copied().unwrap_or_default())
}

/// Measures deltas on a server that has the cluster.
pub(crate) async fn measure(report: &mut MeasurementReport, server: &BenchServer, lasts: Duration) {
    let channel = server.tcp().await;
    let [p50, p99] = ask(channel.clone(), lasts).await;
    report.put("grpc_best_idle_p50_us", p50);
    report.put("grpc_best_idle_p99_us", p99);
    for changes in [1, 1_000] {
        let storm = DeltaStream::start(server, &format!("storm-{changes}"), changes);
        // The first turn puts the tasks that later ones move.
        while storm.visible() < 1_000 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let (begin, before) = (Instant::now(), storm.visible());
        tokio::time::sleep(lasts).await;
        let rate = (storm.visible() - before) as f64 / begin.elapsed().as_secs_f64();
        report.put(format!("delta_changes_per_s_in_batches_of_{changes}"), rate);
        let [p50, p99] = ask(channel.clone(), lasts).await;
        report.put(format!("grpc_best_storm_of_{changes}_p50_us"), p50);
        report.put(format!("grpc_best_storm_of_{changes}_p99_us"), p99);
        storm.end();
        remove(channel.clone(), &format!("storm-{changes}")).await;
    }
}

/// Removes a source's tasks, because the next storm owns their names.
async fn remove(channel: Channel, source: &str) {
    let batch = pb::Batch {
        source: source.to_owned(),
        source_epoch: 2,
        sequence: 1,
        kind: pb::BatchKind::FullSyncLast.into(),
        part: 1,
        ..pb::Batch::default()
    };
    let applied = StateServiceClient::new(channel)
        .apply(pb::ApplyRequest { batch: Some(batch) })
        .await;
    applied.expect("a reply");
}
