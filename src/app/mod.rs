//! Composition root: builds state, services and listeners, and defines the order in which they stop.

mod cluster;
mod durable_store;
mod file_limit;
mod grpc_server;
mod guards;
mod http_front;
mod huge_pages;
mod in_process;
mod listen;
mod memory_release;
mod server_stream;
mod socket_file;
mod timed_connection;

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::service::Routes;
use tower::Layer as _;

use crate::access::AccessKeeper;
use crate::audit::AuditLog;
use crate::config::ServerConfig;
pub use crate::file_looks::FileError;
use crate::server::convert::evaluation_ref::DEFAULT_POLICY;
use crate::server::probe::HealthProbe;
use crate::server::{
    AccessLayer, BUILT_IN_POLICY, ConnectFront, ConnectionTable, ExtenderFront, HangupSignal, LayeredServices,
    MemoryBudget, PolicyFile, ServerContext, ThrottleLayer, console_router, reload_policy,
};
use crate::telemetry::{CallMetricsLayer, Metrics};
use pumice_engine::model::LabelKinds;
use pumice_state::store::Store;
use pumice_state::{PolicyError, PolicyOrigin, SharedState, StateOptions, StateStartError, SystemClock};

use cluster::WatchedCluster;
pub use durable_store::{OpenStoreError, open_etcd, open_kubernetes};
use grpc_server::{GrpcTask, grpc_listener, spawn_grpc};
use http_front::{HttpGuard, serve_http};
pub use in_process::{InProcessError, InProcessServer};

use guards::{
    FileKeepers, WatchedFiles, call_exposure, listener_security, load_tls, open_audit, warn_of_open_addresses,
    warn_of_unknown_callers,
};
use socket_file::SocketFile;

/// Error of a server that did not start, or that stopped.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is in use, or is not an address of this machine.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// Address to listen on.
        address: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
    /// The Unix socket is in use, or its path is.
    #[error("cannot listen on {}: {source}", path.display())]
    Socket {
        /// Path of the socket.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The policy file cannot be read.
    #[error("cannot read the policy file {}: {source}", path.display())]
    PolicyFile {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The policy is rejected.
    #[error("{0}")]
    Policy(PolicyError),
    /// The files of TLS cannot be used.
    #[error("TLS: {0}")]
    Tls(#[source] FileError),
    /// The files of identities cannot be used.
    #[error("identities: {0}")]
    Access(#[source] FileError),
    /// The audit log cannot be opened.
    #[error("cannot open the audit log {}: {source}", path.display())]
    Audit {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The store of durable state cannot be opened.
    #[error("{0}")]
    Store(#[from] OpenStoreError),
    /// The state cannot be started.
    #[error("{0}")]
    State(StateStartError),
    /// The cluster that is to be watched cannot be reached by these credentials.
    #[error("the watched cluster: {0}")]
    Cluster(pumice_live::CredentialError),
    /// The reflection service rejects the descriptors.
    #[error("server reflection: {0}")]
    Reflection(String),
    /// A listener failed.
    #[error("the {what} server failed: {message}")]
    Transport {
        /// Name of the listener.
        what: &'static str,
        /// Error of the listener.
        message: String,
    },
}

/// Server that listens but does not yet reply.
#[derive(Debug)]
pub struct BoundServer {
    config: ServerConfig,
    grpc: TcpListener,
    socket: Option<SocketFile>,
    http: TcpListener,
    grpc_address: SocketAddr,
    http_address: SocketAddr,
    state: Arc<SharedState>,
    metrics: Arc<Metrics>,
    files: WatchedFiles,
}

/// Serves until `shutdown` completes, then drains.
///
/// # Errors
/// The server cannot start, or a listener fails.
pub async fn serve(
    config: ServerConfig,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), ServeError> {
    let (hangup, mut shutdown) = (HangupSignal::new(), Box::pin(shutdown));
    // A credential plugin may take long.
    tokio::select! {
        checked = cluster::check_access(&config) => checked?,
        () = &mut shutdown => return Ok(()),
    }
    bind_checked(config, hangup).await?.run(shutdown).await
}

/// Loads the policy, starts the state and listens.
///
/// # Errors
/// The policy is rejected, or an address cannot be bound.
pub async fn bind(config: ServerConfig) -> Result<BoundServer, ServeError> {
    let hangup = HangupSignal::new();
    cluster::check_access(&config).await?;
    bind_checked(config, hangup).await
}

async fn bind_checked(config: ServerConfig, hangup: HangupSignal) -> Result<BoundServer, ServeError> {
    let epoch = random_epoch();
    let store = durable_store::open_store(&config, epoch)?;
    bind_with(config, store, epoch, hangup).await
}

/// Like [`bind`], with this store instead of the store in `data_dir`.
///
/// # Errors
/// The errors of [`bind`].
pub async fn bind_on(config: ServerConfig, store: Box<dyn Store>) -> Result<BoundServer, ServeError> {
    let hangup = HangupSignal::new();
    cluster::check_access(&config).await?;
    bind_with(config, store, random_epoch(), hangup).await
}

async fn bind_with(
    mut config: ServerConfig,
    store: Box<dyn Store>,
    epoch: u64,
    hangup: HangupSignal,
) -> Result<BoundServer, ServeError> {
    huge_pages::decline();
    file_limit::fit_connections(&mut config.limits.edge);
    warn_of_open_addresses(&config);
    let options = StateOptions {
        limits: config.limits.state.clone(),
        epoch,
        expected_sources: config.awaited_sources(),
        #[cfg(feature = "test-doors")]
        without_checks: config.test_doors.skip_checks,
    };
    // The start reads the store, which may be slow.
    let start = move || SharedState::start_on(options, Arc::new(SystemClock::default()), store);
    let started = pumice_state::tasks::run_blocking(start).await;
    let started = started.map_err(|error| ServeError::State(StateStartError::Thread(io::Error::other(error))))?;
    let state = started.map_err(ServeError::State)?;
    let metrics = Arc::new(Metrics::new());
    let tls = load_tls(&config, &metrics)?;
    let audit = open_audit(&config, &metrics)?;
    let access = AccessKeeper::load(
        config.identities_file.clone(),
        config.limits.edge.tls_poll,
        config.cluster.access(),
        (Arc::clone(&metrics), Arc::clone(&audit)),
    )
    .map_err(ServeError::Access)?;
    warn_of_unknown_callers(&config, &access.keeper);
    let policy_file = load_policy(&config, &state, &metrics, audit).await?;
    let socket = match &config.grpc_socket {
        None => None,
        Some(path) => {
            let bound = SocketFile::bind(path, config.grpc_socket_mode).await;
            let path = path.clone();
            Some(bound.map_err(|source| ServeError::Socket { path, source })?)
        }
    };
    let (grpc, grpc_address) = listen(config.grpc_address).await?;
    let (http, http_address) = listen(config.http_address).await?;
    Ok(BoundServer {
        config,
        grpc,
        socket,
        http,
        grpc_address,
        http_address,
        state,
        metrics,
        files: WatchedFiles {
            policy: policy_file,
            tls,
            access,
            hangup,
        },
    })
}

async fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), ServeError> {
    let bind = async {
        let listener = TcpListener::bind(address).await?;
        let bound = listener.local_addr()?;
        Ok((listener, bound))
    };
    bind.await.map_err(|source| ServeError::Bind { address, source })
}

/// Loads the policy that is in force from the start. Returns the content of the policy file, if it was read.
async fn load_policy(
    config: &ServerConfig,
    state: &Arc<SharedState>,
    metrics: &Metrics,
    audit: Arc<AuditLog>,
) -> Result<Option<(PolicyFile, Arc<str>)>, ServeError> {
    let Some(path) = config.policy_file.clone() else {
        if let Ok(version) = state.policy_version(&DEFAULT_POLICY.into(), 0)
            && version.origin != PolicyOrigin::BuiltIn
        {
            tracing::info!(version = version.in_force.version, origin = %version.origin, "the stored policy is in force");
            return Ok(None);
        }
        let reload = reload_policy(
            BUILT_IN_POLICY.into(),
            config.compatibility,
            PolicyOrigin::BuiltIn,
            state,
            metrics,
        );
        return reload.await.map(|_| None).map_err(ServeError::Policy);
    };
    let most = config.limits.state.policy_bytes;
    let file = PolicyFile::new((path, most), config.policy_poll, config.compatibility, audit);
    let content = file.read().map_err(|source| ServeError::PolicyFile {
        path: file.path().to_owned(),
        source,
    })?;
    if state.file_was_accepted(DEFAULT_POLICY, &content, config.compatibility) {
        tracing::info!("the policy file has not changed since it was accepted; the stored policy is in force");
        return Ok(Some((file, content)));
    }
    file.reload(Arc::clone(&content), false, state, metrics)
        .await
        .map_err(ServeError::Policy)?;
    Ok(Some((file, content)))
}

/// Time that the store has to end what it is writing when the server stops.
const STORE_STOP_TIME: Duration = Duration::from_secs(5);

/// Time that the audit log has to write what waits when the server stops.
const AUDIT_STOP_TIME: Duration = Duration::from_secs(1);

/// Number that no other start of the process is likely to have.
fn random_epoch() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

impl BoundServer {
    /// Address of the gRPC services.
    pub fn grpc_address(&self) -> SocketAddr {
        self.grpc_address
    }

    /// Address of probes and metrics.
    pub fn http_address(&self) -> SocketAddr {
        self.http_address
    }

    /// State behind the services.
    pub fn state(&self) -> &Arc<SharedState> {
        &self.state
    }

    /// Serves until `shutdown` completes, then drains: reports `NOT_SERVING`, rejects new connections, lets calls in
    /// progress finish, and cancels remaining calls at the deadline. For example, with the default `drain_deadline_ms`
    /// calls have 10 seconds.
    ///
    /// # Errors
    /// A listener fails.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send + 'static) -> Result<(), ServeError> {
        let Self {
            config,
            grpc,
            socket,
            http,
            grpc_address,
            http_address,
            state,
            metrics,
            files,
        } = self;
        let (drain, draining) = watch::channel(false);
        let (stop, stopping) = watch::channel(false);
        let edge = server_context(&config, &state, &metrics, draining.clone());
        let watched = WatchedCluster::start(&config, &edge, &metrics);
        let keepers = files.keepers();
        let (_, keeper, identities) = keepers.clone();
        let audit = Arc::clone(identities.audit());
        let probe = health_probe(&config, &edge, (&state, &metrics, &watched), keepers, draining.clone());
        let stopped_state = Arc::clone(&state);
        let table = ConnectionTable::new(config.limits.edge.connections, Arc::clone(&metrics));
        let memory = MemoryBudget::new(&config.limits.edge, &table);
        let throttle = ThrottleLayer::new(&config.limits.edge, &memory, edge.workers());
        let memory_release_task = spawn_watchers(&config, &table, &throttle, Arc::clone(&state));
        let (grpc_security, http_security) = listener_security(&config, keeper, &metrics);
        files.watch(state, &metrics, &draining);
        let incoming = grpc_listener(&config, (grpc, socket), grpc_security, Arc::clone(&table));
        let measured = CallMetricsLayer::new(&metrics, config.otlp_endpoint.is_some());
        let access = AccessLayer {
            keeper: Arc::clone(&identities),
        };
        let layers = (measured, access, throttle);
        let services = LayeredServices::new(layers.layer(edge.services().layer(Routes::default())));
        let mut grpc = spawn_grpc(&config, incoming, &edge, layers, probe.clone(), stopping).await?;
        let (quit, quitting) = watch::channel(false);
        let edge_limits = config.limits.edge.clone();
        let guarded = HttpGuard {
            metrics,
            security: http_security,
            identities,
            table,
            serves_calls: config.http_json,
        };
        let pages = http_pages(probe, edge, &memory, &config).merge(call_pages(&config, services));
        let mut http =
            pumice_state::tasks::spawn(async move { serve_http(http, pages, &edge_limits, guarded, quitting).await });
        tracing::info!(grpc = %grpc_address, http = %http_address, "serving");
        tokio::select! {
            () = shutdown => {}
            ended = &mut grpc => return Err(transport_error("gRPC", ended.map(|ended| ended.map_err(|error| error.to_string())))),
            ended = &mut http => return Err(transport_error("HTTP", ended.map(|ended| ended.map_err(|error| error.to_string())))),
        }
        drain_servers(&config, (drain, stop, quit), grpc, http).await;
        memory_release_task.abort();
        await_store_end(&stopped_state).await;
        audit.stop(AUDIT_STOP_TIME).await;
        tracing::info!("stopped");
        Ok(())
    }
}

fn server_context(
    config: &ServerConfig,
    state: &Arc<SharedState>,
    metrics: &Arc<Metrics>,
    draining: watch::Receiver<bool>,
) -> Arc<ServerContext> {
    let (state, metrics) = (Arc::clone(state), Arc::clone(metrics));
    let limits = config.limits.edge.clone();
    ServerContext::new(state, metrics, limits, draining, random_epoch(), LabelKinds::default())
}

/// Ends both servers in order: health first, then the gRPC services, then probes and metrics.
async fn drain_servers(
    config: &ServerConfig,
    (drain, stop, quit): (watch::Sender<bool>, watch::Sender<bool>, watch::Sender<bool>),
    grpc: GrpcTask,
    http: JoinHandle<io::Result<()>>,
) {
    tracing::info!("draining");
    drain.send_replace(true);
    tokio::time::sleep(config.drain_delay).await;
    stop.send_replace(true);
    await_server_end("gRPC", grpc, config.drain_deadline).await;
    quit.send_replace(true);
    await_server_end("HTTP", http, config.drain_deadline).await;
}

async fn await_store_end(state: &SharedState) {
    if tokio::time::timeout(STORE_STOP_TIME, state.stop()).await.is_err() {
        tracing::warn!("the store does not answer; what it was told to write may be on disk or not");
    }
}

/// Starts the tasks that close stalled and old connections and release freed memory. Returns the latter.
fn spawn_watchers(
    config: &ServerConfig,
    table: &Arc<ConnectionTable>,
    throttle: &ThrottleLayer,
    state: Arc<SharedState>,
) -> JoinHandle<()> {
    let stalled = config.limits.edge.stalled;
    pumice_state::tasks::spawn(ConnectionTable::close_stalled(Arc::downgrade(table), stalled));
    if !config.max_connection_age.is_zero() {
        let grace = config.limits.edge.connection_age_grace;
        let age = config.max_connection_age.saturating_add(grace);
        pumice_state::tasks::spawn(ConnectionTable::close_old(Arc::downgrade(table), age));
    }
    let calls = throttle.clone();
    pumice_state::tasks::spawn(memory_release::release_freed_memory(state, move || calls.freed_bytes()))
}

fn health_probe(
    config: &ServerConfig,
    edge: &ServerContext,
    (state, metrics, watched): (&Arc<SharedState>, &Arc<Metrics>, &WatchedCluster),
    (policy_file, tls, identities): FileKeepers,
    draining: watch::Receiver<bool>,
) -> HealthProbe {
    HealthProbe {
        state: Arc::clone(state),
        metrics: Arc::clone(metrics),
        workers: Arc::clone(edge.workers()),
        policy_file,
        tls,
        identities,
        expected_sources: config.awaited_sources(),
        cluster: watched.condition().cloned(),
        expected_policies: config.expected_policies.clone(),
        expected_documents: config.expected_documents.clone(),
        draining,
    }
}

/// Pages of the HTTP port: probes, metrics and the extender protocols.
fn http_pages(
    probe: HealthProbe,
    edge: Arc<ServerContext>,
    memory: &Arc<MemoryBudget>,
    config: &ServerConfig,
) -> axum::Router {
    let front = ExtenderFront::new(edge, memory, cluster::pod_binder(config));
    probe.router().merge(front.router())
}

/// Pages of the HTTP port for callers who send JSON: calls, and the console.
fn call_pages(config: &ServerConfig, services: LayeredServices) -> axum::Router {
    if !config.http_json {
        return axum::Router::new();
    }
    let exposure = call_exposure(config);
    ConnectFront::new(services, exposure)
        .router()
        .merge(console_router(exposure))
}

fn transport_error(what: &'static str, ended: Result<Result<(), String>, tokio::task::JoinError>) -> ServeError {
    let message = match ended {
        Ok(Ok(())) => "it ended by itself".to_owned(),
        Ok(Err(message)) => message,
        Err(error) => error.to_string(),
    };
    ServeError::Transport { what, message }
}

/// Waits for a server to end, but not beyond the deadline.
async fn await_server_end<E: std::fmt::Display>(
    what: &'static str,
    mut task: JoinHandle<Result<(), E>>,
    deadline: Duration,
) {
    match tokio::time::timeout(deadline, &mut task).await {
        Ok(Ok(Ok(()))) => {}
        Ok(Ok(Err(error))) => tracing::warn!(what, %error, "stopped with an error"),
        Ok(Err(error)) => tracing::warn!(what, %error, "stopped with an error"),
        Err(_) => {
            tracing::warn!(what, "calls under way were cut at the deadline");
            task.abort();
        }
    }
}
