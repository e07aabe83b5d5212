//! What the process tells of itself: log lines, and instruments that one layer around all calls measures with.

use std::fmt;
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll};

use axum::http::{Request, Response};
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use tokio::time::Instant;
use tower::{Layer, Service};
use tracing_subscriber::EnvFilter;

use crate::state::{PolicyError, Reloaded, State};

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Starts logging to the standard error. `filter` is a level such as `info`, or directives such as `pumice=debug`.
///
/// # Errors
/// The filter cannot be read, or logging was started before.
pub fn start_logging(filter: &str, format: LogFormat) -> Result<(), LoggingError> {
    let filter = EnvFilter::try_new(filter).map_err(|error| LoggingError::Filter(error.to_string()))?;
    let logger = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    let started = match format {
        LogFormat::Text => logger.try_init(),
        LogFormat::Json => logger.json().try_init(),
    };
    started.map_err(|error| LoggingError::Started(error.to_string()))
}

/// Why logging could not be started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoggingError {
    /// The filter cannot be read.
    #[error("the log filter cannot be read: {0}")]
    Filter(String),
    /// Logging was started before.
    #[error("logging cannot be started: {0}")]
    Started(String),
}

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
struct ReloadLabels {
    outcome: ReloadOutcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PolicyLabel {
    policy: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SourceLabel {
    source: String,
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

/// All instruments.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    calls: Family<CallLabels, Counter>,
    seconds: Family<RpcLabel, Histogram>,
    reloads: Family<ReloadLabels, Counter>,
    policies: Family<PolicyLabel, Gauge<u64, AtomicU64>>,
    synced: Family<SourceLabel, Gauge<u64, AtomicU64>>,
    revision: Gauge<u64, AtomicU64>,
    records: Records,
    sessions: Gauge<u64, AtomicU64>,
}

#[derive(Debug, Default)]
struct Records {
    nodes: Gauge<u64, AtomicU64>,
    queues: Gauge<u64, AtomicU64>,
    jobs: Gauge<u64, AtomicU64>,
    tasks: Gauge<u64, AtomicU64>,
}

/// From 50 µs to 26 s, doubling.
fn seconds() -> Histogram {
    Histogram::new(prometheus_client::metrics::histogram::exponential_buckets(
        50e-6, 2.0, 20,
    ))
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Instruments that read zero.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("pumice");
        let calls = Family::<CallLabels, Counter>::default();
        registry.register("calls", "Calls answered, by RPC and gRPC code", calls.clone());
        let seconds = Family::new_with_constructor(seconds as fn() -> Histogram);
        registry.register_with_unit(
            "call_duration",
            "Time from a call's headers to its answer",
            Unit::Seconds,
            seconds.clone(),
        );
        let reloads = Family::<ReloadLabels, Counter>::default();
        registry.register(
            "policy_reloads",
            "Documents brought, by what became of them",
            reloads.clone(),
        );
        let policies = Family::<PolicyLabel, Gauge<u64, AtomicU64>>::default();
        registry.register("policy_version", "Version in force, by policy", policies.clone());
        let synced = Family::<SourceLabel, Gauge<u64, AtomicU64>>::default();
        registry.register("source_synced", "1 if the source is synced, else 0", synced.clone());
        let revision = Gauge::<u64, AtomicU64>::default();
        registry.register("revision", "Number of the newest revision", revision.clone());
        let sessions = Gauge::<u64, AtomicU64>::default();
        registry.register("sessions", "Open sessions", sessions.clone());
        let records = Records::default();
        registry.register("nodes", "Nodes in the newest state", records.nodes.clone());
        registry.register("queues", "Queues in the newest state", records.queues.clone());
        registry.register("jobs", "Jobs in the newest state", records.jobs.clone());
        registry.register("tasks", "Tasks in the newest state", records.tasks.clone());
        for outcome in [
            ReloadOutcome::accepted,
            ReloadOutcome::unchanged,
            ReloadOutcome::refused,
        ] {
            drop(reloads.get_or_create(&ReloadLabels { outcome }));
        }
        Self {
            registry,
            calls,
            seconds,
            reloads,
            policies,
            synced,
            revision,
            records,
            sessions,
        }
    }

    /// Counts a document that was brought.
    pub fn reloaded(&self, outcome: ReloadOutcome) {
        self.reloads.get_or_create(&ReloadLabels { outcome }).inc();
    }

    fn called(&self, rpc: &'static str, code: &'static str, seconds: f64) {
        self.calls.get_or_create(&CallLabels { rpc, code }).inc();
        self.seconds.get_or_create(&RpcLabel { rpc }).observe(seconds);
    }

    /// All instruments as OpenMetrics text, with the state's figures as they are now.
    ///
    /// # Errors
    /// An instrument cannot be written.
    pub fn encode(&self, state: &State) -> Result<String, fmt::Error> {
        let world = state.world();
        self.revision.set(world.revision.number);
        self.records.nodes.set(world.view.node_count().into());
        self.records.queues.set(count(world.view.queues().len()));
        self.records.jobs.set(count(world.view.jobs().len()));
        self.records.tasks.set(count(world.view.tasks().len()));
        self.sessions.set(count(state.session_count()));
        for (name, policy) in world.policies.iter() {
            let label = PolicyLabel {
                policy: name.to_string(),
            };
            self.policies.get_or_create(&label).set(policy.version);
        }
        for source in state.sources() {
            let label = SourceLabel {
                source: source.position.source.to_string(),
            };
            self.synced.get_or_create(&label).set(source.synced.into());
        }
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

fn count(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// Measures every call that passes.
#[derive(Clone, Debug)]
pub struct MeasureLayer(pub Arc<Metrics>);

impl<S> Layer<S> for MeasureLayer {
    type Service = Measure<S>;

    fn layer(&self, inner: S) -> Measure<S> {
        Measure {
            inner,
            metrics: Arc::clone(&self.0),
        }
    }
}

/// A service whose calls are measured.
#[derive(Clone, Debug)]
pub struct Measure<S> {
    inner: S,
    metrics: Arc<Metrics>,
}

impl<S, B, R> Service<Request<B>> for Measure<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let rpc = rpc_of(request.uri().path());
        let metrics = Arc::clone(&self.metrics);
        let start = Instant::now();
        let call = self.inner.call(request);
        Box::pin(async move {
            let answer = call.await;
            let code = match &answer {
                // A failed call has its code in the headers; another one has none there yet.
                Ok(answer) => {
                    tonic::Status::from_header_map(answer.headers()).map_or(tonic::Code::Ok, |status| status.code())
                }
                Err(_) => tonic::Code::Unknown,
            };
            metrics.called(rpc, word(code), start.elapsed().as_secs_f64());
            answer
        })
    }
}

/// All RPCs that are counted by name; a caller must not be able to invent labels.
const RPCS: &[&str] = &[
    "Filter",
    "Score",
    "Place",
    "Admit",
    "Order",
    "SelectVictims",
    "OpenSession",
    "CloseSession",
    "CommitSession",
    "Apply",
    "Sync",
    "GetNodeTable",
    "GetServerInfo",
    "ListNodes",
    "ListQueues",
    "ListJobs",
    "ListTasks",
    "ListReservations",
    "ReleaseReservation",
    "ReloadPolicy",
    "RollbackPolicy",
    "GetPolicy",
    "ListPolicies",
];

fn rpc_of(path: &str) -> &'static str {
    let own = path.strip_prefix("/pumice.v1.").and_then(|path| path.split_once('/'));
    let known = own.and_then(|(_, rpc)| RPCS.iter().find(|known| **known == rpc));
    known.copied().unwrap_or("other")
}

fn word(code: tonic::Code) -> &'static str {
    use tonic::Code;
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
