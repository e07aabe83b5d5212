//! Program as a process: how it stops, and settings with which it does not start.

use std::net::TcpStream;
use std::sync::Arc;

use pumice::server::pb;
use tonic::Code;

use crate::support::process::{ServeProcess, serve};
use crate::support::reason;
use crate::support::records::{hypothetical_task, latest_ref};
use crate::support::server::page;
use crate::support::wire::BlockingClients;

fn runtime() -> Arc<tokio::runtime::Runtime> {
    Arc::new(
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap(),
    )
}

#[test]
fn a_running_query_finishes_before_the_process_ends() {
    let mut process = ServeProcess::start(&[]);
    let wire = BlockingClients::connect(runtime(), process.grpc);
    let revision = wire
        .get_server_info(pb::GetServerInfoRequest {})
        .unwrap()
        .revision
        .unwrap_or_default();
    let next = pb::Revision {
        number: revision.number + 1,
        ..revision
    };
    let waiting = pb::ScoreRequest {
        against: Some(latest_ref(next, 900)),
        tasks: vec![hypothetical_task(&[("cpu", "1")])],
        ..Default::default()
    };
    let mut decisions = pb::DecisionServiceClient::new(wire.channel());
    let mut state = pb::StateServiceClient::new(wire.channel());
    let (result, ()) = wire.wait(async {
        // The waiting request goes out first, on the same connection; once the second has its response, the server has
        // both.
        tokio::join!(decisions.score(waiting), async {
            state.get_server_info(pb::GetServerInfoRequest {}).await.unwrap();
            process.terminate();
        })
    });
    let status = result.unwrap_err();
    assert_eq!(
        status.code(),
        Code::FailedPrecondition,
        "the server's own answer, not a cut connection: {status:?}"
    );
    assert_eq!(reason(&status), "REVISION_NOT_REACHED");
    assert!(process.wait().success());
    assert!(TcpStream::connect(process.grpc).is_err(), "nobody listens any more");
}

#[test]
fn readiness_waits_for_the_sources_that_were_named() {
    let mut process = ServeProcess::start(&["--expect-source", "kube"]);
    let (status, text) = page(process.http, "/readyz");
    assert_eq!(status, 503, "{text}");
    assert!(text.contains("source/kube"), "{text}");
    assert_eq!(page(process.http, "/livez").0, 200);
    let wire = BlockingClients::connect(runtime(), process.grpc);
    wire.apply_batch(crate::support::records::full_sync("kube", 1, pb::Cluster::default()))
        .unwrap();
    assert_eq!(page(process.http, "/readyz").0, 200);
    process.terminate();
    assert!(process.wait().success());
}

#[test]
fn a_rejected_policy_stops_the_start() {
    let file = std::env::temp_dir().join(format!("pumice-refused-{}.yaml", std::process::id()));
    std::fs::write(&file, "actions: allocate\ntiers: nothing\n").unwrap();
    let mut command = serve();
    command.arg("--policy-file");
    let output = command.arg(&file).output().unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("tiers"), "{said}");
}
