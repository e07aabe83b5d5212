//! Binds: the API server is asked to put a pod on a node, for a scheduler that leaves that to this process.

use http::{Method, Request, header};
use kube_client::Client;
use kube_client::client::Body;
use pumice_engine::short_lock::ShortLock;
use serde_json::json;

use crate::credentials::ClusterAccess;
use crate::requests::{RequestError, send};

/// Pod that is to run on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodBinding {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// Incarnation of the pod; empty: any.
    pub uid: String,
    /// Name of the node.
    pub node: String,
}

/// Error of a bind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// The API server refused the bind: the pod has no node by it.
    #[error("the API server refuses the bind: {0}")]
    Refused(String),
    /// Whether the pod has the node is not known.
    #[error("whether the API server has bound the pod is not known: {0}")]
    Unknown(String),
}

/// Binder of pods, with the credentials of the watched cluster.
#[derive(Debug)]
pub struct PodBinder {
    access: ClusterAccess,
    client: ShortLock<Option<Client>>,
}

impl PodBinder {
    /// Binder with these credentials, which are read with the first bind.
    pub fn new(access: ClusterAccess) -> Self {
        PodBinder {
            access,
            client: ShortLock::default(),
        }
    }

    /// Binds a pod to a node.
    ///
    /// # Errors
    /// The bind was refused, or its outcome is not known.
    pub async fn bind(&self, binding: &PodBinding) -> Result<(), BindError> {
        let client = self.client().await.map_err(BindError::Refused)?;
        let PodBinding {
            namespace,
            name,
            uid,
            node,
        } = binding;
        let mut metadata = json!({"name": name, "namespace": namespace});
        if !uid.is_empty() {
            // The API server compares it with that of the pod.
            metadata["uid"] = json!(uid);
        }
        let object = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("/api/v1/namespaces/{namespace}/pods/{name}/binding"))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(object.to_string().into_bytes()))
            .map_err(|error| BindError::Refused(error.to_string()))?;
        match send(&client, request).await {
            Ok(_) => Ok(()),
            // Gateways report with 5xx what may have reached the API server.
            Err(error @ RequestError::Refused { code: 400..=499, .. }) => Err(BindError::Refused(error.to_string())),
            Err(error) => {
                // The next bind reads the credentials again.
                drop(self.client.with(Option::take));
                Err(BindError::Unknown(error.to_string()))
            }
        }
    }

    async fn client(&self) -> Result<Client, String> {
        if let Some(client) = self.client.with(|client| client.clone()) {
            return Ok(client);
        }
        let client = self.access.client().await.map_err(|error| error.to_string())?;
        self.client.with(|held| *held = Some(client.clone()));
        Ok(client)
    }
}
