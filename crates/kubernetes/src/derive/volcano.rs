//! Amounts and task fields as Volcano derives them: rounded per container, then summed (Volcano ed72c7c81).

use std::collections::BTreeMap;

use super::PodRules;
use super::error::PodError;
use super::kubernetes::{
    ContainerStatusSource, each_container_requests, each_init_requests, pod_level_entries, status_of,
};
use super::pod::{ContainerStatus, Pod, PodContainer, ResourceQuantities};
use super::total::{InitAmounts, SummableAmounts, pod_total};
use pumice_engine::model::resource_name::{ResourceKind, amount};

/// Annotation and label that make a pod preemptable.
const PREEMPTABLE: &str = "volcano.sh/preemptable";
/// Annotation that allows a pod on revocable nodes.
const REVOCABLE_ZONE: &str = "volcano.sh/revocable-zone";
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

/// Status of a pod, in Volcano's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodTaskStatus {
    /// The pod has no node.
    Pending,
    /// The pod has a node, and does not run yet.
    Bound,
    /// The pod runs.
    Running,
    /// The pod is being deleted.
    Releasing,
    /// The pod has succeeded.
    Succeeded,
    /// The pod has failed.
    Failed,
    /// The pod has another phase, or none.
    Unknown,
}

impl PodTaskStatus {
    /// Volcano's task status for the phase and the deletion of a pod.
    pub fn of(pod: &Pod) -> Self {
        match pod.status.phase.as_str() {
            "Running" | "Pending" if pod.deleting => Self::Releasing,
            "Running" => Self::Running,
            "Pending" if pod.node.is_empty() => Self::Pending,
            "Pending" => Self::Bound,
            "Succeeded" => Self::Succeeded,
            "Failed" => Self::Failed,
            _ => Self::Unknown,
        }
    }

    /// Volcano's name of the status.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Bound => "Bound",
            Self::Running => "Running",
            Self::Releasing => "Releasing",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Unknown => "Unknown",
        }
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
    pub status: PodTaskStatus,
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
    let containers = volcano_amounts(&each_container_requests(pod, ContainerStatusSource::OwnList))?;
    let inits = each_init_requests(pod, ContainerStatusSource::OwnList);
    let inits = inits.into_iter().map(|init| {
        Ok(InitAmounts {
            sidecar: init.sidecar,
            amounts: VolcanoAmounts::of(&init.amounts)?,
        })
    });
    let inits = inits.collect::<Result<Vec<_>, PodError>>()?;
    let requests = if rules.reads_pod_level_resources {
        with_pod_level(pod_total(&containers, &inits), pod)?
    } else {
        // Overhead counts beside the containers, so that a larger init container hides it.
        let overhead = pod.overhead.as_ref().map(VolcanoAmounts::of).transpose()?;
        let beside: Vec<VolcanoAmounts> = containers.into_iter().chain(overhead).collect();
        pod_total(&beside, &inits)
    };
    Ok(VolcanoTask {
        best_effort: requests.is_best_effort(),
        requests,
        limit: limit(pod)?,
        has_sidecar: pod.init_containers.iter().any(|container| container.always_restarted),
        scheduling_gated: pod.gated,
        status: PodTaskStatus::of(pod),
        node: pod.node.clone(),
        priority: priority(pod),
        preemptable: preemptable(pod),
        revocable_zone: revocable_zone(pod).to_owned(),
    })
}

fn volcano_amounts(lists: &[ResourceQuantities]) -> Result<Vec<VolcanoAmounts>, PodError> {
    lists.iter().map(VolcanoAmounts::of).collect()
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

fn limit(pod: &Pod) -> Result<VolcanoAmounts, PodError> {
    let containers = pod
        .containers
        .iter()
        .map(|container| container_limit(pod, ContainerStatusSource::OwnList, container, &pod.status.containers));
    let inits = pod.init_containers.iter().map(|container| {
        let sidecar = container.always_restarted;
        let statuses = if sidecar {
            ContainerStatusSource::OwnList
        } else {
            ContainerStatusSource::Ignored
        };
        let amounts = container_limit(pod, statuses, container, &pod.status.init_containers)?;
        Ok(InitAmounts { sidecar, amounts })
    });
    let containers = containers.collect::<Result<Vec<_>, PodError>>()?;
    let inits = inits.collect::<Result<Vec<_>, PodError>>()?;
    let mut amounts = pod_total(&containers, &inits);
    let limits = pod.resources.as_ref().and_then(|resources| resources.limits.as_ref());
    replace_at_pod_level(&mut amounts, limits)?;
    if let Some(overhead) = &pod.overhead {
        let mut overhead = VolcanoAmounts::of(overhead)?;
        overhead.0.retain(|name, _| amounts.get(name).exact != 0);
        amounts.add(&overhead);
    }
    Ok(amounts)
}

/// Limits of a container: the larger of specification and status, whether the resize is feasible or not.
fn container_limit(
    pod: &Pod,
    statuses: ContainerStatusSource,
    container: &PodContainer,
    own: &[ContainerStatus],
) -> Result<VolcanoAmounts, PodError> {
    let mut limits = container.resources.limits.clone().unwrap_or_default();
    if let Some((actual, _)) = status_of(pod, statuses, container, own)
        && let Some(actual) = &actual.limits
    {
        limits.raise_to(actual);
    }
    VolcanoAmounts::of(&limits)
}

/// Priority: the annotation if it is a number, else the specification's, else 1.
fn priority(pod: &Pod) -> i32 {
    let annotated = pod.annotations.get(TASK_PRIORITY).and_then(|text| text.parse().ok());
    annotated.or(pod.priority).unwrap_or(1)
}

/// True if the annotation, or else the label, is a true value, or if neither exists.
fn preemptable(pod: &Pod) -> bool {
    let value = pod.annotations.get(PREEMPTABLE).or_else(|| pod.labels.get(PREEMPTABLE));
    value.is_none_or(|value| parse_go_bool(value) == Some(true))
}

fn revocable_zone(pod: &Pod) -> &'static str {
    let preemptable = || pod.annotations.get(PREEMPTABLE).and_then(|value| parse_go_bool(value));
    let revocable = match pod.annotations.get(REVOCABLE_ZONE) {
        Some(zone) => zone == "*",
        None => preemptable() == Some(true),
    };
    if revocable { "*" } else { "" }
}

/// Parses a truth value in Go's spelling.
fn parse_go_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}
