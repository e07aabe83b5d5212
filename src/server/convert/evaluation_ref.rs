//! What a question stands on: shared state, a step of a session, or a cluster and policy sent along.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::cycle::{SessionChange, TaskPlacement};
use crate::engine::{Revision, SourcePosition};
use crate::server::limits::EdgeLimits;
use crate::server::pb;
use crate::server::status::CallError;

/// Name of the policy when none is said.
pub const DEFAULT_POLICY: &str = "default";

/// What a question stands on.
#[derive(Clone, Debug)]
pub enum EvaluationRef {
    /// Shared state.
    Latest(LatestRef),
    /// A step of a session.
    Session(SessionRef),
    /// A cluster and policy sent along.
    Inline(Box<InlineRef>),
}

/// Shared state under a policy.
#[derive(Clone, Debug)]
pub struct LatestRef {
    /// Policy name.
    pub policy: Arc<str>,
    /// Profile of it; empty: the only one.
    pub profile: Arc<str>,
    /// Wait until this revision is visible.
    pub at_least: Option<Revision>,
    /// Wait until these positions are visible.
    pub positions: Vec<SourcePosition>,
    /// How long to wait.
    pub max_wait: Duration,
}

/// A step of a session.
#[derive(Clone, Debug)]
pub struct SessionRef {
    /// The session.
    pub session: String,
    /// Number of changes before these.
    pub after: u64,
    /// Changes that ride along.
    pub changes: Vec<SessionChange>,
}

/// A cluster and policy sent along.
#[derive(Clone, Debug)]
pub struct InlineRef {
    /// The whole cluster.
    pub cluster: pb::Cluster,
    /// Policy document; empty: the built-in one.
    pub document: String,
    /// Profile of it; empty: the only one.
    pub profile: String,
    /// Compatibility where the document does not say.
    pub compatibility: String,
}

/// Reads a ground and the node table that the question's slots refer to.
///
/// # Errors
/// It contradicts itself, or asks for what this server does not have.
pub fn read_ref(
    evaluation_ref: Option<pb::EvaluationRef>,
    limits: &EdgeLimits,
) -> Result<(EvaluationRef, Option<pb::NodeTableVersion>), CallError> {
    let pb::EvaluationRef {
        target: evaluation_ref,
        node_table,
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

/// The policy name that a request means.
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
/// A change that says nothing, or too much.
pub fn read_session(step: pb::SessionRef, limits: &EdgeLimits) -> Result<SessionRef, CallError> {
    read_session_at("against.session", step, limits)
}

/// As [`session`], of a step that stands in this field.
///
/// # Errors
/// As [`session`].
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
/// Number of the first that cannot be read, with the reason and a message.
pub fn read_changes(
    changes: Vec<pb::SessionChange>,
    limits: &EdgeLimits,
) -> Result<Vec<SessionChange>, (usize, &'static str, String)> {
    let read = |(i, pb::SessionChange { change }): (usize, pb::SessionChange)| {
        let Some(change) = change else {
            return Err((i, "CHANGE_UNKNOWN", "says nothing that this server knows".to_owned()));
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
    let pb::TaskPlacement { task, node, card } = at;
    TaskPlacement {
        task: task.into(),
        node: node.into(),
        card: card.into(),
    }
}

fn change_names(change: &SessionChange) -> Vec<&str> {
    match change {
        SessionChange::Allocate(TaskPlacement { task, node, card })
        | SessionChange::Pipeline(TaskPlacement { task, node, card }) => {
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

/// Reads a length of time.
///
/// # Errors
/// It is negative or not a time at all.
pub fn read_duration(field: &str, duration: Option<prost_types::Duration>) -> Result<Option<Duration>, CallError> {
    let Some(duration) = duration else {
        return Ok(None);
    };
    match Duration::try_from(duration) {
        Ok(duration) => Ok(Some(duration)),
        Err(_) => Err(CallError::invalid(
            "INVALID_DURATION",
            format!("{field}: must not be negative"),
        )),
    }
}
