//! Pods that wait for a scheduler, and the reasons that they carry already.

use std::time::{Duration, SystemTime};

use serde::Deserialize;

use crate::api_client::Client;
use crate::pages::encoded;
use crate::requests::{RequestError, get_json};
use crate::times;

/// Type of the condition.
pub(super) const CONDITION: &str = "PumiceSchedulable";
/// Maximum number of pods of one scheduler to read.
const PODS: usize = 2_000;
/// Shortest time between two reasons of one pod.
const REASON_AGE: Duration = Duration::from_mins(1);

/// Pending pod whose reason may be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WaitingPod {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    /// Reason that is in the pod, and when it was written.
    reported: Option<(String, Option<SystemTime>)>,
}

impl WaitingPod {
    pub(super) fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// True if this reason must be written: the pod has no reason, or a different reason that is old enough.
    pub(super) fn needs(&self, reason: &str) -> bool {
        match &self.reported {
            Some((reported, _)) if reported == reason => false,
            Some((_, Some(since))) => times::distance(times::machine_time(), *since) >= REASON_AGE,
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
    spec: ListedSpec,
    #[serde(default)]
    status: ListedStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListedSpec {
    #[serde(default)]
    node_name: String,
}

/// Pod that no longer waits, or whose state is to be seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundPod {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) has_node: bool,
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
    status: String,
    #[serde(default)]
    message: String,
    #[serde(default, deserialize_with = "times::read_time")]
    last_probe_time: Option<SystemTime>,
}

/// Pods of a scheduler that have no node, at most 2,000.
pub(super) async fn waiting_pods(client: &Client, scheduler: &str) -> Result<Vec<WaitingPod>, RequestError> {
    let selector = format!("spec.nodeName=,spec.schedulerName={scheduler}");
    list_pods(client, "", &selector, PODS, waiting_pod).await
}

/// Placed pods of one page whose condition is still pending, and the continuation token of the list. Empty token: the
/// list is complete.
pub(super) async fn placed_pods(
    client: &Client,
    scheduler: &str,
    continuation: &str,
) -> Result<(Vec<FoundPod>, String), RequestError> {
    let selector = encoded(&format!("spec.nodeName!=,spec.schedulerName={scheduler}"));
    let is_wrong = |pod: ListedPod| reports_waiting(&pod).then(|| found_pod(pod));
    list_page(client, "", &selector, continuation, &is_wrong).await
}

/// The pod of this name, if there is one.
pub(super) async fn find_pod(client: &Client, namespace: &str, name: &str) -> Result<Option<FoundPod>, RequestError> {
    let folder = format!("namespaces/{namespace}/");
    let selector = format!("metadata.name={name}");
    let found = list_pods(client, &folder, &selector, 1, |pod| Some(found_pod(pod))).await;
    found.map(|pods| pods.into_iter().next())
}

/// Pods of a list that `read` takes, page by page, at least `most` of them if there are as many.
async fn list_pods<T>(
    client: &Client,
    folder: &str,
    selector: &str,
    most: usize,
    read: impl Fn(ListedPod) -> Option<T>,
) -> Result<Vec<T>, RequestError> {
    let selector = encoded(selector);
    let mut pods = Vec::new();
    let mut continuation = String::new();
    loop {
        let (mut page, next) = list_page(client, folder, &selector, &continuation, &read).await?;
        pods.append(&mut page);
        continuation = next;
        if continuation.is_empty() || pods.len() >= most {
            return Ok(pods);
        }
    }
}

/// Pods of one page that `read` accepts, and the continuation token. The selector must be encoded for a URI.
async fn list_page<T>(
    client: &Client,
    folder: &str,
    selector: &str,
    continuation: &str,
    read: &impl Fn(ListedPod) -> Option<T>,
) -> Result<(Vec<T>, String), RequestError> {
    let uri = format!(
        "/api/v1/{folder}pods?fieldSelector={selector}&limit=500&continue={}",
        encoded(continuation)
    );
    let PodList { metadata, items } = get_json(client, &uri).await?;
    let pods = items.unwrap_or_default().into_iter().filter_map(read).collect();
    Ok((pods, metadata.continuation))
}

/// True if the pod has the pending condition.
fn reports_waiting(pod: &ListedPod) -> bool {
    let conditions = pod.status.conditions.iter().flatten();
    conditions
        .into_iter()
        .any(|condition| condition.kind == CONDITION && condition.status == "False")
}

fn found_pod(pod: ListedPod) -> FoundPod {
    let has_node = !pod.spec.node_name.is_empty();
    let PodMetadata {
        namespace, name, uid, ..
    } = pod.metadata;
    FoundPod {
        namespace,
        name,
        uid,
        has_node,
    }
}

/// Pod of a list, if it waits.
fn waiting_pod(pod: ListedPod) -> Option<WaitingPod> {
    let ListedPod { metadata, status, .. } = pod;
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
        assert!(!reported(&format!("\"{}\"", times::second_text(times::machine_time()))).needs("no memory"));
    }

    #[test]
    fn a_condition_that_says_so_reports_waiting() {
        for (status, wanted) in [("False", true), ("True", false)] {
            let text = format!(
                r#"{{"metadata":{{"namespace":"a","name":"b","uid":"c"}},"spec":{{"nodeName":"n"}},
                    "status":{{"conditions":[{{"type":"PumiceSchedulable","status":"{status}"}}]}}}}"#
            );
            let pod: ListedPod = serde_json::from_str(&text).unwrap();
            assert_eq!(reports_waiting(&pod), wanted);
            assert!(found_pod(pod).has_node);
        }
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
