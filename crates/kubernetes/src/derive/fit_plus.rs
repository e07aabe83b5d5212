//! Amounts that `NodeResourcesFitPlus` adds to a node for a pod (Koordinator a7a1b76b, on Kubernetes 1.35.6).

use std::collections::BTreeMap;

use super::error::PodError;
use super::kubernetes::{
    ContainerStatusSource, DEFAULT_CPU_MILLI, DEFAULT_MEMORY, container_requests, pod_level_requests,
};
use super::pod::{Pod, PodContainer, ResourceQuantities};
use super::total::SummableAmounts;
use pumice_engine::model::resource_name::{AmountError, AmountUnit, ResourceKind, amount_in};

/// Amounts of the names that the pod requests: cpu in thousandths, the rest in whole units, rounded per container.
///
/// Names come from the effective request. Amounts come from containers, init containers in order (unlike in Kubernetes)
/// and overhead, which is rounded to whole units, even for cpu. Upstream crashes on a pod with overhead. These amounts
/// are the amounts of upstream with its feature gate enabled.
///
/// # Errors
/// An amount does not fit in 64 bits.
pub fn fit_plus_amounts(pod: &Pod) -> Result<BTreeMap<String, i64>, PodError> {
    let mut requests = container_requests(pod, ContainerStatusSource::Ignored, &ResourceQuantities::new());
    for (name, quantity) in pod_level_requests(pod) {
        requests.insert(name.clone(), quantity.clone());
    }
    if let Some(overhead) = &pod.overhead {
        requests.add(overhead);
    }
    let mut amounts = BTreeMap::new();
    for (name, quantity) in &requests {
        let kind = ResourceKind::of(name);
        if !kind.counted_by_kubernetes() || kind == ResourceKind::Pods {
            continue;
        }
        if amount_in(kind.kubernetes_unit(), name, quantity)? > 0 {
            amounts.insert(name.clone(), added_amount(pod, name, kind)?);
        }
    }
    Ok(amounts)
}

/// Amount that one resource of the node grows by.
fn added_amount(pod: &Pod, name: &str, kind: ResourceKind) -> Result<i64, PodError> {
    let mut sum = 0_i128;
    for container in &pod.containers {
        sum += i128::from(container_amount(container, name, kind)?);
    }
    for container in &pod.init_containers {
        let amount = i128::from(container_amount(container, name, kind)?);
        sum = if container.always_restarted {
            sum + amount
        } else {
            sum.max(amount)
        };
    }
    if let Some(quantity) = pod.overhead.as_ref().and_then(|overhead| overhead.get(name)) {
        sum += i128::from(amount_in(AmountUnit::Whole, name, quantity)?);
    }
    i64::try_from(sum).map_err(|_| AmountError::too_large(kind.kubernetes_unit(), name, sum).into())
}

/// Request of a container, or the default for a cpu or memory request that it lacks.
fn container_amount(container: &PodContainer, name: &str, kind: ResourceKind) -> Result<i64, AmountError> {
    match container
        .resources
        .requests
        .as_ref()
        .and_then(|requests| requests.get(name))
    {
        Some(quantity) => amount_in(kind.kubernetes_unit(), name, quantity),
        None if kind == ResourceKind::Cpu => Ok(DEFAULT_CPU_MILLI),
        None if kind == ResourceKind::Memory => Ok(DEFAULT_MEMORY),
        None => Ok(0),
    }
}
