//! Limits at the edge, with their defaults.

use std::time::Duration;

/// Limits at the edge: on messages, requests, connections and work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeLimits {
    /// Largest request, in bytes.
    pub request_bytes: usize,
    /// Largest response, in bytes.
    pub response_bytes: usize,
    /// Maximum number of open connections of all callers.
    pub connections: usize,
    /// Maximum number of concurrent TLS handshakes of gRPC connections.
    pub handshakes: usize,
    /// Time that a TLS handshake has.
    pub handshake: Duration,
    /// Maximum number of concurrent calls on one connection.
    pub connection_calls: usize,
    /// Maximum number of calls in progress, or with an unread response, of all callers, without health checks.
    pub calls: usize,
    /// Maximum number of calls that wait for a revision, for the writer or for the disk, of all callers.
    pub waits: usize,
    /// Maximum number of such calls on one connection.
    pub connection_waits: usize,
    /// Maximum number of streams open at once, of all callers.
    pub streams: usize,
    /// Maximum number of streams open at once on one connection.
    pub connection_streams: usize,
    /// Time that a request, or one message of a stream, has to arrive.
    pub request_body: Duration,
    /// Maximum bytes of requests that are being received, or worked on, of all callers.
    pub receiving_bytes: usize,
    /// Maximum bytes of requests that are being received, or worked on, on one connection.
    pub connection_receiving_bytes: usize,
    /// Maximum bytes of responses that are not yet taken, of all callers.
    pub sending_bytes: usize,
    /// Maximum bytes of responses that are not yet taken on one connection.
    pub connection_sending_bytes: usize,
    /// Maximum number of connections for probes and metrics whose request is not a scrape, or has not arrived.
    pub http_connections: usize,
    /// Time until the request of a connection for probes and metrics has arrived.
    pub http_header: Duration,
    /// Maximum number of concurrent scrapes of metrics.
    pub scrapes: usize,
    /// Maximum number of connections of schedulers with an extender protocol.
    pub extender_connections: usize,
    /// Largest body of an extender's request, in bytes.
    pub extender_body_bytes: usize,
    /// Maximum bytes of such bodies that are being received, or worked on, of all callers.
    pub extender_receiving_bytes: usize,
    /// Time for which a pod that was offered nodes is held, unless it is seen placed or gone before.
    pub extender_hold: Duration,
    /// Longest wait for a pod that an extender's request names and no source has reported yet.
    pub extender_wait: Duration,
    /// Most that a scheduler takes as a score of an extender.
    pub extender_max_score: usize,
    /// Time for which a connection, or one response on it, may take none of the bytes that are there for it.
    pub stalled: Duration,
    /// Maximum number of large requests that are evaluated at once, and of large messages that are converted at once.
    pub workers: usize,
    /// Maximum number of large requests, and of conversions, that wait for a worker; each holds its request.
    pub worker_queue: usize,
    /// Longest wait for a worker in a burst. Under overload it is a little less than what a request takes.
    pub worker_wait: Duration,
    /// Maximum number of tasks in one request.
    pub tasks: usize,
    /// Maximum number of task-node pairs that the server evaluates for one request. For example, 100 tasks on 5,000
    /// nodes are 500,000 pairs.
    pub pairs: usize,
    /// Maximum number of task-node pairs in a response that names nodes.
    pub named_pairs: usize,
    /// Maximum number of task-node pairs in a response by slot.
    pub slot_pairs: usize,
    /// Maximum number of plugins that one request names.
    pub plugins: usize,
    /// Maximum number of names of queues or of jobs in one request of Order.
    pub order_names: usize,
    /// Maximum bytes of the verdicts on chunks of nodes that later queries use again; 0: none are stored.
    pub verdict_cache_bytes: usize,
    /// Maximum number of groups in one request of `SelectVictims`.
    pub victim_groups: usize,
    /// Maximum number of candidates of all groups in one request of `SelectVictims`.
    pub victim_candidates: usize,
    /// Maximum number of assumptions of one group.
    pub victim_changes: usize,
    /// Maximum number of tasks of all groups in one request of Place.
    pub place_tasks: usize,
    /// Maximum number of rejected nodes shown per rejection.
    pub samples: usize,
    /// Maximum number of source positions that one request waits for.
    pub positions: usize,
    /// Maximum number of records on a page.
    pub page_records: usize,
    /// Maximum number of records and removals in one batch.
    pub batch_records: usize,
    /// Maximum number of records in an inline cluster.
    pub inline_records: usize,
    /// Maximum number of resources in one list.
    pub list_resources: usize,
    /// Maximum number of resource names in a request that the state does not have.
    pub query_resources: usize,
    /// Longest name, in bytes.
    pub name_bytes: usize,
    /// Maximum number of labels or annotations sent with one record.
    pub texts: usize,
    /// Longest label or annotation that is stored, in bytes.
    pub label_bytes: usize,
}

impl Default for EdgeLimits {
    fn default() -> Self {
        // One core stays free for small requests, if there is more than one.
        let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        Self {
            request_bytes: 32 << 20,
            response_bytes: 128 << 20,
            connections: 1_024,
            handshakes: 128,
            handshake: Duration::from_secs(10),
            connection_calls: 256,
            calls: 1_024,
            // Half of the calls: those that wait never take the places of those that are answered at once.
            waits: 384,
            connection_waits: 128,
            streams: 256,
            connection_streams: 192,
            request_body: Duration::from_secs(30),
            receiving_bytes: 256 << 20,
            connection_receiving_bytes: 64 << 20,
            // More than a second's worth of a fast network: what is beyond it only waits.
            sending_bytes: 192 << 20,
            connection_sending_bytes: 168 << 20,
            http_connections: 64,
            http_header: Duration::from_secs(5),
            scrapes: 32,
            extender_connections: 64,
            // 10,000 whole nodes of 6 KB.
            extender_body_bytes: 64 << 20,
            extender_receiving_bytes: 128 << 20,
            extender_hold: Duration::from_mins(1),
            extender_wait: Duration::from_millis(500),
            extender_max_score: 10,
            stalled: Duration::from_secs(30),
            workers: cores.saturating_sub(1).max(1),
            worker_queue: 64,
            worker_wait: Duration::from_secs(1),
            tasks: 10_000,
            pairs: 100_000_000,
            named_pairs: 2_000_000,
            slot_pairs: 8_000_000,
            plugins: 64,
            order_names: 100_000,
            verdict_cache_bytes: 64 << 20,
            victim_groups: 10_000,
            victim_candidates: 100_000,
            victim_changes: 1_000,
            place_tasks: 1_000_000,
            samples: 1_000,
            positions: 64,
            page_records: 5_000,
            batch_records: 1_000_000,
            inline_records: 200_000,
            list_resources: 256,
            query_resources: 256,
            // A namespace, a slash and a name.
            name_bytes: 253 + 1 + 253,
            // An API server takes 256 KiB of annotations, in one text or in many.
            texts: 256 << 10,
            label_bytes: 256 << 10,
        }
    }
}
