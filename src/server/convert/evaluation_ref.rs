//! References to the state and policy that evaluate a request: shared state, a step of a session, or an inline cluster
//! and policy.

use std::sync::Arc;
use std::time::Duration;

use super::constraints::device_mask;
use crate::limits::EdgeLimits;
use crate::server::pb;
use crate::server::status::CallError;
use pumice_engine::cycle::{SessionChange, TaskPlacement};
use pumice_engine::{Revision, SourcePosition};

/// Name of the policy if the request gives none.
pub const DEFAULT_POLICY: &str = "default";

/// Reference to the state and policy that evaluate a request.
#[derive(Clone, Debug)]
pub enum EvaluationRef {
    /// Shared state at its newest, or at least at some revision.
    Latest(LatestRef),
    /// Step of a session.
    Session(SessionRef),
    /// Cluster and policy in the request.
    Inline(Box<InlineRef>),
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

/// Cluster and policy in the request.
#[derive(Clone, Debug)]
pub struct InlineRef {
    /// Complete cluster.
    pub cluster: pb::Cluster,
    /// Policy document; empty: the built-in one.
    pub document: String,
    /// Profile of the policy; empty: the only one.
    pub profile: String,
    /// Compatibility if the document does not set it.
    pub compatibility: String,
}

/// Reads a reference, and the node table that the request's slots refer to.
///
/// # Errors
/// The reference is contradictory, or requests something that this server does not have.
pub fn read_ref(
    evaluation_ref: Option<pb::EvaluationRef>,
    limits: &EdgeLimits,
) -> Result<(EvaluationRef, Option<pb::NodeTableVersion>), CallError> {
    let pb::EvaluationRef {
        target: evaluation_ref,
        node_table,
        now: _,
    } = evaluation_ref.unwrap_or_default();
    let evaluation_ref = match evaluation_ref {
        None => EvaluationRef::Latest(read_latest(pb::LatestRef::default(), limits)?),
        Some(pb::evaluation_ref::Target::Latest(evaluation_ref)) => {
            EvaluationRef::Latest(read_latest(evaluation_ref, limits)?)
        }
        Some(pb::evaluation_ref::Target::Session(step)) => EvaluationRef::Session(read_session(step, limits)?),
        Some(pb::evaluation_ref::Target::Inline(evaluation_ref)) => {
            EvaluationRef::Inline(Box::new(read_inline(evaluation_ref)))
        }
    };
    Ok((evaluation_ref, node_table))
}

/// Time of the decision that a reference gives, in whole seconds since 1970.
pub fn decision_time(evaluation_ref: Option<&pb::EvaluationRef>) -> Option<i64> {
    Some(evaluation_ref?.now.as_ref()?.seconds)
}

fn read_latest(snapshot: pb::LatestRef, limits: &EdgeLimits) -> Result<LatestRef, CallError> {
    let pb::LatestRef {
        policy,
        profile,
        at_least,
        positions,
        max_wait,
    } = snapshot;
    if positions.len() > limits.positions {
        let message = format!("against.latest.positions: {} of them", positions.len());
        return Err(CallError::limit(
            "TOO_MANY_POSITIONS",
            "positions",
            limits.positions,
            &message,
        ));
    }
    Ok(LatestRef {
        policy: policy_name_or_default(policy),
        profile: profile.into(),
        at_least: at_least.map(|pb::Revision { epoch, number }| Revision { epoch, number }),
        positions: positions.into_iter().map(read_position).collect(),
        max_wait: read_duration("against.latest.max_wait", max_wait)?.unwrap_or_default(),
    })
}

fn read_position(position: pb::SourcePosition) -> SourcePosition {
    let pb::SourcePosition {
        source,
        source_epoch,
        sequence,
    } = position;
    SourcePosition {
        source: source.into(),
        source_epoch,
        sequence,
    }
}

/// Policy name of a request; empty: the default.
pub fn policy_name_or_default(name: String) -> Arc<str> {
    if name.is_empty() {
        Arc::from(DEFAULT_POLICY)
    } else {
        name.into()
    }
}

fn read_inline(inline: pb::InlineSnapshot) -> InlineRef {
    let pb::InlineSnapshot {
        cluster,
        policy_document,
        profile,
        compatibility,
    } = inline;
    InlineRef {
        cluster: cluster.unwrap_or_default(),
        document: policy_document,
        profile,
        compatibility,
    }
}

/// Reads a step of a session.
///
/// # Errors
/// A change is empty, or has too much in it.
pub fn read_session(step: pb::SessionRef, limits: &EdgeLimits) -> Result<SessionRef, CallError> {
    read_session_at("against.session", step, limits)
}

/// Reads a step of a session in the named field; see [`read_session`].
///
/// # Errors
/// The errors of [`read_session`].
pub fn read_session_at(field: &str, step: pb::SessionRef, limits: &EdgeLimits) -> Result<SessionRef, CallError> {
    let pb::SessionRef {
        id: session,
        after,
        changes,
    } = step;
    let changes = read_changes(changes, limits)
        .map_err(|(i, reason, message)| CallError::invalid(reason, format!("{field}.changes[{i}]: {message}")))?;
    Ok(SessionRef {
        session,
        after,
        changes,
    })
}

/// Reads changes.
///
/// # Errors
/// Number of the first change that cannot be read, with the reason and a message.
pub fn read_changes(
    changes: Vec<pb::SessionChange>,
    limits: &EdgeLimits,
) -> Result<Vec<SessionChange>, (usize, &'static str, String)> {
    let read = |(i, pb::SessionChange { change }): (usize, pb::SessionChange)| {
        let Some(change) = change else {
            return Err((i, "CHANGE_UNKNOWN", "this server knows no such change".to_owned()));
        };
        let change = read_change(change);
        match change_names(&change)
            .into_iter()
            .find(|name| name.len() > limits.name_bytes)
        {
            Some(long) => {
                let (bytes, limit) = (long.len(), limits.name_bytes);
                Err((
                    i,
                    "NAME_TOO_LONG",
                    format!("{bytes} bytes; limit `name_bytes` is {limit}"),
                ))
            }
            None => Ok(change),
        }
    };
    changes.into_iter().enumerate().map(read).collect()
}

fn read_change(change: pb::session_change::Change) -> SessionChange {
    use pb::session_change::Change as Wire;
    match change {
        Wire::Allocate(at) => SessionChange::Allocate(read_placement(at)),
        Wire::Pipeline(at) => SessionChange::Pipeline(read_placement(at)),
        Wire::Evict(task) => SessionChange::Evict(task.into()),
        Wire::Unallocate(task) => SessionChange::Unallocate(task.into()),
        Wire::Unpipeline(task) => SessionChange::Unpipeline(task.into()),
        Wire::Unevict(task) => SessionChange::Unevict(task.into()),
        Wire::BindFailed(task) => SessionChange::BindFailed(task.into()),
        Wire::JobEnqueued(job) => SessionChange::JobEnqueued(job.into()),
        Wire::Savepoint(name) => SessionChange::Savepoint(name.into()),
        Wire::RollbackTo(name) => SessionChange::RollbackTo(name.into()),
    }
}

fn read_placement(at: pb::TaskPlacement) -> TaskPlacement {
    let pb::TaskPlacement {
        task,
        node,
        card,
        devices,
    } = at;
    TaskPlacement {
        task: task.into(),
        node: node.into(),
        card: card.into(),
        devices: device_mask(&devices),
    }
}

fn change_names(change: &SessionChange) -> Vec<&str> {
    match change {
        SessionChange::Allocate(TaskPlacement { task, node, card, .. })
        | SessionChange::Pipeline(TaskPlacement { task, node, card, .. }) => {
            vec![task, node, card]
        }
        SessionChange::Evict(name)
        | SessionChange::Unallocate(name)
        | SessionChange::Unpipeline(name)
        | SessionChange::Unevict(name)
        | SessionChange::BindFailed(name)
        | SessionChange::JobEnqueued(name)
        | SessionChange::Savepoint(name)
        | SessionChange::RollbackTo(name) => vec![name],
    }
}

/// Nanoseconds of a second.
const NANOS_PER_SECOND: i128 = 1_000_000_000;

/// Reads a duration.
///
/// # Errors
/// The duration is negative.
pub fn read_duration(field: &str, duration: Option<prost_types::Duration>) -> Result<Option<Duration>, CallError> {
    let Some(duration) = duration else {
        return Ok(None);
    };
    let prost_types::Duration { seconds, nanos } = duration;
    let total = i128::from(seconds) * NANOS_PER_SECOND + i128::from(nanos);
    let whole = u64::try_from(total.div_euclid(NANOS_PER_SECOND));
    let rest = u32::try_from(total.rem_euclid(NANOS_PER_SECOND)).unwrap_or_default();
    match whole {
        Ok(seconds) => Ok(Some(Duration::new(seconds, rest))),
        Err(_) => Err(CallError::invalid(
            "INVALID_DURATION",
            format!("{field}: must not be negative"),
        )),
    }
}
