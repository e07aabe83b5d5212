//! Amounts and task fields as Volcano derives them: rounded per container, then summed (Volcano ed72c7c81).

use std::collections::BTreeMap;

use super::PodRules;
use super::error::PodError;
use super::kubernetes::{ContainerStatusSource, each_container, each_request, pod_level_entries};
use super::pod::{Pod, ResourceQuantities};
use super::total::SummableAmounts;
use crate::names::REVOCABLE_ZONE;
use pumice_engine::model::resource_name::{ResourceKind, amount};
use pumice_engine::model::{PREEMPTABLE, parse_go_bool, permits_eviction};
use pumice_protocol::v1 as pb;

/// Annotation that overrides a pod's priority.
const TASK_PRIORITY: &str = "volcano.sh/task-priority";

/// Amount in the unit of the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct VolcanoAmount {
    /// Exact sum.
    pub exact: i128,
    /// Sum as Volcano computes it: in doubles, rounded at every step.
    pub float: f64,
}

/// Amounts by name, in the unit of the engine. Only resources that Volcano schedules by and that the pod mentions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VolcanoAmounts(pub BTreeMap<String, VolcanoAmount>);

impl VolcanoAmounts {
    /// Amount of a resource; 0 if it is absent.
    pub fn get(&self, name: &str) -> VolcanoAmount {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// Amounts of a resource list by the rules of Volcano.
    pub(super) fn of(list: &ResourceQuantities) -> Result<Self, PodError> {
        let counted = list
            .iter()
            .filter(|(name, _)| ResourceKind::of(name).counted_by_volcano());
        let amounts = counted.map(|(name, quantity)| {
            let amount = amount(name, quantity)?;
            let amount = VolcanoAmount {
                exact: amount.into(),
                float: amount as f64,
            };
            Ok((name.clone(), amount))
        });
        Ok(Self(amounts.collect::<Result<_, PodError>>()?))
    }

    /// True if the amounts have nothing but `pods`.
    pub(super) fn is_best_effort(&self) -> bool {
        self.0.iter().all(|(name, amount)| name == "pods" || amount.exact == 0)
    }

    /// Amounts with one more pod.
    pub(super) fn with_pod_count(mut self) -> Self {
        let pods = self.0.entry("pods".to_owned()).or_default();
        pods.exact += 1;
        pods.float += 1.0;
        self
    }
}

impl SummableAmounts for VolcanoAmounts {
    fn add(&mut self, more: &Self) {
        for (name, amount) in &more.0 {
            let sum = self.0.entry(name.clone()).or_default();
            sum.exact += amount.exact;
            sum.float += amount.float;
        }
    }

    fn raise_to(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let own = self.0.entry(name.clone()).or_default();
            own.exact = own.exact.max(amount.exact);
            own.float = own.float.max(amount.float);
        }
    }
}

/// Volcano's task status for the phase and the deletion of a pod.
pub(super) fn task_status(pod: &Pod) -> pb::TaskStatus {
    match pod.status.phase.as_str() {
        "Running" | "Pending" if pod.deleting => pb::TaskStatus::Releasing,
        "Running" => pb::TaskStatus::Running,
        "Pending" if pod.node.is_empty() => pb::TaskStatus::Pending,
        "Pending" => pb::TaskStatus::Bound,
        "Succeeded" => pb::TaskStatus::Succeeded,
        "Failed" => pb::TaskStatus::Failed,
        _ => pb::TaskStatus::Unknown,
    }
}

/// Task that Volcano derives from a pod.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts, as Volcano's task has them"
)]
pub struct VolcanoTask {
    /// Request of the task, without the pod itself.
    pub requests: VolcanoAmounts,
    /// Limits, without the pod itself.
    pub limit: VolcanoAmounts,
    /// True if the pod requests nothing but `pods`.
    pub best_effort: bool,
    /// True if an init container keeps running.
    pub has_sidecar: bool,
    /// True if the pod has a scheduling gate.
    pub scheduling_gated: bool,
    /// Status of the pod.
    pub status: pb::TaskStatus,
    /// Node; empty if none.
    pub node: String,
    /// Priority; larger comes first.
    pub priority: i32,
    /// True if the pod may be preempted.
    pub preemptable: bool,
    /// Revocable zone: `*`, or empty.
    pub revocable_zone: String,
}

impl VolcanoTask {
    /// Request by the rules of Volcano, including one pod (`pods`).
    pub fn resreq(&self) -> VolcanoAmounts {
        self.requests.clone().with_pod_count()
    }
}

/// Derives Volcano's task from a pod, by the rules of a release.
///
/// # Errors
/// The amount of a container does not fit in 64 bits.
pub fn volcano_task(pod: &Pod, rules: PodRules) -> Result<VolcanoTask, PodError> {
    let mut amounts = each_request(pod, ContainerStatusSource::OwnList).try_map(VolcanoAmounts::of)?;
    let requests = if rules.reads_pod_level_resources {
        with_pod_level(amounts.total(), pod)?
    } else {
        // Overhead counts beside the containers, so that a larger init container hides it.
        let overhead = pod.overhead.as_ref().map(VolcanoAmounts::of).transpose()?;
        amounts.containers.extend(overhead);
        amounts.total()
    };
    Ok(VolcanoTask {
        best_effort: requests.is_best_effort(),
        requests,
        limit: limit(pod)?,
        has_sidecar: pod.init_containers.iter().any(|container| container.always_restarted),
        scheduling_gated: pod.gated,
        status: task_status(pod),
        node: pod.node.clone(),
        priority: priority(pod),
        preemptable: preemptable(pod),
        revocable_zone: revocable_zone(pod).to_owned(),
    })
}

/// Replaces amounts by those at pod level, then adds the overhead.
fn with_pod_level(mut amounts: VolcanoAmounts, pod: &Pod) -> Result<VolcanoAmounts, PodError> {
    let requests = pod.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    replace_at_pod_level(&mut amounts, requests)?;
    if let Some(overhead) = &pod.overhead {
        amounts.add(&VolcanoAmounts::of(overhead)?);
    }
    Ok(amounts)
}

fn replace_at_pod_level(amounts: &mut VolcanoAmounts, list: Option<&ResourceQuantities>) -> Result<(), PodError> {
    let counting: ResourceQuantities = pod_level_entries(list)
        .map(|(name, quantity)| (name.clone(), quantity.clone()))
        .collect();
    amounts.0.extend(VolcanoAmounts::of(&counting)?.0);
    Ok(())
}

/// Limits: of each container the larger of specification and status, whether the resize is feasible or not.
fn limit(pod: &Pod) -> Result<VolcanoAmounts, PodError> {
    let limits = each_container(pod, ContainerStatusSource::OwnList, |container, status| {
        let mut limits = container.resources.limits.clone().unwrap_or_default();
        if let Some(actual) = status.and_then(|(actual, _)| actual.limits.as_ref()) {
            limits.raise_to(actual);
        }
        limits
    });
    let mut amounts = limits.try_map(VolcanoAmounts::of)?.total();
    let limits = pod.resources.as_ref().and_then(|resources| resources.limits.as_ref());
    replace_at_pod_level(&mut amounts, limits)?;
    if let Some(overhead) = &pod.overhead {
        let mut overhead = VolcanoAmounts::of(overhead)?;
        overhead.0.retain(|name, _| amounts.get(name).exact != 0);
        amounts.add(&overhead);
    }
    Ok(amounts)
}

/// Priority: the annotation if it is a number, else the specification's, else 1.
fn priority(pod: &Pod) -> i32 {
    let annotated = pod.annotations.get(TASK_PRIORITY).and_then(|text| text.parse().ok());
    annotated.or(pod.priority).unwrap_or(1)
}

/// True if the annotation, or else the label, is a true value, or if neither exists.
fn preemptable(pod: &Pod) -> bool {
    let [annotation, label] = [&pod.annotations, &pod.labels].map(|texts| texts.get(PREEMPTABLE).map(String::as_str));
    permits_eviction(annotation, label)
}

fn revocable_zone(pod: &Pod) -> &'static str {
    let revocable = match pod.annotations.get(REVOCABLE_ZONE) {
        Some(zone) => zone == "*",
        None => pod.annotations.get(PREEMPTABLE).and_then(|word| parse_go_bool(word)) == Some(true),
    };
    if revocable { "*" } else { "" }
}
