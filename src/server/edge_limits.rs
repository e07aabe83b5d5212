//! Bounds at the edge, with their defaults.

use std::time::Duration;

/// Bounds at the edge: on messages, questions, connections and work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeLimits {
    /// Largest request, in bytes.
    pub request_bytes: usize,
    /// Largest answer, in bytes.
    pub response_bytes: usize,
    /// Connections open at once, of all callers.
    pub connections: usize,
    /// Calls under way on one connection.
    pub connection_calls: usize,
    /// Calls under way or whose answers are not taken yet, of all callers; health checks do not count.
    pub calls: usize,
    /// Time that a connection may take none of what is written to it.
    pub stalled: Duration,
    /// Large questions, and as many conversions of large messages, that are worked on at once.
    pub workers: usize,
    /// Large questions or conversions that wait for a worker; each holds its request.
    pub worker_queue: usize,
    /// Tasks of one question.
    pub tasks: usize,
    /// Task-node pairs that one question makes the server look at.
    pub pairs: usize,
    /// Task-node pairs in an answer that names nodes.
    pub named_pairs: usize,
    /// Task-node pairs in an answer by slot.
    pub slot_pairs: usize,
    /// Plugins that one question names.
    pub plugins: usize,
    /// Names of queues or of jobs in one question of Order.
    pub order_names: usize,
    /// Groups of one question of `SelectVictims`.
    pub victim_groups: usize,
    /// Candidates of all groups of one question.
    pub victim_candidates: usize,
    /// Assumptions of one group.
    pub victim_changes: usize,
    /// Tasks of all groups of one question of Place.
    pub place_tasks: usize,
    /// Refused nodes shown per rejection.
    pub samples: usize,
    /// Source positions that one question waits for.
    pub positions: usize,
    /// Records on a page.
    pub page_records: usize,
    /// Records and removals in one batch.
    pub batch_records: usize,
    /// Records in an inline cluster.
    pub inline_records: usize,
    /// Resources in one list.
    pub list_resources: usize,
    /// Resource names that a question may use and the state not know.
    pub query_resources: usize,
    /// Longest name, in bytes.
    pub name_bytes: usize,
    /// Labels or annotations sent with one record.
    pub texts: usize,
    /// Longest label or annotation that is kept, in bytes.
    pub label_bytes: usize,
}

impl Default for EdgeLimits {
    fn default() -> Self {
        // One core is left to small questions, if there is more than one.
        let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        Self {
            request_bytes: 32 << 20,
            response_bytes: 128 << 20,
            connections: 1_024,
            connection_calls: 256,
            calls: 1_024,
            stalled: Duration::from_secs(30),
            workers: cores.saturating_sub(1).max(1),
            worker_queue: 64,
            tasks: 10_000,
            pairs: 100_000_000,
            named_pairs: 2_000_000,
            slot_pairs: 8_000_000,
            plugins: 64,
            order_names: 100_000,
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
            texts: 1_024,
            label_bytes: 64 << 10,
        }
    }
}
