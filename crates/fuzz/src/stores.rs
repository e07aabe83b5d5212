//! Rows and files of the store, and its exports.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use pumice_engine::model::{Reservation, Uid};
use pumice_state::store::{
    ReservationTombstone, StoreError, StoreWrite, StoredAssumption, StoredPolicy, StoredState, fuzz_entries,
};

use crate::choices::{split_choice, text};

#[path = "../../../src/cli/store_records.rs"]
mod store_records;

use store_records::{ExportLine, HeadLine};

/// Reads rows, headers and entries of logs.
pub fn read_rows(data: &[u8]) {
    let (table, body) = split_choice(data);
    if let Err(message) = fuzz_entries::read_row(table, body) {
        assert!(!message.is_empty());
    }
    fuzz_entries::check_seal(body, data);
    let _ = fuzz_entries::read_header(body);
    for entry in [data.to_vec(), fuzz_entries::sealed_entry(data)] {
        let _ = fuzz_entries::read_entry(&entry);
    }
}

/// State of a small store.
fn small_state() -> StoredState {
    let reservation = Reservation {
        job: "ns/a".into(),
        uid: "u1".into(),
        attempt: 3,
        queue: "q".into(),
        amounts: vec![("cpu".into(), 1_500), ("memory".into(), i128::from(u64::MAX) * 3)],
        content: [7; 16],
        source: "kube".into(),
        confirmed: Duration::from_millis(1_234_567),
        lease: Duration::from_mins(1),
        policy: "default".into(),
    };
    let tombstone = ReservationTombstone {
        job: "ns/b".into(),
        uid: "u2".into(),
        attempt: 1,
        job_ended: true,
    };
    let assumption = StoredAssumption {
        task: "ns/t".into(),
        uid: Uid::from("u3"),
        node: "n1".into(),
        card: "A".into(),
        devices: 5,
        session: "s".into(),
        source: "kube".into(),
    };
    let policy = StoredPolicy {
        name: "default".into(),
        version: 1,
        document: "tiers: []\n".into(),
        compatibility: "corrected".into(),
        origin: "rpc".into(),
        origin_detail: "someone".into(),
        accepted: Duration::from_millis(5),
    };
    StoredState {
        reservations: vec![Arc::new(reservation)],
        tombstones: vec![Arc::new(tombstone)],
        assumptions: vec![Arc::new(assumption)],
        policies: vec![policy],
        policy_files: vec![("default".into(), "abc".into())],
        sources: vec!["kube".into()],
    }
}

/// Bytes of a small store, and where some of them are not 0.
static WHOLE: LazyLock<(Vec<u8>, Vec<usize>)> = LazyLock::new(|| {
    let writes: Vec<StoreWrite> = small_state().into_writes();
    let bytes = fuzz_entries::store_bytes(&writes).unwrap();
    let used = (0..bytes.len()).filter(|at| bytes[*at] != 0).collect();
    (bytes, used)
});

/// Alters a store file: it is refused, or its content is what was written.
pub fn read_file(data: &[u8]) {
    let (whole, used) = &*WHOLE;
    let (kind, rest) = split_choice(data);
    let mut altered = whole.clone();
    let mut is_same_file = true;
    match kind % 4 {
        // The bytes themselves, as a file.
        0 => {
            altered = rest.to_vec();
            is_same_file = false;
        }
        // Cut short.
        1 => {
            let number = rest.iter().take(3).fold(0, |sum, byte| sum << 8 | usize::from(*byte));
            altered.truncate(number % whole.len());
        }
        // Bytes put at a place.
        2 => {
            let (place, bytes) = rest.split_at(rest.len().min(3));
            let place = place.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)) % whole.len();
            for (to, byte) in altered[place..].iter_mut().zip(bytes) {
                *to = *byte;
            }
        }
        // Bytes changed where there are some.
        _ => {
            for change in rest.chunks_exact(3) {
                let place = used[(usize::from(change[0]) << 8 | usize::from(change[1])) % used.len()];
                altered[place] ^= change[2];
            }
        }
    }
    match fuzz_entries::load_bytes(&altered) {
        Ok(loaded) => assert!(!is_same_file || loaded == small_state(), "{loaded:?}"),
        Err(StoreError::Damaged { .. } | StoreError::Format { .. }) => {}
        Err(error) => assert!(!is_same_file, "{error}"),
    }
}

/// Reads lines of an export; a record that was read and written is the same.
pub fn read_export(data: &[u8]) {
    let text = text(data);
    let mut state = StoredState::default();
    for line in text.lines() {
        let _ = HeadLine::check(line);
        let Ok(record) = ExportLine::read(line) else { continue };
        let written = record.to_line();
        assert_eq!(ExportLine::read(written.trim_end()), Ok(record.clone()), "{written}");
        record.add_to(&mut state);
    }
    state.sort();
    let lines = ExportLine::of(&state);
    let mut again = StoredState::default();
    for line in lines {
        line.add_to(&mut again);
    }
    again.sort();
    assert_eq!(again, state);
    let head = HeadLine::new(1).to_line();
    assert_eq!(HeadLine::check(head.trim_end()), Ok(()));
}
