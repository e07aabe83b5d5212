//! Calls that come after a change of one node, as in a cluster that lives: processor time of the server, without that of the
//! changes. Each call comes alone after a change of its own, or many of them are under way at once after each change.

use pb::StateServiceClient;
use pumice::server::pb;
use tokio::task::JoinSet;
use tonic::transport::Channel;

use super::calls::{BenchCall, BenchClient};
use super::fixtures::clock;
use super::measurements::MeasurementReport;
use super::server::BenchServer;
use super::shapes::{self, amounts};

/// Owner of the tasks that change.
const SOURCE: &str = "changes";
/// Number of calls that are under way at once.
const UNDER_WAY: usize = 64;
/// Number of nodes that change in turn.
const CHANGED: u64 = 1_000;

/// Source that changes one node at a time.
struct ChangingSource {
    client: StateServiceClient<Channel>,
    sequence: u64,
}

impl ChangingSource {
    /// Source without records.
    async fn start(channel: Channel) -> Self {
        let mut source = Self {
            client: StateServiceClient::new(channel),
            sequence: 0,
        };
        source.send(1, pb::BatchKind::FullSyncLast, None).await;
        source
    }

    async fn send(&mut self, source_epoch: u64, kind: pb::BatchKind, put: Option<pb::Cluster>) {
        self.sequence += 1;
        let batch = pb::Batch {
            source: SOURCE.to_owned(),
            source_epoch,
            sequence: self.sequence,
            kind: kind.into(),
            part: u32::from(kind == pb::BatchKind::FullSyncLast),
            put,
            ..pb::Batch::default()
        };
        let applied = self.client.apply(pb::ApplyRequest { batch: Some(batch) }).await;
        let outcome = applied.expect("a reply").into_inner().outcome.expect("an outcome");
        assert!(outcome.refused.is_empty() && outcome.resync.is_none(), "{outcome:?}");
    }

    /// Changes the requests of the task on one node, which is visible afterwards.
    async fn change(&mut self) {
        let (number, turn) = (self.sequence % CHANGED, self.sequence / CHANGED);
        let task = pb::Task {
            name: format!("changes/task-{number:04}"),
            job: "changes/job".to_owned(),
            node: format!("node-{:06}", number * 7_919 % u64::from(shapes::NODES)),
            status: pb::TaskStatus::Running.into(),
            requests: Some(amounts([("cpu", format!("{}m", 10 + turn % 2 * 10))])),
            ..pb::Task::default()
        };
        let put = pb::Cluster {
            tasks: vec![task],
            ..pb::Cluster::default()
        };
        self.send(1, pb::BatchKind::Delta, Some(put)).await;
    }

    /// Removes the tasks.
    async fn end(mut self) {
        self.sequence = 0;
        self.send(2, pb::BatchKind::FullSyncLast, None).await;
    }
}

/// Measures calls after changes on a server that has the cluster: `calls` in each round.
pub(crate) async fn measure(report: &mut MeasurementReport, server: &BenchServer, rounds: usize, calls: usize) {
    let channel = server.tcp().await;
    let mut source = ChangingSource::start(channel.clone()).await;
    let client = BenchClient::new(channel);
    let many = format!("_with_{UNDER_WAY}_under_way");
    for (suffix, changes, under_way) in [("", calls, 1), (&*many, (calls / 8).max(1), UNDER_WAY)] {
        let asked = (suffix, changes, under_way);
        measure_under_way(report, server, (&mut source, &client), rounds, asked).await;
    }
    source.end().await;
}

/// Measures calls of which `under_way` follow each change.
async fn measure_under_way(
    report: &mut MeasurementReport,
    server: &BenchServer,
    (source, client): (&mut ChangingSource, &BenchClient),
    rounds: usize,
    (suffix, changes, under_way): (&str, usize, usize),
) {
    let score = |request| BenchCall::Score(Box::new(request));
    let named = [
        ("empty", BenchCall::Empty),
        ("best", score(shapes::best())),
        ("best_with_pods", score(shapes::best_with_pods())),
    ];
    let mut spent = vec![Vec::new(); named.len()];
    for round in 0..=rounds {
        let before = server.cpu_seconds();
        for _ in 0..changes {
            source.change().await;
        }
        let of_changes = server.cpu_seconds_since(before);
        for ((_, call), spent) in named.iter().zip(&mut spent) {
            let before = server.cpu_seconds();
            for _ in 0..changes {
                source.change().await;
                let mut callers = JoinSet::new();
                for _ in 0..under_way {
                    let (mut client, call) = (client.clone(), call.clone());
                    callers.spawn(async move { client.ask(&call).await });
                }
                callers.join_all().await;
            }
            // The first round warms up.
            if round > 0 {
                let calls = (changes * under_way) as f64;
                spent.push((server.cpu_seconds_since(before) - of_changes) * 1e6 / calls);
            }
        }
    }
    for ((name, _), mut spent) in named.iter().zip(spent) {
        spent.sort_unstable_by(f64::total_cmp);
        report.put(
            format!("grpc_{name}_after_change{suffix}_cpu_us_per_call"),
            clock::median(&spent),
        );
    }
}
