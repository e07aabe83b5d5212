//! Machine for the model checker's schedules: the real writer, ledger and engine on a machine that may lose power
//! between any two steps, and whose disk may fail.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use shuttle::sync::atomic::{AtomicU8, Ordering};
use shuttle::sync::mpsc::{Receiver, Sender, channel};
use shuttle::sync::{Mutex, RwLock};
use shuttle::thread::{self, JoinHandle};

use super::commit_fixture::machine;
use super::ledger_tests::{POLICY, cpu, job, queue, queue_account};
use super::shuttle_card_tests::{cards_keep_the_promise, with_quota};
use super::shuttle_disk::{DISK_FAILS_LATE, DISK_REJECTS, DISK_WORKS, PowerSwitch, SimulatedDisk};
use super::{FakeClock, batch};
use crate::ledger::{AdmissionLedger, SharedLeases};
use crate::policies::writer::PolicyWriter;
use crate::sessions::commit_outcome::{ProposedJob, ProposedPlacement};
use crate::sessions::placed_calls::{CommitScope, PlacedCall, PlacementCommit};
use crate::store::{Durability, LedgerLog, MemoryStore, Store as _};
use crate::writer::command::{DurableCommand, WriterCommand};
use crate::writer::node_table::NodeTable;
use crate::writer::ports::{CommandInbox, SnapshotPublisher};
use crate::writer::request::{CommandReply, WriterRequest};
use crate::writer::{Writer, WriterParts};
use crate::*;
use pumice_engine::cycle::TaskPlacement;
use pumice_engine::model::{ClusterState, JobRecord, ResourceId, TaskRecord, TaskShape, TaskStatus};
use pumice_engine::policy::{CompileOptions, compile};
use pumice_engine::{PluginStateCache, PolicyInForce, Revision, Snapshot};

/// Number of cores that the queue may hold.
const CAPABILITY: i128 = 10;

/// Publisher that checks every snapshot, however short it is the newest.
#[derive(Debug)]
struct CheckedPublisher {
    newest: Mutex<Arc<Snapshot>>,
    power: PowerSwitch,
}

impl SnapshotPublisher for CheckedPublisher {
    fn newest(&self) -> Arc<Snapshot> {
        Arc::clone(&self.newest.lock().unwrap())
    }

    fn publish(&self, snapshot: Snapshot) {
        thread::yield_now();
        if self.power.is_off() {
            return;
        }
        keeps_the_promise(&snapshot);
        *self.newest.lock().unwrap() = Arc::new(snapshot);
    }
}

/// Checks the promise from the records alone, and the incremental accounts of the snapshot against it. The node has as
/// much as the queue; a gang is placed whole or not at all.
fn keeps_the_promise(snapshot: &Snapshot) {
    let mut held: BTreeMap<&str, i128> = BTreeMap::new();
    let mut placed: BTreeMap<&str, usize> = BTreeMap::new();
    let has_place = |task: &TaskRecord| task.status.is_allocated();
    for (_, task) in snapshot
        .state
        .tasks()
        .iter()
        .filter(|(_, task)| has_place(&task.record))
    {
        *placed.entry(&task.record.job).or_default() += 1;
        *held.entry(&task.record.job).or_default() += i128::from(task.record.requests.get(ResourceId::CPU).unwrap());
    }
    for (name, row) in snapshot.state.reservations().iter() {
        let held = held.entry(name).or_default();
        *held = (*held).max(row.amounts[0].1);
    }
    for (name, placed) in placed {
        let least = snapshot.state.jobs().get(name).map_or(0, |job| job.record.min_member);
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
    cards_keep_the_promise(snapshot);
    for derived in snapshot.plugin_state_cache.ready().into_values() {
        let fresh = policy().policy.compute_plugin_states(&snapshot.state);
        assert_eq!(
            queue_account(&derived),
            queue_account(&fresh),
            "accounts that came along are others"
        );
        let (allocated, inqueue) = queue_account(&fresh);
        if snapshot.state.queues().contains("q") {
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

struct FakeInbox {
    commands: Receiver<WriterCommand>,
    power: PowerSwitch,
}

impl Drop for FakeInbox {
    fn drop(&mut self) {
        while self.commands.try_recv().is_ok() {}
    }
}

impl CommandInbox for FakeInbox {
    fn wait(&mut self) -> Option<WriterCommand> {
        if self.power.is_off() {
            return None;
        }
        let command = self.commands.recv().ok()?;
        (!self.power.is_off()).then_some(command)
    }

    fn take(&mut self) -> Option<WriterCommand> {
        if self.power.is_off() {
            return None;
        }
        self.commands.try_recv().ok()
    }
}

/// Server from its start to its end.
struct FakeServer {
    commands: Sender<WriterCommand>,
    publisher: Arc<CheckedPublisher>,
    power: PowerSwitch,
    boot: u64,
    writer: Option<JoinHandle<()>>,
}

/// Records as their source has them.
#[derive(Default)]
struct SourceRecords {
    tasks: BTreeMap<Arc<str>, TaskRecord>,
    /// Number of the last batch.
    sequence: u64,
}

/// Parts that exist whichever machine runs.
#[derive(Clone)]
pub(super) struct ShuttleFixture {
    server: Arc<RwLock<FakeServer>>,
    disk: MemoryStore,
    clock: Arc<FakeClock>,
    source_records: Arc<Mutex<SourceRecords>>,
    error_mode: Arc<AtomicU8>,
    pub(super) checks: bool,
}

fn limits() -> StateLimits {
    StateLimits {
        reservation_lease: Duration::from_secs(10),
        assumption_lease: Duration::from_secs(10),
        ..StateLimits::default()
    }
}

fn start(disk: &MemoryStore, problem: &Arc<AtomicU8>, clock: &Arc<FakeClock>, boot: u64, checks: bool) -> FakeServer {
    let (limits, power, clock) = (limits(), PowerSwitch::default(), Arc::clone(clock) as Arc<dyn Clock>);
    let snapshot = Snapshot {
        revision: Revision { epoch: boot, number: 0 },
        state: ClusterState::new(Arc::new(NodeTable::default()), 1),
        policies: Arc::default(),
        positions: Arc::default(),
        plugin_state_cache: PluginStateCache::default(),
    };
    let screen = Arc::new(CheckedPublisher {
        newest: Mutex::new(Arc::new(snapshot)),
        power: power.clone(),
    });
    let mut store = SimulatedDisk {
        content: disk.clone(),
        power: power.clone(),
        error_mode: Arc::clone(problem),
    };
    let (rows, head) = store.load().unwrap();
    let parts = WriterParts {
        names: Arc::new(ResourceNames::new(limits.resource_names)),
        publisher: Arc::clone(&screen) as _,
        sources: intake::sources::SourceIntake::new((Vec::new(), &[]), limits.clone(), Arc::clone(&clock)),
        policies: PolicyWriter::new(&limits),
        clock,
    };
    let mut writer = Writer::new(parts, &rows, |cluster_state| {
        let log = LedgerLog::new(Box::new(store), head);
        AdmissionLedger::open(&limits, log, &rows, &SharedLeases::default(), cluster_state).without_checks(!checks)
    });
    writer = writer.without_checks(!checks);
    writer.publish_initial(BTreeMap::from([("default".into(), policy())]));
    let (commands, queue) = channel();
    let mailbox = FakeInbox {
        commands: queue,
        power: power.clone(),
    };
    FakeServer {
        commands,
        publisher: screen,
        power,
        boot,
        writer: Some(thread::spawn(move || writer.run(mailbox))),
    }
}

impl FakeServer {
    /// Sends a command and waits; `None`: the machine has lost power, with the command or without.
    fn send_and_wait<T: Send + 'static>(
        commands: Sender<WriterCommand>,
        power: &PowerSwitch,
        command: impl FnOnce(CommandReply<T>) -> WriterCommand,
    ) -> Option<T> {
        let (result, answered) = channel();
        let power = power.clone();
        let reply = CommandReply::to(move |value| {
            if !power.is_off() {
                drop(result.send(value));
            }
        });
        commands.send(command(reply)).ok()?;
        // A message that no receiver takes is dropped with the last sender.
        drop(commands);
        answered.recv().ok()
    }

    fn apply(&self, batch: Batch) {
        let outcome = Self::send_and_wait(self.commands.clone(), &self.power, |reply| {
            WriterCommand::Apply(Box::new(batch), reply)
        });
        // Without an outcome the writer has panicked, and its message says why.
        if let Some(outcome) = outcome {
            let outcome = outcome.unwrap();
            assert!(outcome.resync.is_none() && outcome.rejected.is_empty(), "{outcome:?}");
        }
    }

    /// Sends all records.
    fn report_all(&self, truth: &mut SourceRecords) {
        truth.sequence += 1;
        let node = machine("n", "", 1_000 * i64::try_from(CAPABILITY).unwrap());
        let mut put = vec![with_quota(queue("q", 10)), BatchRecord::Node(Arc::new(node))];
        for (name, least) in [("ns/a", 2), ("ns/b", 2), ("ns/c", 1)] {
            let gang = truth.tasks.contains_key(&*format!("{name}-1"));
            put.push(BatchRecord::Job(JobRecord {
                min_member: if gang { least } else { 1 },
                ..job(name, "u", 6)
            }));
        }
        put.extend(truth.tasks.values().cloned().map(BatchRecord::Task));
        self.apply(Batch {
            source_epoch: self.boot,
            ..batch(truth.sequence, BatchKind::FullSyncLast, put)
        });
    }
}

impl ShuttleFixture {
    pub(super) fn new(checks: bool) -> Self {
        let (disk, clock, error_mode) = <(_, Arc<FakeClock>, Arc<AtomicU8>)>::default();
        let machine = start(&disk, &error_mode, &clock, 1, checks);
        let mut truth = SourceRecords::default();
        machine.report_all(&mut truth);
        Self {
            server: Arc::new(RwLock::new(machine)),
            disk,
            clock,
            source_records: Arc::new(Mutex::new(truth)),
            error_mode,
            checks,
        }
    }

    /// Sends a command until a machine replies.
    fn retry_until_answered<T: Send + 'static>(&self, command: impl Fn(CommandReply<T>) -> DurableCommand) -> T {
        loop {
            let (commands, power) = {
                let machine = self.server.read().unwrap();
                (machine.commands.clone(), machine.power.clone())
            };
            if let Some(result) =
                FakeServer::send_and_wait(commands, &power, |reply| WriterCommand::Durable(command(reply)))
            {
                return result;
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
            let confirm = LedgerConfirm {
                now: None,
                policy: "default".into(),
                profile: Arc::default(),
                plugins: Vec::new(),
                lease: None,
                items: ConfirmItems::by(move |_| vec![Ok(item)]),
            };
            DurableCommand::Confirm(WriterRequest::new(Box::new(confirm), reply))
        };
        let mut done = self.retry_until_answered(ask).unwrap();
        let one = done.items.pop().unwrap().unwrap();
        assert_eq!(done.durability, Durability::Disk);
        one.verdict.permitted
    }

    pub(super) fn release(&self, name: &'static str, attempt: u64) {
        let release = LedgerRelease {
            job: name.into(),
            uid: "u".into(),
            attempt,
        };
        self.retry_until_answered(|reply| DurableCommand::Release(WriterRequest::new(release.clone(), reply)))
            .unwrap();
    }

    /// Reports a task of a job: running, or pending.
    pub(super) fn report_task(&self, job: &'static str, number: usize, cores: i64, runs: bool) {
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
        let machine = self.server.read().unwrap();
        let mut truth = self.source_records.lock().unwrap();
        truth.tasks.insert(name, task);
        machine.report_all(&mut truth);
    }

    /// Commits all tasks of a job to the node. Returns the conflicts; `None`: the disk failed.
    pub(super) fn commit(&self, job: &'static str, tasks: usize) -> Option<Vec<&'static str>> {
        let placement = |number: usize| ProposedPlacement {
            placement: TaskPlacement {
                task: format!("{job}-{number}").into(),
                node: "n".into(),
                card: Arc::default(),
                devices: 0,
            },
            uid: "u".into(),
            node_uid: Arc::default(),
        };
        let committed = self.retry_until_answered(|reply| {
            let wanted = ProposedJob {
                job: job.into(),
                uid: Some("u".into()),
                placements: (0..tasks).map(placement).collect(),
            };
            let call = PlacedCall {
                hold: job.into(),
                job: wanted,
            };
            let commit = PlacementCommit {
                policy: ("default".into(), Arc::default()),
                calls: Arc::new(vec![call]),
                scope: CommitScope::Session {
                    session: job.into(),
                    withdrawn: Vec::new(),
                },
            };
            DurableCommand::Commit(Box::new(WriterRequest::new(commit, reply)))
        });
        let committed = committed.ok()?;
        assert_eq!(committed.durability, Durability::Disk);
        let conflicts = committed.jobs.iter().flat_map(|job| &job.rejections);
        Some(conflicts.map(|conflict| conflict.reason.code).collect())
    }

    /// Ends the assumptions of a job's commit. False: the disk failed.
    pub(super) fn release_assumptions(&self, job: &'static str) -> bool {
        let released = self.retry_until_answered(|reply| {
            DurableCommand::ReleaseTasks(WriterRequest::new((job.into(), Vec::new()), reply))
        });
        released.is_ok()
    }

    /// Number of a job's tasks that are assumed.
    pub(super) fn assumed(&self, job: &str) -> usize {
        let snapshot = self.server.read().unwrap().publisher.newest();
        let own = snapshot
            .state
            .tasks()
            .iter()
            .filter(|(_, task)| *task.record.job == *job);
        own.filter(|(name, _)| snapshot.state.is_assumed(name)).count()
    }

    /// Makes the disk fail: at once, or after it has written.
    pub(super) fn fail(&self, late: bool) {
        self.error_mode
            .store(if late { DISK_FAILS_LATE } else { DISK_REJECTS }, Ordering::SeqCst);
    }

    /// Makes the disk work again.
    pub(super) fn stop_failing(&self) {
        self.error_mode.store(DISK_WORKS, Ordering::SeqCst);
    }

    /// Cuts the machine's power, and starts another machine on its disk.
    pub(super) fn crash(&self) {
        let mut machine = self.server.write().unwrap();
        machine.power.turn_off();
        // A thread that waits for the next command notices.
        drop(
            machine
                .commands
                .send(WriterCommand::Durable(DurableCommand::ExpireLeases(None))),
        );
        machine.writer.take().unwrap().join().unwrap();
        *machine = start(&self.disk, &self.error_mode, &self.clock, machine.boot + 1, self.checks);
        machine.report_all(&mut self.source_records.lock().unwrap());
    }

    pub(super) fn advance_clock(&self, millis: u64) {
        self.clock.advance(millis);
        self.retry_until_answered(|reply| DurableCommand::ExpireLeases(Some(reply)));
    }

    pub(super) fn rows(&self) -> Vec<String> {
        let snapshot = self.server.read().unwrap().publisher.newest();
        let rows = snapshot.state.reservations().iter();
        rows.map(|(name, _)| name.to_string()).collect()
    }

    /// Ends all jobs, and checks that nothing is left in memory and on the disk.
    pub(super) fn end(self) {
        for name in ["ns/a", "ns/b", "ns/c"] {
            self.release(name, 9);
        }
        {
            let machine = self.server.read().unwrap();
            let mut truth = self.source_records.lock().unwrap();
            truth.tasks.clear();
            machine.report_all(&mut truth);
        }
        // A look at the clock writes the pending changes to the store.
        self.advance_clock(0);
        let machine = self.server.read().unwrap();
        let snapshot = machine.publisher.newest();
        assert_eq!(
            queue_account(&policy().policy.compute_plugin_states(&snapshot.state)),
            (0, 0),
            "something leaks"
        );
        let stored = self.disk.clone().content().unwrap();
        assert!(
            stored.reservations.is_empty() && stored.assumptions.is_empty(),
            "something leaks on the disk: {stored:?}"
        );
        machine.power.turn_off();
        drop(
            machine
                .commands
                .send(WriterCommand::Durable(DurableCommand::ExpireLeases(None))),
        );
    }
}
