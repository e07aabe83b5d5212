//! Calls to a server process: one at a time and 64 at once, over TCP and over a Unix socket.
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::time::{Duration, Instant};

use pumice::server::pb;
use pumice_protocol::ClientConnection;
use tokio::task::JoinSet;
use tonic::transport::Channel;

use super::calls::{BenchCall, BenchClient, NamedBenchCall, bench_calls};
use super::fixtures::{clock, gang, pods, task_class};
use super::measurements::MeasurementReport;
use super::server::BenchServer;
use super::shapes;
use super::{bare, changes, deltas, sessions, storm};

/// Number of calls under way together.
const AT_ONCE: usize = 64;
/// Number of connections that these share.
const CONNECTIONS: usize = 4;

/// Volume of the calls.
#[derive(Clone, Copy, Debug)]
struct CallVolume {
    rounds: usize,
    /// Divisor of the number of calls in a round.
    call_divisor: usize,
    /// Duration of the load of 64 calls at once.
    load: Duration,
}

/// Measures calls beside a bare server, and nothing else.
pub(crate) async fn measure_beside_bare(report: &mut MeasurementReport, quick: bool) {
    let (rounds, lasting) = if quick { (3, 300) } else { (9, 1_500) };
    let server = BenchServer::start();
    fill(&ClientConnection::open(&server.address()).await.expect("a connection")).await;
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(server.tcp().await);
    }
    let lasting = Duration::from_millis(lasting);
    bare::measure(report, &server, &connections, (rounds, lasting)).await;
    for (name, call) in [
        ("empty", BenchCall::Empty),
        ("best", BenchCall::Score(Box::new(shapes::best()))),
    ] {
        let cost = load(&server, &connections, &call, lasting).await;
        report.put(format!("grpc_{name}_64_cpu_us_per_call"), cost.cpu_us_per_call);
        report.put(format!("grpc_{name}_64_per_s"), cost.per_second);
    }
}

/// Measures calls.
pub(crate) async fn measure(report: &mut MeasurementReport, quick: bool) {
    let amount = if quick {
        CallVolume {
            rounds: 2,
            call_divisor: 20,
            load: Duration::from_millis(100),
        }
    } else {
        CallVolume {
            rounds: 5,
            call_divisor: 1,
            load: Duration::from_millis(1_500),
        }
    };
    let server = BenchServer::start();
    let channel = server.tcp().await;
    fill(&ClientConnection::open(&server.address()).await.expect("a connection")).await;
    one_at_a_time(report, &server, channel, "", amount).await;
    one_at_a_time(report, &server, server.socket().await, "_uds", amount).await;
    let (mut tcp, mut socket) = (Vec::new(), Vec::new());
    for _ in 0..CONNECTIONS {
        tcp.push(server.tcp().await);
        socket.push(server.socket().await);
    }
    for named in bench_calls() {
        at_once(report, &server, &tcp, &named, "", amount).await;
        at_once(report, &server, &socket, &named, "_uds", amount).await;
    }
    bare::measure(report, &server, &tcp, (amount.rounds, amount.load)).await;
    changes::measure(report, &server, amount.rounds, 1_500 / amount.call_divisor).await;
    sessions::measure(report, &server, 200 / amount.call_divisor).await;
    deltas::measure(report, &server, amount.load * 2).await;
    storm::measure(report, &server, 2_000 / amount.call_divisor).await;
}

/// Puts the cluster, and the policies in force.
pub(crate) async fn fill(server: &ClientConnection) {
    let batch = pb::Batch {
        source: "bench".to_owned(),
        source_epoch: 1,
        sequence: 1,
        kind: pb::BatchKind::FullSyncLast.into(),
        part: 1,
        put: Some(shapes::cluster()),
        ..pb::Batch::default()
    };
    let mut state = server.state.clone();
    let applied = state.apply(pb::ApplyRequest { batch: Some(batch) }).await;
    let outcome = applied.expect("a reply").into_inner().outcome.expect("an outcome");
    assert!(outcome.refused.is_empty(), "everything is taken: {:?}", outcome.refused);
    let mut policies = server.policies.clone();
    for (name, document) in [
        ("", task_class::POLICY.to_owned()),
        (gang::QUEUE, gang::document("LeastAllocated", true)),
        (shapes::POD_POLICY, pods::POLICY.to_owned()),
    ] {
        let reload = pb::ReloadPolicyRequest {
            name: name.to_owned(),
            document,
            ..pb::ReloadPolicyRequest::default()
        };
        policies.reload_policy(reload).await.expect("a good policy");
    }
}

/// Percentiles of one round's calls, in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
struct CallLatencies {
    p50: f64,
    p99: f64,
    shortest: f64,
}

impl CallLatencies {
    fn of(mut times: Vec<f64>) -> Self {
        times.sort_unstable_by(f64::total_cmp);
        let at = |part: usize| times.get((times.len() * part / 100).min(times.len() - 1)).copied();
        Self {
            p50: at(50).unwrap_or_default(),
            p99: at(99).unwrap_or_default(),
            shortest: at(0).unwrap_or_default(),
        }
    }
}

/// Median over the rounds.
fn middle(rounds: &[CallLatencies], of: impl Fn(&CallLatencies) -> f64) -> f64 {
    let mut measurements: Vec<f64> = rounds.iter().map(of).collect();
    measurements.sort_unstable_by(f64::total_cmp);
    clock::median(&measurements)
}

/// One caller that asks again as soon as it has its response; every request in every round.
async fn one_at_a_time(
    report: &mut MeasurementReport,
    server: &BenchServer,
    channel: Channel,
    way: &str,
    amount: CallVolume,
) {
    let (mut client, queries) = (BenchClient::new(channel), bench_calls());
    let mut rounds: Vec<Vec<CallLatencies>> = vec![Vec::new(); queries.len()];
    let mut spent = vec![0.0; queries.len()];
    for round in 0..=amount.rounds {
        for ((named, rounds), spent) in queries.iter().zip(&mut rounds).zip(&mut spent) {
            let before = server.cpu_seconds();
            let mut times = Vec::new();
            for _ in 0..(named.calls / amount.call_divisor).max(3) {
                let started = Instant::now();
                client.ask(&named.call).await;
                times.push(started.elapsed().as_secs_f64() * 1e3);
            }
            // The first round warms up.
            if round > 0 {
                *spent += server.cpu_seconds_since(before) / times.len() as f64;
                rounds.push(CallLatencies::of(times));
            }
        }
    }
    let empty = rounds.first().cloned().unwrap_or_default();
    for ((named, rounds), spent) in queries.iter().zip(&rounds).zip(&spent) {
        let key = |what: &str| format!("grpc_{}{way}_{what}", named.name);
        report.put(key("p50_ms"), middle(rounds, |round| round.p50));
        report.put(key("p99_ms"), middle(rounds, |round| round.p99));
        report.put(key("shortest_ms"), middle(rounds, |round| round.shortest));
        report.put(key("per_s"), 1e3 / middle(rounds, |round| round.p50));
        report.put(key("cpu_us_per_call"), spent * 1e6 / amount.rounds as f64);
        report.put(
            key("cpu_us_per_decision"),
            spent * 1e6 / amount.rounds as f64 / f64::from(named.decisions),
        );
        if named.name == "best" {
            // Each round is compared with the empty calls of the same round, so that disturbances of the machine count
            // on both sides.
            let more = rounds
                .iter()
                .zip(&empty)
                .map(|(best, empty)| (best.p50 - empty.p50) * 1e3);
            let mut more: Vec<f64> = more.collect();
            more.sort_unstable_by(f64::total_cmp);
            report.put(format!("grpc_best_of_10k_minus_empty_us{way}"), clock::median(&more));
        }
    }
}

/// Cost of calls of 64 callers over several connections.
#[derive(Clone, Debug)]
pub(crate) struct LoadCost {
    pub(crate) per_second: f64,
    /// Processor time of the server.
    pub(crate) cpu_us_per_call: f64,
    /// Times of the calls, in milliseconds.
    times: Vec<f64>,
}

/// Sends calls of 64 callers over several connections for a time.
pub(crate) async fn load(
    server: &BenchServer,
    connections: &[Channel],
    call: &BenchCall,
    lasting: Duration,
) -> LoadCost {
    let (before, begin) = (server.cpu_seconds(), Instant::now());
    let mut callers: JoinSet<Vec<f64>> = JoinSet::new();
    for channel in connections.iter().cycle().take(AT_ONCE) {
        let (mut client, query) = (BenchClient::new(channel.clone()), call.clone());
        callers.spawn(async move {
            let mut times = Vec::new();
            while begin.elapsed() < lasting {
                let started = Instant::now();
                client.ask(&query).await;
                times.push(started.elapsed().as_secs_f64() * 1e3);
            }
            times
        });
    }
    let times: Vec<f64> = callers.join_all().await.concat();
    let (elapsed, calls) = (begin.elapsed().as_secs_f64(), times.len() as f64);
    LoadCost {
        per_second: calls / elapsed,
        cpu_us_per_call: server.cpu_seconds_since(before) * 1e6 / calls,
        times,
    }
}

/// Measures a call with 64 under way.
async fn at_once(
    report: &mut MeasurementReport,
    server: &BenchServer,
    connections: &[Channel],
    named: &NamedBenchCall,
    way: &str,
    amount: CallVolume,
) {
    let cost = load(server, connections, &named.call, amount.load).await;
    let all = CallLatencies::of(cost.times);
    let key = |what: &str| format!("grpc_{}_64{way}_{what}", named.name);
    report.put(key("per_s"), cost.per_second);
    report.put(key("p50_ms"), all.p50);
    report.put(key("p99_ms"), all.p99);
    report.put(key("cpu_us_per_call"), cost.cpu_us_per_call);
    report.put(
        key("cpu_us_per_decision"),
        cost.cpu_us_per_call / f64::from(named.decisions),
    );
}
