//! Progress of a source: its position, its last outcomes, and the full sync that it is sending.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::batch::{Batch, RecordBasis, SourceKind};
use super::batch_outcome::BatchOutcome;
use super::source_status::SourceCondition;
use pumice_engine::SourcePosition;

/// Epoch, last sequence and pending full sync of a source.
#[derive(Debug, Default)]
pub(crate) struct SourceProgress {
    pub(super) epoch: u64,
    pub(super) sequence: u64,
    /// True if a full sync of this epoch was applied.
    pub(super) complete: bool,
    /// True if a batch was missing at the last batch of the source.
    pub(super) gap: bool,
    /// Time of the last batch.
    pub(super) last_batch: Option<Duration>,
    /// Time of the last batch before which no changes were missing.
    pub(super) heard: Option<Duration>,
    pub(super) outcomes: VecDeque<BatchOutcome>,
    /// Full sync that is being sent.
    pub(super) staged: Option<Batch>,
    pub(super) kind: SourceKind,
    /// Bytes of the records in the state.
    pub(super) bytes: usize,
    /// By what the records in the state were read.
    pub(super) basis: RecordBasis,
    /// Time at which the server stops waiting for the source, which had synced before the start.
    pub(super) awaited_until: Option<Duration>,
}

impl SourceProgress {
    /// Begins the epoch of a batch. The records of the last one stay until the full sync.
    pub(super) fn begin_epoch(&mut self, batch: &Batch, now: Duration) {
        *self = Self {
            epoch: batch.source_epoch,
            last_batch: Some(now),
            heard: Some(now),
            kind: batch.source_kind,
            bytes: self.bytes,
            basis: self.basis,
            awaited_until: self.awaited_until,
            ..Self::default()
        };
    }

    /// Notes that a batch came.
    pub(super) fn note_batch(&mut self, batch: &Batch, now: Duration) {
        self.last_batch = Some(now);
        if !batch.changes_missing {
            self.heard = Some(now);
        }
        self.kind = batch.source_kind;
    }

    pub(super) fn condition(&self) -> SourceCondition {
        SourceCondition {
            epoch: self.epoch,
            sequence: self.sequence,
            is_current: self.complete && !self.gap,
            heard: self.heard,
            kind: self.kind,
            bytes: self.bytes,
            basis: self.basis,
            awaited_until: self.awaited_until,
        }
    }

    /// Position of the source of this name.
    pub(super) fn position(&self, name: &Arc<str>) -> SourcePosition {
        SourcePosition {
            source: Arc::clone(name),
            source_epoch: self.epoch,
            sequence: self.sequence,
        }
    }

    /// Stored outcome of the batch of this number.
    pub(super) fn outcome_of(&self, sequence: u64) -> Option<&BatchOutcome> {
        let mut outcomes = self.outcomes.iter();
        outcomes.find(|outcome| outcome.position.sequence == sequence)
    }

    /// Stores an outcome for a batch that is repeated. At most this many are stored.
    pub(super) fn store_outcome(&mut self, outcome: BatchOutcome, most: usize) {
        self.outcomes.push_back(outcome);
        while self.outcomes.len() > most {
            self.outcomes.pop_front();
        }
    }
}
