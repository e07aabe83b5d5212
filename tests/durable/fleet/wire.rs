//! One caller: what is committed, what a repeated call gets, and what is refused.

use std::sync::Arc;

use pumice::server::pb;
use tonic::Code;

use super::{FleetOf, place_and_commit, placed_nodes};
use crate::support::TestDirectory;
use crate::support::process::ServeProcess;
use crate::support::records::{delta, full_sync, job, session_ref, task, task_on_node};
use crate::support::wire::BlockingClients;
use crate::support::{EmbeddedServer, reason};

const SMALL: FleetOf = FleetOf {
    nodes: 4,
    cores: 4,
    jobs: 6,
    gang: 3,
};

fn started() -> EmbeddedServer {
    let server = EmbeddedServer::start();
    server.wire.apply_batch(full_sync("test", 1, SMALL.cluster())).unwrap();
    server
}

fn clients(process: &ServeProcess) -> BlockingClients {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    BlockingClients::connect(Arc::new(runtime.unwrap()), process.grpc)
}

fn listed(server: &EmbeddedServer, names: &[String]) -> Vec<(String, bool)> {
    let request = pb::ListTasksRequest {
        names: names.to_vec(),
        ..pb::ListTasksRequest::default()
    };
    let tasks = server.wire.list_tasks(request).unwrap().tasks;
    let node = |stored: pb::StoredTask| (stored.task.unwrap().node, stored.assumed);
    tasks.into_iter().map(node).collect()
}

#[test]
fn the_placement_is_that_of_a_preview_and_counts_from_its_revision_on() {
    let server = started();
    let names = SMALL.tasks(0);
    let request = place_and_commit("first", &names);
    let preview = pb::PlaceRequest {
        effect: pb::PlaceEffect::Preview.into(),
        commit_key: String::new(),
        ..request.clone()
    };
    let previewed = server.wire.place(preview).unwrap();
    let before = server.state.snapshot().revision.number;
    let placed = server.wire.place(request).unwrap();
    let result = placed.result.clone().unwrap();
    assert!(result.placed);
    assert_eq!((result.placed_count, result.min_count), (3, 3));
    assert_eq!(placed.result, previewed.result, "the same nodes, counts and lists");
    let commit = placed.commit.clone().unwrap();
    assert_eq!((commit.tries, commit.repeated), (1, false));
    assert_eq!(commit.durability(), pb::Durability::Memory);
    let revision = placed.metadata.clone().unwrap().revision.unwrap();
    assert_eq!(revision.number, before + 1);
    let shown = listed(&server, &names);
    let expected: Vec<(String, bool)> = placed_nodes(&placed).into_iter().map(|node| (node, true)).collect();
    assert_eq!(shown, expected);
}

#[test]
fn a_repeated_call_gets_the_same_placement_and_another_key_gets_none() {
    let server = started();
    let names = SMALL.tasks(0);
    let first = server.wire.place(place_and_commit("key", &names)).unwrap();
    let revision = server.state.snapshot().revision;
    for _ in 0..3 {
        let again = server.wire.place(place_and_commit("key", &names)).unwrap();
        assert_eq!(again.result, first.result);
        let commit = again.commit.unwrap();
        assert_eq!((commit.tries, commit.repeated), (0, true));
        assert_eq!(commit.session, first.commit.clone().unwrap().session);
    }
    assert_eq!(server.state.snapshot().revision, revision, "nothing was written");
    let other = server.wire.place(place_and_commit("other", &names)).unwrap();
    assert!(other.commit.is_none());
    let problem = other.result.unwrap().groups[0].problem.clone().unwrap();
    assert_eq!(
        (problem.reason.as_str(), problem.field.as_str()),
        ("TASK_NOT_PENDING", "groups[0].names[0]")
    );
    // The key of this request is no key for a part of it, nor for more than it.
    let both = [names.clone(), SMALL.tasks(1)].concat();
    for (asked, reused) in [(&names[..1], true), (&both, false)] {
        let reply = server.wire.place(place_and_commit("key", asked));
        match reply {
            Err(status) => assert!(reused && status.message().contains("another request"), "{status}"),
            Ok(response) => assert!(!reused && response.commit.is_some_and(|commit| commit.repeated)),
        }
    }
    // The hold is released by its name, and then the key places again.
    let session = first.commit.unwrap().session;
    let release = pb::ReleaseAssumptionsRequest {
        session,
        tasks: Vec::new(),
    };
    assert_eq!(server.wire.release_assumptions(release).unwrap().released, names);
    assert_eq!(listed(&server, &names), vec![(String::new(), false); 3]);
    let later = server.wire.place(place_and_commit("key", &names)).unwrap();
    assert!(!later.commit.unwrap().repeated);
}

#[test]
fn a_gang_is_placed_as_far_as_it_may_be_and_repeated_as_that() {
    let server = started();
    // Only one node, with room for four.
    let on_first_node = |key: &str, job: usize, least: u32| pb::PlaceRequest {
        candidates: Some(pb::NodeSet {
            names: vec![FleetOf::node(0)],
            ..pb::NodeSet::default()
        }),
        min_available: Some(least),
        ..place_and_commit(key, &SMALL.tasks(job))
    };
    assert!(
        server
            .wire
            .place(on_first_node("first", 0, 3))
            .unwrap()
            .commit
            .is_some()
    );
    let refused = server.wire.place(on_first_node("second", 1, 1)).unwrap();
    assert!(refused.commit.is_none(), "its job needs three");
    assert_eq!(refused.result.unwrap().min_count, 3);
    assert_eq!(listed(&server, &SMALL.tasks(1)), vec![(String::new(), false); 3]);
    let cluster = pb::Cluster {
        jobs: vec![pb::Job {
            min_member: 1,
            ..job(&FleetOf::job(3), "q")
        }],
        ..pb::Cluster::default()
    };
    server.wire.apply_batch(delta("test", 2, cluster)).unwrap();
    let part = server.wire.place(on_first_node("part", 3, 1)).unwrap();
    let result = part.result.clone().unwrap();
    assert_eq!((result.placed_count, result.min_count), (1, 1));
    assert!(part.commit.is_some());
    let again = server.wire.place(on_first_node("part", 3, 1)).unwrap();
    assert!(again.commit.clone().unwrap().repeated);
    assert_eq!(placed_nodes(&again), placed_nodes(&part));
    let result = again.result.unwrap();
    assert_eq!((result.placed_count, result.min_count), (1, 1));
}

#[test]
fn what_is_being_released_is_not_placed_on() {
    let server = started();
    let leaving = |number: usize| {
        let name = format!("ns/leaving-{number}");
        let own = task(&name, "", &[("cpu", "4")]);
        task_on_node(own, pb::TaskStatus::Releasing, &FleetOf::node(number))
    };
    let cluster = pb::Cluster {
        tasks: (0..4).map(leaving).collect(),
        ..pb::Cluster::default()
    };
    server.wire.apply_batch(delta("test", 2, cluster)).unwrap();
    let full = server.wire.place(place_and_commit("full", &SMALL.tasks(0))).unwrap();
    assert!(full.commit.is_none());
    let result = full.result.unwrap();
    assert_eq!((result.placed, result.placed_count), (false, 0));
    assert_eq!(result.blockers[0].reason.clone().unwrap().code, "InsufficientResource");
}

#[test]
fn requests_that_contradict_themselves_are_refused_with_the_field() {
    let server = started();
    let names = SMALL.tasks(0);
    let refused = |change: &dyn Fn(&mut pb::PlaceRequest)| {
        let mut request = place_and_commit("key", &names);
        change(&mut request);
        let status = server.wire.place(request).unwrap_err();
        (reason(&status), status.code(), status.message().to_owned())
    };
    let (code, status, message) = refused(&|request| request.commit_key.clear());
    assert_eq!((code.as_str(), status), ("COMMIT_KEY_MISSING", Code::InvalidArgument));
    assert!(message.starts_with("commit_key: "), "{message}");
    let (code, ..) = refused(&|request| request.effect = pb::PlaceEffect::Preview.into());
    assert_eq!(code, "COMMIT_KEY_UNUSED");
    let (code, status, _) = refused(&|request| request.commit_key = "k".repeat(600));
    assert_eq!((code.as_str(), status), ("NAME_TOO_LONG", Code::InvalidArgument));
    let (code, _, message) = refused(&|request| request.against = Some(session_ref("some", 0, Vec::new())));
    assert_eq!(code, "COMMIT_AGAINST");
    assert!(message.contains("`against` has to be `latest`"), "{message}");
    let (code, ..) = refused(&|request| {
        request.job = Some(pb::Job {
            name: "ns/new".to_owned(),
            queue: "q".to_owned(),
            ..pb::Job::default()
        });
    });
    assert_eq!(code, "JOB_NOT_STORED");
    let mut hypothetical = place_and_commit("key", &[]);
    hypothetical.groups[0].task = Some(task("", "", &[("cpu", "1")]));
    let result = server.wire.place(hypothetical).unwrap().result.unwrap();
    let problem = result.groups[0].problem.clone().unwrap();
    assert_eq!(problem.reason, "NAMES_MISSING");
    assert!(problem.message.contains("COMMIT"), "{}", problem.message);
    assert_eq!(server.state.snapshot().state.assumed_count(), 0);
}

#[test]
fn a_placement_outlives_the_server_and_is_known_by_its_key() {
    let folder = TestDirectory::named("fleet");
    let data = folder.0.join("data");
    let data = data.to_str().unwrap();
    let process = ServeProcess::start(&["--data-dir", data]);
    let wire = clients(&process);
    wire.apply_batch(full_sync("test", 1, SMALL.cluster())).unwrap();
    let names = SMALL.tasks(2);
    let first = wire.place(place_and_commit("durable", &names)).unwrap();
    assert_eq!(first.commit.clone().unwrap().durability(), pb::Durability::Disk);
    drop(process);
    let process = ServeProcess::start(&["--data-dir", data]);
    let wire = clients(&process);
    wire.apply_batch(full_sync("test", 2, SMALL.cluster())).unwrap();
    let again = wire.place(place_and_commit("durable", &names)).unwrap();
    assert!(again.commit.unwrap().repeated);
    assert_eq!(again.result, first.result);
}

#[test]
fn metrics_count_calls_and_tasks() {
    let server = started();
    let names = SMALL.tasks(0);
    server.wire.place(place_and_commit("key", &names)).unwrap();
    server.wire.place(place_and_commit("key", &names)).unwrap();
    server.wire.place(place_and_commit("other", &names)).unwrap();
    let (_, page) = server.page("/metrics");
    for line in [
        "pumice_placement_commits_total{outcome=\"committed\"} 1",
        "pumice_placement_commits_total{outcome=\"repeated\"} 1",
        "pumice_placement_commits_total{outcome=\"unplaced\"} 1",
        "pumice_placement_commits_total{outcome=\"failed\"} 0",
        "pumice_placed_tasks_total 3",
        "pumice_placement_conflicts_total 0",
    ] {
        assert!(page.lines().any(|own| own == line), "{line}\n{page}");
    }
}
