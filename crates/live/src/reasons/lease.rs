//! Lease of the process that writes: of many that watch a cluster, one writes.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::LookError;
use crate::api_client::Client;
use crate::requests::{JSON, RequestError, get_json, send_object};
use crate::times;

/// Name of the Lease.
const NAME: &str = "pumice-reasons";
/// Time after which another process may take the Lease over.
const LEASE_TIME: Duration = Duration::from_secs(30);
/// Age of the Lease after which the holder renews it before it continues.
const RENEWAL_TIME: Duration = Duration::from_secs(10);

/// The Lease, as this process sees it.
#[derive(Debug)]
pub(super) struct WriterLease {
    holder: String,
    /// When this process took or renewed the Lease.
    renewed: Option<Instant>,
    /// Last version of another holder's Lease, and when this process saw it first: clocks of two machines are not compared.
    seen: Option<(String, Instant)>,
}

impl WriterLease {
    pub(super) fn new(holder: String) -> Self {
        WriterLease {
            holder,
            renewed: None,
            seen: None,
        }
    }

    /// Lease that needs no request for now.
    #[cfg(test)]
    pub(super) fn held() -> Self {
        WriterLease {
            renewed: Some(Instant::now()),
            ..WriterLease::new("test".to_owned())
        }
    }

    /// Takes the Lease in the namespace of the client, or renews it if it is time to. `now` lies before the request: the API server
    /// may note the renewal at any moment until its response is here.
    ///
    /// # Errors
    /// Another process holds it, or whether it does is not known.
    pub(super) async fn hold(&mut self, client: &Client, now: Instant) -> Result<(), LookError> {
        if self
            .renewed
            .is_some_and(|renewed| now.duration_since(renewed) < RENEWAL_TIME)
        {
            return Ok(());
        }
        // That of the pod, or of the kubeconfig's context.
        let namespace = client.default_namespace().to_owned();
        let taken = self.take(client, &namespace, now).await;
        self.renewed = matches!(taken, Ok(true)).then_some(now);
        match taken {
            Ok(true) => Ok(()),
            Ok(false) => Err(LookError::LeaseHeldElsewhere),
            Err(error) => Err(LookError::Request {
                what: format!("Lease {namespace}/{NAME}"),
                error,
            }),
        }
    }

    /// Takes or renews the Lease; false: another process holds it.
    async fn take(&mut self, client: &Client, namespace: &str, now: Instant) -> Result<bool, RequestError> {
        let collection = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
        let own = format!("{collection}/{NAME}");
        let taken = match get_json::<Value>(client, &own).await {
            Err(error) if error.is_absent() => {
                let lease = self.lease(&json!({}), true);
                send_object(client, Method::POST, &collection, JSON, &lease).await
            }
            Err(error) => return Err(error),
            Ok(found) => {
                let is_own = found.pointer("/spec/holderIdentity").and_then(Value::as_str) == Some(&self.holder);
                if !is_own && !self.has_ended(&found, now) {
                    return Ok(false);
                }
                let lease = self.lease(&found, !is_own);
                send_object(client, Method::PUT, &own, JSON, &lease).await
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
    fn has_ended(&mut self, found: &Value, now: Instant) -> bool {
        let holder = found.pointer("/spec/holderIdentity").and_then(Value::as_str);
        if holder.unwrap_or_default().is_empty() {
            return true;
        }
        let version = found.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        let version = version.unwrap_or_default();
        match &self.seen {
            Some((seen, since)) if seen == version => now.duration_since(*since) > LEASE_TIME,
            Some(_) | None => {
                self.seen = Some((version.to_owned(), now));
                false
            }
        }
    }

    /// The Lease held by this process, as the next version of what was found.
    fn lease(&self, found: &Value, is_new: bool) -> Value {
        let now = times::micro_text(times::machine_time());
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use crate::api_client::Body;
    use http::{Request, Response};
    use http_body_util::BodyExt as _;
    use pumice_engine::short_lock::ShortLock;

    use super::*;

    /// API server with one Lease, and the number of its writes.
    type StoredLease = Arc<ShortLock<(Option<Value>, u64)>>;

    fn client(stored: &StoredLease) -> Client {
        let stored = Arc::clone(stored);
        let serve = move |request: Request<Body>| {
            let stored = Arc::clone(&stored);
            async move {
                let is_read = request.method() == Method::GET;
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let (status, object) = stored.with(|(lease, writes)| {
                    if is_read {
                        return (
                            if lease.is_some() { 200 } else { 404 },
                            lease.clone().unwrap_or_default(),
                        );
                    }
                    let mut object: Value = serde_json::from_slice(&body).unwrap();
                    *writes += 1;
                    object["metadata"]["resourceVersion"] = json!(writes.to_string());
                    *lease = Some(object.clone());
                    (200, object)
                });
                let body = Body::from(object.to_string().into_bytes());
                Ok::<_, Infallible>(Response::builder().status(status).body(body).unwrap())
            }
        };
        Client::new(tower::service_fn(serve), "default")
    }

    #[tokio::test]
    async fn the_holder_renews_the_lease_in_the_middle_of_a_long_look() {
        let stored = StoredLease::default();
        let client = client(&stored);
        let writes = || stored.with(|(_, writes)| *writes);
        let (mut one, mut other) = (WriterLease::new("one".to_owned()), WriterLease::new("other".to_owned()));
        let mut now = Instant::now();
        one.hold(&client, now).await.unwrap();
        one.hold(&client, now).await.unwrap();
        assert_eq!(writes(), 1, "it was renewed a moment ago");
        for _ in 0..8 {
            assert!(matches!(
                other.hold(&client, now).await,
                Err(LookError::LeaseHeldElsewhere)
            ));
            now += RENEWAL_TIME;
            one.hold(&client, now).await.unwrap();
        }
        assert_eq!(writes(), 9);
        // A holder that goes on too late learns of it before it writes.
        assert!(other.hold(&client, now).await.is_err());
        now += LEASE_TIME + RENEWAL_TIME;
        other.hold(&client, now).await.unwrap();
        assert!(matches!(
            one.hold(&client, now).await,
            Err(LookError::LeaseHeldElsewhere)
        ));
    }
}
