//! Callers with streams that never end, stall or say nothing, and with odd deadlines.

use std::time::Duration;

use prost::Message;
use pumice::server::pb;
use tonic::Code;

use super::broken_calls::assert_no_server_error;
use super::transport::{
    HostileConnection, OpenCall, PATIENCE, SCORE, code, framed, other_caller, rejections, runtime, small_query,
};
use crate::support::records::full_sync;
use crate::support::{cluster, metric_value, program::LoggedProcess, until};

const SYNC: &str = "/pumice.v1.StateService/Sync";
const CHECK: &str = "/grpc.health.v1.Health/Check";
const WATCH: &str = "/grpc.health.v1.Health/Watch";
const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";

/// Whole request of a health watch; its response has no end.
async fn watch(connection: &HostileConnection) -> OpenCall {
    let mut call = connection.call(WATCH).await.unwrap();
    call.body.send_data(framed(&[]).into(), true).unwrap();
    call
}

/// Batch of one source, as a stream's only message.
fn batch() -> Vec<u8> {
    framed(
        &pb::SyncRequest {
            batch: Some(full_sync("a", 1, cluster(10))),
        }
        .encode_to_vec(),
    )
}

/// Code of a whole stream of one batch, which may be refused before its batch is taken.
async fn sync(connection: &HostileConnection) -> Code {
    let mut call = connection.call(SYNC).await.unwrap();
    let _ = call.body.send_data(batch().into(), true);
    code(call.response).await
}

#[test]
fn silent_streams_give_way_to_a_caller_who_has_none() {
    let program = LoggedProcess::serve(&["--streams", "16"]);
    runtime().block_on(async {
        let mut held = Vec::new();
        for _ in 0..16 {
            let connection = HostileConnection::open(program.grpc, 1 << 20).await;
            let call = watch(&connection).await;
            held.push((call, connection));
        }
        let source = HostileConnection::open(program.grpc, 1 << 20).await;
        let mut answered = sync(&source).await;
        assert!(
            matches!(answered, Code::ResourceExhausted | Code::Ok),
            "{answered:?}: at first no stream is silent for long"
        );
        let begun = tokio::time::Instant::now();
        while answered != Code::Ok && begun.elapsed() < PATIENCE {
            tokio::time::sleep(Duration::from_millis(500)).await;
            answered = sync(&source).await;
        }
        assert_eq!(answered, Code::Ok, "one of the silent ones makes room");
        let closed = held.iter().filter(|(_, connection)| connection.driver.is_finished());
        assert_eq!(closed.count(), 1, "and no other");
    });
    assert!(rejections(program.http, "streams") >= 1.0);
    assert_no_server_error(&program);
}

#[test]
fn watches_of_one_connection_leave_places_for_others() {
    let program = LoggedProcess::serve(&["--stalled-ms", "1000"]);
    runtime().block_on(async {
        for window in [1 << 20, 0] {
            let connection = HostileConnection::open(program.grpc, window).await;
            let mut held = Vec::new();
            for _ in 0..250 {
                held.push(watch(&connection).await);
            }
            let other = HostileConnection::open(program.grpc, 1 << 20).await;
            let mut healthy = watch(&other).await;
            let answered = tokio::time::timeout(PATIENCE, &mut healthy.response).await.unwrap();
            assert!(answered.is_ok_and(|response| !response.headers().contains_key("grpc-status")));
            assert_eq!(code(other.ask(CHECK, framed(&[])).await.unwrap()).await, Code::Ok);
            assert_eq!(sync(&other).await, Code::Ok);
            assert_eq!(other_caller(program.grpc).await, Code::Ok);
            if window == 0 {
                let ended = tokio::time::timeout(PATIENCE, connection.driver).await;
                assert!(ended.is_ok(), "nobody takes its responses");
            }
        }
    });
    assert!(rejections(program.http, "connection_streams") >= 1.0);
    assert_no_server_error(&program);
}

#[test]
fn a_storm_of_reflection_leaves_the_rest_alone() {
    let program = LoggedProcess::serve(&[]);
    // List all services, and the file of one.
    let list = framed(&[0x3a, 0x00]);
    let of_symbol = framed(&[&[0x22, 25], &b"pumice.v1.DecisionService"[..]].concat());
    runtime().block_on(async {
        let storm = HostileConnection::open(program.grpc, 1 << 20).await;
        let mut held = Vec::new();
        for _ in 0..200 {
            let mut call = storm.call(REFLECTION).await.unwrap();
            for _ in 0..50 {
                call.send([&*list, &*of_symbol].concat());
            }
            held.push(call);
        }
        assert_eq!(other_caller(program.grpc).await, Code::Ok);
        let other = HostileConnection::open(program.grpc, 1 << 20).await;
        assert_eq!(code(other.ask(REFLECTION, list.clone()).await.unwrap()).await, Code::Ok);
        assert_eq!(sync(&other).await, Code::Ok);
    });
    assert_no_server_error(&program);
}

#[test]
fn streams_that_stop_in_the_middle_are_errors_of_their_callers() {
    let program = LoggedProcess::serve(&["--request-body-ms", "300"]);
    runtime().block_on(async {
        let connection = HostileConnection::open(program.grpc, 1 << 20).await;
        let (whole, half) = (batch(), batch()[..200].to_vec());
        // A stream that says nothing is no fault, and ends when its caller ends it.
        assert_eq!(code(connection.ask(SYNC, Vec::new()).await.unwrap()).await, Code::Ok);
        let cut = connection.ask(SYNC, [&*whole, &*half].concat()).await.unwrap();
        assert_eq!(
            code(cut).await,
            Code::InvalidArgument,
            "half closed in the middle of a batch"
        );
        let mut stalled = connection.call(SYNC).await.unwrap();
        stalled.send([&*whole, &*half].concat());
        assert_eq!(code(stalled.response).await, Code::ResourceExhausted, "it stalls");
        let mut reset = connection.call(SYNC).await.unwrap();
        reset.send(half);
        reset.body.send_reset(h2::Reason::CANCEL);
        assert_eq!(
            code(connection.ask(SCORE, small_query()).await.unwrap()).await,
            Code::Ok
        );
    });
    assert!(rejections(program.http, "request_body_ms") >= 1.0);
    assert_no_server_error(&program);
}

#[test]
fn a_deadline_is_held_or_ignored_and_breaks_nothing() {
    let program = LoggedProcess::serve(&[]);
    let past = ["0n", "0S", "0H", "00000000m", "1n"];
    let long = ["99999999H", "99999999M", "1H", "00000009S"];
    let unreadable = [
        "",
        "S",
        "-1S",
        "+1S",
        "1x",
        "1.5S",
        "123456789S",
        "18446744073709551616n",
        "\u{e9}S",
        "1 S",
    ];
    runtime().block_on(async {
        let connection = HostileConnection::open(program.grpc, 1 << 20).await;
        let ask = async |path: &str, timeout: &str, body: Vec<u8>| {
            let mut call = connection.call_with(path, &[("grpc-timeout", timeout)]).await.unwrap();
            // A call that is over before its body is there takes none.
            let _ = call.body.send_data(body.into(), true);
            code(call.response).await
        };
        for timeout in past {
            let answered = ask(SCORE, timeout, small_query()).await;
            // What is there at once is sent all the same.
            let is_held = matches!(answered, Code::DeadlineExceeded | Code::Cancelled | Code::Ok);
            assert!(is_held, "{timeout}: {answered:?}");
        }
        for timeout in long.into_iter().chain(unreadable) {
            assert_eq!(ask(SCORE, timeout, small_query()).await, Code::Ok, "{timeout:?}");
            assert_eq!(ask(SYNC, timeout, batch()).await, Code::Ok, "{timeout:?}");
        }
        assert_eq!(other_caller(program.grpc).await, Code::Ok);
    });
    assert_no_server_error(&program);
}

#[test]
fn a_stream_counts_by_the_code_with_which_it_ends() {
    let program = LoggedProcess::serve(&["--connection-streams", "8"]);
    let http = program.http;
    let counted = |code: &str| {
        let series = format!("pumice_calls_total{{rpc=\"Sync\",code=\"{code}\"}}");
        metric_value(http, &series)
    };
    runtime().block_on(async {
        let connection = HostileConnection::open(program.grpc, 1 << 20).await;
        let mut whole = connection.call(SYNC).await.unwrap();
        whole.send(batch());
        let response = (&mut whole.response).await.unwrap();
        let mut body = response.into_body();
        assert!(body.data().await.unwrap().is_ok());
        assert_eq!(counted("OK"), 0.0, "it is under way");
        whole.body.send_data(Vec::new().into(), true).unwrap();
        assert!(body.trailers().await.unwrap().is_some());
        assert_eq!(counted("OK"), 1.0);

        let cut = [batch(), batch()[..200].to_vec()].concat();
        let cut = connection.ask(SYNC, cut).await.unwrap();
        assert_eq!(code(cut).await, Code::InvalidArgument);
        assert_eq!(counted("INVALID_ARGUMENT"), 1.0, "its first batch was taken");

        let mut left = connection.call(SYNC).await.unwrap();
        left.send(batch());
        assert_eq!((&mut left.response).await.unwrap().status(), 200);
        left.body.send_reset(h2::Reason::CANCEL);
        until("its caller has left", || counted("CANCELLED") >= 1.0);

        let mut late = connection.call_with(SYNC, &[("grpc-timeout", "200m")]).await.unwrap();
        late.send(batch());
        tokio::time::sleep(Duration::from_millis(400)).await;
        // The server may have ended it by then.
        late.body.send_reset(h2::Reason::CANCEL);
        until("its deadline has passed", || counted("DEADLINE_EXCEEDED") >= 1.0);

        let (mut held, mut refused) = (Vec::new(), 0.0);
        for _ in 0..9 {
            let mut call = connection.call(SYNC).await.unwrap();
            let response = (&mut call.response).await.unwrap();
            match response.headers().get("grpc-status") {
                None => held.push((call, response)),
                Some(status) => {
                    assert_eq!(Code::from_bytes(status.as_bytes()), Code::ResourceExhausted);
                    refused += 1.0;
                }
            }
        }
        // Streams that ended may have their places for a moment more.
        assert!(refused >= 1.0, "the limit is eight");
        assert_eq!(counted("RESOURCE_EXHAUSTED"), refused);
        let before = counted("CANCELLED");
        drop(connection);
        let left = f64::from(u32::try_from(held.len()).unwrap());
        drop(held);
        until("the others have left", || counted("CANCELLED") >= before + left);
    });
    assert_eq!(
        counted("OK") + counted("INVALID_ARGUMENT") + counted("DEADLINE_EXCEEDED"),
        3.0
    );
    assert!(rejections(program.http, "connection_streams") >= 1.0);
    assert_no_server_error(&program);
}
