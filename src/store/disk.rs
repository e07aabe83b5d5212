//! Store in one file of a directory: an embedded B-tree with transactions, written through to the disk.

use std::fmt::{self, Debug};
use std::path::Path;
use std::sync::Arc;

use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition};

use super::format;
use super::{Durability, Store, StoreError, StoreWrite, StoredState};

/// Name of the file in the directory.
pub(super) const FILE_NAME: &str = "pumice.redb";
/// Version of the record format.
const FORMAT: u64 = 1;

const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const RESERVATIONS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("reservations");
const TOMBSTONES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("tombstones");
const ASSUMPTIONS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("assumptions");
const POLICIES: TableDefinition<'_, (&str, u64), &[u8]> = TableDefinition::new("policies");
const POLICY_FILES: TableDefinition<'_, &str, &str> = TableDefinition::new("policy_files");

type DatabaseOpener = Box<dyn FnMut() -> Result<Database, DatabaseError> + Send>;

/// Store on disk. The file is locked as long as the store is open.
pub struct DiskStore {
    location: String,
    open: DatabaseOpener,
    /// Open database; `None`: after a failure, until it can be opened again.
    database: Option<Database>,
}

impl Debug for DiskStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskStore")
            .field("place", &self.location)
            .finish_non_exhaustive()
    }
}

impl DiskStore {
    /// Opens the store of a directory; creates the directory and the store if they do not exist.
    ///
    /// # Errors
    /// Another server has it open, it has another format, or the directory cannot be written.
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        let file = directory.join(FILE_NAME);
        let place = file.display().to_string();
        std::fs::create_dir_all(directory).map_err(|error| StoreError::Failed {
            place: directory.display().to_string(),
            message: error.to_string(),
        })?;
        let mut made = false;
        let open = move || {
            // A file that existed once is never created again: a disk that was unmounted would come back as an empty
            // store.
            let database = if made {
                Database::open(&file)
            } else {
                Database::create(&file)
            }?;
            made = true;
            Ok(database)
        };
        Self::with_opener(place, Box::new(open))
    }

    /// Opens a store with this opener, which is called again after each failure.
    pub(super) fn with_opener(place: String, open: DatabaseOpener) -> Result<Self, StoreError> {
        let mut store = Self {
            location: place,
            open,
            database: None,
        };
        store.database()?;
        Ok(store)
    }

    /// Open database. After a failure it is opened again, which also checks it.
    fn database(&mut self) -> Result<&Database, StoreError> {
        match &mut self.database {
            Some(database) => Ok(database),
            closed @ None => Ok(closed.insert(open_database(&self.location, &mut self.open)?)),
        }
    }
}

/// Opens the file, creates its tables and checks its format.
fn open_database(place: &str, open: &mut DatabaseOpener) -> Result<Database, StoreError> {
    let place = || place.to_owned();
    let database = open().map_err(|error| {
        if matches!(error, DatabaseError::DatabaseAlreadyOpen) {
            StoreError::InUse { place: place() }
        } else {
            store_error(&place(), &error.into())
        }
    })?;
    match create_tables(&database).map_err(|error| store_error(&place(), &error))? {
        FORMAT => Ok(database),
        found => Err(StoreError::Format {
            place: place(),
            found,
            known: FORMAT,
        }),
    }
}

fn store_error(place: &str, error: &redb::Error) -> StoreError {
    StoreError::Failed {
        place: place.to_owned(),
        message: error.to_string(),
    }
}

/// Creates the tables of a new store. Returns the format of the store.
fn create_tables(database: &Database) -> Result<u64, redb::Error> {
    let transaction = database.begin_write()?;
    let format = {
        let mut meta = transaction.open_table(META)?;
        let found = meta.get("format")?.map(|format| format.value());
        match found {
            Some(found) if found != FORMAT => return Ok(found),
            Some(found) => found,
            None => {
                meta.insert("format", FORMAT)?;
                FORMAT
            }
        }
    };
    transaction.open_table(RESERVATIONS)?;
    transaction.open_table(TOMBSTONES)?;
    transaction.open_table(ASSUMPTIONS)?;
    transaction.open_table(POLICIES)?;
    transaction.open_table(POLICY_FILES)?;
    transaction.commit()?;
    Ok(format)
}

fn apply_writes(database: &Database, writes: &[StoreWrite]) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut rows = transaction.open_table(RESERVATIONS)?;
        let mut tombstones = transaction.open_table(TOMBSTONES)?;
        let mut assumptions = transaction.open_table(ASSUMPTIONS)?;
        let mut policies = transaction.open_table(POLICIES)?;
        let mut files = transaction.open_table(POLICY_FILES)?;
        for write in writes {
            match write {
                StoreWrite::Job {
                    job,
                    reservation: row,
                    tombstone,
                } => {
                    put(&mut rows, job, row.as_ref().map(|row| format::encode_reservation(row)))?;
                    let bytes = tombstone.as_ref().map(|tombstone| format::encode_tombstone(tombstone));
                    put(&mut tombstones, job, bytes)?;
                }
                StoreWrite::Task { task, assumption } => {
                    let bytes = assumption
                        .as_ref()
                        .map(|assumption| format::encode_assumption(assumption));
                    put(&mut assumptions, task, bytes)?;
                }
                StoreWrite::Policy(policy) => {
                    let bytes = format::encode_policy(policy);
                    policies.insert((&*policy.name, policy.version), bytes.as_slice())?;
                }
                StoreWrite::RemovePolicy { name, version } => {
                    policies.remove((&**name, *version))?;
                }
                StoreWrite::PolicyFile { name, content } => {
                    match content {
                        Some(content) => files.insert(&**name, &**content)?,
                        None => files.remove(&**name)?,
                    };
                }
            }
        }
    }
    transaction.commit()?;
    Ok(())
}

fn put(table: &mut redb::Table<'_, &str, &[u8]>, name: &str, bytes: Option<Vec<u8>>) -> Result<(), redb::Error> {
    match bytes {
        Some(bytes) => table.insert(name, bytes.as_slice())?,
        None => table.remove(name)?,
    };
    Ok(())
}

/// Complete content. A record that cannot be read is an inner error; a failing disk is an outer one.
fn load_state(database: &Database) -> Result<Result<StoredState, String>, redb::Error> {
    let transaction = database.begin_read()?;
    let mut stored_state = StoredState::default();
    for entry in transaction.open_table(RESERVATIONS)?.iter()? {
        let (job, bytes) = entry?;
        match format::decode_reservation(job.value(), bytes.value()) {
            Ok(row) => stored_state.reservations.push(Arc::new(row)),
            Err(what) => return Ok(Err(what)),
        }
    }
    for entry in transaction.open_table(TOMBSTONES)?.iter()? {
        let (job, bytes) = entry?;
        match format::decode_tombstone(job.value(), bytes.value()) {
            Ok(tombstone) => stored_state.tombstones.push(Arc::new(tombstone)),
            Err(what) => return Ok(Err(what)),
        }
    }
    for entry in transaction.open_table(ASSUMPTIONS)?.iter()? {
        let (task, bytes) = entry?;
        match format::decode_assumption(task.value(), bytes.value()) {
            Ok(assumption) => stored_state.assumptions.push(Arc::new(assumption)),
            Err(what) => return Ok(Err(what)),
        }
    }
    for entry in transaction.open_table(POLICIES)?.iter()? {
        let (key, bytes) = entry?;
        let (name, version) = key.value();
        match format::decode_policy(name, version, bytes.value()) {
            Ok(policy) => stored_state.policies.push(policy),
            Err(what) => return Ok(Err(what)),
        }
    }
    for entry in transaction.open_table(POLICY_FILES)?.iter()? {
        let (name, content) = entry?;
        stored_state
            .policy_files
            .push((name.value().into(), content.value().into()));
    }
    Ok(Ok(stored_state))
}

impl Store for DiskStore {
    fn durability(&self) -> Durability {
        Durability::Disk
    }

    fn load(&mut self) -> Result<StoredState, StoreError> {
        let read = load_state(self.database()?).map_err(|error| store_error(&self.location, &error))?;
        read.map_err(|what| StoreError::Damaged {
            place: self.location.clone(),
            what,
        })
    }

    fn write(&mut self, writes: &[StoreWrite]) -> Result<(), StoreError> {
        apply_writes(self.database()?, writes).map_err(|error| {
            // After a disk error the database must be opened and checked again before it can be trusted.
            self.database = None;
            store_error(&self.location, &error)
        })
    }
}
