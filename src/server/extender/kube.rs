//! kube-scheduler's extender protocol: its verbs.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode};
use serde_json::json;

use super::asked_nodes::{push_json, push_text, read_nodes_message};
use super::kube_bind::write_bind;
use super::node_verdicts::push_each;
use super::requests::to_json;
use super::{DRY_RUN, ExtenderFront, HttpError, ResponseMode, error_text};
use crate::server::status::RpcResult;

/// Bytes that the score of one node takes, roughly.
const HOST_BYTES: usize = 48;

/// Verb of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KubeVerb {
    Filter,
    Prioritize,
    Preempt,
    Bind,
}

/// Verbs by their paths.
pub(super) const KUBE_VERBS: &[(&str, KubeVerb)] = &[
    ("kube-scheduler/filter", KubeVerb::Filter),
    ("kube-scheduler/prioritize", KubeVerb::Prioritize),
    ("kube-scheduler/preempt", KubeVerb::Preempt),
    ("kube-scheduler/bind", KubeVerb::Bind),
];

impl ExtenderFront {
    /// Answers a request: the outcome for the metrics, and the JSON to send.
    pub(super) async fn respond_kube(
        self: &Arc<Self>,
        policy: &str,
        verb: KubeVerb,
        request: Request<Body>,
    ) -> Result<(&'static str, Vec<u8>), HttpError> {
        let dry = request.headers().get(DRY_RUN).is_some_and(|value| value == "true");
        let mode = if dry { ResponseMode::DryRun } else { ResponseMode::Hold };
        let body = self.read_body(request).await?;
        let answered = match verb {
            KubeVerb::Filter => self.filter(policy, &body.bytes, mode).await,
            KubeVerb::Prioritize => self.prioritize(policy, &body.bytes, mode).await,
            KubeVerb::Preempt => self.preempt(policy, &body.bytes).await,
            KubeVerb::Bind => self.bind(policy, &body.bytes, mode).await,
        };
        match answered {
            Ok(json) => Ok(("Ok", json)),
            Err(error) if verb == KubeVerb::Filter => {
                let message = json!({
                    "Nodes": null,
                    "NodeNames": null,
                    "FailedNodes": {},
                    "FailedAndUnresolvableNodes": {},
                    "Error": error_text(&error),
                });
                Ok((error.reason(), to_json(&message)))
            }
            Err(error) if verb == KubeVerb::Bind => Ok((error.reason(), write_bind(&error_text(&error)))),
            // These two have no field for an error.
            Err(error) => Err((StatusCode::SERVICE_UNAVAILABLE, error_text(&error))),
        }
    }

    async fn prioritize(self: &Arc<Self>, policy: &str, body: &Bytes, mode: ResponseMode) -> RpcResult<Vec<u8>> {
        let (pod, nodes) = self.read_message(body, read_nodes_message).await?;
        let scores = self.scores_of(policy, &pod, &nodes, mode).await?;
        let mut json = Vec::with_capacity(scores.len().saturating_mul(HOST_BYTES));
        json.push(b'[');
        push_each(&mut json, nodes.names().zip(scores), |json, (host, score)| {
            json.extend_from_slice(br#"{"Host":"#);
            push_text(json, host);
            json.extend_from_slice(br#","Score":"#);
            push_json(json, &score);
            json.push(b'}');
        });
        json.push(b']');
        Ok(json)
    }
}
