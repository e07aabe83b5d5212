//! Real servers that are killed after a commit: placements acknowledged as DISK count on the next server, a gang as a
//! whole, and end at last.

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
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use super::TestDirectory;
use crate::support::process::ServeProcess;
use crate::support::records::{full_sync, job, node, queue, session_ref, task};
use crate::support::wire::BlockingClients;

const NODES: [&str; 3] = ["n0", "n1", "n2"];
/// Number of cores of a node; each task takes one.
const CORES: u64 = 8;
const CLIENTS: u64 = 4;
const JOBS: u64 = 5;
/// Number of acknowledged commits between two kills.
const COMMITS: u64 = 40;

fn name(client: u64, number: u64) -> String {
    format!("c{client}/j{number}")
}

fn members(job: &str) -> [String; 2] {
    [format!("{job}-0"), format!("{job}-1")]
}

/// Pending jobs of two tasks that need each other.
fn cluster() -> pb::Cluster {
    let names = || (0..CLIENTS).flat_map(|client| (0..JOBS).map(move |number| name(client, number)));
    let gang = |name: String| pb::Job {
        uid: format!("{name}-uid"),
        min_member: 2,
        ..job(&name, "q")
    };
    let waiting = |name: String| {
        members(&name).map(|member| pb::Task {
            uid: format!("{member}-uid"),
            ..task(&member, &name, &[("cpu", "1")])
        })
    };
    pb::Cluster {
        namespaces: Vec::new(),
        nodes: NODES.map(|name| node(name, &[("cpu", &CORES.to_string())])).to_vec(),
        queues: vec![queue("q")],
        jobs: names().map(gang).collect(),
        tasks: names().flat_map(waiting).collect(),
        ..pb::Cluster::default()
    }
}

fn allocate(task: &str, node: &str) -> pb::session_change::Change {
    pb::session_change::Change::Allocate(pb::TaskPlacement {
        task: task.to_owned(),
        node: node.to_owned(),
        ..Default::default()
    })
}

fn commit_of(session: &str, placements: &[(&str, &str)]) -> pb::CommitSessionRequest {
    let changes = placements.iter().map(|(task, node)| allocate(task, node)).collect();
    let Some(pb::evaluation_ref::Target::Session(session)) = session_ref(session, 0, changes).target else {
        panic!("a step of a session")
    };
    pb::CommitSessionRequest {
        session: Some(session),
        jobs: Vec::new(),
    }
}

fn commit(wire: &BlockingClients, placements: &[(&str, &str)]) -> pb::CommitSessionResponse {
    let session = wire.open_session(pb::OpenSessionRequest::default()).unwrap().session;
    wire.commit_session(commit_of(&session, placements)).unwrap()
}

fn codes(committed: &pb::CommitSessionResponse) -> Vec<&str> {
    let conflicts = committed.jobs.iter().flat_map(|job| &job.rejections);
    conflicts
        .map(|conflict| conflict.reason.as_ref().unwrap().code.as_str())
        .collect()
}

/// Nodes of the assumed tasks.
fn assumed(wire: &BlockingClients) -> BTreeMap<String, String> {
    let tasks = wire.list_tasks(pb::ListTasksRequest::default()).unwrap().tasks;
    let assumed = tasks.into_iter().filter(|stored| stored.assumed);
    let placed = assumed
        .filter_map(|stored| stored.task)
        .map(|task| (task.name, task.node));
    placed.collect()
}

fn start(directory: &TestDirectory, more: &[&str]) -> ServeProcess {
    let data = directory.0.join("data").display().to_string();
    let mut arguments = vec!["--data-dir", &data];
    arguments.extend(more);
    ServeProcess::start(&arguments)
}

fn runtime() -> Arc<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    Arc::new(builder.worker_threads(2).enable_all().build().unwrap())
}

/// Client, after its source has sent all records.
fn connect(runtime: &Arc<Runtime>, process: &ServeProcess) -> BlockingClients {
    let wire = BlockingClients::connect(Arc::clone(runtime), process.grpc);
    wire.apply_batch(full_sync("kube", 1, cluster())).unwrap();
    wire
}

#[test]
fn a_commit_outlives_kill_9_and_ends_with_its_lease() {
    let (directory, runtime) = (TestDirectory::named("commit"), runtime());
    let process = start(&directory, &[]);
    let wire = connect(&runtime, &process);
    // The first node has one core left.
    let full: Vec<(String, &str)> = (0..4)
        .flat_map(|number| members(&name(0, number)))
        .map(|task| (task, "n0"))
        .collect();
    let full: Vec<(&str, &str)> = full.iter().map(|(task, node)| (task.as_str(), *node)).collect();
    let committed = commit(&wire, &full);
    assert_eq!(
        (codes(&committed).len(), committed.durability()),
        (0, pb::Durability::Disk)
    );
    let before = assumed(&wire);
    assert_eq!(before.len(), 8);
    let nothing = commit(&wire, &[("c1/j0-0", "n0"), ("c1/j0-1", "n1")]);
    assert_eq!(codes(&nothing), ["InsufficientResource", "GangIncomplete"]);
    assert_eq!(nothing.durability(), pb::Durability::Unspecified, "nothing was written");
    process.kill();

    let process = start(&directory, &[]);
    let wire = connect(&runtime, &process);
    assert_eq!(assumed(&wire), before);
    let late = commit(&wire, &[("c1/j0-0", "n0"), ("c1/j0-1", "n1")]);
    assert_eq!(codes(&late), ["InsufficientResource", "GangIncomplete"]);
    // A released placement stays released.
    let release = pb::ReleaseAssumptionsRequest {
        tasks: members("c0/j0").to_vec(),
        ..Default::default()
    };
    assert_eq!(wire.release_assumptions(release).unwrap().released.len(), 2);
    process.kill();

    // The new server's lease counts, and begins when the source is heard.
    let process = start(&directory, &["--assumption-lease-ms", "300"]);
    let wire = BlockingClients::connect(Arc::clone(&runtime), process.grpc);
    let mut least = usize::MAX;
    for sequence in 1.. {
        wire.apply_batch(full_sync("kube", sequence, cluster())).unwrap();
        let now = assumed(&wire);
        assert!(
            now.is_empty() || now.len() == 6,
            "all of one lease end together: {now:?}"
        );
        least = least.min(now.len());
        if least == 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let room = commit(&wire, &full[2..]);
    assert_eq!(codes(&room), Vec::<&str>::new());
}

/// Commits and releases that clients know of.
#[derive(Default)]
struct CommitLog {
    /// Jobs whose commit is acknowledged and whose release has not begun, with the nodes of their tasks.
    held: BTreeMap<String, [&'static str; 2]>,
    /// Jobs whose release is acknowledged and whose next commit has not begun.
    free: BTreeSet<String>,
}

struct CommitTest {
    address: Mutex<SocketAddr>,
    log: Mutex<CommitLog>,
    commits: AtomicU64,
    stop: AtomicBool,
}

struct CommitClient {
    test: Arc<CommitTest>,
    dice: u64,
}

impl CommitClient {
    fn roll(&mut self, below: u64) -> usize {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        usize::try_from(self.dice % below).unwrap()
    }

    async fn channel(&self) -> Result<Channel, Status> {
        let address = *self.test.address.lock().unwrap();
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        let connected = endpoint.connect().await;
        connected.map_err(|error| Status::unavailable(error.to_string()))
    }

    async fn commit(&self, job: &str, nodes: [&str; 2]) -> Result<pb::CommitSessionResponse, Status> {
        let mut client = DecisionServiceClient::new(self.channel().await?);
        let session = client.open_session(pb::OpenSessionRequest::default()).await?;
        let [one, two] = members(job);
        let placements = [(one.as_str(), nodes[0]), (two.as_str(), nodes[1])];
        let commit = commit_of(&session.into_inner().session, &placements);
        client.commit_session(commit).await.map(tonic::Response::into_inner)
    }

    async fn release(&self, job: &str) -> Result<(), Status> {
        let mut client = StateServiceClient::new(self.channel().await?);
        let release = pb::ReleaseAssumptionsRequest {
            tasks: members(job).to_vec(),
            ..Default::default()
        };
        client.release_assumptions(release).await.map(drop)
    }

    /// Commits a job, or releases it.
    async fn live(&mut self, job: &str) {
        let held = self.test.log.lock().unwrap().held.remove(job).is_some();
        if !held {
            self.test.log.lock().unwrap().free.remove(job);
            let nodes = [NODES[self.roll(3)], NODES[self.roll(3)]];
            if let Ok(committed) = self.commit(job, nodes).await
                && committed.jobs.iter().all(|job| job.rejections.is_empty())
            {
                assert_eq!(committed.durability(), pb::Durability::Disk);
                self.test.log.lock().unwrap().held.insert(job.to_owned(), nodes);
                self.test.commits.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
        // Released even if the outcome of the commit is unknown.
        while self.release(job).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.test.log.lock().unwrap().free.insert(job.to_owned());
    }
}

/// Checks that acknowledged commits survived the crash, each job as a whole or not at all.
fn compare(test: &CommitTest, wire: &BlockingClients) {
    let assumed = assumed(wire);
    let log = test.log.lock().unwrap();
    for (job, nodes) in &log.held {
        for (task, node) in members(job).iter().zip(nodes) {
            let there = assumed.get(task).map(String::as_str);
            assert_eq!(there, Some(*node), "{task}: it was acknowledged and is lost");
        }
    }
    for (client, number) in (0..CLIENTS).flat_map(|client| (0..JOBS).map(move |number| (client, number))) {
        let job = name(client, number);
        let there = members(&job).iter().filter(|task| assumed.contains_key(*task)).count();
        assert_ne!(there, 1, "{job}: half of a gang");
        assert!(
            there == 0 || !log.free.contains(&job),
            "{job}: its release was acknowledged and is lost"
        );
    }
    drop(log);
    for node in NODES {
        let there = assumed.values().filter(|at| *at == node).count();
        assert!(there <= usize::try_from(CORES).unwrap(), "{node}: {there} cores");
    }
}

#[test]
fn commits_hold_through_a_storm() {
    let (directory, runtime) = (TestDirectory::named("commits"), runtime());
    let mut process = start(&directory, &[]);
    drop(connect(&runtime, &process));
    let test = Arc::new(CommitTest {
        address: Mutex::new(process.grpc),
        log: Mutex::default(),
        commits: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    });
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let mut client = CommitClient {
                test: Arc::clone(&test),
                dice: 0x9e37_79b9_7f4a_7c15 ^ (number + 1),
            };
            runtime.spawn(async move {
                for turn in 0_u64.. {
                    if client.test.stop.load(Ordering::Relaxed) {
                        return;
                    }
                    client.live(&name(number, turn % JOBS)).await;
                }
            })
        })
        .collect();
    for kill in 1..=4 {
        while test.commits.load(Ordering::Relaxed) < kill * COMMITS {
            // A client that fails ends the test, because nothing else would make the awaited commits.
            let ended = clients.iter().any(JoinHandle::is_finished);
            assert!(!ended, "a client failed");
            std::thread::sleep(Duration::from_millis(5));
        }
        process.kill();
        process = start(&directory, &[]);
        let wire = connect(&runtime, &process);
        compare(&test, &wire);
        *test.address.lock().unwrap() = process.grpc;
    }
    test.stop.store(true, Ordering::Relaxed);
    for client in clients {
        runtime.block_on(client).unwrap();
    }
    compare(&test, &BlockingClients::connect(Arc::clone(&runtime), process.grpc));
}
