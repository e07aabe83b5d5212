//! Entries of a log as bytes, for logs that several processes share.

use std::sync::Arc;

use prost::{Message, Oneof};
use sha2::{Digest as _, Sha256};

use super::header::first_bytes;
use super::{LogHead, StoreWrite, StoredState, format};

#[derive(Clone, PartialEq, Message)]
struct JobWrite {
    #[prost(string, tag = "1")]
    job: String,
    #[prost(bytes = "vec", optional, tag = "2")]
    reservation: Option<Vec<u8>>,
    #[prost(bytes = "vec", optional, tag = "3")]
    tombstone: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct TaskWrite {
    #[prost(string, tag = "1")]
    task: String,
    #[prost(bytes = "vec", optional, tag = "2")]
    assumption: Option<Vec<u8>>,
    #[prost(bool, tag = "3")]
    is_reported: bool,
}

/// Version of a policy; without a body: the version is removed.
#[derive(Clone, PartialEq, Message)]
struct PolicyWrite {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(uint64, tag = "2")]
    version: u64,
    #[prost(bytes = "vec", optional, tag = "3")]
    body: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct PolicyFileWrite {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, optional, tag = "2")]
    content: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct SourceWrite {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(bool, tag = "2")]
    is_awaited: bool,
}

#[derive(Clone, PartialEq, Oneof)]
enum WriteKind {
    #[prost(message, tag = "1")]
    Job(JobWrite),
    #[prost(message, tag = "2")]
    Task(TaskWrite),
    #[prost(message, tag = "3")]
    Policy(PolicyWrite),
    #[prost(message, tag = "4")]
    PolicyFile(PolicyFileWrite),
    #[prost(message, tag = "5")]
    Source(SourceWrite),
}

#[derive(Clone, PartialEq, Message)]
struct EntryWrite {
    #[prost(oneof = "WriteKind", tags = "1, 2, 3, 4, 5")]
    kind: Option<WriteKind>,
}

#[derive(Clone, PartialEq, Message)]
struct EntryRecord {
    /// Head that the entry was appended onto.
    #[prost(message, optional, tag = "1")]
    before: Option<LogHead>,
    /// Head after the entry.
    #[prost(message, optional, tag = "2")]
    after: Option<LogHead>,
    #[prost(message, repeated, tag = "3")]
    writes: Vec<EntryWrite>,
}

/// Entry of a log: the writes of one group commit, between two heads.
#[derive(Clone, Debug, PartialEq)]
pub struct LogEntry {
    /// Head that the entry was appended onto.
    pub before: LogHead,
    /// Head after the entry.
    pub after: LogHead,
    /// Writes, in order.
    pub writes: Vec<StoreWrite>,
}

impl LogEntry {
    /// Entry as bytes: a checksum, and the body that it covers.
    pub fn encode(&self) -> Vec<u8> {
        let body = EntryRecord {
            before: Some(self.before),
            after: Some(self.after),
            writes: self.writes.iter().map(write_record).collect(),
        }
        .encode_to_vec();
        sealed(&body)
    }

    /// Decodes an entry.
    ///
    /// # Errors
    /// The bytes are not a valid entry. The message describes the problem.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let record = EntryRecord::decode(unsealed(bytes)?).map_err(|error| format!("the entry: {error}"))?;
        Ok(Self {
            before: record.before.unwrap_or_default(),
            after: record.after.unwrap_or_default(),
            writes: record
                .writes
                .into_iter()
                .map(read_write)
                .collect::<Result<_, String>>()?,
        })
    }
}

impl LogHead {
    /// Head as bytes, with their checksum.
    pub fn encode(&self) -> Vec<u8> {
        sealed(&self.encode_to_vec())
    }

    /// Decodes a head.
    ///
    /// # Errors
    /// The bytes are not a valid head. The message describes the problem.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        Message::decode(unsealed(bytes)?).map_err(|error| format!("the head: {error}"))
    }
}

impl StoredState {
    /// Content as bytes: the entry that makes an empty log equal to it, at this head.
    pub fn encode(self, head: &LogHead) -> Vec<u8> {
        let entry = LogEntry {
            before: LogHead::default(),
            after: *head,
            writes: self.into_writes(),
        };
        entry.encode()
    }
}

pub(super) fn sealed(body: &[u8]) -> Vec<u8> {
    let checksum: [u8; 8] = first_bytes(Sha256::digest(body).as_slice());
    [&checksum[..], body].concat()
}

fn unsealed(bytes: &[u8]) -> Result<&[u8], String> {
    bytes
        .split_first_chunk()
        .filter(|(checksum, body)| **checksum == first_bytes(Sha256::digest(body).as_slice()))
        .map(|(_, body)| body)
        .ok_or_else(|| "the checksum is wrong".to_owned())
}

fn write_record(write: &StoreWrite) -> EntryWrite {
    let kind = match write {
        StoreWrite::Job {
            job,
            reservation,
            tombstone,
        } => WriteKind::Job(JobWrite {
            job: job.to_string(),
            reservation: reservation.as_deref().map(format::encode_reservation),
            tombstone: tombstone.as_deref().map(format::encode_tombstone),
        }),
        StoreWrite::Task {
            task,
            assumption,
            is_reported,
        } => WriteKind::Task(TaskWrite {
            task: task.to_string(),
            assumption: assumption.as_deref().map(format::encode_assumption),
            is_reported: *is_reported,
        }),
        StoreWrite::Policy(policy) => WriteKind::Policy(PolicyWrite {
            name: policy.name.to_string(),
            version: policy.version,
            body: Some(format::encode_policy(policy)),
        }),
        StoreWrite::RemovePolicy { name, version } => WriteKind::Policy(PolicyWrite {
            name: name.to_string(),
            version: *version,
            body: None,
        }),
        StoreWrite::PolicyFile { name, content } => WriteKind::PolicyFile(PolicyFileWrite {
            name: name.to_string(),
            content: content.as_deref().map(str::to_owned),
        }),
        StoreWrite::Source { name, is_awaited } => WriteKind::Source(SourceWrite {
            name: name.to_string(),
            is_awaited: *is_awaited,
        }),
    };
    EntryWrite { kind: Some(kind) }
}

fn read_write(record: EntryWrite) -> Result<StoreWrite, String> {
    let kind = record
        .kind
        .ok_or("an entry has a write that this program does not know")?;
    Ok(match kind {
        WriteKind::Job(JobWrite {
            job,
            reservation,
            tombstone,
        }) => {
            let reservation = reservation.map(|body| format::decode_reservation(&job, &body));
            let tombstone = tombstone.map(|body| format::decode_tombstone(&job, &body));
            StoreWrite::Job {
                reservation: reservation.transpose()?.map(Arc::new),
                tombstone: tombstone.transpose()?.map(Arc::new),
                job: job.into(),
            }
        }
        WriteKind::Task(TaskWrite {
            task,
            assumption,
            is_reported,
        }) => {
            let assumption = assumption.map(|body| format::decode_assumption(&task, &body));
            StoreWrite::Task {
                assumption: assumption.transpose()?.map(Arc::new),
                is_reported,
                task: task.into(),
            }
        }
        WriteKind::Policy(PolicyWrite { name, version, body }) => match body {
            Some(body) => StoreWrite::Policy(format::decode_policy(&name, version, &body)?),
            None => StoreWrite::RemovePolicy {
                name: name.into(),
                version,
            },
        },
        WriteKind::PolicyFile(PolicyFileWrite { name, content }) => StoreWrite::PolicyFile {
            name: name.into(),
            content: content.map(Into::into),
        },
        WriteKind::Source(SourceWrite { name, is_awaited }) => StoreWrite::Source {
            name: name.into(),
            is_awaited,
        },
    })
}
