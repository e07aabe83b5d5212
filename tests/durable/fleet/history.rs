//! Many schedulers at once on a real server, and a plain check of what their callers saw.

use std::collections::BTreeMap;
use std::sync::Barrier;

use pumice::config::ServerConfig;
use pumice::server::pb;
use pumice_measurement::placement_history::{HistoryViolation, PlacementHistory, SeenCommit, SeenRelease};

use super::{FleetOf, place_and_commit, placed_nodes};
use crate::support::EmbeddedServer;
use crate::support::records::{full_sync, session_ref};
use crate::support::wire::BlockingClients;

const SCHEDULERS: usize = 8;

/// History of nobody yet.
fn empty_history(fleet: &FleetOf) -> PlacementHistory {
    let amounts = |cores: u64| BTreeMap::from([("cpu".to_owned(), cores)]);
    let tasks = (0..fleet.jobs).flat_map(|job| fleet.tasks(job));
    PlacementHistory {
        nodes: (0..fleet.nodes)
            .map(|number| (FleetOf::node(number), amounts(fleet.cores)))
            .collect(),
        tasks: tasks.map(|task| (task, amounts(1))).collect(),
        commits: Vec::new(),
        releases: Vec::new(),
    }
}

fn seen(request: &pb::PlaceRequest, response: &pb::PlaceResponse) -> Option<SeenCommit> {
    response.commit.as_ref()?;
    let names = request.groups.iter().flat_map(|group| group.names.iter().cloned());
    Some(SeenCommit {
        key: request.commit_key.clone(),
        revision: response.metadata.as_ref()?.revision?.number,
        tasks: names.zip(placed_nodes(response)).collect(),
    })
}

/// Differences between the history and what the server shows.
fn differences(server: &EmbeddedServer, history: &PlacementHistory) -> Vec<HistoryViolation> {
    let tasks = server.wire.list_tasks(pb::ListTasksRequest::default()).unwrap().tasks;
    let tasks: Vec<pb::Task> = tasks.into_iter().filter_map(|stored| stored.task).collect();
    history.differences(tasks.iter().map(|task| (task.name.as_str(), task.node.as_str())))
}

/// Sequence of choices that is the same for each seed.
struct ActionSequence(u64);

impl ActionSequence {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

/// Commits and releases that one scheduler saw.
#[derive(Default)]
struct SchedulerReport {
    commits: Vec<SeenCommit>,
    releases: Vec<SeenRelease>,
    unplaced: usize,
}

/// Places its jobs one after the other, some in sessions, and releases some.
fn run_scheduler(wire: &BlockingClients, fleet: &FleetOf, number: usize, seed: u64) -> SchedulerReport {
    let (mut report, mut steps) = (SchedulerReport::default(), ActionSequence(seed * 1_000 + number as u64));
    for job in (number..fleet.jobs).step_by(SCHEDULERS) {
        let names = fleet.tasks(job);
        if steps.next(4) == 0 {
            report.commits.extend(commit_in_session(wire, &names));
            continue;
        }
        let request = place_and_commit(&format!("{number}/{job}"), &names);
        let response = wire.place(request.clone()).unwrap();
        let Some(commit) = seen(&request, &response) else {
            report.unplaced += 1;
            continue;
        };
        if steps.next(3) == 0 {
            let again = wire.place(request.clone()).unwrap();
            assert!(again.commit.as_ref().unwrap().repeated);
            assert_eq!(placed_nodes(&again), placed_nodes(&response));
        }
        report.commits.push(commit);
        if steps.next(4) == 0 {
            let release = pb::ReleaseAssumptionsRequest {
                session: response.commit.unwrap().session,
                tasks: Vec::new(),
            };
            let released = wire.release_assumptions(release).unwrap();
            report.releases.push(SeenRelease {
                revision: released.revision.unwrap().number,
                tasks: released.released,
            });
        }
    }
    report
}

/// Places a job in a session and commits that, as schedulers did before.
fn commit_in_session(wire: &BlockingClients, names: &[String]) -> Option<SeenCommit> {
    let session = wire.open_session(pb::OpenSessionRequest::default()).unwrap().session;
    let mut request = place_and_commit("", names);
    request.effect = pb::PlaceEffect::Session.into();
    request.idle_only = true;
    request.against = Some(session_ref(&session, 0, Vec::new()));
    let placed = wire.place(request).unwrap();
    let commit = pb::CommitSessionRequest {
        session: Some(pb::SessionRef {
            id: session.clone(),
            after: 1,
            changes: Vec::new(),
        }),
        jobs: Vec::new(),
    };
    let committed = wire.commit_session(commit).unwrap();
    let job = committed.jobs.first()?;
    let rejected: Vec<&String> = job
        .rejections
        .iter()
        .filter_map(|one| one.placement.as_ref().map(|placement| &placement.task))
        .collect();
    let tasks = names.iter().cloned().zip(placed_nodes(&placed));
    job.committed.then(|| SeenCommit {
        key: session,
        revision: committed.metadata.unwrap().revision.unwrap().number,
        tasks: tasks.filter(|(task, _)| !rejected.contains(&task)).collect(),
    })
}

fn run_fleet(config: ServerConfig, fleet: &FleetOf, seed: u64) -> (EmbeddedServer, PlacementHistory, usize) {
    let server = EmbeddedServer::with(config);
    server.wire.apply_batch(full_sync("test", 1, fleet.cluster())).unwrap();
    let barrier = Barrier::new(SCHEDULERS);
    let reports: Vec<SchedulerReport> = std::thread::scope(|scope| {
        let schedulers: Vec<_> = (0..SCHEDULERS)
            .map(|number| {
                let (wire, barrier) = (server.connect(), &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    run_scheduler(&wire, fleet, number, seed)
                })
            })
            .collect();
        schedulers.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let mut history = empty_history(fleet);
    let mut unplaced = 0;
    for one in reports {
        history.commits.extend(one.commits);
        history.releases.extend(one.releases);
        unplaced += one.unplaced;
    }
    (server, history, unplaced)
}

/// Jobs of more tasks than the nodes have room for: some find none.
const CROWDED: FleetOf = FleetOf {
    nodes: 10,
    cores: 12,
    jobs: 64,
    gang: 3,
};

#[test]
fn histories_of_concurrent_schedulers_have_a_serial_order_that_fits() {
    for seed in 0..4 {
        let (server, history, unplaced) = run_fleet(ServerConfig::on_free_ports(), &CROWDED, seed);
        // At each revision each node has room for what it holds, and each task one place: then the order of the revisions
        // is one in which every placement fits.
        assert_eq!(history.violations(), [], "seed {seed}");
        assert_eq!(differences(&server, &history), [], "seed {seed}");
        assert!(unplaced > 0, "seed {seed}: the nodes were never full");
        let committed = history.commits.len();
        assert!(committed >= 36, "seed {seed}: {committed} of 40 gangs that fit");
    }
}

#[test]
fn gangs_are_refused_only_where_no_room_is_left() {
    let (server, history, unplaced) = run_fleet(ServerConfig::on_free_ports(), &CROWDED, 77);
    assert!(unplaced > 0);
    // Whoever asks again gets what the present state has room for.
    let placed = history.final_nodes().len();
    let free = CROWDED.nodes * usize::try_from(CROWDED.cores).unwrap() - placed;
    let pending = (0..CROWDED.jobs).filter(|job| {
        let first = &CROWDED.tasks(*job)[0];
        !history.final_nodes().contains_key(first.as_str())
    });
    let (mut asked, mut placed) = (0, 0);
    for job in pending {
        let request = place_and_commit(&format!("late/{job}"), &CROWDED.tasks(job));
        asked += 1;
        placed += usize::from(server.wire.place(request).unwrap().commit.is_some());
    }
    assert_eq!(placed, asked.min(free / CROWDED.gang), "{free} cores are free");
}

#[test]
fn calls_with_one_key_at_once_place_their_tasks_once() {
    let fleet = FleetOf {
        nodes: 10,
        cores: 16,
        jobs: 20,
        gang: 4,
    };
    let server = EmbeddedServer::start();
    server.wire.apply_batch(full_sync("test", 1, fleet.cluster())).unwrap();
    let wires: Vec<BlockingClients> = (0..SCHEDULERS).map(|_| server.connect()).collect();
    for job in 0..fleet.jobs {
        let request = place_and_commit(&format!("same/{job}"), &fleet.tasks(job));
        let barrier = Barrier::new(SCHEDULERS);
        let responses: Vec<pb::PlaceResponse> = std::thread::scope(|scope| {
            let callers = wires.iter().map(|wire| {
                let (request, barrier) = (request.clone(), &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    wire.place(request).unwrap()
                })
            });
            let callers: Vec<_> = callers.collect();
            callers.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let nodes = placed_nodes(&responses[0]);
        assert_eq!(nodes.len(), fleet.gang);
        assert!(responses.iter().all(|own| placed_nodes(own) == nodes));
        let firsts = responses.iter().filter(|own| !own.commit.as_ref().unwrap().repeated);
        assert_eq!(firsts.count(), 1);
    }
}

/// Gangs that are too large for the lane: their nodes are chosen at once, in one state.
const LARGE: FleetOf = FleetOf {
    nodes: 24,
    cores: 100,
    jobs: SCHEDULERS,
    gang: 1_001,
};

/// Places all large gangs at the same time.
fn place_large_gangs(skip_checks: bool) -> (PlacementHistory, u32) {
    let mut config = ServerConfig::on_free_ports();
    config.test_doors.skip_checks = skip_checks;
    config.limits.edge.workers = SCHEDULERS;
    let server = EmbeddedServer::with(config);
    server.wire.apply_batch(full_sync("test", 1, LARGE.cluster())).unwrap();
    let barrier = Barrier::new(SCHEDULERS);
    let responses: Vec<(pb::PlaceRequest, pb::PlaceResponse)> = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..SCHEDULERS)
            .map(|number| {
                let (wire, barrier) = (server.connect(), &barrier);
                scope.spawn(move || {
                    let request = place_and_commit(&format!("large/{number}"), &LARGE.tasks(number));
                    barrier.wait();
                    let response = wire.place(request.clone()).unwrap();
                    (request, response)
                })
            })
            .collect();
        callers.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let mut history = empty_history(&LARGE);
    history.commits = responses
        .iter()
        .filter_map(|(request, response)| seen(request, response))
        .collect();
    let tries = responses.iter().filter_map(|(_, response)| response.commit.as_ref());
    (history, tries.map(|commit| commit.tries).sum())
}

#[test]
fn large_gangs_that_are_placed_at_once_are_judged_again() {
    let (history, tries) = place_large_gangs(false);
    assert_eq!(history.violations(), []);
    assert_eq!(history.commits.len(), 2, "2,400 cores have room for two");
    assert!(tries >= 2);
}

#[test]
fn a_server_that_does_not_judge_again_is_caught_by_the_check() {
    for _ in 0..20 {
        let (history, _) = place_large_gangs(true);
        let violations = history.violations();
        if violations
            .iter()
            .any(|one| matches!(one, HistoryViolation::Overcommitted { .. }))
        {
            return;
        }
    }
    panic!("eight gangs that were placed at once were never in each other's way");
}

#[test]
fn one_that_sends_many_calls_does_not_keep_another_waiting() {
    const MANY: usize = 100;
    let fleet = FleetOf {
        nodes: 2_000,
        cores: 16,
        jobs: MANY + 1,
        gang: 8,
    };
    let server = EmbeddedServer::start();
    server.wire.apply_batch(full_sync("test", 1, fleet.cluster())).unwrap();
    let (greedy, modest) = (server.connect(), server.connect());
    let before_modest = server.wire.wait(async {
        use pumice::server::pb::DecisionServiceClient;
        let mut calls = tokio::task::JoinSet::new();
        for number in 0..MANY {
            let mut client = DecisionServiceClient::new(greedy.channel());
            let request = place_and_commit(&format!("greedy/{number}"), &fleet.tasks(number));
            calls.spawn(async move { client.place(request).await.map(drop) });
        }
        // The greedy ones are in the lane.
        calls.join_next().await.unwrap().unwrap().unwrap();
        let mut client = DecisionServiceClient::new(modest.channel());
        let request = place_and_commit("modest", &fleet.tasks(MANY));
        let placed = client.place(request).await.unwrap().into_inner();
        assert!(placed.commit.is_some());
        let mut left = 0;
        while let Some(ended) = calls.try_join_next() {
            ended.unwrap().unwrap();
            left += 1;
        }
        while let Some(ended) = calls.join_next().await {
            ended.unwrap().unwrap();
        }
        left
    });
    assert!(
        before_modest < MANY / 2,
        "{before_modest} of {MANY} calls went before one that came second"
    );
}
