//! Overloaded server: small requests, health checks and rejections still get through, and no call hangs forever.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use pumice::config::ServerConfig;
use pumice::server::pb;
use pumice::server::pb::DecisionServiceClient;
use pumice::server::pb::StateServiceClient;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt as _;

use super::program::LoggedProcess;
use super::{cluster, limit_of, metric_value, score_request, until};
use crate::support::EmbeddedServer;
use crate::support::records::full_sync;
use crate::support::wire::BlockingClients;

const RUNNING: &str = "pumice_workers_busy{kind=\"query\"}";
/// Number of tasks that occupy a worker for longer than any test waits, unless they are cancelled.
const ENDLESS: usize = 9_000;
const NODES: usize = 10_000;

fn loaded(work: usize, worker_queue: usize) -> EmbeddedServer {
    let mut config = ServerConfig::on_free_ports();
    (config.limits.edge.workers, config.limits.edge.worker_queue) = (work, worker_queue);
    let server = EmbeddedServer::with(config);
    server.wire.apply_batch(full_sync("a", 1, cluster(NODES))).unwrap();
    server
}

/// Small request: one task on a few nodes.
fn small() -> pb::ScoreRequest {
    let names = (0..8).map(|number| format!("n{number:05}")).collect();
    pb::ScoreRequest {
        candidates: Some(pb::NodeSet {
            names,
            ..pb::NodeSet::default()
        }),
        ..score_request(1)
    }
}

/// Thread that sends requests until it is stopped or gets a reply.
fn asking(
    wire: &BlockingClients,
    asked: pb::ScoreRequest,
) -> (oneshot::Sender<()>, std::thread::JoinHandle<Option<Code>>) {
    let (stop, stopped) = oneshot::channel::<()>();
    let wire = wire.clone();
    let thread = std::thread::spawn(move || {
        let mut client = DecisionServiceClient::new(wire.channel());
        wire.wait(async {
            tokio::select! {
                result = client.score(asked) => Some(result.map_or_else(|status| status.code(), |_| Code::Ok)),
                _ = stopped => None,
            }
        })
    });
    (stop, thread)
}

fn healthy(wire: &BlockingClients) -> bool {
    let mut client = HealthClient::new(wire.channel());
    let result = wire.wait(client.check(HealthCheckRequest::default()));
    result.unwrap().into_inner().status == 1
}

fn assert_retryable(status: &Status, limit: &str) {
    assert_eq!(
        (status.code(), limit_of(status).as_str()),
        (Code::ResourceExhausted, limit),
        "{status:?}"
    );
    let retry = status.get_details_retry_info().and_then(|info| info.retry_delay);
    assert!(retry.is_some_and(|delay| !delay.is_zero()), "{status:?}");
}

#[test]
fn excess_large_queries_are_rejected_and_cancelled_with_their_caller() {
    let server = loaded(1, 0);
    let (stop, large) = asking(&server.wire, score_request(ENDLESS));
    until("the large question runs", || metric_value(server.http, RUNNING) == 1.0);
    let refused = server.wire.score(score_request(ENDLESS)).unwrap_err();
    assert_retryable(&refused, "worker_queue");
    assert!(healthy(&server.wire));
    server.wire.score(small()).unwrap();
    // Listings and batches have workers of their own.
    assert_eq!(
        server
            .wire
            .list_nodes(pb::ListNodesRequest::default())
            .unwrap()
            .nodes
            .len(),
        500
    );
    server.wire.apply_batch(full_sync("b", 1, cluster(300))).unwrap();

    stop.send(()).unwrap();
    assert_eq!(large.join().unwrap(), None);
    until("the work is given up", || metric_value(server.http, RUNNING) == 0.0);
    // Only the small request was ever judged to its end.
    assert_eq!(
        metric_value(server.http, "pumice_decided_tasks_total{rpc=\"Score\"}"),
        1.0
    );
    assert_eq!(
        metric_value(server.http, "pumice_calls_total{rpc=\"Score\",code=\"CANCELLED\"}"),
        1.0
    );
}

#[test]
fn a_deadline_ends_the_work() {
    let server = loaded(1, 0);
    let mut asked = Request::new(score_request(ENDLESS));
    asked.metadata_mut().insert("grpc-timeout", "300m".parse().unwrap());
    let mut client = DecisionServiceClient::new(server.wire.channel());
    let late = server.wire.wait(client.score(asked)).unwrap_err();
    // The client's own clock may be the first to notice.
    assert!(
        matches!(late.code(), Code::DeadlineExceeded | Code::Cancelled),
        "{late:?}"
    );
    let ended = |code: &str| {
        metric_value(
            server.http,
            &format!("pumice_calls_total{{rpc=\"Score\",code=\"{code}\"}}"),
        )
    };
    until("it is counted", || {
        ended("DEADLINE_EXCEEDED") + ended("CANCELLED") == 1.0
    });
    until("the work is given up", || metric_value(server.http, RUNNING) == 0.0);
    assert_eq!(
        metric_value(server.http, "pumice_decided_tasks_total{rpc=\"Score\"}"),
        0.0
    );
}

#[test]
fn small_queries_finish_while_large_ones_run() {
    let mut config = ServerConfig::on_free_ports();
    let edge = &mut config.limits.edge;
    (edge.workers, edge.worker_queue) = (1, 8);
    // The large ones last, and wait for each other, longer than the small ones take on the busiest machine.
    edge.worker_wait = Duration::from_hours(1);
    (edge.tasks, edge.pairs) = (5 * ENDLESS, usize::MAX);
    let server = EmbeddedServer::with(config);
    server.wire.apply_batch(full_sync("a", 1, cluster(NODES))).unwrap();
    let measure = |count: usize| {
        let mut times: Vec<Duration> = (0..count)
            .map(|_| {
                let start = Instant::now();
                server.wire.score(small()).unwrap();
                start.elapsed()
            })
            .collect();
        times.sort_unstable();
        (times[count / 2], times[count * 99 / 100])
    };
    let quiet = measure(300);
    let large: Vec<_> = (0..3)
        .map(|_| asking(&server.connect(), score_request(5 * ENDLESS)))
        .collect();
    until("a large question runs", || metric_value(server.http, RUNNING) == 1.0);
    let busy = measure(100);
    assert_eq!(metric_value(server.http, RUNNING), 1.0, "it still runs");
    // Every small request came through before any large one.
    let ended = large.into_iter().map(|(stop, thread)| {
        let ended = thread.is_finished();
        drop(stop);
        thread.join().unwrap().filter(|_| ended)
    });
    assert_eq!(ended.collect::<Vec<_>>(), [None; 3]);
    // Printed for people; not a bound.
    let shown = format!("small questions, p50 and p99: {quiet:?} alone, {busy:?} beside large ones (debug build)");
    writeln!(std::io::stdout(), "{shown}").unwrap();
}

#[test]
fn calls_and_streams_are_bounded_and_health_checks_still_succeed() {
    let mut config = ServerConfig::on_free_ports();
    (config.limits.edge.calls, config.limits.edge.streams) = (2, 2);
    let server = EmbeddedServer::with(config);
    let wire = server.connect();
    let open = || {
        let (sender, receiver) = tokio::sync::mpsc::channel::<pb::SyncRequest>(1);
        let mut client = StateServiceClient::new(wire.channel());
        let results = wire.wait(client.sync(tokio_stream::wrappers::ReceiverStream::new(receiver)));
        results.map(|results| (sender, results))
    };
    let streams: Vec<_> = (0..2).map(|_| open().unwrap()).collect();
    assert_retryable(&open().unwrap_err(), "streams");
    wire.score(score_request(1)).unwrap();
    assert!(healthy(&wire));
    drop(streams);
    until("the streams are over", || open().is_ok());
}

#[test]
fn half_open_connections_and_readers_that_do_not_read_are_closed() {
    let mut config = ServerConfig::on_free_ports();
    config.limits.edge.keepalive_timeout = Duration::from_millis(100);
    config.limits.edge.stalled = Duration::from_millis(100);
    let server = EmbeddedServer::with(config);
    // This connection is silent: nobody would ever know whether its client lives.
    let mut silent = TcpStream::connect(server.grpc).unwrap();
    silent.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    let end = silent.read_to_end(&mut Vec::new());
    assert!(
        end.map_or_else(|error| error.kind() != ErrorKind::WouldBlock, |_| true),
        "it was kept"
    );

    // This connection sends request after request, and takes no response.
    let mut deaf = TcpStream::connect(server.http).unwrap();
    deaf.set_write_timeout(Some(Duration::from_mins(1))).unwrap();
    let ask = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".repeat(64);
    let error = loop {
        if let Err(error) = deaf.write_all(&ask) {
            break error;
        }
    };
    assert_ne!(error.kind(), ErrorKind::WouldBlock, "it was left to wait");
}

fn is_connection_rejected(address: SocketAddr) -> bool {
    TcpStream::connect(address).is_err()
}

#[test]
fn a_stopping_server_says_so_finishes_and_ends() {
    let mut program = LoggedProcess::serve(&["--drain-delay-ms", "300"]);
    let wire = program.connect();
    wire.apply_batch(full_sync("a", 1, cluster(1_000))).unwrap();
    let mut client = HealthClient::new(wire.channel());
    let mut health = wire
        .wait(client.watch(HealthCheckRequest::default()))
        .unwrap()
        .into_inner();
    assert_eq!(wire.wait(health.message()).unwrap().unwrap().status, 1);
    let (_stop, under_way) = asking(&wire, score_request(3_000));
    until("the question runs", || metric_value(program.http, RUNNING) == 1.0);
    program.signal("TERM");
    assert_eq!(wire.wait(health.message()).unwrap().unwrap().status, 2);
    drop(health);
    assert_eq!(under_way.join().unwrap(), Some(Code::Ok));
    until("nobody is let in", || is_connection_rejected(program.grpc));
    assert!(program.end().success());
    let said: Vec<_> = program.log().iter().map(|line| line["message"].clone()).collect();
    assert!(
        said.contains(&"draining".into()) && said.contains(&"stopped".into()),
        "{said:?}"
    );
}

#[test]
fn what_is_not_finished_at_the_deadline_is_cut() {
    let mut program = LoggedProcess::serve(&["--drain-deadline-ms", "100"]);
    let wire = program.connect();
    wire.apply_batch(full_sync("a", 1, cluster(NODES))).unwrap();
    let (_stop, under_way) = asking(&wire, score_request(ENDLESS));
    until("the question runs", || metric_value(program.http, RUNNING) == 1.0);
    program.signal("TERM");
    assert!(program.end().success());
    assert!(under_way.join().unwrap().is_some_and(|code| code != Code::Ok));
}
