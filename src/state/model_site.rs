//! What the model checker's schedules happen on: the real writer, ledger and engine on a machine that may lose power
//! between any two steps, and whose disk may fail.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use shuttle::sync::atomic::{AtomicU8, Ordering};
use shuttle::sync::mpsc::{Receiver, Sender, channel};
use shuttle::sync::{Mutex, RwLock};
use shuttle::thread::{self, JoinHandle};

use super::commit::{Wanted, WantedJob};
use super::commit_stage::machine;
use super::committing::{Assuming, Commit};
use super::index::NodeTable;
use super::ledger::{Ledger, SharedLeases};
use super::ledger_tests::{POLICY, cpu, job, of_queue, queue};
use super::model_cards::{cards_keep_the_promise, with_quota};
use super::model_disk::{Disk, LATE, Power, REFUSES, WORKS};
use super::policies::Policies;
use super::seam::{Inbox, Publish, Reply};
use super::settle::LedgerCommand;
use super::tests::{HandClock, batch};
use super::writer::{Command, Parts, Writer};
use super::*;
use crate::engine::cycle::Placement;
use crate::engine::model::{JobRecord, ResourceId, TaskRecord, TaskShape, TaskStatus, View};
use crate::engine::policy::{CompileOptions, compile};
use crate::engine::{Derivations, PolicyInForce, Revision, World};
use crate::store::MemoryStore;

/// Cores that the queue may hold.
const CAPABILITY: i128 = 10;

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

/// The promise, worked out from the records alone; and the accounts that came along with the World equal it. The node has
/// as much as the queue, and of a gang there is all or nothing.
fn keeps_the_promise(world: &World) {
    let mut held: BTreeMap<&str, i128> = BTreeMap::new();
    let mut placed: BTreeMap<&str, usize> = BTreeMap::new();
    let has_place = |task: &TaskRecord| task.status.is_allocated();
    for (_, task) in world.view.tasks().iter().filter(|(_, task)| has_place(&task.record)) {
        *placed.entry(&task.record.job).or_default() += 1;
        *held.entry(&task.record.job).or_default() += i128::from(task.record.requests.get(ResourceId::CPU).unwrap());
    }
    for (name, row) in world.view.reservations().iter() {
        let held = held.entry(name).or_default();
        *held = (*held).max(row.amounts[0].1);
    }
    for (name, placed) in placed {
        let least = world.view.jobs().get(name).map_or(0, |job| job.record.min_member);
        assert!(
            placed >= usize::try_from(least).unwrap(),
            "half of gang {name} has its place"
        );
    }
    let all: i128 = held.values().sum();
    assert!(
        all <= CAPABILITY * 1_000,
        "the promise is broken: {held:?} in {CAPABILITY} cores"
    );
    cards_keep_the_promise(world);
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

/// Records as their source has them.
#[derive(Default)]
struct Truth {
    tasks: BTreeMap<Arc<str>, TaskRecord>,
    /// Of the last batch.
    sequence: u64,
}

/// What is there whichever machine runs.
#[derive(Clone)]
pub(super) struct Site {
    machine: Arc<RwLock<Machine>>,
    disk: MemoryStore,
    clock: Arc<HandClock>,
    truth: Arc<Mutex<Truth>>,
    fault: Arc<AtomicU8>,
    pub(super) checks: bool,
}

fn limits() -> Limits {
    Limits {
        reservation_lease: Duration::from_secs(10),
        assumption_lease: Duration::from_secs(10),
        ..Limits::default()
    }
}

fn start(disk: &MemoryStore, fault: &Arc<AtomicU8>, clock: &Arc<HandClock>, boot: u64, checks: bool) -> Machine {
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
        fault: Arc::clone(fault),
    };
    let kept = store.load().unwrap();
    let parts = Parts {
        names: Arc::new(ResourceNames::new(limits.resource_names)),
        worlds: Arc::clone(&screen) as _,
        sources: Arc::new(sources::Sources::new(Vec::new(), limits.clone(), Arc::clone(&clock))),
        policies: Arc::new(Policies::new(&limits)),
        clock,
    };
    let mut writer = Writer::new(parts, &kept, |view| {
        Ledger::open(&limits, Box::new(store), &kept, &SharedLeases::default(), view).without_checks(!checks)
    });
    writer = writer.without_checks(!checks);
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
    fn tell(&self, truth: &mut Truth) {
        truth.sequence += 1;
        let node = machine("n", "", 1_000 * i64::try_from(CAPABILITY).unwrap());
        let mut put = vec![with_quota(queue("q", 10)), Put::Node(Arc::new(node))];
        for (name, least) in [("ns/a", 2), ("ns/b", 2), ("ns/c", 1)] {
            let gang = truth.tasks.contains_key(&*format!("{name}-1"));
            put.push(Put::Job(JobRecord {
                min_member: if gang { least } else { 1 },
                ..job(name, "u", 6)
            }));
        }
        put.extend(truth.tasks.values().cloned().map(Put::Task));
        self.apply(Batch {
            source_epoch: self.boot,
            ..batch(truth.sequence, BatchKind::SnapshotLast, put)
        });
    }
}

impl Site {
    pub(super) fn new(checks: bool) -> Self {
        let (disk, clock, fault) = <(_, Arc<HandClock>, Arc<AtomicU8>)>::default();
        let machine = start(&disk, &fault, &clock, 1, checks);
        let mut truth = Truth::default();
        machine.tell(&mut truth);
        Self {
            machine: Arc::new(RwLock::new(machine)),
            disk,
            clock,
            truth: Arc::new(Mutex::new(truth)),
            fault,
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

    pub(super) fn confirm(&self, name: &'static str, cores: i64, attempt: u64) -> bool {
        self.confirm_job(&job(name, "u", cores), attempt)
    }

    pub(super) fn confirm_job(&self, job: &JobRecord, attempt: u64) -> bool {
        let ask = |reply| {
            let item = ConfirmItem {
                job: Arc::new(job.clone()),
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

    pub(super) fn release(&self, name: &'static str, attempt: u64) {
        let release = Release {
            job: name.into(),
            uid: "u".into(),
            attempt,
        };
        self.ask(|reply| LedgerCommand::Release(release.clone(), reply))
            .unwrap();
    }

    /// A task of a job is there: running, or waiting for its place.
    pub(super) fn show(&self, job: &'static str, number: usize, cores: i64, runs: bool) {
        let name: Arc<str> = format!("{job}-{number}").into();
        let (status, node) = if runs {
            (TaskStatus::Running, "n")
        } else {
            (TaskStatus::Pending, "")
        };
        let task = TaskRecord {
            name: Arc::clone(&name),
            uid: "u".into(),
            job: job.into(),
            node: node.into(),
            status,
            shape: Arc::new(TaskShape {
                requests: cpu(cores),
                ..TaskShape::default()
            }),
            ..TaskRecord::default()
        };
        let machine = self.machine.read().unwrap();
        let mut truth = self.truth.lock().unwrap();
        truth.tasks.insert(name, task);
        machine.tell(&mut truth);
    }

    /// Commits all tasks of a job to the node. Its conflicts; `None`: the disk failed.
    pub(super) fn commit(&self, job: &'static str, tasks: usize) -> Option<Vec<&'static str>> {
        let placement = |number: usize| Wanted {
            placement: Placement {
                task: format!("{job}-{number}").into(),
                node: "n".into(),
                card: Arc::default(),
            },
            uid: "u".into(),
            node_uid: Arc::default(),
        };
        let committed = self.ask(|reply| {
            let wanted = WantedJob {
                job: job.into(),
                uid: Some("u".into()),
                placements: (0..tasks).map(placement).collect(),
            };
            let commit = Commit {
                session: job.into(),
                policy: ("default".into(), Arc::default()),
                jobs: vec![wanted],
                withdrawn: Vec::new(),
            };
            LedgerCommand::Assume(Box::new(Assuming::Commit(Box::new(commit), reply)))
        });
        let committed = committed.ok()?;
        assert_eq!(committed.durability, Durability::Disk);
        let conflicts = committed.jobs.iter().flat_map(|job| &job.conflicts);
        Some(conflicts.map(|conflict| conflict.reason.code).collect())
    }

    /// Ends what a job's commit assumed. False: the disk failed.
    pub(super) fn let_go(&self, job: &'static str) -> bool {
        let released = self.ask(|reply| {
            let release = Assuming::Release(job.into(), Vec::new(), reply);
            LedgerCommand::Assume(Box::new(release))
        });
        released.is_ok()
    }

    /// How many tasks of a job are assumed.
    pub(super) fn assumed(&self, job: &str) -> usize {
        let world = self.machine.read().unwrap().screen.newest();
        let own = world.view.tasks().iter().filter(|(_, task)| *task.record.job == *job);
        own.filter(|(name, _)| world.view.is_assumed(name)).count()
    }

    /// The disk fails: at once, or after it has written.
    pub(super) fn fail(&self, late: bool) {
        self.fault.store(if late { LATE } else { REFUSES }, Ordering::SeqCst);
    }

    /// The disk is well.
    pub(super) fn mend(&self) {
        self.fault.store(WORKS, Ordering::SeqCst);
    }

    /// The machine loses power, and another starts on its disk.
    pub(super) fn crash(&self) {
        let mut machine = self.machine.write().unwrap();
        machine.power.turn_off();
        // Whoever waits for the next command notices.
        drop(machine.commands.send(Command::Ledger(LedgerCommand::Pass(None))));
        machine.writer.take().unwrap().join().unwrap();
        *machine = start(&self.disk, &self.fault, &self.clock, machine.boot + 1, self.checks);
        machine.tell(&mut self.truth.lock().unwrap());
    }

    pub(super) fn pass(&self, millis: u64) {
        self.clock.turn(millis);
        self.ask(|reply| LedgerCommand::Pass(Some(reply)));
    }

    pub(super) fn rows(&self) -> Vec<String> {
        let world = self.machine.read().unwrap().screen.newest();
        let rows = world.view.reservations().iter();
        rows.map(|(name, _)| name.to_string()).collect()
    }

    /// Everybody lets go: nothing is left, in memory and on the disk.
    pub(super) fn end(self) {
        for name in ["ns/a", "ns/b", "ns/c"] {
            self.release(name, 9);
        }
        {
            let machine = self.machine.read().unwrap();
            let mut truth = self.truth.lock().unwrap();
            truth.tasks.clear();
            machine.tell(&mut truth);
        }
        // What the store was not told of yet it is told when time passes.
        self.pass(0);
        let machine = self.machine.read().unwrap();
        let world = machine.screen.newest();
        assert_eq!(
            of_queue(&policy().policy.derive(&world.view)),
            (0, 0),
            "something leaks"
        );
        let kept = self.disk.clone().load().unwrap();
        assert!(
            kept.rows.is_empty() && kept.assumptions.is_empty(),
            "something leaks on the disk: {kept:?}"
        );
        machine.power.turn_off();
        drop(machine.commands.send(Command::Ledger(LedgerCommand::Pass(None))));
    }
}
