//! Snapshots of the content, and the removal of what they cover.

use k8s_openapi::api::core::v1::ConfigMap;
use pumice_state::store::{LogHead, LogPlace as _, StoreError, StoredContent};
use tokio::time::Instant;

use crate::append::{PART_BYTES, RESOLVE_PAUSE, RESOLVE_TIMEOUTS};
use crate::link::ApiError;
use crate::names::{LogObjectKind, LogRoot, sequence_of};
use crate::read::SlotLog;

/// Number of times that the root is changed again because another server changed it meanwhile.
const MAX_ATTEMPTS: usize = 4;

impl SlotLog {
    /// Waits for a snapshot that covers the entry that a new entry replaces, or writes the snapshot from this content.
    /// Failures are retried for as long as appends are retried: the entry itself has not been written yet.
    pub(crate) async fn cover_slot_of(&self, sequence: u64, content: StoredContent) -> Result<(), StoreError> {
        let until = Instant::now() + self.link.timeout() * RESOLVE_TIMEOUTS;
        loop {
            let error = match self.try_to_cover(sequence, &content).await {
                Ok(()) if self.lap_before(sequence) <= self.slots.snapshot() => return Ok(()),
                Ok(()) => self
                    .link
                    .failed("no snapshot covers the entry whose slot the next one takes"),
                Err(error) => error,
            };
            if Instant::now() + RESOLVE_PAUSE >= until {
                return Err(error);
            }
            tokio::time::sleep(RESOLVE_PAUSE).await;
        }
    }

    async fn try_to_cover(&self, sequence: u64, content: &StoredContent) -> Result<(), StoreError> {
        self.root().await?;
        if self.lap_before(sequence) <= self.slots.snapshot() {
            return Ok(());
        }
        self.make_snapshot(content.clone()).await
    }

    /// Makes a snapshot of a content, and removes the parts of older entries and snapshots.
    pub(crate) async fn make_snapshot(&self, content: StoredContent) -> Result<(), StoreError> {
        let head = content.head();
        if self.is_covered(head).await? {
            return Ok(());
        }
        let encoded = pumice_state::tasks::run_blocking(move || content.to_state().encode(&head)).await;
        let bytes = encoded.map_err(|error| self.link.failed(&error.to_string()))?;
        let mut names = Vec::new();
        for part in bytes.chunks(PART_BYTES) {
            let name = self.link.names.snapshot_part(head.sequence, names.len() as u64);
            let part = (head.sequence, part.to_vec());
            self.create_part(LogObjectKind::SnapshotPart, name.clone(), part)
                .await?;
            names.push(name);
        }
        self.check_made(LogObjectKind::SnapshotPart, &names).await?;
        if self.name_snapshot(head, names.len() as u64).await? {
            self.remove_covered(head.sequence).await?;
        }
        Ok(())
    }

    async fn is_covered(&self, head: LogHead) -> Result<bool, StoreError> {
        let root = self.root().await?;
        Ok(root.is_none_or(|(_, root)| root.snapshot.sequence >= head.sequence))
    }

    /// Names a snapshot in the root; false: there is a newer one.
    async fn name_snapshot(&self, head: LogHead, parts: u64) -> Result<bool, StoreError> {
        let mut last = None;
        for _ in 0..MAX_ATTEMPTS {
            let Some((found, root)) = self.root().await? else {
                return Err(self.link.replaced());
            };
            if root.snapshot.sequence >= head.sequence {
                // A reply that was lost may have been that of this snapshot.
                return Ok(root.snapshot == head);
            }
            let named = LogRoot {
                snapshot: head,
                parts,
                ..root
            };
            let mut object = named.to_object(&self.link.names);
            object.metadata.uid = found.metadata.uid;
            object.metadata.resource_version = found.metadata.resource_version;
            match self.link.replace(&object, 0).await {
                Ok(written) => {
                    let noted = self.slots.note_root(&written, &named);
                    noted.map_err(|_| self.link.replaced())?;
                    return Ok(true);
                }
                Err(ApiError::Throttled(_, wait)) => tokio::time::sleep(wait).await,
                Err(error @ (ApiError::Conflict(_) | ApiError::Unknown { .. })) => {
                    last = Some(error);
                }
                Err(error) => return Err(self.link.error(&error)),
            }
        }
        let last = last.map_or_else(|| "the API server has no time".to_owned(), |error| error.message());
        Err(self.link.failed(&format!("the snapshot was not named: {last}")))
    }

    /// Removes the parts of entries that a snapshot covers, and of the snapshots before it. Readers of them read the newest
    /// snapshot instead.
    async fn remove_covered(&self, snapshot: u64) -> Result<(), StoreError> {
        for (kind, before) in [
            (LogObjectKind::SnapshotPart, snapshot),
            (LogObjectKind::EntryPart, snapshot + 1),
        ] {
            let listed = self.link.list_metadata(kind).await;
            let (listed, _) = listed.map_err(|error| self.link.error(&error))?;
            let old = listed
                .iter()
                .filter(|object| sequence_of(&object.metadata).is_some_and(|sequence| sequence < before));
            for object in old {
                let name = object.metadata.name.as_deref().unwrap_or_default();
                let removed = self.link.delete::<ConfigMap>(name, None).await;
                removed.map_err(|error| self.link.error(&error))?;
            }
        }
        Ok(())
    }
}
