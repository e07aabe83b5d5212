//! References to the state and policy that evaluate a request: shared state, a step of a session, or an inline cluster
//! and policy.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use super::reader::check_name;
use super::wire::Wire;
use crate::limits::EdgeLimits;
use crate::server::pb;
use crate::server::status::{CallError, RpcResult, check_limit};
use pumice_engine::cycle::{SessionChange, TaskPlacement};
use pumice_engine::model::{ErrorCode, Problem};
use pumice_engine::plugin::DecisionTime;
use pumice_engine::{Revision, SourcePosition};

/// Name of the policy if the request gives none.
pub const DEFAULT_POLICY: &str = "default";

/// Most seconds between a time zone and UTC.
const MAX_UTC_OFFSET: u32 = 86_400;

/// Reference to the state and policy that evaluate a request, as it was read.
#[derive(Clone, Debug)]
pub struct EvaluationRef {
    /// State and policy.
    pub target: RefTarget,
    /// Node table that the request's slots refer to.
    pub node_table: Option<pb::NodeTableVersion>,
    /// Time of the decision; `None`: the request gives none.
    pub now: Option<DecisionTime>,
}

/// State and policy that evaluate a request.
#[derive(Clone, Debug)]
pub enum RefTarget {
    /// Shared state at its newest, or at least at some revision.
    Latest(LatestRef),
    /// Step of a session.
    Session(SessionRef),
    /// Cluster and policy in the request.
    Inline(Box<pb::InlineSnapshot>),
}

/// Reference to shared state and an active policy.
#[derive(Clone, Debug)]
pub struct LatestRef {
    /// Name of the policy.
    pub policy: Arc<str>,
    /// Profile of the policy; empty: the only one.
    pub profile: Arc<str>,
    /// Revision that must be visible first.
    pub at_least: Option<Revision>,
    /// Source positions that must be visible first.
    pub positions: Vec<SourcePosition>,
    /// Longest wait.
    pub max_wait: Duration,
}

/// Reference to a step of a session.
#[derive(Clone, Debug)]
pub struct SessionRef {
    /// Name of the session.
    pub session: String,
    /// Number of changes before these.
    pub after: u64,
    /// Changes to apply first.
    pub changes: Vec<SessionChange>,
}

/// Reads a reference.
///
/// # Errors
/// The reference is contradictory, or requests something that this server does not have.
pub fn read_ref(against: Option<pb::EvaluationRef>, limits: &EdgeLimits) -> RpcResult<EvaluationRef> {
    use pb::evaluation_ref::Target;
    let pb::EvaluationRef {
        target,
        node_table,
        now,
        utc_offset_seconds,
    } = against.unwrap_or_default();
    if utc_offset_seconds.unsigned_abs() > MAX_UTC_OFFSET {
        let message = format!(
            "against.utc_offset_seconds: {utc_offset_seconds} is more than a day; no time zone is so far from UTC"
        );
        return Err(CallError::new(ErrorCode::TimeInvalid, message));
    }
    let target = match target {
        None => RefTarget::Latest(read_latest(pb::LatestRef::default(), limits)?),
        Some(Target::Latest(latest)) => RefTarget::Latest(read_latest(latest, limits)?),
        Some(Target::Session(step)) => RefTarget::Session(read_session("against.session", step, limits)?),
        Some(Target::Inline(inline)) => RefTarget::Inline(inline),
    };
    Ok(EvaluationRef {
        target,
        node_table,
        now: now.map(|now| DecisionTime {
            seconds: now.seconds,
            utc_offset: utc_offset_seconds,
        }),
    })
}

fn read_latest(snapshot: pb::LatestRef, limits: &EdgeLimits) -> RpcResult<LatestRef> {
    let pb::LatestRef {
        policy,
        profile,
        at_least,
        positions,
        max_wait,
    } = snapshot;
    let count = positions.len();
    let message = || format!("against.latest.positions: {count} of them");
    check_limit(count, "positions", limits.positions, message)?;
    Ok(LatestRef {
        policy: policy_name_or_default(policy),
        profile: Wire::read(profile),
        at_least: Wire::read(at_least),
        positions: Wire::read(positions),
        max_wait: read_duration("against.latest.max_wait", max_wait)?.unwrap_or_default(),
    })
}

/// The default name, for requests that give none.
static DEFAULT_NAME: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from(DEFAULT_POLICY));

/// Policy name of a request; empty: the default.
pub fn policy_name_or_default(name: String) -> Arc<str> {
    if name.is_empty() {
        Arc::clone(&DEFAULT_NAME)
    } else {
        name.into()
    }
}

/// Reads a step of a session in the named field.
///
/// # Errors
/// A change is empty, or has too much in it.
pub fn read_session(field: &str, step: pb::SessionRef, limits: &EdgeLimits) -> RpcResult<SessionRef> {
    let pb::SessionRef {
        id: session,
        after,
        changes,
    } = step;
    let changes = read_changes(changes, &format!("{field}.changes"), limits)?;
    Ok(SessionRef {
        session,
        after,
        changes,
    })
}

/// Reads a list of changes with this name.
///
/// # Errors
/// A change cannot be read.
pub fn read_changes(
    changes: Vec<pb::SessionChange>,
    list: &str,
    limits: &EdgeLimits,
) -> Result<Vec<SessionChange>, Problem> {
    let read = |(i, pb::SessionChange { change }): (usize, pb::SessionChange)| {
        let place = format!("{list}[{i}]");
        let unknown = || Problem::new(ErrorCode::ChangeUnknown, &*place, "this server knows no such change");
        let name = |text: String| {
            check_name(&place, &text, limits)?;
            Ok(Wire::read(text))
        };
        read_change(change.ok_or_else(unknown)?, name)
    };
    changes.into_iter().enumerate().map(read).collect()
}

/// Reads a change; `name` reads each of its names.
fn read_change(
    change: pb::session_change::Change,
    name: impl Fn(String) -> Result<Arc<str>, Problem>,
) -> Result<SessionChange, Problem> {
    use pb::session_change::Change;
    let placement = |at: pb::TaskPlacement| {
        let pb::TaskPlacement {
            task,
            node,
            card,
            devices,
        } = at;
        Ok(TaskPlacement {
            task: name(task)?,
            node: name(node)?,
            card: name(card)?,
            devices: Wire::read(devices),
        })
    };
    Ok(match change {
        Change::Allocate(at) => SessionChange::Allocate(placement(at)?),
        Change::Pipeline(at) => SessionChange::Pipeline(placement(at)?),
        Change::Evict(task) => SessionChange::Evict(name(task)?),
        Change::Unallocate(task) => SessionChange::Unallocate(name(task)?),
        Change::Unpipeline(task) => SessionChange::Unpipeline(name(task)?),
        Change::Unevict(task) => SessionChange::Unevict(name(task)?),
        Change::BindFailed(task) => SessionChange::BindFailed(name(task)?),
        Change::JobEnqueued(job) => SessionChange::JobEnqueued(name(job)?),
        Change::Savepoint(savepoint) => SessionChange::Savepoint(name(savepoint)?),
        Change::RollbackTo(savepoint) => SessionChange::RollbackTo(name(savepoint)?),
    })
}

/// Reads a duration.
///
/// # Errors
/// The duration is negative.
pub fn read_duration(field: &str, duration: Option<prost_types::Duration>) -> RpcResult<Option<Duration>> {
    let Some(prost_types::Duration { seconds, nanos }) = duration.as_ref().map(prost_types::Duration::normalized)
    else {
        return Ok(None);
    };
    match (u64::try_from(seconds), u32::try_from(nanos)) {
        (Ok(seconds), Ok(nanos)) => Ok(Some(Duration::new(seconds, nanos))),
        _ => Err(CallError::new(
            ErrorCode::DurationInvalid,
            format!("{field}: must not be negative"),
        )),
    }
}
