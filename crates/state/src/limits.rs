//! Bounds on everything that callers can make grow.

use std::time::Duration;

use pumice_engine::policy;

/// Bounds of the state. A request that would exceed one is rejected with an error that names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateLimits {
    /// Maximum number of distinct resource names.
    pub resource_names: usize,
    /// Time for which a resource name that no record uses is remembered once more than half of them are taken.
    pub resource_name_age: Duration,
    /// Maximum number of sources.
    pub sources: usize,
    /// Maximum number of records, of all kinds and sources together.
    pub records: usize,
    /// Maximum number of records in full syncs that are being sent, of all sources together.
    pub full_sync_records: usize,
    /// Maximum number of records in full syncs that one connection is sending.
    pub connection_full_sync_records: usize,
    /// Maximum bytes of records of one source.
    pub source_bytes: usize,
    /// Maximum bytes of records of all sources together.
    pub records_bytes: usize,
    /// Maximum bytes of records in full syncs that are being sent, of all sources together.
    pub full_sync_bytes: usize,
    /// Maximum bytes of records in full syncs that one connection is sending.
    pub connection_full_sync_bytes: usize,
    /// Maximum number of batches that wait for the writer.
    pub queued_writes: usize,
    /// Maximum number of outcomes stored per source for repeated batches.
    pub stored_outcomes: usize,
    /// Maximum number of sessions open at once.
    pub sessions: usize,
    /// Maximum number of open sessions of one connection.
    pub connection_sessions: usize,
    /// Maximum number of changes in one session.
    pub session_changes: u64,
    /// Maximum bytes that open sessions pin together.
    pub session_bytes: usize,
    /// Maximum bytes that open sessions of one connection pin together.
    pub connection_session_bytes: usize,
    /// Maximum number of savepoints in one session.
    pub session_savepoints: usize,
    /// Default lease of a session: silence after which it ends.
    pub session_lease: Duration,
    /// Maximum lease that a session can request.
    pub session_lease_max: Duration,
    /// Maximum number of assumptions at once.
    pub assumptions: usize,
    /// Lease of an assumption that its source does not confirm. Paused while the source is stale. Default: five
    /// minutes.
    pub assumption_lease: Duration,
    /// Maximum number of placements, and of jobs, in one commit.
    pub commit_placements: usize,
    /// Maximum number of jobs, tasks and conflicts in the remembered outcomes of commits. A commit beyond it is
    /// rejected.
    pub commit_outcomes: usize,
    /// Maximum age of a session. A change in progress is completed first.
    pub session_age: Duration,
    /// Time for which an ended session replies with its recorded outcome.
    pub tombstone_age: Duration,
    /// Maximum number of remembered sessions that ended without a commit.
    pub tombstones: usize,
    /// Maximum number of reservations of jobs.
    pub reservations: usize,
    /// Default lease of a reservation.
    pub reservation_lease: Duration,
    /// Maximum lease that a confirmation can request.
    pub reservation_lease_max: Duration,
    /// Maximum number of remembered reservations that have ended. A late request cannot restore a remembered
    /// reservation.
    pub reservation_tombstones: usize,
    /// Silence after which a source is stale: leases of its jobs' reservations and of its tasks' assumptions pause.
    /// Default: one minute.
    pub source_stale: Duration,
    /// Time without a confirmation that this server has the newest entry of a shared log, after which it is not ready and rejects
    /// decisions on its own state. Zero (the default): never.
    pub store_stale: Duration,
    /// Silence after which a live source is forgotten, with its records.
    pub source_age: Duration,
    /// Time after a start for which the server waits for a live source that had synced before.
    pub source_return: Duration,
    /// Maximum number of names of policies.
    pub policy_names: usize,
    /// Maximum number of versions stored per policy.
    pub policy_versions: usize,
    /// Maximum bytes of documents stored per policy, including earlier versions and derived texts. Two versions are
    /// always kept, regardless of their size.
    pub policy_history_bytes: usize,
    /// Longest policy document in bytes.
    pub policy_bytes: usize,
    /// Deepest nesting of a policy document.
    pub policy_depth: usize,
    /// Maximum number of values in a policy document.
    pub policy_nodes: usize,
    /// Maximum number of values in a policy document, including each repetition by an alias.
    pub policy_reads: usize,
    /// Maximum bytes of text in a policy document, including each repetition by an alias.
    pub policy_read_bytes: usize,
    /// Longest wait for a revision.
    pub wait: Duration,
}

impl StateLimits {
    /// Bounds on the text of a policy document.
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
            resource_name_age: Duration::from_hours(1),
            sources: 64,
            records: 8_000_000,
            full_sync_records: 4_000_000,
            connection_full_sync_records: 3_000_000,
            source_bytes: 2 << 30,
            records_bytes: 4 << 30,
            full_sync_bytes: 1 << 30,
            connection_full_sync_bytes: 768 << 20,
            queued_writes: 256,
            stored_outcomes: 64,
            sessions: 256,
            connection_sessions: 192,
            session_changes: 1_000_000,
            session_bytes: 1 << 30,
            connection_session_bytes: 768 << 20,
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
            store_stale: Duration::ZERO,
            source_age: Duration::from_hours(7 * 24),
            source_return: Duration::from_mins(2),
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
