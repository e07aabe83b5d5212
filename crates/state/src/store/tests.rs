//! Conformance suite that runs against every backend, and tests of the store on disk when its disk fails.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use redb::StorageBackend;
use redb::backends::InMemoryBackend;

use super::header::StoreId;
use super::medium::StoreMedium;
pub(super) use super::testing::conformance::{
    check_conformance, check_failed_appends, check_shared_log, job_write, overwrites, policy, reservation,
    source_write, stored_assumption, task_write, tombstone,
};
use super::tree::StoreTree;
use super::*;

/// Directory that is removed with the test.
pub(super) struct StoreScratchDir(pub(super) PathBuf);

impl StoreScratchDir {
    pub(super) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("pumice-store-{}-{number}", std::process::id())))
    }
}

impl Drop for StoreScratchDir {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

#[test]
fn memory_conforms() {
    let store = MemoryStore::default();
    check_conformance(|| Box::new(store.clone()));
}

#[test]
fn shared_memory_conforms() {
    let store = MemoryStore::default();
    check_conformance(|| Box::new(store.replica()));
    check_shared_log(|| Box::new(store.replica()));
}

#[test]
fn all_backends_come_to_the_same_head() {
    let directory = StoreScratchDir::new();
    let mut disk = DiskStore::open(&directory.0.join("data")).unwrap();
    let mut memory = MemoryStore::default();
    overwrites(&mut disk);
    overwrites(&mut memory);
    assert_eq!(disk.load().unwrap(), memory.load().unwrap());
    let (state, head) = memory.load().unwrap();
    assert_eq!(StoredContent::new(state, head.sequence).head(), head);
}

#[test]
fn an_entry_is_read_as_it_was_written_and_no_other_bytes_pass_for_one() {
    let mut content = StoredContent::default();
    let before = content.head();
    let (state, _) = {
        let mut memory = MemoryStore::default();
        overwrites(&mut memory);
        memory.load().unwrap()
    };
    let mut writes = state.into_writes();
    writes.push(task_write("ns/a-0", None));
    writes.push(StoreWrite::RemovePolicy {
        name: "p".into(),
        version: 9,
    });
    writes.push(source_write("kube", false));
    let inverse = content.try_apply(&writes);
    let entry = LogEntry {
        before,
        after: content.head(),
        writes,
    };
    let bytes = entry.encode();
    assert_eq!(LogEntry::decode(&bytes).unwrap(), entry);
    for byte in 0..bytes.len() {
        let mut altered = bytes.clone();
        altered[byte] ^= 1;
        assert!(LogEntry::decode(&altered).is_err(), "byte {byte}");
        assert!(LogEntry::decode(&bytes[..byte]).is_err(), "{byte} bytes");
    }
    assert_eq!(LogHead::decode(&entry.after.encode()).unwrap(), entry.after);
    content.undo(&inverse);
    assert_eq!(content.head(), before, "an entry that was not appended is taken back");
}

#[test]
fn disk_conforms() {
    let directory = StoreScratchDir::new();
    check_conformance(|| Box::new(DiskStore::open(&directory.0.join("data")).unwrap()));
}

#[test]
fn a_directory_belongs_to_one_server() {
    let directory = StoreScratchDir::new();
    let _first = DiskStore::open(&directory.0).unwrap();
    let error = DiskStore::open(&directory.0).unwrap_err();
    assert!(matches!(error, StoreError::InUse { .. }), "{error}");
    assert!(error.to_string().contains("is in use by another server"), "{error}");
}

#[test]
fn a_file_without_a_header_is_rejected() {
    let directory = StoreScratchDir::new();
    std::fs::create_dir_all(&directory.0).unwrap();
    drop(redb::Database::create(directory.0.join(directory::FILE_NAME)).unwrap());
    let error = DiskStore::open(&directory.0).unwrap_err();
    assert!(
        matches!(error, StoreError::Format { found: 1, known: 2, .. }),
        "{error}"
    );
}

#[test]
fn a_file_in_place_of_the_directory_is_rejected() {
    let directory = StoreScratchDir::new();
    std::fs::create_dir_all(&directory.0).unwrap();
    let file = directory.0.join("file");
    std::fs::write(&file, "x").unwrap();
    assert!(matches!(DiskStore::open(&file), Err(StoreError::Failed { .. })));
}

/// Disk in memory that fails on demand.
#[derive(Debug, Default)]
struct FailingDisk {
    disk: InMemoryBackend,
    fails: AtomicBool,
}

impl FailingDisk {
    fn check(&self) -> Result<(), std::io::Error> {
        if self.fails.load(Ordering::Relaxed) {
            return Err(std::io::Error::other("no space left on device"));
        }
        Ok(())
    }
}

impl StorageBackend for FailingDisk {
    fn len(&self) -> Result<u64, std::io::Error> {
        self.disk.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), std::io::Error> {
        self.disk.read(offset, out)
    }

    fn set_len(&self, len: u64) -> Result<(), std::io::Error> {
        self.check()?;
        self.disk.set_len(len)
    }

    fn sync_data(&self) -> Result<(), std::io::Error> {
        self.check()?;
        self.disk.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), std::io::Error> {
        self.check()?;
        self.disk.write(offset, data)
    }
}

/// Medium in memory.
#[derive(Debug)]
struct MemoryMedium(Arc<FailingDisk>);

impl StoreMedium for MemoryMedium {
    fn open(&mut self) -> Result<Arc<dyn StorageBackend>, StoreError> {
        Ok(Arc::clone(&self.0) as _)
    }

    fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn identify(&mut self, _: StoreId) -> Result<(), StoreError> {
        Ok(())
    }
}

#[test]
fn the_store_recovers_after_a_disk_failure() {
    let disk = Arc::new(FailingDisk::default());
    StoreTree::make(&(Arc::clone(&disk) as _), StoreId(7)).unwrap();
    let medium = Box::new(MemoryMedium(Arc::clone(&disk)));
    let mut store = DiskStore::on_medium("the disk".to_owned(), medium, true).unwrap();
    let fails = &disk.fails;
    store
        .append_to_head(&[job_write("ns/a", Some(reservation("ns/a", 1)), None)])
        .unwrap();
    for _ in 0..3 {
        fails.store(true, Ordering::Relaxed);
        let error = store
            .append_to_head(&[job_write("ns/a", Some(reservation("ns/a", 2)), None)])
            .unwrap_err();
        assert!(matches!(error, StoreError::Failed { .. }), "{error}");
        assert!(error.to_string().starts_with("the disk: "), "{error}");
        // It stays closed as long as the disk fails.
        assert!(store.append_to_head(&[]).is_err());
        fails.store(false, Ordering::Relaxed);
        store
            .append_to_head(&[job_write("ns/b", Some(reservation("ns/b", 3)), None)])
            .unwrap();
        assert_eq!(
            store.content().unwrap().reservations,
            [reservation("ns/a", 1), reservation("ns/b", 3)]
        );
    }
}

#[test]
fn appends_that_fail_leave_an_entry_whole_or_not_at_all() {
    let disk = Arc::new(FailingDisk::default());
    StoreTree::make(&(Arc::clone(&disk) as _), StoreId(7)).unwrap();
    let medium = Box::new(MemoryMedium(Arc::clone(&disk)));
    let mut store = DiskStore::on_medium("the disk".to_owned(), medium, true).unwrap();
    let fail = |fails: bool| disk.fails.store(fails, Ordering::Relaxed);
    check_failed_appends(&mut store, || fail(true), || fail(false));
    let modes = [
        StoreErrorMode::RejectWrites,
        StoreErrorMode::FailAfterWrite,
        StoreErrorMode::LoseReply,
        StoreErrorMode::LoseWrite,
    ];
    for mode in modes {
        for store in [FailingStore::default(), FailingStore::default().replica()] {
            let mut own = store.clone();
            let (break_it, mend) = (
                || store.set_error_mode(mode),
                || store.set_error_mode(StoreErrorMode::None),
            );
            check_failed_appends(&mut own, break_it, mend);
        }
    }
}

#[test]
fn a_blocked_flush_holds_writes_up() {
    let store = FailingStore::default();
    let blocked = store.block_flush();
    let mut own = store.clone();
    let write = std::thread::spawn(move || own.append_to_head(&[StoreWrite::Policy(policy("p", 1))]));
    blocked.wait_for_write();
    assert_eq!(store.content().content().unwrap(), StoredState::default());
    drop(blocked);
    write.join().unwrap().unwrap();
    assert_eq!(store.content().content().unwrap().policies, [policy("p", 1)]);
}
