//! Bounds on everything that callers can make grow, and the way in which each limit is declared.

use std::time::Duration;

use pumice_engine::policy;

/// Largest value: some numbers are stored in 32 bits.
pub const MAX_COUNT: u64 = u32::MAX as u64;
/// Largest memory limit in bytes: a tebibyte.
pub const MAX_MEMORY_BYTES: u64 = 1 << 40;
/// Longest time in milliseconds: a year.
pub const MAX_TIME: u64 = 365 * 86_400_000;

/// Definition of one limit of `L`.
#[derive(Clone, Copy, Debug)]
pub struct LimitDef<L> {
    /// Name in settings, errors and `GetServerInfo`; it ends with the unit.
    pub name: &'static str,
    /// Help text: the quantity that the limit bounds.
    pub help: &'static str,
    /// Smallest and largest value of its setting; `None`: the limit is fixed, and only tests change it.
    pub range: Option<(u64, u64)>,
    /// Reads the limit.
    pub get: fn(&L) -> u64,
    /// Changes the limit.
    pub set: fn(&mut L, u64),
}

/// Value of a limit: a count, bytes, or a time in milliseconds.
pub trait LimitValue {
    /// Value as settings and `GetServerInfo` show it.
    fn to_number(&self) -> u64;
    /// Value from a setting.
    fn from_number(number: u64) -> Self;
}

impl LimitValue for u64 {
    fn to_number(&self) -> u64 {
        *self
    }

    fn from_number(number: u64) -> Self {
        number
    }
}

impl LimitValue for usize {
    fn to_number(&self) -> u64 {
        u64::try_from(*self).unwrap_or(u64::MAX)
    }

    fn from_number(number: u64) -> Self {
        Self::try_from(number).unwrap_or(Self::MAX)
    }
}

impl LimitValue for Duration {
    fn to_number(&self) -> u64 {
        u64::try_from(self.as_millis()).unwrap_or(u64::MAX)
    }

    fn from_number(number: u64) -> Self {
        Self::from_millis(number)
    }
}

/// Declares limits: a struct with a field, and a table with a row, for each. A limit with a range is a setting. The name of a
/// limit is its field; the name of a time ends with `_ms`.
#[macro_export]
macro_rules! declare_limits {
    (
        $(#[$about:meta])* struct $limits:ident;
        $(#[$listed:meta])* static $table:ident;
        $($field:ident: $kind:ident = $default:expr, $([$least:literal..=$most:expr])? $help:literal;)*
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $limits {
            $(#[doc = concat!("Limit `", stringify!($field), "`.")] pub $field: $kind,)*
        }

        impl Default for $limits {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        $(#[$listed])*
        pub static $table: &[$crate::LimitDef<$limits>] = &[$($crate::LimitDef {
            name: $crate::declare_limits!(@name $field $kind),
            help: $help,
            range: $crate::declare_limits!(@range $($least $most)?),
            get: |limits| $crate::LimitValue::to_number(&limits.$field),
            set: |limits, number| limits.$field = $crate::LimitValue::from_number(number),
        },)*];
    };
    (@name $field:ident Duration) => { concat!(stringify!($field), "_ms") };
    (@name $field:ident $kind:ident) => { stringify!($field) };
    (@range) => { None };
    (@range $least:literal $most:expr) => { Some(($least, $most)) };
}

declare_limits! {
    /// Bounds of the state. A request that would exceed one is rejected with an error that names it.
    struct StateLimits;
    /// Limits of the state, by name.
    static STATE_LIMITS;

    assumption_lease: Duration = Duration::from_mins(5), [1..=MAX_TIME]
        "Lease of a committed placement that its source does not confirm; it runs only while the source is synced";
    assumptions: usize = 1_000_000,
        "Committed placements that their sources have not confirmed yet";
    commit_outcomes: usize = 1_000_000,
        "Jobs, tasks and conflicts in the recorded outcomes of all commits; a commit beyond it is rejected until the oldest are forgotten (`tombstone_age_ms`)";
    commit_placements: usize = 50_000,
        "Placements, and jobs, in one commit";
    connection_full_sync_bytes: usize = 768 << 20,
        "Bytes of records in full syncs that one connection is sending";
    connection_full_sync_records: usize = 3_000_000,
        "Records in full syncs that one connection is sending";
    connection_session_bytes: usize = 768 << 20,
        "Memory that open sessions of one connection pin";
    connection_sessions: usize = 192,
        "Sessions of one connection open at once; those of a connection that has ended give way to new ones";
    full_sync_bytes: usize = 1 << 30, [1..=MAX_MEMORY_BYTES]
        "Bytes of records in full syncs that are being sent, of all sources together";
    full_sync_records: usize = 4_000_000,
        "Records in full syncs that are being sent, of all sources together";
    policy_bytes: usize = 1 << 20,
        "Longest policy document";
    policy_depth: usize = 64,
        "Deepest nesting of a policy document";
    policy_history_bytes: usize = 16 << 20,
        "Bytes of documents stored per policy";
    policy_names: usize = 64,
        "Names of policies";
    policy_nodes: usize = 100_000,
        "Values in a policy document";
    policy_read_bytes: usize = 2 << 20,
        "Text read from a policy document; text that aliases repeat counts each time";
    policy_reads: usize = 100_000,
        "Values read from a policy document; values that aliases repeat count each time";
    policy_versions: usize = 64,
        "Versions stored per policy";
    queued_writes: usize = 256,
        "Batches that wait for the writer";
    records: usize = 8_000_000,
        "Records of all kinds and sources";
    records_bytes: usize = 4 << 30, [1..=MAX_MEMORY_BYTES]
        "Bytes of the records of all sources: their texts and amounts, before equal ones are shared";
    reservation_lease: Duration = Duration::from_mins(10), [1..=MAX_TIME]
        "Lease of a reservation, used or not, unless its caller asked for another time; it runs only while the source is synced";
    reservation_lease_max: Duration = Duration::from_hours(24),
        "Longest lease that a confirmation can ask for";
    reservation_tombstones: usize = 100_000,
        "Released reservations, and those of jobs that ended, that are remembered, so that late requests do not revive them";
    reservations: usize = 1_000_000,
        "Reservations of jobs";
    resource_name_age: Duration = Duration::from_hours(1),
        "Time after which a resource name that no record uses is forgotten, once more than half of `resource_names` are taken";
    resource_names: usize = 1_024,
        "Distinct resource names of nodes and queues, and as many that only tasks and jobs ask for";
    session_age: Duration = Duration::from_mins(10),
        "Age at which a session ends, unless a change of it is under way";
    session_bytes: usize = 1 << 30, [1..=MAX_MEMORY_BYTES]
        "Memory that open sessions pin: clusters of their own, plugin states, copies of what they changed, former states";
    session_changes: usize = 1_000_000,
        "Changes in one session";
    session_lease: Duration = Duration::from_secs(30),
        "Silence after which a session ends, unless it asked for another lease";
    session_lease_max: Duration = Duration::from_mins(5),
        "Longest lease that a session can ask for";
    session_savepoints: usize = 256,
        "Savepoints in one session";
    sessions: usize = 256, [0..=MAX_COUNT]
        "Sessions open at once";
    source_age: Duration = Duration::from_hours(7 * 24), [1..=MAX_TIME]
        "Silence of a live source after which it is forgotten, with its records and what was promised to its jobs; expected sources and files are not";
    source_bytes: usize = 2 << 30,
        "Bytes of the records of one source";
    source_return: Duration = Duration::from_mins(2), [1..=MAX_TIME]
        "Time after a start for which the server is not ready because a live source that had synced before has not synced again; then it is given up";
    source_stale: Duration = Duration::from_mins(1), [1..=MAX_TIME]
        "Silence of a live source after which it is stale: not synced, not counted as heard by readiness, and the leases of its reservations and assumptions pause";
    sources: usize = 64,
        "Sources";
    store_stale: Duration = Duration::ZERO, [0..=MAX_TIME]
        "Time without a confirmation that the server has the newest entry of a shared store, after which it is not ready and rejects decisions on its own state (STORE_STALE); 0: never";
    stored_outcomes: usize = 64,
        "Outcomes stored per source for repeated batches";
    tombstone_age: Duration = Duration::from_mins(10),
        "Time for which an ended session replies with its recorded outcome, and for which an ended reservation is remembered";
    tombstones: usize = 4_096,
        "Sessions remembered that ended without a commit, the newest";
    wait: Duration = Duration::from_secs(30),
        "Longest wait for a revision";
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
