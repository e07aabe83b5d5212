//! Callers who begin calls and do not finish their requests, or hold places.

use prost::Message;
use pumice::server::pb;
use tonic::Code;

use super::transport::{APPLY, HostileConnection, SCORE, code, framed, other_caller, rejections, runtime, small_query};
use crate::support::records::{hypothetical_task, latest_ref};
use crate::support::{program::LoggedProcess, until};

const SYNC: &str = "/pumice.v1.StateService/Sync";

#[test]
fn calls_whose_requests_do_not_come_take_no_place() {
    let program = LoggedProcess::serve(&[]);
    runtime().block_on(async {
        let mut held = Vec::new();
        for _ in 0..5 {
            let connection = HostileConnection::open(program.grpc, 1 << 20).await;
            for _ in 0..250 {
                held.push(connection.call(SCORE).await.unwrap());
            }
            held.last_mut().unwrap().send(vec![0]);
            assert_eq!(other_caller(program.grpc).await, Code::Ok);
        }
    });
}

#[test]
fn a_request_that_does_not_arrive_in_time_is_refused_by_name() {
    let program = LoggedProcess::serve(&["--request-body-ms", "200"]);
    runtime().block_on(async {
        let connection = HostileConnection::open(program.grpc, 1 << 20).await;
        let silent = connection.call(SCORE).await.unwrap();
        let mut begun = connection.call(APPLY).await.unwrap();
        begun.send(vec![0, 0, 0, 1, 0, 7]);
        let mut stream = connection.call(SYNC).await.unwrap();
        stream.send(vec![0, 0, 0, 1]);
        for call in [silent, begun, stream] {
            assert_eq!(code(call.response).await, Code::ResourceExhausted);
        }
        assert_eq!(
            code(connection.ask(SCORE, small_query()).await.unwrap()).await,
            Code::Ok
        );
    });
    assert!(rejections(program.http, "request_body_ms") >= 2.0);
}

#[test]
fn no_connection_takes_the_last_places() {
    let program = LoggedProcess::serve(&["--calls", "16", "--streams", "8"]);
    let info = program.connect().get_server_info(pb::GetServerInfoRequest {}).unwrap();
    let revision = info.revision.unwrap();
    let never = pb::Revision {
        number: revision.number + 1_000,
        ..revision
    };
    let waiting = pb::ScoreRequest {
        against: Some(latest_ref(never, 2_000)),
        tasks: vec![hypothetical_task(&[("cpu", "1")])],
        ..pb::ScoreRequest::default()
    };
    let waiting = framed(&waiting.encode_to_vec());
    runtime().block_on(async {
        let connection = HostileConnection::open(program.grpc, 1 << 20).await;
        let mut held = Vec::new();
        for _ in 0..32 {
            held.push(connection.ask(SCORE, waiting.clone()).await.unwrap());
        }
        let mut streams = Vec::new();
        for _ in 0..16 {
            streams.push(connection.call(SYNC).await.unwrap());
        }
        for limit in ["calls", "streams"] {
            until("the places are taken", || rejections(program.http, limit) >= 1.0);
        }
        assert_eq!(other_caller(program.grpc).await, Code::Ok);
        let other = HostileConnection::open(program.grpc, 1 << 20).await;
        let mut sync = other.call(SYNC).await.unwrap();
        sync.body.send_data(Vec::new().into(), true).unwrap();
        assert_eq!(code(sync.response).await, Code::Ok);
    });
}

#[test]
fn bodies_that_stall_hold_a_bounded_number_of_bytes_and_give_way() {
    let limits = [
        "--request-bytes",
        "2Mi",
        "--message-bytes",
        "8Mi",
        "--connection-message-bytes",
        "4Mi",
    ];
    let program = LoggedProcess::serve(&limits);
    let body = framed(&vec![0x0a; 1 << 20]);
    runtime().block_on(async {
        let mut held = Vec::new();
        for _ in 0..4 {
            let connection = HostileConnection::open(program.grpc, 1 << 20).await;
            for _ in 0..6 {
                let mut call = connection.call(APPLY).await.unwrap();
                call.send(body[..body.len() - 1].to_vec());
                held.push((call, connection.call(SCORE).await.unwrap()));
            }
        }
        until("the budget is spent", || {
            // On a busy machine bodies of others give way before one connection has its share.
            let limits = ["connection_message_bytes", "message_bytes"];
            limits.iter().any(|limit| rejections(program.http, limit) >= 1.0)
        });
        tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
        // Another caller's large request comes through, because the oldest of the stalled ones give way.
        let connection = HostileConnection::open(program.grpc, 1 << 20).await;
        let whole = connection.ask(APPLY, body.clone()).await.unwrap();
        assert_eq!(
            code(whole).await,
            Code::InvalidArgument,
            "it was read whole, and is no batch"
        );
    });
}

#[test]
fn a_request_is_refused_by_its_announced_length() {
    let program = LoggedProcess::serve(&[]);
    runtime().block_on(async {
        let connection = HostileConnection::open(program.grpc, 1 << 20).await;
        for path in [SCORE, SYNC] {
            let mut call = connection.call(path).await.unwrap();
            call.send(vec![0, 0xff, 0xff, 0xff, 0xff]);
            assert_eq!(code(call.response).await, Code::ResourceExhausted, "{path}");
        }
    });
}
