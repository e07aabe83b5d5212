//! Status of sources for readers. A reader loads one pointer and never waits for a lock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;

use super::batch::{RecordBasis, SourceKind};
use crate::clock::Clock;
use pumice_engine::SourcePosition;

/// Status of a source: position, silence and staleness.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceStatus {
    /// Position after the last applied batch.
    pub position: SourcePosition,
    /// Time since the last batch of the source. `None`: the server has received no batch yet.
    pub silence: Option<Duration>,
    /// True if a full sync of the source was applied and nothing is missing since.
    pub synced: bool,
    /// Kind from the newest batch: live or file.
    pub kind: SourceKind,
    /// The source is live, and has been silent for too long.
    pub stale: bool,
    /// Bytes of its records.
    pub bytes: usize,
    /// By what the records in the state were read.
    pub basis: RecordBasis,
    /// Remaining time for which the server waits for the source, which had synced before the restart. `None`: the
    /// server does not wait.
    pub awaited: Option<Duration>,
}

/// Condition of a source after its last batch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SourceCondition {
    pub(crate) epoch: u64,
    pub(crate) sequence: u64,
    pub(crate) basis: RecordBasis,
    /// True if a full sync of this epoch was applied and no batch is missing since.
    pub(crate) is_current: bool,
    pub(crate) heard: Option<Duration>,
    pub(crate) kind: SourceKind,
    /// Bytes of the source's records.
    pub(crate) bytes: usize,
    /// Time at which the server stops waiting for a source that had synced before the start.
    pub(crate) awaited_until: Option<Duration>,
}

impl SourceCondition {
    /// True if the source is live and has been silent for longer than `limit`.
    fn is_stale(&self, now: Duration, limit: Duration) -> bool {
        let silent = self.heard.is_some_and(|heard| now.saturating_sub(heard) > limit);
        silent && self.kind == SourceKind::Live
    }

    /// True if the records of the source are complete and up to date.
    pub(crate) fn is_synced(&self, now: Duration, limit: Duration) -> bool {
        self.is_current && !self.is_stale(now, limit)
    }
}

/// All sources, as readers see them. The writer publishes them whole ([`super::sources::SourceIntake`]).
#[derive(Debug)]
pub(crate) struct SourceRegistry {
    stale_after: Duration,
    clock: Arc<dyn Clock>,
    conditions: ArcSwap<BTreeMap<Arc<str>, SourceCondition>>,
    /// Problems of records that were rejected, of all batches since the start.
    record_problems: AtomicU64,
}

impl SourceRegistry {
    /// Registry without sources.
    pub(crate) fn new(stale_after: Duration, clock: Arc<dyn Clock>) -> Self {
        Self {
            stale_after,
            clock,
            conditions: ArcSwap::default(),
            record_problems: AtomicU64::new(0),
        }
    }

    /// Replaces the conditions. Only the writer calls this.
    pub(crate) fn publish(&self, conditions: BTreeMap<Arc<str>, SourceCondition>) {
        self.conditions.store(Arc::new(conditions));
    }

    /// Adds to the number of problems of rejected records. Only the writer calls this.
    pub(crate) fn add_record_problems(&self, problems: usize) {
        let problems = u64::try_from(problems).unwrap_or(u64::MAX);
        self.record_problems.fetch_add(problems, Ordering::Relaxed);
    }

    /// Problems of records that were rejected.
    pub(crate) fn record_problems(&self) -> u64 {
        self.record_problems.load(Ordering::Relaxed)
    }

    /// Stale sources by name, with the time since the last batch of each source.
    pub(crate) fn stale(&self) -> Vec<(Arc<str>, Duration)> {
        let conditions = self.conditions.load();
        if conditions.is_empty() {
            return Vec::new();
        }
        let now = self.clock.monotonic();
        let stale = conditions
            .iter()
            .filter(|(_, source)| source.is_stale(now, self.stale_after));
        stale
            .filter_map(|(name, source)| Some((Arc::clone(name), now.saturating_sub(source.heard?))))
            .collect()
    }

    /// Status of all sources, by name.
    pub(crate) fn status(&self) -> Vec<SourceStatus> {
        let (now, conditions) = (self.clock.monotonic(), self.conditions.load());
        let status = conditions.iter().map(|(name, source)| SourceStatus {
            position: SourcePosition {
                source: Arc::clone(name),
                source_epoch: source.epoch,
                sequence: source.sequence,
            },
            silence: source.heard.map(|heard| now.saturating_sub(heard)),
            synced: source.is_synced(now, self.stale_after),
            kind: source.kind,
            stale: source.is_stale(now, self.stale_after),
            bytes: source.bytes,
            basis: source.basis,
            awaited: source
                .awaited_until
                .and_then(|until| until.checked_sub(now))
                .filter(|left| !left.is_zero()),
        });
        status.collect()
    }
}
