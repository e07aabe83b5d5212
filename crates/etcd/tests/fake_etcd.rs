//! The store on an etcd of this process: problems of its replies, damage of the log, and silence.

#![cfg(test)]
#![expect(clippy::disallowed_methods, reason = "times are waited for")]

mod fake;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pumice_etcd::{EtcdOptions, EtcdStore};
use pumice_state::store::conformance::{check_conformance, check_failed_appends, check_shared_log};
use pumice_state::store::{LogHead, LogNews, LogRead, Store as _, StoreError, StoreWrite};

use fake::{CallProblem, FakeEtcd, Lie, ProblemPlan};

fn open(options: &EtcdOptions) -> EtcdStore {
    EtcdStore::new(options.clone()).unwrap()
}

fn write(name: &str) -> Vec<StoreWrite> {
    vec![StoreWrite::Source {
        name: name.into(),
        is_awaited: true,
    }]
}

/// Tries until it succeeds. If it never does, the store is wrong, however slow the machine.
fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_mins(1);
    loop {
        if let Some(done) = attempt() {
            return done;
        }
        assert!(Instant::now() < end, "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn read_on(store: &mut EtcdStore, head: &mut LogHead) {
    until("the log can be read", || match store.read_after(head).ok()? {
        LogRead::Entries(_, at) | LogRead::Content(_, at) | LogRead::Unacknowledged(at) => {
            *head = at;
            Some(())
        }
    });
}

/// Plan in which each transaction has a problem, while it is on.
fn transactions(problem: CallProblem) -> (ProblemPlan, Arc<AtomicBool>) {
    let is_on = Arc::new(AtomicBool::new(false));
    let shown = Arc::clone(&is_on);
    let plan: ProblemPlan = Arc::new(move |call| {
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
    let lies = Lie::ALL
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
    for lie in Lie::ALL {
        let (etcd, (plan, is_on)) = (FakeEtcd::default(), transactions(CallProblem::Lie(lie)));
        let mut store = open(&etcd.options_with(plan));
        let mut head = store.append_to_head(&write("made")).unwrap();
        is_on.store(true, Ordering::SeqCst);
        let error = store.append(&head, &write("lost")).unwrap_err();
        assert!(matches!(error, StoreError::Unknown { .. }), "{lie:?}: {error}");
        let mut other = open(&etcd.options());
        let (_, at) = other.load().unwrap();
        assert_eq!(at, head, "{lie:?}: it is in no log");
        let theirs = other.append(&at, &write("theirs")).unwrap();
        is_on.store(false, Ordering::SeqCst);
        read_on(&mut store, &mut head);
        assert_eq!(head, theirs);
    }
}

#[test]
fn a_write_whose_responses_are_lost_is_found_or_said_to_be_unknown() {
    // Transactions lose their replies; reads do not.
    for problem in [
        CallProblem::LoseReply,
        CallProblem::HangAfter,
        CallProblem::LieAfter(Lie::Empty),
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
    let plan: ProblemPlan = Arc::new(move |_| {
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
fn a_refusal_after_a_lost_response_does_not_say_that_nothing_was_written() {
    let (etcd, turn) = (FakeEtcd::default(), Arc::new(AtomicBool::new(false)));
    let is_on = Arc::new(AtomicBool::new(false));
    let (first, shown) = (Arc::clone(&turn), Arc::clone(&is_on));
    let plan: ProblemPlan = Arc::new(move |call| match (shown.load(Ordering::SeqCst), call) {
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
    let mut store = open(options);
    let (_, head) = store.load().unwrap();
    let news: Arc<LogNews> = Arc::default();
    assert!(store.follow(&news));
    (store, head, news)
}
