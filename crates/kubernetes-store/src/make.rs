//! Making a log: its slots first, its root last.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ConfigMap;
use pumice_state::store::{LogHead, LogPlace as _, StoreError};
use tokio::task::JoinSet;

use crate::link::ApiError;
use crate::names::{LogObjectKind, LogRoot};
use crate::read::SlotLog;
use crate::slots::{SlotVersion, expected_sequence};

/// Number of slots that are made at once.
const MADE_AT_ONCE: usize = 8;

/// Numbers of the entries in all slots, as a list shows them.
pub(crate) struct SlotNumbers {
    /// Version of the list.
    pub(crate) version: String,
    /// Number of the newest entry.
    pub(crate) newest: u64,
    /// Number by slot; `u64::MAX`: the slot does not say.
    pub(crate) numbers: BTreeMap<u64, u64>,
}

impl SlotLog {
    /// Makes the log if it is not there. What another server has made of it meanwhile is taken over.
    pub(crate) async fn ensure_made(&self, slots: u64) -> Result<(), StoreError> {
        if self.root().await?.is_some() {
            return self.learn_slots().await;
        }
        let (mut making, mut next) = (JoinSet::new(), 0..slots);
        loop {
            while making.len() < MADE_AT_ONCE
                && let Some(slot) = next.next()
            {
                making.spawn(self.clone().make_slot(slot));
            }
            match making.join_next().await {
                Some(made) => made.map_err(|error| self.link.failed(&error.to_string()))??,
                None => break,
            }
        }
        let names: Vec<String> = (0..slots).map(|slot| self.link.names.slot(slot)).collect();
        self.check_made(LogObjectKind::Slot, &names).await?;
        let root = LogRoot {
            slots,
            snapshot: LogHead::default(),
            parts: 0,
        };
        let object = root.to_object(&self.link.names);
        match self.link.create(&object, 0).await {
            Ok(_) | Err(ApiError::Conflict(_) | ApiError::Unknown { .. }) => {}
            Err(error) => return Err(self.link.error(&error)),
        }
        if self.root().await?.is_none() {
            return Err(self.link.failed("the log could not be made: try again"));
        }
        self.learn_slots().await
    }

    /// Checks that a list shows these objects before the root names them: a response that creates an object may prove nothing.
    pub(crate) async fn check_made(&self, kind: LogObjectKind, names: &[String]) -> Result<(), StoreError> {
        let listed = self.link.list_metadata(kind).await;
        let (listed, _) = listed.map_err(|error| self.link.error(&error))?;
        let made: BTreeSet<&str> = listed
            .iter()
            .filter_map(|object| object.metadata.name.as_deref())
            .collect();
        match names.iter().find(|name| !made.contains(&***name)) {
            None => Ok(()),
            Some(missing) => Err(self.link.failed(&format!("{missing} was not made: try again"))),
        }
    }

    /// Creates a slot. An existing slot must not have had an entry.
    async fn make_slot(self, slot: u64) -> Result<(), StoreError> {
        let name = self.link.names.slot(slot);
        let object = self
            .link
            .names
            .bytes_object(LogObjectKind::Slot, name.clone(), (0, Vec::new()));
        // Each attempt but the last one may have lost its reply.
        for _ in 0..3 {
            match self.link.create(&object, 0).await {
                Ok(_) => return Ok(()),
                Err(ApiError::Throttled(_, wait)) => tokio::time::sleep(wait).await,
                Err(ApiError::Unknown { .. }) => {}
                Err(ApiError::Conflict(_)) => break,
                Err(error) => return Err(self.link.error(&error)),
            }
        }
        let found = self.link.get::<ConfigMap>(&name).await;
        let found = found.map_err(|error| self.link.error(&error))?;
        let version = SlotVersion::of(&found.metadata).map_err(|what| self.link.damaged(&what))?;
        // Another server may have made the log meanwhile, and appended.
        if version.sequence == 0 || self.root().await?.is_some() {
            return Ok(());
        }
        Err(self.link.failed(&format!(
            "{name} is left of a log that was removed: remove the rest of it (kubectl delete configmap -l {})",
            self.link.names.all_selector()
        )))
    }

    /// Learns the versions of all slots.
    pub(crate) async fn learn_slots(&self) -> Result<(), StoreError> {
        self.list_slots().await.map(drop)
    }

    /// Learns the versions of all slots. Objects that only have the labels of slots are not of the log.
    pub(crate) async fn list_slots(&self) -> Result<SlotNumbers, StoreError> {
        let listed = self.link.list_metadata(LogObjectKind::Slot).await;
        let (listed, version_of_list) = listed.map_err(|error| self.link.error(&error))?;
        let (mut numbers, slots) = (BTreeMap::new(), self.slots.slots());
        for object in &listed {
            let name = object.metadata.name.as_deref().unwrap_or_default();
            let Some(slot) = self.link.names.slot_number(name).filter(|slot| *slot < slots) else {
                continue;
            };
            match SlotVersion::of(&object.metadata) {
                Ok(version) => {
                    numbers.insert(slot, version.sequence);
                    if version.sequence % slots.max(1) == slot || version.sequence == 0 {
                        self.note(slot, &version, None)?;
                    }
                }
                Err(_) => drop(numbers.insert(slot, u64::MAX)),
            }
        }
        if let Some(missing) = (0..slots).find(|slot| !numbers.contains_key(slot)) {
            let name = self.link.names.slot(missing);
            return Err(self
                .link
                .damaged(&format!("{name} is missing, which is one of its {slots} slots")));
        }
        let newest = newest_of(&numbers, slots);
        for (slot, found) in &numbers {
            if *found != expected_sequence(*slot, newest, slots) {
                self.slots.note_damaged(*slot);
            }
        }
        Ok(SlotNumbers {
            version: version_of_list,
            newest,
            numbers,
        })
    }
}

/// Number of the newest entry: the entry before it is in its slot as well. A number that another hand has raised stands alone.
fn newest_of(numbers: &BTreeMap<u64, u64>, slots: u64) -> u64 {
    let is_there = |sequence: u64| {
        let slot = sequence.checked_rem(slots).unwrap_or_default();
        numbers.get(&slot) == Some(&sequence)
    };
    let follows = |sequence: &&u64| is_there(**sequence) && (**sequence <= 1 || slots == 1 || is_there(**sequence - 1));
    numbers.values().filter(follows).max().copied().unwrap_or_default()
}
