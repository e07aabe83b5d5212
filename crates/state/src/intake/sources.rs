//! Sources: the treatment of each batch by its position in the sequence of its source. For example, batch 7 after batch
//! 5 requires a full sync.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::batch::{Batch, BatchKind, ReadingRules, RecordBasis, SourceKind};
use super::batch_outcome::{BatchOutcome, ResyncReason, ResyncRequest};
use super::full_sync_staging::{StagedElsewhere, make_room, stage_part};
use super::record_bytes::batch_bytes;
use super::source_progress::SourceProgress;
use super::source_status::SourceRegistry;
use crate::clock::Clock;
use crate::error::{StateError, limit_error};
use crate::limits::StateLimits;
use pumice_engine::Revision;
use pumice_engine::model::{DroppedLabels, ErrorCode, LabelKinds, Problem};
use pumice_engine::policy::Release;

/// Maximum step of a source's epoch, unless it is a time.
const MAX_EPOCH_STEP: u64 = 1_000_000;

/// Time by which the clock of a source that takes its epochs from it may be ahead of the server's.
const MAX_CLOCK_LEAD: Duration = Duration::from_hours(1);

/// Decision about a batch.
#[derive(Debug)]
pub(crate) enum IntakeResult {
    /// Reply at once: the batch is repeated, fenced, after a gap, or staged.
    Reply(BatchOutcome),
    /// Apply the batch, then call [`SourceIntake::applied`].
    Apply(Box<Batch>),
}

/// The writer's part of the sources: it decides about batches, and stages full syncs. Readers see what it publishes
/// ([`SourceRegistry`]).
#[derive(Debug)]
pub(crate) struct SourceIntake {
    limits: StateLimits,
    clock: Arc<dyn Clock>,
    pub(super) expected: BTreeSet<Arc<str>>,
    pub(super) by_name: BTreeMap<Arc<str>, SourceProgress>,
    /// Sources that the store names.
    pub(super) stored: BTreeSet<Arc<str>>,
    /// Sources that were forgotten on purpose and that the store still names.
    pub(super) forgotten: BTreeSet<Arc<str>>,
    pub(crate) registry: Arc<SourceRegistry>,
}

impl SourceIntake {
    /// Intake that expects these sources. For a limited time it waits for sources that had synced before the restart.
    pub(crate) fn new(
        (expected, remembered): (Vec<Arc<str>>, &[Arc<str>]),
        limits: StateLimits,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let expected: BTreeSet<Arc<str>> = expected.into_iter().collect();
        let until = clock.monotonic().saturating_add(limits.source_return);
        let awaited = remembered.iter().map(|name| {
            let progress = SourceProgress {
                awaited_until: Some(until),
                ..SourceProgress::default()
            };
            (Arc::clone(name), progress)
        });
        let fresh = expected
            .iter()
            .map(|name| (Arc::clone(name), SourceProgress::default()));
        let by_name = fresh.chain(awaited).collect();
        let registry = SourceRegistry::new(limits.source_stale, Arc::clone(&clock));
        let intake = Self {
            expected,
            limits,
            clock,
            by_name,
            stored: remembered.iter().cloned().collect(),
            forgotten: BTreeSet::new(),
            registry: Arc::new(registry),
        };
        intake.publish();
        intake
    }

    /// Shows readers the sources as they are now.
    pub(super) fn publish(&self) {
        let known = self.by_name.iter();
        let conditions = known.map(|(name, source)| (Arc::clone(name), source.condition()));
        self.registry.publish(conditions.collect());
    }

    /// Sources that are synced and not stale.
    pub(crate) fn heard(&self, now: Duration) -> BTreeSet<Arc<str>> {
        let heard = self
            .by_name
            .iter()
            .filter(|(_, source)| source.condition().is_synced(now, self.limits.source_stale));
        heard.map(|(name, _)| Arc::clone(name)).collect()
    }

    /// Decides about a batch by its position in its source's sequence. `newest`: the revision that is visible now; `rules`: by
    /// what records are read now.
    pub(crate) fn intake(
        &mut self,
        batch: Batch,
        newest: Revision,
        rules: ReadingRules,
    ) -> Result<IntakeResult, StateError> {
        let known = self.by_name.get(&batch.source).map_or(0, |source| source.epoch);
        check_epoch(batch.source_epoch, known, self.clock.wall())?;
        let result = self.judge(batch, newest, rules);
        self.publish();
        result
    }

    fn judge(&mut self, batch: Batch, newest: Revision, rules: ReadingRules) -> Result<IntakeResult, StateError> {
        check_batch(&batch)?;
        let mut batch = batch.with_locations();
        let (now, limits) = (self.clock.monotonic(), &self.limits);
        let sources = &mut self.by_name;
        let name = Arc::clone(&batch.source);
        let result = |source: &SourceProgress, resync: Option<(ResyncReason, String)>| {
            Ok(IntakeResult::Reply(BatchOutcome {
                position: source.position(&name),
                revision: newest,
                resync: resync.map(|(reason, message)| ResyncRequest {
                    reason,
                    message,
                    pod_release: rules.pod_release,
                }),
                ..BatchOutcome::default()
            }))
        };
        if !sources.contains_key(&name) {
            // A source is remembered only from its first accepted batch, so that invented names do not fill the memory.
            let fresh = SourceProgress::default();
            let resync = resync_reason(&fresh, &batch).or_else(|| outdated_reason(&fresh, &batch, rules));
            if resync.is_some() {
                return result(&fresh, resync);
            }
            check_source_count(sources.len(), limits, &name)?;
        }
        let source = sources.entry(Arc::clone(&name)).or_default();
        let resync = resync_reason(source, &batch);
        if !resync.as_ref().is_some_and(|(reason, _)| reason.is_of_another_epoch()) {
            source.note_batch(&batch, now);
        }
        if let Some((reason, _)) = &resync {
            if *reason == ResyncReason::Gap {
                (source.gap, source.staged) = (true, None);
            }
            return result(source, resync);
        }
        if batch.source_epoch == source.epoch && batch.sequence <= source.sequence {
            return match source.outcome_of(batch.sequence) {
                Some(stored) => Ok(IntakeResult::Reply(stored.clone())),
                None => result(source, None),
            };
        }
        let outdated = outdated_reason(source, &batch, rules);
        if outdated.is_some() {
            // The changes of the batch are missing until the full sync.
            source.gap = true;
            return result(source, outdated);
        }
        if batch.source_epoch > source.epoch {
            source.begin_epoch(&batch, now);
        }
        let elsewhere = match batch.kind {
            BatchKind::Delta => StagedElsewhere::default(),
            BatchKind::FullSyncPart | BatchKind::FullSyncLast => {
                batch.bytes = batch_bytes(&batch);
                make_room(limits, sources, &batch, now)
            }
        };
        accept(limits, sources.entry(name).or_default(), batch, newest, elsewhere)
    }

    /// Records that a batch was applied, with its outcome, the bytes of the source's records now, and by what it was read.
    pub(crate) fn applied(&mut self, kind: BatchKind, outcome: &BatchOutcome, bytes: usize, basis: RecordBasis) {
        let Some(source) = self.by_name.get_mut(&outcome.position.source) else {
            return;
        };
        source.sequence = outcome.position.sequence;
        if kind == BatchKind::FullSyncLast {
            (source.complete, source.awaited_until) = (true, None);
        }
        (source.gap, source.bytes) = (false, bytes);
        source.basis = match kind {
            BatchKind::FullSyncLast => basis,
            BatchKind::Delta | BatchKind::FullSyncPart => source.basis.and(basis),
        };
        source.store_outcome(outcome.clone(), self.limits.stored_outcomes);
        self.publish();
    }

    /// Forgets a source. An expected source keeps its slot, as before its first batch.
    ///
    /// # Errors
    /// The source does not exist, or it has sent a batch within `source_stale` and `force` is false.
    pub(crate) fn forget(&mut self, name: &Arc<str>, force: bool) -> Result<(), StateError> {
        let now = self.clock.monotonic();
        let Some(source) = self.by_name.get(name) else {
            return Err(StateError::SourceUnknown { name: Arc::clone(name) });
        };
        let silence = source.last_batch.map(|last| now.saturating_sub(last));
        if let Some(silence) = silence.filter(|silence| !force && *silence <= self.limits.source_stale) {
            return Err(StateError::SourceActive {
                name: Arc::clone(name),
                silence,
                least: self.limits.source_stale,
            });
        }
        if self.stored.contains(name) {
            self.forgotten.insert(Arc::clone(name));
        }
        if self.expected.contains(name) {
            self.by_name.insert(Arc::clone(name), SourceProgress::default());
        } else {
            self.by_name.remove(name);
        }
        self.publish();
        Ok(())
    }

    /// Labels that were left out of the records in the state, by source.
    pub(crate) fn dropped_labels(&self) -> DroppedLabels {
        let dropped = self
            .by_name
            .iter()
            .filter(|(_, source)| !source.basis.dropped_labels.is_empty());
        Arc::new(
            dropped
                .map(|(name, source)| (Arc::clone(name), source.basis.dropped_labels))
                .collect(),
        )
    }

    /// Sources whose records lack some of these labels, or have amounts of pods as this release does not derive them.
    pub(crate) fn outdated(&self, labels: LabelKinds, release: Release) -> impl Iterator<Item = &Arc<str>> {
        let known = self.by_name.iter();
        let outdated = known.filter(move |(_, source)| source.basis.is_outdated(labels, release));
        outdated.map(|(name, _)| name)
    }

    /// Full syncs that are being sent.
    pub(crate) fn staged(&self) -> impl Iterator<Item = &Batch> {
        self.by_name.values().filter_map(|source| source.staged.as_ref())
    }

    /// Live sources that were silent for longer than `source_age`, without expected sources.
    pub(crate) fn over_age(&self, now: Duration) -> Vec<Arc<str>> {
        let silent = self.by_name.iter().filter(|(name, source)| {
            let silence = source.last_batch.map(|last| now.saturating_sub(last));
            let old = silence.is_some_and(|silence| silence > self.limits.source_age);
            old && source.kind == SourceKind::Live && !self.expected.contains(*name)
        });
        silent.map(|(name, _)| Arc::clone(name)).collect()
    }

    /// Bounds of the state.
    pub(crate) fn limits(&self) -> &StateLimits {
        &self.limits
    }

    /// Maximum number of records that the state may hold.
    pub(crate) fn max_records(&self) -> usize {
        self.limits.records
    }
}

/// Stages a batch that is next in its sequence, or accepts it for application.
fn accept(
    limits: &StateLimits,
    source: &mut SourceProgress,
    batch: Batch,
    newest: Revision,
    elsewhere: StagedElsewhere,
) -> Result<IntakeResult, StateError> {
    let name = Arc::clone(&batch.source);
    match batch.kind {
        BatchKind::Delta => Ok(IntakeResult::Apply(Box::new(batch))),
        BatchKind::FullSyncLast => {
            let whole = stage_part(limits, source, batch, elsewhere)?;
            Ok(IntakeResult::Apply(Box::new(whole)))
        }
        BatchKind::FullSyncPart => {
            let sequence = batch.sequence;
            let part = stage_part(limits, source, batch, elsewhere)?;
            source.staged = Some(part);
            source.sequence = sequence;
            let outcome = BatchOutcome {
                position: source.position(&name),
                revision: newest,
                ..BatchOutcome::default()
            };
            source.store_outcome(outcome.clone(), limits.stored_outcomes);
            Ok(IntakeResult::Reply(outcome))
        }
    }
}

/// Reason why the source must send a full sync, if its records were read by what no longer applies.
fn outdated_reason(source: &SourceProgress, batch: &Batch, rules: ReadingRules) -> Option<(ResyncReason, String)> {
    let stored = (batch.kind == BatchKind::Delta).then_some(source.basis);
    if stored.is_some_and(|stored| stored.dropped_labels.intersects(rules.labels)) {
        let message = "a policy reads labels that were left out of the records, because no policy read them before: send a full sync";
        return Some((ResyncReason::LabelsNeeded, message.to_owned()));
    }
    let offered = stored.and_then(|stored| stored.others_since);
    if offered.is_some_and(|offered| offered != rules.offers) {
        let message = "a node or a queue has a resource that was left out of the records, because there was no place for its name: send a \
                       full sync";
        return Some((ResyncReason::ResourcesNeeded, message.to_owned()));
    }
    let staged = source.staged.as_ref().filter(|_| batch.part > 1);
    let all = [stored, staged.map(|staged| staged.basis), Some(batch.basis)];
    let mut others = all.into_iter().flatten();
    let derived = others.find_map(|basis| basis.release_other_than(rules.pod_release))?;
    let message = format!(
        "amounts of pods were derived by the rules of `{}`, and policies follow `{}`: derive them again, and send a full sync",
        derived.name(),
        rules.pod_release.name()
    );
    Some((ResyncReason::ReleaseChanged, message))
}

/// Reason why the source must send a full sync, if this batch cannot be accepted.
fn resync_reason(source: &SourceProgress, batch: &Batch) -> Option<(ResyncReason, String)> {
    let delta = batch.kind == BatchKind::Delta;
    if batch.source_epoch < source.epoch {
        let message = format!(
            "source epoch {} was fenced by {}: if no newer client of the source runs, `pumice state forget {}` ends that",
            batch.source_epoch, source.epoch, batch.source
        );
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
        let problem = Problem::new(ErrorCode::BatchInvalid, field, message);
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

/// Checks that an epoch leaves later ones to the source: an epoch far ahead would fence off its clients for good.
/// `now`: time since 1970.
fn check_epoch(epoch: u64, known: u64, now: Duration) -> Result<(), StateError> {
    let latest_time = u64::try_from((now + MAX_CLOCK_LEAD).as_nanos()).unwrap_or(u64::MAX);
    let most = known.saturating_add(MAX_EPOCH_STEP).max(latest_time);
    // The last epoch leaves no later one.
    if epoch <= most.min(u64::MAX - 1) {
        return Ok(());
    }
    let message = format!(
        "source epoch {epoch} is too far ahead: the known one is {known}, and this may be {most} at most. Count up by one, or \
         take the time in nanoseconds since 1970"
    );
    let problem = Problem::new(ErrorCode::SourceEpochTooHigh, "batch.source_epoch", message);
    Err(StateError::BatchInvalid { problem })
}

/// Checks that one more source has a place.
fn check_source_count(count: usize, limits: &StateLimits, name: &str) -> Result<(), StateError> {
    if count < limits.sources {
        return Ok(());
    }
    let message = format!("`{name}` would be one more source");
    Err(limit_error("sources", limits.sources, message))
}
