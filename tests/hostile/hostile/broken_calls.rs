//! Calls that break the protocol: the fault is the caller's, in the code, in the log and in the metrics.

use pumice::server::pb;
use tonic::{Code, Status};

use super::transport::{APPLY, HostileConnection, SCORE, code, framed, runtime, small_query};
use crate::support::records::{full_sync, hypothetical_task, job};
use crate::support::wire::BlockingClients;
use crate::support::{fetch, program::LoggedProcess, until};

const SYNC: &str = "/pumice.v1.StateService/Sync";
const HEALTH: &str = "/grpc.health.v1.Health/Check";
const WATCH: &str = "/grpc.health.v1.Health/Watch";
const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
const FORMER_REFLECTION: &str = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";

/// `name`: path, body.
fn broken_calls() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let not_text = [0x0a, 0x03, 0x0a, 0x01, 0xff];
    let mut half = small_query();
    half.truncate(half.len() - 3);
    let mut twice = small_query();
    twice.extend(small_query());
    let mut compressed = small_query();
    compressed[0] = 1;
    let mut unknown_flag = small_query();
    unknown_flag[0] = 7;
    vec![
        ("garbage", SCORE, framed(&[0xff; 64])),
        ("garbage in a batch", APPLY, framed(&[0x0f; 64])),
        ("no text", APPLY, framed(&not_text)),
        ("half a message", SCORE, half.clone()),
        ("half a prefix", SCORE, vec![0, 0]),
        ("no message", SCORE, Vec::new()),
        ("two messages", SCORE, twice),
        ("a flag without compression", SCORE, compressed),
        ("an unknown flag", SCORE, unknown_flag),
        ("garbage in a stream", SYNC, framed(&[0xff; 64])),
        ("half a message in a stream", SYNC, half.clone()),
        ("garbage for reflection", REFLECTION, framed(&[0xff; 64])),
        ("half a message for reflection", REFLECTION, half),
        (
            "garbage for the former reflection",
            FORMER_REFLECTION,
            framed(&[0xff; 64]),
        ),
        ("garbage for a watched health check", WATCH, framed(&[0xff; 64])),
        ("garbage for a health check", HEALTH, framed(&[0xff; 64])),
    ]
}

pub(super) fn assert_no_server_error(program: &LoggedProcess) {
    let (_, page) = fetch(program.http, "/metrics");
    let counts = page
        .lines()
        .filter(|line| line.starts_with("pumice_server_errors_total") || line.starts_with("pumice_panics_total"));
    for count in counts {
        assert!(count.ends_with(" 0"), "{count}");
    }
    let errors: Vec<_> = program
        .log()
        .into_iter()
        .filter(|line| line["level"] == "ERROR")
        .collect();
    assert_eq!(errors, Vec::<serde_json::Value>::new());
}

#[test]
fn a_broken_call_is_an_error_of_its_caller() {
    let program = LoggedProcess::serve(&[]);
    runtime().block_on(async {
        let connection = HostileConnection::open(program.grpc, 1 << 20).await;
        for (what, path, body) in broken_calls() {
            let answered = code(connection.ask(path, body).await.unwrap()).await;
            assert_eq!(answered, Code::InvalidArgument, "{what}");
        }
    });
    assert_no_server_error(&program);
}

#[test]
fn a_caller_who_goes_while_sending_has_cancelled() {
    let program = LoggedProcess::serve(&[]);
    let half = framed(&[0x0a; 1_000])[..500].to_vec();
    runtime().block_on(async {
        let reset = HostileConnection::open(program.grpc, 1 << 20).await;
        let mut call = reset.call(SCORE).await.unwrap();
        call.send(half.clone());
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        call.body.send_reset(h2::Reason::INTERNAL_ERROR);
        let gone = HostileConnection::open(program.grpc, 1 << 20).await;
        let mut call = gone.call(SCORE).await.unwrap();
        call.send(half);
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        gone.driver.abort();
    });
    until("both are counted", || {
        let (_, page) = fetch(program.http, "/metrics");
        page.contains("pumice_calls_total{rpc=\"Score\",code=\"CANCELLED\"} 2")
    });
    assert_no_server_error(&program);
}

/// Codes of calls that carry this duration, or the same as a time.
fn codes_of_times(wire: &BlockingClients, seconds: i64, nanos: i32, sequence: u64) -> [Option<Code>; 3] {
    let duration = Some(prost_types::Duration { seconds, nanos });
    let creation_time = Some(prost_types::Timestamp { seconds, nanos });
    let latest = pb::LatestRef {
        max_wait: duration,
        ..pb::LatestRef::default()
    };
    let task = pb::Task {
        creation_time,
        ..hypothetical_task(&[("cpu", &seconds.to_string())])
    };
    let score = wire.score(pb::ScoreRequest {
        against: Some(pb::EvaluationRef {
            target: Some(pb::evaluation_ref::Target::Latest(latest)),
            ..pb::EvaluationRef::default()
        }),
        tasks: vec![task],
        ..pb::ScoreRequest::default()
    });
    let session = wire.open_session(pb::OpenSessionRequest {
        lease: duration,
        ..pb::OpenSessionRequest::default()
    });
    let job = pb::Job {
        creation_time,
        min_member: i32::MIN,
        priority: i32::MAX,
        ..job("j", "q")
    };
    let jobs = pb::Cluster {
        jobs: vec![job],
        ..pb::Cluster::default()
    };
    let batch = pb::Batch {
        source_epoch: u64::MAX,
        ..full_sync("s", sequence, jobs)
    };
    let code = |status: Status| status.code();
    [
        score.err().map(code),
        session.err().map(code),
        wire.apply_batch(batch).err().map(code),
    ]
}

#[test]
fn no_time_and_no_number_of_a_caller_ends_in_a_panic() {
    let program = LoggedProcess::serve(&[]);
    let wire = program.connect();
    let server_errors = [Some(Code::Internal), Some(Code::Unknown), Some(Code::Cancelled)];
    let mut sequence = 0;
    for seconds in [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX] {
        for nanos in [i32::MIN, -1, 0, i32::MAX] {
            sequence += 1;
            let codes = codes_of_times(&wire, seconds, nanos, sequence);
            let faulty = codes.iter().any(|code| server_errors.contains(code));
            assert!(!faulty, "{seconds} {nanos}: {codes:?}");
        }
    }
    runtime().block_on(async {
        let connection = HostileConnection::open(program.grpc, 1 << 20).await;
        for timeout in ["99999999H", "0n", "1é", "-1S", "18446744073709551616S"] {
            let mut call = connection.call_with(SCORE, &[("grpc-timeout", timeout)]).await.unwrap();
            call.body.send_data(small_query().into(), true).unwrap();
            let answered = code(call.response).await;
            assert!(
                [Code::Ok, Code::DeadlineExceeded, Code::InvalidArgument, Code::Cancelled].contains(&answered),
                "{timeout}: {answered:?}"
            );
        }
    });
    assert_no_server_error(&program);
}
