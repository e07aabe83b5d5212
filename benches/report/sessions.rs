//! Changes of a session: the gang of stored tasks placed in one call, and the same placements sent change by change.
//! Every round opens a session of its own, so that all rounds do the same.
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::time::Instant;

use pb::DecisionServiceClient;
use pb::StateServiceClient;
use pumice::server::pb;
use tonic::transport::Channel;

use super::fixtures::{clock, gang};
use super::measurements::MeasurementReport;
use super::server::BenchServer;
use super::shapes;

/// Owner of the gang's tasks.
const SOURCE: &str = "gang";

/// Measures sessions on a server that has the cluster and the policies.
pub(crate) async fn measure(report: &mut MeasurementReport, server: &BenchServer, rounds: usize) {
    let channel = server.tcp().await;
    put(channel.clone(), 1, gang::names().map(task).collect()).await;
    let mut client = DecisionServiceClient::new(channel.clone());
    let (_, nodes) = place(&mut client, pb::NodeEncoding::Names).await;
    let (mut placed, mut changed) = (Vec::new(), Vec::new());
    for _ in 0..rounds.max(3) {
        placed.push(place(&mut client, pb::NodeEncoding::Slots).await.0);
        changed.push(send_changes(&mut client, &nodes.names).await);
    }
    for (key, mut times) in [
        ("grpc_place_session_1000x10000", placed),
        ("grpc_session_1000_changes", changed),
    ] {
        times.sort_unstable_by(f64::total_cmp);
        report.put(format!("{key}_ms"), clock::median(&times));
        report.put(format!("{key}_shortest_ms"), times.first().copied().unwrap_or_default());
    }
    put(channel, 2, Vec::new()).await;
}

/// Replaces the stored tasks by these.
async fn put(channel: Channel, source_epoch: u64, tasks: Vec<pb::Task>) {
    let batch = pb::Batch {
        source: SOURCE.to_owned(),
        source_epoch,
        sequence: 1,
        kind: pb::BatchKind::FullSyncLast.into(),
        part: 1,
        put: Some(pb::Cluster {
            tasks,
            ..pb::Cluster::default()
        }),
        ..pb::Batch::default()
    };
    let applied = StateServiceClient::new(channel)
        .apply(pb::ApplyRequest { batch: Some(batch) })
        .await;
    let outcome = applied.expect("a reply").into_inner().outcome.expect("an outcome");
    assert!(outcome.refused.is_empty(), "everything is taken: {:?}", outcome.refused);
}

fn task(name: String) -> pb::Task {
    pb::Task {
        name,
        ..shapes::gang_task()
    }
}

type SessionBenchClient = DecisionServiceClient<Channel>;

async fn open(client: &mut SessionBenchClient) -> String {
    let snapshot = pb::LatestRef {
        policy: gang::QUEUE.to_owned(),
        ..pb::LatestRef::default()
    };
    let evaluation_ref = pb::EvaluationRef {
        target: Some(pb::evaluation_ref::Target::Latest(snapshot)),
        ..pb::EvaluationRef::default()
    };
    let open = pb::OpenSessionRequest {
        against: Some(evaluation_ref),
        ..pb::OpenSessionRequest::default()
    };
    let opened = client.open_session(open).await.expect("a session").into_inner();
    opened.session
}

fn session_ref(session: &str, changes: Vec<pb::SessionChange>) -> pb::EvaluationRef {
    let step = pb::SessionRef {
        id: session.to_owned(),
        after: 0,
        changes,
    };
    pb::EvaluationRef {
        target: Some(pb::evaluation_ref::Target::Session(step)),
        ..pb::EvaluationRef::default()
    }
}

async fn close(client: &mut SessionBenchClient, session: String) {
    let closed = client.close_session(pb::CloseSessionRequest { session }).await;
    closed.expect("it is closed");
}

/// Places the gang in one call of a new session. Returns milliseconds, and the nodes.
async fn place(client: &mut SessionBenchClient, encoding: pb::NodeEncoding) -> (f64, pb::NodeSet) {
    let session = open(client).await;
    let group = pb::TaskGroup {
        names: gang::names().collect(),
        ..pb::TaskGroup::default()
    };
    let query = pb::PlaceRequest {
        against: Some(session_ref(&session, Vec::new())),
        groups: vec![group],
        effect: pb::PlaceEffect::Session.into(),
        node_encoding: encoding.into(),
        ..pb::PlaceRequest::default()
    };
    let started = Instant::now();
    let placed = client.place(query).await;
    let milliseconds = started.elapsed().as_secs_f64() * 1e3;
    let result = placed.expect("an answer").into_inner().result.expect("an answer");
    assert!(result.placed);
    close(client, session).await;
    let first = result.groups.into_iter().next().expect("its group");
    (milliseconds, first.allocated.unwrap_or_default())
}

/// Sends the same placements as a scheduler's own changes, with an empty query. Returns milliseconds.
async fn send_changes(client: &mut SessionBenchClient, nodes: &[String]) -> f64 {
    let session = open(client).await;
    let change = |(task, node): (String, &String)| pb::SessionChange {
        change: Some(pb::session_change::Change::Allocate(pb::TaskPlacement {
            task,
            node: node.clone(),
            ..pb::TaskPlacement::default()
        })),
    };
    let query = pb::FilterRequest {
        against: Some(session_ref(&session, gang::names().zip(nodes).map(change).collect())),
        ..pb::FilterRequest::default()
    };
    let started = Instant::now();
    let response = client.filter(query).await;
    let milliseconds = started.elapsed().as_secs_f64() * 1e3;
    let metadata = response.expect("an answer").into_inner().metadata.expect("a stamp");
    let effects = metadata.effects.expect("what the changes did");
    assert!(effects.warnings.is_empty() && effects.applied_through == u64::from(gang::TASKS));
    close(client, session).await;
    milliseconds
}
