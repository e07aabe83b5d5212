//! Schedulers that race on one small cluster: limits of nodes, quotas and gangs hold in every visible state. Without
//! the checks of commits the same race violates all three.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::{TestServer, amounts, full_sync, node, reload, task};
use crate::app;
use crate::config::ServerConfig;
use crate::server::pb::DecisionServiceClient;
use crate::server::pb::StateServiceClient;
use crate::server::pb::{self, TaskStatus};
use tonic::transport::Channel;

const SCHEDULERS: usize = 5;
const NODES: usize = 4;
/// Number of cores of a node; each task takes one.
const CORES: usize = 8;
/// Number of cores that a queue may hold; both queues together may hold less than the cluster has.
const QUOTA: usize = 12;
const JOBS: usize = 24;

fn members(job: usize) -> usize {
    2 + job % 3
}

fn queue(job: usize) -> &'static str {
    // The first jobs belong to one queue, so that the first round wants more than its quota.
    if job < JOBS / 2 { "left" } else { "right" }
}

fn record(job: usize, number: usize) -> pb::Task {
    pb::Task {
        uid: format!("{job}-{number}"),
        job: format!("race/j{job:02}"),
        status: TaskStatus::Pending.into(),
        ..task(&format!("race/j{job:02}-{number}"), &[("cpu", "1")])
    }
}

fn cluster() -> pb::Cluster {
    let capability = || Some(amounts(&[("cpu", &QUOTA.to_string())]));
    let queues = ["left", "right"].map(|name| pb::Queue {
        name: name.to_owned(),
        capability: capability(),
        ..pb::Queue::default()
    });
    let jobs = (0..JOBS).map(|job| pb::Job {
        name: format!("race/j{job:02}"),
        queue: queue(job).to_owned(),
        min_member: i32::try_from(members(job)).unwrap(),
        ..pb::Job::default()
    });
    pb::Cluster {
        nodes: (0..NODES)
            .map(|at| node(&format!("n{at}"), &CORES.to_string()))
            .collect(),
        queues: queues.into(),
        jobs: jobs.collect(),
        tasks: (0..JOBS)
            .flat_map(|job| (0..members(job)).map(move |number| record(job, number)))
            .collect(),
        ..pb::Cluster::default()
    }
}

/// Pseudo-random numbers, the same in every run.
struct RaceRandom(u64);

impl RaceRandom {
    fn below(&mut self, sides: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }
}

/// Client with a connection of its own.
#[derive(Clone)]
struct RaceClient {
    decisions: DecisionServiceClient<Channel>,
    state: StateServiceClient<Channel>,
}

/// State that a session sees.
struct ObservedState {
    session: String,
    used: BTreeMap<String, usize>,
    tasks: Vec<pb::StoredTask>,
    queues: Vec<pb::QueueStatus>,
}

fn session_ref(session: &str) -> pb::EvaluationRef {
    let step = pb::SessionRef {
        id: session.to_owned(),
        ..pb::SessionRef::default()
    };
    pb::EvaluationRef {
        target: Some(pb::evaluation_ref::Target::Session(step)),
        ..pb::EvaluationRef::default()
    }
}

/// Whole cores of an amount: tasks use nothing else.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small whole numbers"
)]
fn cores(list: &[pb::Amount]) -> usize {
    let milli = list.iter().find(|amount| amount.resource == "cpu");
    milli.map_or(0.0, |amount| (amount.value / 1000.0).round()) as usize
}

impl RaceClient {
    async fn observe(&mut self) -> ObservedState {
        let opened = self.decisions.open_session(pb::OpenSessionRequest::default()).await;
        let session = opened.unwrap().into_inner().session;
        let nodes = pb::ListNodesRequest {
            against: Some(session_ref(&session)),
            ..pb::ListNodesRequest::default()
        };
        let nodes = self.state.list_nodes(nodes).await.unwrap().into_inner().nodes;
        let used = nodes.into_iter().map(|status| {
            let used = cores(&status.used);
            (status.node.unwrap().name, used)
        });
        let used = used.collect();
        let tasks = pb::ListTasksRequest {
            against: Some(session_ref(&session)),
            ..pb::ListTasksRequest::default()
        };
        let tasks = self.state.list_tasks(tasks).await.unwrap().into_inner().tasks;
        let queues = pb::ListQueuesRequest {
            against: Some(session_ref(&session)),
            ..pb::ListQueuesRequest::default()
        };
        let queues = self.state.list_queues(queues).await.unwrap().into_inner().queues;
        ObservedState {
            session,
            used,
            tasks,
            queues,
        }
    }

    async fn commit(&mut self, session: &str, changes: Vec<pb::SessionChange>) -> pb::CommitSessionResponse {
        let request = pb::CommitSessionRequest {
            session: Some(pb::SessionRef {
                id: session.to_owned(),
                after: 0,
                changes,
            }),
            jobs: Vec::new(),
        };
        self.decisions.commit_session(request).await.unwrap().into_inner()
    }
}

fn status(stored: &pb::StoredTask) -> TaskStatus {
    stored.task.as_ref().unwrap().status()
}

impl ObservedState {
    /// Violations in this one state: of nodes, of queues, of gangs.
    fn violations(&self) -> BTreeSet<&'static str> {
        let mut broken = BTreeSet::new();
        let mut reported: BTreeMap<String, usize> = BTreeMap::new();
        let (mut held, mut ready) = (BTreeMap::new(), BTreeMap::new());
        for stored in &self.tasks {
            let task = stored.task.as_ref().unwrap();
            let job: usize = task.job.strip_prefix("race/j").unwrap().parse().unwrap();
            let runs = matches!(task.status(), TaskStatus::Allocated | TaskStatus::Running);
            if runs {
                *reported.entry(task.node.clone()).or_default() += 1;
                *held.entry(queue(job)).or_insert(0) += 1;
            }
            if runs || task.status() == TaskStatus::Succeeded {
                *ready.entry(job).or_insert(0) += 1;
            }
            assert_eq!(stored.assumed, task.status() == TaskStatus::Allocated);
        }
        if self.used.values().any(|used| *used > CORES) {
            broken.insert("node");
        }
        for (name, used) in &self.used {
            assert_eq!(
                reported.get(name).copied().unwrap_or(0),
                *used,
                "usage is what the tasks say"
            );
        }
        for status in &self.queues {
            let name = &status.queue.as_ref().unwrap().name;
            let account = &status.accounts[0];
            let own = held.get(&**name).copied().unwrap_or(0);
            assert_eq!(cores(&account.allocated), own, "accounts, too");
            if own > QUOTA {
                broken.insert("queue");
            }
        }
        if ready.iter().any(|(job, ready)| *ready < members(*job)) {
            broken.insert("gang");
        }
        broken
    }

    /// Pending tasks by job.
    fn pending_by_job(&self) -> BTreeMap<String, Vec<String>> {
        let mut pending: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for stored in self.tasks.iter().filter(|stored| status(stored) == TaskStatus::Pending) {
            let task = stored.task.as_ref().unwrap();
            pending.entry(task.job.clone()).or_default().push(task.name.clone());
        }
        pending
    }

    fn all_succeeded(&self) -> bool {
        self.tasks.iter().all(|stored| status(stored) == TaskStatus::Succeeded)
    }
}

/// Plans whole gangs on the first nodes with free capacity, as the session sees it.
fn plan_gangs(seen: &ObservedState, gangs: &[Vec<String>], first: usize) -> Vec<pb::SessionChange> {
    let mut used: Vec<(String, usize)> = seen.used.clone().into_iter().collect();
    used.rotate_left(first);
    let mut changes = Vec::new();
    for gang in gangs {
        for task in gang {
            let Some((node, used)) = used.iter_mut().find(|(_, used)| *used < CORES) else {
                break;
            };
            *used += 1;
            changes.push(pb::SessionChange {
                change: Some(pb::session_change::Change::Allocate(pb::TaskPlacement {
                    task: task.clone(),
                    node: node.clone(),
                    card: String::new(),
                    devices: Vec::new(),
                })),
            });
        }
    }
    changes
}

struct RaceProgress {
    /// Barrier of all clients: all have seen the empty cluster, all have committed on it, and the result was checked.
    rounds: Barrier,
    finished: AtomicBool,
    committed: AtomicUsize,
    conflicts: AtomicUsize,
}

impl RaceProgress {
    fn count(&self, reply: &pb::CommitSessionResponse) {
        let conflicts: usize = reply.jobs.iter().map(|job| job.rejections.len()).sum();
        self.conflicts.fetch_add(conflicts, Ordering::Relaxed);
        let committed = reply.jobs.iter().filter(|job| job.committed).count();
        self.committed.fetch_add(committed, Ordering::Relaxed);
    }
}

async fn schedule(mut caller: RaceClient, number: usize, race: Arc<RaceProgress>) {
    let mut dice = RaceRandom(number as u64 + 1);
    let seen = caller.observe().await;
    race.rounds.wait().await;
    // Every client wants two gangs of its own on the first node, and one forgets most of a third.
    let mut gangs: Vec<Vec<String>> = seen.pending_by_job().into_values().skip(number * 2).take(2).collect();
    if number == 0 {
        gangs.push(seen.pending_by_job().into_values().nth(SCHEDULERS * 2).unwrap()[..1].to_vec());
    }
    let reply = caller.commit(&seen.session, plan_gangs(&seen, &gangs, 0)).await;
    race.count(&reply);
    race.rounds.wait().await;
    race.rounds.wait().await;
    while !race.finished.load(Ordering::Relaxed) {
        let seen = caller.observe().await;
        let mut gangs: Vec<Vec<String>> = seen.pending_by_job().into_values().collect();
        if !gangs.is_empty() {
            let first = dice.below(gangs.len());
            gangs.rotate_left(first);
        }
        gangs.truncate(1 + dice.below(3));
        let changes = plan_gangs(&seen, &gangs, dice.below(NODES));
        match dice.below(5) {
            // The client crashes: nothing of its session may count, and the session ends by itself.
            0 => {}
            // The reply is lost, and the client retries.
            1 => {
                let first = caller.commit(&seen.session, changes.clone()).await;
                let again = caller.commit(&seen.session, changes).await;
                assert_eq!(first.jobs, again.jobs);
                race.count(&first);
            }
            _ => {
                let reply = caller.commit(&seen.session, changes).await;
                race.count(&reply);
            }
        }
    }
}

/// Source of the cluster: binds committed tasks, some of them late, sends old records meanwhile, and lets whole jobs
/// end.
async fn bind_committed(mut caller: RaceClient, race: Arc<RaceProgress>) {
    let (mut dice, mut sequence) = (RaceRandom(99), 1);
    let mut bound: BTreeMap<String, pb::Task> = BTreeMap::new();
    while !race.finished.load(Ordering::Relaxed) {
        let seen = caller.observe().await;
        close(&mut caller, &seen).await;
        let mut put = Vec::new();
        for stored in &seen.tasks {
            let task = stored.task.clone().unwrap();
            if !stored.assumed {
                continue;
            }
            let fate = dice.below(4);
            if fate < 2 {
                let running = pb::Task {
                    status: TaskStatus::Running.into(),
                    ..task
                };
                bound.insert(running.name.clone(), running.clone());
                put.push(running);
            } else if fate == 2 {
                put.push(pb::Task {
                    status: TaskStatus::Pending.into(),
                    node: String::new(),
                    ..task
                });
            }
        }
        for job in (0..JOBS).filter(|_| dice.below(3) == 0) {
            let names = (0..members(job)).map(|number| record(job, number).name);
            let whole: Option<Vec<&pb::Task>> = names.map(|name| bound.get(&name)).collect();
            put.extend(whole.into_iter().flatten().map(|task| pb::Task {
                status: TaskStatus::Succeeded.into(),
                ..task.clone()
            }));
        }
        sequence += 1;
        let batch = pb::Batch {
            source: "test".to_owned(),
            source_epoch: 1,
            sequence,
            put: Some(pb::Cluster {
                tasks: put,
                ..pb::Cluster::default()
            }),
            ..pb::Batch::default()
        };
        let applied = caller.state.apply(pb::ApplyRequest { batch: Some(batch) }).await;
        let outcome = applied.unwrap().into_inner().outcome.unwrap();
        assert_eq!((outcome.refused.len(), outcome.resync), (0, None));
    }
}

async fn close(caller: &mut RaceClient, seen: &ObservedState) {
    let request = pb::CloseSessionRequest {
        session: seen.session.clone(),
    };
    caller.decisions.close_session(request).await.unwrap();
}

/// Observes states as fast as possible. Returns the violations of the first round and of all rounds.
async fn watch_states(
    mut caller: RaceClient,
    race: Arc<RaceProgress>,
) -> (BTreeSet<&'static str>, BTreeSet<&'static str>, usize) {
    let (mut broken, mut looks) = (BTreeSet::new(), 0);
    race.rounds.wait().await;
    race.rounds.wait().await;
    let seen = caller.observe().await;
    let first = seen.violations();
    close(&mut caller, &seen).await;
    if !first.is_empty() {
        race.finished.store(true, Ordering::Relaxed);
    }
    race.rounds.wait().await;
    while !race.finished.load(Ordering::Relaxed) {
        let seen = caller.observe().await;
        broken.extend(seen.violations());
        looks += 1;
        if seen.all_succeeded() || !broken.is_empty() {
            race.finished.store(true, Ordering::Relaxed);
        }
        close(&mut caller, &seen).await;
    }
    (first, broken, looks)
}

/// Runs a race. Returns the violations of the first round, the violations of later rounds, and the race.
async fn run_race(bound: app::BoundServer) -> (BTreeSet<&'static str>, BTreeSet<&'static str>, Arc<RaceProgress>) {
    let mut server = TestServer::serve(bound).await;
    let quotas = reload("actions: allocate\ntiers:\n- plugins:\n  - name: capacity-card\n", None);
    server.policies.reload_policy(quotas).await.unwrap();
    server.apply(full_sync(cluster())).await;
    let race = Arc::new(RaceProgress {
        rounds: Barrier::new(SCHEDULERS + 1),
        finished: AtomicBool::new(false),
        committed: AtomicUsize::new(0),
        conflicts: AtomicUsize::new(0),
    });
    let mut others = JoinSet::new();
    for number in 0..SCHEDULERS {
        others.spawn(schedule(server.race_client().await, number, Arc::clone(&race)));
    }
    others.spawn(bind_committed(server.race_client().await, Arc::clone(&race)));
    let (first, broken, looks) = watch_states(server.race_client().await, Arc::clone(&race)).await;
    while let Some(done) = others.join_next().await {
        done.unwrap();
    }
    assert!(looks > 0 || !first.is_empty());
    server.stop().await;
    (first, broken, race)
}

impl TestServer {
    async fn race_client(&self) -> RaceClient {
        let channel = Channel::from_shared(format!("http://{}", self.grpc)).unwrap();
        let channel = channel.connect().await.unwrap();
        RaceClient {
            decisions: DecisionServiceClient::new(channel.clone()),
            state: StateServiceClient::new(channel),
        }
    }
}

fn config() -> ServerConfig {
    let mut config = ServerConfig::on_free_ports();
    // Clients that crash leave their sessions behind.
    config.limits.state.sessions = 10_000;
    config
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn racing_schedulers_break_nothing() {
    let (first, later, race) = run_race(app::bind(config()).await.unwrap()).await;
    assert_eq!((first, later), (BTreeSet::new(), BTreeSet::new()));
    assert_eq!(race.committed.load(Ordering::Relaxed), JOBS, "each job once, and whole");
    assert!(
        race.conflicts.load(Ordering::Relaxed) > 0,
        "they did get in each other's way"
    );
}

#[cfg(feature = "test-doors")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn unchecked_commits_break_nodes_queues_and_gangs() {
    let mut unjudged = config();
    unjudged.test_doors.skip_checks = true;
    let (first, _, _) = run_race(app::bind(unjudged).await.unwrap()).await;
    assert_eq!(first, BTreeSet::from(["gang", "node", "queue"]));
}
