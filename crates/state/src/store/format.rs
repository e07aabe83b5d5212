//! Records as bytes, in protocol buffers: a later version can add fields.

use std::sync::Arc;
use std::time::Duration;

use prost::Message;

use super::{ReservationTombstone, StoredAssumption, StoredPolicy};
use pumice_engine::model::Reservation;

#[derive(Clone, PartialEq, Message)]
struct AmountRecord {
    #[prost(string, tag = "1")]
    name: String,
    /// Amount in decimal: amounts are wider than 64 bits.
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct ReservationRecord {
    #[prost(string, tag = "1")]
    uid: String,
    #[prost(uint64, tag = "2")]
    attempt: u64,
    #[prost(string, tag = "3")]
    queue: String,
    #[prost(message, repeated, tag = "4")]
    amounts: Vec<AmountRecord>,
    #[prost(bytes = "vec", tag = "5")]
    content: Vec<u8>,
    #[prost(string, tag = "6")]
    source: String,
    #[prost(uint64, tag = "7")]
    confirmed_ms: u64,
    #[prost(uint64, tag = "8")]
    lease_ms: u64,
    #[prost(string, tag = "9")]
    policy: String,
}

#[derive(Clone, PartialEq, Message)]
struct ReservationTombstoneRecord {
    #[prost(string, tag = "1")]
    uid: String,
    #[prost(uint64, tag = "2")]
    attempt: u64,
    #[prost(bool, tag = "3")]
    job_ended: bool,
}

#[derive(Clone, PartialEq, Message)]
struct AssumptionRecord {
    #[prost(string, tag = "1")]
    uid: String,
    #[prost(string, tag = "2")]
    node: String,
    #[prost(string, tag = "3")]
    card: String,
    #[prost(string, tag = "4")]
    session: String,
    #[prost(string, tag = "5")]
    source: String,
    #[prost(fixed64, tag = "6")]
    devices: u64,
}

#[derive(Clone, PartialEq, Message)]
struct PolicyRecord {
    #[prost(string, tag = "1")]
    document: String,
    #[prost(string, tag = "2")]
    compatibility: String,
    #[prost(string, tag = "3")]
    origin: String,
    #[prost(string, tag = "4")]
    origin_detail: String,
    #[prost(uint64, tag = "5")]
    accepted_ms: u64,
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn encode_reservation(row: &Reservation) -> Vec<u8> {
    let amounts = row.amounts.iter().map(|(name, amount)| AmountRecord {
        name: name.to_string(),
        value: amount.to_string(),
    });
    ReservationRecord {
        uid: row.uid.to_string(),
        attempt: row.attempt,
        queue: row.queue.to_string(),
        amounts: amounts.collect(),
        content: row.content.to_vec(),
        source: row.source.to_string(),
        confirmed_ms: millis(row.confirmed),
        lease_ms: millis(row.lease),
        policy: row.policy.to_string(),
    }
    .encode_to_vec()
}

/// Decodes a reservation. An error names the reservation and its problem.
pub(super) fn decode_reservation(job: &str, bytes: &[u8]) -> Result<Reservation, String> {
    let problem = |what: &str| format!("the reservation of `{job}`: {what}");
    let record = ReservationRecord::decode(bytes).map_err(|error| problem(&error.to_string()))?;
    let amounts: Result<Vec<(Arc<str>, i128)>, String> = record
        .amounts
        .into_iter()
        .map(|AmountRecord { name, value }| {
            let amount = value.parse().map_err(|_| problem("an amount is not a number"))?;
            Ok((Arc::from(name), amount))
        })
        .collect();
    Ok(Reservation {
        job: job.into(),
        uid: record.uid.into(),
        attempt: record.attempt,
        queue: record.queue.into(),
        amounts: amounts?,
        content: record
            .content
            .try_into()
            .map_err(|_| problem("its content is not 16 bytes"))?,
        source: record.source.into(),
        confirmed: Duration::from_millis(record.confirmed_ms),
        lease: Duration::from_millis(record.lease_ms),
        policy: record.policy.into(),
    })
}

pub(super) fn encode_tombstone(tombstone: &ReservationTombstone) -> Vec<u8> {
    ReservationTombstoneRecord {
        uid: tombstone.uid.to_string(),
        attempt: tombstone.attempt,
        job_ended: tombstone.job_ended,
    }
    .encode_to_vec()
}

/// Decodes a tombstone. An error names the tombstone and its problem.
pub(super) fn decode_tombstone(job: &str, bytes: &[u8]) -> Result<ReservationTombstone, String> {
    let ReservationTombstoneRecord {
        uid,
        attempt,
        job_ended,
    } = ReservationTombstoneRecord::decode(bytes).map_err(|error| format!("the tombstone of `{job}`: {error}"))?;
    Ok(ReservationTombstone {
        job: job.into(),
        uid: uid.into(),
        attempt,
        job_ended,
    })
}

pub(super) fn encode_assumption(assumption: &StoredAssumption) -> Vec<u8> {
    AssumptionRecord {
        uid: assumption.uid.to_string(),
        node: assumption.node.to_string(),
        card: assumption.card.to_string(),
        session: assumption.session.to_string(),
        source: assumption.source.to_string(),
        devices: assumption.devices,
    }
    .encode_to_vec()
}

/// Decodes a committed placement. An error names the task and its problem.
pub(super) fn decode_assumption(task: &str, bytes: &[u8]) -> Result<StoredAssumption, String> {
    let AssumptionRecord {
        uid,
        node,
        card,
        session,
        source,
        devices,
    } = AssumptionRecord::decode(bytes).map_err(|error| format!("the committed placement of `{task}`: {error}"))?;
    Ok(StoredAssumption {
        task: task.into(),
        uid: uid.into(),
        node: node.into(),
        card: card.into(),
        devices,
        session: session.into(),
        source: source.into(),
    })
}

pub(super) fn encode_policy(policy: &StoredPolicy) -> Vec<u8> {
    PolicyRecord {
        document: policy.document.to_string(),
        compatibility: policy.compatibility.to_string(),
        origin: policy.origin.to_string(),
        origin_detail: policy.origin_detail.to_string(),
        accepted_ms: millis(policy.accepted),
    }
    .encode_to_vec()
}

/// Decodes a version of a policy. An error names the version and its problem.
pub(super) fn decode_policy(name: &str, version: u64, bytes: &[u8]) -> Result<StoredPolicy, String> {
    let problem = |error| format!("version {version} of policy `{name}`: {error}");
    let PolicyRecord {
        document,
        compatibility,
        origin,
        origin_detail,
        accepted_ms,
    } = PolicyRecord::decode(bytes).map_err(problem)?;
    Ok(StoredPolicy {
        name: name.into(),
        version,
        document: document.into(),
        compatibility: compatibility.into(),
        origin: origin.into(),
        origin_detail: origin_detail.into(),
        accepted: Duration::from_millis(accepted_ms),
    })
}
