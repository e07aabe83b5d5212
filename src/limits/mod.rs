//! Limits by name. Settings, errors and `GetServerInfo` all read the tables that `declare_limits!` declares.

mod edge_limits;
mod grpc_timeout;

use pumice_state::{LimitDef, STATE_LIMITS, StateLimits};

pub use edge_limits::{DECODED_BYTES, EDGE_LIMITS, EdgeLimits};
pub(crate) use grpc_timeout::grpc_timeout;

/// Maximum cost of a node with one more task, relative to the cost of an unchanged node. It applies if columns cannot
/// represent the sums and the node's entry must be copied and changed. Otherwise the cost is a third.
const COST_AHEAD: usize = 25;

/// Cost of a task-node pair with this number of further tasks to look ahead by, in pairs without any.
pub(crate) fn weight_ahead(ahead: usize) -> usize {
    ahead.saturating_mul(COST_AHEAD).saturating_add(1)
}

/// All limits of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerLimits {
    /// Limits of the shared state, such as `records`.
    pub state: StateLimits,
    /// Limits of connections, requests and responses, such as `calls`.
    pub edge: EdgeLimits,
}

/// One limit of a server.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// Limit that the state checks.
    State(&'static LimitDef<StateLimits>),
    /// Limit that the front of the server checks.
    Edge(&'static LimitDef<EdgeLimits>),
}

impl Limit {
    /// Name in settings, errors and `GetServerInfo`; it ends with the unit.
    pub fn name(self) -> &'static str {
        match self {
            Self::State(row) => row.name,
            Self::Edge(row) => row.name,
        }
    }

    /// Help text: the quantity that the limit bounds.
    pub fn help(self) -> &'static str {
        match self {
            Self::State(row) => row.help,
            Self::Edge(row) => row.help,
        }
    }

    /// Smallest and largest value of its setting; `None`: the limit is fixed.
    pub fn range(self) -> Option<(u64, u64)> {
        match self {
            Self::State(row) => row.range,
            Self::Edge(row) => row.range,
        }
    }

    /// Value among the limits of a server.
    pub fn get(self, limits: &ServerLimits) -> u64 {
        match self {
            Self::State(row) => (row.get)(&limits.state),
            Self::Edge(row) => (row.get)(&limits.edge),
        }
    }

    /// Changes the limit.
    pub fn set(self, limits: &mut ServerLimits, value: u64) {
        match self {
            Self::State(row) => (row.set)(&mut limits.state, value),
            Self::Edge(row) => (row.set)(&mut limits.edge, value),
        }
    }
}

/// All limits.
pub fn limits() -> impl Iterator<Item = Limit> {
    let state = STATE_LIMITS.iter().map(Limit::State);
    state.chain(EDGE_LIMITS.iter().map(Limit::Edge))
}

/// The limit of a name, as the list has it: a word that metrics may use as a label.
pub fn limit_name(name: &str) -> Option<&'static str> {
    limits().map(Limit::name).find(|known| *known == name)
}
