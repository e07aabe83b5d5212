//! Snapshots of the content, and the removal of entries that are no longer needed.

use prost::Message as _;
use pumice_state::store::{LogPlace as _, StoreError, StoredContent};

use crate::access::{EtcdLog, PART_BYTES};
use crate::api::TxnRequest;
use crate::keys::{ReplicaRecord, SnapshotRecord};
use crate::link::{delete, has_version, is_absent, put, was_changed_at};

/// Maximum number of servers whose progress is read.
const MAX_REPLICAS: i64 = 1_000;
/// Number of intervals of snapshots that a server may be behind before its entries go: it reads the content then.
const MAX_INTERVALS_BEHIND: u64 = 16;

impl EtcdLog {
    /// Makes a snapshot of a content, and removes the entries that every server has applied and that the snapshot covers.
    pub(crate) async fn make_snapshot(&self, content: StoredContent) -> Result<(), StoreError> {
        let head = content.head();
        let known = self.link.range((self.keys.snapshot(), Vec::new()), 1, 0).await;
        let known = known.map_err(|error| self.error(&error))?.kvs.into_iter().next();
        let newest = known.as_ref().and_then(|known| SnapshotRecord::read(&known.value).ok());
        if newest.is_some_and(|(_, newest)| newest.sequence >= head.sequence) {
            return Ok(());
        }
        let record = self.write_snapshot_parts(content).await?;
        let key = self.keys.snapshot();
        let compare = match known {
            None => is_absent(key.clone()),
            Some(known) => was_changed_at(key.clone(), known.mod_revision),
        };
        let named = TxnRequest {
            compare: vec![compare],
            success: vec![put(key, record, 0)],
            ..TxnRequest::default()
        };
        let named = self.link.transact(named).await.map_err(|error| self.error(&error))?;
        if !named.succeeded {
            // Another server made a snapshot meanwhile.
            return Ok(());
        }
        let needed = self.least_applied(head.sequence).await?;
        let removal = TxnRequest {
            success: vec![
                delete(self.keys.entries(0, Some(needed + 1))),
                delete(self.keys.older_entry_parts(needed + 1)),
                delete(self.keys.older_snapshots(head.sequence)),
            ],
            ..TxnRequest::default()
        };
        self.link.transact(removal).await.map_err(|error| self.error(&error))?;
        Ok(())
    }

    /// Writes the parts of a snapshot. Returns the record that names them.
    async fn write_snapshot_parts(&self, content: StoredContent) -> Result<Vec<u8>, StoreError> {
        let head = content.head();
        let encoded = pumice_state::tasks::run_blocking(move || content.to_state().encode(&head)).await;
        let bytes = encoded.map_err(|error| self.failed(&error.to_string()))?;
        let mut parts = 0;
        for part in bytes.chunks(PART_BYTES) {
            self.write_one(self.keys.snapshot_part(head.sequence, parts), part.to_vec())
                .await?;
            parts += 1;
        }
        let head = head.encode();
        Ok(SnapshotRecord { head, parts }.encode_to_vec())
    }

    /// Puts a snapshot of a content in the place of all entries up to it, whatever they are, and its head in the place of the head. That
    /// happens only if the log proves that no entry follows: its head is that of the content, or the head cannot be read, and the last
    /// entry of the content is there and no later one. `is_proved`: the caller knows.
    pub(crate) async fn cover(&self, content: StoredContent, is_proved: bool) -> Result<(), StoreError> {
        let head = content.head();
        let (here, next) = (self.keys.entry(head.sequence), self.keys.entry(head.sequence + 1));
        let found = self.link.range((self.keys.head(), Vec::new()), 1, 0).await;
        let found = found.map_err(|error| self.error(&error))?.kvs.into_iter().next();
        let unchanged = match &found {
            None => is_absent(self.keys.head()),
            Some(found) => was_changed_at(self.keys.head(), found.mod_revision),
        };
        let mut compare = vec![unchanged];
        if !is_proved {
            compare.push(is_absent(next));
            match self.decode_head(found.as_ref().map(|found| &*found.value)) {
                Ok(known) if known == head => {}
                Ok(known) if known.sequence > head.sequence => return Err(self.stale()),
                // Only an entry as it was appended proves how far the log has come.
                Ok(_) | Err(_) => compare.push(has_version(here, 1)),
            }
        }
        let end = if is_proved { u64::MAX } else { head.sequence + 1 };
        let record = self.write_snapshot_parts(content).await?;
        let mended = TxnRequest {
            compare,
            success: vec![
                put(self.keys.head(), head.encode(), 0),
                put(self.keys.snapshot(), record, 0),
                delete(self.keys.entries(0, Some(end))),
                delete(self.keys.older_entry_parts(head.sequence + 1)),
                delete(self.keys.older_snapshots(head.sequence)),
            ],
            ..TxnRequest::default()
        };
        let mended = self.link.transact(mended).await.map_err(|error| self.error(&error))?;
        if mended.succeeded {
            return Ok(());
        }
        Err(self.failed("the log does not prove that this server has its newest entry"))
    }

    /// Number of the last entry that all servers have applied, at most the number of the snapshot. Servers that are far
    /// behind are ignored.
    async fn least_applied(&self, snapshot: u64) -> Result<u64, StoreError> {
        let replicas = self.link.range(self.keys.replicas(), MAX_REPLICAS, 0).await;
        let replicas = replicas.map_err(|error| self.error(&error))?.kvs;
        let applied = replicas
            .iter()
            .filter_map(|found| ReplicaRecord::decode(&*found.value).ok());
        let least = applied.map(|record| record.applied).min().unwrap_or(snapshot);
        let oldest = snapshot.saturating_sub(self.options.snapshot_every.saturating_mul(MAX_INTERVALS_BEHIND));
        Ok(least.clamp(oldest, snapshot))
    }
}
