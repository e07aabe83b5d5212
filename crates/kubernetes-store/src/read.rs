//! Reading the log: slots, entries with their parts, and what follows an entry.

use std::sync::{Arc, OnceLock};

use k8s_openapi::api::core::v1::ConfigMap;
use pumice_state::store::{
    EntryAttempt, EntryValue, LogEntry, LogHead, LogPage, LogPlace as _, StoreError, StoredContent,
};

use crate::KubernetesStoreOptions;
use crate::follower::SlotFollower;
use crate::link::{ApiError, ApiLink};
use crate::names::{LogRoot, bytes_of};
use crate::slots::{SlotRead, SlotTable, SlotVersion};

/// The log in the Kubernetes API, and what this server knows of it. Copies share that.
#[derive(Clone, Debug)]
pub struct SlotLog {
    pub(crate) link: Arc<ApiLink>,
    pub(crate) slots: Arc<SlotTable>,
    pub(crate) options: Arc<KubernetesStoreOptions>,
    /// Number that this server drew at its start.
    pub(crate) server: u64,
    /// Follower, once the log is followed.
    pub(crate) follower: Arc<OnceLock<SlotFollower>>,
}

/// Entry as it could be read.
pub(crate) enum EntryRead {
    Entry(Box<LogEntry>),
    /// A part is gone: a snapshot covers the entry, or it is damaged.
    PartGone,
    Damaged(String),
}

impl SlotLog {
    /// Root of the log: its object and its content. `None`: the log has not been created.
    ///
    /// # Errors
    /// The root cannot be read, or belongs to a different log than an earlier read.
    pub(crate) async fn root(&self) -> Result<Option<(ConfigMap, LogRoot)>, StoreError> {
        let found = self.link.find::<ConfigMap>(&self.link.names.root()).await;
        let Some(object) = found.map_err(|error| self.link.error(&error))? else {
            if self.slots.slots() > 0 {
                return Err(self.link.replaced());
            }
            return Ok(None);
        };
        let root = LogRoot::read(&object).map_err(|what| self.link.damaged(&what))?;
        let noted = self.slots.note_root(&object, &root);
        noted.map_err(|_| self.link.replaced())?;
        Ok(Some((object, root)))
    }

    /// Slot of an entry: its number modulo the number of slots.
    pub(crate) fn slot_of(&self, sequence: u64) -> u64 {
        sequence.checked_rem(self.slots.slots()).unwrap_or_default()
    }

    /// Notes a slot; one of another log is an error.
    pub(crate) fn note(&self, slot: u64, version: &SlotVersion, value: Option<EntryValue>) -> Result<(), StoreError> {
        let noted = self.slots.note(slot, version, value);
        noted.map_err(|_| self.link.replaced())
    }

    /// Newest version of the slot of an entry.
    pub(crate) async fn read_slot(&self, sequence: u64) -> Result<SlotRead, StoreError> {
        let (slot, object) = self.slot_object(sequence).await?;
        let read = SlotRead::of(&object).map_err(|what| self.link.damaged(&what))?;
        self.note(slot, &read.version, None)?;
        Ok(read)
    }

    /// Newest version of the slot of an entry, whatever its bytes are.
    pub(crate) async fn read_version(&self, sequence: u64) -> Result<SlotVersion, StoreError> {
        let (slot, object) = self.slot_object(sequence).await?;
        let version = SlotVersion::of(&object.metadata).map_err(|what| self.link.damaged(&what))?;
        self.note(slot, &version, None)?;
        Ok(version)
    }

    async fn slot_object(&self, sequence: u64) -> Result<(u64, ConfigMap), StoreError> {
        let slot = self.slot_of(sequence);
        let found = self.find_slot(slot).await.map_err(|error| self.link.error(&error))?;
        Ok((slot, found.ok_or_else(|| self.link.replaced())?))
    }

    pub(crate) async fn find_slot(&self, slot: u64) -> Result<Option<ConfigMap>, ApiError> {
        self.link.find::<ConfigMap>(&self.link.names.slot(slot)).await
    }

    /// The entry after a head.
    pub(crate) async fn entry_after(&self, head: LogHead) -> Result<LogPage, StoreError> {
        let sequence = head.sequence + 1;
        if self.slots.slots() == 0 && self.root().await?.is_none() {
            return Ok(LogPage::Entries(Vec::new(), true));
        }
        let value = if let Some(value) = self.slots.take(sequence) {
            value
        } else {
            let read = self.read_slot(sequence).await?;
            let here = read.version.sequence;
            match read.value {
                Some(value) if here == sequence => value,
                _ if here > sequence => return Ok(LogPage::Gone),
                _ => {
                    self.check_lap(sequence, &read.version)?;
                    return Ok(LogPage::Entries(Vec::new(), true));
                }
            }
        };
        match self.read_entry(sequence, value).await? {
            EntryRead::Entry(entry) => Ok(LogPage::Entries(vec![*entry], false)),
            EntryRead::PartGone => Ok(LogPage::Gone),
            EntryRead::Damaged(what) => {
                // A snapshot may have taken the place of an entry that another hand has changed.
                self.root().await?;
                if sequence <= self.slots.snapshot() {
                    return Ok(LogPage::Gone);
                }
                Err(self.link.damaged(&what))
            }
        }
    }

    /// Entry of a value, with its parts.
    pub(crate) async fn read_entry(&self, sequence: u64, value: EntryValue) -> Result<EntryRead, StoreError> {
        let EntryValue {
            author,
            parts,
            mut bytes,
        } = value;
        for part in 0..parts.min(EntryAttempt::MAX_PARTS as u64) {
            let name = self.link.names.entry_part(sequence, &author, part);
            let found = self.link.find::<ConfigMap>(&name).await;
            match found.map_err(|error| self.link.error(&error))? {
                Some(object) => bytes.extend_from_slice(bytes_of(&object)),
                None => return Ok(EntryRead::PartGone),
            }
        }
        Ok(match LogEntry::decode(&bytes) {
            Ok(entry) => EntryRead::Entry(Box::new(entry)),
            Err(what) => EntryRead::Damaged(format!("{}: entry {sequence}: {what}", self.name_of(sequence))),
        })
    }

    /// Name of the slot of an entry.
    pub(crate) fn name_of(&self, sequence: u64) -> String {
        self.link.names.slot(self.slot_of(sequence))
    }

    /// Newest head. It is `known` if no entry follows it.
    pub(crate) async fn head_after(&self, known: LogHead) -> Result<LogHead, StoreError> {
        if self.slots.slots() == 0 {
            if self.root().await?.is_none() {
                return Ok(LogHead::default());
            }
        } else {
            let next = self.read_version(known.sequence + 1).await?;
            if next.sequence <= known.sequence {
                return Ok(known);
            }
        }
        self.newest_head().await
    }

    /// Newest head, by the numbers of all slots.
    async fn newest_head(&self) -> Result<LogHead, StoreError> {
        let newest = self.list_slots().await?.newest;
        if newest == 0 {
            return Ok(LogHead::default());
        }
        let read = self.read_slot(newest).await?;
        let (sequence, value) = (read.version.sequence, read.value);
        let value = value.ok_or_else(|| self.link.damaged(&format!("entry {newest} is missing")))?;
        match self.read_entry(sequence, value).await? {
            EntryRead::Entry(entry) => Ok(entry.after),
            // A snapshot covers it by now, so it is not the newest head; whoever asks reads on.
            EntryRead::PartGone => Ok(LogHead {
                sequence,
                ..LogHead::default()
            }),
            EntryRead::Damaged(what) => Err(self.link.damaged(&what)),
        }
    }

    /// Checks that an entry that this process has applied is in the log still.
    pub(crate) async fn check_applied(&self, sequence: u64) -> Result<(), StoreError> {
        if sequence == 0 || self.slots.slots() == 0 {
            return Ok(());
        }
        if self.read_version(sequence).await?.sequence < sequence {
            return Err(self.link.replaced());
        }
        Ok(())
    }

    /// Applies an entry, and checks that it leads to the head that it names.
    pub(crate) fn apply_checked(&self, content: &mut StoredContent, entry: &LogEntry) -> Result<(), StoreError> {
        let applied = content.apply_checked(entry, &self.options.rules);
        applied.map_err(|what| self.link.damaged(&what))
    }
}
