//! Rows that the entries of a log add up to, in memory, with their digest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::row::{RowDigest, RowKey, RowTable, row_checksum};
use super::{LogEntry, LogHead, ReservationTombstone, StoreWrite, StoredAssumption, StoredPolicy, StoredState, format};
use pumice_engine::model::Reservation;

/// Rows of a kind, by name, each with its checksum.
type Rows<V> = BTreeMap<Arc<str>, (Arc<V>, u64)>;

/// Content of a log: the rows after all its entries. Rows are shared with their writer.
#[derive(Clone, Debug, Default)]
pub struct StoredContent {
    reservations: Rows<Reservation>,
    tombstones: Rows<ReservationTombstone>,
    assumptions: Rows<StoredAssumption>,
    policies: BTreeMap<(Arc<str>, u64), (StoredPolicy, u64)>,
    policy_files: Rows<str>,
    sources: BTreeSet<Arc<str>>,
    sequence: u64,
    digest: RowDigest,
}

impl StoredContent {
    /// Content of a log whose last entry has this number.
    pub fn new(state: StoredState, sequence: u64) -> Self {
        Self::from_writes(&state.into_writes(), sequence)
    }

    /// Content of an empty log after these writes, with this number as the last entry.
    pub fn from_writes(writes: &[StoreWrite], sequence: u64) -> Self {
        let mut own = Self::default();
        for write in writes {
            own.apply_write(write);
        }
        own.sequence = sequence;
        own
    }

    /// Content of a snapshot, which has this head.
    ///
    /// # Errors
    /// The bytes are cut, or have another head.
    pub fn from_snapshot(bytes: &[u8], head: LogHead) -> Result<Self, String> {
        let entry = LogEntry::decode(bytes).map_err(|what| format!("its snapshot: {what}"))?;
        let content = Self::from_writes(&entry.writes, head.sequence);
        if content.head() == head {
            return Ok(content);
        }
        Err(format!("its snapshot has {}, and should have {head}", content.head()))
    }

    /// Head of the log that has this content.
    pub fn head(&self) -> LogHead {
        LogHead {
            sequence: self.sequence,
            rows: self.digest.rows,
            checksum: self.digest.sum,
        }
    }

    /// Applies the writes of the next entry.
    pub fn apply(&mut self, writes: &[StoreWrite]) {
        for write in writes {
            self.apply_write(write);
        }
        self.sequence += 1;
    }

    /// Applies the writes of the next entry. Returns the writes that undo them, for [`Self::undo`].
    pub fn try_apply(&mut self, writes: &[StoreWrite]) -> Vec<StoreWrite> {
        let mut inverse: Vec<StoreWrite> = Vec::with_capacity(writes.len());
        for write in writes {
            inverse.push(self.inverse(write));
            self.apply_write(write);
        }
        self.sequence += 1;
        inverse.reverse();
        inverse
    }

    /// Takes the last entry back.
    pub fn undo(&mut self, inverse: &[StoreWrite]) {
        for write in inverse {
            self.apply_write(write);
        }
        self.sequence = self.sequence.saturating_sub(1);
    }

    /// Write that restores what another one is going to replace.
    fn inverse(&self, write: &StoreWrite) -> StoreWrite {
        match write {
            StoreWrite::Job { job, .. } => StoreWrite::Job {
                job: Arc::clone(job),
                reservation: self.reservations.get(job).map(|(row, _)| Arc::clone(row)),
                tombstone: self.tombstones.get(job).map(|(row, _)| Arc::clone(row)),
            },
            StoreWrite::Task { task, .. } => StoreWrite::Task {
                task: Arc::clone(task),
                assumption: self.assumptions.get(task).map(|(row, _)| Arc::clone(row)),
                is_reported: false,
            },
            StoreWrite::Policy(StoredPolicy { name, version, .. }) | StoreWrite::RemovePolicy { name, version } => {
                match self.policies.get(&(Arc::clone(name), *version)) {
                    Some((policy, _)) => StoreWrite::Policy(policy.clone()),
                    None => StoreWrite::RemovePolicy {
                        name: Arc::clone(name),
                        version: *version,
                    },
                }
            }
            StoreWrite::PolicyFile { name, .. } => StoreWrite::PolicyFile {
                name: Arc::clone(name),
                content: self.policy_files.get(name).map(|(content, _)| Arc::clone(content)),
            },
            StoreWrite::Source { name, .. } => StoreWrite::Source {
                name: Arc::clone(name),
                is_awaited: self.sources.contains(name),
            },
        }
    }

    /// Content, sorted.
    pub fn to_state(&self) -> StoredState {
        StoredState {
            reservations: self.reservations.values().map(|(row, _)| Arc::clone(row)).collect(),
            tombstones: self.tombstones.values().map(|(row, _)| Arc::clone(row)).collect(),
            assumptions: self.assumptions.values().map(|(row, _)| Arc::clone(row)).collect(),
            policies: self.policies.values().map(|(policy, _)| policy.clone()).collect(),
            policy_files: self
                .policy_files
                .iter()
                .map(|(name, (content, _))| (Arc::clone(name), Arc::clone(content)))
                .collect(),
            sources: self.sources.iter().cloned().collect(),
        }
    }

    fn apply_write(&mut self, write: &StoreWrite) {
        let digest = &mut self.digest;
        match write {
            StoreWrite::Job {
                job,
                reservation,
                tombstone,
            } => {
                let row = reservation.as_ref().map(|row| (row, format::encode_reservation(row)));
                put(&mut self.reservations, RowTable::Reservations, job, row, digest);
                let row = tombstone.as_ref().map(|row| (row, format::encode_tombstone(row)));
                put(&mut self.tombstones, RowTable::Tombstones, job, row, digest);
            }
            StoreWrite::Task { task, assumption, .. } => {
                let row = assumption.as_ref().map(|row| (row, format::encode_assumption(row)));
                put(&mut self.assumptions, RowTable::Assumptions, task, row, digest);
            }
            StoreWrite::Policy(policy) => {
                let (name, version) = (&policy.name, policy.version);
                let key = RowKey { name, version };
                let checksum = row_checksum(RowTable::Policies, &key, &format::encode_policy(policy));
                let old = self
                    .policies
                    .insert((Arc::clone(name), version), (policy.clone(), checksum));
                digest.replace(old.map(|(_, old)| old), Some(checksum));
            }
            StoreWrite::RemovePolicy { name, version } => {
                let old = self.policies.remove(&(Arc::clone(name), *version));
                digest.replace(old.map(|(_, old)| old), None);
            }
            StoreWrite::PolicyFile { name, content } => {
                let row = content.as_ref().map(|content| (content, content.as_bytes().to_vec()));
                put(&mut self.policy_files, RowTable::PolicyFiles, name, row, digest);
            }
            StoreWrite::Source { name, is_awaited } => {
                let checksum = row_checksum(RowTable::Sources, &(&**name).into(), &[]);
                let was = if *is_awaited {
                    !self.sources.insert(Arc::clone(name))
                } else {
                    self.sources.remove(name)
                };
                digest.replace(was.then_some(checksum), is_awaited.then_some(checksum));
            }
        }
    }
}

fn put<V: ?Sized>(
    rows: &mut Rows<V>,
    table: RowTable,
    name: &Arc<str>,
    row: Option<(&Arc<V>, Vec<u8>)>,
    digest: &mut RowDigest,
) {
    let row = row.map(|(row, body)| (Arc::clone(row), row_checksum(table, &(&**name).into(), &body)));
    let checksum = row.as_ref().map(|(_, checksum)| *checksum);
    let old = match row {
        Some(row) => rows.insert(Arc::clone(name), row),
        None => rows.remove(name),
    };
    digest.replace(old.map(|(_, old)| old), checksum);
}
