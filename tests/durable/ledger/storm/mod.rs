//! Real servers, many clients, queues near their limits of cores and cards, lost replies and `kill -9`. The promise is
//! checked from acknowledged calls alone.

#![expect(clippy::disallowed_types, reason = "a log of a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pumice::server::pb;
use pumice::server::pb::DecisionServiceClient;
use pumice::server::pb::StateServiceClient;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use super::TestDirectory;
use super::{ask, confirm, limited, put_policy};
use crate::support::authority::TestAuthority;
use crate::support::process::ServeProcess;
use crate::support::records::full_sync;
use crate::support::wire::BlockingClients;

mod demand;

use demand::{CAPABILITY, JobDemand, cards_there, overdrawn, with_quota};

const QUEUES: [&str; 3] = ["red", "green", "blue"];
const CLIENTS: u64 = 8;
/// Number of acknowledged permits between two kills.
const PERMITS: u64 = 120;

/// Permits that clients know of.
#[derive(Default)]
struct PermitLog {
    /// Permits by job: the queue and demand that is acknowledged and whose release has not begun.
    held: BTreeMap<String, (&'static str, JobDemand)>,
    /// Jobs whose release was acknowledged.
    released: BTreeSet<String>,
    /// First violation.
    first_violation: Option<String>,
}

/// Records that their source knows.
#[derive(Default)]
struct SourceModel {
    sequence: u64,
    /// Jobs whose tasks run, with their queue and demand.
    running: BTreeMap<String, (&'static str, JobDemand)>,
}

/// Way to the servers of a storm.
enum StormTransport {
    /// Plain text, and all roles for everybody.
    Plain,
    /// Everything on: TLS with certificates of both sides, roles, and the audit log.
    Secured(TestAuthority),
}

/// Roles of the clients of a storm.
const IDENTITIES: &str =
    "identities:\n- {name: storm, certificates: [storm], roles: [read, decide, sync, admin], sources: ['*']}\n";

impl StormTransport {
    fn secured() -> Self {
        let authority = TestAuthority::new(&["storm"]);
        std::fs::write(authority.path("identities.yaml"), IDENTITIES).unwrap();
        Self::Secured(authority)
    }

    /// Flags of the server.
    fn flags(&self) -> Vec<String> {
        let Self::Secured(authority) = self else {
            return Vec::new();
        };
        let files = [
            ("--tls-certificate", "server.crt"),
            ("--tls-key", "server.key"),
            ("--tls-client-ca", "ca.crt"),
            ("--identities-file", "identities.yaml"),
            ("--audit-log", "audit.log"),
        ];
        let flags = files
            .iter()
            .flat_map(|(flag, file)| [(*flag).to_owned(), authority.text(file)]);
        flags.collect()
    }

    /// Way to a server at an address.
    fn endpoint(&self, address: SocketAddr) -> Endpoint {
        match self {
            Self::Plain => Endpoint::from_shared(format!("http://{address}")).unwrap(),
            Self::Secured(authority) => {
                let tls = ClientTlsConfig::new()
                    .ca_certificate(Certificate::from_pem(authority.read("ca.crt")))
                    .identity(Identity::from_pem(
                        authority.read("storm.crt"),
                        authority.read("storm.key"),
                    ))
                    .domain_name("localhost");
                let endpoint = Endpoint::from_shared(format!("https://{address}")).unwrap();
                endpoint.tls_config(tls).unwrap()
            }
        }
    }

    fn connect(&self, runtime: &Arc<Runtime>, address: SocketAddr) -> BlockingClients {
        let channel = runtime.block_on(self.endpoint(address).connect()).unwrap();
        BlockingClients::over(Arc::clone(runtime), channel)
    }
}

struct PermitTest {
    transport: StormTransport,
    address: Mutex<SocketAddr>,
    log: Mutex<PermitLog>,
    source_records: tokio::sync::Mutex<SourceModel>,
    permits: AtomicU64,
    boots: AtomicU64,
    stop: AtomicBool,
}

/// Small generator of pseudo-random numbers; its state is the seed.
struct SeededRandom(u64);

impl SeededRandom {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

impl SourceModel {
    /// Whole cluster, as the next full sync.
    fn next_batch(&mut self) -> pb::Batch {
        self.sequence += 1;
        let mut cluster = pb::Cluster {
            queues: QUEUES.map(|name| with_quota(limited(name, CAPABILITY))).to_vec(),
            nodes: cards_there(),
            ..Default::default()
        };
        for (name, (queue, wish)) in &self.running {
            cluster.jobs.push(wish.job(name, queue));
            cluster.tasks.push(wish.runs(name));
        }
        full_sync("kube", self.sequence, cluster)
    }
}

impl PermitTest {
    fn record_violation(&self, message: String) {
        self.log.lock().unwrap().first_violation.get_or_insert(message);
        self.stop.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Records an acknowledged permit, which counts until its owner begins to release it.
    fn record_permit(&self, job: &str, queue: &'static str, wish: JobDemand) {
        let mut log = self.log.lock().unwrap();
        log.held.insert(job.to_owned(), (queue, wish));
        let own = log.held.values().filter(|(of, _)| *of == queue);
        let over = overdrawn(own.map(|(_, wish)| *wish));
        drop(log);
        self.permits.fetch_add(1, Ordering::Relaxed);
        if let Some(over) = over {
            self.record_violation(format!("the promise is broken: in `{queue}` {over}"));
        }
    }

    fn record_release_start(&self, job: &str) {
        self.log.lock().unwrap().held.remove(job);
    }
}

struct PermitClient {
    test: Arc<PermitTest>,
    dice: SeededRandom,
    channel: Option<Channel>,
}

impl PermitClient {
    async fn channel(&mut self) -> Option<Channel> {
        if self.channel.is_none() {
            let address = *self.test.address.lock().unwrap();
            self.channel = self.test.transport.endpoint(address).connect().await.ok();
        }
        self.channel.clone()
    }

    /// Retries until there is a reply. Now and then the client gives up before the reply comes, and retries.
    async fn retry_until_done<T, F: Future<Output = Result<T, tonic::Status>>>(
        &mut self,
        ask: impl Fn(Channel) -> F,
    ) -> T {
        loop {
            if let Some(channel) = self.channel().await {
                let patience = match self.dice.roll(12) {
                    0 => Duration::from_micros(self.dice.roll(4_000)),
                    _ => Duration::from_secs(30),
                };
                if let Ok(Ok(result)) = tokio::time::timeout(patience, ask(channel)).await {
                    return result;
                }
            }
            self.channel = None;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn confirm(&mut self, name: &str, queue: &'static str, wish: JobDemand, lease: Option<u32>) -> bool {
        let lease = lease.map(|millis| prost_types::Duration {
            seconds: 0,
            nanos: i32::try_from(millis).unwrap() * 1_000_000,
        });
        let query = pb::AdmitRequest {
            lease,
            ..confirm(vec![ask(wish.job(name, queue), 1)])
        };
        let reply = self
            .retry_until_done(|channel| {
                let query = query.clone();
                async move { DecisionServiceClient::new(channel).admit(query).await }
            })
            .await
            .into_inner();
        if reply.durability() != pb::Durability::Disk {
            self.test.record_violation("it is not on the disk".to_owned());
        }
        let item = reply.result.unwrap().items.remove(0);
        if let Some(problem) = item.problem {
            self.test.record_violation(format!("{name}: {}", problem.message));
        }
        item.permitted
    }

    async fn release(&mut self, name: &str) {
        self.test.record_release_start(name);
        let query = pb::ReleaseReservationRequest {
            job: name.to_owned(),
            job_uid: format!("{name}-uid"),
            attempt: 1,
        };
        self.retry_until_done(|channel| {
            let query = query.clone();
            async move { StateServiceClient::new(channel).release_reservation(query).await }
        })
        .await;
        self.test.log.lock().unwrap().released.insert(name.to_owned());
    }

    /// Changes the source's records with `change`, and sends them until the server has them.
    async fn sync_change(&mut self, change: impl Fn(&mut SourceModel)) {
        loop {
            let channel = self.channel().await;
            {
                let mut truth = self.test.source_records.lock().await;
                change(&mut truth);
                let batch = Some(truth.next_batch());
                if let Some(channel) = channel
                    && let Ok(reply) = StateServiceClient::new(channel).apply(pb::ApplyRequest { batch }).await
                    && reply.into_inner().outcome.unwrap().resync.is_none()
                {
                    return;
                }
            }
            self.channel = None;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Life of one job.
    async fn live(&mut self, name: &str) {
        let queue = QUEUES[usize::try_from(self.dice.roll(3)).unwrap()];
        let mut wish = JobDemand::rolled(&mut self.dice);
        if self.dice.roll(10) == 0 {
            // The client goes away for good: its lease expires.
            self.confirm(name, queue, wish, Some(300)).await;
            return;
        }
        if !self.confirm(name, queue, wish, None).await {
            return;
        }
        self.test.record_permit(name, queue, wish);
        if self.dice.roll(3) == 0 {
            let other = wish.resized(&mut self.dice);
            let least = wish.least(other);
            self.test
                .log
                .lock()
                .unwrap()
                .held
                .insert(name.to_owned(), (queue, least));
            if self.confirm(name, queue, other, None).await {
                wish = other;
            }
            self.test.record_permit(name, queue, wish);
        }
        if !self.confirm(name, queue, wish, None).await {
            self.test
                .record_violation(format!("{name}: asked again, the permit was gone"));
        }
        tokio::time::sleep(Duration::from_millis(self.dice.roll(30))).await;
        let boots = self.test.boots.load(Ordering::Relaxed);
        let runs = wish.may_run() && self.dice.roll(3) == 0;
        if runs {
            self.sync_change(|truth| {
                truth.running.insert(name.to_owned(), (queue, wish));
            })
            .await;
            tokio::time::sleep(Duration::from_millis(self.dice.roll(30))).await;
            self.test.record_release_start(name);
            self.sync_change(|truth| {
                truth.running.remove(name);
            })
            .await;
        } else {
            self.release(name).await;
        }
        let late = self.confirm(name, queue, JobDemand::small(), None).await;
        // A server that has never seen the job cannot know that it has ended.
        let forgiven = runs && boots != self.test.boots.load(Ordering::Relaxed);
        if late && !forgiven {
            self.test.record_violation(format!("{name}: a late request revived it"));
        }
    }
}

fn rows(wire: &BlockingClients) -> BTreeMap<String, pb::Reservation> {
    let mut rows = BTreeMap::new();
    let mut token = String::new();
    loop {
        let page = Some(pb::Page { size: 0, token });
        let query = pb::ListReservationsRequest {
            queues: Vec::new(),
            page,
        };
        let reply = wire.list_reservations(query).unwrap();
        rows.extend(reply.reservations.into_iter().map(|row| (row.job.clone(), row)));
        token = reply.next_page_token;
        if token.is_empty() {
            return rows;
        }
    }
}

/// Checks that everything acknowledged before a crash exists after it.
fn look_for_losses(test: &PermitTest, wire: &BlockingClients) {
    let rows = rows(wire);
    let log = test.log.lock().unwrap();
    let lost = log.held.iter().find(|(job, (_, wish))| {
        let row = rows.get(*job);
        !row.is_some_and(|row| wish.is_covered_by(&row.reserved))
    });
    let lost = lost.map(|(job, wish)| format!("{job}: {wish:?} was acknowledged and is lost"));
    let revived = log.released.iter().find(|job| rows.contains_key(*job));
    let revived = revived.map(|job| format!("{job}: its release was acknowledged and is lost"));
    drop(log);
    if let Some(problem) = lost.or(revived) {
        test.record_violation(problem);
    }
}

/// Checks that nothing is left after all jobs have ended.
fn look_for_leaks(test: &PermitTest, runtime: &Runtime, wire: &BlockingClients) {
    let batch = || runtime.block_on(async { test.source_records.lock().await.next_batch() });
    wire.apply_batch(batch()).unwrap();
    // Reservations of clients that went away end with their leases, which run while the source is heard.
    while !rows(wire).is_empty() {
        wire.apply_batch(batch()).unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
    let queues = wire.list_queues(pb::ListQueuesRequest::default()).unwrap().queues;
    for queue in queues {
        for account in queue.accounts {
            let amounts = account.allocated.iter().chain(&account.inqueue).chain(&account.elastic);
            if amounts.into_iter().any(|amount| amount.value != 0.0) {
                test.record_violation(format!("something leaks: {account:?}"));
            }
        }
    }
}

/// Schedulers that create and end jobs until the storm is over.
fn clients(test: &Arc<PermitTest>, runtime: &Runtime) -> Vec<JoinHandle<()>> {
    (0..CLIENTS)
        .map(|number| {
            let mut client = PermitClient {
                test: Arc::clone(test),
                dice: SeededRandom(0x9e37_79b9_7f4a_7c15 ^ (number + 1)),
                channel: None,
            };
            runtime.spawn(async move {
                for job in 0_u64.. {
                    if client.test.is_over() {
                        return;
                    }
                    client.live(&format!("c{number}/j{job}")).await;
                }
            })
        })
        .collect()
}

/// Kills the server `kills` times under load. Returns the first violation, if there was one.
fn storm(kills: u64, transport: StormTransport, environment: &[(&str, &str)]) -> Option<String> {
    let directory = TestDirectory::named("storm");
    let data = directory.0.join("data").display().to_string();
    // Lease longer than any job here lives; it also ends jobs whose end a crash lost.
    let mut flags = vec!["--data-dir", &data, "--reservation-lease-ms", "20000"];
    let security = transport.flags();
    flags.extend(security.iter().map(String::as_str));
    let start = || ServeProcess::start_in(&flags, environment);
    let mut process = start();
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = Arc::new(builder.worker_threads(2).enable_all().build().unwrap());
    let wire = transport.connect(&runtime, process.grpc);
    put_policy(&wire);
    let mut truth = SourceModel::default();
    wire.apply_batch(truth.next_batch()).unwrap();
    let test = Arc::new(PermitTest {
        transport,
        address: Mutex::new(process.grpc),
        log: Mutex::default(),
        source_records: tokio::sync::Mutex::new(truth),
        permits: AtomicU64::new(0),
        boots: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    });
    let clients = clients(&test, &runtime);
    for kill in 1..=kills {
        while !test.is_over() && test.permits.load(Ordering::Relaxed) < kill * PERMITS {
            let ended = clients.iter().any(JoinHandle::is_finished);
            assert!(!ended || test.is_over(), "a client failed");
            std::thread::sleep(Duration::from_millis(5));
        }
        process.kill();
        test.boots.fetch_add(1, Ordering::Relaxed);
        process = start();
        let wire = test.transport.connect(&runtime, process.grpc);
        let batch = runtime.block_on(async { test.source_records.lock().await.next_batch() });
        wire.apply_batch(batch).unwrap();
        look_for_losses(&test, &wire);
        *test.address.lock().unwrap() = process.grpc;
        if test.is_over() {
            break;
        }
    }
    test.stop.store(true, Ordering::Relaxed);
    for client in clients {
        runtime.block_on(client).unwrap();
    }
    let wire = test.transport.connect(&runtime, process.grpc);
    if test.log.lock().unwrap().first_violation.is_none() {
        look_for_leaks(&test, &runtime, &wire);
    }

    test.log.lock().unwrap().first_violation.take()
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the environment of a test run is its command line"
)]
fn reservations_hold_through_a_storm_with_tls_roles_and_audit() {
    let kills = std::env::var("PUMICE_TORTURE").ok().and_then(|said| said.parse().ok());
    assert_eq!(storm(kills.unwrap_or(4), StormTransport::secured(), &[]), None);
}

#[test]
fn reservations_hold_through_a_storm_in_plain_text() {
    assert_eq!(storm(2, StormTransport::Plain, &[]), None);
}

#[test]
fn without_the_check_the_storm_finds_a_violation() {
    let problem = storm(1, StormTransport::Plain, &[("PUMICE_TEST_WITHOUT_CHECKS", "1")]).unwrap();
    assert!(problem.starts_with("the promise is broken"), "{problem}");
}
