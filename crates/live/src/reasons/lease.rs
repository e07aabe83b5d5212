//! Lease of the process that writes: of many that watch a cluster, one writes.

use std::time::Duration;

use http::Method;
use k8s_openapi::jiff::Timestamp;
use kube_client::Client;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::requests::{JSON, RequestError, get_page, object_request, send};

/// Name of the Lease.
pub(super) const NAME: &str = "pumice-reasons";
/// Time after which another process may take the Lease over.
const LEASE_TIME: Duration = Duration::from_secs(30);

/// The Lease, as this process sees it.
#[derive(Debug)]
pub(super) struct WriterLease {
    holder: String,
    /// Last version of another holder's Lease, and when this process saw it first: clocks of two machines are not compared.
    seen: Option<(String, Instant)>,
}

impl WriterLease {
    pub(super) fn new(holder: String) -> Self {
        WriterLease { holder, seen: None }
    }

    /// Takes or renews the Lease; false: another process holds it.
    pub(super) async fn hold(&mut self, client: &Client, namespace: &str) -> Result<bool, RequestError> {
        let collection = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
        let own = format!("{collection}/{NAME}");
        let taken = match get_page(client, &own).await {
            Err(error) if error.is_absent() => {
                let lease = self.lease(&json!({}), true);
                put(client, Method::POST, &collection, &lease).await
            }
            Err(error) => return Err(error),
            Ok(bytes) => {
                let found: Value =
                    serde_json::from_slice(&bytes).map_err(|error| RequestError::Unreadable(error.to_string()))?;
                let is_own = found.pointer("/spec/holderIdentity").and_then(Value::as_str) == Some(&self.holder);
                if !is_own && !self.has_ended(&found) {
                    return Ok(false);
                }
                let lease = self.lease(&found, !is_own);
                put(client, Method::PUT, &own, &lease).await
            }
        };
        match taken {
            Ok(()) => Ok(true),
            // Another process was faster.
            Err(RequestError::Refused { code: 409, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// True if the holder has not renewed the Lease for its whole time.
    fn has_ended(&mut self, found: &Value) -> bool {
        let holder = found.pointer("/spec/holderIdentity").and_then(Value::as_str);
        if holder.unwrap_or_default().is_empty() {
            return true;
        }
        let version = found.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        let version = version.unwrap_or_default();
        match &self.seen {
            Some((seen, since)) if seen == version => since.elapsed() > LEASE_TIME,
            Some(_) | None => {
                self.seen = Some((version.to_owned(), Instant::now()));
                false
            }
        }
    }

    /// The Lease held by this process, as the next version of what was found.
    fn lease(&self, found: &Value, is_new: bool) -> Value {
        let now = format!("{:.6}", Timestamp::now());
        let former = |field: &str| found.pointer(&format!("/spec/{field}")).cloned();
        let transitions = former("leaseTransitions")
            .and_then(|count| count.as_u64())
            .unwrap_or_default();
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": NAME,
                // Another process's write in between is a conflict.
                "resourceVersion": found.pointer("/metadata/resourceVersion"),
            },
            "spec": {
                "holderIdentity": self.holder,
                "leaseDurationSeconds": LEASE_TIME.as_secs(),
                "acquireTime": if is_new { json!(now) } else { former("acquireTime").unwrap_or(json!(now)) },
                "renewTime": now,
                "leaseTransitions": transitions.saturating_add(is_new.into()),
            },
        })
    }
}

/// Sends an object.
async fn put(client: &Client, method: Method, path: &str, object: &Value) -> Result<(), RequestError> {
    send(client, object_request(method, path, JSON, object)?)
        .await
        .map(drop)
}
