//! Random schedules of several sessions, syncs, deletes, nodes that come and go, releases, leases that end, stores that fail
//! and servers that die, against a plain model that keeps lists and adds up.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::commit_stage::{Stage, allocate, machine, record};
use super::fallible::Fault;
use super::*;
use crate::engine::model::{JobRecord, Kind, TaskRecord, TaskStatus};

const NODES: usize = 3;
const ROOM: i64 = 4;
const JOBS: usize = 4;
const TASKS: usize = 9;
const LEASE: u64 = 300;

#[derive(Clone, Debug)]
enum Act {
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
    Fail(Fault),
    Die,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => Just(Act::Open),
        9 => (0..4_usize, 0..TASKS, 0..NODES).prop_map(|(session, task, node)| Act::Allocate(session, task, node)),
        4 => (0..4_usize).prop_map(Act::Commit),
        1 => (0..4_usize).prop_map(Act::Crash),
        2 => (0..TASKS).prop_map(Act::ShowPending),
        1 => (0..TASKS, 0..NODES).prop_map(|(task, node)| Act::Run(task, node)),
        1 => (0..TASKS).prop_map(Act::Finish),
        1 => (0..TASKS).prop_map(Act::Delete),
        1 => (0..TASKS).prop_map(Act::Renew),
        1 => (0..NODES).prop_map(Act::AddNode),
        1 => (0..NODES).prop_map(Act::DropNode),
        1 => (0..TASKS).prop_map(Act::Release),
        2 => (1..8_u64).prop_map(|steps| Act::Wait(steps * 30)),
        2 => prop_oneof![Just(Fault::Late), Just(Fault::Refuses), Just(Fault::None), Just(Fault::None)]
            .prop_map(Act::Fail),
        1 => Just(Act::Die),
    ]
}

fn job_of(task: usize) -> usize {
    task % JOBS
}

/// The first job takes its tasks one by one, the others are gangs of two.
fn least(job: usize) -> usize {
    job.clamp(1, 2)
}

fn name(task: usize) -> String {
    format!("m/t{task}")
}

fn job_record(job: usize) -> Put {
    Put::Job(JobRecord {
        name: format!("m/j{job}").into(),
        min_member: i32::try_from(least(job)).unwrap(),
        ..JobRecord::default()
    })
}

/// A task as its source tells of it, and as it is assumed.
#[derive(Clone, Debug, PartialEq)]
struct Told {
    uid: u32,
    status: TaskStatus,
    node: Option<usize>,
    /// Node, and when it ends.
    assumed: Option<(usize, u64)>,
}

impl Told {
    fn at(&self) -> Option<usize> {
        self.assumed.map(|(node, _)| node).or(self.node)
    }
}

#[derive(Clone, Debug, Default)]
struct Model {
    now: u64,
    /// Incarnation of each node that is there.
    nodes: BTreeMap<usize, u32>,
    tasks: BTreeMap<usize, Told>,
    incarnations: u32,
}

/// What a session saw, and placed in this order.
struct Cycle {
    session: Arc<str>,
    seen: Model,
    placed: Vec<(usize, usize)>,
}

impl Model {
    /// A node as its source tells of it.
    fn node(&self, node: usize) -> Put {
        let uid = self.nodes[&node].to_string();
        Put::Node(Arc::new(machine(&format!("m{node}"), &uid, ROOM * 100)))
    }

    /// A task as its source tells of it.
    fn task(&self, task: usize) -> Put {
        let told = &self.tasks[&task];
        Put::Task(TaskRecord {
            uid: told.uid.to_string().into(),
            status: told.status,
            node: told.node.map_or_else(String::new, |node| format!("m{node}")).into(),
            ..record(&name(task), &format!("m/j{}", job_of(task)), 100)
        })
    }

    /// All there is, as its source tells of it.
    fn whole(&self) -> Vec<Put> {
        let nodes = self.nodes.keys().map(|node| self.node(*node));
        let tasks = self.tasks.keys().map(|task| self.task(*task));
        nodes.chain((0..JOBS).map(job_record)).chain(tasks).collect()
    }

    fn used(&self, node: usize) -> i64 {
        let on = self.tasks.values().filter(|told| told.at() == Some(node));
        i64::try_from(on.count()).unwrap()
    }

    fn fits(&self, seen: &Self, task: usize, node: usize) -> bool {
        let same = self.tasks.get(&task).is_some_and(|now| {
            now.uid == seen.tasks[&task].uid && now.status == TaskStatus::Pending && now.assumed.is_none()
        });
        same && self.nodes.contains_key(&node)
            && self.nodes.get(&node) == seen.nodes.get(&node)
            && self.used(node) < ROOM
    }

    fn ready(&self, job: usize) -> usize {
        let own = self.tasks.iter().filter(|(task, _)| job_of(**task) == job);
        own.filter(|(_, told)| told.at().is_some() || told.status == TaskStatus::Succeeded)
            .count()
    }

    /// Commits what a session placed; the tasks that hold.
    fn commit(&mut self, cycle: &Cycle) -> BTreeSet<usize> {
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

/// The state beside the model.
struct Both {
    stage: Stage,
    model: Model,
    cycles: Vec<Cycle>,
    fault: Fault,
    /// Tasks of which the store may hold something else than is true.
    loose: BTreeSet<usize>,
    /// What the last write that failed late would have committed: incarnations by task.
    late: BTreeMap<usize, u32>,
    /// What was left in the store counts besides what was bound meanwhile.
    spilled: bool,
}

impl Both {
    async fn new() -> Self {
        let stage = Stage::bare().await;
        let mut both = Self {
            stage,
            model: Model::default(),
            cycles: Vec::new(),
            fault: Fault::None,
            loose: BTreeSet::new(),
            late: BTreeMap::new(),
            spilled: false,
        };
        both.stage.put((0..JOBS).map(job_record).collect()).await;
        both.stage.state.look_at_leases().await.unwrap();
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
        self.stage.put(vec![self.model.node(node)]).await;
    }

    /// A new incarnation of a task.
    async fn renew(&mut self, task: usize) {
        self.model.incarnations += 1;
        let told = Told {
            uid: self.model.incarnations,
            status: TaskStatus::Pending,
            node: None,
            assumed: None,
        };
        self.model.tasks.insert(task, told);
        self.show(task).await;
    }

    /// The source tells of a task as the model has it.
    async fn show(&mut self, task: usize) {
        self.stage.put(vec![self.model.task(task)]).await;
    }

    async fn tell(&mut self, task: usize, status: TaskStatus, node: Option<usize>) {
        let Some(told) = self.model.tasks.get_mut(&task) else {
            return;
        };
        (told.status, told.node, told.assumed) = (status, node, None);
        self.show(task).await;
    }

    async fn open(&mut self) {
        let session = self.stage.open().await;
        self.cycles.push(Cycle {
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
            .is_some_and(|told| told.status == TaskStatus::Pending && told.at().is_none());
        let change = allocate(&name(task), &format!("m{node}"));
        let after = cycle.placed.len() as u64;
        if free && cycle.seen.nodes.contains_key(&node) && cycle.placed.iter().all(|(placed, _)| *placed != task) {
            self.stage.state.step(&cycle.session, after, &[change]).unwrap();
            cycle.placed.push((task, node));
        }
    }

    async fn commit(&mut self, session: usize) {
        if session >= self.cycles.len() {
            return;
        }
        let cycle = self.cycles.remove(session);
        let after = cycle.placed.len() as u64;
        let committed = match self.stage.commit_at(&cycle.session, after).await {
            Ok(committed) => committed,
            Err(error) => {
                assert_eq!((error.reason(), self.fault == Fault::None), ("STORE_FAILED", false));
                let held = self.model.clone().commit(&cycle);
                self.failed(&held);
                // It can be tried again.
                self.cycles.insert(session, cycle);
                return;
            }
        };
        let refused: BTreeSet<String> = committed
            .jobs
            .iter()
            .flat_map(|job| &job.conflicts)
            .map(|conflict| conflict.placement.as_ref().unwrap().task.to_string())
            .collect();
        let held = self.model.commit(&cycle);
        assert!(
            self.fault == Fault::None || held.is_empty(),
            "nothing is kept: {held:?}"
        );
        let expected = cycle.placed.iter().filter(|(task, _)| !held.contains(task));
        assert_eq!(refused, expected.map(|(task, _)| name(*task)).collect::<BTreeSet<_>>());
    }

    /// A write failed. It was about these tasks.
    fn failed(&mut self, about: &BTreeSet<usize>) {
        if self.fault == Fault::Late {
            self.loose.extend(about);
            let tasks = about
                .iter()
                .filter_map(|task| Some((*task, self.model.tasks.get(task)?.uid)));
            self.late = tasks.collect();
            self.fault = Fault::Refuses;
        }
    }

    async fn fail(&mut self, fault: Fault) {
        self.stage.store.fail(fault);
        self.fault = fault;
        if fault == Fault::None {
            self.stage.state.look_at_leases().await.unwrap();
            self.loose.clear();
            self.late.clear();
        }
    }

    /// The server dies, and another starts, which its source tells of everything.
    async fn die(&mut self) {
        self.stage.crash();
        self.cycles.clear();
        self.fault = Fault::None;
        self.stage.tell(self.model.whole()).await;
        self.stage.state.look_at_leases().await.unwrap();
        let mut revived = BTreeSet::new();
        for (task, told) in &mut self.model.tasks {
            if let Some((_, ends)) = &mut told.assumed {
                *ends = self.model.now + LEASE;
            }
            if !self.loose.contains(task) {
                continue;
            }
            let (_, node, assumed) = self.stage.task(&name(*task));
            if assumed && told.assumed.is_none() {
                revived.insert(*task);
                let node = node.trim_start_matches('m').parse().unwrap();
                told.assumed = Some((node, self.model.now + LEASE));
            } else if !assumed {
                told.assumed = None;
            }
        }
        let open = |(task, uid): (&usize, &u32)| {
            let told = self.model.tasks.get(task);
            let open = told.is_some_and(|told| told.uid == *uid && told.status == TaskStatus::Pending);
            open.then_some(*task)
        };
        let late: BTreeSet<usize> = self.late.iter().filter_map(open).collect();
        let there = late.intersection(&revived).count();
        assert!(
            there == 0 || there == late.len(),
            "half of a commit: {there} of {late:?}"
        );
        self.spilled |= !revived.is_empty();
        self.loose.clear();
        self.late.clear();
    }

    async fn act(&mut self, act: Act) {
        match act {
            Act::Open if self.cycles.len() < 4 => self.open().await,
            Act::Allocate(session, task, node) => self.allocate(session, task, node),
            Act::Commit(session) => self.commit(session).await,
            Act::Crash(session) if session < self.cycles.len() => drop(self.cycles.remove(session)),
            Act::Open | Act::Crash(_) => {}
            Act::ShowPending(task) => {
                let pending = self
                    .model
                    .tasks
                    .get(&task)
                    .is_some_and(|told| told.status == TaskStatus::Pending);
                if pending {
                    self.show(task).await;
                }
            }
            Act::Run(task, node) => {
                let fits = self.model.nodes.contains_key(&node) && self.model.used(node) < ROOM;
                let bound = self.model.tasks.get(&task).and_then(Told::at);
                if bound.is_some() || fits {
                    self.tell(task, TaskStatus::Running, bound.or(Some(node))).await;
                }
            }
            Act::Finish(task) => self.tell(task, TaskStatus::Succeeded, None).await,
            Act::Delete(task) => {
                self.model.tasks.remove(&task);
                self.stage.remove(Kind::Task, &name(task)).await;
            }
            Act::Renew(task) => self.renew(task).await,
            Act::AddNode(node) => self.add_node(node).await,
            Act::DropNode(node) => {
                self.model.nodes.remove(&node);
                self.stage.remove(Kind::Node, &format!("m{node}")).await;
            }
            Act::Release(task) => self.release(task).await,
            Act::Fail(fault) => self.fail(fault).await,
            Act::Die => self.die().await,
            Act::Wait(seconds) => {
                self.stage.wait(seconds, true).await;
                self.model.now += seconds;
                let now = self.model.now;
                for (task, told) in &mut self.model.tasks {
                    let over = told.assumed.take_if(|(_, ends)| *ends <= now);
                    if over.is_some() && self.fault != Fault::None {
                        self.loose.insert(*task);
                    }
                }
            }
        }
        self.compare();
    }

    async fn release(&mut self, task: usize) {
        let released = self.stage.state.release_assumptions("", vec![name(task).into()]).await;
        let Ok((_, released)) = released else {
            assert_ne!(self.fault, Fault::None);
            self.failed(&BTreeSet::from([task]));
            return;
        };
        let own = self.model.tasks.get_mut(&task).and_then(|told| told.assumed.take());
        assert_eq!(released.len(), usize::from(own.is_some()));
        assert!(self.fault == Fault::None || own.is_none(), "that is not kept");
    }

    fn compare(&self) {
        let world = self.stage.state.world();
        assert_eq!(world.view.tasks().len(), self.model.tasks.len());
        for (task, told) in &self.model.tasks {
            let (status, node, assumed) = self.stage.task(&name(*task));
            let expected = told.assumed.map_or(told.status, |_| TaskStatus::Allocated);
            let at = told.at().map_or_else(String::new, |node| format!("m{node}"));
            assert_eq!(
                (status, node, assumed),
                (expected, at, told.assumed.is_some()),
                "{task}"
            );
        }
        for node in self.model.nodes.keys() {
            let used = self.stage.used(&format!("m{node}"));
            assert_eq!(used, i128::from(self.model.used(*node)) * 100);
            assert!(
                used <= i128::from(ROOM) * 100 || self.spilled,
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
            let mut both = Both::new().await;
            for act in acts {
                both.act(act).await;
            }
        });
    }
}
