//! Answers that do not depend on history: a server that has lived long answers like a fresh one, a session like a rebuild of
//! it, and a change and its reverse leave every answer as it was.

mod counted_cluster;

use std::cell::Cell;

use counted_cluster::{CountedCluster, JOBS, NODES, TASKS, counted_clusters, job_name, node_name, task_name};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use pumice::server::pb;
use pumice::server::pb::session_change::Change;

use crate::support::EmbeddedServer;
use crate::support::records::{full_sync, session_ref};
use crate::support::wire::BlockingClients;

/// Plugins of policies; together they read all that is counted per node.
const POLICIES: [&str; 4] = [
    "[{name: priority}, {name: gang}, {name: overcommit}, {name: proportion}, {name: predicates, arguments: {predicate.CacheEnable: true}}, {name: nodeorder}]",
    "[{name: predicates}, {name: capacity-card, arguments: {cardVictims: true}}, {name: nodeorder}]",
    "[{name: gang}, {name: capacity, enableHierarchy: true}, {name: predicates}, {name: gpu-devices}, {name: binpack}]",
    "[{name: drf, enableHierarchy: true}, {name: predicates}, {name: nodeorder}, {name: gpu-devices}]",
];
const MODES: [&str; 2] = ["corrected", "upstream"];

fn reload(server: &EmbeddedServer, policy: usize, mode: &str) {
    reload_plugins(server, POLICIES[policy], mode);
}

fn reload_plugins(server: &EmbeddedServer, plugins: &str, mode: &str) {
    let document = format!("actions: allocate\ntiers: [{{plugins: {plugins}}}]\npumice: {{compatibility: {mode}}}\n");
    let reload = pb::ReloadPolicyRequest {
        document,
        ..Default::default()
    };
    server.wire.reload_policy(reload).unwrap();
}

/// Server with a cluster under a policy.
fn fresh(policy: usize, mode: &str, cluster: pb::Cluster) -> EmbeddedServer {
    let server = EmbeddedServer::start();
    reload(&server, policy, mode);
    server.wire.apply_batch(full_sync("s", 1, cluster)).unwrap();
    server
}

/// Tasks as a state has them.
fn tasks(wire: &BlockingClients, against: &pb::EvaluationRef) -> Vec<pb::Task> {
    let listed = wire.list_tasks(pb::ListTasksRequest {
        against: Some(against.clone()),
        ..Default::default()
    });
    listed.unwrap().tasks.into_iter().filter_map(|own| own.task).collect()
}

fn place(
    wire: &BlockingClients,
    against: Option<pb::EvaluationRef>,
    groups: Vec<pb::TaskGroup>,
    effect: pb::PlaceEffect,
) -> Option<pb::PlaceResult> {
    let query = pb::PlaceRequest {
        against,
        groups,
        min_available: Some(1),
        effect: effect.into(),
        ..Default::default()
    };
    wire.place(query).ok()?.result
}

/// Three tasks like this one.
fn three(task: &pb::Task) -> pb::TaskGroup {
    pb::TaskGroup {
        task: Some(pb::Task {
            name: String::new(),
            uid: String::new(),
            ..task.clone()
        }),
        count: Some(3),
        ..Default::default()
    }
}

/// Task as it waits.
fn pending(task: &pb::Task) -> pb::Task {
    pb::Task {
        status: pb::TaskStatus::Pending.into(),
        node: String::new(),
        ..task.clone()
    }
}

/// Results of all kinds of queries about a cluster, as texts; the questions are about the tasks as they came first.
#[expect(clippy::too_many_lines, reason = "one query after another, each short")]
fn results(wire: &BlockingClients, against: &pb::EvaluationRef, cluster: &pb::Cluster) -> Vec<String> {
    let against = Some(against.clone());
    // A task that runs is asked about under another name, as one like it.
    let asked = cluster.tasks.iter().map(|task| pb::Task {
        name: if task.node.is_empty() {
            task.name.clone()
        } else {
            format!("{}-like", task.name)
        },
        ..pending(task)
    });
    let asked: Vec<pb::Task> = asked.collect();
    let mut all = Vec::new();
    for fit in [
        pb::ResourceFit::None,
        pb::ResourceFit::Idle,
        pb::ResourceFit::FutureIdle,
    ] {
        let query = pb::FilterRequest {
            against: against.clone(),
            tasks: asked.clone(),
            resource_fit: fit.into(),
            ..Default::default()
        };
        all.push(format!("{fit:?} {:#?}", wire.filter(query).unwrap().result));
    }
    let query = pb::ScoreRequest {
        against: against.clone(),
        tasks: asked.clone(),
        with_filter: true,
        ..Default::default()
    };
    all.push(format!("{:#?}", wire.score(query).unwrap().result));
    for task in &asked {
        all.push(format!(
            "{:#?}",
            place(wire, against.clone(), vec![three(task)], pb::PlaceEffect::Preview)
        ));
    }
    let jobs = cluster
        .jobs
        .iter()
        .map(|job| pb::admit_subject::Subject::Job(job.clone()));
    let subjects = jobs.chain(asked.iter().cloned().map(pb::admit_subject::Subject::Task));
    let query = pb::AdmitRequest {
        against: against.clone(),
        items: subjects
            .map(|subject| pb::AdmitSubject {
                subject: Some(subject),
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    };
    all.push(format!("{:#?}", wire.admit(query).unwrap().result));
    let query = pb::OrderRequest {
        against: against.clone(),
        queues: Some(pb::NameSet::default()),
        jobs: Some(pb::NameSet::default()),
        with_tree: true,
        ..Default::default()
    };
    all.push(format!("{:#?}", wire.order(query).unwrap().result));
    all.extend(victims(wire, against.as_ref().unwrap(), &asked));
    all
}

/// Victims for each waiting task on each node.
fn victims(wire: &BlockingClients, against: &pb::EvaluationRef, asked: &[pb::Task]) -> Vec<String> {
    let running: Vec<pb::Task> = tasks(wire, against)
        .into_iter()
        .filter(|task| task.status == i32::from(pb::TaskStatus::Running))
        .collect();
    let all = [pb::VictimKind::Preempt, pb::VictimKind::Reclaim].map(|kind| {
        let groups = asked.iter().flat_map(|task| {
            let on_node = |node: usize| {
                let on_node = running
                    .iter()
                    .filter(|own| own.node == node_name(node) && own.name != task.name);
                pb::VictimGroup {
                    preemptor: Some(task.clone()),
                    node: node_name(node),
                    candidates: on_node.cloned().collect(),
                    ..Default::default()
                }
            };
            (0..NODES).map(on_node)
        });
        let query = pb::SelectVictimsRequest {
            against: Some(against.clone()),
            kind: kind.into(),
            groups: groups.collect(),
            ..Default::default()
        };
        format!("{kind:?} {:#?}", wire.select_victims(query).unwrap().result)
    });
    all.into()
}

/// First lines in which two lists of answers differ.
fn difference(own: &[String], other: &[String]) -> Option<String> {
    let (number, (own, other)) = own
        .iter()
        .zip(other)
        .enumerate()
        .find(|(_, (own, other))| own != other)?;
    let (own, other): (Vec<&str>, Vec<&str>) = (own.lines().collect(), other.lines().collect());
    let at = own
        .iter()
        .zip(&other)
        .position(|(own, other)| own != other)
        .unwrap_or(0);
    let near = |lines: &[&str]| lines[at.saturating_sub(14)..lines.len().min(at + 6)].join("\n");
    let items = own.iter().take(at).filter(|line| line.ends_with("Item {")).count();
    Some(format!(
        "result {number}, item {items}:\n{}\n--- but ---\n{}",
        near(&own),
        near(&other)
    ))
}

/// Change of a session about a task and a node, by numbers.
type ChosenChange = (u8, usize, usize);

fn placement(task: usize, node: usize) -> pb::TaskPlacement {
    pb::TaskPlacement {
        task: task_name(task),
        node: node_name(node),
        ..Default::default()
    }
}

/// Any change of a session.
fn change((kind, task, node): ChosenChange) -> Change {
    match kind % 7 {
        0 => Change::Allocate(placement(task, node)),
        1 => Change::Pipeline(placement(task, node)),
        2 => Change::Evict(task_name(task)),
        3 => Change::Unallocate(task_name(task)),
        4 => Change::Unpipeline(task_name(task)),
        5 => Change::Unevict(task_name(task)),
        _ => Change::BindFailed(task_name(task)),
    }
}

/// Change that fits the task in its cluster, and its reverse.
fn reversed(counted: &CountedCluster, (kind, task, node): ChosenChange) -> Option<[Change; 2]> {
    let name = || task_name(task);
    if counted.is_running(task) {
        return Some([Change::Evict(name()), Change::Unevict(name())]);
    }
    counted.has_node(node).then(|| {
        if kind % 2 == 0 {
            [Change::Allocate(placement(task, node)), Change::Unallocate(name())]
        } else {
            [Change::Pipeline(placement(task, node)), Change::Unpipeline(name())]
        }
    })
}

/// Session of a server, with the number of its changes.
struct HistorySession<'s> {
    wire: &'s BlockingClients,
    id: String,
    done: u64,
}

impl<'s> HistorySession<'s> {
    fn new(server: &'s EmbeddedServer) -> Self {
        let opened = server.wire.open_session(pb::OpenSessionRequest::default()).unwrap();
        Self {
            wire: &server.wire,
            id: opened.session,
            done: 0,
        }
    }

    fn present(&self) -> pb::EvaluationRef {
        session_ref(&self.id, self.done, Vec::new())
    }

    /// Applies changes; false: they were refused.
    fn apply(&mut self, changes: Vec<Change>) -> bool {
        let count = changes.len() as u64;
        let query = pb::FilterRequest {
            against: Some(session_ref(&self.id, self.done, changes)),
            ..Default::default()
        };
        let is_applied = self.wire.filter(query).is_ok();
        self.done += if is_applied { count } else { 0 };
        is_applied
    }

    fn close(self) {
        let close = pb::CloseSessionRequest { session: self.id };
        self.wire.close_session(close).unwrap();
    }
}

fn chosen_changes(most: usize) -> impl Strategy<Value = Vec<ChosenChange>> {
    prop::collection::vec((any::<u8>(), 0..TASKS, 0..NODES), 1..most)
}

/// Event in the life of a server.
#[derive(Clone, Debug)]
enum LifeEvent {
    Load(CountedCluster),
    /// Other tasks come to the nodes of the last cluster.
    Tasks(CountedCluster),
    Ask,
    /// Place is asked for all tasks of a job that wait, in a preview or a session. This may be the first question about a
    /// state.
    Place(usize, bool),
    Session(Vec<ChosenChange>, bool),
}

fn visits() -> impl Strategy<Value = LifeEvent> {
    prop_oneof![
        (0..JOBS, any::<bool>()).prop_map(|(job, in_session)| LifeEvent::Place(job, in_session)),
        (chosen_changes(6), any::<bool>()).prop_map(|(changes, asks)| LifeEvent::Session(changes, asks)),
    ]
}

/// Events in the life of a server before its last load, and after it.
fn lives() -> impl Strategy<Value = [Vec<LifeEvent>; 2]> {
    let event = prop_oneof![
        1 => counted_clusters().prop_map(LifeEvent::Load),
        2 => counted_clusters().prop_map(LifeEvent::Tasks),
        1 => Just(LifeEvent::Ask),
        4 => visits(),
    ];
    let before = prop::collection::vec(event, 0..6);
    (before, prop::collection::vec(visits(), 0..3)).prop_map(|(before, after)| [before, after])
}

fn latest() -> pb::EvaluationRef {
    pb::EvaluationRef::default()
}

/// Runner of the same cases in each run; `PUMICE_HISTORIES` asks for another number of cases, and for new ones.
#[expect(
    clippy::disallowed_methods,
    reason = "the command line of a test run is its environment"
)]
fn runner(usual: u32) -> TestRunner {
    let wanted: Option<u32> = std::env::var("PUMICE_HISTORIES")
        .ok()
        .and_then(|text| text.parse().ok());
    let config = ProptestConfig {
        cases: wanted.unwrap_or(usual),
        max_shrink_iters: 400,
        ..ProptestConfig::default()
    };
    match wanted {
        Some(_) => TestRunner::new(config),
        None => TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha)),
    }
}

/// Lets a server live, and leaves the last cluster in it.
fn live(server: &EmbeddedServer, sequence: &mut u64, [before, after]: &[Vec<LifeEvent>; 2], last: &CountedCluster) {
    let mut present = last.cluster();
    let mut load = |cluster: &pb::Cluster| {
        *sequence += 1;
        let batch = full_sync("s", *sequence, cluster.clone());
        server.wire.apply_batch(batch).unwrap();
    };
    for event in before.iter().chain([&LifeEvent::Load(last.clone())]).chain(after) {
        match event {
            LifeEvent::Load(counted) => {
                present = counted.cluster();
                load(&present);
            }
            LifeEvent::Tasks(counted) => {
                present = counted.on_nodes_of(last).cluster();
                load(&present);
            }
            LifeEvent::Place(job, in_session) => {
                let waits = |task: &&pb::Task| task.node.is_empty() && task.job == job_name(*job);
                let groups = present.tasks.iter().filter(waits).map(|task| pb::TaskGroup {
                    names: vec![task.name.clone()],
                    ..Default::default()
                });
                let groups: Vec<pb::TaskGroup> = groups.collect();
                let session = in_session.then(|| HistorySession::new(server));
                let effect = if *in_session {
                    pb::PlaceEffect::Session
                } else {
                    pb::PlaceEffect::Preview
                };
                let _ = place(
                    &server.wire,
                    session.as_ref().map(HistorySession::present),
                    groups,
                    effect,
                );
                session.into_iter().for_each(HistorySession::close);
            }
            LifeEvent::Ask => {
                let _ = results(&server.wire, &latest(), &present);
            }
            LifeEvent::Session(changes, asks) => {
                let mut session = HistorySession::new(server);
                for chosen in changes {
                    session.apply(vec![change(*chosen)]);
                    if *asks {
                        let _ = results(&server.wire, &session.present(), &present);
                    }
                }
                session.close();
            }
        }
    }
}

#[test]
fn a_server_that_has_lived_long_equals_a_fresh_one() {
    for mode in MODES {
        for (policy, _) in POLICIES.iter().enumerate() {
            let old = EmbeddedServer::start();
            reload(&old, policy, mode);
            let sequence = Cell::new(0);
            let mut runner = runner(6);
            let outcome = runner.run(
                &(lives(), counted_clusters(), chosen_changes(4)),
                |(life, last, changes)| {
                    let mut number = sequence.get();
                    live(&old, &mut number, &life, &last);
                    sequence.set(number);
                    let cluster = last.cluster();
                    let new = fresh(policy, mode, cluster.clone());
                    let both = [&old, &new].map(|server| results(&server.wire, &latest(), &cluster));
                    prop_assert_eq!(difference(&both[0], &both[1]), None, "latest state");
                    let both = [&old, &new].map(|server| {
                        let mut session = HistorySession::new(server);
                        for chosen in &changes {
                            session.apply(vec![change(*chosen)]);
                        }
                        let all = results(&server.wire, &session.present(), &cluster);
                        session.close();
                        all
                    });
                    prop_assert_eq!(difference(&both[0], &both[1]), None, "session");
                    Ok(())
                },
            );
            outcome.unwrap_or_else(|failed| panic!("{} under {mode}: {failed}", POLICIES[policy]));
        }
    }
}

#[test]
fn a_change_and_its_reverse_leave_every_result_as_it_was() {
    for mode in MODES {
        for (policy, _) in POLICIES.iter().enumerate() {
            let server = EmbeddedServer::start();
            reload(&server, policy, mode);
            let sequence = Cell::new(0);
            let mut runner = runner(8);
            let outcome = runner.run(
                &(counted_clusters(), chosen_changes(5), any::<bool>()),
                |(counted, chosen, nested)| {
                    let mut number = sequence.get();
                    live(&server, &mut number, &Default::default(), &counted);
                    sequence.set(number);
                    let cluster = counted.cluster();
                    let mut session = HistorySession::new(&server);
                    let before = results(&server.wire, &session.present(), &cluster);
                    let mut pairs: Vec<[Change; 2]> = Vec::new();
                    let mut known = std::collections::BTreeSet::new();
                    // In the reference a task that may use several cards stays tied to its last node (S19).
                    // A pod whose eviction is undone stays off its node for filters and scores of Kubernetes.
                    let is_lasting =
                        |task: usize| mode == "upstream" && (counted.accepts_cards(task) || counted.is_running(task));
                    let chosen = chosen.iter().filter(|(_, task, _)| !is_lasting(*task));
                    for own in chosen.filter(|(_, task, _)| known.insert(*task)) {
                        pairs.extend(reversed(&counted, *own));
                    }
                    if nested {
                        for [there, _] in &pairs {
                            session.apply(vec![there.clone()]);
                            let _ = results(&server.wire, &session.present(), &cluster);
                        }
                        for [_, back] in pairs.iter().rev() {
                            session.apply(vec![back.clone()]);
                        }
                    } else {
                        for [there, back] in &pairs {
                            session.apply(vec![there.clone()]);
                            session.apply(vec![back.clone()]);
                        }
                    }
                    let after = results(&server.wire, &session.present(), &cluster);
                    session.close();
                    prop_assert_eq!(difference(&before, &after), None, "{:?}", pairs);
                    Ok(())
                },
            );
            outcome.unwrap_or_else(|failed| panic!("{} under {mode}: {failed}", POLICIES[policy]));
        }
    }
}

#[test]
fn a_session_equals_a_rebuild_of_it() {
    for policy in POLICIES {
        // What queues deserve by proportion stays as it was when the session began.
        let plugins = &policy.replace("{name: proportion}, ", "");
        let server = EmbeddedServer::start();
        reload_plugins(&server, plugins, "corrected");
        let sequence = Cell::new(0);
        let mut runner = runner(8);
        let outcome = runner.run(&(counted_clusters(), chosen_changes(10)), |(counted, chosen)| {
            let mut number = sequence.get();
            live(&server, &mut number, &Default::default(), &counted);
            sequence.set(number);
            let cluster = counted.cluster();
            let mut session = HistorySession::new(&server);
            for own in &chosen {
                session.apply(vec![change(*own)]);
            }
            let here = results(&server.wire, &session.present(), &cluster);
            let records = pb::Cluster {
                tasks: tasks(&server.wire, &session.present()),
                ..cluster.clone()
            };
            session.close();
            let rebuilt = EmbeddedServer::start();
            reload_plugins(&rebuilt, plugins, "corrected");
            rebuilt.wire.apply_batch(full_sync("s", 1, records)).unwrap();
            let there = results(&rebuilt.wire, &latest(), &cluster);
            prop_assert_eq!(difference(&here, &there), None);
            Ok(())
        });
        outcome.unwrap_or_else(|failed| panic!("{plugins}: {failed}"));
    }
}
