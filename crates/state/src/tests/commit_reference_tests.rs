//! Random schedules of several sessions, syncs, deletes, nodes that come and go, releases, expired leases, failing
//! stores and crashes, compared with a plain model that keeps lists and adds up.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::commit_fixture::{CommitFixture, allocate, machine, record};
use crate::store::StoreErrorMode;
use crate::*;
use pumice_engine::model::{JobRecord, RecordKind, TaskRecord, TaskStatus};

const NODES: usize = 3;
const NODE_CAPACITY: i64 = 4;
const JOBS: usize = 4;
const TASKS: usize = 9;
const LEASE: u64 = 300;

#[derive(Clone, Debug)]
enum CommitAction {
    Open,
    Allocate(usize, usize, usize),
    Commit(usize),
    Crash(usize),
    ShowPending(usize),
    Run(usize, usize),
    Finish(usize),
    Delete(usize),
    Renew(usize),
    AddNode(usize),
    DropNode(usize),
    Release(usize),
    Wait(u64),
    Fail(StoreErrorMode),
    Die,
}

fn act() -> impl Strategy<Value = CommitAction> {
    prop_oneof![
        3 => Just(CommitAction::Open),
        9 => (0..4_usize, 0..TASKS, 0..NODES).prop_map(|(session, task, node)| CommitAction::Allocate(session, task, node)),
        4 => (0..4_usize).prop_map(CommitAction::Commit),
        1 => (0..4_usize).prop_map(CommitAction::Crash),
        2 => (0..TASKS).prop_map(CommitAction::ShowPending),
        1 => (0..TASKS, 0..NODES).prop_map(|(task, node)| CommitAction::Run(task, node)),
        1 => (0..TASKS).prop_map(CommitAction::Finish),
        1 => (0..TASKS).prop_map(CommitAction::Delete),
        1 => (0..TASKS).prop_map(CommitAction::Renew),
        1 => (0..NODES).prop_map(CommitAction::AddNode),
        1 => (0..NODES).prop_map(CommitAction::DropNode),
        1 => (0..TASKS).prop_map(CommitAction::Release),
        2 => (1..8_u64).prop_map(|steps| CommitAction::Wait(steps * 30)),
        2 => prop_oneof![Just(StoreErrorMode::FailAfterWrite), Just(StoreErrorMode::RejectWrites), Just(StoreErrorMode::None), Just(StoreErrorMode::None)]
            .prop_map(CommitAction::Fail),
        1 => Just(CommitAction::Die),
    ]
}

fn job_of(task: usize) -> usize {
    task % JOBS
}

/// Minimum of a job: the first job takes its tasks one by one, the others are gangs of two.
fn least(job: usize) -> usize {
    job.clamp(1, 2)
}

fn name(task: usize) -> String {
    format!("m/t{task}")
}

fn job_record(job: usize) -> BatchRecord {
    BatchRecord::Job(JobRecord {
        name: format!("m/j{job}").into(),
        min_member: i32::try_from(least(job)).unwrap(),
        ..JobRecord::default()
    })
}

/// Task as its source reports it, with its assumption.
#[derive(Clone, Debug, PartialEq)]
struct ReportedTask {
    uid: u32,
    status: TaskStatus,
    node: Option<usize>,
    /// Node of the assumption, and the time at which it ends.
    assumed: Option<(usize, u64)>,
}

impl ReportedTask {
    fn current_node(&self) -> Option<usize> {
        self.assumed.map(|(node, _)| node).or(self.node)
    }
}

#[derive(Clone, Debug, Default)]
struct ReferenceModel {
    now: u64,
    /// Incarnation of each existing node.
    nodes: BTreeMap<usize, u32>,
    tasks: BTreeMap<usize, ReportedTask>,
    incarnations: u32,
}

/// State that a session saw, and its placements in order.
struct ReferenceCycle {
    session: Arc<str>,
    seen: ReferenceModel,
    placed: Vec<(usize, usize)>,
}

impl ReferenceModel {
    /// Node as its source reports it.
    fn node(&self, node: usize) -> BatchRecord {
        let uid = self.nodes[&node].to_string();
        BatchRecord::Node(Arc::new(machine(&format!("m{node}"), &uid, NODE_CAPACITY * 100)))
    }

    /// Task as its source reports it.
    fn task(&self, task: usize) -> BatchRecord {
        let reported = &self.tasks[&task];
        BatchRecord::Task(TaskRecord {
            uid: reported.uid.to_string().into(),
            status: reported.status,
            node: reported.node.map_or_else(String::new, |node| format!("m{node}")).into(),
            ..record(&name(task), &format!("m/j{}", job_of(task)), 100)
        })
    }

    /// All records, as their source reports them.
    fn all_records(&self) -> Vec<BatchRecord> {
        let nodes = self.nodes.keys().map(|node| self.node(*node));
        let tasks = self.tasks.keys().map(|task| self.task(*task));
        nodes.chain((0..JOBS).map(job_record)).chain(tasks).collect()
    }

    fn used(&self, node: usize) -> i64 {
        let on = self
            .tasks
            .values()
            .filter(|reported| reported.current_node() == Some(node));
        i64::try_from(on.count()).unwrap()
    }

    fn fits(&self, seen: &Self, task: usize, node: usize) -> bool {
        let same = self.tasks.get(&task).is_some_and(|now| {
            now.uid == seen.tasks[&task].uid && now.status == TaskStatus::Pending && now.assumed.is_none()
        });
        same && self.nodes.contains_key(&node)
            && self.nodes.get(&node) == seen.nodes.get(&node)
            && self.used(node) < NODE_CAPACITY
    }

    fn ready(&self, job: usize) -> usize {
        let own = self.tasks.iter().filter(|(task, _)| job_of(**task) == job);
        own.filter(|(_, reported)| reported.current_node().is_some() || reported.status == TaskStatus::Succeeded)
            .count()
    }

    /// Commits the placements of a session. Returns the tasks whose placements hold.
    fn commit(&mut self, cycle: &ReferenceCycle) -> BTreeSet<usize> {
        let mut jobs: Vec<usize> = Vec::new();
        for (task, _) in &cycle.placed {
            if !jobs.contains(&job_of(*task)) {
                jobs.push(job_of(*task));
            }
        }
        let mut held = BTreeSet::new();
        for job in jobs {
            let mut next = self.clone();
            let mut own = BTreeSet::new();
            for (task, node) in cycle.placed.iter().filter(|(task, _)| job_of(*task) == job) {
                if next.fits(&cycle.seen, *task, *node) {
                    next.tasks.get_mut(task).unwrap().assumed = Some((*node, self.now + LEASE));
                    own.insert(*task);
                }
            }
            if next.ready(job) >= least(job) {
                *self = next;
                held.extend(own);
            }
        }
        held
    }
}

/// State under test beside the model.
struct ReferenceRun {
    fixture: CommitFixture,
    model: ReferenceModel,
    cycles: Vec<ReferenceCycle>,
    error_mode: StoreErrorMode,
    /// Tasks for which the store may differ from memory.
    unrepaired: BTreeSet<usize>,
    /// Placements of the last write that failed late: incarnations by task.
    late_commit: BTreeMap<usize, u32>,
    /// True if placements in the store are charged in addition to tasks that were bound in the meantime.
    overcommitted: bool,
}

impl ReferenceRun {
    async fn new() -> Self {
        let fixture = CommitFixture::bare().await;
        let mut both = Self {
            fixture,
            model: ReferenceModel::default(),
            cycles: Vec::new(),
            error_mode: StoreErrorMode::None,
            unrepaired: BTreeSet::new(),
            late_commit: BTreeMap::new(),
            overcommitted: false,
        };
        both.fixture.put((0..JOBS).map(job_record).collect()).await;
        both.fixture.state.expire_leases().await.unwrap();
        for node in 0..NODES {
            both.add_node(node).await;
        }
        for task in 0..TASKS {
            both.renew(task).await;
        }
        both
    }

    async fn add_node(&mut self, node: usize) {
        self.model.incarnations += 1;
        self.model.nodes.insert(node, self.model.incarnations);
        self.fixture.put(vec![self.model.node(node)]).await;
    }

    /// Replaces a task by a new incarnation.
    async fn renew(&mut self, task: usize) {
        self.model.incarnations += 1;
        let reported = ReportedTask {
            uid: self.model.incarnations,
            status: TaskStatus::Pending,
            node: None,
            assumed: None,
        };
        self.model.tasks.insert(task, reported);
        self.show(task).await;
    }

    /// Reports a task as the model has it.
    async fn show(&mut self, task: usize) {
        self.fixture.put(vec![self.model.task(task)]).await;
    }

    async fn report_task(&mut self, task: usize, status: TaskStatus, node: Option<usize>) {
        let Some(reported) = self.model.tasks.get_mut(&task) else {
            return;
        };
        (reported.status, reported.node, reported.assumed) = (status, node, None);
        self.show(task).await;
    }

    async fn open(&mut self) {
        let session = self.fixture.open().await;
        self.cycles.push(ReferenceCycle {
            session,
            seen: self.model.clone(),
            placed: Vec::new(),
        });
    }

    fn allocate(&mut self, session: usize, task: usize, node: usize) {
        let Some(cycle) = self.cycles.get_mut(session) else {
            return;
        };
        let free = cycle
            .seen
            .tasks
            .get(&task)
            .is_some_and(|reported| reported.status == TaskStatus::Pending && reported.current_node().is_none());
        let change = allocate(&name(task), &format!("m{node}"));
        let after = cycle.placed.len() as u64;
        if free && cycle.seen.nodes.contains_key(&node) && cycle.placed.iter().all(|(placed, _)| *placed != task) {
            self.fixture
                .state
                .step_session(&cycle.session, after, &[change])
                .unwrap();
            cycle.placed.push((task, node));
        }
    }

    async fn commit(&mut self, session: usize) {
        if session >= self.cycles.len() {
            return;
        }
        let cycle = self.cycles.remove(session);
        let after = cycle.placed.len() as u64;
        let committed = match self.fixture.commit_at(&cycle.session, after).await {
            Ok(committed) => committed,
            Err(error) => {
                assert_eq!(
                    (error.reason(), self.error_mode == StoreErrorMode::None),
                    ("STORE_FAILED", false)
                );
                let held = self.model.clone().commit(&cycle);
                self.write_failed(&held);
                // The commit can be tried again.
                self.cycles.insert(session, cycle);
                return;
            }
        };
        let refused: BTreeSet<String> = committed
            .jobs
            .iter()
            .flat_map(|job| &job.rejections)
            .map(|conflict| conflict.placement.as_ref().unwrap().task.to_string())
            .collect();
        let held = self.model.commit(&cycle);
        assert!(
            self.error_mode == StoreErrorMode::None || held.is_empty(),
            "nothing is kept: {held:?}"
        );
        let expected = cycle.placed.iter().filter(|(task, _)| !held.contains(task));
        assert_eq!(refused, expected.map(|(task, _)| name(*task)).collect::<BTreeSet<_>>());
    }

    /// Records a failed write about these tasks.
    fn write_failed(&mut self, about: &BTreeSet<usize>) {
        if self.error_mode == StoreErrorMode::FailAfterWrite {
            self.unrepaired.extend(about);
            let tasks = about
                .iter()
                .filter_map(|task| Some((*task, self.model.tasks.get(task)?.uid)));
            self.late_commit = tasks.collect();
            self.error_mode = StoreErrorMode::RejectWrites;
        }
    }

    async fn fail(&mut self, problem: StoreErrorMode) {
        self.fixture.store.set_error_mode(problem);
        self.error_mode = problem;
        if problem == StoreErrorMode::None {
            self.fixture.state.expire_leases().await.unwrap();
            self.unrepaired.clear();
            self.late_commit.clear();
        }
    }

    /// Crashes the server and starts another, to which the source reports everything.
    async fn die(&mut self) {
        self.fixture.crash();
        self.cycles.clear();
        self.error_mode = StoreErrorMode::None;
        self.fixture.report_all(self.model.all_records()).await;
        self.fixture.state.expire_leases().await.unwrap();
        let mut revived = BTreeSet::new();
        for (task, reported) in &mut self.model.tasks {
            if let Some((_, ends)) = &mut reported.assumed {
                *ends = self.model.now + LEASE;
            }
            if !self.unrepaired.contains(task) {
                continue;
            }
            let (_, node, assumed) = self.fixture.task(&name(*task));
            if assumed && reported.assumed.is_none() {
                revived.insert(*task);
                let node = node.trim_start_matches('m').parse().unwrap();
                reported.assumed = Some((node, self.model.now + LEASE));
            } else if !assumed {
                reported.assumed = None;
            }
        }
        let open = |(task, uid): (&usize, &u32)| {
            let reported = self.model.tasks.get(task);
            let open = reported.is_some_and(|reported| reported.uid == *uid && reported.status == TaskStatus::Pending);
            open.then_some(*task)
        };
        let late: BTreeSet<usize> = self.late_commit.iter().filter_map(open).collect();
        let there = late.intersection(&revived).count();
        assert!(
            there == 0 || there == late.len(),
            "half of a commit: {there} of {late:?}"
        );
        self.overcommitted |= !revived.is_empty();
        self.unrepaired.clear();
        self.late_commit.clear();
    }

    async fn act(&mut self, act: CommitAction) {
        match act {
            CommitAction::Open if self.cycles.len() < 4 => self.open().await,
            CommitAction::Allocate(session, task, node) => self.allocate(session, task, node),
            CommitAction::Commit(session) => self.commit(session).await,
            CommitAction::Crash(session) if session < self.cycles.len() => drop(self.cycles.remove(session)),
            CommitAction::Open | CommitAction::Crash(_) => {}
            CommitAction::ShowPending(task) => {
                let pending = self
                    .model
                    .tasks
                    .get(&task)
                    .is_some_and(|reported| reported.status == TaskStatus::Pending);
                if pending {
                    self.show(task).await;
                }
            }
            CommitAction::Run(task, node) => {
                let fits = self.model.nodes.contains_key(&node) && self.model.used(node) < NODE_CAPACITY;
                let bound = self.model.tasks.get(&task).and_then(ReportedTask::current_node);
                if bound.is_some() || fits {
                    self.report_task(task, TaskStatus::Running, bound.or(Some(node))).await;
                }
            }
            CommitAction::Finish(task) => self.report_task(task, TaskStatus::Succeeded, None).await,
            CommitAction::Delete(task) => {
                self.model.tasks.remove(&task);
                self.fixture.remove(RecordKind::Task, &name(task)).await;
            }
            CommitAction::Renew(task) => self.renew(task).await,
            CommitAction::AddNode(node) => self.add_node(node).await,
            CommitAction::DropNode(node) => {
                self.model.nodes.remove(&node);
                self.fixture.remove(RecordKind::Node, &format!("m{node}")).await;
            }
            CommitAction::Release(task) => self.release(task).await,
            CommitAction::Fail(problem) => self.fail(problem).await,
            CommitAction::Die => self.die().await,
            CommitAction::Wait(seconds) => {
                self.fixture.advance_clock(seconds, true).await;
                self.model.now += seconds;
                let now = self.model.now;
                for (task, reported) in &mut self.model.tasks {
                    let over = reported.assumed.take_if(|(_, ends)| *ends <= now);
                    if over.is_some() && self.error_mode != StoreErrorMode::None {
                        self.unrepaired.insert(*task);
                    }
                }
            }
        }
        self.compare();
    }

    async fn release(&mut self, task: usize) {
        let released = self
            .fixture
            .state
            .release_assumptions("", vec![name(task).into()])
            .await;
        let Ok((_, released)) = released else {
            assert_ne!(self.error_mode, StoreErrorMode::None);
            self.write_failed(&BTreeSet::from([task]));
            return;
        };
        let own = self
            .model
            .tasks
            .get_mut(&task)
            .and_then(|reported| reported.assumed.take());
        assert_eq!(released.len(), usize::from(own.is_some()));
        assert!(
            self.error_mode == StoreErrorMode::None || own.is_none(),
            "that is not kept"
        );
    }

    fn compare(&self) {
        let snapshot = self.fixture.state.snapshot();
        assert_eq!(snapshot.state.tasks().len(), self.model.tasks.len());
        for (task, reported) in &self.model.tasks {
            let (status, node, assumed) = self.fixture.task(&name(*task));
            let expected = reported.assumed.map_or(reported.status, |_| TaskStatus::Allocated);
            let at = reported
                .current_node()
                .map_or_else(String::new, |node| format!("m{node}"));
            assert_eq!(
                (status, node, assumed),
                (expected, at, reported.assumed.is_some()),
                "{task}"
            );
        }
        for node in self.model.nodes.keys() {
            let used = self.fixture.used_cpu(&format!("m{node}"));
            assert_eq!(used, i128::from(self.model.used(*node)) * 100);
            assert!(
                used <= i128::from(NODE_CAPACITY) * 100 || self.overcommitted,
                "no node over what it has"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn equals_a_plain_model(acts in prop::collection::vec(act(), 1..120)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut both = ReferenceRun::new().await;
            for act in acts {
                both.act(act).await;
            }
        });
    }
}
