//! Calls that only wait: for a revision that does not come, for a worker, or for a disk that does not answer.

use std::time::Duration;

use prost::Message;
use pumice::server::pb;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tonic::Code;

use super::transport::{
    HostileConnection, PATIENCE, SCORE, code, framed, other_caller, rejections, runtime, small_query,
};
use crate::support::records::{full_sync, hypothetical_task};
use crate::support::{cluster, program::LoggedProcess, reported_limits, score_request};

const RELEASE: &str = "/pumice.v1.StateService/ReleaseAssumptions";

/// Query at a revision that is this many changes ahead.
fn query_at(revision: pb::Revision, ahead: u64) -> Vec<u8> {
    let latest = pb::LatestRef {
        at_least: Some(pb::Revision {
            number: revision.number + ahead,
            ..revision
        }),
        max_wait: Some(prost_types::Duration { seconds: 25, nanos: 0 }),
        ..pb::LatestRef::default()
    };
    framed(
        &pb::ScoreRequest {
            against: Some(pb::EvaluationRef {
                target: Some(pb::evaluation_ref::Target::Latest(latest)),
                ..pb::EvaluationRef::default()
            }),
            tasks: vec![hypothetical_task(&[("cpu", "1")])],
            ..pb::ScoreRequest::default()
        }
        .encode_to_vec(),
    )
}

/// Sends calls that wait, on many connections, and checks that calls that do not wait are answered: of a caller that
/// comes by a new connection, and of one that has many under way.
async fn assert_answered_beside(program: &LoggedProcess, path: &str, waiting: Vec<u8>) {
    let (mut held, mut calls) = (Vec::new(), Vec::new());
    for _ in 0..16 {
        let connection = HostileConnection::open(program.grpc, 1 << 20).await;
        for _ in 0..16 {
            calls.push(connection.ask(path, waiting.clone()).await.unwrap());
        }
        held.push(connection);
    }
    sleep(Duration::from_millis(500)).await;
    for _ in 0..3 {
        assert_eq!(other_caller(program.grpc).await, Code::Ok, "of a new connection");
    }
    let busy = HostileConnection::open(program.grpc, 1 << 20).await;
    let mut asked = Vec::new();
    for _ in 0..12 {
        asked.push(busy.ask(SCORE, small_query()).await.unwrap());
    }
    for response in asked {
        assert_eq!(code(response).await, Code::Ok, "of a connection with several calls");
    }
    // Those that found no place are told at once, with the name of the limit.
    assert!(rejections(program.http, "waits") >= 100.0);
    drop((calls, held));
}

#[test]
fn calls_that_wait_for_a_revision_leave_places_for_others() {
    let program = LoggedProcess::serve(&["--calls", "64"]);
    let clients = program.connect();
    let info = clients.get_server_info(pb::GetServerInfoRequest {}).unwrap();
    assert_eq!(reported_limits(&info)["waits"], 32, "it is at most half of `calls`");
    let revision = info.revision.unwrap();
    runtime().block_on(async {
        assert_answered_beside(&program, SCORE, query_at(revision, 1_000_000)).await;
        // Once they are gone, a caller may wait for what comes.
        let connection = HostileConnection::open(program.grpc, 1 << 20).await;
        let (begun, mut before) = (Instant::now(), rejections(program.http, "waits"));
        let next = loop {
            let next = connection.ask(SCORE, query_at(revision, 1)).await.unwrap();
            sleep(Duration::from_millis(200)).await;
            let rejected = rejections(program.http, "waits");
            if rejected == before {
                break next;
            }
            before = rejected;
            assert!(begun.elapsed() < PATIENCE, "nobody else waits any longer");
        };
        let applied = tokio::task::spawn_blocking(move || clients.apply_batch(full_sync("a", 1, cluster(3))));
        assert!(applied.await.unwrap().is_ok());
        assert_eq!(code(next).await, Code::Ok);
    });
}

#[cfg(target_os = "linux")]
#[test]
fn calls_that_wait_for_the_disk_leave_places_for_others() {
    use super::held_disk::HeldDisk;
    let disk = HeldDisk::serve(100, &["--calls", "64"]);
    let reload = disk.hold("held");
    let release = pb::ReleaseAssumptionsRequest {
        session: "none".to_owned(),
        tasks: vec!["default/t".to_owned()],
    };
    runtime().block_on(assert_answered_beside(
        &disk.program,
        RELEASE,
        framed(&release.encode_to_vec()),
    ));
    assert!(!reload.is_finished(), "the flush ended while it was held");
    disk.release();
    assert!(reload.join().unwrap().is_ok());
}

#[test]
fn one_connection_leaves_the_workers_to_others() {
    let program = LoggedProcess::serve(&["--workers", "1", "--worker-wait-ms", "500"]);
    let clients = program.connect();
    clients.apply_batch(full_sync("a", 1, cluster(2_000))).unwrap();
    let large = framed(&score_request(100).encode_to_vec());
    runtime().block_on(async {
        let (mut storm, end) = (JoinSet::new(), Instant::now() + Duration::from_secs(8));
        let greedy = std::sync::Arc::new(HostileConnection::open(program.grpc, 1 << 20).await);
        for _ in 0..120 {
            let (greedy, large) = (std::sync::Arc::clone(&greedy), large.clone());
            storm.spawn(async move {
                while Instant::now() < end {
                    code(greedy.ask(SCORE, large.clone()).await.unwrap()).await;
                }
            });
        }
        sleep(Duration::from_secs(1)).await;
        // This one waits a little after each answer, as callers with work of their own do.
        let honest = HostileConnection::open(program.grpc, 1 << 20).await;
        let (mut accepted, mut asked) = (0, 0);
        while Instant::now() + Duration::from_secs(1) < end {
            asked += 1;
            accepted += usize::from(code(honest.ask(SCORE, large.clone()).await.unwrap()).await == Code::Ok);
            sleep(Duration::from_millis(100)).await;
        }
        assert!(asked > 1 && accepted * 2 > asked, "{accepted} of {asked} were accepted");
        assert!(rejections(program.http, "worker_wait_ms") > 50.0);
        storm.join_all().await;
    });
}
