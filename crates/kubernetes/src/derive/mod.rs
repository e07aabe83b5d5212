//! Derives effective amounts from pods by the rules of each scheduler. Pure: the JSON of a pod in, amounts or a task record out.
//!
//! There are five different derivations: [`kubernetes`](mod@kubernetes), its non-zero requests,
//! [`volcano`](mod@volcano), [`fit_plus`](mod@fit_plus) and [`card`](mod@card).

pub mod card;
pub mod error;
pub mod fit_plus;
pub mod kubernetes;
pub mod pod;
#[cfg(test)]
mod tests;
mod total;
mod unevaluated;
pub mod volcano;

use std::collections::BTreeMap;

pub use card::card_amounts;
pub use error::PodError;
pub use fit_plus::fit_plus_amounts;
pub use kubernetes::kubernetes_amounts;
pub use pod::Pod;
pub use unevaluated::unevaluated_pod_fields;
pub use volcano::volcano_task;

use crate::names::TASK_ROLE;
use kubernetes::{KubernetesAmounts, NonzeroRequests};
use pumice_engine::model::resource_name::{AmountError, ResourceKind, amount_in, format_in};
pub use pumice_engine::policy::PodRules;
use pumice_protocol::v1 as pb;
use volcano::{VolcanoAmounts, task_status};

/// Derivation of a task's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestDerivation {
    /// Derivation of kube-scheduler, which Koordinator shares.
    Kubernetes,
    /// Derivation of Volcano.
    Volcano,
}

impl RequestDerivation {
    /// Names that [`RequestDerivation::from_name`] accepts.
    pub const NAMES: [&str; 2] = ["kubernetes", "volcano"];

    /// Derivation of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "kubernetes" => Some(Self::Kubernetes),
            "volcano" => Some(Self::Volcano),
            _ => None,
        }
    }

    /// Derivation for `spec.schedulerName` of the pod. The default scheduler and Koordinator's schedulers, such as
    /// `koord-scheduler`, use the rules of Kubernetes; all others use the rules of Volcano.
    pub fn of(pod: &Pod) -> Self {
        match pod.scheduler_name.as_deref() {
            None | Some("default-scheduler") => Self::Kubernetes,
            Some(name) if name.starts_with("koord") => Self::Kubernetes,
            Some(_) => Self::Volcano,
        }
    }
}

/// Task record of a pod, with amounts by the rules of `derivation` and of a release, but without its name, uid, job, labels,
/// annotations and constraints. Amounts are quantity texts, exact in the scheduler's unit, without the pod itself; a list that
/// would repeat another is absent.
///
/// # Errors
/// An amount does not fit in 64 bits.
pub fn effective_task(pod: &Pod, derivation: RequestDerivation, rules: PodRules) -> Result<pb::Task, PodError> {
    let kubernetes = kubernetes_amounts(pod, rules)?;
    let (nonzero, of_containers) = (kubernetes.nonzero, kubernetes.container_nonzero);
    let plain = kubernetes
        .container_plain
        .filter(|_| !rules.balances_pod_level_resources);
    let counted = counted_texts(&kubernetes.counted);
    let (requests, limits, priority) = match derivation {
        RequestDerivation::Kubernetes => (
            counted.clone(),
            kubernetes_limits(&kubernetes)?,
            pod.priority.unwrap_or(0),
        ),
        RequestDerivation::Volcano => {
            let task = volcano_task(pod, rules)?;
            (
                volcano_texts(&task.requests)?,
                volcano_texts(&task.limit)?,
                task.priority,
            )
        }
    };
    let list = |items: QuantityTexts| pb::ResourceList { items };
    let nonzero_list = |own: NonzeroRequests| {
        let both = [("cpu", own.cpu_milli), ("memory", own.memory)].into_iter();
        list(both.map(|(name, amount)| counted_text(name, amount)).collect())
    };
    let has_own_counts = !same_amounts(&counted, &requests);
    Ok(pb::Task {
        kubernetes_requests: has_own_counts.then(|| Box::new(list(counted))),
        requests: Some(list(requests)),
        limits: Some(list(limits)).filter(|limits| !limits.items.is_empty()),
        nonzero_requests: Some(nonzero_list(nonzero)),
        container_requests: plain.map(nonzero_list).map(Box::new),
        container_nonzero_requests: (of_containers != nonzero).then(|| Box::new(nonzero_list(of_containers))),
        counted_requests: Some(list(counted_texts(&fit_plus_amounts(pod)?))),
        status: task_status(pod).into(),
        node: pod.node.clone(),
        nominated_node: pod.status.nominated_node.clone(),
        priority,
        gated: pod.gated,
        scheduling_gates: pod.scheduling_gates.clone(),
        priority_class_name: pod.priority_class.clone(),
        role: role(pod),
        ..pb::Task::default()
    })
}

/// Role of a pod in its job; empty if none.
fn role(pod: &Pod) -> String {
    let named = [&pod.annotations, &pod.labels]
        .into_iter()
        .filter_map(|texts| texts.get(TASK_ROLE));
    named
        .into_iter()
        .find(|role| !role.is_empty())
        .cloned()
        .unwrap_or_default()
}

type QuantityTexts = BTreeMap<String, String>;

/// True if both lists request the same amounts; texts of one kind are equal if their amounts are.
fn same_amounts(one: &QuantityTexts, other: &QuantityTexts) -> bool {
    let requested = |texts: &QuantityTexts| -> QuantityTexts {
        let above_zero = texts.iter().filter(|(name, text)| *text != "0" && *name != "pods");
        above_zero.map(|(name, text)| (name.clone(), text.clone())).collect()
    };
    requested(one) == requested(other)
}

/// Amounts in the units of Kubernetes.
fn counted_texts(amounts: &BTreeMap<String, i64>) -> QuantityTexts {
    let counted = amounts.iter();
    counted.map(|(name, amount)| counted_text(name, *amount)).collect()
}

/// Limits in the units of the requests: Kubernetes uses whole units for scalars.
fn kubernetes_limits(amounts: &KubernetesAmounts) -> Result<QuantityTexts, PodError> {
    let counted = amounts.limits.iter().filter(|(name, _)| {
        let kind = ResourceKind::of(name);
        kind.counted_by_kubernetes() && kind != ResourceKind::Pods
    });
    let limits = counted.map(|(name, quantity)| {
        let amount = amount_in(ResourceKind::of(name).kubernetes_unit(), name, quantity)?;
        Ok(counted_text(name, amount))
    });
    limits.collect()
}

/// Name and amount of Kubernetes, as texts.
fn counted_text(name: &str, amount: i64) -> (String, String) {
    (
        name.to_owned(),
        format_in(ResourceKind::of(name).kubernetes_unit(), name, amount.into()),
    )
}

fn volcano_texts(amounts: &VolcanoAmounts) -> Result<QuantityTexts, PodError> {
    let texts = amounts.0.iter().map(|(name, amount)| {
        let unit = ResourceKind::of(name).unit();
        if i64::try_from(amount.exact).is_err() {
            return Err(AmountError::too_large(unit, name, amount.exact).into());
        }
        Ok((name.clone(), format_in(unit, name, amount.exact)))
    });
    texts.collect()
}
