//! The store on an API server of this process.

#![cfg(test)]
#![expect(clippy::disallowed_methods, reason = "times are waited for")]

mod steps;
#[expect(dead_code, reason = "the tests of failures use more of it")]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pumice_kubernetes_store::{KubernetesStore, KubernetesStoreOptions};
use pumice_state::store::testing::conformance::{check_conformance, check_shared_log};
use pumice_state::store::{LogHead, LogNews, LogRead, Store, StoreWrite};

use steps::{open, read_on, replica, until, write};
use support::{FakeObjectApi, ProblemPlan, RequestProblem, is_slot};

#[test]
fn the_kubernetes_api_conforms() {
    let api = FakeObjectApi::default();
    let options = api.options();
    check_conformance(|| Box::new(open(&options)));
    let shared = KubernetesStoreOptions {
        name: "shared".to_owned(),
        slots: 512,
        snapshot_every: 256,
        ..options
    };
    check_shared_log(|| {
        let mut store = open(&shared);
        store.load().unwrap();
        Box::new(store)
    });
}

#[test]
fn objects_are_bounded_in_number_and_size() {
    let api = FakeObjectApi::default();
    let options = api.options();
    let (mut store, mut head, _news) = replica(&options);
    // Three megabytes of names in one entry.
    let long: Vec<StoreWrite> = (0..3_000)
        .flat_map(|number| write(&format!("{number}-{}", "x".repeat(1_000))))
        .collect();
    head = store.append(&head, &long).unwrap();
    assert_eq!(api.objects("-log-part-").len(), 4);
    let (state, at) = open(&options).load().unwrap();
    assert_eq!((state.sources.len(), at), (3_000, head));
    let mut sources = 3_000;
    let mut append = || {
        sources += 1;
        head = store.append(&head, &write(&format!("source-{sources}"))).unwrap();
    };
    (0..100).for_each(|_| append());
    // A snapshot that the API server had no time for is made up for by the next one, so entries go on.
    until("one snapshot is there, and no part of an entry", || {
        append();
        let are_few = api.objects("-log-snapshot-").len() <= 5;
        (are_few && api.objects("-log-part-").is_empty()).then_some(())
    });
    let slots: Vec<_> = api
        .objects("-log-")
        .into_iter()
        .filter(|(path, _)| is_slot(path))
        .collect();
    assert_eq!(slots.len(), 32);
    assert!(api.objects("").iter().all(|(_, bytes)| *bytes < 3 << 19));
    let (state, at) = open(&options).load().unwrap();
    assert_eq!((state.sources.len(), at), (sources, head));
    let longest = "y".repeat(60 << 20);
    let error = store.append(&head, &write(&longest)).unwrap_err();
    assert!(error.to_string().contains("at most"), "{error}");
    store.append(&head, &write("next")).unwrap();
}

#[test]
fn news_come_at_once_and_a_late_entry_is_refused() {
    let api = FakeObjectApi::default();
    let options = api.options();
    open(&options).append_to_head(&write("made")).unwrap();
    let ((mut one, start, ..), (mut other, ..)) = (followed(&options), replica(&options));
    std::thread::sleep(Duration::from_millis(300));
    one.read_after(&start).unwrap();
    let head = other.append(&start, &write("kube")).unwrap();
    assert!(one.append(&start, &write("late")).unwrap_err().is_stale());
    assert_eq!(
        one.read_after(&start).unwrap(),
        LogRead::Entries(vec![write("kube")], head)
    );
    one.append(&head, &write("now")).unwrap();
}

/// Store that is followed, and a way to wait until its news came once more.
fn followed(options: &KubernetesStoreOptions) -> (KubernetesStore, LogHead, Arc<LogNews>, Arc<AtomicU64>) {
    let (store, head, news) = replica(options);
    let seen = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&seen);
    news.wake_by(move || {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    until("the log is followed", || {
        (seen.load(Ordering::SeqCst) > 0).then_some(())
    });
    (store, head, news, seen)
}

#[test]
fn a_watch_that_cannot_go_on_begins_again_at_the_newest_version() {
    let api = FakeObjectApi::default();
    let options = api.options();
    let mut other = open(&options);
    let mut head = other.append_to_head(&write("made")).unwrap();
    let (mut one, mut at, news, _seen) = followed(&options);
    for round in 0..5 {
        api.forget_history();
        head = other.append(&head, &write(&format!("missed-{round}"))).unwrap();
        api.take_requests();
        until("the slots are listed and watched", || {
            let requests = api.take_requests();
            let is_list = |request: &String| request.ends_with("/configmaps");
            (requests.iter().filter(|request| is_list(request)).count() > 0).then_some(())
        });
        assert_eq!(news.problem(), None);
        read_on(&mut one, &mut at);
        assert_eq!(at, head);
    }
}

#[test]
fn entries_come_with_the_watch() {
    let api = FakeObjectApi::default();
    let options = api.options();
    let mut other = open(&options);
    let mut head = other.append_to_head(&write("made")).unwrap();
    let (mut one, at, ..) = followed(&options);
    until("the slots are watched", || {
        (api.take_requests()
            .iter()
            .filter(|request| request.ends_with("/configmaps"))
            .count()
            > 0)
        .then_some(())
    });
    std::thread::sleep(Duration::from_millis(200));
    for number in 0..10 {
        head = other.append(&head, &write(&format!("source-{number}"))).unwrap();
    }
    std::thread::sleep(Duration::from_millis(200));
    api.take_requests();
    let read = one.read_after(&at).unwrap();
    let reads = api.take_requests().iter().filter(|request| is_slot(request)).count();
    assert!(
        matches!(&read, LogRead::Entries(entries, to) if entries.len() == 10 && *to == head),
        "{read:?}"
    );
    // One asks whether there are more; another one may be that of the follower.
    assert!(reads <= 2, "{reads} reads");
}

#[test]
fn an_object_that_somebody_touched_goes_on() {
    let api = FakeObjectApi::default();
    let mut store = open(&api.options());
    let mut head = store.append_to_head(&write("made")).unwrap();
    for number in 0..70 {
        api.touch(&format!("-log-{:04}", (head.sequence + 1) % 32));
        head = store.append(&head, &write(&format!("source-{number}"))).unwrap();
    }
    api.touch("-log");
    assert_eq!(open(&api.options()).load().unwrap().1, head);
}

#[test]
fn a_log_that_was_replaced_is_refused() {
    let api = FakeObjectApi::default();
    let (mut store, mut head, news) = replica(&api.options());
    head = store.append(&head, &write("kube")).unwrap();
    api.remove("/configmaps/");
    let error = store.read_after(&head).unwrap_err();
    assert!(error.to_string().contains("not the store that was there"), "{error}");
    // Another one is in its place.
    open(&api.options()).append_to_head(&write("other")).unwrap();
    let error = store.append(&head, &write("late")).unwrap_err();
    assert!(error.to_string().contains("not the store that was there"), "{error}");
    until("the follower says so", || {
        news.problem()?.contains("not the store that was there").then_some(())
    });
    let (state, _) = open(&api.options()).load().unwrap();
    assert_eq!(state.sources, [Arc::from("other")]);
}

#[test]
fn an_older_copy_of_the_log_is_refused() {
    let api = FakeObjectApi::default();
    let (mut store, mut head, news) = replica(&api.options());
    for number in 0..40 {
        head = store.append(&head, &write(&format!("source-{number}"))).unwrap();
    }
    let copy = api.back_up();
    for number in 0..3 {
        head = store.append(&head, &write(&format!("lost-{number}"))).unwrap();
    }
    api.restore(copy);
    until("the follower says so", || {
        news.problem()?.contains("not the store that was there").then_some(())
    });
    let error = store.append(&head, &write("late")).unwrap_err();
    assert!(error.to_string().contains("not the store that was there"), "{error}");
    assert_eq!(open(&api.options()).load().unwrap().1.sequence, 40);
}

#[test]
fn what_is_left_of_a_log_is_not_taken_for_a_new_one() {
    let api = FakeObjectApi::default();
    let mut store = open(&api.options());
    store.append_to_head(&write("kube")).unwrap();
    let root = api
        .objects("-log")
        .into_iter()
        .find(|(path, _)| path.ends_with("pumice-log"))
        .unwrap();
    api.remove(&root.0.replace("pumice-log", "pumice-log-0000"));
    // The root goes last of all that the name is part of.
    let copy = api.back_up();
    api.restore(copy.into_iter().filter(|(path, _)| *path != root.0).collect());
    let error = open(&api.options())
        .append_to_head(&write("new"))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("pumice-log-0001 is left of a log that was removed"),
        "{error}"
    );
    assert!(error.contains("app.kubernetes.io/instance=pumice"), "{error}");
}

#[test]
fn a_slot_that_is_missing_or_cut_short_is_damage() {
    let api = FakeObjectApi::default();
    let mut store = open(&api.options());
    for number in 0..5 {
        store.append_to_head(&write(&format!("source-{number}"))).unwrap();
    }
    let copy = api.back_up();
    api.remove("-log-0003");
    let error = open(&api.options()).load().unwrap_err().to_string();
    assert!(error.contains("entry 3 is missing"), "{error}");
    let mut cut = copy.clone();
    for (path, object) in &mut cut {
        if path.ends_with("-log-0003") {
            object["binaryData"]["bytes"] = serde_json::json!("AAAA");
        }
    }
    api.restore(cut);
    let error = open(&api.options()).load().unwrap_err().to_string();
    assert!(error.contains("entry 3 is cut short"), "{error}");
    let mut other = copy;
    for (path, object) in &mut other {
        if path.ends_with("pumice-log") {
            object["data"]["format"] = serde_json::json!("9");
        }
    }
    api.restore(other);
    let error = open(&api.options()).load().unwrap_err().to_string();
    assert!(error.contains("format 9"), "{error}");
}

#[test]
fn servers_know_each_other_until_their_leases_end() {
    let api = FakeObjectApi::default();
    let named = |number: u32| KubernetesStoreOptions {
        address: format!("pumice-{number}:7461"),
        session_prefix: format!("s{number}-"),
        ..api.options()
    };
    let (_one, _, news) = replica(&named(1));
    let (other, ..) = replica(&named(2));
    until("one knows the other", || news.server_of_session("s2-77"));
    assert_eq!(news.server_of_session("s2-77").as_deref(), Some("pumice-2:7461"));
    assert_eq!(news.server_of_session("s3-77"), None);
    // It leaves, and its Lease with it.
    drop(other);
    assert_eq!(api.objects("/leases/").len(), 1);
    until("it is gone", || news.server_of_session("s2-77").is_none().then_some(()));
    // One that is killed leaves its Lease behind: it counts no longer than it runs, and is removed later.
    let is_dead = Arc::new(AtomicBool::new(false));
    let shown = Arc::clone(&is_dead);
    let plan: ProblemPlan = Arc::new(move |_, _| {
        if shown.load(Ordering::SeqCst) {
            RequestProblem::LoseRequest
        } else {
            RequestProblem::None
        }
    });
    let killed = KubernetesStoreOptions {
        access: api.options_with(plan).access,
        ..named(4)
    };
    let _killed = replica(&killed);
    until("one knows the other", || news.server_of_session("s4-77"));
    is_dead.store(true, Ordering::SeqCst);
    let began = Instant::now();
    until("it counts no longer", || {
        news.server_of_session("s4-77").is_none().then_some(())
    });
    assert!(began.elapsed() > Duration::from_millis(700), "its Lease ran");
    until("its Lease is removed", || {
        (api.objects("/leases/").len() == 1).then_some(())
    });
}

#[test]
fn the_pace_of_writes_is_bounded() {
    let api = FakeObjectApi::default();
    let mut options = api.options();
    let mut store = open(&options);
    store.append_to_head(&write("made")).unwrap();
    options.rates.writes_per_second = 20.0;
    let mut store = open(&options);
    let (_, mut head) = store.load().unwrap();
    let began = Instant::now();
    for number in 0..40 {
        head = store.append(&head, &write(&format!("source-{number}"))).unwrap();
    }
    // Twenty at once, and twenty in a second; snapshots take their part.
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
}
