//! What a confirmation asks, and what it is answered.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use crate::engine::decide::AdmitVerdict;
use crate::engine::model::{ClusterState, JobRecord, NamedAmounts, Problem, Reservation, ResourceTable};
use crate::engine::plugin::{Reason, Resolution};
use crate::engine::{PolicyInForce, Revision};
use crate::store::{Durability, ReservationTombstone};

/// Stands in reasons that the ledger gives.
const LEDGER_PLUGIN: &str = "admission-ledger";
/// The reservation was released, or its job has ended.
const RESERVATION_RELEASED: &str = "ReservationReleased";

/// A job that asks to be promised what it needs.
#[derive(Clone, Debug)]
pub struct ConfirmItem {
    /// The job.
    pub job: Arc<JobRecord>,
    /// Raised by the caller to ask anew.
    pub attempt: u64,
    /// Names of its resources, also of those that no record has named yet.
    pub names: Arc<ResourceTable>,
}

/// Reads the items of a confirmation from the newest state.
pub type ConfirmReader = Box<dyn FnOnce(&ClusterState) -> Vec<Result<ConfirmItem, Problem>> + Send>;

/// Asks that jobs be promised what they need.
pub struct LedgerConfirm {
    /// Policy name.
    pub policy: Arc<str>,
    /// Profile of it; empty: the only one.
    pub profile: Arc<str>,
    /// Ask these plugins only; empty: the policy's tiers.
    pub plugins: Vec<Arc<str>>,
    /// How long unused reservations live; `None`: as the limits say.
    pub lease: Option<Duration>,
    /// The items, judged in this order, each seeing the permits before it.
    pub read_items: ConfirmReader,
}

impl fmt::Debug for LedgerConfirm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { policy, profile, .. } = self;
        let mut shown = f.debug_struct("Confirm");
        shown.field("policy", policy).field("profile", profile);
        shown.finish_non_exhaustive()
    }
}

/// What became of one job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobConfirmOutcome {
    /// The job.
    pub job: Arc<str>,
    /// The verdict.
    pub verdict: AdmitVerdict,
    /// What it is promised now, also if it was refused.
    pub reserved: NamedAmounts,
}

/// What became of a confirmation.
#[derive(Clone, Debug)]
pub struct ConfirmOutcome {
    /// One per item.
    pub items: Vec<Result<JobConfirmOutcome, Problem>>,
    /// The state in which the permits are visible.
    pub revision: Revision,
    /// The policy that judged.
    pub policy: Arc<PolicyInForce>,
    /// Where the permits are kept.
    pub durability: Durability,
}

/// Asks that a reservation be taken back.
#[derive(Clone, Debug)]
pub struct LedgerRelease {
    /// The job.
    pub job: Arc<str>,
    /// Its incarnation; empty: whichever.
    pub uid: Arc<str>,
    /// This attempt and all before it.
    pub attempt: u64,
}

/// A reservation as it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct ReservationStatus {
    /// The row.
    pub row: Arc<Reservation>,
    /// What is left of its lease; `None`: it stands still.
    pub lease_left: Option<Duration>,
}

/// What is answered for a row that is there.
pub(super) fn recorded_outcome(row: &Reservation) -> JobConfirmOutcome {
    JobConfirmOutcome {
        job: Arc::clone(&row.job),
        verdict: AdmitVerdict {
            permitted: true,
            ..AdmitVerdict::default()
        },
        reserved: row.amounts.clone(),
    }
}

/// Why nothing is promised to a job whose reservation is over.
pub(super) fn ended_verdict(tombstone: &ReservationTombstone) -> AdmitVerdict {
    let job = &tombstone.job;
    let message = if tombstone.job_ended {
        format!("job `{job}` has ended")
    } else {
        let attempt = tombstone.attempt;
        format!("the reservation of job `{job}` was released; ask anew with an `attempt` above {attempt}")
    };
    let reason = Reason {
        plugin: Arc::from(LEDGER_PLUGIN),
        code: RESERVATION_RELEASED,
        message,
        resolution: Resolution::Unresolvable,
        resource: Arc::default(),
    };
    AdmitVerdict {
        reasons: vec![(reason, Vec::new())],
        ..AdmitVerdict::default()
    }
}

/// Tells one request of a job from another: its queue, its minimum, and its annotations.
pub(super) fn request_fingerprint(names: &ResourceTable, job: &JobRecord) -> [u8; 16] {
    let mut hash = Sha256::new();
    let mut text = |text: &str| {
        hash.update(text.len().to_le_bytes());
        hash.update(text.as_bytes());
    };
    text(&job.queue);
    text(&job.min_member.to_string());
    if let Some(amounts) = &job.min_resources {
        let mut resources: Vec<(&str, i64)> = amounts.iter().map(|(id, amount)| (names.name(id), amount)).collect();
        resources.sort_unstable();
        for (name, amount) in resources {
            text(name);
            text(&amount.to_string());
        }
    }
    text("");
    for (name, value) in job.annotations.iter() {
        text(name);
        text(value);
    }
    let mut short = [0; 16];
    for (to, from) in short.iter_mut().zip(hash.finalize()) {
        *to = from;
    }
    short
}
