//! Complete server in this process, on free ports of the loopback address.

use std::net::SocketAddr;
use std::sync::Arc;

use pumice::app;
use pumice::config::ServerConfig;
use pumice_state::SharedState;
use pumice_state::store::Store;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use super::fetch;
use super::wire::BlockingClients;

/// Server in this process. It drains when it is dropped.
pub struct EmbeddedServer {
    /// Client of the server.
    pub wire: BlockingClients,
    /// Address of gRPC.
    pub grpc: SocketAddr,
    /// Address of probes and metrics.
    pub http: SocketAddr,
    /// The state behind the services.
    pub state: Arc<SharedState>,
    runtime: Arc<Runtime>,
    stop: Option<oneshot::Sender<()>>,
    ended: Option<tokio::task::JoinHandle<Result<(), app::ServeError>>>,
}

impl EmbeddedServer {
    /// Server with the embedded defaults.
    pub fn start() -> Self {
        Self::with(ServerConfig::on_free_ports())
    }

    /// Server with these settings.
    pub fn with(config: ServerConfig) -> Self {
        Self::started_by(app::bind(config))
    }

    /// Server over a store of its own.
    pub fn on_store(config: ServerConfig, store: Box<dyn Store>) -> Self {
        Self::started_by(app::bind_on(config, store))
    }

    fn started_by(bind: impl Future<Output = Result<app::BoundServer, app::ServeError>>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build();
        let runtime = Arc::new(runtime.unwrap());
        let bound = runtime.block_on(bind).unwrap();
        let (grpc, http) = (bound.grpc_address(), bound.http_address());
        let state = Arc::clone(bound.state());
        let (stop, stopped) = oneshot::channel::<()>();
        let ended = runtime.spawn(bound.run(async {
            // A dropped sender stops the server as well.
            let _: Result<(), _> = stopped.await;
        }));
        let wire = BlockingClients::connect(Arc::clone(&runtime), grpc);
        Self {
            wire,
            grpc,
            http,
            state,
            runtime,
            stop: Some(stop),
            ended: Some(ended),
        }
    }

    /// Another connection.
    pub fn connect(&self) -> BlockingClients {
        BlockingClients::connect(Arc::clone(&self.runtime), self.grpc)
    }

    /// Status and body of a page of the HTTP port.
    pub fn page(&self, path: &str) -> (u16, String) {
        page(self.http, path)
    }
}

impl Drop for EmbeddedServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(ended) = self.ended.take() {
            let ended = self.runtime.block_on(ended);
            if !std::thread::panicking() {
                ended.unwrap().unwrap();
            }
        }
    }
}

/// Status and body of a page.
pub fn page(address: SocketAddr, path: &str) -> (u16, String) {
    let (head, body) = fetch(address, path);
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body)
}
