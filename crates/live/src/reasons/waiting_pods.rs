//! Pods that wait for a scheduler, and the reasons that stand in them already.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube_client::Client;
use serde::Deserialize;

use crate::pages::encoded;
use crate::requests::{RequestError, get_page};

/// Type of the condition.
pub(super) const CONDITION: &str = "PumiceSchedulable";
/// Pods of one scheduler that are looked at.
const PODS: usize = 2_000;
/// Shortest time between two reasons of one pod.
const REASON_AGE: Duration = Duration::from_mins(1);

/// Pod that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WaitingPod {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    /// Reason that is in the pod, and when it was written.
    reported: Option<(String, Option<Timestamp>)>,
}

impl WaitingPod {
    pub(super) fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// True if the pod needs this reason: it has none, or another one that is old enough.
    pub(super) fn needs(&self, reason: &str) -> bool {
        match &self.reported {
            Some((reported, _)) if reported == reason => false,
            Some((_, Some(since))) => Timestamp::now().duration_since(*since).unsigned_abs() >= REASON_AGE,
            None | Some((_, None)) => true,
        }
    }
}

#[derive(Debug, Deserialize)]
struct PodList {
    #[serde(default)]
    metadata: ListMetadata,
    #[serde(default)]
    items: Option<Vec<ListedPod>>,
}

#[derive(Debug, Default, Deserialize)]
struct ListMetadata {
    #[serde(default, rename = "continue")]
    continuation: String,
}

#[derive(Debug, Deserialize)]
struct ListedPod {
    metadata: PodMetadata,
    #[serde(default)]
    status: ListedStatus,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodMetadata {
    namespace: String,
    name: String,
    uid: String,
    #[serde(default)]
    deletion_timestamp: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct ListedStatus {
    #[serde(default)]
    phase: String,
    #[serde(default)]
    conditions: Option<Vec<PodCondition>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodCondition {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    last_probe_time: Option<Timestamp>,
}

/// Pods of a scheduler that have no node, at most 2,000.
pub(super) async fn waiting_pods(client: &Client, scheduler: &str) -> Result<Vec<WaitingPod>, RequestError> {
    let selector = encoded(&format!("spec.nodeName=,spec.schedulerName={scheduler}"));
    let mut pods = Vec::new();
    let mut continuation = String::new();
    loop {
        let uri = format!(
            "/api/v1/pods?fieldSelector={selector}&limit=500&continue={}",
            encoded(&continuation)
        );
        let page = get_page(client, &uri).await?;
        let PodList { metadata, items } =
            serde_json::from_slice(&page).map_err(|error| RequestError::Unreadable(error.to_string()))?;
        pods.extend(items.unwrap_or_default().into_iter().filter_map(waiting_pod));
        continuation = metadata.continuation;
        if continuation.is_empty() || pods.len() >= PODS {
            return Ok(pods);
        }
    }
}

/// Pod of a list, if it waits.
fn waiting_pod(pod: ListedPod) -> Option<WaitingPod> {
    let ListedPod { metadata, status } = pod;
    let waits = metadata.deletion_timestamp.is_none() && matches!(status.phase.as_str(), "" | "Pending");
    let conditions = status.conditions.unwrap_or_default();
    let reported = conditions.into_iter().find(|condition| condition.kind == CONDITION);
    waits.then(|| WaitingPod {
        namespace: metadata.namespace,
        name: metadata.name,
        uid: metadata.uid,
        reported: reported.map(|condition| (condition.message, condition.last_probe_time)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(text: &str) -> Option<WaitingPod> {
        waiting_pod(serde_json::from_str(text).unwrap())
    }

    #[test]
    fn a_reason_is_written_once_and_another_one_not_at_once() {
        let new = pod(r#"{"metadata":{"namespace":"a","name":"b","uid":"c"},"status":{"phase":"Pending"}}"#).unwrap();
        assert!(new.needs("no cpu"));
        let reported = |time: &str| {
            let condition = format!(r#"{{"type":"PumiceSchedulable","message":"no cpu","lastProbeTime":{time}}}"#);
            let text = format!(
                r#"{{"metadata":{{"namespace":"a","name":"b","uid":"c"}},"status":{{"phase":"Pending","conditions":[{condition}]}}}}"#
            );
            pod(&text).unwrap()
        };
        assert!(!reported("null").needs("no cpu"));
        assert!(reported("null").needs("no memory"));
        assert!(reported(r#""2020-01-01T00:00:00Z""#).needs("no memory"));
        assert!(!reported(&format!("\"{}\"", Timestamp::now())).needs("no memory"));
    }

    #[test]
    fn a_pod_that_ends_does_not_wait() {
        let metadata = r#""metadata":{"namespace":"a","name":"b","uid":"c""#;
        assert_eq!(pod(&format!(r#"{{{metadata}}},"status":{{"phase":"Failed"}}}}"#)), None);
        assert_eq!(
            pod(&format!(
                r#"{{{metadata},"deletionTimestamp":"2020-01-01T00:00:00Z"}}}}"#
            )),
            None
        );
    }
}
