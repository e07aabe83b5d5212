//! Making a log: its slots first, its root last.

use k8s_openapi::api::core::v1::ConfigMap;
use pumice_state::store::{LogHead, StoreError};
use tokio::task::JoinSet;

use crate::link::ApiError;
use crate::names::{LogObjectKind, LogRoot};
use crate::read::SlotAccess;
use crate::slots::SlotVersion;

/// Number of slots that are made at once.
const MADE_AT_ONCE: usize = 8;

impl SlotAccess {
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

    /// Learns the versions of all slots. Returns the version of the list, and the number of the newest entry.
    pub(crate) async fn list_slots(&self) -> Result<(String, u64), StoreError> {
        let selector = self.link.names.selector(LogObjectKind::Slot);
        let listed = self.link.list_metadata(&selector).await;
        let (listed, version_of_list) = listed.map_err(|error| self.link.error(&error))?;
        let mut newest = 0;
        for object in &listed {
            let version = SlotVersion::of(&object.metadata).map_err(|what| self.link.damaged(&what))?;
            let name = object.metadata.name.as_deref().unwrap_or_default();
            if let Some(slot) = self.link.names.slot_number(name) {
                newest = newest.max(version.sequence);
                self.note(slot, &version, None)?;
            }
        }
        if (listed.len() as u64) < self.slots.slots() {
            return Err(self.link.damaged(&format!(
                "it has {} slots, and should have {}",
                listed.len(),
                self.slots.slots()
            )));
        }
        Ok((version_of_list, newest))
    }
}
