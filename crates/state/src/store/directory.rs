//! Directory of a store: its file, and a second file that records that the store exists.
//!
//! `pumice.id` has the identity of the store; the server locks it while it has the directory open. `pumice.redb` is the
//! store. It is created under another name, flushed and renamed, so it is always complete. Only then `pumice.id` is
//! written: from then on a missing store is an error and is not replaced by an empty store.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::StorageBackend;

use super::StoreError;
use super::header::StoreId;
use super::medium::{StoreFile, StoreMedium};

/// Name of the store's file.
pub(super) const FILE_NAME: &str = "pumice.redb";
/// Name of the store's file while it is made.
const DRAFT_NAME: &str = "pumice.redb.new";
/// Name of the file that names the store.
pub(super) const IDENTITY_NAME: &str = "pumice.id";
/// Text in front of the identity.
const IDENTITY_PREFIX: &str = "pumice store ";
/// Maximum bytes that are read of the file that names the store.
const MAX_IDENTITY_BYTES: u64 = 256;
const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// Directory that holds one store, locked.
#[derive(Debug)]
pub(super) struct StoreDirectory {
    directory: PathBuf,
    /// Open and locked file that names the store.
    identity_file: File,
    /// Store that is known to be here.
    known: Option<StoreId>,
    opened: Option<Arc<StoreFile>>,
}

impl StoreDirectory {
    /// Opens and locks a directory; makes it if it does not exist.
    pub(super) fn open(directory: &Path) -> Result<Self, StoreError> {
        let at_directory = |error| failed(directory, &error);
        make_directory(directory).map_err(at_directory)?;
        let path = directory.join(IDENTITY_NAME);
        let at_file = |error| failed(&path, &error);
        let identity_file = private_options().create(true).open(&path).map_err(at_file)?;
        lock(&identity_file, &directory.join(FILE_NAME))?;
        let known = read_identity(&identity_file).map_err(at_file)?;
        Ok(Self {
            directory: directory.to_owned(),
            identity_file,
            known,
            opened: None,
        })
    }

    /// Path of the store's file.
    pub(super) fn file(&self) -> PathBuf {
        self.directory.join(FILE_NAME)
    }

    /// True if the directory has no store and never had one.
    pub(super) fn is_new(&self) -> Result<bool, StoreError> {
        let file = self.file();
        let exists = file.try_exists().map_err(|error| failed(&file, &error))?;
        Ok(!exists && self.known.is_none())
    }

    /// Makes the store: beside its place, and flushed before it gets its name.
    pub(super) fn make(
        &self,
        make: impl FnOnce(Arc<dyn StorageBackend>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let draft = self.directory.join(DRAFT_NAME);
        let at_draft = |error: io::Error| failed(&draft, &error);
        // A server that was killed may have left half a store.
        match std::fs::remove_file(&draft) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at_draft(error)),
            Err(_) | Ok(()) => {}
        }
        let file = private_options().create_new(true).open(&draft).map_err(at_draft)?;
        let bytes = Arc::new(StoreFile::new(file).map_err(at_draft)?);
        make(Arc::clone(&bytes) as _)?;
        bytes.file().sync_all().map_err(at_draft)?;
        std::fs::rename(&draft, self.file()).map_err(at_draft)?;
        flush_directory(&self.directory).map_err(|error| failed(&self.directory, &error))
    }

    fn place(&self) -> String {
        self.file().display().to_string()
    }

    fn missing(&self) -> StoreError {
        StoreError::Missing { place: self.place() }
    }
}

impl StoreMedium for StoreDirectory {
    fn open(&mut self) -> Result<Arc<dyn StorageBackend>, StoreError> {
        self.opened = None;
        let path = self.file();
        let at_file = |error: io::Error| failed(&path, &error);
        let file = match private_options().open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(self.missing()),
            other => other.map_err(at_file)?,
        };
        // The file may be in use from another directory, if it was moved.
        lock(&file, &path)?;
        let opened = Arc::new(StoreFile::new(file).map_err(at_file)?);
        self.opened = Some(Arc::clone(&opened));
        Ok(opened)
    }

    fn check(&self) -> Result<(), StoreError> {
        let Some(opened) = &self.opened else {
            return Ok(());
        };
        let path = self.file();
        let at_file = |error: io::Error| failed(&path, &error);
        let present = match std::fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(self.missing()),
            other => other.map_err(at_file)?,
        };
        if !opened.is_same(&present).map_err(at_file)? {
            return Err(StoreError::Replaced { place: self.place() });
        }
        let expected = opened.expected_length();
        if present.len() == expected {
            return Ok(());
        }
        Err(StoreError::Damaged {
            place: self.place(),
            what: format!("the file has {} bytes, and should have {expected}", present.len()),
        })
    }

    fn identify(&mut self, id: StoreId) -> Result<(), StoreError> {
        match self.known {
            Some(known) if known == id => Ok(()),
            Some(_) => Err(StoreError::Replaced { place: self.place() }),
            None => {
                let path = self.directory.join(IDENTITY_NAME);
                write_identity(&self.identity_file, id).map_err(|error| failed(&path, &error))?;
                self.known = Some(id);
                Ok(())
            }
        }
    }
}

/// Makes the directory and those above it, private to this user. A directory that exists keeps its mode.
fn make_directory(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        let mode = directory.metadata()?.permissions().mode() & 0o777;
        if mode & !DIRECTORY_MODE != 0 {
            tracing::warn!(
                directory = %directory.display(),
                mode = %format_args!("{mode:o}"),
                "other users may enter the directory of durable state: `chmod 700` keeps them out"
            );
        }
        return Ok(());
    }
    DirBuilder::new()
        .recursive(true)
        .mode(DIRECTORY_MODE)
        .create(directory)?;
    match directory.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => match flush_directory(parent) {
            // This user may make directories there, and not list them.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            flushed => flushed,
        },
        Some(_) | None => Ok(()),
    }
}

fn private_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(FILE_MODE);
    options
}

fn flush_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Locks a file of the store at `place`. The lock ends with the file's last handle.
fn lock(file: &File, place: &Path) -> Result<(), StoreError> {
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => StoreError::InUse {
            place: place.display().to_string(),
        },
        TryLockError::Error(error) => failed(place, &error),
    })
}

/// Reads the file that names the store. `None`: the file is empty.
fn read_identity(mut file: &File) -> io::Result<Option<StoreId>> {
    let mut bytes = Vec::new();
    file.by_ref().take(MAX_IDENTITY_BYTES).read_to_end(&mut bytes)?;
    // A machine that failed while the file was first written may leave zeros.
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    let id = std::str::from_utf8(&bytes)
        .ok()
        .and_then(|text| text.strip_prefix(IDENTITY_PREFIX)?.strip_suffix('\n'))
        .filter(|digits| digits.len() == 16)
        .and_then(|digits| u64::from_str_radix(digits, 16).ok());
    let message = "the file does not name a store; delete it if `pumice.redb` beside it is the right store";
    id.map(|id| Some(StoreId(id)))
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, message))
}

fn write_identity(file: &File, id: StoreId) -> io::Result<()> {
    file.write_all_at(format!("{IDENTITY_PREFIX}{id}\n").as_bytes(), 0)?;
    file.sync_all()
}

pub(super) fn failed(place: &Path, error: &io::Error) -> StoreError {
    StoreError::Failed {
        place: place.display().to_string(),
        message: error.to_string(),
    }
}
