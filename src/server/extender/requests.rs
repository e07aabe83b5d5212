//! What the fronts have in common: bodies read from JSON, decisions asked as gRPC callers ask them, and JSON written.

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::Extensions;
use serde::{Deserialize, Serialize};
use tonic::metadata::MetadataMap;

use super::ExtenderFront;
use crate::server::decision_call::{DecisionCall, MAX_ASYNC_OBJECT_BYTES};
use crate::server::pb;
use crate::server::status::CallError;

/// Reads a message of a body.
pub(super) fn read_json<'b, T: Deserialize<'b>>(body: &'b Bytes) -> Result<T, CallError> {
    serde_json::from_slice(body).map_err(|error| unreadable("the body", &error))
}

/// Error of a part of a body.
pub(super) fn unreadable(what: &str, error: &serde_json::Error) -> CallError {
    CallError::invalid("BODY_UNREADABLE", format!("{what}: {error}"))
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
pub(super) fn check_problem(reason: &'static str, problem: Option<&pb::Problem>) -> Result<(), CallError> {
    match problem {
        None => Ok(()),
        Some(problem) => Err(CallError::invalid(reason, problem_text(problem))),
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
        read: impl FnOnce(&Bytes) -> Result<T, CallError> + Send + 'static,
    ) -> Result<T, CallError> {
        if body.len() <= MAX_ASYNC_OBJECT_BYTES {
            return read(body);
        }
        let body = body.clone();
        self.edge.workers.messages.run(move |_| read(&body)).await
    }

    /// Asks a decision, as a caller without a connection.
    pub(super) async fn ask<C: DecisionCall>(
        self: &Arc<Self>,
        call: C,
        against: pb::EvaluationRef,
    ) -> Result<C::Response, CallError> {
        let (metadata, extensions) = (MetadataMap::new(), Extensions::new());
        let answered = self.edge.decide(call, Some(against), (&metadata, &extensions)).await;
        Ok(answered?.into_inner())
    }
}
