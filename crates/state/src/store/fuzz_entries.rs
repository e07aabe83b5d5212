//! Doors for the fuzzer: the readers of rows and of whole store files.

use std::io;
use std::sync::Arc;

use redb::StorageBackend;
use redb::backends::InMemoryBackend;

use super::entry::sealed as seal_entry;
use super::header::{HeaderError, StoreHeader, StoreId};
use super::row::{RowKey, RowTable, seal, unseal};
use super::tree::StoreTree;
use super::{LogEntry, LogHead, StoreError, StoreWrite, StoredState, format};

/// Name of the rows that the fuzzer decodes.
const NAME: &str = "ns/fuzzed";

/// Decodes a row of each table, and encodes what was read; reading it again gives the same.
///
/// # Panics
/// A record changed on its way.
#[expect(clippy::expect_used, reason = "it is what the fuzzer looks for")]
pub fn read_row(table: u8, body: &[u8]) -> Result<(), String> {
    match table % 4 {
        0 => {
            let row = format::decode_reservation(NAME, body)?;
            let again = format::decode_reservation(NAME, &format::encode_reservation(&row)).expect("it was written");
            assert_eq!(row, again);
        }
        1 => {
            let row = format::decode_tombstone(NAME, body)?;
            let again = format::decode_tombstone(NAME, &format::encode_tombstone(&row)).expect("it was written");
            assert_eq!(row, again);
        }
        2 => {
            let row = format::decode_assumption(NAME, body)?;
            let again = format::decode_assumption(NAME, &format::encode_assumption(&row)).expect("it was written");
            assert_eq!(row, again);
        }
        _ => {
            let row = format::decode_policy(NAME, 1, body)?;
            let again = format::decode_policy(NAME, 1, &format::encode_policy(&row)).expect("it was written");
            assert_eq!(row, again);
        }
    }
    Ok(())
}

/// Decodes an entry of a log, encodes it again and checks that a second decoding is equal.
///
/// # Errors
/// The bytes are not a valid entry.
///
/// # Panics
/// An entry changed on its way.
#[expect(clippy::expect_used, reason = "it is what the fuzzer looks for")]
pub fn read_entry(bytes: &[u8]) -> Result<(), String> {
    let entry = LogEntry::decode(bytes)?;
    let again = LogEntry::decode(&entry.encode()).expect("it was written");
    assert_eq!(entry, again);
    Ok(())
}

/// Bytes with a valid checksum of an entry in front. The fuzzer uses them to reach the code behind the checksum.
pub fn sealed_entry(body: &[u8]) -> Vec<u8> {
    seal_entry(body)
}

/// Checks that a sealed row is accepted and that altered bytes are rejected.
///
/// # Panics
/// An altered row is accepted, or an unaltered row is rejected.
pub fn check_seal(row: &[u8], body: &[u8]) {
    let key = RowKey { name: NAME, version: 7 };
    let sealed = seal(RowTable::Policies, &key, body);
    assert_eq!(unseal(RowTable::Policies, &key, &sealed), Ok(body));
    if let Ok(read) = unseal(RowTable::Policies, &key, row) {
        assert_eq!(seal(RowTable::Policies, &key, read), row);
    }
}

/// Bytes of a store file with this content.
///
/// # Errors
/// The content cannot be written.
pub fn store_bytes(writes: &[StoreWrite]) -> Result<Vec<u8>, String> {
    let backend = Arc::new(InMemoryBackend::new());
    let bytes: Arc<dyn StorageBackend> = Arc::<InMemoryBackend>::clone(&backend);
    let place = "memory";
    StoreTree::make(&bytes, StoreId(1)).map_err(|error| error.at(place).to_string())?;
    let mut tree = StoreTree::open(place, bytes).map_err(|error| error.to_string())?;
    let appended = tree.append(&LogHead::default(), writes);
    let head = appended.map_err(|error| error.at(place).to_string())?;
    tree.acknowledge(head.sequence)
        .map_err(|error| error.at(place).to_string())?;
    drop(tree);
    let length = backend.len().map_err(|error| error.to_string())?;
    let mut whole = vec![0; usize::try_from(length).map_err(|error| error.to_string())?];
    backend.read(0, &mut whole).map_err(|error| error.to_string())?;
    Ok(whole)
}

/// Loads the content of a store file from bytes.
///
/// # Errors
/// The bytes are not a valid store.
pub fn load_bytes(bytes: &[u8]) -> Result<StoredState, StoreError> {
    let tree = StoreTree::open("the bytes", backend(bytes))?;
    let (state, _) = tree.load().map_err(|error| error.at("the bytes"))?;
    Ok(state)
}

/// Reads the header of a store file.
///
/// # Errors
/// The header is not valid.
pub fn read_header(bytes: &[u8]) -> Result<(), String> {
    match StoreHeader::read(&*backend(bytes)) {
        Ok(_) => Ok(()),
        Err(HeaderError::Disk(error)) => Err(error.to_string()),
        Err(HeaderError::Format(format)) => Err(format!("format {format}")),
        Err(HeaderError::Damaged(what)) => Err(what.to_owned()),
    }
}

fn backend(bytes: &[u8]) -> Arc<dyn StorageBackend> {
    let backend = InMemoryBackend::new();
    // A backend in memory takes every length.
    let _ = backend
        .set_len(bytes.len() as u64)
        .and_then(|()| backend.write(0, bytes));
    Arc::new(FileOfBytes(backend))
}

/// Bytes that end as a file does.
#[derive(Debug)]
struct FileOfBytes(InMemoryBackend);

impl StorageBackend for FileOfBytes {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if offset.saturating_add(out.len() as u64) > self.0.len()? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        // A file grows with a write behind its end.
        let end = offset.saturating_add(data.len() as u64);
        if end > self.0.len()? {
            self.0.set_len(end)?;
        }
        self.0.write(offset, data)
    }
}
