//! List of the limits, by name. Operators set those with a range; the others are the same everywhere.

use std::time::Duration;

use super::{LimitDef, LimitRange};

/// Largest message in bytes: the protocol's lengths reach 2 GiB less one.
const MAX_MESSAGE_BYTES: u64 = (1 << 31) - 1;
/// Largest value: some numbers are stored in 32 bits.
const MAX_COUNT: u64 = u32::MAX as u64;
/// Largest memory limit in bytes: a tebibyte.
const MAX_MEMORY_BYTES: u64 = 1 << 40;
/// Greatest score of an extender: kube-scheduler multiplies it by 10 and by a weight.
const MAX_EXTENDER_SCORE: u64 = 1_000_000;
/// Longest time in milliseconds: a year.
const AGE: u64 = 365 * 86_400_000;

macro_rules! row {
    ($name:literal, $part:ident.$field:ident, $range:expr, $help:literal, $read:path, $write:path) => {
        LimitDef {
            name: $name,
            help: $help,
            range: $range,
            get: |bounds| $read(bounds.$part.$field),
            set: |bounds, value| bounds.$part.$field = $write(value),
        }
    };
}

macro_rules! count {
    ($name:literal, $part:ident.$field:ident, $least:literal..=$most:expr, $help:literal) => {
        row!(
            $name,
            $part.$field,
            Some(LimitRange {
                least: $least,
                most: $most
            }),
            $help,
            from_count,
            to_count
        )
    };
}

macro_rules! time {
    ($name:literal, $part:ident.$field:ident, $help:literal) => {
        row!(
            $name,
            $part.$field,
            Some(LimitRange { least: 1, most: AGE }),
            $help,
            from_time,
            Duration::from_millis
        )
    };
}

macro_rules! fixed_count {
    ($name:literal, $part:ident.$field:ident, $help:literal) => {
        row!($name, $part.$field, None, $help, from_count, to_count)
    };
}

macro_rules! fixed_time {
    ($name:literal, $part:ident.$field:ident, $help:literal) => {
        row!($name, $part.$field, None, $help, from_time, Duration::from_millis)
    };
}

/// All limits, by name.
pub static LIMITS: &[LimitDef] = &[
    time!(
        "assumption_lease_ms",
        state.assumption_lease,
        "Lease of a committed placement that its source does not confirm; it runs only while the source is synced"
    ),
    fixed_count!(
        "assumptions",
        state.assumptions,
        "Committed placements that their sources have not confirmed yet"
    ),
    fixed_count!("batch_records", edge.batch_records, "Records and removals in one batch"),
    count!(
        "calls",
        edge.calls,
        1..=MAX_COUNT,
        "Calls under way, or with a response that is not taken yet, without streams and health checks; a call counts when its request is there"
    ),
    fixed_count!(
        "commit_outcomes",
        state.commit_outcomes,
        "Jobs, tasks and conflicts in the recorded outcomes of all commits; a commit beyond it is refused until the oldest are forgotten (`tombstone_age_ms`)"
    ),
    fixed_count!(
        "commit_placements",
        state.commit_placements,
        "Placements, and jobs, in one commit"
    ),
    fixed_count!(
        "connection_calls",
        edge.connection_calls,
        "Calls under way on one connection"
    ),
    fixed_count!(
        "connection_full_sync_bytes",
        state.connection_full_sync_bytes,
        "Bytes of records in full syncs that one connection is sending"
    ),
    fixed_count!(
        "connection_full_sync_records",
        state.connection_full_sync_records,
        "Records in full syncs that one connection is sending"
    ),
    fixed_count!(
        "connection_receiving_bytes",
        edge.connection_receiving_bytes,
        "Bytes of requests that are being received, or worked on, on one connection"
    ),
    fixed_count!(
        "connection_sending_bytes",
        edge.connection_sending_bytes,
        "Bytes of responses on one connection that its caller has not taken yet"
    ),
    fixed_count!(
        "connection_session_bytes",
        state.connection_session_bytes,
        "Memory that open sessions of one connection pin"
    ),
    fixed_count!(
        "connection_sessions",
        state.connection_sessions,
        "Sessions of one connection open at once; those of a connection that has ended give way to new ones"
    ),
    fixed_count!(
        "connection_streams",
        edge.connection_streams,
        "Streams open at once on one connection"
    ),
    fixed_count!(
        "connection_waits",
        edge.connection_waits,
        "Calls of one connection that wait for a revision, for the writer or for the disk"
    ),
    count!(
        "connections",
        edge.connections,
        1..=MAX_COUNT,
        "Connections open at once; the one that is idle for longest makes room for a new one"
    ),
    fixed_count!(
        "extender_body_bytes",
        edge.extender_body_bytes,
        "Body of a request of an extender protocol"
    ),
    fixed_count!(
        "extender_connections",
        edge.extender_connections,
        "Connections of schedulers that ask by an extender protocol; 0: nobody may"
    ),
    time!(
        "extender_hold_ms",
        edge.extender_hold,
        "Time for which a pod that an extender offered nodes to is held, unless it is seen on a node, ended or gone before"
    ),
    count!(
        "extender_max_score",
        edge.extender_max_score,
        1..=MAX_EXTENDER_SCORE,
        "Score that the best node can have in an answer of an extender; kube-scheduler expects 10, takes more, and multiplies by 10"
    ),
    fixed_count!(
        "extender_receiving_bytes",
        edge.extender_receiving_bytes,
        "Bytes of bodies of extender protocols that are being received, or worked on"
    ),
    time!(
        "extender_wait_ms",
        edge.extender_wait,
        "Longest wait for a pod that an extender's request names and no source has reported yet"
    ),
    count!(
        "full_sync_bytes",
        state.full_sync_bytes,
        1..=MAX_MEMORY_BYTES,
        "Bytes of records in full syncs that are being sent, of all sources together"
    ),
    fixed_count!(
        "full_sync_records",
        state.full_sync_records,
        "Records in full syncs that are being sent, of all sources together"
    ),
    fixed_time!(
        "handshake_ms",
        edge.handshake,
        "Time that the TLS handshake of a gRPC connection has"
    ),
    fixed_count!(
        "handshakes",
        edge.handshakes,
        "TLS handshakes of gRPC connections under way; the oldest makes room for a new one"
    ),
    fixed_count!(
        "http_connections",
        edge.http_connections,
        "Connections for probes and metrics open at once, without scrapes; the oldest makes room for a new one"
    ),
    fixed_time!(
        "http_header_ms",
        edge.http_header,
        "Time until the request of a connection for probes and metrics has arrived"
    ),
    fixed_count!(
        "inline_records",
        edge.inline_records,
        "Records in an inline cluster of a request"
    ),
    fixed_count!(
        "label_bytes",
        edge.label_bytes,
        "Longest label or annotation that is stored"
    ),
    fixed_count!("labels", edge.texts, "Labels or annotations sent with one record"),
    fixed_count!(
        "list_resources",
        edge.list_resources,
        "Resources in one list of amounts"
    ),
    fixed_count!("name_bytes", edge.name_bytes, "Longest name"),
    fixed_count!(
        "named_pairs",
        edge.named_pairs,
        "Task-node pairs in a response that names nodes"
    ),
    fixed_count!(
        "order_names",
        edge.order_names,
        "Names of queues or of jobs in one request of Order"
    ),
    fixed_count!("page_records", edge.page_records, "Records on a page of a listing"),
    fixed_count!(
        "pairs",
        edge.pairs,
        "Task-node pairs that one request makes the server look at"
    ),
    fixed_count!(
        "place_tasks",
        edge.place_tasks,
        "Tasks of all groups in one request of Place"
    ),
    fixed_count!("plugins", edge.plugins, "Plugins that one request names"),
    fixed_count!("policy_bytes", state.policy_bytes, "Longest policy document"),
    fixed_count!(
        "policy_depth",
        state.policy_depth,
        "Deepest nesting of a policy document"
    ),
    fixed_count!(
        "policy_history_bytes",
        state.policy_history_bytes,
        "Bytes of documents stored per policy"
    ),
    fixed_count!("policy_names", state.policy_names, "Names of policies"),
    fixed_count!("policy_nodes", state.policy_nodes, "Values in a policy document"),
    fixed_count!(
        "policy_read_bytes",
        state.policy_read_bytes,
        "Text read from a policy document; text that aliases repeat counts each time"
    ),
    fixed_count!(
        "policy_reads",
        state.policy_reads,
        "Values read from a policy document; values that aliases repeat count each time"
    ),
    count!(
        "policy_versions",
        state.policy_versions,
        1..=MAX_COUNT,
        "Versions stored per policy"
    ),
    fixed_count!(
        "positions",
        edge.positions,
        "Source positions that one request waits for"
    ),
    fixed_count!(
        "query_resources",
        edge.query_resources,
        "Resource names in one request that the state does not have"
    ),
    fixed_count!("queued_writes", state.queued_writes, "Batches that wait for the writer"),
    count!(
        "receiving_bytes",
        edge.receiving_bytes,
        1..=MAX_MEMORY_BYTES,
        "Bytes of requests that are being received, or worked on, of all callers; an eighth is kept for connections that send little"
    ),
    count!(
        "records",
        state.records,
        1..=MAX_COUNT,
        "Records of all kinds and sources"
    ),
    count!(
        "records_bytes",
        state.records_bytes,
        1..=MAX_MEMORY_BYTES,
        "Bytes of the records of all sources: their texts and amounts, before equal ones are shared"
    ),
    fixed_time!(
        "request_body_ms",
        edge.request_body,
        "Time that a request, or one message of a stream, has to arrive"
    ),
    count!(
        "request_bytes",
        edge.request_bytes,
        1..=MAX_MESSAGE_BYTES,
        "Largest request"
    ),
    time!(
        "reservation_lease_max_ms",
        state.reservation_lease_max,
        "Longest lease that a confirmation can ask for"
    ),
    time!(
        "reservation_lease_ms",
        state.reservation_lease,
        "Lease of a reservation, used or not, unless its caller asked for another time; it runs only while the source is synced"
    ),
    fixed_count!(
        "reservation_tombstones",
        state.reservation_tombstones,
        "Released reservations, and those of jobs that ended, that are remembered, so that late requests do not revive them"
    ),
    fixed_count!("reservations", state.reservations, "Reservations of jobs"),
    fixed_time!(
        "resource_name_age_ms",
        state.resource_name_age,
        "Time after which a resource name that no record uses is forgotten, once more than half of `resource_names` are taken"
    ),
    fixed_count!(
        "resource_names",
        state.resource_names,
        "Distinct resource names of nodes and queues, and as many that only tasks and jobs ask for"
    ),
    count!(
        "response_bytes",
        edge.response_bytes,
        1..=MAX_MESSAGE_BYTES,
        "Largest response"
    ),
    fixed_count!("samples", edge.samples, "Rejected nodes shown per rejection"),
    fixed_count!(
        "scrapes",
        edge.scrapes,
        "Scrapes of `/metrics` under way, or with a page that is not taken yet"
    ),
    count!(
        "sending_bytes",
        edge.sending_bytes,
        1..=MAX_MEMORY_BYTES,
        "Bytes of responses that their callers have not taken yet, of all callers; an eighth is kept for connections that take little"
    ),
    fixed_time!(
        "session_age_ms",
        state.session_age,
        "Age at which a session ends, unless a change of it is under way"
    ),
    count!(
        "session_bytes",
        state.session_bytes,
        1..=MAX_MEMORY_BYTES,
        "Memory that open sessions pin: clusters of their own, plugin states, copies of what they changed, former states"
    ),
    row!(
        "session_changes",
        state.session_changes,
        None,
        "Changes in one session",
        identity,
        identity
    ),
    fixed_time!(
        "session_lease_max_ms",
        state.session_lease_max,
        "Longest lease that a session can ask for"
    ),
    time!(
        "session_lease_ms",
        state.session_lease,
        "Silence after which a session ends, unless it asked for another lease"
    ),
    fixed_count!(
        "session_savepoints",
        state.session_savepoints,
        "Savepoints in one session"
    ),
    count!("sessions", state.sessions, 0..=MAX_COUNT, "Sessions open at once"),
    fixed_count!("slot_pairs", edge.slot_pairs, "Task-node pairs in a response by slot"),
    time!(
        "source_age_ms",
        state.source_age,
        "Silence of a live source after which it is forgotten, with its records and what was promised to its jobs; expected sources and files are not"
    ),
    fixed_count!("source_bytes", state.source_bytes, "Bytes of the records of one source"),
    time!(
        "source_return_ms",
        state.source_return,
        "Time after a start for which the server is not ready because a live source that had synced before has not synced again; then it is given up"
    ),
    time!(
        "source_stale_ms",
        state.source_stale,
        "Silence of a live source after which it is stale: not synced, not counted as heard by readiness, and the leases of its reservations and assumptions pause"
    ),
    fixed_count!("sources", state.sources, "Sources"),
    fixed_time!(
        "stalled_ms",
        edge.stalled,
        "Time for which a connection, or one response on it, may take none of the bytes that are there for it"
    ),
    row!(
        "store_stale_ms",
        state.store_stale,
        Some(LimitRange { least: 0, most: AGE }),
        "Time without a confirmation that the server has the newest entry of a shared store, after which it is not ready and rejects decisions on its own state (STORE_STALE); 0: never",
        from_time,
        Duration::from_millis
    ),
    fixed_count!(
        "stored_outcomes",
        state.stored_outcomes,
        "Outcomes stored per source for repeated batches"
    ),
    count!(
        "streams",
        edge.streams,
        1..=MAX_COUNT,
        "Streams open at once: Sync, reflection, and watching health checks"
    ),
    fixed_count!("tasks", edge.tasks, "Tasks in one request"),
    fixed_time!(
        "tombstone_age_ms",
        state.tombstone_age,
        "Time for which an ended session replies with its recorded outcome, and for which an ended reservation is remembered"
    ),
    fixed_count!(
        "tombstones",
        state.tombstones,
        "Sessions remembered that ended without a commit, the newest"
    ),
    count!(
        "verdict_cache_bytes",
        edge.verdict_cache_bytes,
        0..=MAX_MEMORY_BYTES,
        "Memory of filters and scores by task class and chunk of nodes, from the second query about a class on, for later ones; 0: none are stored"
    ),
    fixed_count!(
        "victim_candidates",
        edge.victim_candidates,
        "Candidates of all groups in one request of SelectVictims"
    ),
    fixed_count!(
        "victim_changes",
        edge.victim_changes,
        "Hypothetical changes of one group of SelectVictims"
    ),
    fixed_count!(
        "victim_groups",
        edge.victim_groups,
        "Groups in one request of SelectVictims"
    ),
    time!("wait_ms", state.wait, "Longest wait for a revision"),
    fixed_count!(
        "waits",
        edge.waits,
        "Calls that wait for a revision, for the writer or for the disk; at most half of `calls`"
    ),
    fixed_count!(
        "worker_queue",
        edge.worker_queue,
        "Large requests, and as many large messages, that wait for a worker"
    ),
    fixed_time!(
        "worker_wait_ms",
        edge.worker_wait,
        "Longest wait for a worker in a burst, or the time of four requests if they take longer; under overload a request waits no longer than one takes"
    ),
    count!(
        "workers",
        edge.workers,
        1..=512,
        "Large requests, and as many large messages, that are worked on at once"
    ),
];

fn identity(value: u64) -> u64 {
    value
}

fn from_count(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn to_count(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

fn from_time(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
