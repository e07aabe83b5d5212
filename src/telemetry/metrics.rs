//! All metrics, and the page that shows them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use tokio::time::Instant;

use super::cluster_gauges::ClusterGauges;
use super::panics::panic_count;
use super::placement_metrics::PlacementMetrics;
use super::process::ProcessStats;
use super::queue_gauges;
use super::reload_outcome::ReloadOutcome;
use super::rpc_labels::{OTHER_RPC, RPCS};
use super::security_metrics::SecurityMetrics;
use super::verdict_gauges::VerdictGauges;
use crate::build_info;
use crate::limits::limit_names;
use pumice_engine::decide::VerdictCache;
use pumice_live::ClusterCondition;
use pumice_state::{PolicyOrigin, SharedState};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    rpc: &'static str,
    code: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RpcLabel {
    rpc: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PluginLabels {
    rpc: &'static str,
    plugin: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReloadLabels {
    origin: &'static str,
    outcome: ReloadOutcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PolicyLabel {
    policy: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PolicyVersionLabels {
    policy: String,
    version: u64,
    hash: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SourceLabel {
    source: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LimitLabel {
    limit: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WorkerPoolLabel {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
    commit: &'static str,
}

/// Load of the workers of one kind.
#[derive(Clone, Copy, Debug)]
pub struct WorkerLoad {
    /// Kind of work, the value of a label.
    pub kind: &'static str,
    /// Number of pieces of work under way.
    pub running: usize,
    /// Number of pieces of work that wait.
    pub waiting: usize,
}

type IntegerGauge = Gauge<u64, AtomicU64>;

/// All metrics of the server.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    started: Instant,
    calls: Family<CallLabels, Counter>,
    call_seconds: Family<RpcLabel, Histogram>,
    decided_tasks: Family<RpcLabel, Counter>,
    decision_seconds: Family<RpcLabel, Histogram>,
    plugin_tasks: Family<PluginLabels, Counter>,
    plugin_seconds: Family<PluginLabels, Histogram>,
    reloads: Family<ReloadLabels, Counter>,
    limit_rejections: Family<LimitLabel, Counter>,
    server_errors: Family<RpcLabel, Counter>,
    panics: Counter,
    connections: IntegerGauge,
    security: SecurityMetrics,
    placements: PlacementMetrics,
    state_gauges: StateGauges,
    process_gauges: ProcessGauges,
    cluster: ClusterGauges,
    verdicts: VerdictGauges,
}

/// Metrics that are read from the state when the page is requested.
#[derive(Debug, Default)]
struct StateGauges {
    policy_version: Family<PolicyLabel, IntegerGauge>,
    policy_info: Family<PolicyVersionLabels, IntegerGauge>,
    policy_rejected: Family<PolicyLabel, IntegerGauge>,
    source_synced: Family<SourceLabel, IntegerGauge>,
    source_awaited: Family<SourceLabel, IntegerGauge>,
    source_silence: Family<SourceLabel, Gauge<f64, AtomicU64>>,
    source_records: Family<SourceLabel, IntegerGauge>,
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
    pool_running: Family<WorkerPoolLabel, IntegerGauge>,
    pool_waiting: Family<WorkerPoolLabel, IntegerGauge>,
    writes_waiting: IntegerGauge,
}

#[derive(Debug, Default)]
struct ProcessGauges {
    resident: IntegerGauge,
    cpu: Counter<f64, AtomicU64>,
    threads: IntegerGauge,
    files: IntegerGauge,
    max_files: IntegerGauge,
    virtual_memory: IntegerGauge,
    start: Gauge<f64, AtomicU64>,
    uptime: Gauge<f64, AtomicU64>,
}

/// Histogram from 50 µs to 26 s, doubling.
fn call_histogram() -> Histogram {
    Histogram::new(exponential_buckets(50e-6, 2.0, 20))
}

/// Histogram from 1 µs to 8.4 s, doubling.
fn decision_histogram() -> Histogram {
    Histogram::new(exponential_buckets(1e-6, 2.0, 24))
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Metrics that are all zero.
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let process = ProcessGauges::default();
        process.register(registry.sub_registry_with_prefix("process"));
        let own = registry.sub_registry_with_prefix("pumice");
        let levels = StateGauges::default();
        levels.register(own);
        let build = Family::<BuildLabels, IntegerGauge>::default();
        own.register(
            "build_info",
            "Version and commit of the program, always 1",
            build.clone(),
        );
        let (version, commit) = (build_info::VERSION, build_info::commit());
        build.get_or_create(&BuildLabels { version, commit }).set(1);
        let metrics = Self {
            started: Instant::now(),
            calls: Family::default(),
            call_seconds: Family::new_with_constructor(call_histogram),
            decided_tasks: Family::default(),
            decision_seconds: Family::new_with_constructor(decision_histogram),
            plugin_tasks: Family::default(),
            plugin_seconds: Family::new_with_constructor(decision_histogram),
            reloads: Family::default(),
            limit_rejections: Family::default(),
            server_errors: Family::default(),
            panics: Counter::default(),
            connections: IntegerGauge::default(),
            security: SecurityMetrics::default(),
            placements: PlacementMetrics::default(),
            state_gauges: levels,
            process_gauges: process,
            cluster: ClusterGauges::default(),
            verdicts: VerdictGauges::default(),
            registry: Registry::default(),
        };
        metrics.register(own);
        Self { registry, ..metrics }
    }

    fn register(&self, own: &mut Registry) {
        let seconds = || Unit::Seconds;
        own.register("calls", "Finished calls, by RPC and gRPC code", self.calls.clone());
        let help = "Time from a call's headers to its response, of a stream to its end, by RPC";
        own.register_with_unit("call_duration", help, seconds(), self.call_seconds.clone());
        own.register("decided_tasks", "Tasks judged, by RPC", self.decided_tasks.clone());
        let help = "Time in the engine per request, by RPC";
        own.register_with_unit("decision_duration", help, seconds(), self.decision_seconds.clone());
        let help = "Tasks judged, by RPC and plugin";
        own.register("plugin_tasks", help, self.plugin_tasks.clone());
        let help = "Time in the engine of requests that a plugin took part in, by RPC and plugin";
        own.register_with_unit("plugin_decision_duration", help, seconds(), self.plugin_seconds.clone());
        let help = "Policy documents received, by origin and outcome";
        own.register("policy_reloads", help, self.reloads.clone());
        own.register(
            "limit_rejections",
            "Calls and connections rejected, by limit",
            self.limit_rejections.clone(),
        );
        let help = "Calls that ended with an error of the server, by RPC";
        own.register("server_errors", help, self.server_errors.clone());
        own.register("panics", "Panics of the program", self.panics.clone());
        self.create_alert_series();
        own.register("connections", "Open gRPC connections", self.connections.clone());
        self.security.register(own);
        self.placements.register(own);
        for origin in PolicyOrigin::KINDS {
            for outcome in [
                ReloadOutcome::accepted,
                ReloadOutcome::unchanged,
                ReloadOutcome::rejected,
            ] {
                drop(self.reloads.get_or_create(&ReloadLabels { origin, outcome }));
            }
        }
    }

    /// Creates at zero what alerts take rates of: the first event of a series that appears with it would not be seen.
    fn create_alert_series(&self) {
        for rpc in RPCS.iter().copied().chain([OTHER_RPC]) {
            drop(self.server_errors.get_or_create(&RpcLabel { rpc }));
        }
        for limit in limit_names() {
            drop(self.limit_rejections.get_or_create(&LimitLabel { limit }));
        }
    }

    /// Shows the condition of the watched cluster from now on.
    pub(crate) fn follow_cluster(&self, condition: Arc<ClusterCondition>) {
        self.cluster.follow(condition);
    }

    /// Shows the use of a cache of verdicts from now on.
    pub(crate) fn follow_verdicts(&self, cache: Arc<VerdictCache>) {
        self.verdicts.follow(cache);
    }

    /// Counts a call that ended with an error of the server.
    pub(super) fn record_server_error(&self, rpc: &'static str) {
        self.server_errors.get_or_create(&RpcLabel { rpc }).inc();
    }

    /// Counts the outcome of a policy document.
    pub fn record_reload(&self, origin: &'static str, outcome: ReloadOutcome) {
        self.reloads.get_or_create(&ReloadLabels { origin, outcome }).inc();
    }

    /// Counts a rejection by a limit.
    pub fn record_limit_rejection(&self, limit: &'static str) {
        self.limit_rejections.get_or_create(&LimitLabel { limit }).inc();
    }

    /// Gauge of open connections.
    pub(crate) fn connections(&self) -> &Gauge<u64, AtomicU64> {
        &self.connections
    }

    /// Metrics of TLS, of roles and of the audit log.
    pub(crate) fn security(&self) -> &SecurityMetrics {
        &self.security
    }

    /// Metrics of placements that are committed at once.
    pub(crate) fn placements(&self) -> &PlacementMetrics {
        &self.placements
    }

    /// Counts a query that the engine evaluated.
    pub(crate) fn record_decision(&self, rpc: &'static str, tasks: usize, plugins: &[&'static str], time: Duration) {
        let (tasks, seconds) = (count(tasks), time.as_secs_f64());
        self.decided_tasks.get_or_create(&RpcLabel { rpc }).inc_by(tasks);
        self.decision_seconds.get_or_create(&RpcLabel { rpc }).observe(seconds);
        for plugin in plugins {
            let labels = PluginLabels { rpc, plugin };
            self.plugin_tasks.get_or_create(&labels).inc_by(tasks);
            self.plugin_seconds.get_or_create(&labels).observe(seconds);
        }
    }

    /// Counts an answered call.
    pub(crate) fn record_call(&self, rpc: &'static str, code: &'static str, seconds: f64) {
        self.calls.get_or_create(&CallLabels { rpc, code }).inc();
        self.call_seconds.get_or_create(&RpcLabel { rpc }).observe(seconds);
    }

    /// Writes all metrics as OpenMetrics text, with the current measurements of state and process. May take long,
    /// because plugin states of queues may have to be computed. One caller at a time: two pages would see each other's half
    /// of the gauges. A server's pages are made by one [`super::SharedPage`].
    ///
    /// # Errors
    /// A metric cannot be written.
    pub fn encode(&self, state: &SharedState, work: &[WorkerLoad]) -> Result<String, fmt::Error> {
        self.state_gauges.read(state, work);
        self.process_gauges.read(self.started.elapsed());
        self.panics.inc_by(panic_count().saturating_sub(self.panics.get()));
        let mut text = String::new();
        encode_registry(&mut text, &self.registry)?;
        self.cluster.write(&mut text)?;
        self.verdicts.write(&mut text)?;
        queue_gauges::write(&mut text, &state.snapshot())?;
        encode_eof(&mut text)?;
        Ok(text)
    }
}

impl StateGauges {
    fn register(&self, own: &mut Registry) {
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
        let help = "1 if the source's records lack labels that a policy in force reads, else 0";
        own.register("source_awaited", help, self.source_awaited.clone());
        let help = "Time since the source was last heard";
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
        let help = "Problems of records that were refused";
        own.register("record_problems", help, self.record_problems.clone());
        let help = "Workers that are busy with large work, by kind";
        own.register("workers_busy", help, self.pool_running.clone());
        let help = "Large work that waits for a worker, by kind";
        own.register("worker_queue", help, self.pool_waiting.clone());
        let help = "Batches and policies that wait for the writer";
        own.register("writes_waiting", help, self.writes_waiting.clone());
    }

    fn read(&self, state: &SharedState, work: &[WorkerLoad]) {
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
            let label = WorkerPoolLabel { kind: load.kind };
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
            let label = SourceLabel {
                source: source.position.source.to_string(),
            };
            self.source_synced.get_or_create(&label).set(source.synced.into());
            self.source_records.get_or_create(&label).set(count(source.bytes));
            let awaited = source.dropped_labels.intersects(snapshot.read_labels()).into();
            self.source_awaited.get_or_create(&label).set(awaited);
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
            let label = PolicyLabel {
                policy: name.to_string(),
            };
            self.policy_version.get_or_create(&label).set(policy.version);
            self.policy_rejected
                .get_or_create(&label)
                .set(refused.contains(name).into());
            let labels = PolicyVersionLabels {
                policy: name.to_string(),
                version: policy.version,
                hash: policy.hash.to_string(),
            };
            self.policy_info.get_or_create(&labels).set(1);
        }
    }
}

impl ProcessGauges {
    fn register(&self, process: &mut Registry) {
        process.register_with_unit("resident_memory", "Memory in use", Unit::Bytes, self.resident.clone());
        process.register_with_unit("cpu", "Processor time used", Unit::Seconds, self.cpu.clone());
        process.register("threads", "Threads", self.threads.clone());
        process.register("open_fds", "Open files and sockets", self.files.clone());
        let help = "Number of files and sockets that may be open at once";
        process.register("max_fds", help, self.max_files.clone());
        let help = "Address space in use";
        process.register_with_unit("virtual_memory", help, Unit::Bytes, self.virtual_memory.clone());
        let help = "Start of the process, since 1970";
        process.register_with_unit("start_time", help, Unit::Seconds, self.start.clone());
        process.register_with_unit("uptime", "Time since the start", Unit::Seconds, self.uptime.clone());
    }

    fn read(&self, uptime: Duration) {
        let ProcessStats {
            resident_bytes,
            cpu_seconds,
            threads,
            open_files,
            max_open_files,
            virtual_bytes,
            start_seconds,
        } = ProcessStats::now();
        self.uptime.set(uptime.as_secs_f64());
        self.resident.set(resident_bytes.unwrap_or_default());
        self.threads.set(threads.unwrap_or_default());
        self.files.set(open_files.unwrap_or_default());
        self.max_files.set(max_open_files.unwrap_or_default());
        self.virtual_memory.set(virtual_bytes.unwrap_or_default());
        self.start.set(start_seconds.unwrap_or_default());
        let more = cpu_seconds.unwrap_or_default() - self.cpu.get();
        if more > 0.0 {
            self.cpu.inc_by(more);
        }
    }
}

fn count(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
