//! Writes of one reason: the condition of the pod, and its event.

use http::Method;
use serde_json::{Value, json};

use super::waiting_pods::{CONDITION, WaitingPod};
use crate::api_client::Client;
use crate::requests::{JSON, RequestError, get_json, send_object};
use crate::times;

/// Longest message, in bytes: events of the API have 1 KiB.
const MESSAGE_BYTES: usize = 1_000;
/// Format of a patch that replaces the fields that it has.
const MERGE_PATCH: &str = "application/merge-patch+json";
/// Reason of conditions and events.
const REASON: &str = "Unschedulable";

/// Writer of reasons of one look.
pub(super) struct ReasonWrites {
    client: Client,
    holder: String,
}

impl ReasonWrites {
    pub(super) fn new(client: Client, holder: String) -> Self {
        ReasonWrites { client, holder }
    }

    /// Writes the reason of a pod: its condition, and one event of the pod that is written again. A pod that has gone needs none.
    pub(super) async fn write(&self, pod: &WaitingPod, reason: &str) -> Result<(), RequestError> {
        let WaitingPod {
            namespace, name, uid, ..
        } = pod;
        let condition = pod_condition("False", REASON, reason);
        match self.write_condition(namespace, name, uid, &condition).await {
            // Another pod of this name, or none.
            Err(RequestError::Refused { code: 404 | 409, .. }) => return Ok(()),
            other => other?,
        }
        let object = json!({"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": uid});
        self.write_event(&object, reason).await
    }

    /// Writes that a pod has a node.
    pub(super) async fn write_scheduled(&self, namespace: &str, name: &str, uid: &str) -> Result<(), RequestError> {
        let condition = pod_condition("True", "Scheduled", "");
        self.write_condition(namespace, name, uid, &condition).await
    }

    async fn write_condition(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
        condition: &Value,
    ) -> Result<(), RequestError> {
        // With the uid, the pod of another incarnation is a conflict.
        let changes = json!({"metadata": {"uid": uid}, "status": {"conditions": [condition]}});
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/status");
        self.patch(&path, "application/strategic-merge-patch+json", &changes)
            .await
    }

    /// Writes the reason of a pod group of Volcano in the same way. A group that has gone, or that changes meanwhile, gets it with the
    /// next reason.
    pub(super) async fn write_pod_group(&self, group: &str, reason: &str) -> Result<(), RequestError> {
        let (namespace, name) = group.split_once('/').unwrap_or(("default", group));
        let own = format!("/apis/scheduling.volcano.sh/v1beta1/namespaces/{namespace}/podgroups/{name}");
        let found: Value = match get_json(&self.client, &own).await {
            Err(error) if error.is_absent() => return Ok(()),
            found => found?,
        };
        let patch = pod_group_patch(&found, reason);
        match self.patch(&format!("{own}/status"), MERGE_PATCH, &patch).await {
            Err(RequestError::Refused { code: 404 | 409, .. }) => {}
            other => other?,
        }
        let uid = found
            .pointer("/metadata/uid")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let object = json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
                            "namespace": namespace, "name": name, "uid": uid});
        self.write_event(&object, reason).await
    }

    /// Writes the one event of an object again.
    async fn write_event(&self, object: &Value, reason: &str) -> Result<(), RequestError> {
        let now = now();
        let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
        let (namespace, name) = (text("namespace"), text("name"));
        let collection = format!("/api/v1/namespaces/{namespace}/events");
        // One name for each incarnation of an object.
        let suffix: String = text("uid").chars().filter(char::is_ascii_hexdigit).take(16).collect();
        let event_name = format!("{}.pumice-{suffix}", name.get(..200).unwrap_or(name));
        let event = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": event_name, "namespace": namespace},
            "involvedObject": object,
            "type": "Warning", "reason": REASON, "message": reason,
            "source": {"component": "pumice"}, "reportingComponent": "pumice", "reportingInstance": self.holder, "action": "Scheduling",
            "firstTimestamp": now, "lastTimestamp": now, "count": 1,
        });
        match send_object(&self.client, Method::POST, &collection, JSON, &event).await {
            Err(RequestError::Refused { code: 409, .. }) => {
                let patch = json!({"message": reason, "lastTimestamp": now});
                let former = format!("{collection}/{event_name}");
                self.patch(&former, MERGE_PATCH, &patch).await
            }
            other => other,
        }
    }

    async fn patch(&self, path: &str, format: &str, changes: &Value) -> Result<(), RequestError> {
        send_object(&self.client, Method::PATCH, path, format, changes).await
    }
}

fn pod_condition(status: &str, reason: &str, message: &str) -> Value {
    let now = now();
    json!({
        "type": CONDITION, "status": status, "reason": reason, "message": message,
        "lastProbeTime": now, "lastTransitionTime": now,
    })
}

/// Patch of the status of a pod group: all its conditions, with one condition replaced. Lists of custom resources can
/// only be replaced as a whole. The patch has the version that was read, so a concurrent change is a conflict.
fn pod_group_patch(found: &Value, reason: &str) -> Value {
    let now = now();
    let conditions = found.pointer("/status/conditions").and_then(Value::as_array);
    let others = conditions.into_iter().flatten();
    let others = others.filter(|condition| condition.get("type").and_then(Value::as_str) != Some(CONDITION));
    let own = json!({
        "type": CONDITION, "status": "False", "reason": REASON, "message": reason, "lastTransitionTime": now,
    });
    let conditions: Vec<Value> = others.cloned().chain([own]).collect();
    json!({
        "metadata": {"resourceVersion": found.pointer("/metadata/resourceVersion")},
        "status": {"conditions": conditions},
    })
}

/// Time of the machine, in seconds.
fn now() -> String {
    times::second_text(times::machine_time())
}

/// A message that fits into a condition and an event.
pub(super) fn cut(message: &str) -> String {
    let mut end = MESSAGE_BYTES.min(message.len());
    while !message.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    let cut = message.get(..end).unwrap_or_default();
    if end < message.len() {
        format!("{cut}…")
    } else {
        cut.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_cut_between_characters() {
        assert_eq!(cut("no cpu"), "no cpu");
        let long = "é".repeat(MESSAGE_BYTES);
        let cut = cut(&long);
        assert!(
            cut.len() <= MESSAGE_BYTES + "…".len() && cut.ends_with('…'),
            "{}",
            cut.len()
        );
    }

    #[test]
    fn the_conditions_of_others_stay() {
        let found = json!({"metadata": {"resourceVersion": "7"}, "status": {"conditions": [
            {"type": "Unschedulable", "status": "True"}, {"type": CONDITION, "message": "old"}]}});
        let patch = pod_group_patch(&found, "no cpu");
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        let conditions = patch["status"]["conditions"].as_array().unwrap();
        assert_eq!(conditions.len(), 2);
        assert_eq!(conditions[0], json!({"type": "Unschedulable", "status": "True"}));
        assert_eq!(conditions[1]["message"], "no cpu");
    }
}
