//! Appending: the entry is put into its slot, and what became of it is found out if a reply is lost.

use std::time::Duration;

use pumice_state::store::{AppendOutcome, EntryAttempt, EntryAuthor, EntryValue, LogPlace as _, StoreError};
use tokio::time::Instant;

use crate::follower::problem_of;
use crate::link::ApiError;
use crate::names::LogObjectKind;
use crate::read::SlotLog;
use crate::slots::{SlotRead, SlotVersion};

/// Most bytes of an entry that a slot holds: all slots together are bounded by that times their number.
const SLOT_BYTES: usize = 128 << 10;
/// Most bytes of a part. A ConfigMap has 1 MiB at most, and etcd takes requests of 1.5 MiB.
pub(crate) const PART_BYTES: usize = 768 << 10;
/// Number of times that the timeout of a request passes before the outcome of an entry is given up as unknown.
pub(crate) const RESOLVE_TIMEOUTS: u32 = 3;
/// Pause between two attempts to learn the outcome of an entry.
pub(crate) const RESOLVE_PAUSE: Duration = Duration::from_millis(50);

/// Conclusion from a slot whose update was refused.
enum SlotVerdict {
    /// Outcome of the attempt.
    Known(AppendOutcome),
    /// The slot has the entry of the lap before, at another version: somebody touched the object.
    Again(SlotVersion),
    /// Another lap has passed meanwhile.
    Lapped,
}

/// Pause before an update is sent again. The first conflict may come of somebody who touched the object; later ones make the
/// pauses longer.
fn pause_after(error: &ApiError, tries: u32) -> Duration {
    match error {
        ApiError::Throttled(_, wait) => *wait,
        ApiError::Conflict(_) if tries == 0 => Duration::ZERO,
        ApiError::Conflict(_)
        | ApiError::Absent(_)
        | ApiError::Expired(_)
        | ApiError::Refused(_)
        | ApiError::Unknown { .. } => RESOLVE_PAUSE * (1 << tries.min(4)),
    }
}

impl SlotLog {
    /// Appends an entry. The slot may be written: a snapshot covers the entry that is in it.
    pub(crate) async fn append_entry(&self, attempt: EntryAttempt) -> Result<AppendOutcome, StoreError> {
        let sequence = attempt.after.sequence;
        let slot = self.slot_of(sequence);
        let value = self.write_parts(&attempt).await?;
        let until = Instant::now() + self.link.timeout() * RESOLVE_TIMEOUTS;
        let known = self.slots.version(slot);
        let mut expected = match known.filter(|known| known.sequence == self.lap_before(sequence)) {
            Some(version) => version,
            None => self.read_version(sequence).await?,
        };
        if expected.sequence >= sequence && self.options.rules.compares() {
            return Ok(AppendOutcome::Stale);
        }
        self.check_lap(sequence, &expected)?;
        // True if an update may have been carried out without a response that proves it.
        let (mut is_unknown, mut tries) = (false, 0);
        loop {
            let error = match self.put(slot, sequence, &value, &expected).await {
                Ok(()) => return Ok(AppendOutcome::Appended),
                Err(error) => error,
            };
            is_unknown |= matches!(error, ApiError::Unknown { .. });
            if is_unknown && !self.options.rules.waits() {
                return Ok(AppendOutcome::Appended);
            }
            if !matches!(error, ApiError::Throttled(..)) {
                match self.judge_slot(sequence, &attempt.author, until).await {
                    Ok(SlotVerdict::Known(outcome)) => return Ok(outcome),
                    Ok(SlotVerdict::Again(version)) => expected = version,
                    Ok(SlotVerdict::Lapped) => {
                        return Err(self.link.unknown("other entries have taken the place of the entry"));
                    }
                    // A proxy may have sent an update twice: the second one conflicts with the first.
                    Err(problem) if is_unknown || matches!(error, ApiError::Conflict(_)) => {
                        return Err(self.link.unknown(&problem_of(&problem)));
                    }
                    Err(problem) => return Err(problem),
                }
            }
            let wait = pause_after(&error, tries);
            tries += 1;
            let is_final = matches!(error, ApiError::Refused(_) | ApiError::Expired(_));
            if is_unknown && (is_final || Instant::now() + wait >= until) {
                return Err(self.link.unknown(&error.message()));
            }
            if is_final || Instant::now() + wait >= until {
                return Err(self.link.error(&error));
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// Number of the entry that is in the slot of another one before it.
    pub(crate) fn lap_before(&self, sequence: u64) -> u64 {
        sequence.saturating_sub(self.slots.slots())
    }

    /// Checks that a slot without the new entry has the entry of the previous lap. An older entry belongs to an older
    /// copy of the log.
    pub(crate) fn check_lap(&self, sequence: u64, version: &SlotVersion) -> Result<(), StoreError> {
        if version.sequence == self.lap_before(sequence) || !self.options.rules.compares() {
            return Ok(());
        }
        Err(self.link.replaced())
    }

    /// Puts an entry into its slot, if the slot has the expected version.
    async fn put(&self, slot: u64, sequence: u64, value: &EntryValue, expected: &SlotVersion) -> Result<(), ApiError> {
        let mut object = self.link.names.slot_object(slot, sequence, value);
        if self.options.rules.compares() {
            object.metadata.uid = Some(expected.uid.clone());
            object.metadata.resource_version = Some(expected.version.clone());
        }
        let written = self.link.replace(&object, value.bytes.len()).await?;
        if let Ok(version) = SlotVersion::of(&written.metadata) {
            // The uid is the one that was compared.
            let _: Result<(), _> = self.slots.note(slot, &version, None);
        }
        Ok(())
    }

    /// Finds out from a slot what became of an attempt.
    async fn judge_slot(&self, sequence: u64, author: &EntryAuthor, until: Instant) -> Result<SlotVerdict, StoreError> {
        let slot = self.slot_of(sequence);
        let object = loop {
            match self.find_slot(slot).await {
                Ok(Some(object)) => break object,
                Ok(None) => return Err(self.link.replaced()),
                Err(error) if Instant::now() >= until => return Err(self.link.error(&error)),
                Err(ApiError::Throttled(_, wait)) => tokio::time::sleep(wait).await,
                Err(_) => tokio::time::sleep(RESOLVE_PAUSE).await,
            }
        };
        let version = SlotVersion::of(&object.metadata).map_err(|what| self.link.damaged(&what))?;
        // The entry that it replaces may be damaged.
        let value = SlotRead::of(&object).ok().and_then(|read| read.value);
        let here = version.sequence;
        let is_own = value.as_ref().is_some_and(|value| value.author == *author);
        self.note(slot, &version, value.filter(|_| !is_own))?;
        Ok(match here.cmp(&sequence) {
            std::cmp::Ordering::Equal if is_own => SlotVerdict::Known(AppendOutcome::Appended),
            // An entry is put into its slot once.
            std::cmp::Ordering::Equal => SlotVerdict::Known(AppendOutcome::Stale),
            std::cmp::Ordering::Greater => SlotVerdict::Lapped,
            std::cmp::Ordering::Less => {
                self.check_lap(sequence, &version)?;
                SlotVerdict::Again(version)
            }
        })
    }

    /// Value of an entry. The parts of a long entry are written first.
    async fn write_parts(&self, attempt: &EntryAttempt) -> Result<EntryValue, StoreError> {
        let split = attempt.split(SLOT_BYTES, PART_BYTES);
        let (value, parts) = split.map_err(|what| self.link.failed(&what))?;
        let sequence = attempt.after.sequence;
        for (number, part) in (0..).zip(parts) {
            let name = self.link.names.entry_part(sequence, &attempt.author, number);
            self.create_part(LogObjectKind::EntryPart, name, (sequence, part.to_vec()))
                .await?;
        }
        Ok(value)
    }

    /// Creates an object with these bytes. An existing object with the same bytes is also a success.
    pub(crate) async fn create_part(
        &self,
        kind: LogObjectKind,
        name: String,
        (sequence, bytes): (u64, Vec<u8>),
    ) -> Result<(), StoreError> {
        let until = Instant::now() + self.link.timeout() * RESOLVE_TIMEOUTS;
        let length = bytes.len();
        let object = self.link.names.bytes_object(kind, name.clone(), (sequence, bytes));
        loop {
            let Err(error) = self.link.create(&object, length).await else {
                return Ok(());
            };
            let wait = match &error {
                ApiError::Conflict(_) => match self.link.find(&name).await {
                    Ok(Some(found)) if crate::names::bytes_of(&found) == crate::names::bytes_of(&object) => {
                        return Ok(());
                    }
                    Ok(Some(_)) => return Err(self.link.failed(&format!("{name} is there, with another content"))),
                    Ok(None) | Err(_) => RESOLVE_PAUSE,
                },
                ApiError::Throttled(_, wait) => *wait,
                ApiError::Unknown { .. } => RESOLVE_PAUSE,
                ApiError::Absent(_) | ApiError::Expired(_) | ApiError::Refused(_) => {
                    return Err(self.link.error(&error));
                }
            };
            if Instant::now() + wait >= until {
                return Err(self.link.error(&error));
            }
            tokio::time::sleep(wait).await;
        }
    }
}
