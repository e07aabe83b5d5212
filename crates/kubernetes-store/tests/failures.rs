//! Problems of an API server of this process, and what becomes of the entries that they hit.

#![cfg(test)]
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "times are waited for, and threads share what a test counts"
)]

mod steps;
#[expect(dead_code, reason = "the tests without problems use more of it")]
mod support;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::Method;
use pumice_kubernetes_store::{KubernetesStore, KubernetesStoreOptions};
use pumice_state::store::testing::conformance::{check_failed_appends, check_unproved_append};
use pumice_state::store::testing::problem_scripts::ScriptDice;
use pumice_state::store::{Store as _, StoreError};

use steps::{open, read_on, replica, until, write};
use support::{FakeObjectApi, Lie, ProblemPlan, RequestProblem, is_slot};

/// Store whose requests have little time.
fn hurried(api: &FakeObjectApi, plan: ProblemPlan, milliseconds: u64) -> KubernetesStore {
    open(&KubernetesStoreOptions {
        timeout: Duration::from_millis(milliseconds),
        ..api.options_with(plan)
    })
}

#[test]
fn appends_that_fail_leave_an_entry_whole_or_not_at_all() {
    for problem in [
        RequestProblem::LoseRequest,
        RequestProblem::LoseReply,
        RequestProblem::HangAfter,
        RequestProblem::HangBefore,
        RequestProblem::StatusAfter(500),
        RequestProblem::StatusAfter(504),
        RequestProblem::Status(429),
        RequestProblem::Status(503),
        RequestProblem::Status(403),
    ] {
        let (api, is_broken) = (FakeObjectApi::default(), Arc::new(AtomicBool::new(false)));
        let shown = Arc::clone(&is_broken);
        let plan: ProblemPlan = Arc::new(move |_, _| {
            if shown.load(Ordering::SeqCst) {
                problem
            } else {
                RequestProblem::None
            }
        });
        let mut store = hurried(&api, plan, 400);
        store.append_to_head(&write("made")).unwrap();
        let set = |broken| move |is_broken: &AtomicBool| is_broken.store(broken, Ordering::SeqCst);
        check_failed_appends(&mut store, || set(true)(&is_broken), || set(false)(&is_broken));
    }
}

#[test]
fn a_reply_that_is_lost_is_found_out_on_every_lap() {
    let api = FakeObjectApi::default();
    let turn = Arc::new(AtomicU64::new(0));
    let plan: ProblemPlan = Arc::new(move |method, path| {
        let problems = [
            RequestProblem::LoseReply,
            RequestProblem::LoseRequest,
            RequestProblem::StatusAfter(504),
            RequestProblem::None,
            RequestProblem::HangAfter,
        ];
        // Each update of a slot is sent until its reply comes through.
        if *method == Method::PUT && is_slot(path) {
            problems[usize::try_from(turn.fetch_add(1, Ordering::SeqCst)).unwrap() % problems.len()]
        } else {
            RequestProblem::None
        }
    });
    let mut store = hurried(&api, plan, 200);
    let (_, mut head) = store.load().unwrap();
    for number in 0..40 {
        head = store.append(&head, &write(&format!("source-{number}"))).unwrap();
    }
    assert_eq!(head.sequence, 40, "each entry is there once");
    let (state, at) = open(&api.options()).load().unwrap();
    assert_eq!((state.sources.len(), at), (40, head));
}

#[test]
fn an_entry_whose_outcome_is_not_known_is_not_called_late() {
    let (api, is_cut) = (FakeObjectApi::default(), Arc::new(AtomicBool::new(false)));
    let shown = Arc::clone(&is_cut);
    let plan: ProblemPlan = Arc::new(move |method, path| {
        let is_entry = *method == Method::PUT && is_slot(path);
        match (shown.load(Ordering::SeqCst), is_entry) {
            (true, true) => RequestProblem::LoseReply,
            (true, false) => RequestProblem::LoseRequest,
            (false, _) => RequestProblem::None,
        }
    });
    let small = |options| KubernetesStoreOptions {
        slots: 2,
        snapshot_every: 1,
        timeout: Duration::from_secs(2),
        ..options
    };
    let (mut one, mut other) = (open(&small(api.options_with(plan))), open(&small(api.options())));
    let mut head = one.append_to_head(&write("first")).unwrap();
    is_cut.store(true, Ordering::SeqCst);
    let appending = std::thread::spawn(move || {
        let appended = one.append(&head, &write("lapped"));
        (one, appended)
    });
    // The entry is there, and entries of the next laps take its place before its author hears of it.
    let mut seen = other.load().unwrap().1;
    until("the entry is there", || {
        read_on(&mut other, &mut seen);
        (seen.sequence == 2).then_some(())
    });
    for number in 0..4 {
        seen = other.append(&seen, &write(&format!("lap-{number}"))).unwrap();
    }
    is_cut.store(false, Ordering::SeqCst);
    let (mut one, appended) = appending.join().unwrap();
    let error = appended.unwrap_err();
    assert!(matches!(error, StoreError::Unknown { .. }), "{error}");
    read_on(&mut one, &mut head);
    assert_eq!(head, seen);
    assert!(one.content().unwrap().sources.contains(&"lapped".into()));
}

#[test]
fn a_busy_api_server_is_given_time() {
    let (api, asked) = (FakeObjectApi::default(), Arc::new(AtomicU64::new(0)));
    let counted = Arc::clone(&asked);
    let plan: ProblemPlan = Arc::new(move |method, path| {
        let is_entry = *method == Method::PUT && is_slot(path);
        if is_entry && counted.fetch_add(1, Ordering::SeqCst) < 2 {
            RequestProblem::Status(429)
        } else {
            RequestProblem::None
        }
    });
    let options = KubernetesStoreOptions {
        timeout: Duration::from_secs(2),
        ..api.options_with(plan)
    };
    let began = Instant::now();
    open(&options).append_to_head(&write("kube")).unwrap();
    assert!(began.elapsed() >= Duration::from_secs(2), "a second each");
    assert_eq!(asked.load(Ordering::SeqCst), 3);
}

#[test]
fn a_partition_is_reported_and_ends() {
    let (api, is_cut) = (FakeObjectApi::default(), Arc::new(AtomicBool::new(false)));
    let shown = Arc::clone(&is_cut);
    let plan: ProblemPlan = Arc::new(move |_, _| {
        if shown.load(Ordering::SeqCst) {
            RequestProblem::HangBefore
        } else {
            RequestProblem::None
        }
    });
    let (mut store, mut head, news) = replica(&api.options_with(plan));
    head = store.append(&head, &write("before")).unwrap();
    is_cut.store(true, Ordering::SeqCst);
    until("the partition is noticed", || news.problem());
    let asked = Instant::now();
    let error = store.append(&head, &write("meanwhile")).unwrap_err();
    assert!(
        asked.elapsed() < Duration::from_millis(100),
        "the writer is not held up"
    );
    assert!(error.to_string().contains("cannot be reached"), "{error}");
    is_cut.store(false, Ordering::SeqCst);
    until("the log is followed again", || news.problem().is_none().then_some(()));
    read_on(&mut store, &mut head);
    store.append(&head, &write("after")).unwrap();
}

/// Plan in which each update of a slot has a problem, while it is on.
fn slot_updates(problem: RequestProblem) -> (ProblemPlan, Arc<AtomicBool>) {
    let is_on = Arc::new(AtomicBool::new(false));
    let shown = Arc::clone(&is_on);
    let plan: ProblemPlan = Arc::new(move |method, path| {
        if shown.load(Ordering::SeqCst) && *method == Method::PUT && is_slot(path) {
            problem
        } else {
            RequestProblem::None
        }
    });
    (plan, is_on)
}

#[test]
fn a_response_that_does_not_prove_the_write_acknowledges_nothing() {
    for lie in Lie::ALL {
        let (api, (plan, is_on)) = (FakeObjectApi::default(), slot_updates(RequestProblem::Lie(lie)));
        let (mut store, mut other) = (hurried(&api, plan, 400), open(&api.options()));
        let set = |on: bool| is_on.store(on, Ordering::SeqCst);
        check_unproved_append(&mut store, &mut other, set, &format!("{lie:?}"));
    }
}

#[test]
fn a_write_that_was_carried_out_is_found_out_whatever_the_response_says() {
    let lies = Lie::ALL.map(RequestProblem::LieAfter);
    for problem in lies
        .into_iter()
        .chain([409, 404, 422, 500].map(RequestProblem::StatusAfter))
    {
        let (api, (plan, is_on)) = (FakeObjectApi::default(), slot_updates(problem));
        let mut store = open(&api.options_with(plan));
        let mut head = store.append_to_head(&write("made")).unwrap();
        is_on.store(true, Ordering::SeqCst);
        for number in 0..3 {
            head = store.append(&head, &write(&format!("{number}"))).unwrap();
        }
        assert_eq!(open(&api.options()).load().unwrap().1, head, "{problem:?}");
    }
}

#[test]
fn a_write_whose_responses_are_lost_is_not_said_to_be_nowhere() {
    let (api, is_cut) = (FakeObjectApi::default(), Arc::new(AtomicBool::new(false)));
    let shown = Arc::clone(&is_cut);
    let plan: ProblemPlan = Arc::new(move |_, _| {
        if shown.load(Ordering::SeqCst) {
            RequestProblem::HangAfter
        } else {
            RequestProblem::None
        }
    });
    let mut store = hurried(&api, plan, 400);
    let mut head = store.append_to_head(&write("made")).unwrap();
    is_cut.store(true, Ordering::SeqCst);
    let error = store.append(&head, &write("there")).unwrap_err();
    assert!(matches!(error, StoreError::Unknown { .. }), "{error}");
    is_cut.store(false, Ordering::SeqCst);
    read_on(&mut store, &mut head);
    assert!(store.content().unwrap().sources.contains(&"there".into()));
}

#[test]
fn conflicts_without_end_are_paced() {
    let (api, (plan, is_on)) = (FakeObjectApi::default(), slot_updates(RequestProblem::Status(409)));
    let mut store = hurried(&api, plan, 500);
    let head = store.append_to_head(&write("made")).unwrap();
    is_on.store(true, Ordering::SeqCst);
    api.take_requests();
    store.append(&head, &write("never")).unwrap_err();
    let requests = api.take_requests();
    assert!(requests.len() < 10, "{requests:?}");
}

/// Problems at random, one request in eight.
fn random_problems(seed: u64) -> ProblemPlan {
    let dice = ScriptDice::new(seed);
    Arc::new(move |_, _| match dice.roll(64) {
        0 | 1 => RequestProblem::LoseRequest,
        2 | 3 => RequestProblem::LoseReply,
        4 => RequestProblem::StatusAfter(504),
        5 => RequestProblem::Status(503),
        6 => RequestProblem::HangAfter,
        7 => RequestProblem::HangBefore,
        _ => RequestProblem::None,
    })
}

#[test]
fn whatever_fails_no_acknowledged_entry_is_lost_and_none_is_there_twice() {
    let (api, acknowledged) = (FakeObjectApi::default(), Arc::new(Mutex::new(Vec::new())));
    open(&api.options()).append_to_head(&write("made")).unwrap();
    let servers = (0..3_u64).map(|server| {
        let (api, acknowledged) = (api.clone(), Arc::clone(&acknowledged));
        std::thread::spawn(move || {
            let options = KubernetesStoreOptions {
                timeout: Duration::from_millis(40),
                slots: 32,
                ..api.options_with(random_problems(server + 1))
            };
            let mut store = open(&options);
            let mut head = until("it starts", || store.load().ok()).1;
            store.follow(&Arc::default());
            for number in 0..120 {
                let name = format!("s{server}-{number}");
                match store.append(&head, &write(&name)) {
                    Ok(after) => {
                        assert_eq!(after.sequence, head.sequence + 1);
                        acknowledged.lock().unwrap().push((after.sequence, name));
                        head = after;
                    }
                    Err(_) => read_on(&mut store, &mut head),
                }
            }
        })
    });
    let servers: Vec<_> = servers.collect();
    for server in servers {
        server.join().unwrap();
    }
    let mut acknowledged = Arc::into_inner(acknowledged).unwrap().into_inner().unwrap();
    acknowledged.sort();
    assert!(acknowledged.len() > 60, "{} entries", acknowledged.len());
    assert!(
        acknowledged.windows(2).all(|two| two[0].0 < two[1].0),
        "two entries have one number"
    );
    let (state, head) = open(&api.options()).load().unwrap();
    assert!(head.sequence >= acknowledged.len() as u64);
    assert_eq!(head.rows, state.sources.len() as u64);
    for (sequence, name) in acknowledged {
        assert!(
            state.sources.contains(&name.as_str().into()),
            "entry {sequence}, {name}, is lost"
        );
    }
}
