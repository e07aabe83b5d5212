//! Limits at the edge: on messages, requests, connections and work.

use std::time::Duration;

use pumice_state::{MAX_COUNT, MAX_MEMORY_BYTES, declare_limits};

/// Largest message in bytes: the protocol's lengths reach 2 GiB less one.
const MAX_MESSAGE_BYTES: u64 = (1 << 31) - 1;
/// Greatest score of an extender: kube-scheduler multiplies it by 10 and by a weight.
const MAX_EXTENDER_SCORE: u64 = 1_000_000;
/// Maximum bytes that the parts of one decoded request may take, without texts.
pub const DECODED_BYTES: u64 = 256 << 20;

declare_limits! {
    /// Limits at the edge: on messages, requests, connections and work.
    struct EdgeLimits;
    /// Limits at the edge, by name.
    static EDGE_LIMITS;

    ahead: usize = 32,
        "Further equal tasks for which Score looks ahead";
    audit_file_bytes: u64 = 16 << 20,
        "Size at which another file of the audit log begins";
    audit_files: usize = 8,
        "Full files of the audit log that are kept";
    batch_records: usize = 1_000_000,
        "Records and removals in one batch";
    calls: usize = 1_024, [1..=MAX_COUNT]
        "Calls under way, or with a response that is not taken yet, without streams and health checks; a call counts when its request is there";
    connection_age_grace: Duration = Duration::from_secs(10),
        "Time that calls under way on a connection of `max_connection_age_ms` have to finish before it is closed; streams end with it";
    connection_calls: usize = 256,
        "Calls under way on one connection";
    connection_message_bytes: usize = 168 << 20,
        "Bytes of messages on one connection";
    connection_streams: usize = 192,
        "Streams open at once on one connection";
    connection_waits: usize = 128,
        "Calls of one connection that wait for a revision, for the writer or for the disk";
    connections: usize = 1_024, [1..=MAX_COUNT]
        "Connections open at once; the one that is idle for longest makes room for a new one";
    decoded_bytes: u64 = DECODED_BYTES,
        "Memory of one decoded request without its texts";
    disk_waits: usize = 64,
        "Calls that wait for the disk, each on a thread of its own";
    // 10,000 whole nodes of 6 KB.
    extender_body_bytes: usize = 64 << 20,
        "Body of a request of an extender protocol";
    extender_connections: usize = 64,
        "Connections of schedulers that ask by an extender protocol; 0: nobody may";
    extender_hold: Duration = Duration::from_mins(1),
        "Time for which a pod that an extender offered nodes to is held, unless it is seen on a node, ended or gone before";
    extender_max_score: usize = 10, [1..=MAX_EXTENDER_SCORE]
        "Score that the best node can have in an answer of an extender; kube-scheduler expects 10, takes more, and multiplies by 10";
    extender_wait: Duration = Duration::from_millis(500),
        "Longest wait for a pod that an extender's request names and no source has reported yet";
    handshake: Duration = Duration::from_secs(10),
        "Time that the TLS handshake of a gRPC connection has";
    handshakes: usize = 128,
        "TLS handshakes of gRPC connections under way; the oldest makes room for a new one";
    http_connections: usize = 64,
        "Connections for probes and metrics open at once, without scrapes; the oldest makes room for a new one";
    http_header: Duration = Duration::from_secs(5),
        "Time until the request of a connection for probes and metrics has arrived";
    inline_records: usize = 200_000,
        "Records in an inline cluster of a request";
    keepalive_timeout: Duration = Duration::from_secs(20),
        "Time that a caller has to reply to a probe of its connection, and to begin to send";
    label_bytes: usize = 256 << 10,
        "Longest label or annotation that is stored";
    // An API server takes 256 KiB of annotations, in one text or in many.
    labels: usize = 256 << 10,
        "Labels or annotations sent with one record";
    list_resources: usize = 256,
        "Resources in one list of amounts";
    message_bytes: usize = 448 << 20, [1..=MAX_MEMORY_BYTES]
        "Bytes of messages of all callers: requests that are being received or worked on, and responses that are not taken yet; an eighth is kept for connections that hold little";
    // A namespace, a slash and a name.
    name_bytes: usize = 253 + 1 + 253,
        "Longest name";
    named_pairs: usize = 2_000_000,
        "Task-node pairs in a response that names nodes";
    order_names: usize = 100_000,
        "Names of queues or of jobs in one request of Order";
    page_records: usize = 5_000,
        "Records on a page of a listing";
    pairs: usize = 100_000_000,
        "Task-node pairs that one request makes the server look at";
    place_tasks: usize = 1_000_000,
        "Tasks of all groups in one request of Place";
    plugins: usize = 64,
        "Plugins that one request names";
    positions: usize = 64,
        "Source positions that one request waits for";
    query_resources: usize = 256,
        "Resource names in one request that the state does not have";
    request_body: Duration = Duration::from_secs(30),
        "Time that a request, or one message of a stream, has to arrive";
    request_bytes: usize = 32 << 20, [1..=MAX_MESSAGE_BYTES]
        "Largest request";
    response_bytes: usize = 128 << 20, [1..=MAX_MESSAGE_BYTES]
        "Largest response";
    samples: usize = 1_000,
        "Rejected nodes shown per rejection";
    scrapes: usize = 32,
        "Scrapes of `/metrics` under way, or with a page that is not taken yet";
    slot_pairs: usize = 8_000_000,
        "Task-node pairs in a response by slot";
    stalled: Duration = Duration::from_secs(30),
        "Time for which a connection, or one response on it, may take none of the bytes that are there for it";
    streams: usize = 256,
        "Streams open at once: Sync, reflection, and watching health checks";
    tasks: usize = 10_000,
        "Tasks in one request";
    tls_poll: Duration = Duration::from_secs(1),
        "Period of the check for changed files of TLS and of identities";
    verdict_cache_bytes: usize = 64 << 20, [0..=MAX_MEMORY_BYTES]
        "Memory of filters and scores by task class and chunk of nodes, from the second query about a class on, for later ones; 0: none are stored";
    victim_candidates: usize = 100_000,
        "Candidates of all groups in one request of SelectVictims";
    victim_changes: usize = 1_000,
        "Hypothetical changes of one group of SelectVictims";
    victim_groups: usize = 10_000,
        "Groups in one request of SelectVictims";
    // Half of the calls: those that wait never take the places of those that are answered at once.
    waits: usize = 384,
        "Calls that wait for a revision, for the writer or for the disk; at most half of `calls`";
    watch_silence: Duration = Duration::from_secs(130),
        "Silence of a watch after which its resource is reported as behind and listed again; an API server sends a bookmark every minute";
    worker_queue: usize = 64,
        "Large requests, and as many large messages, that wait for a worker";
    worker_wait: Duration = Duration::from_secs(1),
        "Longest wait for a worker in a burst, or the time of four requests if they take longer; under overload a request waits no longer than one takes";
    workers: usize = spare_cores(), [1..=512]
        "Large requests, and as many large messages, that are worked on at once";
}

/// Workers for large requests: one core stays free for small requests, if there is more than one.
fn spare_cores() -> usize {
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    cores.saturating_sub(1).max(1)
}
