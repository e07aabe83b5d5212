//! Replicas as clients see them: shared policies and promises, a partition, a pause, and sessions that are bound to their server.

#![expect(clippy::disallowed_methods, reason = "times are waited for")]

use std::time::Duration;

use pumice::server::pb;
use tonic::Code;

use super::replica::{Replica, connect, feed, promised, push_policy, runtime, until};
use super::shared_store::SharedService;
use crate::support::ledger::{ask, confirm, wants};
use crate::support::reason;
use crate::support::records::{hypothetical_task, session_ref};
use crate::support::wire::BlockingClients;

const TIMEOUT: Duration = Duration::from_secs(10);

/// Server and a client of it.
pub(super) fn one_more(store: &SharedService) -> (Replica, BlockingClients) {
    let replica = Replica::start(store);
    let wire = connect(&runtime(), replica.grpc(), TIMEOUT).unwrap();
    (replica, wire)
}

/// Two servers with the policy and the cluster, and a client of each.
pub(super) fn two(store: &SharedService) -> ([Replica; 2], [BlockingClients; 2]) {
    let [(one, one_wire), (other, other_wire)] = [one_more(store), one_more(store)];
    for wire in [&one_wire, &other_wire] {
        push_policy(wire);
        feed(wire, 1);
    }
    ([one, other], [one_wire, other_wire])
}

pub(super) fn permitted(wire: &BlockingClients, job: &str, cores: u32) -> bool {
    let reply = wire.admit(confirm(vec![ask(wants(job, "q", cores), 1)])).unwrap();
    reply.result.unwrap().items[0].permitted
}

#[test]
#[ignore = "needs a store: make replicas"]
fn what_one_server_takes_all_serve() {
    let store = SharedService::start(1);
    let (mut replicas, [one, other]) = two(&store);
    assert!(permitted(&one, "ns/a", 6));
    let again = one.admit(confirm(vec![ask(wants("ns/b", "q", 1), 1)])).unwrap();
    assert_eq!(again.durability(), store.durability());
    assert!(!permitted(&other, "ns/c", 6), "the first server promised the room");
    assert_eq!(promised(&one), promised(&other));
    // A policy.
    let document = "actions: allocate\ntiers:\n- plugins:\n  - name: binpack\n".to_owned();
    let reload = pb::ReloadPolicyRequest {
        document: document.clone(),
        ..Default::default()
    };
    one.reload_policy(reload).unwrap();
    until("the other server serves it", 2, || {
        let served = other.get_policy(pb::GetPolicyRequest::default()).unwrap();
        (served.policy?.document == document).then_some(())
    });
    // A server that comes back has everything.
    replicas[0].process.take().unwrap().kill();
    replicas[0].restart();
    let again = connect(&runtime(), replicas[0].grpc(), TIMEOUT).unwrap();
    assert_eq!(promised(&again), promised(&other));
    let served = again.get_policy(pb::GetPolicyRequest::default()).unwrap();
    assert_eq!(served.policy.unwrap().document, document);
}

#[test]
#[ignore = "needs a store: make replicas"]
fn a_server_that_is_cut_off_decides_and_promises_nothing() {
    let store = SharedService::start(1);
    let (replicas, [one, other]) = two(&store);
    assert!(permitted(&one, "ns/a", 4));
    replicas[0].cut();
    let (_, text) = until("readiness tells of it", 5, || {
        let (status, text) = replicas[0].page("/readyz?verbose");
        text.contains("cannot be reached").then_some((status, text))
    });
    assert!(text.contains("store"), "{text}");
    assert!(replicas[0].page("/metrics").1.contains("pumice_store_failing 1"));
    let reported_store = |wire: &BlockingClients| {
        let info = wire.get_server_info(pb::GetServerInfoRequest {}).unwrap();
        info.store.unwrap()
    };
    let cut_off = reported_store(&one);
    assert!(cut_off.problem.contains("cannot be reached"), "{cut_off:?}");
    let in_reach = reported_store(&other);
    assert_eq!((in_reach.durability, &*in_reach.problem), (cut_off.durability, ""));
    let began = std::time::Instant::now();
    let status = one.admit(confirm(vec![ask(wants("ns/b", "q", 1), 1)])).unwrap_err();
    assert_eq!(
        (status.code(), &*reason(&status)),
        (Code::Unavailable, "STORE_FAILED"),
        "{status:?}"
    );
    assert!(status.message().contains("cannot be reached"), "{status:?}");
    assert!(began.elapsed() < Duration::from_secs(1), "it refuses at once");
    // It decides by the last good policy, and takes batches.
    let filter = pb::FilterRequest {
        tasks: vec![hypothetical_task(&[("cpu", "1")])],
        ..Default::default()
    };
    one.filter(filter).unwrap();
    feed(&one, 2);
    assert!(permitted(&other, "ns/c", 6));
    replicas[0].mend();
    until("it promises again", 5, || {
        one.admit(confirm(vec![ask(wants("ns/a", "q", 4), 1)])).ok()
    });
    assert!(!permitted(&one, "ns/b", 1), "the other server has promised the rest");
    assert_eq!(promised(&one), promised(&other));
}

#[test]
#[ignore = "needs a store: make replicas"]
fn a_server_that_starts_before_its_store_waits_for_it() {
    let store = SharedService::start(1);
    let (mut replicas, [one, _]) = two(&store);
    assert!(permitted(&one, "ns/a", 4));
    replicas[1].process.take().unwrap().kill();
    replicas[1].cut();
    let late = &replicas[1];
    let started = std::thread::scope(|scope| {
        let starting = scope.spawn(|| late.start_process());
        // Longer than a request waits for the store.
        std::thread::sleep(Duration::from_secs(2));
        assert!(!starting.is_finished(), "the start waits");
        late.mend();
        starting.join().unwrap()
    });
    replicas[1].process = Some(started.unwrap());
    let late = connect(&runtime(), replicas[1].grpc(), TIMEOUT).unwrap();
    assert_eq!(promised(&late), promised(&one));
}

#[test]
#[ignore = "needs a store: make replicas"]
fn a_server_that_slept_longer_than_its_lease_acknowledges_what_is_in_the_log_only() {
    let store = SharedService::start(1);
    let (replicas, [one, other]) = two(&store);
    let process = replicas[0].process.as_ref().unwrap();
    for round in 0..3 {
        let (job, rival) = (format!("ns/sleeper-{round}"), format!("ns/rival-{round}"));
        process.pause();
        // The request waits in the sleeping server.
        let asking = {
            let (one, job) = (one.clone(), job.clone());
            std::thread::spawn(move || one.admit(confirm(vec![ask(wants(&job, "q", 6), 1)])))
        };
        std::thread::sleep(Duration::from_millis(2_500));
        assert!(permitted(&other, &rival, 6), "the others do not wait for it");
        process.resume();
        let outcome = asking.join().unwrap();
        let granted = outcome.is_ok_and(|reply| reply.result.unwrap().items[0].permitted);
        assert!(!granted, "the room was taken while it slept");
        let release = pb::ReleaseReservationRequest {
            job: rival,
            job_uid: String::new(),
            attempt: 1,
        };
        other.release_reservation(release).unwrap();
        until("it promises again", 5, || {
            let reply = one.admit(confirm(vec![ask(wants(&job, "q", 6), 2)])).ok()?;
            reply.result?.items[0].permitted.then_some(())
        });
        let release = pb::ReleaseReservationRequest {
            job,
            job_uid: String::new(),
            attempt: 2,
        };
        other.release_reservation(release).unwrap();
    }
    until("both hold nothing", 2, || {
        (promised(&one).is_empty() && promised(&other).is_empty()).then_some(())
    });
}

#[test]
#[ignore = "needs a store: make replicas"]
fn a_session_is_bound_to_its_server_and_another_one_names_it() {
    let store = SharedService::start(1);
    let (runtime, own) = (runtime(), Replica::start_advertised(&store, "pumice-0.example:7461"));
    let rest = Replica::start(&store);
    let [one, other] = [&own, &rest].map(|replica| connect(&runtime, replica.grpc(), TIMEOUT).unwrap());
    push_policy(&one);
    feed(&one, 1);
    let opened = one.open_session(pb::OpenSessionRequest::default()).unwrap();
    let filter = pb::FilterRequest {
        against: Some(session_ref(&opened.session, 0, Vec::new())),
        tasks: vec![hypothetical_task(&[("cpu", "1")])],
        ..Default::default()
    };
    one.filter(filter.clone()).unwrap();
    until("the other server knows where it is", 5, || {
        let status = other.filter(filter.clone()).unwrap_err();
        assert_eq!((status.code(), &*reason(&status)), (Code::NotFound, "SESSION_UNKNOWN"));
        status
            .message()
            .contains("the server at pumice-0.example:7461 opened it")
            .then_some(())
    });
}
