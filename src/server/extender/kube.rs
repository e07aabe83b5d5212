//! kube-scheduler's extender protocol: its messages, read from JSON with Go's names, and its verbs.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode};
use pumice_kubernetes::object::{AmountRules, ObjectKind, ObjectLimits, ObjectRecord, read_json_of};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::body::read_body;
use super::kube_bind::write_bind;
use super::offers::OfferKey;
use super::requests::{read_json, to_json, unreadable};
use super::{DRY_RUN, ExtenderFront, HttpError, ResponseMode, error_text};
use crate::server::pb;
use crate::server::status::CallError;

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

/// Request of filter and prioritize.
#[derive(Debug, Deserialize)]
struct NodesMessage<'b> {
    #[serde(rename = "Pod", borrow)]
    pod: &'b RawValue,
    #[serde(rename = "Nodes", borrow, default)]
    nodes: Option<NodeList<'b>>,
    #[serde(rename = "NodeNames", default)]
    node_names: Option<Vec<String>>,
}

/// List of whole nodes.
#[derive(Debug, Deserialize)]
struct NodeList<'b> {
    #[serde(borrow, default)]
    items: Option<Vec<&'b RawValue>>,
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

/// Nodes that a request is about, in its order.
#[derive(Debug)]
pub(super) struct AskedNodes {
    pub(super) names: Vec<String>,
    /// Where each whole node is in the body; `None`: the request names nodes only.
    pub(super) whole: Option<Vec<Range<usize>>>,
}

/// Reads a request of filter or prioritize.
pub(super) fn read_nodes_message(body: &Bytes) -> Result<(AskedPod, AskedNodes), CallError> {
    let message: NodesMessage<'_> = read_json(body)?;
    let pod = AskedPod::read(message.pod)?;
    let (names, whole) = match (message.nodes, message.node_names) {
        (Some(list), _) => {
            let items = list.items.unwrap_or_default();
            let start = body.as_ptr().addr();
            let mut names = Vec::with_capacity(items.len());
            let mut places = Vec::with_capacity(items.len());
            for (index, item) in items.into_iter().enumerate() {
                let head: ObjectHead = serde_json::from_str(item.get())
                    .map_err(|error| unreadable(&format!("Nodes.items[{index}]"), &error))?;
                names.push(head.metadata.name);
                let at = item.get().as_ptr().addr().saturating_sub(start);
                places.push(at..at + item.get().len());
            }
            (names, Some(places))
        }
        (None, Some(names)) => (names, None),
        (None, None) => {
            let message = "Nodes and NodeNames: both are absent";
            return Err(CallError::invalid("NODES_MISSING", message));
        }
    };
    Ok((pod, AskedNodes { names, whole }))
}

/// Response of filter. Exactly one of both lists of nodes is there, as in the request.
#[derive(Debug, Default, Serialize)]
struct FilterMessage<'b> {
    #[serde(rename = "Nodes")]
    nodes: Option<NodeListMessage<'b>>,
    #[serde(rename = "NodeNames")]
    node_names: Option<Vec<&'b str>>,
    #[serde(rename = "FailedNodes")]
    failed: BTreeMap<&'b str, &'b str>,
    #[serde(rename = "FailedAndUnresolvableNodes")]
    unresolvable: BTreeMap<&'b str, &'b str>,
    #[serde(rename = "Error")]
    error: &'b str,
}

#[derive(Debug, Serialize)]
struct NodeListMessage<'b> {
    metadata: BTreeMap<&'b str, &'b str>,
    items: Vec<&'b RawValue>,
}

/// Verdict on one node of a filter request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NodeVerdict {
    /// The pod may run there.
    Fits,
    /// It may not, and evictions may change that.
    Fails(Arc<str>),
    /// It may not, whatever is evicted.
    NeverFits(Arc<str>),
}

/// Writes a response of filter: a verdict on each node of the request.
pub(super) fn write_filter(body: &Bytes, nodes: &AskedNodes, verdicts: &[NodeVerdict]) -> Vec<u8> {
    let mut message = FilterMessage::default();
    let mut fitting = Vec::new();
    for (index, (name, verdict)) in nodes.names.iter().zip(verdicts).enumerate() {
        match verdict {
            NodeVerdict::Fits => fitting.push((index, name.as_str())),
            NodeVerdict::Fails(reason) => drop(message.failed.insert(name, reason)),
            NodeVerdict::NeverFits(reason) => drop(message.unresolvable.insert(name, reason)),
        }
    }
    match &nodes.whole {
        None => message.node_names = Some(fitting.into_iter().map(|(_, name)| name).collect()),
        Some(places) => {
            let raw = |(index, _): (usize, &str)| {
                let bytes = body.get(places.get(index)?.clone())?;
                serde_json::from_slice::<&RawValue>(bytes).ok()
            };
            message.nodes = Some(NodeListMessage {
                metadata: BTreeMap::new(),
                items: fitting.into_iter().filter_map(raw).collect(),
            });
        }
    }
    to_json(&message)
}

/// Score of one node in a response of prioritize.
#[derive(Debug, Serialize)]
pub(super) struct HostScore<'n> {
    #[serde(rename = "Host")]
    pub(super) host: &'n str,
    #[serde(rename = "Score")]
    pub(super) score: i64,
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
                let message = FilterMessage {
                    error: &error_text,
                    ..FilterMessage::default()
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
        let hosts = nodes.names.iter().zip(scores);
        let message: Vec<HostScore<'_>> = hosts.map(|(host, score)| HostScore { host, score }).collect();
        Ok(to_json(&message))
    }
}
