//! Bytes of a store: a file, or memory in tests.

use std::fmt::Debug;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redb::StorageBackend;

use super::StoreError;
use super::header::{HEADER_BYTES, StoreId};

/// Medium that holds the bytes of one store.
pub(super) trait StoreMedium: Debug + Send {
    /// Opens the bytes of the store. The caller must have closed previously opened bytes.
    ///
    /// # Errors
    /// The bytes do not exist, or another server has opened them.
    fn open(&mut self) -> Result<Arc<dyn StorageBackend>, StoreError>;

    /// Checks that the bytes that were opened are still the store, and complete.
    ///
    /// # Errors
    /// They were moved away, replaced or cut short.
    fn check(&self) -> Result<(), StoreError>;

    /// Receives the identity of the opened store and compares it with the stored identity.
    ///
    /// # Errors
    /// The identities differ: this is a different store.
    fn identify(&mut self, id: StoreId) -> Result<(), StoreError>;
}

#[derive(Debug)]
pub(super) struct StoreFile {
    file: File,
    /// Length that the B-tree has given the file.
    length: AtomicU64,
}

impl StoreFile {
    pub(super) fn new(file: File) -> io::Result<Self> {
        let length = AtomicU64::new(file.metadata()?.len());
        Ok(Self { file, length })
    }

    /// True if this is the metadata of the same file.
    pub(super) fn is_same(&self, other: &Metadata) -> io::Result<bool> {
        let own = self.file.metadata()?;
        Ok((own.dev(), own.ino()) == (other.dev(), other.ino()))
    }

    /// Length that the file must have.
    pub(super) fn expected_length(&self) -> u64 {
        self.length.load(Ordering::Acquire)
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

impl StorageBackend for StoreFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)?;
        self.length.store(len, Ordering::Release);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, offset)
    }
}

/// Bytes behind the header, which belong to the B-tree.
#[derive(Debug)]
pub(super) struct TreeBytes(pub(super) Arc<dyn StorageBackend>);

impl StorageBackend for TreeBytes {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len()?.saturating_sub(HEADER_BYTES))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(behind_header(offset)?, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(behind_header(len)?)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(behind_header(offset)?, data)
    }
}

fn behind_header(offset: u64) -> io::Result<u64> {
    let moved = offset.checked_add(HEADER_BYTES);
    moved.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the offset is beyond any file"))
}
