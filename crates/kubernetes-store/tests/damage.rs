//! Logs that another hand has changed: what servers say, mend and refuse.

#![cfg(test)]

mod steps;
#[expect(dead_code, reason = "other tests use more of it")]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Method;
use pumice_kubernetes_store::{KubernetesStore, KubernetesStoreOptions};
use pumice_state::store::{LogHead, LogNews, Store as _};
use serde_json::json;

use steps::{open, read_on, replica, until, write};
use support::{FakeObjectApi, Lie, ProblemPlan, RequestProblem};

/// Log with six entries, and a server that follows it.
fn followed_log(api: &FakeObjectApi) -> (KubernetesStore, LogHead, Arc<LogNews>) {
    open(&api.options()).append_to_head(&write("made")).unwrap();
    let (mut store, mut head, news) = replica(&api.options());
    for number in 1..6 {
        head = store.append(&head, &write(&format!("source-{number}"))).unwrap();
    }
    until("the slots are watched", || news.unconfirmed().is_none().then_some(()));
    std::thread::sleep(Duration::from_millis(300));
    (store, head, news)
}

/// Sets the number of the entry in a slot.
fn number(api: &FakeObjectApi, slot: &str, sequence: u64) {
    api.edit(slot, |object| {
        object["metadata"]["annotations"]["sequence"] = json!(sequence.to_string());
    });
}

/// Sets the bytes in a slot.
fn bytes(api: &FakeObjectApi, slot: &str, bytes: &str) {
    api.edit(slot, |object| object["binaryData"]["bytes"] = json!(bytes));
}

/// Change of a log by another hand, and what is reported of it.
type Harm = (&'static str, fn(&FakeObjectApi));

/// Harm to a log of six entries that a server with all of them mends, each with what is said of it.
const HARM: [Harm; 6] = [
    ("pumice-log-0003: entry 3 is cut short", |api| {
        bytes(api, "-log-0003", "AAAA");
    }),
    ("pumice-log-0006: entry 6 is cut short", |api| {
        bytes(api, "-log-0006", "AAAA");
    }),
    ("pumice-log-0003: entry 3 was written again by another hand", |api| {
        bytes(api, "-log-0003", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
    }),
    ("pumice-log-0003: it says entry 35, and had entry 3", |api| {
        number(api, "-log-0003", 35);
    }),
    ("pumice-log-0006: it says entry 38, and had entry 6", |api| {
        number(api, "-log-0006", 38);
    }),
    ("pumice-log-0009: entry 41 is cut short", |api| {
        number(api, "-log-0009", 41);
    }),
];

#[test]
fn a_server_that_has_the_newest_entry_mends_the_log_before_it_acknowledges_more() {
    for (said, harm) in HARM {
        let api = FakeObjectApi::default();
        let (mut store, mut head, news) = followed_log(&api);
        let (mut late, mut late_at) = {
            let mut late = open(&api.options());
            let (_, at) = late.load().unwrap();
            (late, at)
        };
        harm(&api);
        let damage = until("the damage is reported", || news.damage());
        assert!(damage.contains(said), "{said}: {damage}");
        let error = store.append(&head, &write("too early")).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
        until("it is mended", || {
            read_on(&mut store, &mut head);
            news.damage().is_none().then_some(())
        });
        for number in 0..70 {
            head = store.append(&head, &write(&format!("more-{number}"))).unwrap();
        }
        let (state, at) = open(&api.options()).load().unwrap();
        assert_eq!((state.sources.len(), at), (76, head), "{said}");
        read_on(&mut late, &mut late_at);
        assert_eq!(late_at, head, "{said}");
    }
}

#[test]
fn what_nothing_proves_stops_acknowledgements() {
    // The slot of the next entry may have had it.
    type Harm = fn(&FakeObjectApi);
    let harm: [(&str, Harm); 4] = [
        ("pumice-log-0007", |api| {
            number(api, "-log-0007", 39);
        }),
        ("pumice-log-0003", |api| {
            api.remove("-log-0003");
        }),
        ("pumice-log-0006", |api| {
            api.remove("-log-0006");
        }),
        ("root has no `slots`", |api| {
            api.edit("pumice-log", |object| object["data"] = json!({"format": "1"}));
        }),
    ];
    for (said, harm) in harm {
        let api = FakeObjectApi::default();
        let (mut store, head, news) = followed_log(&api);
        harm(&api);
        let problem = until("the damage is reported", || news.write_problem());
        assert!(problem.contains(said), "{said}: {problem}");
        for _ in 0..3 {
            let error = store.append(&head, &write("nowhere")).unwrap_err().to_string();
            assert!(error.contains(said), "{said}: {error}");
        }
        let error = open(&api.options()).load().unwrap_err().to_string();
        assert!(error.contains(said) && error.contains("--repair"), "{error}");
        assert!(!error.contains("again"), "{error}");
        drop(store);
        let error = open(&api.options()).repair(false).unwrap_err().to_string();
        if said.contains("root") {
            assert!(error.contains(said), "{error}");
            continue;
        }
        assert!(error.contains("--accept-loss"), "{said}: {error}");
        assert!(!open(&api.options()).repair(true).unwrap().is_empty());
        check_usable(&api);
    }
}

#[test]
fn without_a_server_the_harm_is_named_and_repaired_as_far_as_the_log_proves() {
    for (number, (said, harm)) in HARM.into_iter().enumerate() {
        let api = FakeObjectApi::default();
        let (store, head, _) = followed_log(&api);
        drop(store);
        harm(&api);
        let name = said.split(':').next().unwrap();
        let error = open(&api.options()).load().unwrap_err().to_string();
        assert!(error.contains(name) || number == 4, "{said}: {error}");
        let repaired = open(&api.options()).repair(false);
        // Entries that were changed are lost, and a number that was raised is not.
        if number == 5 {
            assert!(!repaired.unwrap().is_empty());
            assert_eq!(open(&api.options()).load().unwrap().1, head);
        } else {
            let error = repaired.unwrap_err().to_string();
            assert!(error.contains("--accept-loss"), "{error}");
            open(&api.options()).repair(true).unwrap();
        }
        check_usable(&api);
    }
}

/// Checks that a server can start with the log and write to it for more than two laps.
fn check_usable(api: &FakeObjectApi) {
    let mut store = open(&api.options());
    let (_, mut at) = store.load().unwrap();
    for number in 0..70 {
        at = store.append(&at, &write(&format!("on-{number}"))).unwrap();
    }
    assert_eq!(open(&api.options()).load().unwrap().1, at);
    assert!(open(&api.options()).repair(false).unwrap().is_empty());
}

#[test]
fn objects_that_only_have_the_labels_do_not_stop_the_log() {
    let api = FakeObjectApi::default();
    let (mut store, mut head, news) = followed_log(&api);
    for name in ["pumice-log-copy", "pumice-log-9999", "other"] {
        api.copy_as("-log-0001", name);
    }
    for number in 0..40 {
        head = store.append(&head, &write(&format!("more-{number}"))).unwrap();
    }
    let (mut other, mut at, theirs) = replica(&api.options());
    until("it is followed", || theirs.unconfirmed().is_none().then_some(()));
    read_on(&mut other, &mut at);
    assert_eq!((at, open(&api.options()).load().unwrap().1), (head, head));
    assert_eq!((news.write_problem(), theirs.write_problem()), (None, None));
    api.remove("pumice-log-9999");
    std::thread::sleep(Duration::from_millis(300));
    store.append(&head, &write("last")).unwrap();
}

#[test]
fn a_silent_watch_does_not_keep_entries_from_a_server() {
    let api = FakeObjectApi::default();
    let (mut store, mut head, news) = followed_log(&api);
    api.silence_watches(true);
    let (mut other, at, _) = replica(&api.options());
    let theirs = other.append(&at, &write("theirs")).unwrap();
    // Nobody reads here. A server does, with the first of these reasons.
    let (_, doubt) = until("the slot and the Lease show it", || news.unconfirmed());
    assert!(
        doubt.contains("entry 7 is there, and this server has applied entry 6"),
        "{doubt}"
    );
    read_on(&mut store, &mut head);
    assert_eq!(head, theirs);
    until("it is confirmed", || news.unconfirmed().is_none().then_some(()));
    // The next event comes, and those before it never do. That is no damage.
    api.silence_watches(false);
    let theirs = other.append(&theirs, &write("theirs too")).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(news.damage(), None);
    read_on(&mut store, &mut head);
    assert_eq!(head, theirs);
    store.append(&head, &write("last")).unwrap();
}

#[test]
fn a_server_that_sees_old_responses_only_says_since_when() {
    let (api, is_old) = (FakeObjectApi::default(), Arc::new(AtomicBool::new(false)));
    open(&api.options()).append_to_head(&write("made")).unwrap();
    let shown = Arc::clone(&is_old);
    // A proxy repeats what it read before.
    let plan: ProblemPlan = Arc::new(move |method, _| {
        if shown.load(Ordering::SeqCst) && *method == Method::GET {
            RequestProblem::Lie(Lie::Repeated)
        } else {
            RequestProblem::None
        }
    });
    let options = KubernetesStoreOptions {
        timeout: Duration::from_millis(100),
        ..api.options_with(plan)
    };
    let (mut store, mut head, news) = replica(&options);
    until("it is followed", || news.unconfirmed().is_none().then_some(()));
    std::thread::sleep(Duration::from_millis(500));
    is_old.store(true, Ordering::SeqCst);
    api.silence_watches(true);
    let (mut other, at, _) = replica(&api.options());
    other.append(&at, &write("theirs")).unwrap();
    let (since, doubt) = until("it says so", || news.unconfirmed());
    assert!(since >= Duration::from_secs(3), "{since:?}: {doubt}");
    is_old.store(false, Ordering::SeqCst);
    until("it confirms again", || {
        read_on(&mut store, &mut head);
        news.unconfirmed().is_none().then_some(())
    });
    assert_eq!(head.sequence, 2);
}
