//! All metrics, and the page that shows them.

use std::fmt;
use std::ptr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use tokio::time::Instant;

use super::integer_gauge::{IntegerGauge, count};
use super::panics::panic_count;
use super::placement_metrics::PlacementMetrics;
use super::process_gauges::ProcessGauges;
use super::rpc_labels::{OTHER_RPC, RPC_COUNT, RPCS};
use super::security_metrics::SecurityMetrics;
use super::state_gauges::{StateGauges, WorkerLoad};
use super::{LabelledCounter, cluster_gauges, queue_gauges, verdict_gauges};
use crate::build_info;
use crate::limits::{Limit, limits};
use pumice_engine::decide::VerdictCache;
use pumice_live::ClusterCondition;
use pumice_state::{PolicyError, PolicyOrigin, ReloadedPolicy, SharedState};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RpcLabel {
    rpc: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PluginLabels {
    rpc: &'static str,
    plugin: &'static str,
}

/// Two labels, each with its name and value.
type TwoLabels = [(&'static str, &'static str); 2];

/// Number of calls of one RPC and code, and the time of the RPC's calls.
type CallSeries = (Counter, Histogram);

/// Outcomes of policy documents: in force now, in force already, or refused.
const RELOAD_OUTCOMES: [&str; 3] = ["accepted", "unchanged", "rejected"];
/// Code of calls that succeed.
const OK: &str = "OK";

/// All metrics of the server.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    started: Instant,
    calls: Family<TwoLabels, Counter>,
    call_seconds: Family<RpcLabel, Histogram>,
    /// Series of calls that succeeded, by the place of their RPC in the list: most calls do, and look for nothing.
    succeeded: [OnceLock<CallSeries>; RPC_COUNT],
    decided_tasks: Family<RpcLabel, Counter>,
    decision_seconds: Family<RpcLabel, Histogram>,
    plugin_tasks: Family<PluginLabels, Counter>,
    plugin_seconds: Family<PluginLabels, Histogram>,
    reloads: Family<TwoLabels, Counter>,
    limit_rejections: LabelledCounter<&'static str>,
    server_errors: Family<RpcLabel, Counter>,
    panics: Counter,
    /// Open gRPC connections.
    pub(crate) connections: IntegerGauge,
    pub(crate) security: SecurityMetrics,
    pub(crate) placements: PlacementMetrics,
    state_gauges: StateGauges,
    process_gauges: ProcessGauges,
    /// Condition of the watched cluster, if there is one.
    cluster: OnceLock<Arc<ClusterCondition>>,
    verdicts: OnceLock<Arc<VerdictCache>>,
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
        let build = Family::<TwoLabels, IntegerGauge>::default();
        own.register(
            "build_info",
            "Version and commit of the program, always 1",
            build.clone(),
        );
        let (version, commit) = (build_info::VERSION, build_info::commit());
        build.get_or_create(&[("version", version), ("commit", commit)]).set(1);
        let metrics = Self {
            started: Instant::now(),
            calls: Family::default(),
            call_seconds: Family::new_with_constructor(call_histogram),
            succeeded: [const { OnceLock::new() }; RPC_COUNT],
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
            cluster: OnceLock::new(),
            verdicts: OnceLock::new(),
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
        own.register("decided_tasks", "Evaluated tasks, by RPC", self.decided_tasks.clone());
        let help = "Time in the engine per request, by RPC";
        own.register_with_unit("decision_duration", help, seconds(), self.decision_seconds.clone());
        let help = "Evaluated tasks, by RPC and plugin";
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
            for outcome in RELOAD_OUTCOMES {
                drop(self.reloads.get_or_create(&[("origin", origin), ("outcome", outcome)]));
            }
        }
    }

    /// Creates at zero what alerts take rates of: the first event of a series that appears with it would not be seen.
    fn create_alert_series(&self) {
        for rpc in RPCS.iter().copied().chain([OTHER_RPC]) {
            drop(self.server_errors.get_or_create(&RpcLabel { rpc }));
        }
        for limit in limits().map(Limit::name) {
            drop(self.limit_rejections.get_or_create(&[("limit", limit)]));
        }
    }

    /// Shows the condition of the watched cluster from now on.
    pub(crate) fn follow_cluster(&self, condition: Arc<ClusterCondition>) {
        // A process watches one cluster.
        let _ = self.cluster.set(condition);
    }

    /// Shows the use of a cache of verdicts from now on.
    pub(crate) fn follow_verdicts(&self, cache: Arc<VerdictCache>) {
        // A server has one cache.
        let _ = self.verdicts.set(cache);
    }

    /// Records a call that ended with an error of the server.
    pub(super) fn record_server_error(&self, rpc: &'static str) {
        self.server_errors.get_or_create(&RpcLabel { rpc }).inc();
    }

    /// Records the outcome of a policy document.
    pub fn record_reload(&self, origin: &'static str, reloaded: &Result<ReloadedPolicy, PolicyError>) {
        let [accepted, unchanged, rejected] = RELOAD_OUTCOMES;
        let outcome = match reloaded {
            Ok(reloaded) if reloaded.unchanged => unchanged,
            Ok(_) => accepted,
            Err(_) => rejected,
        };
        let labels = [("origin", origin), ("outcome", outcome)];
        self.reloads.get_or_create(&labels).inc();
    }

    /// Records a rejection by a limit, such as `pairs`.
    pub fn record_limit_rejection(&self, limit: &'static str) {
        self.limit_rejections.get_or_create(&[("limit", limit)]).inc();
    }

    /// Records a query that the engine evaluated.
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

    /// Records a call with a response.
    pub(crate) fn record_call(&self, rpc: &'static str, code: &'static str, seconds: f64) {
        let at = RPCS.iter().position(|known| ptr::eq(*known, rpc));
        let place = at.filter(|_| code == OK).and_then(|at| self.succeeded.get(at));
        let record = |(calls, call_seconds): &CallSeries| {
            calls.inc();
            call_seconds.observe(seconds);
        };
        match place {
            Some(place) => record(place.get_or_init(|| self.call_series(rpc, code))),
            None => record(&self.call_series(rpc, code)),
        }
    }

    fn call_series(&self, rpc: &'static str, code: &'static str) -> CallSeries {
        (
            self.calls.get_or_create(&[("rpc", rpc), ("code", code)]).clone(),
            self.call_seconds.get_or_create(&RpcLabel { rpc }).clone(),
        )
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
        if let Some(condition) = self.cluster.get() {
            cluster_gauges::write(&mut text, &condition.status())?;
        }
        if let Some(cache) = self.verdicts.get() {
            verdict_gauges::write(&mut text, cache.usage())?;
        }
        queue_gauges::write(&mut text, &state.snapshot())?;
        encode_eof(&mut text)?;
        Ok(text)
    }
}
