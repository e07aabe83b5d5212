//! Reading the whole content: the newest snapshot, and the entries after it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::core::PartialObjectMeta;
use pumice_state::store::{LogPlace as _, StoreError, StoredContent};

use crate::link::ApiError;
use crate::names::{LogObjectKind, LogRoot, bytes_of, sequence_of};
use crate::read::{EntryRead, SlotLog};
use crate::slots::{SlotRead, expected_sequence};

/// Number of times that a content is read again because a newer snapshot took the place of what was being read.
const MAX_LOADS: usize = 8;

/// Slots of a list, each as it could be read, or what is wrong with it.
type ListedSlots = BTreeMap<u64, Result<SlotRead, String>>;

/// Content as far as the log can be read.
pub(crate) struct ReadableContent {
    pub(crate) content: StoredContent,
    /// Problem that keeps it from being all: its text, and its slots.
    pub(crate) problem: Option<(String, Vec<u64>)>,
}

impl SlotLog {
    /// The whole content. An empty one: the log has not been made.
    pub(crate) async fn load_content(&self) -> Result<StoredContent, StoreError> {
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
        let Some((root, read)) = self.load_readable().await? else {
            return Ok(None);
        };
        match read.problem {
            None => Ok(Some(read.content)),
            Some((what, _)) if self.is_newest_root(&root).await? => Err(self.link.damaged(&what)),
            Some(_) => Ok(None),
        }
    }

    /// The content as far as the entries follow each other, with the root that it began at; `None`: a newer snapshot took the place of
    /// what was being read.
    pub(crate) async fn load_readable(&self) -> Result<Option<(LogRoot, ReadableContent)>, StoreError> {
        let Some((_, root)) = self.root().await? else {
            self.check_absent().await?;
            let (content, problem) = (StoredContent::default(), None);
            return Ok(Some((LogRoot::empty(), ReadableContent { content, problem })));
        };
        let Some(mut content) = self.load_snapshot(&root).await? else {
            return Ok(None);
        };
        let Some(mut listed) = self.list_contents().await? else {
            return Ok(None);
        };
        loop {
            let sequence = content.head().sequence + 1;
            let slot = self.slot_of(sequence);
            let read = listed.get_mut(&slot).and_then(|read| read.as_mut().ok());
            let Some(value) = read
                .filter(|read| read.version.sequence == sequence)
                .and_then(|read| read.value.take())
            else {
                break;
            };
            match self.read_entry(sequence, value).await? {
                EntryRead::Entry(entry) => self.apply_checked(&mut content, &entry)?,
                EntryRead::Damaged(what) => {
                    listed.insert(slot, Err(what));
                    break;
                }
                EntryRead::PartGone if self.is_newest_root(&root).await? => {
                    listed.insert(slot, Err(format!("a part of entry {sequence} is missing")));
                    break;
                }
                EntryRead::PartGone => return Ok(None),
            }
        }
        let problem = self.problem_of_slots(&listed, content.head().sequence);
        Ok(Some((root, ReadableContent { content, problem })))
    }

    /// Checks that a log without a root was not made: no slot has had an entry.
    async fn check_absent(&self) -> Result<(), StoreError> {
        let listed = self.link.list_metadata(LogObjectKind::Slot).await;
        let (listed, _) = listed.map_err(|error| self.link.error(&error))?;
        let has_entry = |object: &PartialObjectMeta<ConfigMap>| {
            let name = object.metadata.name.as_deref().unwrap_or_default();
            let is_slot = self.link.names.slot_number(name).is_some();
            is_slot && sequence_of(&object.metadata).is_none_or(|sequence| sequence > 0)
        };
        if listed.iter().any(has_entry) {
            let root = self.link.names.root();
            return Err(self
                .link
                .damaged(&format!("its root {root} is missing, and its slots are there")));
        }
        Ok(())
    }

    /// Problems of slots, if the log ends with this entry.
    fn problem_of_slots(&self, listed: &ListedSlots, newest: u64) -> Option<(String, Vec<u64>)> {
        let (mut problems, slots) = (Vec::new(), self.slots.slots());
        let next = newest + 1;
        // The slot of the next entry first: it may have been there.
        for slot in (0..slots).map(|slot| (slot + self.slot_of(next)) % slots.max(1)) {
            let (name, expected) = (self.link.names.slot(slot), expected_sequence(slot, newest, slots));
            let is_next = slot == self.slot_of(next);
            let problem = match listed.get(&slot) {
                Some(Ok(read)) if read.version.sequence == expected => continue,
                // A snapshot covers it, and the next lap writes it again.
                Some(Err(_)) if !is_next && expected > 0 && expected <= self.slots.snapshot() => continue,
                Some(Ok(read)) => format!("it says entry {}, and should say {expected}", read.version.sequence),
                Some(Err(what)) => what.clone(),
                None if is_next => format!("entry {next} is missing"),
                None => "it is missing".to_owned(),
            };
            problems.push((slot, format!("{name}: {problem}")));
        }
        let first = problems.first()?.1.clone();
        let text = match problems.len() {
            1 => first,
            count => format!("{first}; and {} more slots", count - 1),
        };
        Some((text, problems.into_iter().map(|(slot, _)| slot).collect()))
    }

    async fn is_newest_root(&self, read: &LogRoot) -> Result<bool, StoreError> {
        let newest = self.root().await?;
        Ok(newest.is_none_or(|(_, root)| root.snapshot == read.snapshot))
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
        let content = StoredContent::from_snapshot(&bytes, head);
        content.map(Some).map_err(|what| self.link.damaged(&what))
    }

    /// Lists all slots at one version of the list; `None`: the version is gone before its end.
    async fn list_contents(&self) -> Result<Option<ListedSlots>, StoreError> {
        let (mut slots, mut continuation) = (ListedSlots::new(), None::<String>);
        loop {
            let page = match self.link.slots_page(continuation.as_deref()).await {
                Ok(page) => page,
                Err(ApiError::Expired(_)) => return Ok(None),
                Err(error) => return Err(self.link.error(&error)),
            };
            for object in page.items {
                let name = object.metadata.name.as_deref().unwrap_or_default();
                let Some(slot) = self.link.names.slot_number(name) else {
                    continue;
                };
                let read = SlotRead::of(&object);
                if let Ok(read) = &read {
                    self.note(slot, &read.version, None)?;
                    self.slots.note_bytes(slot, read.version.sequence, bytes_of(&object));
                }
                slots.insert(slot, read);
            }
            continuation = page.metadata.continue_.filter(|token| !token.is_empty());
            if continuation.is_none() {
                return Ok(Some(slots));
            }
        }
    }
}
