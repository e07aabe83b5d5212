//! Tasks from pods. This module reads identity and placement; amounts are derived by the rules of the pod's scheduler.

use std::borrow::Cow;
use std::collections::BTreeMap;

use prost_types::Timestamp;
use serde_json::{Map, Value};

use super::cluster::preemption_policy;
use super::fields::{FieldError, get, list, namespaced, text, texts, time};
use super::{constraints, devices};
use crate::derive::{self, Pod, PodError, RequestDerivation};
use crate::names::{COOLDOWN, GROUP_NAME};
use pumice_engine::model::namespace_of;
use pumice_engine::model::resource_name::AmountError;
use pumice_engine::policy::{PodRules, Release};
use pumice_protocol::v1 as pb;

/// Annotations that name the pod group of a pod. The first present annotation that is not empty applies.
const GROUP_ANNOTATIONS: [&str; 2] = [GROUP_NAME, "scheduling.volcano.sh/group-name"];

/// The annotation that sets a task's priority under Volcano's rules.
const TASK_PRIORITY: &str = "volcano.sh/task-priority";

/// Rules for the amounts of pods. By all of them, amounts that no record holds and, of a pod with a node, shared devices that nobody can
/// mean do not make the pod unreadable: it lists [`UNREAD_AMOUNTS`] as not evaluated. So no text of a user hides what a pod takes from its
/// node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AmountRules {
    /// Scheduler whose rules apply to all pods; `None`: the scheduler that the pod names.
    pub derivation: Option<RequestDerivation>,
    /// Rules of the release of that scheduler.
    pub pods: PodRules,
}

/// Field that a pod lists as not evaluated if some of its amounts are.
pub const UNREAD_AMOUNTS: &str = "resources";

impl AmountRules {
    /// Rules by name: `auto`, or the name of a derivation.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let derivation = match name {
            "auto" => None,
            name => Some(RequestDerivation::from_name(name)?),
        };
        Some(Self {
            derivation,
            ..Self::default()
        })
    }

    /// Derivation with the pod rules of a release.
    #[must_use]
    pub fn of_release(self, release: Release) -> Self {
        Self {
            pods: PodRules::from(release),
            ..self
        }
    }

    /// Names that [`AmountRules::from_name`] accepts.
    pub fn names() -> impl Iterator<Item = &'static str> {
        std::iter::once("auto").chain(RequestDerivation::NAMES)
    }
}

/// Reads a v1 Pod.
pub(super) fn task(object: &Value, counting: AmountRules) -> Result<pb::Task, FieldError> {
    let name = namespaced(object)?;
    let annotations = texts(object, "metadata.annotations")?;
    // Errors name the place in the object as it was given.
    let read = Pod::read(&with_default_requests(object));
    let mut pod = read.map_err(|error| pod_field_error(Pod::read(object).err().unwrap_or(error)))?;
    let derivation = counting.derivation.unwrap_or_else(|| RequestDerivation::of(&pod));
    let rules = counting.pods;
    let (devices, unread_devices) = match devices::of_pod(object) {
        Err(_) if !pod.node.is_empty() => (None, true),
        devices => (devices?, false),
    };
    let mut unevaluated = derive::unevaluated_pod_fields(object);
    let (effective, are_bounded) = bounded_task(&mut pod, derivation, rules);
    let mut effective = effective.map_err(pod_field_error)?;
    // A pod without a phase is a manifest that no API server has seen, and waits like any new pod.
    if get(object, "status.phase").is_none() {
        effective.set_status(pb::TaskStatus::Unspecified);
    }
    unevaluated.extend((unread_devices || are_bounded).then_some(UNREAD_AMOUNTS));
    // A number of its own is that of the specification, or of the annotation where it counts.
    let annotated = annotations.get(TASK_PRIORITY).and_then(|text| text.parse().ok());
    let has_own_priority = pod.priority.is_some() || annotated == Some(effective.priority);
    let has_class = !effective.priority_class_name.is_empty() || !has_own_priority;
    let policy = preemption_policy(&text(object, "spec.preemptionPolicy")?);
    // Without a class the usual policy needs no words.
    let policy = Some(policy).filter(|policy| has_class || *policy == pb::PreemptionPolicy::Never);
    let has_cooldown = annotations.contains_key(COOLDOWN) || pod.labels.contains_key(COOLDOWN);
    let scheduled_time = if has_cooldown { scheduled_time(object)? } else { None };
    Ok(pb::Task {
        job: job(&name, &annotations, &text(object, "spec.schedulingGroup.podGroupName")?),
        name,
        uid: text(object, "metadata.uid")?,
        annotations,
        creation_time: time(object, "metadata.creationTimestamp")?,
        scheduled_time: scheduled_time.map(Box::new),
        unevaluated_fields: unevaluated.into_iter().map(str::to_owned).collect(),
        labels: pod.labels,
        constraints: constraints::of_pod(object, devices)?,
        priority_from_class: !has_own_priority,
        preemption_policy: policy.unwrap_or_default().into(),
        owner_kind: owner_kind(object)?,
        qos_class: qos_class(&text(object, "status.qosClass")?).into(),
        ..effective
    })
}

/// Quality of service by the pod's status.
fn qos_class(text: &str) -> pb::QosClass {
    match text {
        "BestEffort" => pb::QosClass::BestEffort,
        "Burstable" => pb::QosClass::Burstable,
        "Guaranteed" => pb::QosClass::Guaranteed,
        _ => pb::QosClass::Unspecified,
    }
}

/// Kind of a pod's first owner; empty if it has none.
fn owner_kind(object: &Value) -> Result<String, FieldError> {
    let owners = list(object, "metadata.ownerReferences")?;
    owners
        .first()
        .map_or_else(|| Ok(String::new()), |owner| text(owner, "kind"))
}

/// Time at which a running pod was scheduled, by its first condition that says so.
fn scheduled_time(object: &Value) -> Result<Option<Timestamp>, FieldError> {
    if text(object, "status.phase")? != "Running" {
        return Ok(None);
    }
    for condition in list(object, "status.conditions")? {
        if text(condition, "type")? == "PodScheduled" && text(condition, "status")? == "True" {
            let at = time(condition, "lastTransitionTime");
            return at.map_err(|error| FieldError::new(format!("status.conditions.{}", error.field), error.reason));
        }
    }
    Ok(None)
}

/// Task of a pod, and whether its amounts were too large for a record.
fn bounded_task(pod: &mut Pod, derivation: RequestDerivation, rules: PodRules) -> (Result<pb::Task, PodError>, bool) {
    match derive::effective_task(pod, derivation, rules) {
        Err(PodError::Amount(AmountError::TooLarge { .. })) => {
            pod.bound_amounts();
            (derive::effective_task(pod, derivation, rules), true)
        }
        effective => (effective, false),
    }
}

/// Pod as the API server would store it: a container without a request for a limited resource requests its limit.
fn with_default_requests(object: &Value) -> Cow<'_, Value> {
    let mut pod = Cow::Borrowed(object);
    for containers in ["/spec/containers", "/spec/initContainers"] {
        let list = object.pointer(containers).and_then(Value::as_array);
        for (place, container) in list.into_iter().flatten().enumerate() {
            let Some(requests) = default_requests(container) else {
                continue;
            };
            let resources = pod.to_mut().pointer_mut(&format!("{containers}/{place}/resources"));
            if let Some(resources) = resources.and_then(Value::as_object_mut) {
                resources.insert("requests".to_owned(), Value::Object(requests));
            }
        }
    }
    pod
}

/// Requests of a container with its limits filled in; `None` if that changes nothing.
fn default_requests(container: &Value) -> Option<Map<String, Value>> {
    let limits = get(container, "resources.limits")?.as_object()?;
    let own = match get(container, "resources.requests") {
        Some(own) => Some(own.as_object()?),
        None => None,
    };
    let has_request = |name: &str| own.is_some_and(|own| own.contains_key(name));
    if limits.keys().all(|name| has_request(name)) {
        return None;
    }
    let mut requests = own.cloned().unwrap_or_default();
    for (name, amount) in limits {
        requests.entry(name).or_insert_with(|| amount.clone());
    }
    Some(requests)
}

/// Job of a pod: Volcano's annotations come before the group of `scheduling.k8s.io`.
fn job(pod: &str, annotations: &BTreeMap<String, String>, own_group: &str) -> String {
    let namespace = namespace_of(pod);
    let group = GROUP_ANNOTATIONS.iter().find_map(|key| {
        annotations
            .get(*key)
            .map(String::as_str)
            .filter(|group| !group.is_empty())
    });
    let group = group.or((!own_group.is_empty()).then_some(own_group));
    group.map(|group| format!("{namespace}/{group}")).unwrap_or_default()
}

fn pod_field_error(error: PodError) -> FieldError {
    match error {
        PodError::Type { path, expected } => FieldError::new(path, format!("is not {expected}")),
        PodError::Quantity { path, error } => FieldError::new(path, error.to_string()),
        PodError::Negative { path, quantity } => FieldError::new(path, format!("`{quantity}` is negative")),
        PodError::Amount(error) => FieldError::new("spec", error.to_string()),
    }
}

/// Notes about properties of the pod that no amount shows.
pub(crate) fn notes(object: &Value) -> Vec<&'static str> {
    let mut notes = Vec::new();
    let containers = list(object, "spec.containers").unwrap_or_default();
    let limits = containers
        .iter()
        .filter_map(|container| get(container, "resources.limits")?.as_object());
    if limits
        .flat_map(Map::keys)
        .any(|name| name.starts_with("volcano.sh/vgpu"))
    {
        notes.push("pods with volcano.sh/vgpu…: counted as plain numbers, not card by card");
    }
    notes
}
