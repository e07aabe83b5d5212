//! Reading the whole content: the newest snapshot, and the entries after it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use pumice_state::store::{EntryValue, LogEntry, StoreError, StoredContent, await_service};

use crate::link::ApiError;
use crate::names::{LogObjectKind, LogRoot, bytes_of};
use crate::read::SlotAccess;
use crate::slots::SlotRead;

/// Number of times that a content is read again because a newer snapshot took the place of what was being read.
const MAX_LOADS: usize = 8;

/// Entries after a snapshot, by number, and the number of the newest one.
struct ListedEntries {
    values: BTreeMap<u64, EntryValue>,
    newest: u64,
}

impl SlotAccess {
    /// Waits for the API server, as long as a start does.
    pub(crate) async fn await_service(&self) {
        let root = self.link.names.root();
        let ask = || async {
            match self.link.find::<ConfigMap>(&root).await {
                Err(error @ ApiError::Unknown { .. }) => Some(error.message()),
                Ok(_) | Err(_) => None,
            }
        };
        await_service(&self.link.place(), ask).await;
    }

    /// The whole content. An empty one: the log has not been made.
    pub(crate) async fn load(&self) -> Result<StoredContent, StoreError> {
        for _ in 0..MAX_LOADS {
            if let Some(content) = self.load_once().await? {
                return Ok(content);
            }
        }
        Err(self
            .link
            .failed("snapshots followed each other faster than they could be read: try again"))
    }

    /// The content; `None`: a newer snapshot took the place of what was being read.
    async fn load_once(&self) -> Result<Option<StoredContent>, StoreError> {
        let Some((_, root)) = self.root().await? else {
            return Ok(Some(StoredContent::default()));
        };
        let Some(mut content) = self.load_snapshot(&root).await? else {
            return Ok(None);
        };
        let Some(ListedEntries { mut values, newest }) = self.list_entries(root.snapshot.sequence).await? else {
            return Ok(None);
        };
        let covered = content.head().sequence;
        if newest.saturating_sub(root.slots) > covered {
            return Ok(None);
        }
        for sequence in covered + 1..=newest {
            let value = values
                .remove(&sequence)
                .ok_or_else(|| self.link.damaged(&format!("entry {sequence} is missing")))?;
            match self.read_entry(sequence, value).await? {
                Some(entry) => self.apply_checked(&mut content, &entry)?,
                None => return self.unless_newer(&root, sequence).await,
            }
        }
        Ok(Some(content))
    }

    /// Part of an entry or of a snapshot is gone: `None` if that is because there is a newer snapshot.
    async fn unless_newer(&self, read: &LogRoot, sequence: u64) -> Result<Option<StoredContent>, StoreError> {
        let newest = self.root().await?;
        if newest.is_some_and(|(_, root)| root.snapshot != read.snapshot) {
            return Ok(None);
        }
        Err(self.link.damaged(&format!(
            "a part of entry {sequence}, or of the snapshot up to it, is missing"
        )))
    }

    async fn load_snapshot(&self, root: &LogRoot) -> Result<Option<StoredContent>, StoreError> {
        let head = root.snapshot;
        if head.sequence == 0 {
            return Ok(Some(StoredContent::default()));
        }
        let mut bytes = Vec::new();
        for part in 0..root.parts {
            let name = self.link.names.snapshot_part(head.sequence, part);
            let found = self.link.find::<ConfigMap>(&name).await;
            match found.map_err(|error| self.link.error(&error))? {
                Some(object) => bytes.extend_from_slice(bytes_of(&object)),
                None => return self.unless_newer(root, head.sequence).await,
            }
        }
        let entry = LogEntry::decode(&bytes).map_err(|what| self.link.damaged(&format!("its snapshot: {what}")))?;
        let content = StoredContent::from_writes(&entry.writes, head.sequence);
        if content.head() == head {
            return Ok(Some(content));
        }
        let what = format!("its snapshot has {}, and should have {head}", content.head());
        Err(self.link.damaged(&what))
    }

    /// Lists all slots at one version of the list; `None`: the version is gone before its end.
    async fn list_entries(&self, after: u64) -> Result<Option<ListedEntries>, StoreError> {
        let selector = self.link.names.selector(LogObjectKind::Slot);
        let (mut values, mut newest, mut continuation) = (BTreeMap::new(), 0, None::<String>);
        loop {
            let page = match self.link.page(&selector, continuation.as_deref()).await {
                Ok(page) => page,
                Err(ApiError::Expired(_)) => return Ok(None),
                Err(error) => return Err(self.link.error(&error)),
            };
            for object in page.items {
                let SlotRead { version, value } = SlotRead::of(&object).map_err(|what| self.link.damaged(&what))?;
                let name = object.metadata.name.as_deref().unwrap_or_default();
                let Some(slot) = self.link.names.slot_number(name) else {
                    return Err(self.link.damaged(&format!("{name} is not one of its slots")));
                };
                self.note(slot, &version, None)?;
                newest = newest.max(version.sequence);
                if let Some(value) = value.filter(|_| version.sequence > after) {
                    values.insert(version.sequence, value);
                }
            }
            continuation = page.metadata.continue_.filter(|token| !token.is_empty());
            if continuation.is_none() {
                return Ok(Some(ListedEntries { values, newest }));
            }
        }
    }
}
