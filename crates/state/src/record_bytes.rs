//! Bytes of records, by source: the bound on what sources make the server hold, however few records they send.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::batch::{Batch, BatchRecord};
use super::limits::StateLimits;
use pumice_engine::model::{
    ClusterState, JobRecord, NodeRecord, QueueRecord, RecordKind, ResourceAmounts, TaskRecord, TextMap,
    UnevaluatedFields,
};

/// Bytes of one amount in a list.
const AMOUNT_BYTES: usize = 16;
/// Bytes of a text beside its characters.
const TEXT_BYTES: usize = 32;

/// Sums of bytes of the records in the state.
#[derive(Debug, Default)]
pub(super) struct SourceBytes {
    by_source: BTreeMap<Arc<str>, usize>,
    total: usize,
}

impl SourceBytes {
    /// Bytes of a source's records.
    pub(super) fn of(&self, source: &str) -> usize {
        self.by_source.get(source).copied().unwrap_or_default()
    }

    /// Puts a record of `after` bytes in the place of one of `before` bytes.
    ///
    /// # Errors
    /// The records of the source, or of all sources, would take too many bytes: name and value of the limit. Records
    /// that become smaller are never refused.
    pub(super) fn replace(
        &mut self,
        source: &Arc<str>,
        before: usize,
        after: usize,
        limits: &StateLimits,
    ) -> Result<(), (&'static str, usize)> {
        if !self.by_source.contains_key(source) {
            self.by_source.insert(Arc::clone(source), 0);
        }
        let Some(own) = self.by_source.get_mut(source) else {
            return Ok(());
        };
        let (own_after, total_after) = (
            (*own + after).saturating_sub(before),
            (self.total + after).saturating_sub(before),
        );
        if after > before && own_after > limits.source_bytes {
            return Err(("source_bytes", limits.source_bytes));
        }
        if after > before && total_after > limits.records_bytes {
            return Err(("records_bytes", limits.records_bytes));
        }
        (*own, self.total) = (own_after, total_after);
        Ok(())
    }

    /// Takes a record away.
    pub(super) fn remove(&mut self, source: &str, bytes: usize) {
        self.total = self.total.saturating_sub(bytes);
        if let Some(own) = self.by_source.get_mut(source) {
            *own = own.saturating_sub(bytes);
            if *own == 0 {
                self.by_source.remove(source);
            }
        }
    }
}

/// Bytes of the records of a batch.
pub(super) fn batch_bytes(batch: &Batch) -> usize {
    batch.put.iter().map(|(record, _)| record_bytes(record)).sum()
}

/// Bytes of a record.
pub(super) fn record_bytes(record: &BatchRecord) -> usize {
    match record {
        BatchRecord::Node(record) => node_bytes(record),
        BatchRecord::Queue(record) => queue_bytes(record),
        BatchRecord::Job(record) => job_bytes(record),
        BatchRecord::Task(record) => task_bytes(record),
    }
}

/// Bytes of a record in the state; zero: it has no such record.
pub(super) fn stored_bytes(state: &ClusterState, kind: RecordKind, name: &str) -> usize {
    let bytes = match kind {
        RecordKind::Node => state.node_by_name(name).map(|entry| node_bytes(&entry.record)),
        RecordKind::Queue => state.queues().get(name).map(|stored| queue_bytes(&stored.record)),
        RecordKind::Job => state.jobs().get(name).map(|stored| job_bytes(&stored.record)),
        RecordKind::Task => state.tasks().get(name).map(|stored| task_bytes(&stored.record)),
    };
    bytes.unwrap_or_default()
}

fn node_bytes(record: &NodeRecord) -> usize {
    let amounts = [
        Some(&record.allocatable),
        record.oversubscription.as_ref(),
        record.unattributed_used.as_ref(),
        record.unattributed_nonzero_used.as_ref(),
    ];
    size_of::<NodeRecord>()
        + record.name.len()
        + record.uid.len()
        + text_bytes(&record.labels)
        + amounts.into_iter().flatten().map(amount_bytes).sum::<usize>()
        + field_bytes(&record.unevaluated_fields)
}

fn queue_bytes(record: &QueueRecord) -> usize {
    let amounts = [&record.capability, &record.deserved, &record.guarantee];
    size_of::<QueueRecord>()
        + record.name.len()
        + record.uid.len()
        + record.parent.len()
        + text_bytes(&record.annotations)
        + amounts.into_iter().flatten().map(amount_bytes).sum::<usize>()
}

fn job_bytes(record: &JobRecord) -> usize {
    size_of::<JobRecord>()
        + record.name.len()
        + record.uid.len()
        + record.queue.len()
        + text_bytes(&record.annotations)
        + record.min_resources.as_ref().map_or(0, amount_bytes)
}

/// Bytes of a task, without those that a committed placement changes.
fn task_bytes(record: &TaskRecord) -> usize {
    let amounts = [&record.limits, &record.nonzero_requests, &record.counted_requests];
    size_of::<TaskRecord>()
        + record.name.len()
        + record.job.len()
        + record.nominated_node.len()
        + text_bytes(&record.annotations)
        + amount_bytes(&record.requests)
        + (amounts.into_iter().flatten())
            .map(|amounts| amount_bytes(amounts))
            .sum::<usize>()
        + field_bytes(&record.unevaluated_fields)
}

fn text_bytes(texts: &TextMap) -> usize {
    let bytes = texts.iter().map(|(name, text)| name.len() + text.len());
    bytes.sum::<usize>() + 2 * TEXT_BYTES * texts.len()
}

fn amount_bytes(amounts: &ResourceAmounts) -> usize {
    AMOUNT_BYTES * amounts.iter().count()
}

fn field_bytes(fields: &UnevaluatedFields) -> usize {
    fields.iter().map(|field| field.len() + TEXT_BYTES).sum()
}
