//! Place in a session of a real server, compared with a second session that is asked task by task.

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use pumice::server::pb;
use pumice::server::pb::session_change::Change;
use pumice_engine::policy::Compatibility;

use super::case::{CARD, JOB, PlaceCase, case, document};
use super::engine::{has, min_count};
use super::task_by_task::{TaskByTaskScheduler, place};
use crate::support::EmbeddedServer;
use crate::support::records::{amounts, full_sync, job, node, queue, session_ref, task};
use crate::support::wire::BlockingClients;

/// Session of the server, asked task by task.
struct SessionScheduler<'w> {
    wire: &'w BlockingClients,
    name: String,
    after: u64,
    /// Changes of the next request.
    changes: Vec<Change>,
}

impl SessionScheduler<'_> {
    fn session_ref(&mut self) -> pb::EvaluationRef {
        let changes = std::mem::take(&mut self.changes);
        let evaluation_ref = session_ref(&self.name, self.after, changes.clone());
        self.after += changes.len() as u64;
        evaluation_ref
    }

    /// Nodes and tasks as the session sees them.
    fn state(&mut self) -> (Vec<pb::NodeStatus>, Vec<pb::StoredTask>, Vec<pb::QueueStatus>) {
        let evaluation_ref = Some(self.session_ref());
        let nodes = self.wire.list_nodes(pb::ListNodesRequest {
            against: evaluation_ref,
            ..pb::ListNodesRequest::default()
        });
        let evaluation_ref = Some(session_ref(&self.name, self.after, Vec::new()));
        let tasks = self.wire.list_tasks(pb::ListTasksRequest {
            against: evaluation_ref.clone(),
            ..pb::ListTasksRequest::default()
        });
        let queues = self.wire.list_queues(pb::ListQueuesRequest {
            against: evaluation_ref,
            ..pb::ListQueuesRequest::default()
        });
        (nodes.unwrap().nodes, tasks.unwrap().tasks, queues.unwrap().queues)
    }
}

impl TaskByTaskScheduler for SessionScheduler<'_> {
    fn admit(&mut self, task: &pb::Task) -> Option<Vec<String>> {
        let subject = pb::AdmitSubject {
            subject: Some(pb::admit_subject::Subject::Task(task.clone())),
            ..pb::AdmitSubject::default()
        };
        let reply = self.wire.admit(pb::AdmitRequest {
            against: Some(self.session_ref()),
            items: vec![subject],
            ..pb::AdmitRequest::default()
        });
        let item = reply.unwrap().result.unwrap().items.remove(0);
        assert_eq!(item.problem, None);
        item.permitted
            .then(|| item.cards.into_iter().map(|card| card.card).collect())
    }

    fn filter(&mut self, task: &pb::Task, fit: pb::ResourceFit) -> Vec<String> {
        let reply = self.wire.filter(pb::FilterRequest {
            against: Some(self.session_ref()),
            tasks: vec![task.clone()],
            resource_fit: fit.into(),
            ..pb::FilterRequest::default()
        });
        let item = reply.unwrap().result.unwrap().items.remove(0);
        assert_eq!(item.problem, None);
        item.fit.unwrap().names
    }

    fn score(&mut self, task: &pb::Task, nodes: &[String]) -> Vec<(String, f64)> {
        let reply = self.wire.score(pb::ScoreRequest {
            against: Some(self.session_ref()),
            tasks: vec![task.clone()],
            candidates: Some(names(nodes.to_vec())),
            ..pb::ScoreRequest::default()
        });
        let item = reply.unwrap().result.unwrap().items.remove(0);
        assert_eq!(item.problem, None);
        item.nodes.unwrap().names.into_iter().zip(item.totals).collect()
    }

    fn assume(&mut self, task: &pb::Task, node: &str, pipelined: bool, card: &str) {
        let to = pb::TaskPlacement {
            task: task.name.clone(),
            node: node.to_owned(),
            card: card.to_owned(),
            devices: Vec::new(),
        };
        self.changes.push(if pipelined {
            Change::Pipeline(to)
        } else {
            Change::Allocate(to)
        });
    }

    fn undo(&mut self) {
        let rollback = Change::RollbackTo("begin".to_owned());
        self.changes.push(rollback);
    }
}

fn names(names: Vec<String>) -> pb::NodeSet {
    pb::NodeSet {
        names,
        ..pb::NodeSet::default()
    }
}

fn open(wire: &BlockingClients) -> SessionScheduler<'_> {
    let reply = wire.open_session(pb::OpenSessionRequest::default()).unwrap();
    SessionScheduler {
        wire,
        name: reply.session,
        after: 0,
        changes: Vec::new(),
    }
}

fn place_request(case: &PlaceCase, evaluation_ref: pb::EvaluationRef) -> pb::PlaceRequest {
    let groups = (0..case.groups.len()).map(|number| pb::TaskGroup {
        names: case.names(number),
        ..pb::TaskGroup::default()
    });
    pb::PlaceRequest {
        against: Some(evaluation_ref),
        job: Some(pb::Job {
            name: JOB.to_owned(),
            ..pb::Job::default()
        }),
        groups: groups.collect(),
        min_available: case.min_available,
        effect: pb::PlaceEffect::Session.into(),
        candidates: case.candidates().map(names),
        exclusions: Some(names(case.exclusions())),
        idle_only: case.idle_only,
        ..pb::PlaceRequest::default()
    }
}

fn check(server: &EmbeddedServer, case: &PlaceCase, sequence: u64) {
    let (wire, cluster) = (&server.wire, case.cluster());
    // The policy in force says which labels the records keep.
    wire.reload_policy(pb::ReloadPolicyRequest {
        document: document(case.policy),
        compatibility: case.compatibility.name().to_owned(),
        ..pb::ReloadPolicyRequest::default()
    })
    .unwrap();
    wire.apply_batch(full_sync("test", sequence, cluster.clone())).unwrap();
    let (mut one, mut other) = (open(wire), open(wire));

    other.changes.push(Change::Savepoint("begin".to_owned()));
    let named = |name| pb::Task {
        name,
        ..pb::Task::default()
    };
    let groups: Vec<Vec<pb::Task>> = (0..case.groups.len())
        .map(|number| case.names(number).into_iter().map(named).collect())
        .collect();
    let has = |node: &str, card: &str| has(&cluster, node, card);
    let (placed, expected) = place(
        &mut other,
        &groups,
        &case.nodes(),
        case.idle_only,
        min_count(case),
        &has,
    );

    let asked = place_request(case, session_ref(&one.name, 0, Vec::new()));
    let reply = wire.place(asked.clone()).unwrap();
    let result = reply.result.unwrap();
    assert_eq!(result.placed, placed);
    for (group, expected) in result.groups.iter().zip(&expected) {
        let [allocated, pipelined] = [&group.allocated, &group.pipelined].map(|set| set.clone().unwrap().names);
        let late = |late| {
            expected
                .iter()
                .filter(move |(_, own, _)| *own == late)
                .map(|(node, ..)| node.clone())
        };
        assert_eq!(allocated, late(false).collect::<Vec<_>>());
        assert_eq!(pipelined, late(true).collect::<Vec<_>>());
    }
    let effects = reply.metadata.unwrap().effects.unwrap();
    assert_eq!(effects.applied_through, 1);
    let invalidation = effects.invalidation.unwrap();
    let all = invalidation.scope() == pb::InvalidationScope::All;
    let touched = invalidation.nodes.unwrap_or_default().names;
    let expected = expected
        .iter()
        .flatten()
        .filter(|_| placed && !all)
        .map(|(node, ..)| node.clone());
    let expected: std::collections::BTreeSet<String> = expected.collect();
    assert_eq!(touched, expected.into_iter().collect::<Vec<_>>());
    // A retry changes nothing.
    assert_eq!(wire.place(asked).unwrap().result.unwrap(), result);
    one.after = 1;
    assert_eq!(one.state(), other.state());
}

#[test]
fn place_leaves_the_session_as_task_by_task_calls_would() {
    let server = EmbeddedServer::start();
    let mut runner = TestRunner::deterministic();
    for sequence in 1..=30 {
        let mut case = case(8).new_tree(&mut runner).unwrap().current();
        if sequence % 2 == 0 {
            case.compatibility = Compatibility::Corrected;
        }
        // Every group has a task.
        for group in &mut case.groups {
            group.count = group.count.max(1);
        }
        check(&server, &case, sequence);
    }
}

/// Server with quotas of cards, a node of each card, and these tasks of a job.
fn cards(quota: &str, tasks: Vec<pb::Task>) -> EmbeddedServer {
    let server = EmbeddedServer::start();
    let with = |name: &str, card: &str| {
        let labels = [("product", card), ("count", "4"), ("memory", "40960")];
        pb::Node {
            labels: labels
                .map(|(end, text)| (format!("nvidia.com/gpu.{end}"), text.to_owned()))
                .into(),
            ..node(name, &[("cpu", "64"), ("nvidia.com/gpu", "4")])
        }
    };
    let cluster = pb::Cluster {
        namespaces: Vec::new(),
        nodes: vec![with("a", "A"), with("b", "B")],
        queues: vec![pb::Queue {
            annotations: [("volcano.sh/card.quota".to_owned(), quota.to_owned())].into(),
            capability: Some(amounts(&[("cpu", "100"), ("memory", "1Ti")])),
            ..queue("q")
        }],
        jobs: vec![job(JOB, "q")],
        tasks,
        ..pb::Cluster::default()
    };
    server.wire.apply_batch(full_sync("test", 1, cluster)).unwrap();
    server
        .wire
        .reload_policy(pb::ReloadPolicyRequest {
            document: "actions: allocate\ntiers:\n- plugins: [{name: capacity-card}]\n".to_owned(),
            ..pb::ReloadPolicyRequest::default()
        })
        .unwrap();
    server
}

fn asking(name: &str, job: &str, cards: &str, gpus: &str) -> pb::Task {
    pb::Task {
        annotations: [(CARD.to_owned(), cards.to_owned())].into(),
        ..task(name, job, &[("cpu", "1"), ("nvidia.com/gpu", gpus)])
    }
}

#[test]
fn a_task_that_names_a_card_but_requests_none_gets_none() {
    let tasks = vec![asking("ns/none", JOB, "A", "0"), asking("ns/one", JOB, "A", "1")];
    let server = cards(r#"{"A": 4}"#, tasks);
    let group = |name: &str| pb::TaskGroup {
        names: vec![name.to_owned()],
        ..pb::TaskGroup::default()
    };
    let result = server.wire.place(pb::PlaceRequest {
        groups: vec![group("ns/none"), group("ns/one")],
        ..pb::PlaceRequest::default()
    });
    let result = result.unwrap().result.unwrap();
    assert_eq!(result.placed_count, 2, "{result:?}");
    assert_eq!(
        (&result.groups[0].cards, &result.groups[1].cards),
        (&vec![], &vec!["A".to_owned()])
    );
}

#[test]
fn a_hypothetical_job_chooses_its_one_card_by_its_number_of_tasks() {
    let named = |name: &str| asking(name, JOB, "A|B", "1");
    let server = cards(r#"{"A": 1, "B": 3}"#, ["ns/0", "ns/1", "ns/2"].map(named).into());
    let place = |job: Option<pb::Job>, group| {
        let result = server.wire.place(pb::PlaceRequest {
            job,
            groups: vec![group],
            ..pb::PlaceRequest::default()
        });
        result.unwrap().result.unwrap()
    };
    let stored = pb::TaskGroup {
        names: ["ns/0", "ns/1", "ns/2"].map(str::to_owned).into(),
        ..pb::TaskGroup::default()
    };
    let stored = place(None, stored);
    assert!(stored.placed, "{stored:?}");
    assert_eq!(stored.groups[0].cards, ["B", "B", "B"], "A has room for one of three");
    let like = |job: &str| pb::TaskGroup {
        task: Some(asking("", job, "A|B", "1")),
        count: Some(3),
        ..pb::TaskGroup::default()
    };
    assert_eq!(place(None, like(JOB)), stored);
    assert_eq!(place(Some(job("ns/new", "q")), like("ns/new")), stored);
    // The aborted placement leaves nothing behind.
    let (gone, source) = (vec!["ns/0".to_owned(), "ns/1".to_owned(), "ns/2".to_owned()], "test");
    let removed = pb::Batch {
        source: source.to_owned(),
        source_epoch: 1,
        sequence: 2,
        kind: pb::BatchKind::Delta.into(),
        remove: Some(pb::Removals {
            tasks: gone,
            ..pb::Removals::default()
        }),
        ..pb::Batch::default()
    };
    server.wire.apply_batch(removed).unwrap();
    assert_eq!(place(None, like(JOB)), stored);
}
