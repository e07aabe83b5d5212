//! Amounts by the rules of kube-scheduler: exact sums, rounded once per pod (Kubernetes 1.36.1 and 1.35.6). For
//! example, 100.4m and 100.4m cpu are 201m.

use std::collections::BTreeMap;

use super::PodRules;
use super::error::PodError;
use super::pod::{ContainerStatus, Pod, PodContainer, ResourceQuantities, ResourceRequirements};
use super::total::{ContainerAmounts, SummableAmounts};
use pumice_engine::model::quantity::{Quantity, QuantityFormat};
use pumice_engine::model::resource_name::{ResourceKind, amount_in};

/// Cpu that kube-scheduler assumes for a container without a cpu request, in thousandths of a core.
pub const DEFAULT_CPU_MILLI: i64 = 100;
/// Memory that kube-scheduler assumes for a container without a memory request, in bytes.
pub const DEFAULT_MEMORY: i64 = 200 << 20;

/// Amounts of a pod in Kubernetes.
#[derive(Clone, Debug)]
pub struct KubernetesAmounts {
    /// Effective requests, exact, under all names.
    pub requests: ResourceQuantities,
    /// Effective limits, exact, under all names.
    pub limits: ResourceQuantities,
    /// Amounts that the pod adds to a node's usage: cpu in thousandths, other resources in whole units. Only resource
    /// names that Kubernetes schedules by, without `pods`. A requested 0 is present.
    pub counted: BTreeMap<String, i64>,
    /// Non-zero requests: cpu and memory, with the defaults for containers that do not request them.
    pub nonzero: NonzeroRequests,
    /// Non-zero requests of the containers and the overhead alone, without the pod's own level.
    pub container_nonzero: NonzeroRequests,
    /// Requests of the containers alone, without defaults. `None`: equal to the pod's.
    pub container_plain: Option<NonzeroRequests>,
}

/// Non-zero requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NonzeroRequests {
    /// Cpu in thousandths of a core.
    pub cpu_milli: i64,
    /// Memory in bytes.
    pub memory: i64,
}

/// Derives a pod's amounts in Kubernetes, by the rules of a release.
///
/// # Errors
/// An amount does not fit in 64 bits.
pub fn kubernetes_amounts(pod: &Pod, rules: PodRules) -> Result<KubernetesAmounts, PodError> {
    let requests = requests(pod, rules, &ResourceQuantities::new());
    let mut counted = BTreeMap::new();
    for (name, quantity) in &requests {
        let kind = ResourceKind::of(name);
        if kind.counted_by_kubernetes() && kind != ResourceKind::Pods {
            counted.insert(name.clone(), amount_in(kind.kubernetes_unit(), name, quantity)?);
        }
    }
    let nonzero = nonzero(pod, rules, &requests)?;
    let of_containers = |missing: &ResourceQuantities| {
        let mut total = container_requests(pod, ContainerStatusSource::EitherList, missing);
        if let Some(overhead) = &pod.overhead {
            total.add(overhead);
        }
        NonzeroRequests::of(&total)
    };
    let (container_nonzero, container_plain) = if pod_level_requests(pod).next().is_none() {
        (nonzero, None)
    } else {
        let plain = of_containers(&ResourceQuantities::new())?;
        (of_containers(&nonzero_defaults())?, Some(plain))
    };
    Ok(KubernetesAmounts {
        limits: limits(pod, rules),
        requests,
        counted,
        nonzero,
        container_nonzero,
        container_plain,
    })
}

/// Effective requests; `missing` gives the amounts that a container does not name.
fn requests(pod: &Pod, rules: PodRules, missing: &ResourceQuantities) -> ResourceQuantities {
    let mut requests = container_requests(pod, ContainerStatusSource::EitherList, missing);
    raise_pod_level(&mut requests, pod, rules);
    if let Some(overhead) = &pod.overhead {
        requests.add(overhead);
    }
    requests
}

fn nonzero(pod: &Pod, rules: PodRules, requests: &ResourceQuantities) -> Result<NonzeroRequests, PodError> {
    let mut missing = nonzero_defaults();
    if pod_level_requests(pod).next().is_some() {
        missing.retain(|name, _| !requests.contains_key(name));
    }
    NonzeroRequests::of(&self::requests(pod, rules, &missing))
}

/// Amounts of a container that requests no cpu or memory.
fn nonzero_defaults() -> ResourceQuantities {
    let cpu = Quantity::from_milli(DEFAULT_CPU_MILLI);
    let memory = Quantity::from_whole(DEFAULT_MEMORY, QuantityFormat::BinarySi);
    ResourceQuantities::from([("cpu".to_owned(), cpu), ("memory".to_owned(), memory)])
}

impl NonzeroRequests {
    /// Cpu and memory of a total.
    fn of(total: &ResourceQuantities) -> Result<Self, PodError> {
        let amount = |name: &str| match total.get(name) {
            Some(quantity) => amount_in(ResourceKind::of(name).kubernetes_unit(), name, quantity),
            None => Ok(0),
        };
        Ok(Self {
            cpu_milli: amount("cpu")?,
            memory: amount("memory")?,
        })
    }
}

/// Status entries that replace a container's own resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContainerStatusSource {
    /// Only the specification is used.
    Ignored,
    /// Entries of the container's own list, as in Volcano.
    OwnList,
    /// Entries of the container's name in either list, init containers first, as in Kubernetes.
    EitherList,
}

/// Status of a container: its `resources`, and the whole entry.
pub(super) type StatusResources<'p> = (&'p ResourceRequirements, &'p ContainerStatus);

/// Amounts of each container, as `read` takes them from the container and its status, if that has `resources` set. Of init
/// containers, only the status of sidecars is used.
pub(super) fn each_container<T>(
    pod: &Pod,
    statuses: ContainerStatusSource,
    read: impl Fn(&PodContainer, Option<StatusResources<'_>>) -> T,
) -> ContainerAmounts<T> {
    let containers = pod.containers.iter();
    let inits = pod.init_containers.iter();
    ContainerAmounts {
        containers: containers
            .map(|container| read(container, status_of(pod, statuses, container, &pod.status.containers)))
            .collect(),
        inits: inits
            .map(|container| {
                let is_sidecar = container.always_restarted;
                let status = status_of(pod, statuses, container, &pod.status.init_containers);
                (is_sidecar, read(container, status.filter(|_| is_sidecar)))
            })
            .collect(),
    }
}

fn status_of<'a>(
    pod: &'a Pod,
    statuses: ContainerStatusSource,
    container: &PodContainer,
    own: &'a [ContainerStatus],
) -> Option<StatusResources<'a>> {
    let last = |list: &'a [ContainerStatus]| list.iter().rev().find(|entry| entry.name == container.name);
    let entry = match statuses {
        ContainerStatusSource::Ignored => None,
        ContainerStatusSource::OwnList => last(own),
        ContainerStatusSource::EitherList => last(&pod.status.init_containers).or_else(|| last(&pod.status.containers)),
    }?;
    Some((entry.resources.as_ref()?, entry))
}

/// Request of a container. During a resize: the maximum of its specified, running and allocated requests; if the
/// resize is infeasible, without the specified ones.
pub(super) fn effective_requests(
    pod: &Pod,
    spec: Option<&ResourceQuantities>,
    actual: Option<&ResourceQuantities>,
    allocated: Option<&ResourceQuantities>,
) -> ResourceQuantities {
    let spec = spec.filter(|_| !pod.status.resize_infeasible);
    let mut effective = ResourceQuantities::new();
    for list in [spec, actual, allocated].into_iter().flatten() {
        effective.raise_to(list);
    }
    effective
}

/// Requests of each container, according to `statuses`.
pub(super) fn each_request(pod: &Pod, statuses: ContainerStatusSource) -> ContainerAmounts<ResourceQuantities> {
    each_container(pod, statuses, |container, status| {
        let spec = container.resources.requests.as_ref();
        match status {
            Some((actual, entry)) => effective_requests(pod, spec, actual.requests.as_ref(), entry.allocated.as_ref()),
            None => spec.cloned().unwrap_or_default(),
        }
    })
}

/// Requests over all containers, without pod level and overhead.
pub(super) fn container_requests(
    pod: &Pod,
    statuses: ContainerStatusSource,
    missing: &ResourceQuantities,
) -> ResourceQuantities {
    let mut all = each_request(pod, statuses);
    let inits = all.inits.iter_mut().map(|(_, own)| own);
    for requests in all.containers.iter_mut().chain(inits) {
        for (name, quantity) in missing {
            requests.entry(name.clone()).or_insert_with(|| quantity.clone());
        }
    }
    all.total()
}

/// Limits over all containers, without pod level and overhead.
pub(super) fn container_limits(pod: &Pod, statuses: ContainerStatusSource) -> ResourceQuantities {
    let limits = each_container(pod, statuses, |container, status| {
        let spec = container.resources.limits.as_ref();
        let effective = match status {
            Some((actual, _)) => effective_limits(pod, spec, actual.limits.as_ref()),
            None => spec.cloned(),
        };
        effective.unwrap_or_default()
    });
    limits.total()
}

/// Limits during a resize; if the resize is infeasible, the running limits, or none.
fn effective_limits(
    pod: &Pod,
    spec: Option<&ResourceQuantities>,
    actual: Option<&ResourceQuantities>,
) -> Option<ResourceQuantities> {
    if pod.status.resize_infeasible {
        return actual.cloned();
    }
    let mut effective = spec.cloned().unwrap_or_default();
    if let Some(actual) = actual {
        effective.raise_to(actual);
    }
    Some(effective)
}

fn limits(pod: &Pod, rules: PodRules) -> ResourceQuantities {
    let mut limits = container_limits(pod, ContainerStatusSource::EitherList);
    let status = pod_level_status(pod, rules);
    let spec = pod.resources.as_ref().and_then(|resources| resources.limits.as_ref());
    let effective = status.and_then(|status| effective_limits(pod, spec, status.limits.as_ref()));
    for (name, quantity) in pod_level_entries(spec) {
        limits.insert(name.clone(), pod_level_amount(effective.as_ref(), name, quantity));
    }
    add_overhead_to_limits(&mut limits, pod);
    limits
}

/// Adds overhead to the limits that are present and not 0.
pub(super) fn add_overhead_to_limits(limits: &mut ResourceQuantities, pod: &Pod) {
    let mut overhead = pod.overhead.clone().unwrap_or_default();
    overhead.retain(|name, _| limits.get(name).is_some_and(|limit| !limit.is_zero()));
    limits.add(&overhead);
}

/// Replaces requests by the requests at pod level.
fn raise_pod_level(requests: &mut ResourceQuantities, pod: &Pod, rules: PodRules) {
    let spec = pod.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let effective = pod_level_status(pod, rules)
        .map(|status| effective_requests(pod, spec, status.requests.as_ref(), pod.status.allocated.as_ref()));
    for (name, quantity) in pod_level_requests(pod) {
        requests.insert(name.clone(), pod_level_amount(effective.as_ref(), name, quantity));
    }
}

/// Status at pod level, if the release uses it.
fn pod_level_status(pod: &Pod, rules: PodRules) -> Option<&ResourceRequirements> {
    pod.status.resources.as_ref().filter(|_| rules.resizes_pod_level)
}

/// Amount of a name at pod level: the specified one, or during a resize the effective one, which is 0 for a name that
/// the status lacks.
fn pod_level_amount(effective: Option<&ResourceQuantities>, name: &str, specified: &Quantity) -> Quantity {
    match effective {
        None => specified.clone(),
        Some(effective) => effective
            .get(name)
            .cloned()
            .unwrap_or(Quantity::zero(QuantityFormat::DecimalExponent)),
    }
}

/// Valid requests at pod level: cpu, memory and huge pages.
pub(super) fn pod_level_requests(pod: &Pod) -> impl Iterator<Item = (&String, &Quantity)> {
    pod_level_entries(pod.resources.as_ref().and_then(|resources| resources.requests.as_ref()))
}

/// Entries whose names are valid at pod level.
pub(super) fn pod_level_entries(list: Option<&ResourceQuantities>) -> impl Iterator<Item = (&String, &Quantity)> {
    let counts = |name: &str| matches!(name, "cpu" | "memory") || name.starts_with("hugepages-");
    list.into_iter().flatten().filter(move |(name, _)| counts(name))
}
