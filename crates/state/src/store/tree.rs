//! B-tree of a store that is open: its tables, its writes, and the check of its content.

use std::io;
use std::sync::Arc;

use redb::{
    Builder, Database, Key, ReadTransaction, ReadableDatabase, ReadableTable, StorageBackend, Table, TableDefinition,
    WriteTransaction,
};

use super::header::{HEADER_BYTES, HeaderError, StoreHeader, StoreId};
use super::medium::TreeBytes;
use super::row::{RowDigest, RowKey, RowTable, seal, unseal};
use super::{LogHead, StoreError, StoreWrite, StoredState, format};

type NamedRows = TableDefinition<'static, &'static str, &'static [u8]>;

/// Numbers about the store, by name.
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const RESERVATIONS: NamedRows = TableDefinition::new("reservations");
const TOMBSTONES: NamedRows = TableDefinition::new("tombstones");
const ASSUMPTIONS: NamedRows = TableDefinition::new("assumptions");
const POLICIES: TableDefinition<'_, (&str, u64), &[u8]> = TableDefinition::new("policies");
const POLICY_FILES: NamedRows = TableDefinition::new("policy_files");
const SOURCES: NamedRows = TableDefinition::new("sources");

/// Error of the B-tree.
#[derive(Debug)]
pub(super) enum TreeError {
    /// The disk failed, or the B-tree found itself damaged.
    Database(redb::Error),
    /// A row or a number is not what was written.
    Damaged(String),
    /// The head is not the expected head.
    Stale,
}

impl<E: Into<redb::Error>> From<E> for TreeError {
    fn from(error: E) -> Self {
        Self::Database(error.into())
    }
}

impl TreeError {
    /// Error of the store at this place.
    pub(super) fn at(self, place: &str) -> StoreError {
        let place = place.to_owned();
        match self {
            Self::Stale => StoreError::Stale { place },
            Self::Damaged(what) | Self::Database(redb::Error::Corrupted(what)) => StoreError::Damaged { place, what },
            Self::Database(redb::Error::DatabaseAlreadyOpen) => StoreError::InUse { place },
            Self::Database(error) if is_damage(&error) => StoreError::Damaged {
                place,
                what: error.to_string(),
            },
            Self::Database(error) => StoreError::Failed {
                place,
                message: error.to_string(),
            },
        }
    }
}

/// True if the error describes damaged bytes and not a failure of the disk. The header has already shown that this
/// program wrote the file, so an invalid B-tree is damage.
fn is_damage(error: &redb::Error) -> bool {
    let is_io_damage =
        |error: &io::Error| matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData);
    matches!(error, redb::Error::Io(error) if is_io_damage(error))
        || matches!(
            error,
            redb::Error::UpgradeRequired(_)
                | redb::Error::TableDoesNotExist(_)
                | redb::Error::TableIsMultimap(_)
                | redb::Error::TableTypeMismatch { .. }
                | redb::Error::TypeDefinitionChanged { .. }
        )
}

/// Counters of the content, which change with every write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ContentCounters {
    /// Number of the last write.
    writes: u64,
    digest: RowDigest,
    /// Digest of the rows of sources. Earlier programs of this format did not have it and do not change it.
    sources: RowDigest,
}

impl ContentCounters {
    /// Head of the log that has these counters.
    fn head(&self) -> LogHead {
        let RowDigest { rows, sum } = self.digest.union(self.sources);
        LogHead {
            sequence: self.writes,
            rows,
            checksum: sum,
        }
    }
}

/// Store that is open: its header and its B-tree.
#[derive(Debug)]
pub(super) struct StoreTree {
    bytes: Arc<dyn StorageBackend>,
    pub(super) header: StoreHeader,
    /// Open database; `None`: it is being closed.
    database: Option<Database>,
    /// False if the server that had the store open before did not close it.
    pub(super) was_closed: bool,
    /// True after an error: what the disk holds is not known.
    failed: bool,
}

impl StoreTree {
    /// Makes an empty store in bytes that are empty, and flushes it.
    pub(super) fn make(bytes: &Arc<dyn StorageBackend>, id: StoreId) -> Result<(), TreeError> {
        bytes.set_len(HEADER_BYTES)?;
        let database = Builder::new().create_with_backend(TreeBytes(Arc::clone(bytes)))?;
        let transaction = database.begin_write()?;
        transaction.open_table(RESERVATIONS)?;
        transaction.open_table(TOMBSTONES)?;
        transaction.open_table(ASSUMPTIONS)?;
        transaction.open_table(POLICIES)?;
        transaction.open_table(POLICY_FILES)?;
        transaction.open_table(SOURCES)?;
        write_counters(&transaction, ContentCounters::default())?;
        transaction.commit()?;
        database.close()?;
        // Both slots are valid from the beginning.
        let mut header = StoreHeader::new(id);
        header.write(&**bytes)?;
        header.write(&**bytes)?;
        bytes.sync_data()?;
        Ok(())
    }

    /// Opens a store, and checks every page of it.
    pub(super) fn open(place: &str, bytes: Arc<dyn StorageBackend>) -> Result<Self, StoreError> {
        let at_place = |error: TreeError| error.at(place);
        let header = StoreHeader::read(&*bytes).map_err(|error| header_error(place, error))?;
        let database = open_checked(&bytes).map_err(at_place)?;
        let mut tree = Self {
            bytes,
            header,
            database: Some(database),
            was_closed: header.closed,
            failed: false,
        };
        tree.begin_use().map_err(at_place)?;
        Ok(tree)
    }

    /// Compares the B-tree with the header, and marks the store as open.
    fn begin_use(&mut self) -> Result<(), TreeError> {
        let transaction = self.database()?.begin_read()?;
        let ContentCounters { writes, .. } = read_counters(&transaction)?;
        drop(transaction);
        if writes < self.header.acknowledged {
            self.failed = true;
            let lost = format!(
                "it ends with write {writes}, and write {} was acknowledged",
                self.header.acknowledged
            );
            return Err(TreeError::Damaged(lost));
        }
        self.header.closed = false;
        Ok(self.header.write(&*self.bytes)?)
    }

    fn database(&self) -> Result<&Database, TreeError> {
        let closed = TreeError::Database(redb::Error::DatabaseClosed);
        self.database.as_ref().ok_or(closed)
    }

    /// Head of the log.
    pub(super) fn head(&self) -> Result<LogHead, TreeError> {
        Ok(read_counters(&self.database()?.begin_read()?)?.head())
    }

    /// Writes in order, all or none, and flushes, if the head is the expected one. The write is not acknowledged yet.
    pub(super) fn append(&mut self, expected: &LogHead, writes: &[StoreWrite]) -> Result<LogHead, TreeError> {
        let database = self.database();
        let written = database.and_then(|database| apply_writes(database, expected, writes));
        self.failed |= !matches!(written, Ok(_) | Err(TreeError::Stale));
        written
    }

    /// Records that a write is going to be acknowledged. The next flush makes the record durable.
    pub(super) fn acknowledge(&mut self, number: u64) -> Result<(), TreeError> {
        self.header.acknowledged = number;
        let recorded = self.header.write(&*self.bytes);
        self.failed |= recorded.is_err();
        Ok(recorded?)
    }

    /// Complete content, checked row by row, and the head.
    pub(super) fn load(&self) -> Result<(StoredState, LogHead), TreeError> {
        let transaction = self.database()?.begin_read()?;
        let counters = read_counters(&transaction)?;
        let (mut state, mut digest) = load_state(&transaction)?;
        let mut expected = counters.digest;
        if digest == expected {
            (digest, expected) = (load_sources(&transaction, &mut state)?, counters.sources);
        }
        if digest == expected {
            return Ok((state, counters.head()));
        }
        let message = format!(
            "it has {} rows, and their digest is not that of the {} that were written",
            digest.rows, expected.rows
        );
        Err(TreeError::Damaged(message))
    }

    /// Closes the database without a word about it in the header: the store may not be what was written.
    pub(super) fn abandon(mut self) {
        self.failed = true;
    }
}

impl Drop for StoreTree {
    fn drop(&mut self) {
        let Some(database) = self.database.take() else {
            return;
        };
        let closed = database.close();
        if closed.is_ok() && !self.failed {
            self.header.closed = true;
            // A header that cannot be written says that the store was not closed, which is safe.
            let _ = self.header.write(&*self.bytes).and_then(|()| self.bytes.sync_data());
        }
    }
}

fn open_checked(bytes: &Arc<dyn StorageBackend>) -> Result<Database, TreeError> {
    let opened = Builder::new()
        .set_check_integrity_on_open(true)
        .create_with_backend(TreeBytes(Arc::clone(bytes)));
    Ok(opened?)
}

fn header_error(place: &str, error: HeaderError) -> StoreError {
    let place = place.to_owned();
    match error {
        HeaderError::Disk(error) => StoreError::Failed {
            place,
            message: error.to_string(),
        },
        HeaderError::Format(found) => StoreError::Format {
            place,
            found: found.into(),
            known: super::header::FORMAT.into(),
        },
        HeaderError::Damaged(what) => StoreError::Damaged {
            place,
            what: what.to_owned(),
        },
    }
}

fn read_counters(transaction: &ReadTransaction) -> Result<ContentCounters, TreeError> {
    let meta = transaction.open_table(META)?;
    counters_of(&meta)
}

fn counters_of(meta: &impl ReadableTable<&'static str, u64>) -> Result<ContentCounters, TreeError> {
    let number = |name: &str| -> Result<u64, TreeError> {
        let stored = meta.get(name)?.map(|stored| stored.value());
        stored.ok_or_else(|| TreeError::Damaged(format!("it does not say its `{name}`")))
    };
    Ok(ContentCounters {
        writes: number("writes")?,
        digest: RowDigest {
            rows: number("rows")?,
            sum: number("digest")?,
        },
        sources: RowDigest {
            rows: number("source_rows").unwrap_or_default(),
            sum: number("source_digest").unwrap_or_default(),
        },
    })
}

fn write_counters(transaction: &WriteTransaction, counters: ContentCounters) -> Result<(), TreeError> {
    let mut meta = transaction.open_table(META)?;
    meta.insert("writes", counters.writes)?;
    meta.insert("rows", counters.digest.rows)?;
    meta.insert("digest", counters.digest.sum)?;
    meta.insert("source_rows", counters.sources.rows)?;
    meta.insert("source_digest", counters.sources.sum)?;
    Ok(())
}

fn apply_writes(database: &Database, expected: &LogHead, writes: &[StoreWrite]) -> Result<LogHead, TreeError> {
    let transaction = database.begin_write()?;
    let mut counters = counters_of(&transaction.open_table(META)?)?;
    if counters.head() != *expected {
        transaction.abort()?;
        return Err(TreeError::Stale);
    }
    counters.writes += 1;
    {
        let mut tables = OpenTables {
            reservations: transaction.open_table(RESERVATIONS)?,
            tombstones: transaction.open_table(TOMBSTONES)?,
            assumptions: transaction.open_table(ASSUMPTIONS)?,
            policies: transaction.open_table(POLICIES)?,
            policy_files: transaction.open_table(POLICY_FILES)?,
            sources: transaction.open_table(SOURCES)?,
            digest: counters.digest,
            source_digest: counters.sources,
        };
        for write in writes {
            tables.apply(write)?;
        }
        (counters.digest, counters.sources) = (tables.digest, tables.source_digest);
    }
    write_counters(&transaction, counters)?;
    transaction.commit()?;
    Ok(counters.head())
}

/// Tables of a write under way, and the digest of their rows.
struct OpenTables<'t> {
    reservations: Table<'t, &'static str, &'static [u8]>,
    tombstones: Table<'t, &'static str, &'static [u8]>,
    assumptions: Table<'t, &'static str, &'static [u8]>,
    policies: Table<'t, (&'static str, u64), &'static [u8]>,
    policy_files: Table<'t, &'static str, &'static [u8]>,
    sources: Table<'t, &'static str, &'static [u8]>,
    digest: RowDigest,
    source_digest: RowDigest,
}

impl OpenTables<'_> {
    fn apply(&mut self, write: &StoreWrite) -> Result<(), TreeError> {
        match write {
            StoreWrite::Job {
                job,
                reservation,
                tombstone,
            } => {
                let body = reservation.as_deref().map(format::encode_reservation);
                let row = sealed(RowTable::Reservations, &**job, body);
                replace(&mut self.reservations, &**job, row.as_deref(), &mut self.digest)?;
                let body = tombstone.as_deref().map(format::encode_tombstone);
                let row = sealed(RowTable::Tombstones, &**job, body);
                replace(&mut self.tombstones, &**job, row.as_deref(), &mut self.digest)
            }
            StoreWrite::Task { task, assumption, .. } => {
                let body = assumption.as_deref().map(format::encode_assumption);
                let row = sealed(RowTable::Assumptions, &**task, body);
                replace(&mut self.assumptions, &**task, row.as_deref(), &mut self.digest)
            }
            StoreWrite::Policy(policy) => {
                let (name, version) = (&*policy.name, policy.version);
                let body = Some(format::encode_policy(policy));
                let row = sealed(RowTable::Policies, RowKey { name, version }, body);
                replace(&mut self.policies, (name, version), row.as_deref(), &mut self.digest)
            }
            StoreWrite::RemovePolicy { name, version } => {
                replace(&mut self.policies, (&**name, *version), None, &mut self.digest)
            }
            StoreWrite::PolicyFile { name, content } => {
                let body = content.as_deref().map(|content| content.as_bytes().to_vec());
                let row = sealed(RowTable::PolicyFiles, &**name, body);
                replace(&mut self.policy_files, &**name, row.as_deref(), &mut self.digest)
            }
            StoreWrite::Source { name, is_awaited } => {
                let row = sealed(RowTable::Sources, &**name, is_awaited.then(Vec::new));
                replace(&mut self.sources, &**name, row.as_deref(), &mut self.source_digest)
            }
        }
    }
}

fn sealed<'k>(table: RowTable, key: impl Into<RowKey<'k>>, body: Option<Vec<u8>>) -> Option<Vec<u8>> {
    let key = key.into();
    body.map(|body| seal(table, &key, &body))
}

/// Replaces a row. `None` removes the previous row.
fn replace<'k, K: Key>(
    table: &mut Table<'_, K, &'static [u8]>,
    key: impl std::borrow::Borrow<K::SelfType<'k>>,
    row: Option<&[u8]>,
    digest: &mut RowDigest,
) -> Result<(), TreeError> {
    let old = match row {
        Some(row) => table.insert(key, row)?,
        None => table.remove(key)?,
    };
    if let Some(old) = old {
        digest.remove(old.value());
    }
    if let Some(row) = row {
        digest.add(row);
    }
    Ok(())
}

fn load_state(transaction: &ReadTransaction) -> Result<(StoredState, RowDigest), TreeError> {
    let (mut state, mut digest) = (StoredState::default(), RowDigest::default());
    read_rows(
        transaction,
        (RESERVATIONS, RowTable::Reservations),
        &mut digest,
        |job, body| {
            state
                .reservations
                .push(Arc::new(format::decode_reservation(job, body)?));
            Ok(())
        },
    )?;
    read_rows(
        transaction,
        (TOMBSTONES, RowTable::Tombstones),
        &mut digest,
        |job, body| {
            state.tombstones.push(Arc::new(format::decode_tombstone(job, body)?));
            Ok(())
        },
    )?;
    read_rows(
        transaction,
        (ASSUMPTIONS, RowTable::Assumptions),
        &mut digest,
        |task, body| {
            state.assumptions.push(Arc::new(format::decode_assumption(task, body)?));
            Ok(())
        },
    )?;
    read_rows(
        transaction,
        (POLICY_FILES, RowTable::PolicyFiles),
        &mut digest,
        |name, body| {
            let content = std::str::from_utf8(body).map_err(|error| format!("the policy file of `{name}`: {error}"))?;
            state.policy_files.push((name.into(), content.into()));
            Ok(())
        },
    )?;
    for entry in transaction.open_table(POLICIES)?.iter()? {
        let (key, row) = entry?;
        let (name, version) = key.value();
        digest.add(row.value());
        let body = unseal(RowTable::Policies, &RowKey { name, version }, row.value()).map_err(TreeError::Damaged)?;
        let policy = format::decode_policy(name, version, body).map_err(TreeError::Damaged)?;
        state.policies.push(policy);
    }
    Ok((state, digest))
}

/// Reads the sources; a store of an earlier program has none.
fn load_sources(transaction: &ReadTransaction, state: &mut StoredState) -> Result<RowDigest, TreeError> {
    let mut digest = RowDigest::default();
    if let Err(redb::TableError::TableDoesNotExist(_)) = transaction.open_table(SOURCES) {
        return Ok(digest);
    }
    read_rows(transaction, (SOURCES, RowTable::Sources), &mut digest, |name, _| {
        state.sources.push(name.into());
        Ok(())
    })?;
    Ok(digest)
}

/// Reads the rows of a table, each checked.
fn read_rows(
    transaction: &ReadTransaction,
    (definition, table): (NamedRows, RowTable),
    digest: &mut RowDigest,
    mut read: impl FnMut(&str, &[u8]) -> Result<(), String>,
) -> Result<(), TreeError> {
    for entry in transaction.open_table(definition)?.iter()? {
        let (key, row) = entry?;
        digest.add(row.value());
        let body = unseal(table, &key.value().into(), row.value()).map_err(TreeError::Damaged)?;
        read(key.value(), body).map_err(TreeError::Damaged)?;
    }
    Ok(())
}
