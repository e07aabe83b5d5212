//! Rows with their checksums, and the digest of all rows.
//!
//! A row is a checksum and a body. The checksum covers the table, the key and the body, and detects altered and
//! misplaced rows. The digest is the sum of all checksums and detects lost rows.

use sha2::{Digest as _, Sha256};

use super::header::first_bytes;

const CHECKSUM_BYTES: usize = 8;

/// Kind of record that a row has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowTable {
    Reservations,
    Tombstones,
    Assumptions,
    Policies,
    PolicyFiles,
    Sources,
}

impl RowTable {
    /// Name of a row for messages.
    fn describe(self, key: &RowKey<'_>) -> String {
        let RowKey { name, version } = key;
        match self {
            Self::Reservations => format!("the reservation of `{name}`"),
            Self::Tombstones => format!("the tombstone of `{name}`"),
            Self::Assumptions => format!("the committed placement of `{name}`"),
            Self::Policies => format!("version {version} of policy `{name}`"),
            Self::PolicyFiles => format!("the policy file of `{name}`"),
            Self::Sources => format!("the source `{name}`"),
        }
    }
}

/// Identity of a row within its table.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowKey<'a> {
    /// Name of the job, the task or the policy.
    pub(super) name: &'a str,
    /// Version of the policy; 0 in all other tables.
    pub(super) version: u64,
}

impl<'a> From<&'a str> for RowKey<'a> {
    fn from(name: &'a str) -> Self {
        Self { name, version: 0 }
    }
}

fn checksum(table: RowTable, key: &RowKey<'_>, body: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let mut hash = Sha256::new();
    hash.update([table as u8]);
    hash.update((key.name.len() as u64).to_le_bytes());
    hash.update(key.name);
    hash.update(key.version.to_le_bytes());
    hash.update(body);
    first_bytes(hash.finalize().as_slice())
}

/// Checksum of the row of a body, as a number.
pub(super) fn row_checksum(table: RowTable, key: &RowKey<'_>, body: &[u8]) -> u64 {
    u64::from_le_bytes(checksum(table, key, body))
}

/// Row of a body.
pub(super) fn seal(table: RowTable, key: &RowKey<'_>, body: &[u8]) -> Vec<u8> {
    [&checksum(table, key, body), body].concat()
}

/// Body of a row. An error names the row.
pub(super) fn unseal<'r>(table: RowTable, key: &RowKey<'_>, row: &'r [u8]) -> Result<&'r [u8], String> {
    row.split_first_chunk()
        .filter(|(stored, body)| **stored == checksum(table, key, body))
        .map(|(_, body)| body)
        .ok_or_else(|| format!("the checksum of {} is wrong", table.describe(key)))
}

/// Digest of all rows: their number, and the sum of their checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RowDigest {
    pub(super) rows: u64,
    pub(super) sum: u64,
}

impl RowDigest {
    pub(super) fn add(&mut self, row: &[u8]) {
        self.replace(None, Some(stored_checksum(row)));
    }

    pub(super) fn remove(&mut self, row: &[u8]) {
        self.replace(Some(stored_checksum(row)), None);
    }

    /// Takes the checksum of the row in place of another's.
    pub(super) fn replace(&mut self, old: Option<u64>, new: Option<u64>) {
        if let Some(old) = old {
            self.rows = self.rows.wrapping_sub(1);
            self.sum = self.sum.wrapping_sub(old);
        }
        if let Some(new) = new {
            self.rows = self.rows.wrapping_add(1);
            self.sum = self.sum.wrapping_add(new);
        }
    }

    /// Digest of the rows of both.
    pub(super) fn union(self, other: Self) -> Self {
        Self {
            rows: self.rows.wrapping_add(other.rows),
            sum: self.sum.wrapping_add(other.sum),
        }
    }
}

fn stored_checksum(row: &[u8]) -> u64 {
    row.first_chunk().map_or(0, |stored| u64::from_le_bytes(*stored))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_was_altered_or_belongs_elsewhere_is_noticed() {
        let (table, key) = (RowTable::Policies, RowKey { name: "p", version: 3 });
        let row = seal(table, &key, b"body");
        assert_eq!(unseal(table, &key, &row), Ok(&b"body"[..]));
        for byte in 0..row.len() {
            let mut altered = row.clone();
            altered[byte] ^= 1;
            let error = unseal(table, &key, &altered).unwrap_err();
            assert_eq!(error, "the checksum of version 3 of policy `p` is wrong");
        }
        for size in 0..row.len() {
            assert!(unseal(table, &key, &row[..size]).is_err(), "{size} bytes");
        }
        let other = RowKey { name: "p", version: 4 };
        assert!(unseal(table, &other, &row).is_err());
        assert!(unseal(RowTable::PolicyFiles, &key, &row).is_err());
    }

    #[test]
    fn the_digest_is_that_of_the_rows_that_are_left() {
        let rows = [1, 2, 3].map(|number: u8| seal(RowTable::Tombstones, &"ns/a".into(), &[number]));
        let mut digest = RowDigest::default();
        for row in &rows {
            digest.add(row);
        }
        for row in &rows[1..] {
            digest.remove(row);
        }
        let mut first = RowDigest::default();
        first.add(&rows[0]);
        assert_eq!(digest, first);
    }
}
