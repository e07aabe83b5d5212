//! Requests to the ledger and their outcomes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use crate::store::{Durability, ReservationTombstone};
use pumice_engine::decide::AdmitVerdict;
use pumice_engine::model::{ClusterState, JobRecord, NamedAmounts, Problem, RejectionCode, Reservation, ResourceTable};
use pumice_engine::plugin::{DecisionTime, Reason, Resolution};
use pumice_engine::policy::Compatibility;
use pumice_engine::{PolicyInForce, Revision};

/// Most jobs that an error names.
const MAX_KEYS: usize = 8;
/// Plugin name in reasons that the ledger itself gives.
const LEDGER_PLUGIN: &str = "admission-ledger";

/// Job to be confirmed.
#[derive(Clone, Debug)]
pub struct ConfirmItem {
    /// Record of the job.
    pub job: Arc<JobRecord>,
    /// Attempt number. The caller raises it to confirm again after a release.
    pub attempt: u64,
    /// Table of the job's resource names, including names that no stored record uses.
    pub names: Arc<ResourceTable>,
}

/// Reader of the items of a confirmation from the newest state.
pub type ConfirmReader = Box<dyn FnOnce(&ClusterState, Compatibility) -> Vec<Result<ConfirmItem, Problem>> + Send>;

/// Request to confirm jobs: to promise each what it needs.
pub struct LedgerConfirm {
    /// Name of the policy.
    pub policy: Arc<str>,
    /// Profile of the policy; empty: the only one.
    pub profile: Arc<str>,
    /// Plugins to evaluate. Empty: the plugins of the policy's tiers.
    pub plugins: Vec<Arc<str>>,
    /// Lease of the reservations, used or not; `None`: the default of the limits.
    pub lease: Option<Duration>,
    /// Time of the decision, for plugins that compare with it; `None`: the request gives none.
    pub now: Option<DecisionTime>,
    /// Items, evaluated in this order. Each evaluation includes the earlier permits.
    pub items: ConfirmItems,
}

/// Items of a confirmation. The writer reads them when it processes the confirmation, and evaluates them again if
/// another server appends first.
pub enum ConfirmItems {
    /// Not read yet.
    Unread(ConfirmReader),
    /// Items as they were read.
    Read(Vec<Result<ConfirmItem, Problem>>),
}

impl fmt::Debug for ConfirmItems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unread(_) => f.write_str("Unread"),
            Self::Read(items) => f.debug_tuple("Read").field(items).finish(),
        }
    }
}

impl ConfirmItems {
    /// Items that a reader takes from the newest state.
    pub fn by(read: impl FnOnce(&ClusterState) -> Vec<Result<ConfirmItem, Problem>> + Send + 'static) -> Self {
        Self::Unread(Box::new(|cluster_state, _| read(cluster_state)))
    }

    /// Key of the items: the job and attempt of each, of a few.
    pub(crate) fn key(&self) -> String {
        let Self::Read(items) = self else {
            return String::new();
        };
        let items = items.iter().flatten();
        let keys: Vec<String> = items
            .take(MAX_KEYS)
            .map(|item| format!("job `{}`, attempt {}", item.job.name, item.attempt))
            .collect();
        keys.join("; ")
    }

    /// The items. The first call reads them.
    pub(super) fn read(
        &mut self,
        cluster_state: &ClusterState,
        compatibility: Compatibility,
    ) -> &[Result<ConfirmItem, Problem>] {
        if let Self::Unread(_) = self
            && let Self::Unread(read) = std::mem::replace(self, Self::Read(Vec::new()))
        {
            *self = Self::Read(read(cluster_state, compatibility));
        }
        match self {
            Self::Read(items) => items,
            Self::Unread(_) => &[],
        }
    }
}

impl fmt::Debug for LedgerConfirm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { policy, profile, .. } = self;
        let mut shown = f.debug_struct("Confirm");
        shown.field("policy", policy).field("profile", profile);
        shown.finish_non_exhaustive()
    }
}

/// Outcome of confirming one job: permitted or rejected, with reserved amounts.
#[derive(Clone, Debug, PartialEq)]
pub struct JobConfirmOutcome {
    /// Name of the job.
    pub job: Arc<str>,
    /// Verdict of the policy, or of the ledger.
    pub verdict: AdmitVerdict,
    /// Amounts reserved for the job now, whether or not this request was permitted.
    pub reserved: NamedAmounts,
}

/// Outcome of a confirmation.
#[derive(Clone, Debug)]
pub struct ConfirmOutcome {
    /// Outcomes, one per item.
    pub items: Vec<Result<JobConfirmOutcome, Problem>>,
    /// First revision that shows the permits.
    pub revision: Revision,
    /// Policy that was evaluated.
    pub policy: Arc<PolicyInForce>,
    /// Durability of the permits.
    pub durability: Durability,
}

impl ConfirmOutcome {
    /// Memory of the outcomes in bytes, apart from texts that others hold as well.
    pub(crate) fn held_bytes(&self) -> usize {
        let items = self.items.iter().flatten().map(|item| {
            let verdict = &item.verdict;
            let lists = verdict.cards.capacity() * size_of::<(Arc<str>, u64)>()
                + (verdict.reserve.capacity() + item.reserved.capacity()) * size_of::<(Arc<str>, i128)>();
            let reasons = verdict.reasons.iter().map(|(reason, measurements)| {
                size_of_val(reason) + reason.message.len() + size_of_val(measurements) + size_of_val(&**measurements)
            });
            lists + reasons.sum::<usize>()
        });
        size_of::<Self>()
            + self.items.capacity() * size_of::<Result<JobConfirmOutcome, Problem>>()
            + items.sum::<usize>()
    }
}

/// Request to release a reservation.
#[derive(Clone, Debug)]
pub struct LedgerRelease {
    /// Name of the job.
    pub job: Arc<str>,
    /// Incarnation of the job; empty: any.
    pub uid: Arc<str>,
    /// Attempt to release, with all attempts before it.
    pub attempt: u64,
}

/// Reservation of a job with the remaining time of its lease.
#[derive(Clone, Debug, PartialEq)]
pub struct ReservationStatus {
    /// Row of the ledger.
    pub row: Arc<Reservation>,
    /// Time left of its lease; `None`: the lease is paused.
    pub lease_left: Option<Duration>,
}

/// Recorded outcome for a request that an existing row covers.
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

/// Verdict on a request whose reservation has ended.
pub(super) fn ended_verdict(tombstone: &ReservationTombstone) -> AdmitVerdict {
    let job = &tombstone.job;
    let message = if tombstone.job_ended {
        format!("job `{job}` has ended")
    } else {
        let attempt = tombstone.attempt;
        format!("the reservation of job `{job}` was released; ask again with an `attempt` above {attempt}")
    };
    let reason = Reason {
        plugin: Arc::from(LEDGER_PLUGIN),
        code: RejectionCode::ReservationReleased.name(),
        message,
        resolution: Resolution::Unresolvable,
        resource: Arc::default(),
    };
    AdmitVerdict {
        reasons: vec![(reason, Vec::new())],
        ..AdmitVerdict::default()
    }
}

/// Fingerprint of a job's request: its queue, its minimum, and its annotations.
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
