//! Services in this process, for commands that evaluate files. The program provides them.

use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::CommandError;
use pumice_engine::Snapshot;
use pumice_engine::model::ClusterState;
use pumice_engine::policy::Compatibility;
use pumice_protocol::ClientConnection;
use pumice_protocol::v1 as pb;

/// Future of services that start.
pub type StartingServer = Pin<Box<dyn Future<Output = Result<LocalServer, CommandError>> + Send>>;

/// Future of a server that begins to listen.
pub type ListeningServer = Pin<Box<dyn Future<Output = Result<ServedServer, CommandError>> + Send>>;

/// Server of this process on a port of the loopback address; it ends when this is dropped.
pub struct ServedServer {
    /// Address of its services.
    pub address: String,
    _alive: Box<dyn Send + Sync>,
}

impl ServedServer {
    /// Server at an address that ends when `alive` is dropped.
    pub fn new(address: String, alive: impl Send + Sync + 'static) -> Self {
        Self {
            address,
            _alive: Box::new(alive),
        }
    }
}

impl fmt::Debug for ServedServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServedServer")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// Services of the program in this process, for commands that evaluate files. For example, `pumice policy test` uses
/// them. Commands do not depend on the implementation of decisions.
pub trait LocalServices: fmt::Debug + Sync {
    /// Starts services over an empty state, under the built-in policy and without a socket.
    fn start(&self) -> StartingServer;

    /// Starts a whole server on a free port of the loopback address, with its durable state in a folder, or else in memory.
    fn serve(&self, data_dir: Option<PathBuf>) -> ListeningServer;

    /// Cluster as the services read it for a policy with this compatibility. `None` if they reject one of its records.
    fn read_cluster(&self, cluster: pb::Cluster, compatibility: Compatibility) -> Option<ClusterState>;

    /// Time since 1970, which the queries of a command may be told: decisions get the time as data.
    fn time(&self) -> Duration;

    /// Document of the policy that is active by default.
    fn built_in_policy(&self) -> &'static str;
}

/// Services in this process; they end when it is dropped.
pub struct LocalServer {
    /// Connection to the services.
    pub connection: ClientConnection,
    /// Newest snapshot of their state.
    newest: Box<dyn Fn() -> Arc<Snapshot> + Send + Sync>,
}

impl LocalServer {
    /// Services behind a connection, and a way to their newest snapshot, which keeps them alive.
    pub fn new(connection: ClientConnection, newest: impl Fn() -> Arc<Snapshot> + Send + Sync + 'static) -> Self {
        LocalServer {
            connection,
            newest: Box::new(newest),
        }
    }

    /// Newest snapshot of their state.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        (self.newest)()
    }
}

impl fmt::Debug for LocalServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalServer")
            .field("connection", &self.connection)
            .finish_non_exhaustive()
    }
}
