//! Limits by name: each with its bounds, its default, and its purpose. Settings, errors and `GetServerInfo` all read
//! this list.

mod edge_limits;
mod grpc_timeout;
mod limit_list;

use pumice_state::StateLimits;

pub use edge_limits::EdgeLimits;
pub(crate) use grpc_timeout::{grpc_timeout, parse_grpc_timeout};
pub use limit_list::LIMITS;

/// Maximum bytes that the parts of one decoded request may take, without texts.
pub const DECODED_BYTES: u64 = 256 << 20;

/// Maximum number of calls that wait for the disk, each on a thread of its own.
pub(crate) const MAX_DISK_WAITS: usize = 64;

/// Maximum number of further tasks by which Score looks ahead.
pub(crate) const MAX_AHEAD: usize = 32;

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

/// Definition of one limit.
#[derive(Clone, Copy, Debug)]
pub struct LimitDef {
    /// Name in settings, errors and `GetServerInfo`; it ends with the unit.
    pub name: &'static str,
    /// Help text: the quantity that the limit bounds.
    pub help: &'static str,
    /// Values of its setting; `None`: the limit is fixed, and only tests change it.
    pub range: Option<LimitRange>,
    /// Reads the limit.
    pub get: fn(&ServerLimits) -> u64,
    /// Changes the limit.
    pub set: fn(&mut ServerLimits, u64),
}

/// Values that a setting accepts.
#[derive(Clone, Copy, Debug)]
pub struct LimitRange {
    /// Smallest value.
    pub least: u64,
    /// Largest value.
    pub most: u64,
}

/// Limits that are constants.
pub static FIXED_LIMITS: &[(&str, u64)] = &[
    ("ahead", MAX_AHEAD as u64),
    ("decoded_bytes", DECODED_BYTES),
    ("disk_waits", MAX_DISK_WAITS as u64),
];

/// Names of all limits.
pub fn limit_names() -> impl Iterator<Item = &'static str> {
    let fixed = FIXED_LIMITS.iter().map(|(name, _)| *name);
    LIMITS.iter().map(|row| row.name).chain(fixed)
}

/// The limit of a name, as the list has it: a word that metrics may use as a label.
pub fn limit_name(name: &str) -> Option<&'static str> {
    limit_names().find(|known| *known == name)
}
