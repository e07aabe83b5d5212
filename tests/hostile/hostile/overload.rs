//! More large questions than the server can evaluate, and many large messages at once.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use prost::Message;
use pumice::server::pb;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::transport::{
    APPLY, HostileConnection, PATIENCE, SCORE, code, framed, other_caller, probe, rejections, runtime, scale,
};
use crate::support::records::{full_sync, task};
use crate::support::{cluster, program::LoggedProcess, reported_limits, score_request};

const RELOAD: &str = "/pumice.v1.PolicyService/ReloadPolicy";
const HEALTH: &str = "/grpc.health.v1.Health/Check";

/// Result of one call.
struct CallResult {
    /// Time since the load began.
    at: Duration,
    took: Duration,
    status: Status,
}

impl CallResult {
    fn is_accepted(&self) -> bool {
        self.status.code() == Code::Ok
    }

    /// Delay after which a refused caller may come back.
    fn retry(&self) -> Option<Duration> {
        self.status.get_details_retry_info()?.retry_delay
    }
}

/// Server with many nodes, and some connections to it.
struct LoadedServer {
    program: LoggedProcess,
    connections: Vec<HostileConnection>,
    query: Bytes,
    workers: usize,
    begun: Instant,
}

/// Calls of many callers for some time.
#[derive(Clone, Copy)]
enum Callers {
    /// Callers that ask again when they are answered; refused ones as soon as they may.
    Patient(usize),
    /// Callers that ask again at once, whatever the result was.
    Hammering(usize),
    /// Calls at this interval, whatever becomes of those before.
    Endless(Duration),
}

impl LoadedServer {
    fn serve(runtime: &Runtime, flags: &[&str], nodes: usize, tasks: usize) -> Arc<Self> {
        let program = LoggedProcess::serve(flags);
        let clients = program.connect();
        clients.apply_batch(full_sync("a", 1, cluster(nodes))).unwrap();
        let info = clients.get_server_info(pb::GetServerInfoRequest {}).unwrap();
        let open = || runtime.block_on(HostileConnection::open(program.grpc, 1 << 20));
        Arc::new(Self {
            connections: (0..8).map(|_| open()).collect(),
            program,
            query: framed(&score_request(tasks).encode_to_vec()).into(),
            workers: usize::try_from(reported_limits(&info)["workers"]).unwrap(),
            begun: Instant::now(),
        })
    }

    /// Result of a call of this caller.
    async fn call(&self, caller: usize, path: &str, body: Bytes) -> CallResult {
        self.call_on(&self.connections[caller % self.connections.len()], path, body)
            .await
    }

    async fn call_on(&self, connection: &HostileConnection, path: &str, body: Bytes) -> CallResult {
        let begun = Instant::now();
        let answered = async {
            let response = connection.ask(path, body.to_vec()).await.unwrap().await.unwrap();
            let of_headers = Status::from_header_map(response.headers());
            let mut body = response.into_body();
            while let Some(data) = body.data().await {
                body.flow_control().release_capacity(data.unwrap().len()).unwrap();
            }
            let trailers = body.trailers().await.unwrap();
            let of_trailers = || trailers.as_ref().and_then(Status::from_header_map);
            of_headers.or_else(of_trailers).expect("a status")
        };
        let status = tokio::time::timeout(PATIENCE, answered)
            .await
            .expect("a response in time");
        CallResult {
            at: self.begun.elapsed(),
            took: begun.elapsed(),
            status,
        }
    }

    async fn ask(&self, caller: usize) -> CallResult {
        self.call(caller, SCORE, self.query.clone()).await
    }

    /// Answers to the questions of these callers within this time.
    async fn results(self: &Arc<Self>, callers: Callers, time: Duration) -> Vec<CallResult> {
        let (end, mut tasks) = (Instant::now() + time, JoinSet::new());
        let (count, is_patient) = match callers {
            Callers::Patient(count) => (count, true),
            Callers::Hammering(count) => (count, false),
            Callers::Endless(every) => {
                for number in 0.. {
                    let due = end - time + every * number;
                    if due >= end {
                        break;
                    }
                    sleep_until(due).await;
                    let server = Arc::clone(self);
                    tasks.spawn(async move { vec![server.ask(number as usize).await] });
                }
                (0, true)
            }
        };
        for caller in 0..count {
            let server = Arc::clone(self);
            tasks.spawn(async move {
                let mut results = Vec::new();
                while Instant::now() < end {
                    let result = server.ask(caller).await;
                    let delay = result.retry().filter(|_| is_patient);
                    results.push(result);
                    sleep(delay.unwrap_or_default()).await;
                }
                results
            });
        }
        let mut results: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
        results.sort_by_key(|result| result.at);
        results
    }
}

#[test]
fn under_overload_some_are_answered_and_the_rest_may_come_back_later() {
    let (runtime, flags) = (runtime(), ["--workers", "1", "--worker-wait-ms", "100"]);
    let server = LoadedServer::serve(&runtime, &flags, 2_000, 100);
    runtime.block_on(async {
        let (grpc, http) = (server.program.grpc, server.program.http);
        let load = tokio::spawn({
            let server = Arc::clone(&server);
            async move { server.results(Callers::Hammering(20), Duration::from_secs(4)).await }
        });
        sleep(Duration::from_secs(1)).await;
        for _ in 0..5 {
            assert_eq!(other_caller(grpc).await, Code::Ok, "a small query");
            let answered = tokio::task::spawn_blocking(move || probe(http, "/livez"));
            assert_eq!(answered.await.unwrap(), Some(200));
        }
        let results = load.await.unwrap();
        let (accepted, refused): (Vec<_>, Vec<_>) = results.iter().partition(|result| result.is_accepted());
        assert!(
            accepted.len() > 3 && refused.len() > 50,
            "{} {}",
            accepted.len(),
            refused.len()
        );
        assert!(
            refused
                .iter()
                .all(|result| result.status.code() == Code::ResourceExhausted)
        );
        let delays: Vec<_> = refused
            .iter()
            .map(|result| result.retry().expect("RetryInfo"))
            .collect();
        // On a busy machine the last ones may come when the load is over.
        assert!(delays.iter().max() > delays.first(), "{delays:?}");
        assert!(rejections(http, "worker_wait_ms") >= 1.0);
        // Nobody gains by not waiting: each rejection comes a quarter of a second after the last one, or as late as the retry
        // delay told to wait. The first ones of a connection come at once.
        let begin = refused[0].at + Duration::from_secs(1);
        let late: Vec<_> = refused.iter().filter(|result| result.at > begin).collect();
        let least = late.iter().filter_map(|result| result.retry()).min();
        let pause = least.unwrap_or_default().min(Duration::from_millis(250));
        let most = 20.0 * (3.0 / pause.as_secs_f64() + 1.0) + 8.0 * 9.0;
        assert!(
            (late.len() as f64) < most,
            "{} rejections in three seconds, {pause:?} apart",
            late.len()
        );
        // Whoever comes back when told is answered.
        let mut result = server.ask(0).await;
        for _ in 0..10 {
            let Some(retry) = result.retry() else { break };
            sleep(retry).await;
            result = server.ask(0).await;
        }
        assert!(result.is_accepted(), "{:?}", result.status);
    });
}

#[test]
fn a_burst_and_a_few_callers_for_long_are_not_refused() {
    let (runtime, flags) = (runtime(), ["--workers", "1", "--worker-wait-ms", "60000"]);
    let server = LoadedServer::serve(&runtime, &flags, 1_000, 30);
    runtime.block_on(async {
        let mut burst = JoinSet::new();
        for caller in 0..30 {
            let server = Arc::clone(&server);
            burst.spawn(async move { server.ask(caller).await });
        }
        assert!(burst.join_all().await.iter().all(CallResult::is_accepted));
        let results = server.results(Callers::Patient(4), Duration::from_secs(2)).await;
        assert!(results.iter().all(CallResult::is_accepted));
    });
}

fn shown(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |percent: usize| {
        let time = times.get((times.len() * percent / 100).min(times.len().saturating_sub(1)));
        time.map_or_else(|| "-".to_owned(), |time| format!("{:.1}", time.as_secs_f64() * 1e3))
    };
    format!("{:>8} {:>8} {:>8}", times.len(), at(50), at(99))
}

fn line(out: &mut String, name: &str, results: &[CallResult]) {
    let times = |of: bool| {
        let results = results.iter().filter(|result| result.is_accepted() == of);
        shown(results.map(|result| result.took).collect())
    };
    let retry = results.iter().filter_map(CallResult::retry).max().unwrap_or_default();
    writeln!(
        out,
        "{name:<28} {} {} {:>8}",
        times(true),
        times(false),
        retry.as_millis()
    )
    .unwrap();
}

/// Call of a source that sends 3 MiB; `cpu`: the request of each task.
fn large_batch(caller: usize, cpu: &str) -> Bytes {
    let tasks = (0..1_000).map(|number| {
        let mut task = task(&format!("ns-{caller}/t{number}"), "", &[("cpu", cpu)]);
        task.annotations = [("note".to_owned(), "x".repeat(3_000))].into();
        task
    });
    let put = pb::Cluster {
        tasks: tasks.collect(),
        ..pb::Cluster::default()
    };
    let batch = Some(full_sync(&format!("source-{caller}"), 1, put));
    framed(&pb::ApplyRequest { batch }.encode_to_vec()).into()
}

/// Batch of 3 MiB that is refused as a whole, after it was read: another process feeds its source.
fn refused_batch(caller: usize) -> Bytes {
    let put = pb::ApplyRequest::decode(&large_batch(caller, "1")[5..]).unwrap().batch;
    let batch = put.map(|batch| pb::Batch {
        source_epoch: 0,
        ..batch
    });
    framed(&pb::ApplyRequest { batch }.encode_to_vec()).into()
}

/// Dry reload of a document of 900 KiB.
fn dry_reload(_: usize) -> Bytes {
    let comment = format!("# {}\n", "x".repeat(98));
    let document = format!(
        "actions: allocate\ntiers: [{{plugins: [{{name: binpack}}]}}]\n{}",
        comment.repeat(9_200)
    );
    let reload = pb::ReloadPolicyRequest {
        document,
        dry_run: true,
        ..pb::ReloadPolicyRequest::default()
    };
    framed(&reload.encode_to_vec()).into()
}

/// Callers of a kind, each of which sends the same bytes again and again.
struct LargeCalls {
    name: &'static str,
    callers: usize,
    path: &'static str,
    body: fn(usize) -> Bytes,
}

const LARGE_CALLS: [LargeCalls; 4] = [
    LargeCalls {
        name: "16 callers of 3 MiB batches",
        callers: 16,
        path: APPLY,
        body: |caller| large_batch(caller, "1"),
    },
    LargeCalls {
        name: "16, of refused records",
        callers: 16,
        path: APPLY,
        body: |caller| large_batch(caller, "many"),
    },
    LargeCalls {
        name: "16, of refused batches",
        callers: 16,
        path: APPLY,
        body: refused_batch,
    },
    LargeCalls {
        name: "64 dry reloads of 900 KiB",
        callers: 64,
        path: RELOAD,
        body: dry_reload,
    },
];

/// Figures of health checks and probes during a load of large calls. Their callers run elsewhere: the server reads all
/// that they send.
fn large_calls(server: &Arc<LoadedServer>, calls: &LargeCalls, time: Duration) -> String {
    let (load, end) = (runtime(), Instant::now() + time);
    let path = calls.path;
    let callers: Vec<_> = (0..calls.callers)
        .map(|caller| {
            let (server, body) = (Arc::clone(server), (calls.body)(caller));
            load.spawn(async move {
                let connection = HostileConnection::open(server.program.grpc, 1 << 20).await;
                let mut results = Vec::new();
                while Instant::now() < end {
                    let result = server.call_on(&connection, path, body.clone()).await;
                    sleep(result.retry().unwrap_or_default()).await;
                    results.push(result);
                }
                results
            })
        })
        .collect();
    let (mut checks, mut probes) = (Vec::new(), Vec::new());
    let asking = runtime();
    let connection = asking.block_on(HostileConnection::open(server.program.grpc, 1 << 20));
    while Instant::now() < end {
        let begun = Instant::now();
        let checked = asking.block_on(async { code(connection.ask(HEALTH, framed(&[])).await.unwrap()).await });
        assert_eq!(checked, Code::Ok);
        checks.push(begun.elapsed());
        let begun = Instant::now();
        assert_eq!(probe(server.program.http, "/livez"), Some(200));
        probes.push(begun.elapsed());
        std::thread::sleep(Duration::from_millis(5));
    }
    let results = load.block_on(async {
        let mut results = Vec::new();
        for caller in callers {
            results.extend(caller.await.unwrap());
        }
        results
    });
    let mut out = String::new();
    line(&mut out, calls.name, &results);
    writeln!(out, "  health meanwhile           {}", shown(checks)).unwrap();
    writeln!(out, "  /livez meanwhile           {}", shown(probes)).unwrap();
    out
}

#[test]
#[ignore = "it takes minutes: make hostile"]
fn overload() {
    let runtime = runtime();
    let server = LoadedServer::serve(&runtime, &[], 10_000, 1_000);
    let out = runtime.block_on(async {
        let (time, before) = (
            Duration::from_millis(300) * u32::try_from(scale()).unwrap(),
            Duration::from_secs(3),
        );
        let workers = server.workers;
        let mut out = format!(
            "{:<28} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}\n",
            "load (times in ms)", "accepted", "p50", "p99", "refused", "p50", "p99", "retry"
        );
        server.results(Callers::Patient(workers), before).await;
        let normal = server.results(Callers::Patient(workers), time).await;
        line(&mut out, "as many callers as workers", &normal);
        let every = time / u32::try_from(normal.len()).unwrap_or(1) / 10;
        let loads = [
            ("10x, patient callers", Callers::Patient(10 * workers)),
            ("10x, hammering callers", Callers::Hammering(10 * workers)),
            ("10x of what it can do", Callers::Endless(every)),
        ];
        for (name, callers) in loads {
            let from = server.begun.elapsed() + before;
            let results = server.results(callers, before + time).await;
            let (first, rest): (Vec<_>, Vec<_>) = results.into_iter().partition(|result| result.at < from);
            line(&mut out, name, &rest);
            line(&mut out, "  its first 3 s", &first);
            sleep(Duration::from_secs(11)).await;
        }
        out
    });
    std::io::stdout().write_all(out.as_bytes()).unwrap();
    let time = Duration::from_millis(300) * u32::try_from(scale()).unwrap();
    for calls in &LARGE_CALLS {
        let out = large_calls(&server, calls, time);
        std::io::stdout().write_all(out.as_bytes()).unwrap();
    }
}
