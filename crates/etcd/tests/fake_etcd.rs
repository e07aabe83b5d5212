//! The store on an etcd of this process: problems of its replies, damage of the log, and silence.

#![cfg(test)]

mod fake;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pumice_etcd::{EtcdOptions, EtcdStore};
use pumice_state::store::testing::conformance::{
    check_conformance, check_failed_appends, check_shared_log, check_unproved_append,
};
use pumice_state::store::testing::steps::{followed, read_on, until, write};
use pumice_state::store::{LogHead, LogNews, Store as _, StoreError};

use fake::{CallPlan, CallProblem, EtcdLie, FakeEtcd};

fn open(options: &EtcdOptions) -> EtcdStore {
    EtcdStore::new(options.clone()).unwrap()
}

/// Plan in which each transaction has a problem, while it is on.
fn transactions(problem: CallProblem) -> (CallPlan, Arc<AtomicBool>) {
    let is_on = Arc::new(AtomicBool::new(false));
    let shown = Arc::clone(&is_on);
    let plan: CallPlan = Arc::new(move |call| {
        if shown.load(Ordering::SeqCst) && call == "Txn" {
            problem
        } else {
            CallProblem::None
        }
    });
    (plan, is_on)
}

#[test]
fn the_fake_conforms() {
    let etcd = FakeEtcd::default();
    check_conformance(|| Box::new(open(&etcd.options())));
    let shared = EtcdOptions {
        prefix: "/shared/".to_owned(),
        ..etcd.options()
    };
    check_shared_log(|| {
        let mut store = open(&shared);
        store.load().unwrap();
        Box::new(store)
    });
}

#[test]
fn appends_that_fail_leave_an_entry_whole_or_not_at_all() {
    let lies = EtcdLie::ALL
        .into_iter()
        .flat_map(|lie| [CallProblem::Lie(lie), CallProblem::LieAfter(lie)]);
    let others = [
        CallProblem::LoseRequest,
        CallProblem::LoseReply,
        CallProblem::HangBefore,
        CallProblem::HangAfter,
        CallProblem::NoRoom,
        CallProblem::Late(100),
    ];
    for problem in others.into_iter().chain(lies) {
        let (etcd, (plan, is_on)) = (FakeEtcd::default(), transactions(problem));
        let mut store = open(&etcd.options_with(plan));
        store.append_to_head(&write("made")).unwrap();
        let set = |on: bool| is_on.store(on, Ordering::SeqCst);
        check_failed_appends(&mut store, || set(true), || set(false));
    }
}

#[test]
fn a_response_that_does_not_prove_the_write_acknowledges_nothing() {
    for lie in EtcdLie::ALL {
        let (etcd, (plan, is_on)) = (FakeEtcd::default(), transactions(CallProblem::Lie(lie)));
        let [mut store, mut other] = [etcd.options_with(plan), etcd.options()].map(|options| open(&options));
        let set = |on: bool| is_on.store(on, Ordering::SeqCst);
        check_unproved_append(&mut store, &mut other, set, &format!("{lie:?}"));
    }
}

#[test]
fn a_write_whose_responses_are_lost_is_found_or_said_to_be_unknown() {
    // Transactions lose their replies; reads do not.
    for problem in [
        CallProblem::LoseReply,
        CallProblem::HangAfter,
        CallProblem::LieAfter(EtcdLie::Empty),
    ] {
        let (etcd, (plan, is_on)) = (FakeEtcd::default(), transactions(problem));
        let mut store = open(&etcd.options_with(plan));
        let head = store.append_to_head(&write("made")).unwrap();
        is_on.store(true, Ordering::SeqCst);
        let head = store.append(&head, &write("there")).unwrap();
        assert_eq!(open(&etcd.options()).load().unwrap().1, head, "{problem:?}");
    }
    // Everything does.
    let (etcd, is_cut) = (FakeEtcd::default(), Arc::new(AtomicBool::new(false)));
    let shown = Arc::clone(&is_cut);
    let plan: CallPlan = Arc::new(move |_| {
        if shown.load(Ordering::SeqCst) {
            CallProblem::LoseReply
        } else {
            CallProblem::None
        }
    });
    let mut store = open(&etcd.options_with(plan));
    let mut head = store.append_to_head(&write("made")).unwrap();
    is_cut.store(true, Ordering::SeqCst);
    let error = store.append(&head, &write("there")).unwrap_err();
    assert!(matches!(error, StoreError::Unknown { .. }), "{error}");
    is_cut.store(false, Ordering::SeqCst);
    read_on(&mut store, &mut head);
    assert!(store.content().unwrap().sources.contains(&"there".into()));
}

#[test]
fn a_rejection_after_a_lost_response_does_not_say_that_nothing_was_written() {
    let (etcd, turn) = (FakeEtcd::default(), Arc::new(AtomicBool::new(false)));
    let is_on = Arc::new(AtomicBool::new(false));
    let (first, shown) = (Arc::clone(&turn), Arc::clone(&is_on));
    let plan: CallPlan = Arc::new(move |call| match (shown.load(Ordering::SeqCst), call) {
        (true, "Txn") if !first.swap(true, Ordering::SeqCst) => CallProblem::LoseReply,
        (true, _) => CallProblem::NoRoom,
        (false, _) => CallProblem::None,
    });
    let mut store = open(&etcd.options_with(plan));
    let head = store.append_to_head(&write("made")).unwrap();
    is_on.store(true, Ordering::SeqCst);
    let error = store.append(&head, &write("there")).unwrap_err();
    assert!(matches!(error, StoreError::Unknown { .. }), "{error}");
    assert_eq!(open(&etcd.options()).load().unwrap().1.sequence, 2, "it is there");
}

/// Store that is loaded and followed, and its news.
fn replica(options: &EtcdOptions) -> (EtcdStore, LogHead, Arc<LogNews>) {
    followed(open(options))
}

/// Log with some entries, and a server that follows it.
fn followed_log(etcd: &FakeEtcd) -> (EtcdStore, LogHead, Arc<LogNews>) {
    let (mut store, mut head, news) = replica(&etcd.options());
    for number in 0..6 {
        head = store.append(&head, &write(&format!("source-{number}"))).unwrap();
    }
    (store, head, news)
}

#[test]
fn keys_that_are_not_entries_do_not_stop_the_log() {
    let etcd = FakeEtcd::default();
    let (mut store, mut head, news) = followed_log(&etcd);
    let (mut other, mut at, _) = replica(&etcd.options());
    for foreign in [
        "b/head",
        "b/log/0000000000000001",
        "0000000000000003x",
        "4d",
        "+000000000000004",
    ] {
        etcd.put(&format!("/pumice/log/{foreign}"), b"foreign");
    }
    for number in 0..80 {
        head = store.append(&head, &write(&format!("more-{number}"))).unwrap();
    }
    read_on(&mut other, &mut at);
    assert_eq!((at, open(&etcd.options()).load().unwrap().1), (head, head));
    assert_eq!(news.damage(), None);
    assert_eq!(etcd.value("/pumice/log/b/head").unwrap(), b"foreign");
}

/// Change of a log by another hand, and what is reported of it.
type KeyHarm = (&'static str, fn(&FakeEtcd));

/// Harm to a log of six entries, each with what is said of it.
const HARM: [KeyHarm; 7] = [
    ("/pumice/head was deleted", |etcd| etcd.remove("/pumice/head")),
    ("its key /pumice/head: the checksum is wrong", |etcd| {
        etcd.put("/pumice/head", b"garbage");
    }),
    ("0006) was deleted", |etcd| etcd.remove("/pumice/log/0000000000000006")),
    ("0003) was deleted", |etcd| etcd.remove("/pumice/log/0000000000000003")),
    ("0006) was written again", |etcd| {
        etcd.put("/pumice/log/0000000000000006", b"garbage");
    }),
    ("0003) was written again", |etcd| {
        etcd.put("/pumice/log/0000000000000003", b"garbage");
    }),
    ("0002) was written again", |etcd| {
        let other = etcd.value("/pumice/log/0000000000000003").unwrap();
        etcd.put("/pumice/log/0000000000000002", &other);
    }),
];

#[test]
fn a_server_that_has_the_newest_entry_mends_the_log_before_it_acknowledges_more() {
    for (said, harm) in HARM {
        let etcd = FakeEtcd::default();
        let (mut store, mut head, news) = followed_log(&etcd);
        let mut late = open(&etcd.options());
        let (_, mut late_at) = late.load().unwrap();
        harm(&etcd);
        let damage = until("the damage is told", || news.damage());
        assert!(damage.contains(said), "{said}: {damage}");
        let error = store.append(&head, &write("too early")).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
        read_on(&mut store, &mut head);
        assert_eq!((news.damage(), head.sequence), (None, 6), "{said}");
        for number in 0..3 {
            head = store.append(&head, &write(&format!("more-{number}"))).unwrap();
        }
        let (state, at) = open(&etcd.options()).load().unwrap();
        assert_eq!((state.sources.len(), at), (9, head), "{said}");
        read_on(&mut late, &mut late_at);
        assert_eq!(late_at, head, "{said}");
    }
}

#[test]
fn without_a_server_the_harm_is_named_and_repaired_as_far_as_the_log_proves() {
    for (number, (said, harm)) in HARM.into_iter().enumerate() {
        let etcd = FakeEtcd::default();
        let (store, head, _) = followed_log(&etcd);
        drop(store);
        harm(&etcd);
        let error = open(&etcd.options()).load().unwrap_err().to_string();
        assert!(
            error.contains("/pumice/") || error.contains("appended onto"),
            "{said}: {error}"
        );
        assert!(error.contains("--repair") && error.contains("etcd_prefix"), "{error}");
        let repaired = open(&etcd.options()).repair(false);
        match number {
            // The head can be told from the entries.
            0 | 1 => {
                assert!(!repaired.unwrap().is_empty());
                assert_eq!(open(&etcd.options()).load().unwrap().1, head);
            }
            _ => {
                let error = repaired.unwrap_err().to_string();
                if number < 6 {
                    assert!(error.contains("--accept-loss"), "{error}");
                    open(&etcd.options()).repair(true).unwrap();
                    let mut store = open(&etcd.options());
                    let (_, at) = store.load().unwrap();
                    assert!(at.sequence < 6);
                    store.append(&at, &write("on")).unwrap();
                }
            }
        }
        assert!(open(&etcd.options()).repair(false).is_ok() || number == 6);
    }
}

#[test]
fn what_nothing_proves_is_not_mended() {
    let etcd = FakeEtcd::default();
    let (mut store, head, news) = followed_log(&etcd);
    etcd.remove("/pumice/log/0000000000000006");
    etcd.put("/pumice/head", b"garbage");
    until("the damage is told", || news.damage());
    let error = store.read_after(&head).unwrap_err().to_string();
    assert!(error.contains("/pumice/head"), "{error}");
    for _ in 0..3 {
        store.append(&head, &write("nowhere")).unwrap_err();
    }
    assert!(news.write_problem().is_some());
}

#[test]
fn a_silent_watch_does_not_keep_entries_from_a_server() {
    let etcd = FakeEtcd::default();
    open(&etcd.options()).append_to_head(&write("made")).unwrap();
    let (mut store, mut head, news) = replica(&etcd.options());
    until("it is followed", || news.unconfirmed().is_none().then_some(()));
    read_on(&mut store, &mut head);
    std::thread::sleep(Duration::from_millis(100));
    let (mut other, at, _) = replica(&etcd.options());
    read_on(&mut store, &mut head);
    etcd.silence_watches(true);
    let theirs = other.append(&at, &write("theirs")).unwrap();
    // Nobody reads here. A server does, with the first of these reasons.
    let (_, doubt) = until("the head and the other server show it", || news.unconfirmed());
    assert!(
        doubt.contains("entry 2 is there, and this server has applied entry 1"),
        "{doubt}"
    );
    read_on(&mut store, &mut head);
    assert_eq!(head, theirs);
    until("it is confirmed", || news.unconfirmed().is_none().then_some(()));
}

#[test]
fn a_server_that_cannot_confirm_that_it_is_current_says_since_when() {
    let (etcd, is_cut) = (FakeEtcd::default(), Arc::new(AtomicBool::new(false)));
    let shown = Arc::clone(&is_cut);
    // Reads of the head and of the servers repeat an old reply; renewals work.
    let plan: CallPlan = Arc::new(move |call| {
        if shown.load(Ordering::SeqCst) && call == "Txn" {
            CallProblem::Lie(EtcdLie::Repeated)
        } else {
            CallProblem::None
        }
    });
    let (mut store, head, news) = replica(&etcd.options_with(plan));
    store.append(&head, &write("made")).unwrap();
    is_cut.store(true, Ordering::SeqCst);
    let (mut other, at, _) = replica(&etcd.options());
    other.append(&at, &write("theirs")).unwrap();
    let (since, _) = until("it says so", || news.unconfirmed());
    assert!(since > Duration::from_secs(2), "{since:?}");
    is_cut.store(false, Ordering::SeqCst);
    until("it confirms again", || {
        let mut head = LogHead::default();
        read_on(&mut store, &mut head);
        news.unconfirmed().is_none().then_some(())
    });
}
