//! Conformance suite that runs against every backend, and tests of the store on disk when its disk fails.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use redb::StorageBackend;
use redb::backends::InMemoryBackend;

use super::header::StoreId;
use super::medium::StoreMedium;
use super::tree::StoreTree;
use super::*;

pub(super) fn reservation(job: &str, cards: i128) -> Arc<Reservation> {
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

pub(super) fn tombstone(job: &str, attempt: u64) -> Arc<ReservationTombstone> {
    Arc::new(ReservationTombstone {
        job: job.into(),
        uid: Arc::default(),
        attempt,
        job_ended: attempt == 0,
    })
}

pub(super) fn stored_assumption(task: &str, node: &str) -> Arc<StoredAssumption> {
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

pub(super) fn task_write(name: &str, assumption: Option<Arc<StoredAssumption>>) -> StoreWrite {
    let task = name.into();
    StoreWrite::Task { task, assumption }
}

fn source_write(name: &str, is_awaited: bool) -> StoreWrite {
    StoreWrite::Source {
        name: name.into(),
        is_awaited,
    }
}

pub(super) fn policy(name: &str, version: u64) -> StoredPolicy {
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

pub(super) fn job_write(
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

/// Conformance checks of one backend. `open` opens the same store again after the previous one was closed.
fn check_conformance(mut open: impl FnMut() -> Box<dyn Store>) {
    let mut store = open();
    assert_eq!(store.load().unwrap(), StoredState::default());
    store.write(&[]).unwrap();
    store
        .write(&[
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
    assert_eq!(store.load().unwrap(), expected);
    drop(store);
    let mut store = open();
    assert_eq!(store.load().unwrap(), expected, "the content survives a restart");
    overwrites(&mut *store);
    drop(store);
    let expected = StoredState {
        reservations: vec![reservation("ns/b", 9)],
        tombstones: vec![tombstone("ns/a", 0)],
        assumptions: vec![stored_assumption("ns/a-1", "n2")],
        policies: vec![policy("default", 1), policy("p", 10)],
        policy_files: vec![("default".into(), "def".into())],
        sources: vec!["kube".into()],
    };
    assert_eq!(open().load().unwrap(), expected);
}

/// Later writes of one call override earlier ones, and the earlier content.
fn overwrites(store: &mut dyn Store) {
    store
        .write(&[
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
        .write(&[job_write("ns/a", Some(reservation("ns/a", 1)), None)])
        .unwrap();
    for _ in 0..3 {
        fails.store(true, Ordering::Relaxed);
        let error = store
            .write(&[job_write("ns/a", Some(reservation("ns/a", 2)), None)])
            .unwrap_err();
        assert!(matches!(error, StoreError::Failed { .. }), "{error}");
        assert!(error.to_string().starts_with("the disk: "), "{error}");
        // It stays closed as long as the disk fails.
        assert!(store.write(&[]).is_err());
        fails.store(false, Ordering::Relaxed);
        store
            .write(&[job_write("ns/b", Some(reservation("ns/b", 3)), None)])
            .unwrap();
        assert_eq!(
            store.load().unwrap().reservations,
            [reservation("ns/a", 1), reservation("ns/b", 3)]
        );
    }
}

#[test]
fn a_blocked_flush_holds_writes_up() {
    let store = FailingStore::default();
    let blocked = store.block_flush();
    let mut own = store.clone();
    let write = std::thread::spawn(move || own.write(&[StoreWrite::Policy(policy("p", 1))]));
    blocked.wait_for_write();
    assert_eq!(store.content().load().unwrap(), StoredState::default());
    drop(blocked);
    write.join().unwrap().unwrap();
    assert_eq!(store.content().load().unwrap().policies, [policy("p", 1)]);
}
