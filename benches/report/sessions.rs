//! What changes a session: the gang of stored tasks placed in one call, and the same placements told change by change. Every
//! round opens a session of its own, so that each does the same.
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::time::Instant;

use pb::decision_service_client::DecisionServiceClient;
use pb::state_service_client::StateServiceClient;
use pumice::server::pb;
use tonic::transport::Channel;

use super::figures::Report;
use super::ground::{clock, gang};
use super::server::Server;
use super::shapes;

/// Owner of the gang's tasks.
const SOURCE: &str = "gang";

/// Measures them on a server that has the cluster and the policies.
pub(crate) async fn measure(report: &mut Report, server: &Server, rounds: usize) {
    let channel = server.tcp().await;
    put(channel.clone(), 1, gang::names().map(task).collect()).await;
    let mut client = DecisionServiceClient::new(channel.clone());
    let (_, nodes) = place(&mut client, pb::NodeEncoding::Names).await;
    let (mut placed, mut told) = (Vec::new(), Vec::new());
    for _ in 0..rounds.max(3) {
        placed.push(place(&mut client, pb::NodeEncoding::Slots).await.0);
        told.push(tell(&mut client, &nodes.names).await);
    }
    for (key, mut times) in [
        ("grpc_place_session_1000x10000", placed),
        ("grpc_session_1000_changes", told),
    ] {
        times.sort_unstable_by(f64::total_cmp);
        report.put(format!("{key}_ms"), clock::median(&times));
        report.put(format!("{key}_shortest_ms"), times.first().copied().unwrap_or_default());
    }
    put(channel, 2, Vec::new()).await;
}

/// Puts the tasks in the place of those that are there.
async fn put(channel: Channel, source_epoch: u64, tasks: Vec<pb::Task>) {
    let batch = pb::Batch {
        source: SOURCE.to_owned(),
        source_epoch,
        sequence: 1,
        kind: pb::BatchKind::SnapshotLast.into(),
        snapshot_part: 1,
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

type Client = DecisionServiceClient<Channel>;

async fn open(client: &mut Client) -> String {
    let world = pb::World {
        policy: gang::QUEUE.to_owned(),
        ..pb::World::default()
    };
    let ground = pb::Ground {
        ground: Some(pb::ground::Ground::World(world)),
        ..pb::Ground::default()
    };
    let open = pb::OpenSessionRequest {
        ground: Some(ground),
        ..pb::OpenSessionRequest::default()
    };
    let opened = client.open_session(open).await.expect("a session").into_inner();
    opened.session
}

fn step(session: &str, changes: Vec<pb::Change>) -> pb::Ground {
    let step = pb::SessionStep {
        session: session.to_owned(),
        after: 0,
        changes,
    };
    pb::Ground {
        ground: Some(pb::ground::Ground::Session(step)),
        ..pb::Ground::default()
    }
}

async fn close(client: &mut Client, session: String) {
    let closed = client.close_session(pb::CloseSessionRequest { session }).await;
    closed.expect("it is closed");
}

/// The gang in one call of a fresh session: milliseconds, and the nodes that it went to.
async fn place(client: &mut Client, encoding: pb::NodeEncoding) -> (f64, pb::NodeSet) {
    let session = open(client).await;
    let group = pb::TaskGroup {
        names: gang::names().collect(),
        ..pb::TaskGroup::default()
    };
    let question = pb::PlaceRequest {
        ground: Some(step(&session, Vec::new())),
        groups: vec![group],
        effect: pb::PlaceEffect::Session.into(),
        node_encoding: encoding.into(),
        ..pb::PlaceRequest::default()
    };
    let started = Instant::now();
    let placed = client.place(question).await;
    let milliseconds = started.elapsed().as_secs_f64() * 1e3;
    let answer = placed.expect("an answer").into_inner().answer.expect("an answer");
    assert!(answer.placed);
    close(client, session).await;
    let first = answer.groups.into_iter().next().expect("its group");
    (milliseconds, first.allocated.unwrap_or_default())
}

/// The same placements as a scheduler's own changes, with a question that asks nothing: milliseconds.
async fn tell(client: &mut Client, nodes: &[String]) -> f64 {
    let session = open(client).await;
    let change = |(task, node): (String, &String)| pb::Change {
        change: Some(pb::change::Change::Allocate(pb::TaskOnNode {
            task,
            node: node.clone(),
            ..pb::TaskOnNode::default()
        })),
    };
    let question = pb::FilterRequest {
        ground: Some(step(&session, gang::names().zip(nodes).map(change).collect())),
        ..pb::FilterRequest::default()
    };
    let started = Instant::now();
    let told = client.filter(question).await;
    let milliseconds = started.elapsed().as_secs_f64() * 1e3;
    let stamp = told.expect("an answer").into_inner().stamp.expect("a stamp");
    let effects = stamp.effects.expect("what the changes did");
    assert!(effects.warnings.is_empty() && effects.applied_through == u64::from(gang::TASKS));
    close(client, session).await;
    milliseconds
}
