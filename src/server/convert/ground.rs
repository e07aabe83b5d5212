//! What a question stands on: shared state, a step of a session, or a cluster and policy sent along.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::cycle::{Change, Placement};
use crate::engine::{Position, Revision};
use crate::server::limits::EdgeLimits;
use crate::server::pb;
use crate::server::status::Failure;

/// Name of the policy when none is said.
pub const DEFAULT_POLICY: &str = "default";

/// What a question stands on.
#[derive(Clone, Debug)]
pub enum Ground {
    /// Shared state.
    World(WorldGround),
    /// A step of a session.
    Session(Step),
    /// A cluster and policy sent along.
    Inline(Box<InlineGround>),
}

/// Shared state under a policy.
#[derive(Clone, Debug)]
pub struct WorldGround {
    /// Policy name.
    pub policy: Arc<str>,
    /// Profile of it; empty: the only one.
    pub profile: Arc<str>,
    /// Wait until this revision is visible.
    pub at_least: Option<Revision>,
    /// Wait until these positions are visible.
    pub positions: Vec<Position>,
    /// How long to wait.
    pub max_wait: Duration,
}

/// A step of a session.
#[derive(Clone, Debug)]
pub struct Step {
    /// The session.
    pub session: String,
    /// Number of changes before these.
    pub after: u64,
    /// Changes that ride along.
    pub changes: Vec<Change>,
}

/// A cluster and policy sent along.
#[derive(Clone, Debug)]
pub struct InlineGround {
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
pub fn ground(
    ground: Option<pb::Ground>,
    limits: &EdgeLimits,
) -> Result<(Ground, Option<pb::NodeTableVersion>), Failure> {
    let pb::Ground { ground, node_table } = ground.unwrap_or_default();
    let ground = match ground {
        None => Ground::World(world(pb::World::default(), limits)?),
        Some(pb::ground::Ground::World(ground)) => Ground::World(world(ground, limits)?),
        Some(pb::ground::Ground::Session(step)) => Ground::Session(session(step, limits)?),
        Some(pb::ground::Ground::Inline(ground)) => Ground::Inline(Box::new(inline(ground))),
    };
    Ok((ground, node_table))
}

fn world(world: pb::World, limits: &EdgeLimits) -> Result<WorldGround, Failure> {
    let pb::World {
        policy,
        profile,
        at_least,
        positions,
        max_wait,
    } = world;
    if positions.len() > limits.positions {
        let message = format!("ground.world.positions: {} of them", positions.len());
        return Err(Failure::limit(
            "TOO_MANY_POSITIONS",
            "positions",
            limits.positions,
            &message,
        ));
    }
    Ok(WorldGround {
        policy: policy_name(policy),
        profile: profile.into(),
        at_least: at_least.map(|pb::Revision { epoch, number }| Revision { epoch, number }),
        positions: positions.into_iter().map(position).collect(),
        max_wait: duration("ground.world.max_wait", max_wait)?.unwrap_or_default(),
    })
}

fn position(position: pb::SourcePosition) -> Position {
    let pb::SourcePosition {
        source,
        source_epoch,
        sequence,
    } = position;
    Position {
        source: source.into(),
        source_epoch,
        sequence,
    }
}

/// The policy name that a request means.
pub fn policy_name(name: String) -> Arc<str> {
    if name.is_empty() {
        Arc::from(DEFAULT_POLICY)
    } else {
        name.into()
    }
}

fn inline(inline: pb::Inline) -> InlineGround {
    let pb::Inline {
        cluster,
        policy_document,
        profile,
        compatibility,
    } = inline;
    InlineGround {
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
pub fn session(step: pb::SessionStep, limits: &EdgeLimits) -> Result<Step, Failure> {
    session_at("ground.session", step, limits)
}

/// As [`session`], of a step that stands in this field.
///
/// # Errors
/// As [`session`].
pub fn session_at(field: &str, step: pb::SessionStep, limits: &EdgeLimits) -> Result<Step, Failure> {
    let pb::SessionStep {
        session,
        after,
        changes,
    } = step;
    let changes = self::changes(changes, limits)
        .map_err(|(i, reason, message)| Failure::invalid(reason, format!("{field}.changes[{i}]: {message}")))?;
    Ok(Step {
        session,
        after,
        changes,
    })
}

/// Reads changes.
///
/// # Errors
/// Number of the first that cannot be read, with the reason and a message.
pub fn changes(changes: Vec<pb::Change>, limits: &EdgeLimits) -> Result<Vec<Change>, (usize, &'static str, String)> {
    let read = |(i, pb::Change { change }): (usize, pb::Change)| {
        let Some(change) = change else {
            return Err((i, "CHANGE_UNKNOWN", "says nothing that this server knows".to_owned()));
        };
        let change = self::change(change);
        match names(&change).into_iter().find(|name| name.len() > limits.name_bytes) {
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

fn change(change: pb::change::Change) -> Change {
    use pb::change::Change as Wire;
    match change {
        Wire::Allocate(at) => Change::Allocate(placement(at)),
        Wire::Pipeline(at) => Change::Pipeline(placement(at)),
        Wire::Evict(task) => Change::Evict(task.into()),
        Wire::Unallocate(task) => Change::Unallocate(task.into()),
        Wire::Unpipeline(task) => Change::Unpipeline(task.into()),
        Wire::Unevict(task) => Change::Unevict(task.into()),
        Wire::BindFailed(task) => Change::BindFailed(task.into()),
        Wire::JobEnqueued(job) => Change::JobEnqueued(job.into()),
        Wire::Savepoint(name) => Change::Savepoint(name.into()),
        Wire::RollbackTo(name) => Change::RollbackTo(name.into()),
    }
}

fn placement(at: pb::TaskOnNode) -> Placement {
    let pb::TaskOnNode { task, node, card } = at;
    Placement {
        task: task.into(),
        node: node.into(),
        card: card.into(),
    }
}

fn names(change: &Change) -> Vec<&str> {
    match change {
        Change::Allocate(Placement { task, node, card }) | Change::Pipeline(Placement { task, node, card }) => {
            vec![task, node, card]
        }
        Change::Evict(name)
        | Change::Unallocate(name)
        | Change::Unpipeline(name)
        | Change::Unevict(name)
        | Change::BindFailed(name)
        | Change::JobEnqueued(name)
        | Change::Savepoint(name)
        | Change::RollbackTo(name) => vec![name],
    }
}

/// Reads a length of time.
///
/// # Errors
/// It is negative or not a time at all.
pub fn duration(field: &str, duration: Option<prost_types::Duration>) -> Result<Option<Duration>, Failure> {
    let Some(duration) = duration else {
        return Ok(None);
    };
    match Duration::try_from(duration) {
        Ok(duration) => Ok(Some(duration)),
        Err(_) => Err(Failure::invalid(
            "INVALID_DURATION",
            format!("{field}: must not be negative"),
        )),
    }
}
