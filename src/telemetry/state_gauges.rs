//! Gauges of the state: policies, sources, records, the store and what waits.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::integer_gauge::{IntegerGauge, count};
use pumice_state::SharedState;

/// Gauges with some labels, by their names and values.
type Labelled<const N: usize, G = IntegerGauge> = Family<[(&'static str, String); N], G>;

/// Load of the workers of one kind.
#[derive(Clone, Copy, Debug)]
pub struct WorkerLoad {
    /// Kind of work, the value of a label.
    pub kind: &'static str,
    /// Number of pieces of work in progress.
    pub running: usize,
    /// Number of pieces of work that wait.
    pub waiting: usize,
}

/// Metrics that are read from the state when the page is requested.
#[derive(Debug, Default)]
pub(super) struct StateGauges {
    policy_version: Labelled<1>,
    policy_info: Labelled<3>,
    policy_rejected: Labelled<1>,
    source_synced: Labelled<1>,
    source_awaited: Labelled<1>,
    source_silence: Labelled<1, Gauge<f64, AtomicU64>>,
    source_records: Labelled<1>,
    revision: IntegerGauge,
    nodes: IntegerGauge,
    queues: IntegerGauge,
    jobs: IntegerGauge,
    tasks: IntegerGauge,
    resources: IntegerGauge,
    sessions: IntegerGauge,
    reservations: IntegerGauge,
    store_failing: IntegerGauge,
    store_failed_writes: Counter,
    record_problems: Counter,
    pool_running: Labelled<1>,
    pool_waiting: Labelled<1>,
    writes_waiting: IntegerGauge,
}

impl StateGauges {
    pub(super) fn register(&self, own: &mut Registry) {
        own.register(
            "policy_version",
            "Version in force, by policy",
            self.policy_version.clone(),
        );
        let help = "Document in force, by version and hash, always 1";
        own.register("policy_info", help, self.policy_info.clone());
        let help = "1 if the last received document was rejected, else 0";
        own.register("policy_rejected", help, self.policy_rejected.clone());
        own.register(
            "source_synced",
            "1 if the source is synced and not stale, else 0",
            self.source_synced.clone(),
        );
        let help = "1 if the source has to send its records again for a policy in force, else 0";
        own.register("source_awaited", help, self.source_awaited.clone());
        let help = "Time since the last batch of the source";
        own.register_with_unit("source_silence", help, Unit::Seconds, self.source_silence.clone());
        let help = "Size of the records of a source (limit `source_bytes`)";
        own.register_with_unit("source_records", help, Unit::Bytes, self.source_records.clone());
        own.register("revision", "Number of the newest revision", self.revision.clone());
        own.register("nodes", "Nodes in the newest state", self.nodes.clone());
        own.register("queues", "Queues in the newest state", self.queues.clone());
        own.register("jobs", "Jobs in the newest state", self.jobs.clone());
        own.register("tasks", "Tasks in the newest state", self.tasks.clone());
        own.register("resources", "Resource names known", self.resources.clone());
        own.register("sessions", "Open sessions", self.sessions.clone());
        let help = "Rows of the admission ledger";
        own.register("reservations", help, self.reservations.clone());
        let help = "1 if the last write to the store failed, or hangs, else 0";
        own.register("store_failing", help, self.store_failing.clone());
        let help = "Writes to the store that failed";
        own.register("store_failed_writes", help, self.store_failed_writes.clone());
        let help = "Problems of rejected records";
        own.register("record_problems", help, self.record_problems.clone());
        let help = "Workers that are busy with large work, by kind";
        own.register("workers_busy", help, self.pool_running.clone());
        let help = "Large work that waits for a worker, by kind";
        own.register("worker_queue", help, self.pool_waiting.clone());
        let help = "Batches and policies that wait for the writer";
        own.register("writes_waiting", help, self.writes_waiting.clone());
    }

    /// Reads the newest state.
    pub(super) fn read(&self, state: &SharedState, work: &[WorkerLoad]) {
        let snapshot = state.snapshot();
        self.revision.set(snapshot.revision.number);
        self.nodes.set(snapshot.state.node_count().into());
        self.queues.set(count(snapshot.state.queues().len()));
        self.jobs.set(count(snapshot.state.jobs().len()));
        self.tasks.set(count(snapshot.state.tasks().len()));
        self.resources
            .set(count(state.resource_names().current_table().name_count()));
        self.sessions.set(count(state.session_count()));
        self.reservations
            .set(count(state.snapshot().state.reservations().len()));
        self.writes_waiting.set(count(state.queued_writes()));
        for load in work {
            let label = [("kind", load.kind.to_owned())];
            self.pool_running.get_or_create(&label).set(count(load.running));
            self.pool_waiting.get_or_create(&label).set(count(load.waiting));
        }
        let store = state.store_status();
        self.store_failing.set(store.problem.is_some().into());
        let more = store.failed_writes.saturating_sub(self.store_failed_writes.get());
        self.store_failed_writes.inc_by(more);
        let more = state.record_problems().saturating_sub(self.record_problems.get());
        self.record_problems.inc_by(more);
        self.read_policies(state);
        // Sources that were forgotten have no series any more.
        self.source_synced.clear();
        self.source_awaited.clear();
        self.source_silence.clear();
        self.source_records.clear();
        for source in state.sources() {
            let label = [("source", source.position.source.to_string())];
            self.source_synced.get_or_create(&label).set(source.synced.into());
            self.source_records.get_or_create(&label).set(count(source.bytes));
            let awaited = source.basis.is_outdated(snapshot.read_labels(), snapshot.pod_release());
            self.source_awaited.get_or_create(&label).set(awaited.into());
            if let Some(silence) = source.silence {
                self.source_silence.get_or_create(&label).set(silence.as_secs_f64());
            }
        }
    }

    fn read_policies(&self, state: &SharedState) {
        let refused: Vec<_> = state
            .rejected_documents()
            .into_iter()
            .map(|rejection| rejection.name)
            .collect();
        // Versions that are no longer in force are removed from the page.
        self.policy_info.clear();
        self.policy_version.clear();
        self.policy_rejected.clear();
        for (name, policy) in state.snapshot().policies.iter() {
            let label = [("policy", name.to_string())];
            self.policy_version.get_or_create(&label).set(policy.version);
            self.policy_rejected
                .get_or_create(&label)
                .set(refused.contains(name).into());
            let [policy_name] = label;
            let (version, hash) = (policy.version.to_string(), policy.hash.to_string());
            let labels = [policy_name, ("version", version), ("hash", hash)];
            self.policy_info.get_or_create(&labels).set(1);
        }
    }
}
