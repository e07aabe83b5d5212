//! Sources: their positions, and the full syncs that are being staged.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::batch::{Batch, BatchKind, BatchOutcome, ResyncReason, ResyncRequest, SourceKind};
use super::clock::Clock;
use super::error::StateError;
use super::limits::StateLimits;
use crate::engine::model::{Problem, ProblemKind};
use crate::engine::{Revision, SourcePosition};

/// Silence after which a staged full sync is dropped, so that others can stage theirs.
const ABANDONED_AFTER: Duration = Duration::from_mins(1);

/// Status of a source.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceStatus {
    /// Position of the source.
    pub position: SourcePosition,
    /// Time since the source was last heard; `None`: never.
    pub silence: Option<Duration>,
    /// True if a full sync of the source was applied and nothing is missing since.
    pub synced: bool,
    /// Kind of the source.
    pub kind: SourceKind,
    /// The source is live, and has been silent for too long.
    pub stale: bool,
}

#[derive(Debug, Default)]
struct SourceProgress {
    epoch: u64,
    sequence: u64,
    /// True if a full sync of this epoch was applied.
    complete: bool,
    /// True if a batch was missing when the source was last heard.
    gap: bool,
    heard: Option<Duration>,
    outcomes: VecDeque<BatchOutcome>,
    staged: Option<Batch>,
    kind: SourceKind,
}

impl SourceProgress {
    /// True if the source is live and has been silent for longer than `limit`.
    fn is_stale(&self, now: Duration, limit: Duration) -> bool {
        let silent = self.heard.is_some_and(|heard| now.saturating_sub(heard) > limit);
        silent && self.kind == SourceKind::Live
    }

    /// True if the records of the source are complete and up to date.
    fn is_synced(&self, now: Duration, limit: Duration) -> bool {
        self.complete && !self.gap && !self.is_stale(now, limit)
    }
}

/// Decision about a batch.
#[derive(Debug)]
pub(super) enum IntakeResult {
    /// Reply at once: the batch is repeated, fenced, after a gap, or staged.
    Reply(BatchOutcome),
    /// Apply the batch, then call [`SourceRegistry::applied`].
    Apply(Box<Batch>),
}

/// All sources.
#[derive(Debug)]
pub(super) struct SourceRegistry {
    limits: StateLimits,
    clock: Arc<dyn Clock>,
    expected: BTreeSet<Arc<str>>,
    by_name: Mutex<BTreeMap<Arc<str>, SourceProgress>>,
}

impl SourceRegistry {
    pub(super) fn new(expected: Vec<Arc<str>>, limits: StateLimits, clock: Arc<dyn Clock>) -> Self {
        let expected: BTreeSet<Arc<str>> = expected.into_iter().collect();
        let sources = expected
            .iter()
            .map(|name| (Arc::clone(name), SourceProgress::default()))
            .collect();
        Self {
            expected,
            limits,
            clock,
            by_name: Mutex::new(sources),
        }
    }

    pub(super) fn status(&self) -> Vec<SourceStatus> {
        let (now, sources) = (self.clock.monotonic(), self.lock());
        let status = sources.iter().map(|(name, source)| SourceStatus {
            position: source_position(name, source),
            silence: source.heard.map(|heard| now.saturating_sub(heard)),
            synced: source.is_synced(now, self.limits.source_stale),
            kind: source.kind,
            stale: source.is_stale(now, self.limits.source_stale),
        });
        status.collect()
    }

    /// Sources that are synced and not stale.
    pub(super) fn heard(&self, now: Duration) -> BTreeSet<Arc<str>> {
        let sources = self.lock();
        let heard = sources
            .iter()
            .filter(|(_, source)| source.is_synced(now, self.limits.source_stale));
        heard.map(|(name, _)| Arc::clone(name)).collect()
    }

    /// Decides about a batch by its position in its source's sequence. `newest`: the revision that is visible now.
    pub(super) fn intake(&self, batch: Batch, newest: Revision) -> Result<IntakeResult, StateError> {
        check_batch(&batch)?;
        let batch = batch.with_locations();
        let (now, mut sources) = (self.clock.monotonic(), self.lock());
        let name = Arc::clone(&batch.source);
        let result = |source: &SourceProgress, resync| {
            let outcome = BatchOutcome {
                position: source_position(&name, source),
                revision: newest,
                ..BatchOutcome::default()
            };
            Ok(IntakeResult::Reply(BatchOutcome { resync, ..outcome }))
        };
        let elsewhere = match batch.kind {
            BatchKind::Delta => 0,
            BatchKind::FullSyncPart | BatchKind::FullSyncLast => staged_elsewhere(&mut sources, &name, now),
        };
        if !sources.contains_key(&name) {
            // A source is remembered only from its first accepted batch, so that invented names do not fill the memory.
            let fresh = SourceProgress::default();
            if let Some((reason, message)) = resync_reason(&fresh, &batch) {
                return result(&fresh, Some(ResyncRequest { reason, message }));
            }
            if sources.len() >= self.limits.sources {
                return Err(limit_error(
                    "sources",
                    self.limits.sources,
                    format!("`{name}` would be one more source"),
                ));
            }
        }
        let source = sources.entry(Arc::clone(&name)).or_default();
        let resync = resync_reason(source, &batch);
        if !resync.as_ref().is_some_and(|(reason, _)| reason.is_of_another_epoch()) {
            (source.heard, source.kind) = (Some(now), batch.source_kind);
        }
        if let Some((reason, message)) = resync {
            if reason == ResyncReason::Gap {
                (source.gap, source.staged) = (true, None);
            }
            return result(source, Some(ResyncRequest { reason, message }));
        }
        if batch.source_epoch == source.epoch && batch.sequence <= source.sequence {
            let stored = source
                .outcomes
                .iter()
                .find(|outcome| outcome.position.sequence == batch.sequence);
            return match stored {
                Some(stored) => Ok(IntakeResult::Reply(stored.clone())),
                None => result(source, None),
            };
        }
        if batch.source_epoch > source.epoch {
            *source = SourceProgress {
                epoch: batch.source_epoch,
                heard: Some(now),
                kind: batch.source_kind,
                ..SourceProgress::default()
            };
        }
        self.accept(source, batch, newest, elsewhere)
    }

    /// Stages a batch that is next in its sequence, or accepts it for application.
    fn accept(
        &self,
        source: &mut SourceProgress,
        batch: Batch,
        newest: Revision,
        elsewhere: usize,
    ) -> Result<IntakeResult, StateError> {
        let name = Arc::clone(&batch.source);
        match batch.kind {
            BatchKind::Delta => Ok(IntakeResult::Apply(Box::new(batch))),
            BatchKind::FullSyncLast => {
                let whole = self.stage_part(source, batch, elsewhere)?;
                Ok(IntakeResult::Apply(Box::new(whole)))
            }
            BatchKind::FullSyncPart => {
                let sequence = batch.sequence;
                let part = self.stage_part(source, batch, elsewhere)?;
                source.staged = Some(part);
                source.sequence = sequence;
                let outcome = BatchOutcome {
                    position: source_position(&name, source),
                    revision: newest,
                    ..BatchOutcome::default()
                };
                store_outcome(source, outcome.clone(), self.limits.stored_outcomes);
                Ok(IntakeResult::Reply(outcome))
            }
        }
    }

    /// Records that a batch was applied, with its outcome.
    pub(super) fn applied(&self, kind: BatchKind, outcome: &BatchOutcome) {
        let mut sources = self.lock();
        let Some(source) = sources.get_mut(&outcome.position.source) else {
            return;
        };
        source.sequence = outcome.position.sequence;
        source.complete |= kind == BatchKind::FullSyncLast;
        source.gap = false;
        store_outcome(source, outcome.clone(), self.limits.stored_outcomes);
    }

    /// Appends a part to the staged ones; part 1 restarts the full sync. `elsewhere`: records staged by other sources.
    fn stage_part(&self, source: &mut SourceProgress, mut batch: Batch, elsewhere: usize) -> Result<Batch, StateError> {
        let Some(mut staged) = source.staged.take().filter(|_| batch.part > 1) else {
            return self.check_staged_size(batch, elsewhere);
        };
        staged.put.append(&mut batch.put);
        staged.rejected.append(&mut batch.rejected);
        staged.warnings.append(&mut batch.warnings);
        (staged.sequence, staged.kind, staged.part) = (batch.sequence, batch.kind, batch.part);
        self.check_staged_size(staged, elsewhere)
    }

    fn check_staged_size(&self, batch: Batch, elsewhere: usize) -> Result<Batch, StateError> {
        let most = self.limits.full_sync_records;
        if record_count(&batch) + elsewhere > most {
            let also = if elsewhere > 0 {
                format!(", besides {elsewhere} of other sources")
            } else {
                String::new()
            };
            let message = format!("the full sync of `{}` would hold more records{also}", batch.source);
            return Err(limit_error("full_sync_records", most, message));
        }
        Ok(batch)
    }

    /// Forgets a source. One that the service expects keeps its slot, as if it had not been heard yet.
    ///
    /// # Errors
    /// There is no such source, or it was heard within `source_stale` and is not to be forgotten by `force`.
    pub(super) fn forget(&self, name: &Arc<str>, force: bool) -> Result<(), StateError> {
        let (now, mut sources) = (self.clock.monotonic(), self.lock());
        let Some(source) = sources.get(name) else {
            return Err(StateError::SourceUnknown { name: Arc::clone(name) });
        };
        let silence = source.heard.map(|heard| now.saturating_sub(heard));
        if let Some(silence) = silence.filter(|silence| !force && *silence <= self.limits.source_stale) {
            return Err(StateError::SourceActive {
                name: Arc::clone(name),
                silence,
                least: self.limits.source_stale,
            });
        }
        if self.expected.contains(name) {
            sources.insert(Arc::clone(name), SourceProgress::default());
        } else {
            sources.remove(name);
        }
        Ok(())
    }

    /// Bounds of the state.
    pub(super) fn limits(&self) -> &StateLimits {
        &self.limits
    }

    /// Maximum number of records that the state may hold.
    pub(super) fn max_records(&self) -> usize {
        self.limits.records
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Arc<str>, SourceProgress>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn record_count(batch: &Batch) -> usize {
    batch.put.len() + batch.rejected.len()
}

/// Number of records staged by other sources. Drops full syncs that their sources have abandoned.
fn staged_elsewhere(sources: &mut BTreeMap<Arc<str>, SourceProgress>, name: &str, now: Duration) -> usize {
    let mut staged = 0;
    for (_, source) in sources.iter_mut().filter(|(other, _)| ***other != *name) {
        let abandoned = source
            .heard
            .is_none_or(|heard| now.saturating_sub(heard) > ABANDONED_AFTER);
        source.staged.take_if(|_| abandoned);
        staged += source.staged.as_ref().map_or(0, record_count);
    }
    staged
}

/// Reason why the source must send a full sync, if this batch cannot be accepted.
fn resync_reason(source: &SourceProgress, batch: &Batch) -> Option<(ResyncReason, String)> {
    let delta = batch.kind == BatchKind::Delta;
    if batch.source_epoch < source.epoch {
        let message = format!("source epoch {} was fenced by {}", batch.source_epoch, source.epoch);
        return Some((ResyncReason::Fenced, message));
    }
    if delta && batch.source_epoch > source.epoch && source.complete {
        let message = format!("source epoch {} must begin with a full sync", batch.source_epoch);
        return Some((ResyncReason::EpochChanged, message));
    }
    if delta && (!source.complete || batch.source_epoch > source.epoch) {
        return Some((
            ResyncReason::UnknownSource,
            "a source must begin with a full sync".to_owned(),
        ));
    }
    // A full sync may have any number. After the largest number no batch can follow in this epoch.
    let next = source.sequence.checked_add(1);
    let missing = || match next {
        Some(next) => format!("expected {next}, got {}", batch.sequence),
        None => "the numbers of this source epoch are used up".to_owned(),
    };
    let follows = batch.source_epoch == source.epoch && Some(batch.sequence) == next;
    let repeated = batch.source_epoch == source.epoch && batch.sequence <= source.sequence;
    if repeated {
        return None;
    }
    let part = source.staged.as_ref().map_or(0, |staged| staged.part);
    if delta {
        return (!follows).then(|| (ResyncReason::Gap, missing()));
    }
    if batch.part > 1 && !(follows && Some(batch.part) == part.checked_add(1)) {
        let message = format!("part {} of a full sync came without the part before it", batch.part);
        return Some((ResyncReason::Gap, message));
    }
    None
}

/// Checks that do not depend on earlier batches.
fn check_batch(batch: &Batch) -> Result<(), StateError> {
    let problem = |field: &str, message: &str| {
        let problem = Problem::new(ProblemKind::Invalid, "INVALID_BATCH", field, message);
        Err(StateError::BatchInvalid { problem })
    };
    if batch.source.is_empty() {
        return problem("batch.source", "a batch names its source");
    }
    if batch.sequence == 0 {
        return problem("batch.sequence", "batches are numbered from 1");
    }
    match batch.kind {
        BatchKind::Delta if batch.part != 0 => problem("batch.part", "only parts of a full sync are numbered"),
        BatchKind::FullSyncPart | BatchKind::FullSyncLast if !batch.remove.is_empty() => {
            problem("batch.remove", "a full sync removes the records that it leaves out")
        }
        BatchKind::FullSyncPart | BatchKind::FullSyncLast if batch.part == 0 => {
            problem("batch.part", "parts of a full sync are numbered from 1")
        }
        BatchKind::Delta | BatchKind::FullSyncPart | BatchKind::FullSyncLast => Ok(()),
    }
}

fn store_outcome(source: &mut SourceProgress, outcome: BatchOutcome, most: usize) {
    source.outcomes.push_back(outcome);
    while source.outcomes.len() > most {
        source.outcomes.pop_front();
    }
}

fn source_position(name: &Arc<str>, source: &SourceProgress) -> SourcePosition {
    SourcePosition {
        source: Arc::clone(name),
        source_epoch: source.epoch,
        sequence: source.sequence,
    }
}

pub(super) fn limit_error(limit: &'static str, value: usize, message: String) -> StateError {
    StateError::Limit {
        limit,
        value: value as u64,
        message,
    }
}
