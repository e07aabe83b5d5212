//! The store on a real API server: `make replicas STORE=kubernetes` builds one, and names it and its etcd by
//! `PUMICE_KUBE_APISERVER` and `PUMICE_ETCD`.

#![cfg(test)]
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "times are measured and printed"
)]

mod control_plane;
#[path = "../../etcd/tests/support/mod.rs"]
#[expect(dead_code, reason = "the tests of etcd use more of it")]
mod etcd;
mod steps;

use std::sync::Arc;
use std::time::{Duration, Instant};

use pumice_kubernetes_store::KubernetesStoreOptions;
use pumice_state::store::testing::conformance::{check_conformance, check_failed_appends, check_shared_log};
use pumice_state::store::{LogRead, Store as _, StoreWrite};

use control_plane::{ControlPlane, NAMESPACE};
use etcd::CuttableProxy;
use steps::{open, read_on, replica, until, write};

/// Way to cut a proxy.
type NetworkCut = fn(&CuttableProxy);

#[test]
#[ignore = "needs etcd and an API server: make replicas STORE=kubernetes"]
fn the_kubernetes_api_conforms() {
    let plane = ControlPlane::start(1);
    assert_eq!(plane.size(), 1);
    let options = KubernetesStoreOptions {
        slots: 64,
        snapshot_every: 32,
        ..plane.options()
    };
    check_conformance(|| Box::new(open(&options)));
    let shared = KubernetesStoreOptions {
        name: "shared".to_owned(),
        ..options
    };
    check_shared_log(|| {
        let mut store = open(&shared);
        store.load().unwrap();
        Box::new(store)
    });
    assert_eq!(plane.count("shared"), 66, "slots, the root, and a snapshot of one part");
}

#[test]
#[ignore = "needs etcd and an API server: make replicas STORE=kubernetes"]
fn failures_of_the_network_leave_an_entry_whole_or_not_at_all() {
    let plane = ControlPlane::start(1);
    let proxy = CuttableProxy::start(plane.port());
    let cuts: [(&str, NetworkCut); 2] = [("cut", CuttableProxy::cut), ("replies", CuttableProxy::cut_replies)];
    for (name, cut) in cuts {
        let options = KubernetesStoreOptions {
            timeout: Duration::from_millis(300),
            name: name.to_owned(),
            slots: 16,
            ..plane.options_at(proxy.port())
        };
        let mut store = open(&options);
        store.append_to_head(&write("made")).unwrap();
        check_failed_appends(&mut store, || cut(&proxy), || proxy.mend());
    }
    // A reply that is lost, and found out.
    let options = KubernetesStoreOptions {
        timeout: Duration::from_secs(1),
        slots: 4,
        snapshot_every: 2,
        ..plane.options_at(proxy.port())
    };
    let mut store = open(&options);
    let mut head = store.append_to_head(&write("made")).unwrap();
    for number in 0..10 {
        proxy.cut_replies();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(1_050));
                proxy.mend();
            });
            head = store.append(&head, &write(&format!("source-{number}"))).unwrap();
        });
    }
    assert_eq!(head.sequence, 11, "each entry is there once");
    let (state, at) = open(&plane.options()).load().unwrap();
    assert_eq!((state.sources.len(), at), (11, head));
}

#[test]
#[ignore = "needs etcd and an API server: make replicas STORE=kubernetes"]
fn news_come_at_once_long_entries_come_whole_and_a_replaced_log_is_refused() {
    let plane = ControlPlane::start(1);
    let options = KubernetesStoreOptions {
        slots: 64,
        snapshot_every: 32,
        ..plane.options()
    };
    open(&options).append_to_head(&write("made")).unwrap();
    let ((mut one, start, news), (mut other, ..)) = (replica(&options), replica(&options));
    let (sender, seen) = std::sync::mpsc::channel();
    news.wake_by(move || sender.send(()).unwrap());
    seen.recv_timeout(Duration::from_secs(10)).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    one.read_after(&start).unwrap();
    while seen.try_recv().is_ok() {}
    let began = Instant::now();
    let head = other.append(&start, &write("kube")).unwrap();
    println!("an entry is written after {:?}", began.elapsed());
    assert!(one.append(&start, &write("late")).unwrap_err().is_stale());
    assert_eq!(
        one.read_after(&start).unwrap(),
        LogRead::Entries(vec![write("kube")], head)
    );
    // Three megabytes of names in one entry.
    let long: Vec<StoreWrite> = (0..3_000)
        .flat_map(|number| write(&format!("{number}-{}", "x".repeat(1_000))))
        .collect();
    let mut head = one.append(&head, &long).unwrap();
    read_on(&mut other, &mut head);
    for number in 0..100 {
        head = other.append(&head, &write(&format!("source-{number}"))).unwrap();
    }
    let (state, at) = open(&options).load().unwrap();
    assert_eq!((state.sources.len(), at), (3_102, head));
    until("slots, the root and one snapshot are left", || {
        (plane.count("pumice") <= 64 + 1 + 5 + 2).then_some(())
    });
    plane
        .ask(
            &format!("/api/v1/namespaces/{NAMESPACE}/configmaps"),
            &["--request", "DELETE"],
        )
        .unwrap();
    let error = other.read_after(&head).unwrap_err();
    assert!(error.to_string().contains("not the store that was there"), "{error}");
}

#[test]
#[ignore = "needs etcd and an API server: make replicas STORE=kubernetes"]
fn partitions_and_restarts_of_the_api_server_are_reported_and_end() {
    let mut plane = ControlPlane::start(3);
    let proxy = CuttableProxy::start(plane.port());
    let options = KubernetesStoreOptions {
        timeout: Duration::from_millis(500),
        lease: Duration::from_secs(1),
        slots: 16,
        snapshot_every: 8,
        ..plane.options_at(proxy.port())
    };
    let (mut store, mut head, news) = replica(&options);
    head = store.append(&head, &write("before")).unwrap();
    proxy.cut();
    until("the partition is noticed", || news.problem());
    let asked = Instant::now();
    let error = store.append(&head, &write("meanwhile")).unwrap_err();
    assert!(
        asked.elapsed() < Duration::from_millis(100),
        "the writer is not held up"
    );
    assert!(error.to_string().contains("cannot be reached"), "{error}");
    std::thread::sleep(Duration::from_millis(1_500));
    proxy.mend();
    let mut appended = |what: &str, name: &str| {
        let began = Instant::now();
        until(what, || match store.append(&head, &write(name)) {
            Ok(after) => {
                head = after;
                Some(())
            }
            Err(_) => match store.read_after(&head).ok()? {
                LogRead::Entries(_, at) | LogRead::Content(_, at) | LogRead::Unacknowledged(at) => {
                    head = at;
                    None
                }
            },
        });
        began.elapsed()
    };
    appended("it appends again", "after");
    plane.kill();
    until("the API server is missed", || news.problem());
    plane.restart();
    appended("it appends after a restart of the API server", "restarted");
    let mut longest = Duration::ZERO;
    for member in 0..3 {
        plane.etcd().kill(member);
        longest = longest.max(appended("it appends without a member", &format!("member-{member}")));
        plane.etcd().restart(member);
        until("the member is back", || plane.etcd().is_healthy(member).then_some(()));
    }
    println!("longest time without an entry after a member of etcd was killed: {longest:?}");
    let (state, _) = open(&plane.options()).load().unwrap();
    let sources = ["after", "before", "member-0", "member-1", "member-2", "restarted"];
    assert_eq!(state.sources, sources.map(Arc::from));
}

#[test]
#[ignore = "needs etcd and an API server: make replicas STORE=kubernetes"]
fn an_account_without_the_rights_learns_which() {
    let plane = ControlPlane::start(1);
    let options = KubernetesStoreOptions {
        namespace: Some("kube-system".to_owned()),
        ..plane.options()
    };
    let error = open(&options).load().unwrap_err().to_string();
    assert!(error.contains("the log kube-system/pumice-log"), "{error}");
    assert!(
        error.contains("let the account get, list, watch, create, update and delete ConfigMaps"),
        "{error}"
    );
}
