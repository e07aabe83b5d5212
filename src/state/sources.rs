//! Sources: who sends records, how far each came, and the snapshots that are being staged.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::batch::{Batch, BatchKind, BatchOutcome, Resync, ResyncReason};
use super::clock::Clock;
use super::error::StateError;
use super::limits::Limits;
use crate::engine::model::{Problem, ProblemKind};
use crate::engine::{Position, Revision};

/// Silence after which a snapshot that is being sent gives its room to others.
const ABANDONED_AFTER: Duration = Duration::from_mins(1);

/// How a source stands.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceStatus {
    /// How far it came.
    pub position: Position,
    /// Time since it was last heard; `None`: never.
    pub silence: Option<Duration>,
    /// A snapshot has been taken in, and nothing is missing since.
    pub synced: bool,
}

#[derive(Debug, Default)]
struct Source {
    epoch: u64,
    sequence: u64,
    /// A snapshot of this epoch was taken in.
    complete: bool,
    /// A batch was missing when it was last heard.
    gap: bool,
    heard: Option<Duration>,
    outcomes: VecDeque<BatchOutcome>,
    staged: Option<Batch>,
}

/// What to do with a batch.
#[derive(Debug)]
pub(super) enum Intake {
    /// Answer at once: repeated, fenced, with a gap, or held back.
    Answer(BatchOutcome),
    /// Apply it, then tell [`Sources::applied`].
    Apply(Box<Batch>),
}

/// All sources.
#[derive(Debug)]
pub(super) struct Sources {
    limits: Limits,
    clock: Arc<dyn Clock>,
    by_name: Mutex<BTreeMap<Arc<str>, Source>>,
}

impl Sources {
    pub(super) fn new(expected: Vec<Arc<str>>, limits: Limits, clock: Arc<dyn Clock>) -> Self {
        let sources = expected.into_iter().map(|name| (name, Source::default())).collect();
        Self {
            limits,
            clock,
            by_name: Mutex::new(sources),
        }
    }

    pub(super) fn status(&self) -> Vec<SourceStatus> {
        let (now, sources) = (self.clock.monotonic(), self.lock());
        let status = sources.iter().map(|(name, source)| SourceStatus {
            position: position(name, source),
            silence: source.heard.map(|heard| now.saturating_sub(heard)),
            synced: source.complete && !source.gap,
        });
        status.collect()
    }

    /// Sources that are synced and not stale.
    pub(super) fn heard(&self, now: Duration) -> BTreeSet<Arc<str>> {
        let stale = |heard: Duration| now.saturating_sub(heard) > self.limits.source_stale;
        let sources = self.lock();
        let heard = sources
            .iter()
            .filter(|(_, source)| source.complete && !source.gap && source.heard.is_some_and(|heard| !stale(heard)));
        heard.map(|(name, _)| Arc::clone(name)).collect()
    }

    /// Judges a batch by its place in its source's sequence. `newest`: the revision that is visible now.
    pub(super) fn intake(&self, batch: Batch, newest: Revision) -> Result<Intake, StateError> {
        check(&batch)?;
        let batch = batch.placed();
        let (now, mut sources) = (self.clock.monotonic(), self.lock());
        let name = Arc::clone(&batch.source);
        let answer = |source: &Source, resync| {
            let outcome = BatchOutcome {
                position: position(&name, source),
                revision: newest,
                ..BatchOutcome::default()
            };
            Ok(Intake::Answer(BatchOutcome { resync, ..outcome }))
        };
        let elsewhere = match batch.kind {
            BatchKind::Delta => 0,
            BatchKind::SnapshotPart | BatchKind::SnapshotLast => staged_elsewhere(&mut sources, &name, now),
        };
        if !sources.contains_key(&name) {
            // A source is remembered from its first accepted batch on: names alone must not fill the memory.
            let fresh = Source::default();
            if let Some((reason, message)) = misplaced(&fresh, &batch) {
                return answer(&fresh, Some(Resync { reason, message }));
            }
            if sources.len() >= self.limits.sources {
                return Err(limit(
                    "sources",
                    self.limits.sources,
                    format!("`{name}` would be one more source"),
                ));
            }
        }
        let source = sources.entry(Arc::clone(&name)).or_default();
        source.heard = Some(now);
        if let Some((reason, message)) = misplaced(source, &batch) {
            if reason == ResyncReason::Gap {
                (source.gap, source.staged) = (true, None);
            }
            return answer(source, Some(Resync { reason, message }));
        }
        if batch.source_epoch == source.epoch && batch.sequence <= source.sequence {
            let stored = source
                .outcomes
                .iter()
                .find(|outcome| outcome.position.sequence == batch.sequence);
            return match stored {
                Some(stored) => Ok(Intake::Answer(stored.clone())),
                None => answer(source, None),
            };
        }
        if batch.source_epoch > source.epoch {
            *source = Source {
                epoch: batch.source_epoch,
                heard: Some(now),
                ..Source::default()
            };
        }
        self.take(source, batch, newest, elsewhere)
    }

    /// A batch in its place: held back, or to be applied.
    fn take(
        &self,
        source: &mut Source,
        batch: Batch,
        newest: Revision,
        elsewhere: usize,
    ) -> Result<Intake, StateError> {
        let name = Arc::clone(&batch.source);
        match batch.kind {
            BatchKind::Delta => Ok(Intake::Apply(Box::new(batch))),
            BatchKind::SnapshotLast => {
                let whole = self.stage(source, batch, elsewhere)?;
                Ok(Intake::Apply(Box::new(whole)))
            }
            BatchKind::SnapshotPart => {
                let sequence = batch.sequence;
                let part = self.stage(source, batch, elsewhere)?;
                source.staged = Some(part);
                source.sequence = sequence;
                let outcome = BatchOutcome {
                    position: position(&name, source),
                    revision: newest,
                    ..BatchOutcome::default()
                };
                store(source, outcome.clone(), self.limits.stored_outcomes);
                Ok(Intake::Answer(outcome))
            }
        }
    }

    /// Records that a batch was applied, and what became of it.
    pub(super) fn applied(&self, kind: BatchKind, outcome: &BatchOutcome) {
        let mut sources = self.lock();
        let Some(source) = sources.get_mut(&outcome.position.source) else {
            return;
        };
        source.sequence = outcome.position.sequence;
        source.complete |= kind == BatchKind::SnapshotLast;
        source.gap = false;
        store(source, outcome.clone(), self.limits.stored_outcomes);
    }

    /// The staged parts with this one behind them; part 1 begins anew.
    fn stage(&self, source: &mut Source, mut batch: Batch, elsewhere: usize) -> Result<Batch, StateError> {
        let Some(mut staged) = source.staged.take().filter(|_| batch.part > 1) else {
            return self.bounded(batch, elsewhere);
        };
        staged.put.append(&mut batch.put);
        staged.refused.append(&mut batch.refused);
        staged.warnings.append(&mut batch.warnings);
        (staged.sequence, staged.kind, staged.part) = (batch.sequence, batch.kind, batch.part);
        self.bounded(staged, elsewhere)
    }

    fn bounded(&self, batch: Batch, elsewhere: usize) -> Result<Batch, StateError> {
        let most = self.limits.snapshot_records;
        if records(&batch) + elsewhere > most {
            let also = if elsewhere > 0 {
                format!(" beside {elsewhere} of other sources")
            } else {
                String::new()
            };
            let message = format!("the snapshot of `{}` holds more records{also}", batch.source);
            return Err(limit("snapshot_records", most, message));
        }
        Ok(batch)
    }

    /// Every bound.
    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Records that the state may hold.
    pub(super) fn records(&self) -> usize {
        self.limits.records
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Arc<str>, Source>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn records(batch: &Batch) -> usize {
    batch.put.len() + batch.refused.len()
}

/// Records staged by other sources. Snapshots that nobody goes on with are thrown away.
fn staged_elsewhere(sources: &mut BTreeMap<Arc<str>, Source>, name: &str, now: Duration) -> usize {
    let mut staged = 0;
    for (_, source) in sources.iter_mut().filter(|(other, _)| ***other != *name) {
        let abandoned = source
            .heard
            .is_none_or(|heard| now.saturating_sub(heard) > ABANDONED_AFTER);
        source.staged.take_if(|_| abandoned);
        staged += source.staged.as_ref().map_or(0, records);
    }
    staged
}

/// Why a batch cannot be taken at its place, if it cannot.
fn misplaced(source: &Source, batch: &Batch) -> Option<(ResyncReason, String)> {
    let delta = batch.kind == BatchKind::Delta;
    if batch.source_epoch < source.epoch {
        let message = format!("source epoch {} was fenced by {}", batch.source_epoch, source.epoch);
        return Some((ResyncReason::Fenced, message));
    }
    if delta && batch.source_epoch > source.epoch && source.complete {
        let message = format!("source epoch {} begins with a snapshot", batch.source_epoch);
        return Some((ResyncReason::EpochChanged, message));
    }
    if delta && (!source.complete || batch.source_epoch > source.epoch) {
        return Some((
            ResyncReason::UnknownSource,
            "a source begins with a snapshot".to_owned(),
        ));
    }
    // A snapshot may come with any number, the largest too: then nothing can follow it in this epoch.
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
        let message = format!("part {} of a snapshot came without the part before it", batch.part);
        return Some((ResyncReason::Gap, message));
    }
    None
}

/// What a batch must hold, whatever came before it.
fn check(batch: &Batch) -> Result<(), StateError> {
    let fault = |field: &str, message: &str| {
        let problem = Problem::new(ProblemKind::Invalid, "INVALID_BATCH", field, message);
        Err(StateError::BatchInvalid { problem })
    };
    if batch.source.is_empty() {
        return fault("batch.source", "a batch names its source");
    }
    if batch.sequence == 0 {
        return fault("batch.sequence", "batches are numbered from 1");
    }
    match batch.kind {
        BatchKind::Delta if batch.part != 0 => fault("batch.snapshot_part", "only parts of a snapshot are numbered"),
        BatchKind::SnapshotPart | BatchKind::SnapshotLast if !batch.remove.is_empty() => {
            fault("batch.remove", "a snapshot removes by what it leaves out")
        }
        BatchKind::SnapshotPart | BatchKind::SnapshotLast if batch.part == 0 => {
            fault("batch.snapshot_part", "parts of a snapshot are numbered from 1")
        }
        BatchKind::Delta | BatchKind::SnapshotPart | BatchKind::SnapshotLast => Ok(()),
    }
}

fn store(source: &mut Source, outcome: BatchOutcome, most: usize) {
    source.outcomes.push_back(outcome);
    while source.outcomes.len() > most {
        source.outcomes.pop_front();
    }
}

fn position(name: &Arc<str>, source: &Source) -> Position {
    Position {
        source: Arc::clone(name),
        source_epoch: source.epoch,
        sequence: source.sequence,
    }
}

pub(super) fn limit(limit: &'static str, value: usize, message: String) -> StateError {
    StateError::Limit {
        limit,
        value: value as u64,
        message,
    }
}
