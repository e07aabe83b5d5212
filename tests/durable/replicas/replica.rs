//! Servers on one store that they share, as processes, each behind a proxy that can be cut.

#![expect(clippy::disallowed_methods, reason = "times are waited for")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pumice::server::pb;
use tokio::runtime::Runtime;
use tonic::transport::Endpoint;

use super::etcd::CuttableProxy;
use super::jumping_clock::JumpingClock;
use super::shared_store::SharedService;
use crate::support::ledger::limited;
use crate::support::process::ServeProcess;
use crate::support::records::{full_sync, node};
use crate::support::server::page;
use crate::support::wire::BlockingClients;

/// Cores that the queue `q` may hold.
pub(super) const CORES: u32 = 10;

/// Policy of all servers.
pub(super) const POLICY: &str = "actions: enqueue, allocate\ntiers:\n- plugins:\n  - name: capacity-card\n";

/// Server of several on one store, which lives by a clock of its own.
pub(super) struct Replica {
    pub(super) process: Option<ServeProcess>,
    pub(super) proxies: Vec<CuttableProxy>,
    pub(super) clock: JumpingClock,
    arguments: Vec<String>,
}

impl Replica {
    /// Starts a server.
    pub(super) fn start(store: &SharedService) -> Self {
        Self::start_with(store, &[])
    }

    /// Starts a server that clients find at this address.
    pub(super) fn start_advertised(store: &SharedService, address: &str) -> Self {
        Self::start_with(store, &["--advertised-address", address])
    }

    fn start_with(store: &SharedService, more: &[&str]) -> Self {
        let proxies = store.proxies();
        let mut arguments = store.arguments(&proxies);
        arguments.extend(more.iter().map(ToString::to_string));
        let mut own = Self {
            process: None,
            proxies,
            clock: JumpingClock::new(),
            arguments,
        };
        own.restart();
        own
    }

    /// Starts the server again. Without its store it ends, and is started once more, as a supervisor does.
    pub(super) fn restart(&mut self) {
        let start = || match self.start_process() {
            Ok(process) => Some(process),
            Err(said) => {
                let said = format!("{said:?}");
                assert!(
                    said.contains("cannot be reached") || said.contains("the API server fails"),
                    "{said}"
                );
                None
            }
        };
        self.process = Some(until("the server starts", 60, start));
    }

    /// Starts the program; one that ends before it serves is an error, which has its log lines.
    pub(super) fn start_process(&self) -> Result<ServeProcess, Vec<serde_json::Value>> {
        let arguments: Vec<&str> = self.arguments.iter().map(|argument| &**argument).collect();
        ServeProcess::try_start_in(&arguments, &self.clock.environment())
    }

    pub(super) fn grpc(&self) -> SocketAddr {
        self.process.as_ref().unwrap().grpc
    }

    /// Carries no packets between the server and the store.
    pub(super) fn cut(&self) {
        self.proxies.iter().for_each(CuttableProxy::cut);
    }

    /// Carries no packets from the store to the server.
    pub(super) fn cut_replies(&self) {
        self.proxies.iter().for_each(CuttableProxy::cut_replies);
    }

    pub(super) fn mend(&self) {
        self.proxies.iter().for_each(CuttableProxy::mend);
    }

    /// Status and text of a page of its HTTP port.
    pub(super) fn page(&self, path: &str) -> (u16, String) {
        page(self.process.as_ref().unwrap().http, path)
    }
}

/// The cluster that all servers see: one node, and the queue.
pub(super) fn cluster() -> pb::Cluster {
    pb::Cluster {
        nodes: vec![node("n", &[("cpu", "100"), ("pods", "110")])],
        queues: vec![limited("q", CORES)],
        ..Default::default()
    }
}

/// Sends the cluster to a server.
pub(super) fn feed(wire: &BlockingClients, sequence: u64) {
    wire.apply_batch(full_sync("kube", sequence, cluster())).unwrap();
}

/// Puts the policy of all servers in force. One that has it already says so.
pub(super) fn push_policy(wire: &BlockingClients) {
    let reload = pb::ReloadPolicyRequest {
        document: POLICY.to_owned(),
        ..Default::default()
    };
    wire.reload_policy(reload).unwrap();
}

/// Client whose calls end after this time.
pub(super) fn connect(runtime: &Arc<Runtime>, address: SocketAddr, timeout: Duration) -> Option<BlockingClients> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let endpoint = endpoint.connect_timeout(timeout).timeout(timeout);
    let channel = runtime.block_on(endpoint.connect()).ok()?;
    Some(BlockingClients::over(Arc::clone(runtime), channel))
}

/// Cores that each job is promised, by the ledger of a server.
pub(super) fn promised(wire: &BlockingClients) -> Vec<(String, String)> {
    let all = pb::ListReservationsRequest::default();
    let rows = wire.list_reservations(all).unwrap().reservations;
    let cores = |row: &pb::Reservation| format!("{:?}", row.reserved);
    let mut rows: Vec<(String, String)> = rows.iter().map(|row| (row.job.clone(), cores(row))).collect();
    rows.sort();
    rows
}

/// Tries until it succeeds.
pub(super) fn until<T>(what: &str, seconds: u64, mut attempt: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(seconds);
    loop {
        if let Some(done) = attempt() {
            return done;
        }
        assert!(Instant::now() < end, "{what}: not within {seconds} s");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(super) fn runtime() -> Arc<Runtime> {
    let built = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    Arc::new(built.unwrap())
}
