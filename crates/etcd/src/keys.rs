//! Keys of the log, and the values beside the entries.
//!
//! | Key | Value |
//! |---|---|
//! | `head` | the head: number of the last entry, and the checksum of what all entries add up to |
//! | `log/NUMBER` | who appended the entry, its number of parts, and the entry if it has none |
//! | `part/NUMBER/AUTHOR/PART` | a part of a long entry |
//! | `snapshot` | the head of the newest snapshot, and its number of parts |
//! | `snapshot/NUMBER/PART` | a part of a snapshot |
//! | `replicas/NAME` | address of a server, and the last entry that it has applied; it goes with the lease |

use prost::Message;
use pumice_state::store::{EntryAuthor, LogHead};

/// Names of the keys of one log, below its prefix.
#[derive(Clone, Debug)]
pub(crate) struct LogKeys {
    prefix: String,
}

/// A range of keys: the first, and the first that is not of the range.
pub(crate) type KeyRange = (Vec<u8>, Vec<u8>);

impl LogKeys {
    pub(crate) fn new(prefix: &str) -> Self {
        let prefix = prefix.trim_end_matches('/');
        Self {
            prefix: format!("{prefix}/"),
        }
    }

    pub(crate) fn head(&self) -> Vec<u8> {
        format!("{}head", self.prefix).into_bytes()
    }

    pub(crate) fn entry(&self, sequence: u64) -> Vec<u8> {
        format!("{}log/{sequence:016x}", self.prefix).into_bytes()
    }

    /// Entries from this number to before that one.
    pub(crate) fn entries(&self, from: u64, before: Option<u64>) -> KeyRange {
        let end = match before {
            Some(before) => self.entry(before),
            None => format!("{}log0", self.prefix).into_bytes(),
        };
        (self.entry(from), end)
    }

    /// The head and all entries.
    pub(crate) fn head_and_entries(&self) -> KeyRange {
        (self.head(), self.entries(0, None).1)
    }

    /// Number of the entry that has this key. `None`: it is not the key of an entry.
    pub(crate) fn entry_number(&self, key: &[u8]) -> Option<u64> {
        let digits = std::str::from_utf8(key).ok()?.strip_prefix(&self.prefix)?;
        let number = u64::from_str_radix(digits.strip_prefix("log/")?, 16).ok()?;
        (key == self.entry(number)).then_some(number)
    }

    pub(crate) fn entry_part(&self, sequence: u64, author: &EntryAuthor, part: u64) -> Vec<u8> {
        format!("{}part/{sequence:016x}/{author}/{part:08x}", self.prefix).into_bytes()
    }

    /// Parts of all entries before this one.
    pub(crate) fn older_entry_parts(&self, sequence: u64) -> KeyRange {
        let end = format!("{}part/{sequence:016x}/", self.prefix).into_bytes();
        (format!("{}part/", self.prefix).into_bytes(), end)
    }

    pub(crate) fn snapshot(&self) -> Vec<u8> {
        format!("{}snapshot", self.prefix).into_bytes()
    }

    pub(crate) fn snapshot_part(&self, sequence: u64, part: u64) -> Vec<u8> {
        format!("{}snapshot/{sequence:016x}/{part:08x}", self.prefix).into_bytes()
    }

    /// Parts of all snapshots before this one.
    pub(crate) fn older_snapshots(&self, sequence: u64) -> KeyRange {
        let end = format!("{}snapshot/{sequence:016x}/", self.prefix).into_bytes();
        (format!("{}snapshot/", self.prefix).into_bytes(), end)
    }

    pub(crate) fn replica(&self, name: &str) -> Vec<u8> {
        format!("{}replicas/{name}", self.prefix).into_bytes()
    }

    pub(crate) fn replicas(&self) -> KeyRange {
        let (from, to) = (format!("{}replicas/", self.prefix), format!("{}replicas0", self.prefix));
        (from.into_bytes(), to.into_bytes())
    }
}

/// Value of a server's key.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ReplicaRecord {
    /// Address at which clients find it.
    #[prost(string, tag = "1")]
    pub(crate) address: String,
    /// Number of the last entry that it has applied.
    #[prost(uint64, tag = "2")]
    pub(crate) applied: u64,
    /// Beginning of the names of its sessions.
    #[prost(string, tag = "3")]
    pub(crate) session_prefix: String,
}

/// Value that names the newest snapshot.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SnapshotRecord {
    /// Head, as it is stored.
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) head: Vec<u8>,
    #[prost(uint64, tag = "2")]
    pub(crate) parts: u64,
}

impl SnapshotRecord {
    /// Snapshot of this value, and its head.
    pub(crate) fn read(value: &[u8]) -> Result<(Self, LogHead), String> {
        let record = Self::decode(value).map_err(|error| format!("the snapshot: {error}"))?;
        let head = LogHead::decode(&record.head).map_err(|problem| format!("the snapshot: {problem}"))?;
        Ok((record, head))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_hold_their_keys_and_no_others() {
        let keys = LogKeys::new("/a/b");
        assert_eq!(keys.head(), b"/a/b/head");
        let holds = |(from, to): KeyRange, key: &[u8]| &*from <= key && key < &*to;
        assert!(holds(keys.entries(1, None), &keys.entry(u64::MAX)));
        assert!(holds(keys.entries(2, Some(9)), &keys.entry(8)));
        for outside in [
            keys.entry(1),
            keys.entry(9),
            keys.head(),
            keys.snapshot(),
            keys.replica("x"),
        ] {
            assert!(!holds(keys.entries(2, Some(9)), &outside));
        }
        assert_eq!(keys.entry_number(&keys.entry(77)), Some(77));
        assert_eq!(keys.entry_number(&keys.head()), None);
        for foreign in ["/a/b/log/4d", "/a/b/log/b/head", "/a/b/log/000000000000004D"] {
            assert_eq!(keys.entry_number(foreign.as_bytes()), None);
        }
        assert!(holds(keys.older_snapshots(4), &keys.snapshot_part(3, 200)));
        assert!(!holds(keys.older_snapshots(4), &keys.snapshot_part(4, 0)));
        assert!(!holds(keys.older_snapshots(4), &keys.snapshot()));
        assert!(holds(keys.replicas(), &keys.replica("x")));
    }
}
