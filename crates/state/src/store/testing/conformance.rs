//! Conformance suite that runs against every backend, in the tests of whichever crate has it.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "checks, which panic when they fail"
)]

use std::sync::Arc;
use std::time::Duration;

use super::steps::{read_on, write};
use crate::store::{
    LogHead, LogNews, LogRead, ReservationTombstone, Store, StoreError, StoreWrite, StoredAssumption, StoredPolicy,
    StoredState,
};
use pumice_engine::model::Reservation;

pub(crate) fn reservation(job: &str, cards: i128) -> Arc<Reservation> {
    Arc::new(Reservation {
        job: job.into(),
        uid: "u1".into(),
        attempt: 3,
        queue: "q".into(),
        amounts: vec![
            ("cpu".into(), 1_500),
            ("memory".into(), i128::from(u64::MAX) * 3),
            ("A|B".into(), cards),
        ],
        content: [7; 16],
        source: "kube".into(),
        confirmed: Duration::from_millis(1_234_567),
        lease: Duration::from_mins(1),
        policy: "default".into(),
    })
}

pub(crate) fn tombstone(job: &str, attempt: u64) -> Arc<ReservationTombstone> {
    Arc::new(ReservationTombstone {
        job: job.into(),
        uid: Arc::default(),
        attempt,
        job_ended: attempt == 0,
    })
}

pub(crate) fn stored_assumption(task: &str, node: &str) -> Arc<StoredAssumption> {
    Arc::new(StoredAssumption {
        task: task.into(),
        uid: "u2".into(),
        node: node.into(),
        card: "A".into(),
        devices: 0b101,
        session: "s1".into(),
        source: "kube".into(),
    })
}

pub(crate) fn task_write(name: &str, assumption: Option<Arc<StoredAssumption>>) -> StoreWrite {
    let task = name.into();
    StoreWrite::Task {
        task,
        assumption,
        is_reported: false,
    }
}

pub(crate) fn source_write(name: &str, is_awaited: bool) -> StoreWrite {
    StoreWrite::Source {
        name: name.into(),
        is_awaited,
    }
}

pub(crate) fn policy(name: &str, version: u64) -> StoredPolicy {
    StoredPolicy {
        name: name.into(),
        version,
        document: "tiers: []\n".into(),
        compatibility: "corrected".into(),
        origin: "rpc".into(),
        origin_detail: "someone".into(),
        accepted: Duration::from_millis(5),
    }
}

pub(crate) fn job_write(
    name: &str,
    row: Option<Arc<Reservation>>,
    tombstone: Option<Arc<ReservationTombstone>>,
) -> StoreWrite {
    let job = name.into();
    StoreWrite::Job {
        job,
        reservation: row,
        tombstone,
    }
}

/// Checks one backend. `open` opens the same store again after the previous one was closed.
#[doc(hidden)]
pub fn check_conformance(mut open: impl FnMut() -> Box<dyn Store>) {
    let mut store = open();
    assert_eq!(store.content().unwrap(), StoredState::default());
    store.append_to_head(&[]).unwrap();
    store
        .append_to_head(&[
            job_write("ns/b", Some(reservation("ns/b", 2)), None),
            job_write("ns/a", Some(reservation("ns/a", 1)), Some(tombstone("ns/a", 2))),
            task_write("ns/a-1", Some(stored_assumption("ns/a-1", "n1"))),
            task_write("ns/a-0", Some(stored_assumption("ns/a-0", "n1"))),
            StoreWrite::Policy(policy("p", 10)),
            StoreWrite::Policy(policy("p", 9)),
            StoreWrite::Policy(policy("default", 1)),
            StoreWrite::PolicyFile {
                name: "default".into(),
                content: Some("abc".into()),
            },
            StoreWrite::PolicyFile {
                name: "p".into(),
                content: Some("xyz".into()),
            },
            source_write("kube", true),
            source_write("feed", true),
        ])
        .unwrap();
    let expected = StoredState {
        reservations: vec![reservation("ns/a", 1), reservation("ns/b", 2)],
        tombstones: vec![tombstone("ns/a", 2)],
        assumptions: vec![stored_assumption("ns/a-0", "n1"), stored_assumption("ns/a-1", "n1")],
        policies: vec![policy("default", 1), policy("p", 9), policy("p", 10)],
        policy_files: vec![("default".into(), "abc".into()), ("p".into(), "xyz".into())],
        sources: vec!["feed".into(), "kube".into()],
    };
    assert_eq!(store.content().unwrap(), expected);
    drop(store);
    let mut store = open();
    assert_eq!(store.content().unwrap(), expected, "the content survives a restart");
    overwrites(&mut *store);
    check_heads(&mut *store);
    drop(store);
    let expected = StoredState {
        reservations: vec![reservation("ns/b", 9)],
        tombstones: vec![tombstone("ns/a", 0)],
        assumptions: vec![stored_assumption("ns/a-1", "n2")],
        policies: vec![policy("default", 1), policy("p", 10)],
        policy_files: vec![("default".into(), "def".into())],
        sources: vec!["kube".into()],
    };
    assert_eq!(open().content().unwrap(), expected);
}

/// Later writes of one call override earlier ones, and the earlier content.
pub(crate) fn overwrites(store: &mut dyn Store) {
    store
        .append_to_head(&[
            job_write("ns/a", Some(reservation("ns/a", 5)), None),
            job_write("ns/a", None, Some(tombstone("ns/a", 0))),
            job_write("ns/c", None, None),
            job_write("ns/b", Some(reservation("ns/b", 9)), None),
            task_write("ns/a-0", None),
            task_write("ns/a-1", Some(stored_assumption("ns/a-1", "n2"))),
            task_write("ns/a-2", None),
            source_write("feed", false),
            source_write("nobody", false),
            source_write("kube", true),
            StoreWrite::RemovePolicy {
                name: "p".into(),
                version: 9,
            },
            StoreWrite::RemovePolicy {
                name: "p".into(),
                version: 77,
            },
            StoreWrite::PolicyFile {
                name: "default".into(),
                content: Some("def".into()),
            },
            StoreWrite::PolicyFile {
                name: "p".into(),
                content: None,
            },
        ])
        .unwrap();
}

/// An entry goes onto the newest head only; what is refused leaves nothing behind.
fn check_heads(store: &mut dyn Store) {
    let (before, first) = store.load().unwrap();
    assert_eq!(store.head().unwrap(), first);
    let write = [job_write("ns/h", Some(reservation("ns/h", 1)), None)];
    let second = store.append(&first, &write).unwrap();
    assert_eq!((second.sequence, second.rows), (first.sequence + 1, first.rows + 1));
    let others = [
        first,
        LogHead::default(),
        LogHead {
            sequence: second.sequence + 1,
            ..second
        },
        LogHead {
            checksum: second.checksum ^ 1,
            ..second
        },
    ];
    for other in others {
        let refused = [job_write("ns/i", Some(reservation("ns/i", 1)), None)];
        let error = store.append(&other, &refused).unwrap_err();
        assert!(error.is_stale(), "{other}: {error}");
    }
    assert_eq!(store.head().unwrap(), second, "a refused entry is not there");
    // The checksum is that of the rows, whatever entries led to them.
    let third = store.append(&second, &[job_write("ns/h", None, None)]).unwrap();
    assert_eq!((third.rows, third.checksum), (first.rows, first.checksum));
    assert_eq!(store.content().unwrap(), before);
    match store.read_after(&third).unwrap() {
        LogRead::Unacknowledged(head) => assert_eq!(head, third),
        read @ (LogRead::Entries(..) | LogRead::Content(..)) => {
            assert_eq!(read, LogRead::Entries(Vec::new(), third), "a log that others append to");
        }
    }
}

/// Checks a log that several servers append to. `open` opens it once more.
#[doc(hidden)]
pub fn check_shared_log(mut open: impl FnMut() -> Box<dyn Store>) {
    let (mut one, mut other) = (open(), open());
    let news: Arc<LogNews> = Arc::default();
    assert!(one.follow(&news));
    let (_, start) = one.load().unwrap();
    assert_eq!(other.load().unwrap().1, start);
    let entries: Vec<Vec<StoreWrite>> = (1..4)
        .map(|number| vec![job_write("ns/s", Some(reservation("ns/s", number)), None)])
        .collect();
    let mut head = start;
    for writes in &entries {
        head = other.append(&head, writes).unwrap();
    }
    let error = one.append(&start, &entries[0]).unwrap_err();
    assert!(error.is_stale(), "{error}");
    assert_eq!(one.read_after(&start).unwrap(), LogRead::Entries(entries, head));
    assert_eq!(one.read_after(&head).unwrap(), LogRead::Entries(Vec::new(), head));
    let head = one.append(&head, &[job_write("ns/s", None, None)]).unwrap();
    assert_eq!(other.head().unwrap(), head);
    // Entries that are gone are replaced by the content.
    let mut last = head;
    for number in 0..i128::from(1_200) {
        let write = [job_write("ns/s", Some(reservation("ns/s", number)), None)];
        last = one.append(&last, &write).unwrap();
    }
    match other.read_after(&head).unwrap() {
        LogRead::Content(content, at) => {
            assert_eq!((*content, at), open().load().unwrap());
            assert_eq!(at, last);
        }
        LogRead::Entries(entries, at) => assert_eq!((entries.len(), at), (1_200, last)),
        read @ LogRead::Unacknowledged(_) => panic!("{read:?}"),
    }
}

/// Checks a store whose appends fail between `break_it` and `mend`: an entry is there whole or not at all, the head is found again,
/// and the next entry goes onto it.
#[doc(hidden)]
pub fn check_failed_appends(store: &mut dyn Store, mut break_it: impl FnMut(), mut mend: impl FnMut()) {
    let (_, mut head) = store.load().unwrap();
    for number in 0..3 {
        let entry = |cards: i128| {
            let writes = ["ns/f", "ns/g"].map(|job| job_write(job, Some(reservation(job, cards)), None));
            writes.to_vec()
        };
        let (tried, next) = (entry(2 * number + 1), entry(2 * number + 2));
        let before = store.content().unwrap();
        break_it();
        let appended = store.append(&head, &tried);
        mend();
        let found = (0..200).find_map(|_| {
            let read = store.read_after(&head).ok();
            if read.is_none() {
                std::thread::sleep(Duration::from_millis(20));
            }
            read
        });
        let found = match (found.unwrap(), &appended) {
            (LogRead::Entries(entries, found), Err(_)) => {
                assert!(entries.is_empty() || entries == [tried.clone()], "{entries:?}");
                found
            }
            (LogRead::Unacknowledged(found) | LogRead::Entries(_, found) | LogRead::Content(_, found), _) => found,
        };
        let after = store.content().unwrap();
        let is_whole = rows_of(&after) == [2 * number + 1; 2];
        assert!(is_whole || after == before, "half an entry: {after:?}");
        assert_eq!(is_whole, found.sequence == head.sequence + 1, "{found} after {head}");
        assert!(is_whole || appended.is_err(), "an acknowledged entry is lost");
        head = store.append(&found, &next).unwrap();
        assert_eq!(rows_of(&store.content().unwrap()), [2 * number + 2; 2]);
    }
}

/// Cards of the two jobs that are written together.
fn rows_of(state: &StoredState) -> Vec<i128> {
    let rows = state.reservations.iter();
    let rows = rows.filter(|row| matches!(&*row.job, "ns/f" | "ns/g"));
    rows.filter_map(|row| row.amounts.last().map(|(_, cards)| *cards))
        .collect()
}

/// Checks a server whose responses prove nothing while `lie` is set: it does not acknowledge an entry that the log does not have, and
/// continues after the entry of another server.
#[doc(hidden)]
pub fn check_unproved_append(store: &mut dyn Store, other: &mut dyn Store, lie: impl Fn(bool), what: &str) {
    let mut head = store.append_to_head(&write("made")).unwrap();
    lie(true);
    let error = store.append(&head, &write("lost")).unwrap_err();
    assert!(matches!(error, StoreError::Unknown { .. }), "{what}: {error}");
    let (_, at) = other.load().unwrap();
    assert_eq!(at, head, "{what}: it is in no log");
    let theirs = other.append(&at, &write("theirs")).unwrap();
    lie(false);
    read_on(store, &mut head);
    assert_eq!(head, theirs, "{what}");
}
