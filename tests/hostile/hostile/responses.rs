//! Callers who ask and do not take the responses.

use prost::Message;
use pumice::server::pb;
use tonic::Code;

use super::transport::{HostileConnection, PATIENCE, SCORE, code, framed, other_caller, rejections, runtime};
use crate::support::records::{full_sync, hypothetical_task};
use crate::support::{cluster, metric_value, program::LoggedProcess, until};

const LIST: &str = "/pumice.v1.StateService/ListNodes";

/// Server with 2,000 nodes, whose list takes some 200 KiB.
fn serve(limits: &[&str]) -> (LoggedProcess, Vec<u8>) {
    let program = LoggedProcess::serve(limits);
    let applied = program.connect().apply_batch(full_sync("a", 1, cluster(2_000)));
    assert!(applied.is_ok());
    let all = pb::ListNodesRequest {
        page: Some(pb::Page {
            size: 2_000,
            ..pb::Page::default()
        }),
        ..pb::ListNodesRequest::default()
    };
    (program, framed(&all.encode_to_vec()))
}

#[test]
fn a_response_behind_a_closed_window_costs_its_caller_the_connection() {
    let (program, list) = serve(&["--stalled-ms", "300"]);
    for window in [0, 1, 70_000] {
        runtime().block_on(async {
            let connection = HostileConnection::open(program.grpc, window).await;
            let _untaken = connection.ask(LIST, list.clone()).await.unwrap();
            let ended = tokio::time::timeout(PATIENCE, connection.driver).await;
            assert!(ended.is_ok(), "window {window}: the connection stays");
            assert_eq!(other_caller(program.grpc).await, Code::Ok);
        });
    }
    assert!(rejections(program.http, "stalled_ms") >= 3.0);
}

#[test]
fn responses_that_nobody_takes_hold_a_bounded_number_of_bytes_and_give_way() {
    // All lists are made, however slow the machine.
    let (program, list) = serve(&["--message-bytes", "1Mi", "--worker-wait-ms", "60000"]);
    runtime().block_on(async {
        let mut held = Vec::new();
        for _ in 0..4 {
            let connection = HostileConnection::open(program.grpc, 0).await;
            for _ in 0..8 {
                held.push(connection.ask(LIST, list.clone()).await.unwrap());
            }
            held.push(connection.ask(LIST, list.clone()).await.unwrap());
        }
        until("the budget is spent", || {
            rejections(program.http, "message_bytes") >= 1.0
        });
        assert_eq!(
            other_caller(program.grpc).await,
            Code::Ok,
            "small responses have their part"
        );
        // After some time the stalled responses give way to large ones of others.
        let other = HostileConnection::open(program.grpc, 1 << 20).await;
        let mut answered = Code::Unknown;
        for _ in 0..100 {
            answered = code(other.ask(LIST, list.clone()).await.unwrap()).await;
            if answered == Code::Ok {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        assert_eq!(answered, Code::Ok);
    });
}

#[test]
fn a_response_without_room_is_refused_before_its_evaluation() {
    let room = [
        "--message-bytes",
        "4Mi",
        "--connection-message-bytes",
        "4Mi",
        "--response-bytes",
        "4Mi",
    ];
    let (program, _) = serve(&room);
    let tasks = (0..200).map(|number| hypothetical_task(&[("cpu", &format!("{}m", number + 1))]));
    let large = pb::ScoreRequest {
        tasks: tasks.collect(),
        node_encoding: pb::NodeEncoding::Slots.into(),
        ..pb::ScoreRequest::default()
    };
    let evaluated = || {
        let asked = metric_value(program.http, "pumice_decided_tasks_total{rpc=\"Score\"}");
        asked / 200.0
    };
    runtime().block_on(async {
        let holder = HostileConnection::open(program.grpc, 0).await;
        let _held = holder.ask(SCORE, framed(&large.encode_to_vec())).await.unwrap();
        until("it is evaluated", || evaluated() >= 1.0);
        let other = HostileConnection::open(program.grpc, 1 << 20).await;
        let second = other.ask(SCORE, framed(&large.encode_to_vec())).await.unwrap();
        assert_eq!(code(second).await, Code::ResourceExhausted);
        assert!(evaluated() < 1.1, "the large one, which nobody takes");
        // Of these all nodes may be rejected, so that nobody knows the bytes before.
        let none_fits = pb::ScoreRequest {
            tasks: (0..200)
                .map(|number| hypothetical_task(&[("cpu", &format!("{}k", number + 1))]))
                .collect(),
            with_filter: true,
            ..large
        };
        let filtered = other.ask(SCORE, framed(&none_fits.encode_to_vec())).await.unwrap();
        assert_eq!(code(filtered).await, Code::Ok);
    });
    assert!(rejections(program.http, "message_bytes") >= 1.0);
}

#[test]
fn a_slow_reader_gets_all_of_its_response() {
    let (program, list) = serve(&["--stalled-ms", "2000"]);
    runtime().block_on(async {
        let connection = HostileConnection::open(program.grpc, 30_000).await;
        let response = connection.ask(LIST, list).await.unwrap().await.unwrap();
        let (mut body, mut bytes) = (response.into_body(), Vec::new());
        while let Some(data) = body.data().await {
            let data = data.unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            body.flow_control().release_capacity(data.len()).unwrap();
            bytes.extend_from_slice(&data);
        }
        let listed = pb::ListNodesResponse::decode(&bytes[5..]).unwrap();
        assert_eq!(listed.nodes.len(), 2_000);
    });
}
