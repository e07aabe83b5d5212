//! Every bound on what a caller can make grow.

use std::time::Duration;

use crate::engine::policy;

/// Bounds, each with a clear refusal that names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateLimits {
    /// Distinct resource names.
    pub resource_names: usize,
    /// Sources.
    pub sources: usize,
    /// Records of all kinds, of all sources.
    pub records: usize,
    /// Records in snapshots that are being sent, of all sources.
    pub full_sync_records: usize,
    /// Batches waiting for the writer.
    pub queued_writes: usize,
    /// Outcomes kept per source for repeated batches.
    pub stored_outcomes: usize,
    /// Sessions open at once.
    pub sessions: usize,
    /// Changes in one session.
    pub session_changes: u64,
    /// Bytes that open sessions pin, all together.
    pub session_bytes: usize,
    /// Savepoints in one session.
    pub session_savepoints: usize,
    /// Silence after which a session ends, unless it asked for another.
    pub session_lease: Duration,
    /// Longest lease that a session can ask for.
    pub session_lease_max: Duration,
    /// Placements that are assumed at once.
    pub assumptions: usize,
    /// How long a placement is assumed that nobody confirms, while its source is heard.
    pub assumption_lease: Duration,
    /// Placements, and jobs, in one commit.
    pub commit_placements: usize,
    /// Jobs, tasks and conflicts in the outcomes of commits that are remembered.
    pub commit_outcomes: usize,
    /// Age at which a session ends, unless a change of it is under way.
    pub session_age: Duration,
    /// How long an ended session answers with its recorded outcome.
    pub tombstone_age: Duration,
    /// Ended sessions remembered.
    pub tombstones: usize,
    /// Reservations of jobs.
    pub reservations: usize,
    /// How long a reservation lives that is not used, unless its caller asked for another time.
    pub reservation_lease: Duration,
    /// Longest lease that a confirmation can ask for.
    pub reservation_lease_max: Duration,
    /// Ended reservations remembered, so that late requests do not revive them.
    pub reservation_tombstones: usize,
    /// Silence after which a source counts as stale: leases of its jobs' reservations and of its assumed tasks stand still.
    pub source_stale: Duration,
    /// Names of policies.
    pub policy_names: usize,
    /// Versions kept per policy.
    pub policy_versions: usize,
    /// Bytes of documents kept per policy, earlier versions and what was read from them included. Two versions stay
    /// whatever they take.
    pub policy_history_bytes: usize,
    /// Bytes of a policy document.
    pub policy_bytes: usize,
    /// Deepest nesting of a policy document.
    pub policy_depth: usize,
    /// Values in a policy document.
    pub policy_nodes: usize,
    /// Values read from a policy document, those that aliases repeat counted each time.
    pub policy_reads: usize,
    /// Bytes of text read from a policy document, likewise.
    pub policy_read_bytes: usize,
    /// Longest wait for a revision.
    pub wait: Duration,
}

impl StateLimits {
    /// Those on the text of a policy document.
    pub fn document_limits(&self) -> policy::YamlLimits {
        policy::YamlLimits {
            bytes: self.policy_bytes,
            depth: self.policy_depth,
            nodes: self.policy_nodes,
            reads: self.policy_reads,
            read_bytes: self.policy_read_bytes,
        }
    }
}

impl Default for StateLimits {
    fn default() -> Self {
        Self {
            resource_names: 1_024,
            sources: 64,
            records: 8_000_000,
            full_sync_records: 4_000_000,
            queued_writes: 256,
            stored_outcomes: 64,
            sessions: 256,
            session_changes: 1_000_000,
            session_bytes: 1 << 30,
            session_savepoints: 256,
            session_lease: Duration::from_secs(30),
            session_lease_max: Duration::from_mins(5),
            assumptions: 1_000_000,
            assumption_lease: Duration::from_mins(5),
            commit_placements: 50_000,
            commit_outcomes: 1_000_000,
            session_age: Duration::from_mins(10),
            tombstone_age: Duration::from_mins(10),
            tombstones: 4_096,
            reservations: 1_000_000,
            reservation_lease: Duration::from_mins(10),
            reservation_lease_max: Duration::from_hours(24),
            reservation_tombstones: 100_000,
            source_stale: Duration::from_mins(1),
            policy_names: 64,
            policy_versions: 64,
            policy_history_bytes: 16 << 20,
            policy_bytes: 1 << 20,
            policy_depth: 64,
            policy_nodes: 100_000,
            policy_reads: 100_000,
            policy_read_bytes: 2 << 20,
            wait: Duration::from_secs(30),
        }
    }
}
