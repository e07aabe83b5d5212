//! Stores without room, slow ones, and clocks that jump, as clients see them.

use std::time::Duration;

use pumice::server::pb;
use tonic::Code;

use super::replica::{promised, until};
use super::shared_store::SharedService;
use super::wire::{one_more, permitted, two};
use crate::support::ledger::{ask, confirm, wants};
use crate::support::reason;
use crate::support::records::hypothetical_task;
use crate::support::wire::BlockingClients;

fn store_problem(wire: &BlockingClients) -> String {
    let info = wire.get_server_info(pb::GetServerInfoRequest {}).unwrap();
    info.store.unwrap().problem
}

#[test]
#[ignore = "needs a store: make replicas"]
fn a_store_without_room_is_reported_and_ends() {
    let mut store = SharedService::start(1);
    let (replicas, [one, other]) = two(&store);
    assert!(permitted(&one, "ns/a", 4));
    store.etcd().set_out_of_space(true);
    let status = one.admit(confirm(vec![ask(wants("ns/b", "q", 1), 1)])).unwrap_err();
    // An API server whose etcd has no room does not say that nothing was written.
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert!(
        matches!(&*reason(&status), "STORE_FAILED" | "OUTCOME_UNKNOWN"),
        "{status:?}"
    );
    assert!(status.message().contains("database space exceeded"), "{status:?}");
    assert!(
        store_problem(&one).contains("database space exceeded"),
        "{}",
        store_problem(&one)
    );
    assert!(replicas[0].page("/metrics").1.contains("pumice_store_failing 1"));
    // It decides, and what was promised stays. A server that starts now reads the same.
    let filter = pb::FilterRequest {
        tasks: vec![hypothetical_task(&[("cpu", "1")])],
        ..Default::default()
    };
    one.filter(filter).unwrap();
    let (_third, third) = one_more(&store);
    for wire in [&other, &third] {
        until("the server has read what was promised", 20, || {
            (promised(&one) == promised(wire)).then_some(())
        });
    }
    until("the server that started reports it", 20, || {
        store_problem(&third).contains("database space exceeded").then_some(())
    });
    store.etcd().set_out_of_space(false);
    until("it promises again", 20, || {
        let reply = one.admit(confirm(vec![ask(wants("ns/b", "q", 1), 1)])).ok()?;
        reply.result?.items[0].permitted.then_some(())
    });
    for wire in [&one, &other, &third] {
        until("the store has no problem", 20, || {
            store_problem(wire).is_empty().then_some(())
        });
    }
    assert!(
        permitted(&other, "ns/b", 1),
        "what was refused, and granted later, is held once"
    );
    until("both hold the same", 20, || {
        (promised(&one) == promised(&other)).then_some(())
    });
    assert_eq!(promised(&one).len(), 2);
}

#[test]
#[ignore = "needs a store: make replicas"]
fn a_slow_disk_makes_promises_late_and_loses_none() {
    let mut store = SharedService::start_with_disks(1);
    let (_replicas, [one, other]) = two(&store);
    store.etcd().slow_disk(0, Duration::from_millis(100));
    assert!(permitted(&one, "ns/a", 4), "within three timeouts of the store");
    // Longer than a server waits for the store.
    store.etcd().slow_disk(0, Duration::from_secs(3));
    let late = one.admit(confirm(vec![ask(wants("ns/b", "q", 4), 1)]));
    if let Err(status) = &late {
        assert_eq!(&*reason(status), "OUTCOME_UNKNOWN", "{status:?}");
    }
    store.etcd().mend_disk(0);
    for wire in [&one, &other] {
        until("the retry is granted", 20, || {
            let reply = wire.admit(confirm(vec![ask(wants("ns/b", "q", 4), 1)])).ok()?;
            reply.result?.items[0].permitted.then_some(())
        });
    }
    assert!(!permitted(&other, "ns/c", 4), "the room is taken, once");
    assert_eq!(promised(&one).len(), 2);
}

/// When a job was confirmed, by the clock of the server that did it.
fn confirmed_at(wire: &BlockingClients, job: &str) -> i64 {
    let rows = wire.list_reservations(pb::ListReservationsRequest::default()).unwrap();
    let row = (rows.reservations.into_iter())
        .find(|row| row.job == job)
        .expect("the server that confirmed it knows it");
    row.confirm_time.unwrap().seconds
}

#[test]
#[ignore = "needs a store: make replicas"]
fn a_clock_that_jumps_ends_no_promise() {
    const DAY: i64 = 86_400;
    let store = SharedService::start(1);
    let (replicas, [one, other]) = two(&store);
    assert!(permitted(&one, "ns/before", 1));
    let now = confirmed_at(&one, "ns/before");
    for (job, ahead) in [("ns/ahead", 2 * DAY), ("ns/behind", -2 * DAY)] {
        replicas[0].clock.set_ahead(ahead);
        assert!(permitted(&one, job, 1));
        let moved = confirmed_at(&one, job) - now;
        assert!(
            (moved - ahead).abs() < DAY,
            "the server lives by the clock that jumped: {moved} s"
        );
        assert!(permitted(&other, &format!("{job}-other"), 1));
    }
    // Longer than the leases are looked at in.
    std::thread::sleep(Duration::from_millis(1_500));
    let all = [
        "ns/ahead",
        "ns/ahead-other",
        "ns/before",
        "ns/behind",
        "ns/behind-other",
    ];
    for wire in [&one, &other] {
        until("the server has read what was promised", 20, || {
            let rows = promised(wire);
            rows.iter().map(|(job, _)| &**job).eq(all).then_some(())
        });
    }
}
