//! Limit of open files: raised at the start as far as the system allows, and the number of connections bounded by it.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::limits::EdgeLimits;

/// File descriptors for uses other than open connections: listeners, logs, the store, the runtime, and connections that
/// are being closed.
const OTHER_FILES: usize = 128;
/// Least number of connections, however few files there are.
const LEAST_CONNECTIONS: usize = 8;

/// Raises the limit of open files if the connections need more, and lowers the number of connections if it cannot be
/// raised far enough.
pub(super) fn fit_connections(limits: &mut EdgeLimits) {
    let other = limits
        .http_connections
        .saturating_add(limits.scrapes)
        .saturating_add(OTHER_FILES);
    let wanted = limits.connections.saturating_add(other);
    let files = raise_files(wanted);
    if files >= wanted {
        return;
    }
    let connections = files.saturating_sub(other).max(LEAST_CONNECTIONS);
    tracing::warn!(
        open_files = files,
        needed = wanted,
        connections,
        "the limit of open files allows fewer connections than the setting `connections`; raise it (`ulimit -n`)"
    );
    limits.connections = limits.connections.min(connections);
}

/// Number of files that can be open, at least `wanted` if the system allows.
fn raise_files(wanted: usize) -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = u64::try_from(wanted).unwrap_or(u64::MAX);
    let Some(now) = current.filter(|now| *now < wanted) else {
        return usize::try_from(current.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
    };
    let raised = maximum.map_or(wanted, |most| wanted.min(most));
    let limit = Rlimit {
        current: Some(raised),
        maximum,
    };
    let files = if setrlimit(Resource::Nofile, limit).is_ok() {
        raised
    } else {
        now
    };
    usize::try_from(files).unwrap_or(usize::MAX)
}
