//! All instruments, and the page that shows them.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use tokio::time::Instant;

use super::process::Process;
use super::queues;
use crate::server::Work;
use crate::state::{Origin, PolicyError, Reloaded, State};

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
struct PolicyLabels {
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
struct WorkLabel {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabel {
    version: &'static str,
}

/// What became of a document that was to be put in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum ReloadOutcome {
    /// In force now.
    #[expect(non_camel_case_types, reason = "the label's value is the variant's name")]
    accepted,
    /// It already was.
    #[expect(non_camel_case_types, reason = "the label's value is the variant's name")]
    unchanged,
    /// The one before goes on serving.
    #[expect(non_camel_case_types, reason = "the label's value is the variant's name")]
    refused,
}

impl ReloadOutcome {
    /// The outcome of a reload.
    pub fn of(reloaded: &Result<Reloaded, PolicyError>) -> Self {
        match reloaded {
            Ok(reloaded) if reloaded.unchanged => Self::unchanged,
            Ok(_) => Self::accepted,
            Err(_) => Self::refused,
        }
    }
}

type Level = Gauge<u64, AtomicU64>;

/// All instruments.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    started: Instant,
    calls: Family<CallLabels, Counter>,
    seconds: Family<RpcLabel, Histogram>,
    tasks: Family<RpcLabel, Counter>,
    decisions: Family<RpcLabel, Histogram>,
    plugins: Family<PluginLabels, Counter>,
    plugin_seconds: Family<PluginLabels, Histogram>,
    reloads: Family<ReloadLabels, Counter>,
    refusals: Family<LimitLabel, Counter>,
    connections: Level,
    levels: Levels,
    process: ProcessLevels,
}

/// What is read from the state when the page is asked for.
#[derive(Debug, Default)]
struct Levels {
    version: Family<PolicyLabel, Level>,
    policy: Family<PolicyLabels, Level>,
    rejected: Family<PolicyLabel, Level>,
    synced: Family<SourceLabel, Level>,
    silence: Family<SourceLabel, Gauge<f64, AtomicU64>>,
    revision: Level,
    nodes: Level,
    queues: Level,
    jobs: Level,
    tasks: Level,
    resources: Level,
    sessions: Level,
    reservations: Level,
    running: Family<WorkLabel, Level>,
    waiting: Family<WorkLabel, Level>,
    writes: Level,
}

#[derive(Debug, Default)]
struct ProcessLevels {
    resident: Level,
    cpu: Counter<f64, AtomicU64>,
    threads: Level,
    files: Level,
    uptime: Gauge<f64, AtomicU64>,
}

/// From 50 µs to 26 s, doubling.
fn call_seconds() -> Histogram {
    Histogram::new(exponential_buckets(50e-6, 2.0, 20))
}

/// From 1 µs to 8.4 s, doubling.
fn decision_seconds() -> Histogram {
    Histogram::new(exponential_buckets(1e-6, 2.0, 24))
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Instruments that read zero.
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let process = ProcessLevels::default();
        process.register(registry.sub_registry_with_prefix("process"));
        let own = registry.sub_registry_with_prefix("pumice");
        let levels = Levels::default();
        levels.register(own);
        let build = Family::<BuildLabel, Level>::default();
        own.register("build_info", "Version of the program, always 1", build.clone());
        let version = env!("CARGO_PKG_VERSION");
        build.get_or_create(&BuildLabel { version }).set(1);
        let metrics = Self {
            started: Instant::now(),
            calls: Family::default(),
            seconds: Family::new_with_constructor(call_seconds),
            tasks: Family::default(),
            decisions: Family::new_with_constructor(decision_seconds),
            plugins: Family::default(),
            plugin_seconds: Family::new_with_constructor(decision_seconds),
            reloads: Family::default(),
            refusals: Family::default(),
            connections: Level::default(),
            levels,
            process,
            registry: Registry::default(),
        };
        metrics.register(own);
        Self { registry, ..metrics }
    }

    fn register(&self, own: &mut Registry) {
        let seconds = || Unit::Seconds;
        own.register("calls", "Calls answered, by RPC and gRPC code", self.calls.clone());
        let help = "Time from a call's headers to its answer, by RPC";
        own.register_with_unit("call_duration", help, seconds(), self.seconds.clone());
        own.register("decided_tasks", "Tasks judged, by RPC", self.tasks.clone());
        let help = "Time in the engine per question, by RPC";
        own.register_with_unit("decision_duration", help, seconds(), self.decisions.clone());
        let help = "Tasks judged, by RPC and plugin asked";
        own.register("plugin_tasks", help, self.plugins.clone());
        let help = "Time in the engine of questions that a plugin was asked in, by RPC and plugin";
        own.register_with_unit("plugin_decision_duration", help, seconds(), self.plugin_seconds.clone());
        let help = "Documents brought, by origin and what became of them";
        own.register("policy_reloads", help, self.reloads.clone());
        own.register(
            "refusals",
            "Calls and connections refused, by limit",
            self.refusals.clone(),
        );
        own.register("connections", "Open gRPC connections", self.connections.clone());
        for origin in Origin::KINDS {
            for outcome in [
                ReloadOutcome::accepted,
                ReloadOutcome::unchanged,
                ReloadOutcome::refused,
            ] {
                drop(self.reloads.get_or_create(&ReloadLabels { origin, outcome }));
            }
        }
    }

    /// Counts a document that was brought.
    pub fn reloaded(&self, origin: &'static str, outcome: ReloadOutcome) {
        self.reloads.get_or_create(&ReloadLabels { origin, outcome }).inc();
    }

    /// Counts what a limit refused.
    pub fn refused(&self, limit: &'static str) {
        self.refusals.get_or_create(&LimitLabel { limit }).inc();
    }

    /// Open connections: to be counted up and down.
    pub(crate) fn connections(&self) -> &Gauge<u64, AtomicU64> {
        &self.connections
    }

    /// Counts a question that the engine answered.
    pub(crate) fn decided(&self, rpc: &'static str, tasks: usize, plugins: &[&'static str], time: Duration) {
        let (tasks, seconds) = (count(tasks), time.as_secs_f64());
        self.tasks.get_or_create(&RpcLabel { rpc }).inc_by(tasks);
        self.decisions.get_or_create(&RpcLabel { rpc }).observe(seconds);
        for plugin in plugins {
            let labels = PluginLabels { rpc, plugin };
            self.plugins.get_or_create(&labels).inc_by(tasks);
            self.plugin_seconds.get_or_create(&labels).observe(seconds);
        }
    }

    pub(super) fn called(&self, rpc: &'static str, code: &'static str, seconds: f64) {
        self.calls.get_or_create(&CallLabels { rpc, code }).inc();
        self.seconds.get_or_create(&RpcLabel { rpc }).observe(seconds);
    }

    /// All instruments as OpenMetrics text, with the figures of state and process as they are now. May take long: accounts
    /// of queues may have to be worked out.
    ///
    /// # Errors
    /// An instrument cannot be written.
    pub fn encode(&self, state: &State, work: &Work) -> Result<String, fmt::Error> {
        self.levels.read(state, work);
        self.process.read(self.started.elapsed());
        let mut text = String::new();
        encode_registry(&mut text, &self.registry)?;
        queues::write(&mut text, &state.world())?;
        encode_eof(&mut text)?;
        Ok(text)
    }
}

impl Levels {
    fn register(&self, own: &mut Registry) {
        own.register("policy_version", "Version in force, by policy", self.version.clone());
        let help = "The document in force, by version and hash, always 1";
        own.register("policy_info", help, self.policy.clone());
        let help = "1 if the last document brought was refused, else 0";
        own.register("policy_rejected", help, self.rejected.clone());
        own.register(
            "source_synced",
            "1 if the source is synced, else 0",
            self.synced.clone(),
        );
        let help = "Time since the source was last heard";
        own.register_with_unit("source_silence", help, Unit::Seconds, self.silence.clone());
        own.register("revision", "Number of the newest revision", self.revision.clone());
        own.register("nodes", "Nodes in the newest state", self.nodes.clone());
        own.register("queues", "Queues in the newest state", self.queues.clone());
        own.register("jobs", "Jobs in the newest state", self.jobs.clone());
        own.register("tasks", "Tasks in the newest state", self.tasks.clone());
        own.register("resources", "Resource names known", self.resources.clone());
        own.register("sessions", "Open sessions", self.sessions.clone());
        own.register(
            "reservations",
            "Rows of the admission ledger",
            self.reservations.clone(),
        );
        own.register("work_running", "Large work under way, by kind", self.running.clone());
        own.register("work_waiting", "Large work that waits, by kind", self.waiting.clone());
        own.register(
            "writes_waiting",
            "Batches and policies that wait for the writer",
            self.writes.clone(),
        );
    }

    fn read(&self, state: &State, work: &Work) {
        let world = state.world();
        self.revision.set(world.revision.number);
        self.nodes.set(world.view.node_count().into());
        self.queues.set(count(world.view.queues().len()));
        self.jobs.set(count(world.view.jobs().len()));
        self.tasks.set(count(world.view.tasks().len()));
        self.resources.set(count(state.names().snapshot().len()));
        self.sessions.set(count(state.session_count()));
        self.reservations.set(count(state.world().view.reservations().len()));
        self.writes.set(count(state.queued_writes()));
        for (kind, gate) in [("question", &work.questions), ("records", &work.records)] {
            self.running
                .get_or_create(&WorkLabel { kind })
                .set(count(gate.running()));
            self.waiting
                .get_or_create(&WorkLabel { kind })
                .set(count(gate.waiting()));
        }
        self.read_policies(state);
        for source in state.sources() {
            let label = SourceLabel {
                source: source.position.source.to_string(),
            };
            self.synced.get_or_create(&label).set(source.synced.into());
            if let Some(silence) = source.silence {
                self.silence.get_or_create(&label).set(silence.as_secs_f64());
            }
        }
    }

    fn read_policies(&self, state: &State) {
        let refused: Vec<_> = state.refusals().into_iter().map(|refusal| refusal.name).collect();
        // Versions that are not in force any more must not stand beside the one that is.
        self.policy.clear();
        for (name, policy) in state.world().policies.iter() {
            let label = PolicyLabel {
                policy: name.to_string(),
            };
            self.version.get_or_create(&label).set(policy.version);
            self.rejected.get_or_create(&label).set(refused.contains(name).into());
            let labels = PolicyLabels {
                policy: name.to_string(),
                version: policy.version,
                hash: policy.hash.to_string(),
            };
            self.policy.get_or_create(&labels).set(1);
        }
    }
}

impl ProcessLevels {
    fn register(&self, process: &mut Registry) {
        process.register_with_unit("resident_memory", "Memory in use", Unit::Bytes, self.resident.clone());
        process.register_with_unit("cpu", "Processor time used", Unit::Seconds, self.cpu.clone());
        process.register("threads", "Threads", self.threads.clone());
        process.register("open_fds", "Open files and sockets", self.files.clone());
        process.register_with_unit("uptime", "Time since the start", Unit::Seconds, self.uptime.clone());
    }

    fn read(&self, uptime: Duration) {
        let Process {
            resident_bytes,
            cpu_seconds,
            threads,
            open_files,
        } = Process::now();
        self.uptime.set(uptime.as_secs_f64());
        self.resident.set(resident_bytes.unwrap_or_default());
        self.threads.set(threads.unwrap_or_default());
        self.files.set(open_files.unwrap_or_default());
        let more = cpu_seconds.unwrap_or_default() - self.cpu.get();
        if more > 0.0 {
            self.cpu.inc_by(more);
        }
    }
}

fn count(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
