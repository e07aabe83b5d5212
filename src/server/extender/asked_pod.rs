//! Pod that a request of kube-scheduler is about.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::offers::OfferKey;
use super::requests::unreadable;
use crate::server::pb;
use crate::server::status::{CallError, RpcResult};
use pumice_engine::model::ErrorCode;
use pumice_kubernetes::object::{AmountRules, ObjectKind, ObjectLimits, ObjectRecord, read_json_of};

/// Pod that a request is about.
#[derive(Clone, Debug)]
pub(super) struct AskedPod {
    /// "namespace/name".
    pub(super) name: String,
    pub(super) uid: String,
    /// The pod as JSON.
    pub(super) object: Vec<u8>,
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

impl AskedPod {
    pub(super) fn read(raw: &RawValue) -> RpcResult<Self> {
        let head: ObjectHead = serde_json::from_str(raw.get()).map_err(|error| unreadable("Pod", &error))?;
        let ObjectMetadata { name, namespace, uid } = head.metadata;
        if name.is_empty() {
            return Err(CallError::new(ErrorCode::PodUnnamed, "Pod.metadata.name: empty"));
        }
        let namespace = if namespace.is_empty() { "default" } else { &namespace };
        Ok(Self {
            name: format!("{namespace}/{name}"),
            uid,
            object: raw.get().as_bytes().to_vec(),
        })
    }

    /// The pod as a task of a query, by the rules of kube-scheduler.
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
            Ok(ObjectRecord::Task(task, ..)) => !task.job.is_empty(),
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
