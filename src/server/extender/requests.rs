//! Shared parts of the fronts: bodies read from JSON, decisions asked as gRPC callers ask them, and JSON written.

use std::sync::Arc;

use axum::body::Bytes;
use serde::{Deserialize, Serialize};

use super::ExtenderFront;
use crate::server::decision_call::{DecisionCall, MAX_ASYNC_OBJECT_BYTES};
use crate::server::pb;
use crate::server::status::{CallError, RpcResult};
use pumice_engine::model::ErrorCode;
use pumice_state::{OpenSession, SessionBase};

/// Reads a message of a body.
pub(super) fn read_json<'b, T: Deserialize<'b>>(body: &'b Bytes) -> RpcResult<T> {
    serde_json::from_slice(body).map_err(|error| unreadable("the body", &error))
}

/// Error of a part of a body.
pub(super) fn unreadable(what: &str, error: &serde_json::Error) -> CallError {
    CallError::new(ErrorCode::BodyUnreadable, format!("{what}: {error}"))
}

/// JSON of a message.
pub(super) fn to_json(message: &impl Serialize) -> Vec<u8> {
    // Only maps with keys that are no strings cannot be written.
    serde_json::to_vec(message).unwrap_or_default()
}

/// The newest state under a policy.
pub(super) fn latest(policy: &str) -> pb::EvaluationRef {
    pb::EvaluationRef {
        target: Some(pb::evaluation_ref::Target::Latest(pb::LatestRef {
            policy: policy.to_owned(),
            ..pb::LatestRef::default()
        })),
        ..pb::EvaluationRef::default()
    }
}

/// Base of a session on the newest state under a policy.
pub(super) fn latest_base(policy: &str) -> SessionBase {
    SessionBase::Latest {
        policy: policy.into(),
        profile: Arc::default(),
    }
}

/// Nodes by name.
pub(super) fn node_set(names: impl IntoIterator<Item = String>) -> pb::NodeSet {
    pb::NodeSet {
        names: names.into_iter().collect(),
        ..pb::NodeSet::default()
    }
}

/// Error of an item that has no result.
///
/// # Errors
/// There is a problem.
pub(super) fn check_problem(code: ErrorCode, problem: Option<&pb::Problem>) -> RpcResult<()> {
    match problem {
        None => Ok(()),
        Some(problem) => Err(CallError::new(code, problem_text(problem))),
    }
}

/// Sentence of a problem, with its field.
pub(super) fn problem_text(problem: &pb::Problem) -> String {
    format!("{}: {}", problem.field, problem.message)
}

/// Short reason of a rejection, as events show it.
pub(super) fn reason_text(reason: &pb::Reason) -> String {
    format!("{}: {}", reason.plugin, reason.message)
}

impl ExtenderFront {
    /// Reads a body, a large one on a worker.
    pub(super) async fn read_message<T: Send + 'static>(
        &self,
        body: &Bytes,
        read: impl FnOnce(&Bytes) -> RpcResult<T> + Send + 'static,
    ) -> RpcResult<T> {
        if body.len() <= MAX_ASYNC_OBJECT_BYTES {
            return read(body);
        }
        let body = body.clone();
        self.edge.workers.messages.run(move |_| read(&body)).await
    }

    /// Opens a session, as a caller without a connection.
    pub(super) async fn open_session(&self, base: SessionBase) -> RpcResult<Arc<str>> {
        let open = OpenSession {
            base,
            batch: None,
            lease: None,
            connection: None,
        };
        Ok(self.edge.state.open_session(open).await?.session)
    }

    /// Asks a decision, as a caller without a connection.
    pub(super) async fn ask<C: DecisionCall>(
        self: &Arc<Self>,
        call: C,
        against: pb::EvaluationRef,
    ) -> RpcResult<C::Response> {
        let against = self.edge.read_against(Some(against));
        Arc::clone(&self.edge).decide(call, against).await
    }
}
