//! The real writer, ledger and engine under a model checker, which decides who runs when: clients that confirm, release
//! and retry, tasks that start, leases that end, and a machine that loses power between any two steps.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::time::Duration;

use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::sync::mpsc::{Receiver, Sender, channel};
use shuttle::sync::{Mutex, RwLock};
use shuttle::thread::{self, JoinHandle};

use super::index::NodeTable;
use super::ledger::{Ledger, SharedLeases};
use super::ledger_tests::{POLICY, job, of_queue, queue, running};
use super::policies::Policies;
use super::seam::{Inbox, Publish, Reply};
use super::settle::LedgerCommand;
use super::tests::{HandClock, batch};
use super::writer::{Command, Parts, Writer};
use super::*;
use crate::engine::model::{ResourceId, View};
use crate::engine::policy::{CompileOptions, compile};
use crate::engine::{Derivations, PolicyInForce, Revision, World};
use crate::store::{Kept, MemoryStore, Write};

/// Cores that the queue may hold.
const CAPABILITY: i128 = 10;

/// A machine that may have lost power: from then on nothing that it does is seen.
#[derive(Clone, Debug, Default)]
struct Power(Arc<AtomicBool>);

impl Power {
    fn is_off(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// A disk, whose writes take time.
#[derive(Debug)]
struct Disk {
    content: MemoryStore,
    power: Power,
}

impl Store for Disk {
    fn durability(&self) -> Durability {
        Durability::Disk
    }

    fn load(&mut self) -> Result<Kept, StoreError> {
        self.content.load()
    }

    fn write(&mut self, writes: &[Write]) -> Result<(), StoreError> {
        thread::yield_now();
        if self.power.is_off() {
            return Err(StoreError::Failed {
                place: "the disk".to_owned(),
                message: "no power".to_owned(),
            });
        }
        self.content.write(writes)?;
        thread::yield_now();
        Ok(())
    }
}

/// Where Worlds are shown: each is looked at, however short it is the newest.
#[derive(Debug)]
struct Screen {
    newest: Mutex<Arc<World>>,
    power: Power,
}

impl Publish for Screen {
    fn newest(&self) -> Arc<World> {
        Arc::clone(&self.newest.lock().unwrap())
    }

    fn publish(&self, world: World) {
        thread::yield_now();
        if self.power.is_off() {
            return;
        }
        keeps_the_promise(&world);
        *self.newest.lock().unwrap() = Arc::new(world);
    }
}

/// The promise, worked out from the records alone; and the accounts that came along with the World equal it.
fn keeps_the_promise(world: &World) {
    let mut held: BTreeMap<&str, i128> = BTreeMap::new();
    for (_, task) in world.view.tasks().iter() {
        *held.entry(&task.record.job).or_default() += i128::from(task.record.requests.get(ResourceId::CPU).unwrap());
    }
    for (name, row) in world.view.reservations().iter() {
        let held = held.entry(name).or_default();
        *held = (*held).max(row.amounts[0].1);
    }
    let all: i128 = held.values().sum();
    assert!(
        all <= CAPABILITY * 1_000,
        "the promise is broken: {held:?} in {CAPABILITY} cores"
    );
    for derived in world.derived.ready().into_values() {
        let fresh = policy().policy.derive(&world.view);
        assert_eq!(
            of_queue(&derived),
            of_queue(&fresh),
            "accounts that came along are others"
        );
        let (allocated, inqueue) = of_queue(&fresh);
        if world.view.queues().contains("q") {
            assert_eq!(
                (allocated + inqueue) * 1_000,
                all,
                "an account is not the sum of its records"
            );
        }
    }
}

fn policy() -> Arc<PolicyInForce> {
    static POLICY_IN_FORCE: OnceLock<Arc<PolicyInForce>> = OnceLock::new();
    let compile = || {
        let compiled = compile(POLICY, &CompileOptions::default()).unwrap();
        Arc::new(PolicyInForce {
            name: "default".into(),
            version: 1,
            hash: Arc::default(),
            profile: Arc::default(),
            policy: compiled.policy,
        })
    };
    Arc::clone(POLICY_IN_FORCE.get_or_init(compile))
}

struct Mailbox {
    commands: Receiver<Command>,
    power: Power,
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        while self.commands.try_recv().is_ok() {}
    }
}

impl Inbox for Mailbox {
    fn wait(&mut self) -> Option<Command> {
        if self.power.is_off() {
            return None;
        }
        let command = self.commands.recv().ok()?;
        (!self.power.is_off()).then_some(command)
    }

    fn take(&mut self) -> Option<Command> {
        if self.power.is_off() {
            return None;
        }
        self.commands.try_recv().ok()
    }
}

/// A server from its start to its end.
struct Machine {
    commands: Sender<Command>,
    screen: Arc<Screen>,
    power: Power,
    boot: u64,
    writer: Option<JoinHandle<()>>,
}

/// By job what its tasks hold, and a number.
type Truth = (Vec<(&'static str, i64)>, u64);

/// What is there whichever machine runs.
#[derive(Clone)]
struct Site {
    machine: Arc<RwLock<Machine>>,
    disk: MemoryStore,
    clock: Arc<HandClock>,
    /// Records as their source has them: what each job's tasks hold; and the number of its last batch.
    truth: Arc<Mutex<Truth>>,
    checks: bool,
}

fn limits() -> Limits {
    Limits {
        reservation_lease: Duration::from_secs(10),
        ..Limits::default()
    }
}

fn start(disk: &MemoryStore, clock: &Arc<HandClock>, boot: u64, checks: bool) -> Machine {
    let (limits, power, clock) = (limits(), Power::default(), Arc::clone(clock) as Arc<dyn Clock>);
    let world = World {
        revision: Revision { epoch: boot, number: 0 },
        view: View::new(Arc::new(NodeTable::default()), 1),
        policies: Arc::default(),
        positions: Arc::default(),
        derived: Derivations::default(),
    };
    let screen = Arc::new(Screen {
        newest: Mutex::new(Arc::new(world)),
        power: power.clone(),
    });
    let mut store = Disk {
        content: disk.clone(),
        power: power.clone(),
    };
    let kept = store.load().unwrap();
    let parts = Parts {
        names: Arc::new(ResourceNames::new(limits.resource_names)),
        worlds: Arc::clone(&screen) as _,
        sources: Arc::new(sources::Sources::new(Vec::new(), limits.clone(), Arc::clone(&clock))),
        policies: Arc::new(Policies::new(&limits)),
        clock,
    };
    let mut writer = Writer::new(parts, |view| {
        Ledger::open(&limits, Box::new(store), &kept, &SharedLeases::default(), view).without_checks(!checks)
    });
    writer.begin(BTreeMap::from([("default".into(), policy())]));
    let (commands, queue) = channel();
    let mailbox = Mailbox {
        commands: queue,
        power: power.clone(),
    };
    Machine {
        commands,
        screen,
        power,
        boot,
        writer: Some(thread::spawn(move || writer.run(mailbox))),
    }
}

impl Machine {
    /// Asks; `None`: the machine has lost power, and nobody knows what it did.
    fn ask<T: Send + 'static>(
        commands: Sender<Command>,
        power: &Power,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Option<T> {
        let (answer, answered) = channel();
        let power = power.clone();
        let reply = Reply::to(move |value| {
            if !power.is_off() {
                drop(answer.send(value));
            }
        });
        commands.send(command(reply)).ok()?;
        // A message that nobody takes any more goes with the last sender.
        drop(commands);
        answered.recv().ok()
    }

    fn apply(&self, batch: Batch) {
        let outcome = Self::ask(self.commands.clone(), &self.power, |reply| {
            Command::Apply(Box::new(batch), reply)
        });
        let outcome = outcome.unwrap().unwrap();
        assert!(outcome.resync.is_none() && outcome.refused.is_empty(), "{outcome:?}");
    }

    /// The whole of the records.
    fn tell(&self, truth: &mut (Vec<(&'static str, i64)>, u64)) {
        truth.1 += 1;
        let mut put = vec![queue("q", 10)];
        for (name, _) in [("ns/a", 0), ("ns/b", 0), ("ns/c", 0)] {
            put.push(Put::Job(job(name, "u", 6)));
        }
        let tasks = truth
            .0
            .iter()
            .map(|(job, cores)| running(&format!("{job}-0"), job, *cores));
        put.extend(tasks);
        self.apply(Batch {
            source_epoch: self.boot,
            ..batch(truth.1, BatchKind::SnapshotLast, put)
        });
    }
}

impl Site {
    fn new(checks: bool) -> Self {
        let (disk, clock) = (MemoryStore::default(), Arc::new(HandClock::default()));
        let machine = start(&disk, &clock, 1, checks);
        let mut truth = (Vec::new(), 0);
        machine.tell(&mut truth);
        Self {
            machine: Arc::new(RwLock::new(machine)),
            disk,
            clock,
            truth: Arc::new(Mutex::new(truth)),
            checks,
        }
    }

    /// Asks until a machine answers.
    fn ask<T: Send + 'static>(&self, command: impl Fn(Reply<T>) -> LedgerCommand) -> T {
        loop {
            let (commands, power) = {
                let machine = self.machine.read().unwrap();
                (machine.commands.clone(), machine.power.clone())
            };
            if let Some(answer) = Machine::ask(commands, &power, |reply| Command::Ledger(command(reply))) {
                return answer;
            }
        }
    }

    fn confirm(&self, name: &'static str, cores: i64, attempt: u64) -> bool {
        let ask = |reply| {
            let item = ConfirmItem {
                job: Arc::new(job(name, "u", cores)),
                attempt,
                names: Arc::default(),
            };
            let confirm = Confirm {
                policy: "default".into(),
                profile: Arc::default(),
                plugins: Vec::new(),
                lease: None,
                read: Box::new(move |_| vec![Ok(item)]),
            };
            LedgerCommand::Confirm(Box::new(confirm), reply)
        };
        let mut done = self.ask(ask).unwrap();
        let one = done.items.pop().unwrap().unwrap();
        assert_eq!(done.durability, Durability::Disk);
        one.admission.permitted
    }

    fn release(&self, name: &'static str, attempt: u64) {
        let release = Release {
            job: name.into(),
            uid: "u".into(),
            attempt,
        };
        self.ask(|reply| LedgerCommand::Release(release.clone(), reply))
            .unwrap();
    }

    /// Tasks of a job start.
    fn run(&self, job: &'static str, cores: i64) {
        let machine = self.machine.read().unwrap();
        let mut truth = self.truth.lock().unwrap();
        truth.0.push((job, cores));
        machine.tell(&mut truth);
    }

    /// The machine loses power, and another starts on its disk.
    fn crash(&self) {
        let mut machine = self.machine.write().unwrap();
        machine.power.0.store(true, Ordering::SeqCst);
        // Whoever waits for the next command notices.
        drop(machine.commands.send(Command::Ledger(LedgerCommand::Pass(None))));
        machine.writer.take().unwrap().join().unwrap();
        *machine = start(&self.disk, &self.clock, machine.boot + 1, self.checks);
        machine.tell(&mut self.truth.lock().unwrap());
    }

    fn pass(&self, millis: u64) {
        self.clock.turn(millis);
        self.ask(|reply| LedgerCommand::Pass(Some(reply)));
    }

    fn rows(&self) -> Vec<String> {
        let world = self.machine.read().unwrap().screen.newest();
        let rows = world.view.reservations().iter();
        rows.map(|(name, _)| name.to_string()).collect()
    }

    /// Everybody lets go: nothing is left, in memory and on the disk.
    fn end(self) {
        for name in ["ns/a", "ns/b", "ns/c"] {
            self.release(name, 9);
        }
        {
            let machine = self.machine.read().unwrap();
            let mut truth = self.truth.lock().unwrap();
            truth.0.clear();
            machine.tell(&mut truth);
        }
        let machine = self.machine.read().unwrap();
        let world = machine.screen.newest();
        assert_eq!(
            of_queue(&policy().policy.derive(&world.view)),
            (0, 0),
            "something leaks"
        );
        assert!(
            self.disk.clone().load().unwrap().rows.is_empty(),
            "something leaks on the disk"
        );
        machine.power.0.store(true, Ordering::SeqCst);
        drop(machine.commands.send(Command::Ledger(LedgerCommand::Pass(None))));
    }
}

/// Two jobs that do not fit together, a third that runs, a release with a late request, and a crash.
fn crossing(checks: bool) {
    let site = Site::new(checks);
    let with = |act: fn(&Site)| {
        let site = site.clone();
        thread::spawn(move || act(&site))
    };
    let actors = [
        with(|site| {
            if site.confirm("ns/a", 6, 1) {
                assert!(site.confirm("ns/a", 6, 1), "asked again: the recorded outcome");
            }
            site.release("ns/a", 1);
            assert!(
                !site.confirm("ns/a", 6, 1) || !site.checks,
                "a late request revives nothing"
            );
        }),
        with(|site| {
            if site.confirm("ns/b", 6, 1) {
                assert!(
                    site.rows().contains(&"ns/b".to_owned()),
                    "what is acknowledged is visible"
                );
                site.run("ns/b", 2);
            }
        }),
        with(|site| {
            let permitted = site.confirm("ns/c", 4, 1);
            let replaced = site.confirm("ns/c", 8, 1);
            let kept = site.rows().contains(&"ns/c".to_owned());
            assert_eq!(kept, permitted || replaced, "what is acknowledged is visible");
        }),
        with(Site::crash),
    ];
    for actor in actors {
        actor.join().unwrap();
    }
    assert!(!site.rows().contains(&"ns/a".to_owned()));
    site.end();
}

/// Leases end while others ask, and a crash grants them anew.
fn expiry() {
    let site = Site::new(true);
    site.pass(0);
    assert!(site.confirm("ns/a", 6, 1));
    let with = |act: fn(&Site)| {
        let site = site.clone();
        thread::spawn(move || act(&site))
    };
    let actors = [
        with(|site| {
            site.pass(9_000);
            site.pass(9_000);
        }),
        with(|site| {
            site.confirm("ns/b", 6, 1);
            site.confirm("ns/b", 6, 1);
        }),
        with(Site::crash),
    ];
    for actor in actors {
        actor.join().unwrap();
    }
    for _ in 0..2 {
        site.pass(9_000);
    }
    assert_eq!(site.rows(), Vec::<String>::new(), "every lease has ended");
    site.end();
}

/// How many schedules to try; `PUMICE_MODEL_SCHEDULES` says another number.
#[expect(
    clippy::disallowed_methods,
    reason = "the environment of a test run is its command line"
)]
fn schedules() -> usize {
    let said = std::env::var("PUMICE_MODEL_SCHEDULES");
    let said = said.ok().and_then(|said| said.parse().ok());
    said.unwrap_or(150)
}

#[test]
fn random_schedules_keep_the_promise() {
    shuttle::check_random(|| crossing(true), schedules());
    shuttle::check_random(expiry, schedules());
}

#[test]
fn adversarial_schedules_keep_the_promise() {
    shuttle::check_pct(|| crossing(true), schedules(), 3);
    shuttle::check_pct(expiry, schedules(), 3);
}

#[test]
fn the_first_schedules_of_all_keep_the_promise() {
    shuttle::check_dfs(|| crossing(true), Some(schedules()));
}

#[test]
fn without_the_check_the_model_finds_the_harm() {
    let run = || shuttle::check_random(|| crossing(false), schedules());
    let found = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
    let said = found
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| found.downcast_ref::<&str>().copied())
        .unwrap_or_default();
    assert!(said.contains("the promise is broken"), "{said}");
}
