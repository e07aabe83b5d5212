//! Lines of an export of durable state: a head, a line for each record, and an end.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use pumice_engine::model::Reservation;
use pumice_state::store::{ReservationTombstone, StoredAssumption, StoredPolicy, StoredState};

/// Format of exports. A program reads its own and earlier ones.
const FORMAT: u64 = 2;

fn to_line<T: Serialize>(value: &T) -> String {
    // The values are texts and numbers, which always have a form.
    format!("{}\n", serde_json::to_string(value).unwrap_or_default())
}

/// First line.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum HeadLine {
    /// An export of a store.
    #[serde(rename = "pumice-store")]
    Store {
        /// Format of the export.
        format: u64,
        /// Version of the program that wrote it.
        version: String,
        /// Number of records.
        records: usize,
    },
}

impl HeadLine {
    pub(super) fn new(records: usize) -> Self {
        Self::Store {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            records,
        }
    }

    pub(super) fn to_line(&self) -> String {
        to_line(self)
    }

    /// Checks that the line is the head of an export that this program reads.
    pub(super) fn check(line: &str) -> Result<(), String> {
        let Self::Store { format, version, .. } =
            serde_json::from_str(line).map_err(|error| format!("no export of a store begins so: {error}"))?;
        if format > FORMAT {
            return Err(format!(
                "the export has format {format}, of version {version}; this program reads format {FORMAT}: use that version, or \
                 a newer one"
            ));
        }
        Ok(())
    }
}

/// An amount of a reservation: a whole number of the resource's smallest unit, which may have more digits than JSON keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AmountLine {
    name: String,
    amount: String,
}

/// Line of one record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum ExportLine {
    /// Reservation of a job.
    Reservation {
        job: String,
        uid: String,
        attempt: u64,
        queue: String,
        amounts: Vec<AmountLine>,
        content: String,
        source: String,
        confirmed_ms: u64,
        lease_ms: u64,
        policy: String,
    },
    /// Reservation that has ended.
    EndedReservation {
        job: String,
        uid: String,
        attempt: u64,
        job_ended: bool,
    },
    /// Committed placement of a task.
    Placement {
        task: String,
        uid: String,
        node: String,
        card: String,
        devices: u64,
        session: String,
        source: String,
    },
    /// Version of a policy.
    Policy {
        name: String,
        version: u64,
        origin: String,
        origin_detail: String,
        accepted_ms: u64,
        compatibility: String,
        document: String,
    },
    /// Fingerprint of the policy file that was accepted last.
    PolicyFile { name: String, fingerprint: String },
    /// Live source that had synced.
    Source { name: String },
    /// Last line: the number of records before it, and the SHA-256 of all lines before it.
    End { records: usize, sha256: String },
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Bytes as hexadecimal digits.
pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn read_hexadecimal(text: &str) -> Option<[u8; 16]> {
    if !text.is_ascii() {
        return None;
    }
    let mut bytes = [0; 16];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(at * 2..at * 2 + 2)?, 16).ok()?;
    }
    (text.len() == 32).then_some(bytes)
}

impl ExportLine {
    /// Lines of all records.
    pub(super) fn of(state: &StoredState) -> Vec<Self> {
        let reservations = state.reservations.iter().map(|row| Self::of_reservation(row));
        let ended = state.tombstones.iter().map(|row| Self::EndedReservation {
            job: row.job.to_string(),
            uid: row.uid.to_string(),
            attempt: row.attempt,
            job_ended: row.job_ended,
        });
        let placements = state.assumptions.iter().map(|row| Self::Placement {
            task: row.task.to_string(),
            uid: row.uid.to_string(),
            node: row.node.to_string(),
            card: row.card.to_string(),
            devices: row.devices,
            session: row.session.to_string(),
            source: row.source.to_string(),
        });
        let policies = state.policies.iter().map(|row| Self::Policy {
            name: row.name.to_string(),
            version: row.version,
            origin: row.origin.to_string(),
            origin_detail: row.origin_detail.to_string(),
            accepted_ms: millis(row.accepted),
            compatibility: row.compatibility.to_string(),
            document: row.document.to_string(),
        });
        let files = state.policy_files.iter().map(|(name, fingerprint)| Self::PolicyFile {
            name: name.to_string(),
            fingerprint: fingerprint.to_string(),
        });
        let sources = state.sources.iter().map(|name| Self::Source { name: name.to_string() });
        policies
            .chain(files)
            .chain(sources)
            .chain(reservations)
            .chain(ended)
            .chain(placements)
            .collect()
    }

    fn of_reservation(row: &Reservation) -> Self {
        let amounts = row.amounts.iter().map(|(name, amount)| AmountLine {
            name: name.to_string(),
            amount: amount.to_string(),
        });
        Self::Reservation {
            job: row.job.to_string(),
            uid: row.uid.to_string(),
            attempt: row.attempt,
            queue: row.queue.to_string(),
            amounts: amounts.collect(),
            content: hexadecimal(&row.content),
            source: row.source.to_string(),
            confirmed_ms: millis(row.confirmed),
            lease_ms: millis(row.lease),
            policy: row.policy.to_string(),
        }
    }

    pub(super) fn to_line(&self) -> String {
        to_line(self)
    }

    /// Reads a line; an error describes the problem.
    pub(super) fn read(line: &str) -> Result<Self, String> {
        let record: Self = serde_json::from_str(line).map_err(|error| error.to_string())?;
        if let Self::Reservation {
            content, amounts, job, ..
        } = &record
        {
            if read_hexadecimal(content).is_none() {
                return Err(format!(
                    "the content of the reservation of `{job}` is not 32 hexadecimal digits"
                ));
            }
            if let Some(wrong) = amounts.iter().find(|amount| amount.amount.parse::<i128>().is_err()) {
                let AmountLine { name, amount } = wrong;
                return Err(format!(
                    "the amount of `{name}` of the reservation of `{job}`, `{amount}`, is no whole number"
                ));
            }
        }
        Ok(record)
    }

    /// Adds the record, whose line was read, to a state.
    pub(super) fn add_to(self, state: &mut StoredState) {
        match self {
            Self::Reservation { .. } => state.reservations.extend(self.into_reservation().map(Arc::new)),
            Self::EndedReservation {
                job,
                uid,
                attempt,
                job_ended,
            } => state.tombstones.push(Arc::new(ReservationTombstone {
                job: job.into(),
                uid: uid.into(),
                attempt,
                job_ended,
            })),
            Self::Placement {
                task,
                uid,
                node,
                card,
                devices,
                session,
                source,
            } => state.assumptions.push(Arc::new(StoredAssumption {
                task: task.into(),
                uid: uid.as_str().into(),
                node: node.into(),
                card: card.into(),
                devices,
                session: session.into(),
                source: source.into(),
            })),
            Self::Policy {
                name,
                version,
                origin,
                origin_detail,
                accepted_ms,
                compatibility,
                document,
            } => state.policies.push(StoredPolicy {
                name: name.into(),
                version,
                document: document.into(),
                compatibility: compatibility.into(),
                origin: origin.into(),
                origin_detail: origin_detail.into(),
                accepted: Duration::from_millis(accepted_ms),
            }),
            Self::PolicyFile { name, fingerprint } => state.policy_files.push((name.into(), fingerprint.into())),
            Self::Source { name } => state.sources.push(name.into()),
            Self::End { .. } => {}
        }
    }

    /// The record of a reservation; `None`: the line is another.
    fn into_reservation(self) -> Option<Reservation> {
        let Self::Reservation {
            job,
            uid,
            attempt,
            queue,
            amounts,
            content,
            source,
            confirmed_ms,
            lease_ms,
            policy,
        } = self
        else {
            return None;
        };
        let amount = |line: AmountLine| (Arc::from(line.name), line.amount.parse().unwrap_or_default());
        Some(Reservation {
            job: job.into(),
            uid: uid.into(),
            attempt,
            queue: queue.into(),
            amounts: amounts.into_iter().map(amount).collect(),
            content: read_hexadecimal(&content).unwrap_or_default(),
            source: source.into(),
            confirmed: Duration::from_millis(confirmed_ms),
            lease: Duration::from_millis(lease_ms),
            policy: policy.into(),
        })
    }
}
