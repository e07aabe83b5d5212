//! Bind of kube-scheduler's extender protocol: the server itself binds the pod to the node that kube-scheduler chose.
//!
//! First the hold of the pod moves to the chosen node, evaluated against the latest state. The policy can therefore
//! still reject the node, and all other callers see the pod there. Then the server sends the bind to the API server. If
//! the API server rejects the bind, the hold ends. If the outcome is unknown, the hold stays until the pod's source
//! reports the outcome or its lease ends.

use std::sync::Arc;

use axum::body::Bytes;
use serde::Deserialize;
use serde_json::json;

use super::asked_pod::AskedPod;
use super::kube_filter::AskedPodStatus;
use super::requests::{read_json, to_json};
use super::{ExtenderFront, ResponseMode};
use crate::server::status::{CallError, RpcResult};
use pumice_engine::model::ErrorCode;
use pumice_kubernetes::object::has_name_characters;
use pumice_live::{BindError, PodBinding};

/// Request of bind.
#[derive(Debug, Deserialize)]
struct BindMessage {
    #[serde(rename = "PodName", default)]
    name: String,
    #[serde(rename = "PodNamespace", default)]
    namespace: String,
    #[serde(rename = "PodUID", default)]
    uid: String,
    #[serde(rename = "Node", default)]
    node: String,
}

/// Writes a response of bind. An empty error means that the pod is bound.
pub(super) fn write_bind(error: &str) -> Vec<u8> {
    to_json(&json!({ "Error": error }))
}

fn read_bind(body: &Bytes) -> RpcResult<PodBinding> {
    let BindMessage {
        name,
        namespace,
        uid,
        node,
    } = read_json(body)?;
    for (field, value) in [("PodName", &name), ("PodNamespace", &namespace), ("Node", &node)] {
        if !is_object_name(value) {
            let text =
                format!("{field}: `{value}` is not the name of an object: lower-case letters, digits, `-` and `.`");
            return Err(CallError::new(ErrorCode::BindUnreadable, text));
        }
    }
    Ok(PodBinding {
        namespace,
        name,
        uid,
        node,
    })
}

/// True if the text is a valid name of a pod, a namespace or a node, and therefore a single part of a path.
fn is_object_name(name: &str) -> bool {
    name.len() <= 253 && !name.starts_with('.') && has_name_characters(name)
}

impl ExtenderFront {
    pub(super) async fn bind(self: &Arc<Self>, policy: &str, body: &Bytes, mode: ResponseMode) -> RpcResult<Vec<u8>> {
        let binding = read_bind(body)?;
        let Some(binder) = &self.binder else {
            let text =
                "the server binds no pods: set `extender_bind: true` with `state: kubernetes`, or leave `bindVerb` out";
            return Err(CallError::new(ErrorCode::BindOff, text));
        };
        let pod = AskedPod {
            name: format!("{}/{}", binding.namespace, binding.name),
            uid: binding.uid.clone(),
            object: Vec::new(),
        };
        let task = match self.status(&pod, ResponseMode::Hold).await? {
            AskedPodStatus::Waiting(task, _) => task,
            // A bind that is sent again succeeds again.
            AskedPodStatus::Placed(node) if *node == *binding.node => return Ok(write_bind("")),
            AskedPodStatus::Placed(node) => return Err(late(&pod, &node)),
            AskedPodStatus::Unknown => return Err(late(&pod, "")),
        };
        if mode == ResponseMode::DryRun {
            return Ok(write_bind(""));
        }
        let held = self.hold(policy, &task, vec![binding.node.as_str().into()]).await?;
        if let Err(rejection) = held {
            let reason = &rejection.reason;
            let text = format!("node {}: {}: {}", binding.node, reason.plugin, reason.message);
            return Err(CallError::new(ErrorCode::BindRejected, text));
        }
        match binder.bind(&binding).await {
            Ok(()) => Ok(write_bind("")),
            Err(error @ BindError::Refused(_)) => {
                let _ = self.hold(policy, &task, Vec::new()).await;
                Err(CallError::new(ErrorCode::BindRefused, error.to_string()))
            }
            Err(error @ BindError::Unknown(_)) => Err(CallError::new(ErrorCode::BindUnknown, error.to_string())),
        }
    }
}

/// Error of a bind that comes when the pod waits no longer.
fn late(pod: &AskedPod, node: &str) -> CallError {
    let text = format!(
        "pod `{}` is not waiting: it is on node `{node}`, or has ended",
        pod.name
    );
    CallError::new(ErrorCode::BindLate, text)
}
