//! Stores that were moved away, emptied, cut short or altered: rejected, with the remedy.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use redb::StorageBackend as _;
use redb::backends::InMemoryBackend;

use super::directory::{FILE_NAME, IDENTITY_NAME};
use super::tests::{StoreScratchDir, job_write, policy, reservation, stored_assumption, tombstone};
use super::tree::StoreTree;
use super::*;

/// Directory with a store that was closed, and its content.
fn filled() -> (StoreScratchDir, StoredState) {
    let directory = StoreScratchDir::new();
    let mut store = DiskStore::open(&directory.0).unwrap();
    write_some(&mut store);
    let state = store.content().unwrap();
    (directory, state)
}

fn write_some(store: &mut DiskStore) {
    for number in 0..4 {
        let name = format!("ns/{number}");
        store
            .append_to_head(&[
                job_write(&name, Some(reservation(&name, 1)), Some(tombstone(&name, 1))),
                StoreWrite::Task {
                    task: name.as_str().into(),
                    assumption: Some(stored_assumption(&name, "n1")),
                    is_reported: false,
                },
                StoreWrite::Policy(policy("default", number + 1)),
                StoreWrite::PolicyFile {
                    name: name.as_str().into(),
                    content: Some("abc".into()),
                },
            ])
            .unwrap();
    }
}

fn file(directory: &StoreScratchDir) -> PathBuf {
    directory.0.join(FILE_NAME)
}

/// Content of the store in this directory.
fn load(directory: &Path) -> Result<StoredState, StoreError> {
    DiskStore::open(directory)?.content()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn the_store_is_private() {
    let (directory, _) = filled();
    assert_eq!(mode(&directory.0), 0o700);
    for name in [FILE_NAME, IDENTITY_NAME] {
        assert_eq!(mode(&directory.0.join(name)), 0o600, "{name}");
    }
}

#[test]
fn a_store_that_was_emptied_is_refused() {
    let (directory, _) = filled();
    fs::write(file(&directory), "").unwrap();
    let error = load(&directory.0).unwrap_err().to_string();
    assert!(
        error.contains("is damaged: the file is empty. Put back a copy"),
        "{error}"
    );
}

#[test]
fn a_store_that_was_cut_short_is_refused() {
    let (directory, state) = filled();
    let whole = fs::read(file(&directory)).unwrap();
    for stored in (0..whole.len()).step_by(4_096).chain([1, 100, 4_097, whole.len() - 1]) {
        fs::write(file(&directory), &whole[..stored]).unwrap();
        let error = load(&directory.0).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{stored} bytes: {error}");
    }
    fs::write(file(&directory), &whole).unwrap();
    assert_eq!(load(&directory.0).unwrap(), state);
}

#[test]
fn a_store_that_was_moved_away_is_refused() {
    let (directory, state) = filled();
    let elsewhere = directory.0.join("elsewhere");
    fs::rename(file(&directory), &elsewhere).unwrap();
    let error = load(&directory.0).unwrap_err();
    assert!(matches!(error, StoreError::Missing { .. }), "{error}");
    assert!(error.to_string().contains("put the file back"), "{error}");
    fs::rename(&elsewhere, file(&directory)).unwrap();
    assert_eq!(load(&directory.0).unwrap(), state);
}

#[test]
fn another_store_in_its_place_is_refused() {
    let ((directory, _), (other, theirs)) = (filled(), filled());
    fs::copy(file(&other), file(&directory)).unwrap();
    let error = load(&directory.0).unwrap_err();
    assert!(matches!(error, StoreError::Replaced { .. }), "{error}");
    // The remedy that the error names.
    fs::remove_file(directory.0.join(IDENTITY_NAME)).unwrap();
    assert_eq!(load(&directory.0).unwrap(), theirs);
}

#[test]
fn no_write_is_acknowledged_to_a_file_that_was_moved_away() {
    let (directory, state) = filled();
    let mut store = DiskStore::open(&directory.0).unwrap();
    let elsewhere = directory.0.join("elsewhere");
    fs::rename(file(&directory), &elsewhere).unwrap();
    let write = [job_write("ns/lost", Some(reservation("ns/lost", 1)), None)];
    for _ in 0..2 {
        assert!(matches!(store.append_to_head(&write), Err(StoreError::Missing { .. })));
    }
    fs::write(file(&directory), "").unwrap();
    assert!(matches!(store.append_to_head(&write), Err(StoreError::Damaged { .. })));
    fs::rename(&elsewhere, file(&directory)).unwrap();
    assert_eq!(store.content().unwrap(), state);
    store.append_to_head(&write).unwrap();
}

#[test]
fn an_older_copy_in_its_place_is_refused_while_the_server_runs() {
    let (directory, _) = filled();
    let copy = directory.0.join("copy");
    fs::copy(file(&directory), &copy).unwrap();
    let mut store = DiskStore::open(&directory.0).unwrap();
    store
        .append_to_head(&[StoreWrite::Policy(policy("default", 9))])
        .unwrap();
    fs::rename(&copy, file(&directory)).unwrap();
    for _ in 0..2 {
        let error = store
            .append_to_head(&[StoreWrite::Policy(policy("default", 10))])
            .unwrap_err();
        assert!(matches!(error, StoreError::Replaced { .. }), "{error}");
    }
}

#[test]
fn no_write_is_acknowledged_to_a_file_that_was_emptied() {
    let (directory, _) = filled();
    let mut store = DiskStore::open(&directory.0).unwrap();
    fs::File::options()
        .write(true)
        .open(file(&directory))
        .unwrap()
        .set_len(0)
        .unwrap();
    for _ in 0..2 {
        let error = store.append_to_head(&[]).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    }
}

#[test]
fn a_half_made_store_is_made_again() {
    let directory = StoreScratchDir::new();
    fs::create_dir_all(&directory.0).unwrap();
    fs::write(directory.0.join(IDENTITY_NAME), [0; 29]).unwrap();
    fs::write(directory.0.join("pumice.redb.new"), [0; 9_999]).unwrap();
    assert_eq!(load(&directory.0).unwrap(), StoredState::default());
    assert_eq!(load(&directory.0).unwrap(), StoredState::default());
}

/// Content of a store with these bytes.
fn load_bytes(bytes: &[u8]) -> Result<StoredState, StoreError> {
    let backend = InMemoryBackend::new();
    backend.set_len(bytes.len() as u64).unwrap();
    backend.write(0, bytes).unwrap();
    let loaded = StoreTree::open("the bytes", Arc::new(backend))?
        .load()
        .map(|(state, _)| state);
    loaded.map_err(|error| error.at("the bytes"))
}

/// Flips one bit of many bytes, each by itself. A flip is refused, or it leaves the content as it was: returns the
/// numbers of both.
fn flip_bits(whole: &[u8], state: &StoredState) -> (usize, usize) {
    assert_eq!(load_bytes(whole).unwrap(), *state);
    let (mut refused, mut harmless) = (0, 0);
    // Every byte of both headers, and a sample of the rest.
    let used = (0..whole.len()).filter(|place| whole[*place] != 0 || place % 20_011 == 0);
    for place in used.filter(|place| *place < 4_608 || place % 29 == 0) {
        let mut altered = whole.to_vec();
        altered[place] ^= 1 << (place % 8);
        match load_bytes(&altered) {
            Ok(loaded) => {
                assert_eq!(loaded, *state, "byte {place} was flipped");
                harmless += 1;
            }
            Err(StoreError::Damaged { .. } | StoreError::Format { .. }) => refused += 1,
            Err(error) => panic!("byte {place}: {error}"),
        }
    }
    (refused, harmless)
}

#[test]
fn a_flipped_bit_is_refused_or_harmless() {
    let (directory, state) = filled();
    let (refused, harmless) = flip_bits(&fs::read(file(&directory)).unwrap(), &state);
    assert!(refused > 100 && harmless > 10, "{refused} refused, {harmless} harmless");
}

#[test]
fn a_flipped_bit_after_a_crash_loses_nothing_in_silence() {
    let directory = StoreScratchDir::new();
    let mut store = DiskStore::open(&directory.0).unwrap();
    write_some(&mut store);
    let state = store.content().unwrap();
    // What a crash leaves: the file of a store that is open.
    let (refused, _) = flip_bits(&fs::read(file(&directory)).unwrap(), &state);
    assert!(refused > 100, "{refused} refused");
}
