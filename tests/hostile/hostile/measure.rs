//! Figures of the server under each attack: small queries and probes meanwhile, and memory above rest.
//!
//! `make hostile` prints them. They are for people: the machine decides them, and no test asserts them.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use prost::Message;
use pumice::server::pb;
use tokio::time::Instant;

use super::held_disk::HeldDisk;
use super::transport::{APPLY, HostileConnection, SCORE, code, framed, probe, runtime, scale, small_query};
use crate::support::records::{full_sync, hypothetical_task};
use crate::support::{cluster, program::LoggedProcess, score_request};

/// Number of queries and of probes per attack.
const ASKED: usize = 200;

/// One attack under way. It ends when it is dropped.
type Attack = Box<dyn std::any::Any>;

/// Name of an attack, and its begin.
type NamedAttack = (&'static str, fn(&LoggedProcess) -> Attack);

fn share(whole: usize) -> usize {
    (whole * scale() / 100).max(1)
}

fn no_attack(_: &LoggedProcess) -> Attack {
    Box::new(())
}

fn given_up_scrapes(program: &LoggedProcess) -> Attack {
    for _ in 0..share(2_000) {
        if let Ok(mut stream) = TcpStream::connect(program.http) {
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        }
    }
    Box::new(())
}

fn idle_connections(program: &LoggedProcess) -> Attack {
    let open = |_| TcpStream::connect(program.grpc).ok();
    Box::new((0..share(10_000)).filter_map(open).collect::<Vec<_>>())
}

fn pinging_connections(program: &LoggedProcess) -> Attack {
    let runtime = runtime();
    let held = runtime.block_on(async {
        let mut held = Vec::new();
        for _ in 0..share(1_024) {
            held.push(HostileConnection::open(program.grpc, 1 << 20).await);
        }
        held
    });
    Box::new((held, runtime))
}

fn empty_streams(program: &LoggedProcess) -> Attack {
    let runtime = runtime();
    let held = runtime.block_on(async {
        let mut held = Vec::new();
        for _ in 0..5 {
            let connection = HostileConnection::open(program.grpc, 1 << 20).await;
            for _ in 0..share(250) {
                held.push(connection.call(SCORE).await.unwrap());
            }
        }
        held
    });
    Box::new((held, runtime))
}

fn stalled_bodies(program: &LoggedProcess) -> Attack {
    let runtime = runtime();
    let mut body = framed(&vec![0; 31 << 20]);
    body.pop();
    let held = runtime.block_on(async {
        let mut held = Vec::new();
        for _ in 0..share(60).div_ceil(4) {
            let connection = HostileConnection::open(program.grpc, 1 << 20).await;
            for _ in 0..4 {
                let mut call = connection.call(APPLY).await.unwrap();
                call.send(body.clone());
                held.push(call);
            }
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        held
    });
    Box::new((held, runtime))
}

fn closed_windows(program: &LoggedProcess) -> Attack {
    let runtime = runtime();
    let tasks = (0..share(700)).map(|number| hypothetical_task(&[("cpu", &format!("{}m", number + 1))]));
    let large = pb::ScoreRequest {
        tasks: tasks.collect(),
        node_encoding: pb::NodeEncoding::Slots.into(),
        ..pb::ScoreRequest::default()
    };
    let large = framed(&large.encode_to_vec());
    let held = runtime.block_on(async {
        let mut held = Vec::new();
        for _ in 0..12 {
            let connection = HostileConnection::open(program.grpc, 0).await;
            held.push((connection.ask(SCORE, large.clone()).await, connection));
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        held
    });
    Box::new((held, runtime))
}

/// Bodies of an extender protocol of which only the length comes.
fn announced_bodies(program: &LoggedProcess) -> Attack {
    let begin = |_| {
        let mut stream = TcpStream::connect(program.http).ok()?;
        let head = b"POST /kube-scheduler/filter HTTP/1.1\r\nHost: x\r\nContent-Length: 67108864\r\n\r\n";
        stream.write_all(head).ok()?;
        Some(stream)
    };
    Box::new((0..share(32)).filter_map(begin).collect::<Vec<_>>())
}

/// Sessions of invented schedulers of Volcano.
fn invented_schedulers(program: &LoggedProcess) -> Attack {
    let open = |number: usize| {
        let mut stream = TcpStream::connect(program.http).ok()?;
        let head = format!(
            "POST /volcano/invented-{number}/onSessionOpen HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{{}}"
        );
        stream.write_all(head.as_bytes()).ok()?;
        std::io::copy(&mut stream, &mut std::io::sink()).ok()
    };
    for number in 0..share(500) {
        let _ = open(number);
    }
    Box::new(())
}

/// Sessions of seven connections, as many as they get.
fn sessions_of_seven(program: &LoggedProcess) -> Attack {
    let held: Vec<_> = (0..7).map(|_| program.connect()).collect();
    for _ in 0..share(192) {
        for wire in &held {
            let _ = wire.open_session(pb::OpenSessionRequest::default());
        }
    }
    Box::new(held)
}

/// Batches of objects from twelve callers at once, each of some 24 MiB, over and over.
fn large_objects(program: &LoggedProcess) -> Attack {
    let pods = share(24 << 20) / 512;
    let pod = |caller: usize, number: usize| {
        let filler = "x".repeat(300);
        format!(
            "{{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {{\"name\": \"p-{caller}-{number}\", \"namespace\": \"x\", \
             \"annotations\": {{\"a\": \"{filler}\"}}}}, \"spec\": {{\"containers\": [{{\"name\": \"c\", \"resources\": {{\"requests\": \
             {{\"cpu\": \"1\"}}}}}}]}}}}"
        )
    };
    let ask = |caller: usize| {
        let wire = program.connect();
        let objects: Vec<Vec<u8>> = (0..pods).map(|number| pod(caller, number).into_bytes()).collect();
        let mut batch = full_sync(&format!("objects-{caller}"), 1, pb::Cluster::default());
        batch.put = Some(pb::Cluster {
            objects,
            ..pb::Cluster::default()
        });
        std::thread::spawn(move || {
            for _ in 0..2 {
                let _ = wire.apply_batch(batch.clone());
            }
        })
    };
    let threads: Vec<_> = (0..12).map(ask).collect();
    // The queries are measured while the batches are under way.
    Box::new(threads)
}

/// Times of queries and of probes, in order; failed ones are left out and counted.
fn measure(mut ask: impl FnMut() -> bool) -> (Vec<Duration>, usize) {
    let (mut times, mut failed) = (Vec::new(), 0);
    for _ in 0..ASKED {
        let start = Instant::now();
        if ask() {
            times.push(start.elapsed());
        } else {
            failed += 1;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    times.sort_unstable();
    (times, failed)
}

fn shown((times, failed): &(Vec<Duration>, usize)) -> String {
    let at = |percent: usize| {
        let time = times.get((times.len() * percent / 100).min(times.len().saturating_sub(1)));
        time.map_or_else(|| "-".to_owned(), |time| format!("{:.1}", time.as_secs_f64() * 1e3))
    };
    format!("{:>8} {:>8} {failed:>6}", at(50), at(99))
}

fn measurements(name: &str, attack: fn(&LoggedProcess) -> Attack) -> String {
    let program = LoggedProcess::serve(&[]);
    let applied = program.connect().apply_batch(full_sync("a", 1, cluster(10_000)));
    assert!(applied.is_ok());
    std::thread::sleep(Duration::from_secs(3));
    let rest = program.kernel_number("VmRSS");
    let above = |name| program.kernel_number(name).saturating_sub(rest) / 1_024;
    let runtime = runtime();
    let asking = runtime.block_on(HostileConnection::open(program.grpc, 1 << 20));
    let mut query = || {
        runtime.block_on(async {
            let Ok(response) = asking.ask(SCORE, small_query()).await else {
                return false;
            };
            code(response).await == tonic::Code::Ok
        })
    };
    assert!(query());
    let http = program.http;
    program.forget_peak_memory();
    let attacked = attack(&program);
    let queries = measure(&mut query);
    let probes = measure(|| probe(http, "/livez") == Some(200));
    let most = above("VmHWM");
    drop(attacked);
    std::thread::sleep(Duration::from_secs(10));
    let mut line = String::new();
    write!(
        line,
        "{name:<28} {} {} {most:>8} {:>8}",
        shown(&queries),
        shown(&probes),
        above("VmRSS")
    )
    .unwrap();
    assert_eq!(probe(http, "/livez"), Some(200), "{name}");
    assert!(query() || runtime.block_on(super::transport::other_caller(program.grpc)) == tonic::Code::Ok);
    line
}

/// Lines about a server whose disk does not answer for as long as they are measured, and eight seconds at least.
fn held_flush() -> [String; 2] {
    let disk = HeldDisk::serve(10_000, &[]);
    let (wire, http) = (disk.program.connect(), disk.program.http);
    std::thread::sleep(Duration::from_secs(3));
    let rest = disk.program.kernel_number("VmRSS");
    let above = |name| disk.program.kernel_number(name).saturating_sub(rest) / 1_024;
    disk.program.forget_peak_memory();
    let filter = pb::FilterRequest {
        tasks: score_request(1).tasks,
        ..pb::FilterRequest::default()
    };
    let began = Instant::now();
    let reload = disk.hold("held");
    let filters = measure(|| wire.filter(filter.clone()).is_ok());
    let probes = measure(|| probe(http, "/livez") == Some(200));
    let policies = measure(|| wire.get_policy(pb::GetPolicyRequest::default()).is_ok());
    let scrapes = measure(|| probe(http, "/metrics") == Some(200));
    let most = above("VmHWM");
    std::thread::sleep(Duration::from_secs(8).saturating_sub(began.elapsed()));
    assert!(!reload.is_finished());
    disk.release();
    assert!(reload.join().unwrap().is_ok());
    std::thread::sleep(Duration::from_secs(10));
    let line = |name: &str, asked: &_, probed: &_| {
        format!(
            "{name:<28} {} {} {most:>8} {:>8}",
            shown(asked),
            shown(probed),
            above("VmRSS")
        )
    };
    [
        line("flush held: Filter, livez", &filters, &probes),
        line("flush held: Policy, metrics", &policies, &scrapes),
    ]
}

#[test]
#[ignore = "it takes minutes: make hostile"]
fn attacks() {
    let attacks: [NamedAttack; 11] = [
        ("nobody", no_attack),
        ("given-up scrapes", given_up_scrapes),
        ("idle connections", idle_connections),
        ("pinging connections", pinging_connections),
        ("calls without a body", empty_streams),
        ("stalled bodies", stalled_bodies),
        ("closed windows", closed_windows),
        ("announced extender bodies", announced_bodies),
        ("invented schedulers", invented_schedulers),
        ("sessions of seven", sessions_of_seven),
        ("large objects of twelve", large_objects),
    ];
    let mut out = std::io::stdout();
    writeln!(out, "scale {} %; times in ms, memory above rest in MiB", scale()).unwrap();
    writeln!(
        out,
        "{:<28} {:>8} {:>8} {:>6} {:>8} {:>8} {:>6} {:>8} {:>8}",
        "attack", "asked50", "asked99", "failed", "probe50", "probe99", "failed", "peak", "after10s"
    )
    .unwrap();
    let only = std::env::var_os("PUMICE_HOSTILE_ONLY").and_then(|text| text.into_string().ok());
    let only = only.unwrap_or_default();
    for (name, attack) in attacks.into_iter().filter(|(name, _)| name.contains(&*only)) {
        writeln!(out, "{}", measurements(name, attack)).unwrap();
    }
    if !only.is_empty() {
        return;
    }
    for line in held_flush() {
        writeln!(out, "{line}").unwrap();
    }
}
