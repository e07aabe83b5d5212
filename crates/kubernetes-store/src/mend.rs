//! Mending: a snapshot of what a server has takes the place of entries that another hand has changed or removed.

use k8s_openapi::api::core::v1::ConfigMap;
use pumice_state::store::{EntryAuthor, EntryValue, LogPlace as _, StoreError, StoredContent};

use crate::link::ApiError;
use crate::load::ReadableContent;
use crate::names::LogObjectKind;
use crate::read::{EntryRead, SlotLog};
use crate::slots::{SlotRead, expected_sequence};

/// Number of times that a slot is written again because somebody changed it meanwhile.
const MAX_ATTEMPTS: usize = 4;

impl SlotLog {
    /// Covers the damaged slots with a snapshot of a content, and gives them the numbers that belong there. That happens only if the log
    /// proves that no entry follows the content: the slot of the next entry can be read. `is_proved`: the caller knows.
    pub(crate) async fn cover(&self, content: StoredContent, is_proved: bool) -> Result<(), StoreError> {
        let (newest, damaged) = (content.head().sequence, self.slots.damaged());
        if !is_proved {
            if damaged.contains(&self.slot_of(newest + 1)) {
                let name = self.name_of(newest + 1);
                let what = format!(
                    "{name} was changed by another hand, and may have had entry {}",
                    newest + 1
                );
                return Err(self.link.damaged(&what));
            }
            if self.read_version(newest + 1).await?.sequence > newest {
                return Err(self.link.stale());
            }
        }
        self.make_snapshot(content).await?;
        for slot in damaged {
            self.mend_slot(slot, newest).await?;
            self.slots.note_mended(slot);
        }
        Ok(())
    }

    /// Gives a slot the number that belongs there. Its entry is covered, so it needs no bytes.
    async fn mend_slot(&self, slot: u64, newest: u64) -> Result<(), StoreError> {
        let (name, expected) = (
            self.link.names.slot(slot),
            expected_sequence(slot, newest, self.slots.slots()),
        );
        let covered = EntryValue {
            author: EntryAuthor { server: 0, attempt: 0 },
            parts: 0,
            bytes: Vec::new(),
        };
        let bytes = if expected == 0 { Vec::new() } else { covered.encode() };
        let mut object = self
            .link
            .names
            .bytes_object(LogObjectKind::Slot, name.clone(), (expected, bytes));
        let mut last = None;
        for _ in 0..MAX_ATTEMPTS {
            let found = self.link.find::<ConfigMap>(&name).await;
            let written = match found.map_err(|error| self.link.error(&error))? {
                Some(found) if SlotRead::of(&found).is_ok_and(|read| read.version.sequence == expected) => {
                    return Ok(());
                }
                Some(found) => {
                    object.metadata.uid = found.metadata.uid;
                    object.metadata.resource_version = found.metadata.resource_version;
                    self.link.replace(&object, 0).await
                }
                None => self.link.create(&object, 0).await,
            };
            match written {
                Ok(_) => return Ok(()),
                Err(ApiError::Throttled(_, wait)) => tokio::time::sleep(wait).await,
                Err(error) => last = Some(error),
            }
        }
        let last = last.map_or_else(|| "the API server has no time".to_owned(), |error| error.message());
        Err(self.link.failed(&format!("{name} was not mended: {last}")))
    }

    /// Repairs the log of stopped servers.
    pub(crate) async fn repair_slots(&self, accept_loss: bool) -> Result<Vec<String>, StoreError> {
        let Some((_, ReadableContent { content, problem })) = self.load_readable().await? else {
            return Err(self.link.failed("servers write to the log: stop them first"));
        };
        let Some((what, slots)) = problem else {
            return Ok(Vec::new());
        };
        let head = content.head();
        if !accept_loss && self.would_lose(&slots, head.sequence).await? {
            return Err(self.link.failed(&head.loss(&what)));
        }
        for slot in &slots {
            self.slots.note_damaged(*slot);
        }
        self.cover(content, true).await?;
        Ok(vec![
            format!("found: {what}"),
            format!("a snapshot of {head} covers {} slots", slots.len()),
        ])
    }

    /// True if damaged slots may have had, or have, entries after the last one that can be read.
    async fn would_lose(&self, slots: &[u64], newest: u64) -> Result<bool, StoreError> {
        if slots.contains(&self.slot_of(newest + 1)) {
            return Ok(true);
        }
        for slot in slots {
            let found = self.find_slot(*slot).await.map_err(|error| self.link.error(&error))?;
            let read = found.and_then(|found| SlotRead::of(&found).ok());
            let Some(SlotRead {
                version,
                value: Some(value),
            }) = read
            else {
                continue;
            };
            // A number that was raised is not that of the entry.
            let entry = self.read_entry(version.sequence, value).await?;
            if matches!(entry, EntryRead::Entry(entry) if entry.after.sequence > newest) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
