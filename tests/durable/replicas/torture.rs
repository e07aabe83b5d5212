//! Three servers on a real store, all of which is damaged while clients admit near the limit; the histories of all clients are checked by
//! a model.
//!
//! `PUMICE_TORTURE_SECONDS`: how long; `PUMICE_TORTURE_MEMBERS`: members of etcd, or of the API server's; `PUMICE_TORTURE_SEED`: which order of damage.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "histories of a test, with their times"
)]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pumice::config::ServerConfig;
use pumice::server::pb;
use pumice_state::store::AppendRules;
use tokio::runtime::Runtime;

use super::damage::{Dice, Scene, do_damage};
use super::etcd::CuttableProxy;
use super::history::{ArenaReply, History, JobCall};
use super::replica::{CORES, Replica, connect, feed, promised, push_policy, runtime, until};
use super::shared_store::SharedService;
use crate::support::EmbeddedServer;
use crate::support::ledger::{ask, confirm, wants};
use crate::support::wire::BlockingClients;

/// Longest wait of a client for a reply.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(2);
/// Number of clients.
const CLIENTS: u64 = 6;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().unwrap())
}

/// Servers that clients may ask, and the history of their calls.
pub(super) struct Arena {
    addresses: Mutex<Vec<Option<SocketAddr>>>,
    history: Mutex<History>,
    began: Instant,
    /// True while clients keep what they get.
    filling: AtomicBool,
    over: AtomicBool,
    calls: AtomicU64,
}

impl Arena {
    fn new(addresses: Vec<Option<SocketAddr>>) -> Arc<Self> {
        Arc::new(Self {
            addresses: Mutex::new(addresses),
            history: Mutex::new(History::default()),
            began: Instant::now(),
            filling: AtomicBool::new(false),
            over: AtomicBool::new(false),
            calls: AtomicU64::new(0),
        })
    }

    pub(super) fn set_address(&self, number: usize, address: Option<SocketAddr>) {
        self.addresses.lock().unwrap()[number] = address;
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Lets the clients keep what they get until they hold all cores; false: they do not within a minute, so that a core is lost.
    fn fill(&self) -> bool {
        self.filling.store(true, Ordering::SeqCst);
        let end = Instant::now() + Duration::from_mins(1);
        let since = self.began.elapsed();
        let mut is_full = false;
        while !is_full && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
            let history = self.history.lock().unwrap().clone();
            is_full = history.most_held_since(since) >= CORES as usize;
        }
        self.filling.store(false, Ordering::SeqCst);
        is_full
    }
}

/// Client that confirms and releases jobs of its own, at whichever server replies.
struct ArenaClient {
    arena: Arc<Arena>,
    runtime: Arc<Runtime>,
    dice: Dice,
    number: u64,
    connections: Vec<(SocketAddr, BlockingClients)>,
}

impl ArenaClient {
    fn run(mut self) {
        let (mut next, mut held) = (0, Vec::new());
        while !self.arena.is_over() {
            let keeps = self.arena.filling.load(Ordering::SeqCst);
            if held.len() > 2 && keeps {
                std::thread::sleep(Duration::from_millis(10));
                continue;
            }
            if held.len() > 2 || (!keeps && !held.is_empty() && self.dice.roll(3) == 0) {
                let job: String = held.swap_remove(0);
                self.release_surely(&job);
                continue;
            }
            let job = format!("c{}/j{next}", self.number);
            next += 1;
            match self.confirm(&job) {
                ArenaReply::Yes => held.push(job),
                ArenaReply::No => std::thread::sleep(Duration::from_millis(self.dice.roll(20))),
                // It may hold a core.
                ArenaReply::Nothing => self.release_surely(&job),
            }
        }
    }

    /// Confirms a job, at several servers if need be.
    fn confirm(&mut self, job: &str) -> ArenaReply {
        let mut outcome = ArenaReply::Nothing;
        for _ in 0..4 {
            outcome = self.call(job, false, |wire, job| {
                let reply = wire.admit(confirm(vec![ask(wants(job, "q", 1), 1)])).ok()?;
                let item = reply.result?.items.into_iter().next()?;
                item.problem.is_none().then_some(item.permitted)
            });
            if outcome != ArenaReply::Nothing {
                break;
            }
        }
        outcome
    }

    /// Releases a job until a server says that it did.
    fn release_surely(&mut self, job: &str) {
        while !self.arena.is_over() {
            let outcome = self.call(job, true, |wire, job| release(wire, job).ok().map(|()| true));
            if outcome == ArenaReply::Yes {
                break;
            }
        }
    }

    fn call(
        &mut self,
        job: &str,
        is_release: bool,
        send: impl FnOnce(&BlockingClients, &str) -> Option<bool>,
    ) -> ArenaReply {
        let addresses = self.arena.addresses.lock().unwrap().clone();
        let choice = usize::try_from(self.dice.roll(addresses.len() as u64)).unwrap();
        let Some(wire) = addresses[choice].and_then(|address| self.connection(address)) else {
            std::thread::sleep(Duration::from_millis(10));
            return ArenaReply::Nothing;
        };
        let began = self.arena.began.elapsed();
        // Known from now on: a job whose release is under way certainly holds nothing.
        let place = self.arena.history.lock().unwrap().begin(JobCall {
            job: job.to_owned(),
            is_release,
            began,
            ended: Duration::MAX,
            outcome: ArenaReply::Nothing,
        });
        let outcome = match send(&wire, job) {
            Some(true) => ArenaReply::Yes,
            Some(false) => ArenaReply::No,
            None => ArenaReply::Nothing,
        };
        let ended = self.arena.began.elapsed();
        self.arena.calls.fetch_add(1, Ordering::Relaxed);
        self.arena.history.lock().unwrap().end(place, ended, outcome);
        outcome
    }

    fn connection(&mut self, address: SocketAddr) -> Option<BlockingClients> {
        if let Some((_, wire)) = self.connections.iter().find(|(known, _)| *known == address) {
            return Some(wire.clone());
        }
        let wire = connect(&self.runtime, address, CALL_TIMEOUT)?;
        self.connections.push((address, wire.clone()));
        Some(wire)
    }
}

/// Releases the first attempt of a job.
fn release(wire: &BlockingClients, job: &str) -> Result<(), tonic::Status> {
    let release = pb::ReleaseReservationRequest {
        job: job.to_owned(),
        job_uid: String::new(),
        attempt: 1,
    };
    wire.release_reservation(release).map(drop)
}

fn start_clients(arena: &Arc<Arena>, runtime: &Arc<Runtime>, seed: u64) -> Vec<std::thread::JoinHandle<()>> {
    let clients = (0..CLIENTS).map(|number| ArenaClient {
        arena: Arc::clone(arena),
        runtime: Arc::clone(runtime),
        dice: Dice::new(seed * 100 + number + 1),
        number,
        connections: Vec::new(),
    });
    clients.map(|client| std::thread::spawn(move || client.run())).collect()
}

/// Jobs that the ledgers of all servers name; they are equal.
fn common_ledger(replicas: &[Replica], runtime: &Arc<Runtime>) -> Vec<String> {
    let ledgers = replicas.iter().map(|replica| {
        let wire = connect(runtime, replica.grpc(), CALL_TIMEOUT).unwrap();
        // Whatever is written now is judged by the newest state, so the server has read everything before it.
        until("the server writes again", 20, || release(&wire, "none/such").ok());
        promised(&wire)
    });
    let ledgers: Vec<Vec<(String, String)>> = ledgers.collect();
    assert!(
        ledgers.windows(2).all(|two| two[0] == two[1]),
        "the servers differ: {ledgers:?}"
    );
    ledgers[0].iter().map(|(job, _)| job.clone()).collect()
}

#[test]
#[ignore = "needs a store: make replicas"]
fn servers_keep_every_promise_whatever_is_damaged() {
    let seconds = number("PUMICE_TORTURE_SECONDS", 20);
    let members = usize::try_from(number("PUMICE_TORTURE_MEMBERS", 1)).unwrap();
    let seed = number("PUMICE_TORTURE_SEED", 1);
    let (mut store, runtime) = (SharedService::start_with_disks(members), runtime());
    let mut replicas: Vec<Replica> = (0..3).map(|_| Replica::start(&store)).collect();
    let arena = Arena::new(replicas.iter().map(|replica| Some(replica.grpc())).collect());
    for replica in &replicas {
        let wire = connect(&runtime, replica.grpc(), CALL_TIMEOUT).unwrap();
        push_policy(&wire);
        feed(&wire, 1);
    }
    let clients = start_clients(&arena, &runtime, seed);
    let scene = Scene {
        store: &mut store,
        replicas: &mut replicas,
        arena: &arena,
        runtime: &runtime,
    };
    let filled_before = arena.fill();
    let damage = do_damage(scene, seed, Duration::from_secs(seconds));
    let filled_after = arena.fill();
    arena.over.store(true, Ordering::SeqCst);
    for client in clients {
        client.join().unwrap();
    }
    let jobs = common_ledger(&replicas, &runtime);
    let history = arena.history.lock().unwrap().clone();
    let count = |outcome| history.0.iter().filter(|call| call.outcome == outcome).count();
    println!(
        "{damage:?} in {seconds} s with {members} members, seed {seed}: {} calls ({} granted, {} refused, {} without a \
         reply), at most {} of {CORES} cores at one time",
        arena.calls.load(Ordering::Relaxed),
        count(ArenaReply::Yes),
        count(ArenaReply::No),
        count(ArenaReply::Nothing),
        history.most_held()
    );
    let problems = history.problems(&jobs, CORES as usize);
    assert!(problems.is_empty(), "{problems:#?}");
    assert!(count(ArenaReply::Yes) > 20, "the clients were granted something");
    assert!(filled_before, "the clients hold all cores before the damage");
    assert!(
        filled_after,
        "the clients hold all cores after the damage: none is lost"
    );
}

/// Problems that the model finds with three servers of this process that follow these rules and are cut off now and then.
fn problems_with(rules: AppendRules) -> Vec<String> {
    let (store, runtime) = (SharedService::start(1), runtime());
    let proxies: Vec<Vec<CuttableProxy>> = (0..3).map(|_| store.proxies()).collect();
    let servers: Vec<EmbeddedServer> = proxies
        .iter()
        .map(|proxies| EmbeddedServer::on_store(ServerConfig::on_free_ports(), store.open(proxies, rules)))
        .collect();
    for server in &servers {
        push_policy(&server.wire);
        feed(&server.wire, 1);
    }
    let arena = Arena::new(servers.iter().map(|server| Some(server.grpc)).collect());
    let clients = start_clients(&arena, &runtime, 7);
    for proxy in proxies.iter().flatten().cycle().take(9) {
        std::thread::sleep(Duration::from_millis(300));
        proxy.cut();
        std::thread::sleep(Duration::from_millis(300));
        proxy.mend();
    }
    std::thread::sleep(Duration::from_secs(2));
    arena.over.store(true, Ordering::SeqCst);
    for client in clients {
        client.join().unwrap();
    }
    let mut log = store.open(&store.proxies(), rules);
    let content = log.content();
    let history = arena.history.lock().unwrap().clone();
    let granted = history.0.iter().filter(|call| call.outcome == ArenaReply::Yes).count();
    println!("{rules:?}: {} calls, {granted} granted", history.0.len());
    assert!(granted > 20, "the clients were granted something");
    let problems = match content {
        Ok(content) => {
            let jobs: Vec<String> = content.reservations.iter().map(|row| row.job.to_string()).collect();
            history.problems(&jobs, CORES as usize)
        }
        // Entries that do not follow each other lead to no ledger.
        Err(error) => vec![format!("the log cannot be read: {error}")],
    };
    println!("problems: {problems:?}");
    problems
}

#[test]
#[ignore = "needs a store: make replicas"]
fn the_model_notices_a_rule_that_is_left_out() {
    let all = AppendRules::default();
    assert_eq!(problems_with(all), Vec::<String>::new(), "with all rules");
    let problems = problems_with(AppendRules::new(false, true));
    assert!(!problems.is_empty(), "an entry goes onto any head");
    let problems = problems_with(AppendRules::new(true, false));
    assert!(!problems.is_empty(), "an entry is acknowledged before it is in the log");
}
