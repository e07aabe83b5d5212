//! Mixed load for a long time with everything on: TLS, identities, durable state, the audit log. `make soak` runs it; memory, threads,
//! files and latencies have to be steady.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use pumice::server::pb;
use pumice_engine::short_lock::ShortLock;
use pumice_protocol::{ClientConnection, ConnectOptions};
use tokio::time::Instant;

use super::authority::{TestAuthority, ask};
use crate::support::program::LoggedProcess;
use crate::support::{cluster, document, score_request};

const IDENTITIES: &str = "
identities:
- {name: everything, certificates: [admin], roles: [read, decide, sync, admin], sources: ['*']}
";
/// Time between two looks at the process.
const LOOK: Duration = Duration::from_millis(500);

/// Shared state of the tasks of the load.
struct MixedLoad {
    options: ConnectOptions,
    stop: AtomicBool,
    calls: AtomicU64,
    /// Latencies since the last look.
    latencies: ShortLock<Vec<Duration>>,
}

/// One look at the process.
#[derive(Debug, Clone, Copy)]
struct ProcessLook {
    resident_kib: u64,
    threads: u64,
    files: u64,
    slowest: Duration,
}

impl MixedLoad {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    async fn connect(&self) -> ClientConnection {
        ClientConnection::open_with(&self.options).await.unwrap()
    }

    fn count(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// Questions over a kept connection.
    async fn send_queries(self: Arc<Self>) {
        let mut connection = self.connect().await;
        while self.goes_on() {
            let begin = Instant::now();
            connection.decisions.score(score_request(3)).await.unwrap();
            let latency = begin.elapsed();
            self.latencies.with(|latencies| latencies.push(latency));
            self.count();
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// A call over a new connection.
    async fn reconnect(self: Arc<Self>) {
        while self.goes_on() {
            ask(&self.options).await.unwrap();
            self.count();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// A source that begins again now and then.
    async fn send_records(self: Arc<Self>) {
        for source_epoch in 1.. {
            let mut connection = self.connect().await;
            for sequence in 1..=20 {
                if !self.goes_on() {
                    return;
                }
                let full = sequence == 1;
                let kind = if full {
                    pb::BatchKind::FullSyncLast
                } else {
                    pb::BatchKind::Delta
                };
                let batch = pb::Batch {
                    source: "soak".to_owned(),
                    source_epoch,
                    sequence,
                    kind: kind.into(),
                    part: u32::from(full),
                    put: Some(cluster(if full { 500 } else { 20 })),
                    ..pb::Batch::default()
                };
                let request = pb::ApplyRequest { batch: Some(batch) };
                connection.state.apply(request).await.unwrap();
                self.count();
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }

    /// Sessions, of which every other one is lost with its connection.
    async fn open_sessions(self: Arc<Self>) {
        let mut number = 0;
        while self.goes_on() {
            let mut connection = self.connect().await;
            let opened = connection
                .decisions
                .open_session(pb::OpenSessionRequest::default())
                .await
                .unwrap();
            if number % 2 == 0 {
                let session = opened.into_inner().session;
                let request = pb::CloseSessionRequest { session };
                connection.decisions.close_session(request).await.unwrap();
            }
            number += 1;
            self.count();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Documents that come, go back, and are refused.
    async fn change_policies(self: Arc<Self>) {
        let mut connection = self.connect().await;
        let mut number = 0;
        while self.goes_on() {
            let request = pb::ReloadPolicyRequest {
                document: document(&format!("number {number}")),
                ..pb::ReloadPolicyRequest::default()
            };
            connection.policies.reload_policy(request).await.unwrap();
            connection
                .policies
                .rollback_policy(pb::RollbackPolicyRequest::default())
                .await
                .unwrap();
            let bad = pb::ReloadPolicyRequest {
                document: "tiers: [".to_owned(),
                ..pb::ReloadPolicyRequest::default()
            };
            connection.policies.reload_policy(bad).await.unwrap_err();
            number += 1;
            self.count();
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

/// Reads the page of metrics, and exchanges the server's certificate now and then.
async fn scrape(load: Arc<MixedLoad>, authority: Arc<TestAuthority>, http: std::net::SocketAddr) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut number = 0;
    while load.goes_on() {
        let stream = tokio::net::TcpStream::connect(http).await.unwrap();
        let mut stream = load.options.tls.secure(stream, "localhost").await.unwrap();
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n")
            .await
            .unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).await.unwrap();
        assert!(
            page.contains("pumice_panics_total 0") && page.contains("pumice_tls_rejected 0"),
            "{page}"
        );
        if number % 10 == 0 {
            let folder = Arc::clone(&authority);
            let issued = tokio::task::spawn_blocking(move || folder.issue(&["--name", "localhost"]))
                .await
                .unwrap();
            assert!(issued.status.success());
        }
        number += 1;
        load.count();
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

fn look(program: &LoggedProcess, load: &MixedLoad) -> ProcessLook {
    let mut latencies = load.latencies.with(std::mem::take);
    latencies.sort();
    // All but the slowest hundredth: one pause of the machine is not the server's.
    let slowest = latencies.get(latencies.len() * 99 / 100).copied().unwrap_or_default();
    ProcessLook {
        resident_kib: program.kernel_number("VmRSS"),
        threads: program.kernel_number("Threads"),
        files: program.open_files(),
        slowest,
    }
}

#[test]
#[ignore = "runs for minutes: make soak"]
#[expect(clippy::disallowed_methods, reason = "the length of the run is the environment's")]
fn the_server_is_steady_under_mixed_load() {
    let seconds: u64 = std::env::var("SECONDS_TO_SOAK").map_or(1_200, |text| text.parse().unwrap());
    let authority = Arc::new(TestAuthority::new(&["admin"]));
    std::fs::write(authority.path("identities.yaml"), IDENTITIES).unwrap();
    let [identities, data, audit] = ["identities.yaml", "data", "audit.log"].map(|name| authority.text(name));
    let program = authority.serve(&[
        "--identities-file",
        &identities,
        "--data-dir",
        &data,
        "--audit-log",
        &audit,
        "--audit-file-bytes",
        "256Ki",
        "--sessions",
        "64",
    ]);
    let runtime = super::authority::runtime();
    let load = Arc::new(MixedLoad {
        options: authority.options(program.grpc, Some("admin")),
        stop: AtomicBool::new(false),
        calls: AtomicU64::new(0),
        latencies: ShortLock::default(),
    });
    let tasks = [
        runtime.spawn(Arc::clone(&load).send_queries()),
        runtime.spawn(Arc::clone(&load).reconnect()),
        runtime.spawn(Arc::clone(&load).send_records()),
        runtime.spawn(Arc::clone(&load).open_sessions()),
        runtime.spawn(Arc::clone(&load).change_policies()),
        runtime.spawn(scrape(Arc::clone(&load), Arc::clone(&authority), program.http)),
    ];
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut looks = Vec::new();
    while Instant::now() < end {
        std::thread::sleep(LOOK);
        assert!(
            tasks.iter().all(|task| !task.is_finished()),
            "a part of the load has failed"
        );
        looks.push(look(&program, &load));
    }
    load.stop.store(true, Ordering::Relaxed);
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
    assert_steady(&looks, load.calls.load(Ordering::Relaxed), seconds);
}

/// Compares the last third of the looks with the one before it; the first is for warming up.
fn assert_steady(looks: &[ProcessLook], calls: u64, seconds: u64) {
    let third = looks.len() / 3;
    let (before, after) = (&looks[third..2 * third], &looks[2 * third..]);
    let most =
        |looks: &[ProcessLook], value: fn(&ProcessLook) -> u64| looks.iter().map(value).max().unwrap_or_default();
    let median = |looks: &[ProcessLook]| {
        let mut times: Vec<Duration> = looks.iter().map(|look| look.slowest).collect();
        times.sort();
        times[times.len() / 2]
    };
    let resident = [before, after].map(|looks| most(looks, |look| look.resident_kib));
    let threads = [before, after].map(|looks| most(looks, |look| look.threads));
    let files = [before, after].map(|looks| most(looks, |look| look.files));
    let slow = [before, after].map(median);
    let report = format!(
        "{calls} calls in {seconds} s; of the second and the last third: {resident:?} KiB, {threads:?} threads, {files:?} \
         files, p99 {slow:?}"
    );
    #[expect(clippy::print_stdout, reason = "the report of make soak")]
    {
        println!("{report}");
    }
    assert!(
        resident[1] <= resident[0] + resident[0] / 10 + 8_192,
        "memory grows: {report}"
    );
    assert!(threads[1] <= threads[0] + 2, "threads grow: {report}");
    assert!(files[1] <= files[0] + 16, "files grow: {report}");
    assert!(
        slow[1] <= slow[0] * 3 + Duration::from_millis(20),
        "latencies grow: {report}"
    );
}
