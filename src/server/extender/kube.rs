//! kube-scheduler's extender protocol: its messages, read from JSON with Go's names, and its verbs.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode};
use pumice_kubernetes::object::{AmountRules, ObjectKind, ObjectLimits, ObjectRecord, read_json_of};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::asked_nodes::{push_json, push_text, read_nodes_message};
use super::body::read_body;
use super::kube_bind::write_bind;
use super::node_verdicts::push_each;
use super::offers::OfferKey;
use super::requests::{to_json, unreadable};
use super::{DRY_RUN, ExtenderFront, HttpError, ResponseMode, error_text};
use crate::server::pb;
use crate::server::status::CallError;

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

impl KubeVerb {
    const ALL: [(&'static str, KubeVerb); 4] = [
        ("filter", KubeVerb::Filter),
        ("prioritize", KubeVerb::Prioritize),
        ("preempt", KubeVerb::Preempt),
        ("bind", KubeVerb::Bind),
    ];

    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|(own, _)| *own == name)
            .map(|(_, verb)| verb)
    }

    /// Names of all verbs, for messages.
    pub(super) fn names() -> String {
        Self::ALL.map(|(name, _)| name).join(", ")
    }

    /// Value of the metrics' label `rpc`.
    pub(super) fn metric(self) -> &'static str {
        match self {
            KubeVerb::Filter => "kube-scheduler/filter",
            KubeVerb::Prioritize => "kube-scheduler/prioritize",
            KubeVerb::Preempt => "kube-scheduler/preempt",
            KubeVerb::Bind => "kube-scheduler/bind",
        }
    }
}

/// Object, as far as its identity.
#[derive(Debug, Deserialize)]
struct ObjectHead {
    #[serde(default)]
    metadata: ObjectMetadata,
}

#[derive(Debug, Default, Deserialize)]
struct ObjectMetadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    uid: String,
}

/// Pod that a request is about.
#[derive(Clone, Debug)]
pub(super) struct AskedPod {
    /// "namespace/name".
    pub(super) name: String,
    pub(super) uid: String,
    /// The pod as JSON.
    pub(super) object: Vec<u8>,
}

impl AskedPod {
    pub(super) fn read(raw: &RawValue) -> Result<Self, CallError> {
        let head: ObjectHead = serde_json::from_str(raw.get()).map_err(|error| unreadable("Pod", &error))?;
        let ObjectMetadata { name, namespace, uid } = head.metadata;
        if name.is_empty() {
            return Err(CallError::invalid("POD_UNNAMED", "Pod.metadata.name: empty"));
        }
        let namespace = if namespace.is_empty() { "default" } else { &namespace };
        Ok(Self {
            name: format!("{namespace}/{name}"),
            uid,
            object: raw.get().as_bytes().to_vec(),
        })
    }

    /// The pod as a task of a question, counted as kube-scheduler counts it.
    pub(super) fn task(&self) -> pb::Task {
        pb::Task {
            object: self.object.clone(),
            pod_rules: pb::PodRules::Kubernetes.into(),
            ..pb::Task::default()
        }
    }

    /// True if the pod belongs to a job, and so to a queue.
    pub(super) fn names_job(&self) -> bool {
        let (rules, limits) = (AmountRules::default(), ObjectLimits::default());
        match read_json_of(ObjectKind::Pod, &self.object, rules, limits) {
            Ok(ObjectRecord::Task(task, _)) => !task.job.is_empty(),
            // What is wrong with it is said where it is judged.
            Ok(_) | Err(_) => true,
        }
    }

    /// Key of the offer to this pod under a policy.
    pub(super) fn offer_key(&self, policy: &str) -> OfferKey {
        OfferKey {
            pod: self.name.clone(),
            uid: self.uid.clone(),
            policy: policy.to_owned(),
        }
    }
}

/// Response of filter that has an error only.
#[derive(Debug, Default, Serialize)]
struct FilterErrorMessage<'b> {
    #[serde(rename = "Nodes")]
    nodes: Option<()>,
    #[serde(rename = "NodeNames")]
    node_names: Option<()>,
    #[serde(rename = "FailedNodes")]
    failed: BTreeMap<&'b str, &'b str>,
    #[serde(rename = "FailedAndUnresolvableNodes")]
    unresolvable: BTreeMap<&'b str, &'b str>,
    #[serde(rename = "Error")]
    error: &'b str,
}

impl ExtenderFront {
    /// Answers a request: the outcome for the metrics, and the JSON to send.
    pub(super) async fn respond_kube(
        self: &Arc<Self>,
        policy: &str,
        verb: KubeVerb,
        request: Request<Body>,
    ) -> Result<(&'static str, Vec<u8>), HttpError> {
        let limits = &self.edge.read_options.limits;
        let dry = request.headers().get(DRY_RUN).is_some_and(|value| value == "true");
        let mode = if dry { ResponseMode::DryRun } else { ResponseMode::Hold };
        let body = read_body(request, &self.bodies, limits, &self.edge.metrics).await?;
        let answered = match verb {
            KubeVerb::Filter => self.filter(policy, &body.bytes, mode).await,
            KubeVerb::Prioritize => self.prioritize(policy, &body.bytes, mode).await,
            KubeVerb::Preempt => self.preempt(policy, &body.bytes).await,
            KubeVerb::Bind => self.bind(policy, &body.bytes, mode).await,
        };
        match answered {
            Ok(json) => Ok(("Ok", json)),
            Err(error) if verb == KubeVerb::Filter => {
                let error_text = error_text(&error);
                let message = FilterErrorMessage {
                    error: &error_text,
                    ..FilterErrorMessage::default()
                };
                Ok((error.reason(), to_json(&message)))
            }
            Err(error) if verb == KubeVerb::Bind => Ok((error.reason(), write_bind(&error_text(&error)))),
            // These two have no field for an error.
            Err(error) => Err((StatusCode::SERVICE_UNAVAILABLE, error_text(&error))),
        }
    }

    async fn prioritize(
        self: &Arc<Self>,
        policy: &str,
        body: &Bytes,
        mode: ResponseMode,
    ) -> Result<Vec<u8>, CallError> {
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
