//! Full syncs in progress: their sizes, in total and by connection, and the order in which they are dropped.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::batch::Batch;
use super::source_progress::SourceProgress;
use crate::connection_share::ConnectionShare;
use crate::error::{StateError, limit_error};
use crate::limits::StateLimits;

/// Silence after which a staged full sync is dropped to free its capacity for other sources.
const ABANDONED_AFTER: Duration = Duration::from_mins(1);

/// Size of full syncs that are being sent.
#[derive(Clone, Copy, Debug, Default)]
struct StagedSize {
    records: usize,
    bytes: usize,
}

impl StagedSize {
    fn of(batch: &Batch) -> Self {
        Self {
            records: batch.put.len() + batch.rejected.len(),
            bytes: batch.bytes,
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            records: self.records.saturating_add(other.records),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }
}

/// Sizes of staged full syncs of sources other than the source of a batch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StagedElsewhere {
    /// Of all of them.
    all: StagedSize,
    /// Size of the full syncs from the connection of the batch.
    connection: StagedSize,
}

impl StagedElsewhere {
    fn of(sources: &BTreeMap<Arc<str>, SourceProgress>, batch: &Batch) -> Self {
        let mut elsewhere = Self::default();
        let others = sources.iter().filter(|(name, _)| **name != batch.source);
        for staged in others.filter_map(|(_, source)| source.staged.as_ref()) {
            let size = StagedSize::of(staged);
            elsewhere.all = elsewhere.all.plus(size);
            if batch.connection.is_some() && batch.connection == staged.connection {
                elsewhere.connection = elsewhere.connection.plus(size);
            }
        }
        elsewhere
    }
}

/// Sizes of the full syncs that other sources stage. Abandoned full syncs are dropped first. Then full syncs whose
/// connection has ended are dropped, longest silent first, until this batch fits.
pub(crate) fn make_room(
    limits: &StateLimits,
    sources: &mut BTreeMap<Arc<str>, SourceProgress>,
    batch: &Batch,
    now: Duration,
) -> StagedElsewhere {
    let others = sources.iter_mut().filter(|(name, _)| **name != batch.source);
    for (_, source) in others {
        let abandoned = source
            .last_batch
            .is_none_or(|last| now.saturating_sub(last) > ABANDONED_AFTER);
        source.staged.take_if(|_| abandoned);
    }
    let before = sources.get(&batch.source).and_then(|source| source.staged.as_ref());
    let before = before
        .filter(|_| batch.part > 1)
        .map_or_else(StagedSize::default, StagedSize::of);
    let own = StagedSize::of(batch).plus(before);
    loop {
        let elsewhere = StagedElsewhere::of(sources, batch);
        let whole = elsewhere.all.plus(own);
        let fits = whole.records <= limits.full_sync_records && whole.bytes <= limits.full_sync_bytes;
        if fits || !drop_left_behind(sources, &batch.source) {
            return elsewhere;
        }
    }
}

/// Drops the longest silent full sync whose connection has ended. Returns false if there is none.
fn drop_left_behind(sources: &mut BTreeMap<Arc<str>, SourceProgress>, own: &Arc<str>) -> bool {
    let is_left_behind = |source: &SourceProgress| {
        let staged = source.staged.as_ref();
        let connection = staged.and_then(|staged| staged.connection.as_ref());
        connection.is_some_and(ConnectionShare::has_ended)
    };
    let left_behind = sources
        .iter_mut()
        .filter(|(name, source)| *name != own && is_left_behind(source));
    let oldest = left_behind.min_by_key(|(_, source)| source.last_batch);
    oldest.is_some_and(|(_, source)| source.staged.take().is_some())
}

/// Appends a part to the staged ones; part 1 restarts the full sync.
pub(crate) fn stage_part(
    limits: &StateLimits,
    source: &mut SourceProgress,
    mut batch: Batch,
    elsewhere: StagedElsewhere,
) -> Result<Batch, StateError> {
    let Some(mut staged) = source.staged.take().filter(|_| batch.part > 1) else {
        return check_size(limits, batch, elsewhere);
    };
    staged.put.append(&mut batch.put);
    staged.rejected.append(&mut batch.rejected);
    staged.warnings.append(&mut batch.warnings);
    staged.bytes += batch.bytes;
    staged.basis = staged.basis.and(batch.basis);
    (staged.sequence, staged.kind, staged.part) = (batch.sequence, batch.kind, batch.part);
    staged.connection = batch.connection;
    check_size(limits, staged, elsewhere)
}

fn check_size(limits: &StateLimits, batch: Batch, elsewhere: StagedElsewhere) -> Result<Batch, StateError> {
    let own = StagedSize::of(&batch);
    let StagedElsewhere { all, connection } = elsewhere;
    let has_connection = batch.connection.is_some();
    check_sum(
        ("full_sync_records", limits.full_sync_records),
        (own.records, all.records, "records of other sources"),
        &batch.source,
    )?;
    check_sum(
        ("full_sync_bytes", limits.full_sync_bytes),
        (own.bytes, all.bytes, "bytes of other sources"),
        &batch.source,
    )?;
    if has_connection {
        check_sum(
            ("connection_full_sync_records", limits.connection_full_sync_records),
            (
                own.records,
                connection.records,
                "records of other sources on this connection",
            ),
            &batch.source,
        )?;
        check_sum(
            ("connection_full_sync_bytes", limits.connection_full_sync_bytes),
            (own.bytes, connection.bytes, "bytes of other sources on this connection"),
            &batch.source,
        )?;
    }
    Ok(batch)
}

/// Checks a sum. `others`: the part of others, and what it consists of.
fn check_sum(
    (limit, most): (&'static str, usize),
    (own, others, things): (usize, usize, &str),
    source: &str,
) -> Result<(), StateError> {
    if own.saturating_add(others) <= most {
        return Ok(());
    }
    let also = if others > 0 {
        format!(", besides {others} {things}: send one full sync after the other")
    } else {
        ": send fewer records, or from several sources".to_owned()
    };
    Err(limit_error(
        limit,
        most,
        format!("the full sync of `{source}` would hold {own}{also}"),
    ))
}
