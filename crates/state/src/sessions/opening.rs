//! Opening a session: request and result.

use std::sync::Arc;
use std::time::Duration;

use crate::connection_share::ConnectionShare;
use crate::intake::batch::Batch;
use crate::intake::batch_outcome::BatchOutcome;
use pumice_engine::model::ClusterState;
use pumice_engine::{PolicyInForce, Revision};

/// Base of a session: the state and the policy that it is pinned to.
#[derive(Clone, Debug)]
pub enum SessionBase {
    /// Latest state, under an active policy.
    Latest {
        /// Name of the policy.
        policy: Arc<str>,
        /// Profile of the policy; empty: the only one.
        profile: Arc<str>,
    },
    /// Cluster and policy of its own.
    Inline {
        /// State of an inline cluster.
        cluster_state: Box<ClusterState>,
        /// Compiled policy.
        policy: Arc<PolicyInForce>,
    },
}

/// Request to open a session.
#[derive(Debug)]
pub struct OpenSession {
    /// State and policy to pin, after `batch` is applied.
    pub base: SessionBase,
    /// Changes of the scheduler's own source since its last batch.
    pub batch: Option<Batch>,
    /// Silence after which the session ends; `None`: the default of the limits.
    pub lease: Option<Duration>,
    /// Connection of the request. `None`: a call within the process.
    pub connection: Option<ConnectionShare>,
}

/// Session that was opened.
#[derive(Clone, Debug)]
pub struct OpenedSession {
    /// Name that every later call on the session gives.
    pub session: Arc<str>,
    /// Revision of the state that it is pinned to.
    pub revision: Revision,
    /// Policy that it is pinned to.
    pub policy: Arc<PolicyInForce>,
    /// Outcome of the batch in the request. `None`: the request had no batch.
    pub batch_outcome: Option<BatchOutcome>,
    /// Granted lease.
    pub lease: Duration,
    /// Age at which the session ends, even with requests.
    pub max_age: Duration,
}
