//! Sessions under `corrected`, compared with a separate, naive model of the table of effects.
//!
//! The model has tasks only, and adds everything up again each time.

use std::collections::BTreeMap;

use proptest::prelude::*;
use pumice::server::pb;
use pumice::server::pb::TaskStatus::{self, Allocated, Binding, Bound, Pending, Pipelined, Releasing, Running};
use pumice::server::pb::session_change::Change;

use crate::support::records::{job, node, queue, session_ref, task, task_on_node};
use crate::support::wire::BlockingClients;
use crate::support::{EmbeddedServer, reason};

/// Tasks at the start: name, job, cpu, status, node.
const TASKS: [(&str, &str, u32, TaskStatus, &str); 8] = [
    ("ns/pending-0", "ns/a", 1, Pending, ""),
    ("ns/pending-1", "ns/a", 2, Pending, ""),
    ("ns/pending-2", "ns/b", 4, Pending, ""),
    ("ns/allocated", "ns/a", 8, Allocated, "n1"),
    ("ns/binding", "ns/b", 16, Binding, "n2"),
    ("ns/running", "ns/b", 32, Running, "n1"),
    ("ns/bound", "", 64, Bound, "n2"),
    ("ns/leaving", "ns/a", 128, Releasing, "n1"),
];

#[derive(Clone, Debug, PartialEq)]
struct ModelTask {
    job: &'static str,
    cpu: u32,
    status: TaskStatus,
    node: String,
    /// Status before its eviction in this session.
    evicted: Option<TaskStatus>,
}

#[derive(Clone, Debug, PartialEq)]
struct ModelState {
    tasks: BTreeMap<&'static str, ModelTask>,
    phases: BTreeMap<&'static str, pb::JobPhase>,
}

#[derive(Clone, Debug)]
struct SessionModel {
    state: ModelState,
    marks: Vec<(String, ModelState)>,
}

/// Rejected change: nothing was done.
struct RejectedChange;

impl SessionModel {
    fn new() -> Self {
        let tasks = TASKS.map(|(name, job, cpu, status, node)| {
            (
                name,
                ModelTask {
                    job,
                    cpu,
                    status,
                    node: node.to_owned(),
                    evicted: None,
                },
            )
        });
        let phases = [("ns/a", pb::JobPhase::Pending), ("ns/b", pb::JobPhase::Running)];
        Self {
            state: ModelState {
                tasks: tasks.into(),
                phases: phases.into(),
            },
            marks: Vec::new(),
        }
    }

    /// Applies one change; `None`: it is rejected, and with it all changes of the call.
    fn apply(&mut self, change: &Change) -> Option<Result<(), RejectedChange>> {
        if let Change::Savepoint(name) = change {
            self.marks.push((name.clone(), self.state.clone()));
        }
        if let Change::RollbackTo(name) = change {
            let at = self.marks.iter().rposition(|(mark, _)| mark == name)?;
            self.marks.truncate(at + 1);
            self.state = self.marks[at].1.clone();
        }
        Some(self.state.apply(change))
    }
}

impl ModelState {
    fn apply(&mut self, change: &Change) -> Result<(), RejectedChange> {
        match change {
            Change::Allocate(to) => self.place(to, Allocated),
            Change::Pipeline(to) => self.place(to, Pipelined),
            Change::Evict(name) => {
                let task = self.task(name, &[Allocated, Binding, Bound, Running])?;
                task.evicted = Some(task.status);
                task.status = Releasing;
                Ok(())
            }
            Change::Unevict(name) => {
                let task = self.task(name, &[Releasing])?;
                task.status = task.evicted.take().ok_or(RejectedChange)?;
                Ok(())
            }
            Change::Unallocate(name) => self.withdraw(name, &[Allocated]),
            Change::BindFailed(name) => self.withdraw(name, &[Allocated, Binding]),
            Change::Unpipeline(name) => self.withdraw(name, &[Pipelined]),
            Change::JobEnqueued(name) => {
                let phase = self.phases.get_mut(&**name).ok_or(RejectedChange)?;
                if *phase != pb::JobPhase::Pending {
                    return Err(RejectedChange);
                }
                *phase = pb::JobPhase::Inqueue;
                Ok(())
            }
            Change::Savepoint(_) | Change::RollbackTo(_) => Ok(()),
        }
    }

    fn task(&mut self, name: &str, fitting: &[TaskStatus]) -> Result<&mut ModelTask, RejectedChange> {
        let task = self.tasks.get_mut(name).ok_or(RejectedChange)?;
        if fitting.contains(&task.status) {
            Ok(task)
        } else {
            Err(RejectedChange)
        }
    }

    fn place(&mut self, to: &pb::TaskPlacement, status: TaskStatus) -> Result<(), RejectedChange> {
        let known = ["n1", "n2"].contains(&&*to.node);
        let task = self.task(&to.task, &[Pending])?;
        if !known {
            return Err(RejectedChange);
        }
        (task.status, task.node) = (status, to.node.clone());
        Ok(())
    }

    fn withdraw(&mut self, name: &str, from: &[TaskStatus]) -> Result<(), RejectedChange> {
        let task = self.task(name, from)?;
        (task.status, task.node) = (Pending, String::new());
        Ok(())
    }

    /// Sum of cpu and pods over the tasks that `counts` selects.
    fn sum(&self, counts: impl Fn(&ModelTask) -> bool) -> (f64, f64) {
        let tasks = self.tasks.values().filter(|task| counts(task));
        tasks.fold((0.0, 0.0), |(cpu, pods), task| {
            (cpu + f64::from(task.cpu) * 1000.0, pods + 1.0)
        })
    }
}

fn amounts(amounts: &[pb::Amount]) -> (f64, f64) {
    let of = |name: &str| {
        amounts
            .iter()
            .find(|amount| amount.resource == name)
            .map_or(0.0, |amount| amount.value)
    };
    (of("cpu"), of("pods"))
}

/// Checks that the session shows the content of the model.
fn compare(wire: &BlockingClients, session: &str, applied: u64, state: &ModelState) {
    let evaluation_ref = || Some(session_ref(session, applied, Vec::new()));
    let nodes = wire.list_nodes(pb::ListNodesRequest {
        against: evaluation_ref(),
        ..pb::ListNodesRequest::default()
    });
    for status in nodes.unwrap().nodes {
        let name = status.node.unwrap_or_default().name;
        let here = |task: &ModelTask| task.node == name;
        let used = state.sum(|task| here(task) && !matches!(task.status, Pending | Pipelined));
        assert_eq!(amounts(&status.used), used, "used of {name}");
        let releasing = state.sum(|task| here(task) && task.status == Releasing);
        assert_eq!(amounts(&status.releasing), releasing, "releasing of {name}");
        let pipelined = state.sum(|task| here(task) && task.status == Pipelined);
        assert_eq!(amounts(&status.pipelined), pipelined, "pipelined of {name}");
    }
    let tasks = wire.list_tasks(pb::ListTasksRequest {
        against: evaluation_ref(),
        ..pb::ListTasksRequest::default()
    });
    let tasks = tasks.unwrap().tasks.into_iter().filter_map(|stored| stored.task);
    let tasks: Vec<_> = tasks
        .map(|task| (task.name.clone(), task.status(), task.node))
        .collect();
    let model = state
        .tasks
        .iter()
        .map(|(name, task)| ((*name).to_owned(), task.status, task.node.clone()));
    assert_eq!(tasks, model.collect::<Vec<_>>());
    let jobs = wire.list_jobs(pb::ListJobsRequest {
        against: evaluation_ref(),
        ..pb::ListJobsRequest::default()
    });
    for status in jobs.unwrap().jobs {
        let record = status.job.unwrap_or_default();
        let own =
            |task: &ModelTask| task.job == record.name && matches!(task.status, Allocated | Binding | Bound | Running);
        assert_eq!(
            amounts(&status.allocated),
            state.sum(own),
            "allocated of {}",
            record.name
        );
        assert_eq!(record.phase(), state.phases[&*record.name], "phase of {}", record.name);
    }
}

fn inline_ref() -> pb::EvaluationRef {
    let tasks = TASKS
        .map(|(name, job, cpu, status, on)| task_on_node(task(name, job, &[("cpu", &cpu.to_string())]), status, on));
    let in_phase = |name: &str, phase| {
        let mut job = job(name, "q");
        job.set_phase(phase);
        job
    };
    let cluster = pb::Cluster {
        namespaces: Vec::new(),
        nodes: ["n1", "n2"].map(|name| node(name, &[("cpu", "500")])).to_vec(),
        queues: vec![queue("q")],
        jobs: vec![
            in_phase("ns/a", pb::JobPhase::Pending),
            in_phase("ns/b", pb::JobPhase::Running),
        ],
        tasks: tasks.to_vec(),
        ..pb::Cluster::default()
    };
    let inline = pb::InlineSnapshot {
        cluster: Some(cluster),
        ..pb::InlineSnapshot::default()
    };
    pb::EvaluationRef {
        target: Some(pb::evaluation_ref::Target::Inline(Box::new(inline))),
        ..pb::EvaluationRef::default()
    }
}

fn change() -> impl Strategy<Value = Change> {
    let name = prop_oneof![
        12 => prop::sample::select(TASKS.map(|(name, ..)| name).to_vec()),
        1 => Just("ns/unknown"),
    ];
    let name = name.prop_map(str::to_owned);
    let on = prop_oneof![5 => Just("n1"), 5 => Just("n2"), 1 => Just("ghost")];
    let placed = (name.clone(), on).prop_map(|(task, node)| pb::TaskPlacement {
        task,
        node: node.to_owned(),
        card: String::new(),
        devices: Vec::new(),
    });
    let mark = prop::sample::select(vec!["x".to_owned(), "y".to_owned()]);
    let job = prop::sample::select(vec!["ns/a".to_owned(), "ns/b".to_owned(), "ns/none".to_owned()]);
    prop_oneof![
        4 => placed.clone().prop_map(Change::Allocate),
        3 => placed.prop_map(Change::Pipeline),
        4 => name.clone().prop_map(Change::Evict),
        2 => name.clone().prop_map(Change::Unallocate),
        2 => name.clone().prop_map(Change::Unpipeline),
        3 => name.clone().prop_map(Change::Unevict),
        1 => name.prop_map(Change::BindFailed),
        1 => job.prop_map(Change::JobEnqueued),
        2 => mark.clone().prop_map(Change::Savepoint),
        2 => mark.prop_map(Change::RollbackTo),
    ]
}

/// Makes one call with changes: all of them or none, with a warning for each that did not fit.
fn call(wire: &BlockingClients, session: &str, applied: &mut u64, model: &mut SessionModel, changes: &[Change]) {
    let (mut next, mut misfits, mut refused) = (model.clone(), Vec::new(), None);
    for (number, change) in changes.iter().enumerate() {
        match next.apply(change) {
            Some(Ok(())) => {}
            Some(Err(RejectedChange)) => misfits.push(number),
            None => {
                refused = Some(number);
                break;
            }
        }
    }
    let query = pb::ListNodesRequest {
        against: Some(session_ref(session, *applied, changes.to_vec())),
        ..pb::ListNodesRequest::default()
    };
    match (wire.list_nodes(query), refused) {
        (Ok(reply), None) => {
            let effects = reply.metadata.unwrap_or_default().effects.unwrap_or_default();
            *applied += changes.len() as u64;
            assert_eq!(effects.applied_through, *applied);
            assert_eq!(effects.warnings.len(), misfits.len(), "{:?}", effects.warnings);
            for (warning, number) in effects.warnings.iter().zip(&misfits) {
                assert!(
                    warning.field.contains(&format!("changes[{number}]")),
                    "{warning:?} names change {number}"
                );
            }
            *model = next;
        }
        (Err(status), Some(_)) => assert_eq!(reason(&status), "SAVEPOINT_UNKNOWN", "{status:?}"),
        (reply, refused) => panic!("refused change: {refused:?}, reply: {reply:?}"),
    }
}

#[test]
fn random_changes_have_the_effects_of_the_table() {
    let server = EmbeddedServer::start();
    let wire = &server.wire;
    let config = ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |(calls in prop::collection::vec(prop::collection::vec(change(), 1..4), 1..14))| {
        let opened = wire.open_session(pb::OpenSessionRequest { against: Some(inline_ref()), ..Default::default() });
        let session = opened.unwrap().session;
        let (mut model, mut applied) = (SessionModel::new(), 0);
        compare(wire, &session, applied, &model.state);
        for changes in &calls {
            call(wire, &session, &mut applied, &mut model, changes);
            compare(wire, &session, applied, &model.state);
        }
        let closed = wire.close_session(pb::CloseSessionRequest { session }).unwrap();
        assert_eq!(closed.applied_through, applied);
    });
}
