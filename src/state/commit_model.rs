//! Random schedules of several sessions, syncs, deletes, nodes that come and go, releases and leases that end, against a
//! plain model that keeps lists and adds up.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::commit_stage::{Stage, allocate, machine, record};
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
}

impl Both {
    async fn new() -> Self {
        let stage = Stage::bare().await;
        let mut both = Self {
            stage,
            model: Model::default(),
            cycles: Vec::new(),
        };
        let jobs = (0..JOBS).map(|job| {
            Put::Job(JobRecord {
                name: format!("m/j{job}").into(),
                min_member: i32::try_from(least(job)).unwrap(),
                ..JobRecord::default()
            })
        });
        both.stage.put(jobs.collect()).await;
        both.stage.state.let_time_pass();
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
        let uid = self.model.incarnations.to_string();
        let record = machine(&format!("m{node}"), &uid, ROOM * 100);
        self.stage.put(vec![Put::Node(Arc::new(record))]).await;
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
        let told = &self.model.tasks[&task];
        let shown = TaskRecord {
            uid: told.uid.to_string().into(),
            status: told.status,
            node: told.node.map_or_else(String::new, |node| format!("m{node}")).into(),
            ..record(&name(task), &format!("m/j{}", job_of(task)), 100)
        };
        self.stage.put(vec![Put::Task(shown)]).await;
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
        let committed = self.stage.commit_at(&cycle.session, after).await.unwrap();
        let refused: BTreeSet<String> = committed
            .jobs
            .iter()
            .flat_map(|job| &job.conflicts)
            .map(|conflict| conflict.placement.as_ref().unwrap().task.to_string())
            .collect();
        let held = self.model.commit(&cycle);
        let expected = cycle.placed.iter().filter(|(task, _)| !held.contains(task));
        assert_eq!(refused, expected.map(|(task, _)| name(*task)).collect::<BTreeSet<_>>());
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
            Act::Release(task) => {
                let released = self.stage.state.release_assumptions("", vec![name(task).into()]).await;
                let own = self.model.tasks.get_mut(&task).and_then(|told| told.assumed.take());
                assert_eq!(released.unwrap().1.len(), usize::from(own.is_some()));
            }
            Act::Wait(seconds) => {
                self.stage.wait(seconds, true).await;
                self.model.now += seconds;
                let now = self.model.now;
                for told in self.model.tasks.values_mut() {
                    told.assumed.take_if(|(_, ends)| *ends <= now);
                }
            }
        }
        self.compare();
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
            assert!(used <= i128::from(ROOM) * 100, "no node over what it has");
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
