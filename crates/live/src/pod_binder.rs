//! Binds pods to nodes through the API server, for a scheduler that delegates binding to this process.

use http::Method;
use serde_json::json;

use crate::credentials::{ClusterAccess, SharedClient};
use crate::requests::{JSON, RequestError, judged, object_request, send};

/// Pod that is to run on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodBinding {
    /// `metadata.namespace`, such as `ml`.
    pub namespace: String,
    /// `metadata.name`, such as `train-0`.
    pub name: String,
    /// Incarnation of the pod; empty: any.
    pub uid: String,
    /// Name of the node.
    pub node: String,
}

/// Error of a bind: rejected, or with an unknown outcome.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// The API server rejected the bind. The pod was not bound.
    #[error("the API server refuses the bind: {0}")]
    Refused(String),
    /// Unknown outcome: the pod may be bound.
    #[error("whether the API server has bound the pod is not known: {0}")]
    Unknown(String),
}

/// Binder of pods, with the credentials of the watched cluster.
#[derive(Debug)]
pub struct PodBinder {
    client: SharedClient,
}

impl PodBinder {
    /// Binder with these credentials, which are read with the first bind.
    pub fn new(access: ClusterAccess) -> Self {
        PodBinder {
            // A bind that is sent again may be refused because the first one succeeded.
            client: SharedClient::new(access),
        }
    }

    /// Binds a pod to a node.
    ///
    /// # Errors
    /// The bind was rejected, or its outcome is unknown.
    pub async fn bind(&self, binding: &PodBinding) -> Result<(), BindError> {
        let lent = self.client.get().await;
        let lent = lent.map_err(|error| BindError::Refused(error.to_string()))?;
        let PodBinding {
            namespace,
            name,
            uid,
            node,
        } = binding;
        // The API server compares the uid with that of the pod.
        let uid = Some(uid).filter(|uid| !uid.is_empty());
        let metadata = json!({"name": name, "namespace": namespace, "uid": uid});
        let object = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/binding");
        let request = object_request(Method::POST, &path, JSON, &object);
        let request = request.map_err(|error| BindError::Refused(error.to_string()))?;
        let sent = send(&lent.client, request).await;
        let Err(error) = judged(&self.client, &lent, sent) else {
            return Ok(());
        };
        // Gateways report with 5xx what may have reached the API server.
        if matches!(error, RequestError::Refused { code: 400..=499, .. }) {
            return Err(BindError::Refused(error.to_string()));
        }
        Err(BindError::Unknown(error.to_string()))
    }
}
