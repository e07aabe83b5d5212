//! The store on a real etcd: `make replicas` builds one and names it by `PUMICE_ETCD`.

#![cfg(test)]
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "times are measured and printed"
)]

#[expect(dead_code, reason = "the tests of replicas use more of it")]
mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use pumice_etcd::{EtcdOptions, EtcdStore};
use pumice_state::store::testing::conformance::{check_conformance, check_failed_appends, check_shared_log};
use pumice_state::store::testing::steps::{followed, write};
use pumice_state::store::{LogHead, LogNews, LogRead, Store, StoreError, StoreWrite};

use support::{CuttableProxy, EtcdCluster};

/// Way to cut a proxy.
type ProxyCut = fn(&CuttableProxy);

fn open(options: &EtcdOptions) -> EtcdStore {
    EtcdStore::new(options.clone()).unwrap()
}

/// Store that is loaded and followed, and its news.
fn replica(options: &EtcdOptions) -> (EtcdStore, LogHead, Arc<LogNews>) {
    followed(open(options))
}

/// Tries until it succeeds, for ten seconds.
fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(done) = attempt() {
            return done;
        }
        assert!(Instant::now() < end, "{what}: not within ten seconds");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Appends onto whatever the log has come to.
fn append_anyhow(store: &mut EtcdStore, head: &mut LogHead, writes: &[StoreWrite]) -> Result<(), StoreError> {
    match store.append(head, writes) {
        Ok(after) => {
            *head = after;
            Ok(())
        }
        Err(error) => {
            match store.read_after(head)? {
                LogRead::Entries(_, at) | LogRead::Content(_, at) | LogRead::Unacknowledged(at) => *head = at,
            }
            Err(error)
        }
    }
}

#[test]
#[ignore = "needs etcd: make replicas"]
fn etcd_conforms() {
    let cluster = EtcdCluster::start(1);
    assert_eq!(cluster.size(), 1);
    let options = cluster.options();
    // Nobody follows: each store is the only one.
    check_conformance(|| Box::new(open(&options)));
    let others = EtcdOptions {
        prefix: "/others".to_owned(),
        snapshot_every: 100,
        ..options
    };
    check_shared_log(|| {
        let mut store = open(&others);
        store.load().unwrap();
        Box::new(store)
    });
}

#[test]
#[ignore = "needs etcd: make replicas"]
fn appends_that_fail_leave_an_entry_whole_or_not_at_all() {
    let cluster = EtcdCluster::start(1);
    let proxy = CuttableProxy::start(cluster.port(0));
    let cuts: [(&str, ProxyCut); 2] = [("/cut", CuttableProxy::cut), ("/replies", CuttableProxy::cut_replies)];
    for (prefix, cut) in cuts {
        let options = EtcdOptions {
            endpoints: vec![format!("http://127.0.0.1:{}", proxy.port())],
            timeout: Duration::from_millis(150),
            prefix: prefix.to_owned(),
            ..cluster.options()
        };
        check_failed_appends(&mut open(&options), || cut(&proxy), || proxy.mend());
    }
}

#[test]
#[ignore = "needs etcd: make replicas"]
fn entries_that_a_snapshot_covers_go_and_long_ones_come_whole() {
    let cluster = EtcdCluster::start(1);
    let options = EtcdOptions {
        snapshot_every: 50,
        ..cluster.options()
    };
    let (mut store, mut head, _news) = replica(&options);
    for number in 0..120 {
        head = store.append(&head, &write(&format!("source-{number}"))).unwrap();
    }
    // Three megabytes of names in one entry.
    let long: Vec<StoreWrite> = (0..3_000)
        .flat_map(|number| write(&format!("{number}-{}", "x".repeat(1_000))))
        .collect();
    head = store.append(&head, &long).unwrap();
    let (state, at) = open(&options).load().unwrap();
    assert_eq!((state.sources.len(), at), (3_120, head));
    // The follower says how far it has come; then the entries before the snapshot go.
    until("the first entries are gone", || {
        head = store.append(&head, &write("again")).unwrap();
        std::thread::sleep(Duration::from_millis(10));
        cluster.count(&options, "log/").lt(&101).then_some(())
    });
    assert_eq!(open(&options).load().unwrap().1, head);
}

#[test]
#[ignore = "needs etcd: make replicas"]
fn news_come_at_once_and_a_late_entry_is_refused() {
    let cluster = EtcdCluster::start(1);
    let options = cluster.options();
    let ((mut one, start, news), (mut other, ..)) = (replica(&options), replica(&options));
    let seen = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counted = Arc::clone(&seen);
    news.wake_by(move || {
        counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    });
    let head = other.append(&start, &write("kube")).unwrap();
    until("the other server's entry is news", || {
        (seen.load(std::sync::atomic::Ordering::SeqCst) > 0).then_some(())
    });
    assert!(one.append(&start, &write("late")).unwrap_err().is_stale());
    assert_eq!(
        one.read_after(&start).unwrap(),
        LogRead::Entries(vec![write("kube")], head)
    );
    one.append(&head, &write("now")).unwrap();
}

#[test]
#[ignore = "needs etcd: make replicas"]
fn a_reply_that_is_lost_is_found_out() {
    let cluster = EtcdCluster::start(1);
    let proxy = CuttableProxy::start(cluster.port(0));
    let options = EtcdOptions {
        endpoints: vec![format!("http://127.0.0.1:{}", proxy.port())],
        timeout: Duration::from_millis(300),
        ..cluster.options()
    };
    let (mut store, mut head, news) = replica(&options);
    for number in 0..20 {
        until("the follower has a connection", || {
            news.problem().is_none().then_some(())
        });
        // Replies of etcd do not come through for a while; requests do.
        proxy.cut_replies();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(350));
                proxy.mend();
            });
            head = store.append(&head, &write(&format!("source-{number}"))).unwrap();
        });
    }
    assert_eq!(head.sequence, 20, "each entry is there once");
    let (state, at) = open(&cluster.options()).load().unwrap();
    assert_eq!((state.sources.len(), at), (20, head));
}

#[test]
#[ignore = "needs etcd: make replicas"]
fn a_partition_is_reported_and_ends() {
    let cluster = EtcdCluster::start(1);
    let proxy = CuttableProxy::start(cluster.port(0));
    let options = EtcdOptions {
        endpoints: vec![format!("http://127.0.0.1:{}", proxy.port())],
        timeout: Duration::from_millis(200),
        lease: Duration::from_secs(1),
        ..cluster.options()
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
    // Longer than the lease.
    std::thread::sleep(Duration::from_millis(2_500));
    proxy.mend();
    until("the log is followed again", || news.problem().is_none().then_some(()));
    until("it appends again", || {
        append_anyhow(&mut store, &mut head, &write("after")).ok()
    });
    let (state, _) = open(&cluster.options()).load().unwrap();
    assert_eq!(state.sources, ["after", "before"].map(Arc::from));
}

#[test]
#[ignore = "needs etcd: make replicas"]
fn a_server_whose_lease_ended_reads_on_before_it_appends() {
    let cluster = EtcdCluster::start(1);
    let options = EtcdOptions {
        lease: Duration::from_secs(30),
        ..cluster.options()
    };
    let (mut store, mut head, _news) = replica(&options);
    head = store.append(&head, &write("before")).unwrap();
    // The key of a server is gone after a sleep that was longer than its lease.
    cluster.remove(&options, "replicas/");
    assert!(store.append(&head, &write("asleep")).unwrap_err().is_stale());
    assert_eq!(store.head().unwrap(), head, "nothing was written");
    until("it has a lease again", || {
        append_anyhow(&mut store, &mut head, &write("awake")).ok()
    });
}

#[test]
#[ignore = "needs etcd: make replicas"]
fn a_member_that_dies_costs_less_than_a_second() {
    let mut cluster = EtcdCluster::start(3);
    let options = EtcdOptions {
        timeout: Duration::from_millis(500),
        ..cluster.options()
    };
    let (mut store, mut head, news) = replica(&options);
    let mut longest = Duration::ZERO;
    for round in 0..3 {
        head = store.append(&head, &write(&format!("before-{round}"))).unwrap();
        cluster.kill(round);
        let began = Instant::now();
        until("another member takes over", || {
            append_anyhow(&mut store, &mut head, &write(&format!("after-{round}"))).ok()
        });
        longest = longest.max(began.elapsed());
        cluster.restart(round);
        until("the member is back", || cluster.is_healthy(round).then_some(()));
        until("the log is followed", || news.problem().is_none().then_some(()));
    }
    println!("longest time without an entry after a member was killed: {longest:?}");
    let (state, at) = open(&cluster.options()).load().unwrap();
    assert_eq!((state.sources.len(), at), (6, head));
}

#[test]
#[ignore = "needs etcd: make replicas"]
fn a_user_and_tls_are_asked_for() {
    let signed = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let cluster = EtcdCluster::start_with_tls(signed.cert.pem(), signed.signing_key.serialize_pem());
    cluster.demand_user("pumice", "secret");
    let options = EtcdOptions {
        user: Some(("pumice".to_owned(), "secret".to_owned())),
        ..cluster.options()
    };
    let (mut store, head, _news) = replica(&options);
    store.append(&head, &write("kube")).unwrap();
    let nobody = EtcdOptions {
        user: None,
        ..options.clone()
    };
    let error = open(&nobody).load().unwrap_err().to_string();
    assert!(error.contains("user name is empty"), "{error}");
    let wrong = EtcdOptions {
        user: Some(("pumice".to_owned(), "wrong".to_owned())),
        ..options.clone()
    };
    let error = open(&wrong).load().unwrap_err().to_string();
    assert!(error.contains("authentication failed"), "{error}");
    let plain = EtcdOptions {
        endpoints: vec![options.endpoints[0].replace("https", "http")],
        tls: None,
        ..options
    };
    assert!(open(&plain).load().is_err());
}

#[test]
#[ignore = "needs etcd: make replicas"]
fn a_log_that_was_replaced_is_refused() {
    let cluster = EtcdCluster::start(1);
    let options = cluster.options();
    let (mut store, mut head, _news) = replica(&options);
    head = store.append(&head, &write("kube")).unwrap();
    cluster.remove(&options, "");
    let error = store.read_after(&head).unwrap_err();
    assert!(error.to_string().contains("/pumice/head is missing"), "{error}");
}
