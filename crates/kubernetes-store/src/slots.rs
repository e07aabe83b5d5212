//! Known slots of the log: the version of each slot, and entries from the watch.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pumice_engine::short_lock::ShortLock;
use pumice_state::store::EntryValue;

use crate::names::{LogRoot, bytes_of, sequence_of};

/// Version of a slot, which the next update of it has to name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlotVersion {
    /// Kubernetes uid of the object. A different uid belongs to another log.
    pub(crate) uid: String,
    /// Version of the object.
    pub(crate) version: String,
    /// Number of its entry; 0: it has had none.
    pub(crate) sequence: u64,
}

impl SlotVersion {
    /// Version of an object.
    ///
    /// # Errors
    /// The object is not a slot.
    pub(crate) fn of(metadata: &ObjectMeta) -> Result<Self, String> {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let name = text(&metadata.name);
        let sequence = sequence_of(metadata).ok_or_else(|| format!("{name} has no number"))?;
        Ok(Self {
            uid: text(&metadata.uid),
            version: text(&metadata.resource_version),
            sequence,
        })
    }
}

/// Slot as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SlotRead {
    pub(crate) version: SlotVersion,
    /// Entry in it; `None`: it has had none.
    pub(crate) value: Option<EntryValue>,
}

impl SlotRead {
    /// Slot of an object.
    ///
    /// # Errors
    /// The object is not a slot, or its entry is cut short.
    pub(crate) fn of(object: &ConfigMap) -> Result<Self, String> {
        let version = SlotVersion::of(&object.metadata)?;
        let value = match version.sequence {
            0 => None,
            sequence => {
                let value = EntryValue::decode(bytes_of(object));
                Some(value.ok_or_else(|| format!("entry {sequence} is cut short"))?)
            }
        };
        Ok(Self { version, value })
    }
}

/// Number of the last entry up to `newest` that belongs into a slot; 0: none does.
pub(crate) fn expected_sequence(slot: u64, newest: u64, slots: u64) -> u64 {
    let later = (newest % slots.max(1) + slots).saturating_sub(slot) % slots.max(1);
    newest.saturating_sub(later)
}

/// Versions of the log's objects, as far as they are known.
#[derive(Debug, Default)]
struct KnownObjects {
    /// Slots whose objects another hand has changed.
    damaged: BTreeSet<u64>,
    root_uid: String,
    /// Number of the last entry of the newest snapshot, at least.
    snapshot: u64,
    slots: Vec<KnownSlot>,
}

#[derive(Clone, Debug, Default)]
struct KnownSlot {
    version: SlotVersion,
    /// Checksum of the bytes with that number, if they were seen.
    checksum: Option<u64>,
    /// Entry that has not been applied yet.
    value: Option<EntryValue>,
}

/// Known objects of the log, shared by the writer and the follower.
#[derive(Debug, Default)]
pub(crate) struct SlotTable(ShortLock<KnownObjects>);

/// Error: the uid of an object has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OtherLog;

impl SlotTable {
    /// Forgets everything: the log is read from its beginning.
    pub(crate) fn clear(&self) {
        let former = self.0.with(std::mem::take);
        drop(former);
    }

    /// Number of slots. 0: the log has not been created or not been read yet.
    pub(crate) fn slots(&self) -> u64 {
        self.0.with(|known| known.slots.len() as u64)
    }

    /// Number of the last entry that a snapshot covers, at least.
    pub(crate) fn snapshot(&self) -> u64 {
        self.0.with(|known| known.snapshot)
    }

    /// Stores the root of the log.
    ///
    /// # Errors
    /// The object belongs to another log.
    pub(crate) fn note_root(&self, object: &ConfigMap, root: &LogRoot) -> Result<(), OtherLog> {
        let uid = object.metadata.uid.as_deref().unwrap_or_default();
        self.0.with(|known| {
            if known.slots.is_empty() {
                uid.clone_into(&mut known.root_uid);
                let count = usize::try_from(root.slots).unwrap_or_default();
                known.slots = vec![KnownSlot::default(); count];
            }
            if known.root_uid != uid || known.slots.len() as u64 != root.slots {
                return Err(OtherLog);
            }
            known.snapshot = known.snapshot.max(root.snapshot.sequence);
            Ok(())
        })
    }

    /// Stores a slot. A version older than the stored version is ignored.
    ///
    /// # Errors
    /// The object belongs to another log.
    pub(crate) fn note(&self, slot: u64, version: &SlotVersion, value: Option<EntryValue>) -> Result<(), OtherLog> {
        self.0.with(|known| {
            let Some(known) = index(slot).and_then(|slot| known.slots.get_mut(slot)) else {
                return Ok(());
            };
            if !known.version.uid.is_empty() && known.version.uid != version.uid {
                return Err(OtherLog);
            }
            if version.sequence >= known.version.sequence {
                let is_new = version.sequence > known.version.sequence;
                known.version = version.clone();
                if is_new {
                    (known.value, known.checksum) = (value, None);
                }
            }
            Ok(())
        })
    }

    /// Notes the bytes of a slot with the number of their entry. False: the entry had other bytes before.
    pub(crate) fn note_bytes(&self, slot: u64, sequence: u64, bytes: &[u8]) -> bool {
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        let checksum = hasher.finish();
        self.0.with(|known| {
            let Some(known) = index(slot).and_then(|slot| known.slots.get_mut(slot)) else {
                return true;
            };
            if known.version.sequence != sequence {
                return true;
            }
            *known.checksum.get_or_insert(checksum) == checksum
        })
    }

    /// Notes a slot whose object another hand has changed.
    pub(crate) fn note_damaged(&self, slot: u64) {
        self.0.with(|known| known.damaged.insert(slot));
    }

    /// Slots whose objects another hand has changed.
    pub(crate) fn damaged(&self) -> Vec<u64> {
        self.0.with(|known| known.damaged.iter().copied().collect())
    }

    /// Forgets a damaged slot, and what was known of it.
    pub(crate) fn note_mended(&self, slot: u64) {
        let former = self.0.with(|known| {
            known.damaged.remove(&slot);
            let known = index(slot).and_then(|slot| known.slots.get_mut(slot));
            known.map(std::mem::take)
        });
        drop(former);
    }

    /// Version of a slot; `None`: it is not known.
    pub(crate) fn version(&self, slot: u64) -> Option<SlotVersion> {
        self.0.with(|known| {
            let known = known.slots.get(index(slot)?)?;
            (!known.version.uid.is_empty()).then(|| known.version.clone())
        })
    }

    /// Takes the entry of this number, if the watch brought it.
    pub(crate) fn take(&self, sequence: u64) -> Option<EntryValue> {
        self.0.with(|known| {
            let slot = sequence.checked_rem(known.slots.len() as u64)?;
            let known = known.slots.get_mut(index(slot)?)?;
            known.value.take_if(|_| known.version.sequence == sequence)
        })
    }

    /// Drops entries up to this number: they are applied.
    pub(crate) fn drop_applied(&self, sequence: u64) {
        let dropped: Vec<EntryValue> = self.0.with(|known| {
            let applied = known.slots.iter_mut().filter(|slot| slot.version.sequence <= sequence);
            applied.filter_map(|slot| slot.value.take()).collect()
        });
        drop(dropped);
    }
}

fn index(slot: u64) -> Option<usize> {
    usize::try_from(slot).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pumice_state::store::EntryAuthor;

    fn version(uid: &str, sequence: u64) -> SlotVersion {
        SlotVersion {
            uid: uid.to_owned(),
            version: format!("v{sequence}"),
            sequence,
        }
    }

    #[test]
    fn each_slot_has_the_last_entry_that_belongs_into_it() {
        let numbers = |newest| [0, 1, 2, 3].map(|slot| expected_sequence(slot, newest, 4));
        assert_eq!(numbers(0), [0, 0, 0, 0]);
        assert_eq!(numbers(2), [0, 1, 2, 0]);
        assert_eq!(numbers(9), [8, 9, 6, 7]);
    }

    #[test]
    fn a_slot_goes_forward_only_and_stays_that_of_its_log() {
        let (table, names) = (SlotTable::default(), crate::names::LogNames::new("a"));
        let root = LogRoot {
            slots: 4,
            snapshot: pumice_state::store::LogHead::default(),
            parts: 0,
        };
        let mut object = root.to_object(&names);
        object.metadata.uid = Some("r".to_owned());
        table.note_root(&object, &root).unwrap();
        let value = EntryValue {
            author: EntryAuthor { server: 1, attempt: 1 },
            parts: 0,
            bytes: vec![7],
        };
        assert_eq!(table.version(1), None);
        table.note(1, &version("u", 1), None).unwrap();
        table.note(1, &version("u", 5), Some(value.clone())).unwrap();
        // A watch that lags behind.
        table.note(1, &version("u", 1), None).unwrap();
        assert_eq!(table.version(1), Some(version("u", 5)));
        assert_eq!(table.note(1, &version("w", 9), None), Err(OtherLog));
        assert_eq!((table.take(1), table.take(5), table.take(5)), (None, Some(value), None));
        object.metadata.uid = Some("s".to_owned());
        assert_eq!(table.note_root(&object, &root), Err(OtherLog));
        table.clear();
        assert_eq!(table.slots(), 0);
        table.note_root(&object, &root).unwrap();
        assert_eq!(table.version(1), None);
    }
}
