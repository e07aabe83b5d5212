//! Amounts as the capacity-card plugin derives them (Volcano 61a5f00e0, on Kubernetes 1.34.1).

use super::error::PodError;
use super::kubernetes::{
    ContainerStatusSource, add_overhead_to_limits, container_limits, container_requests, each_request,
};
use super::pod::{Pod, ResourceQuantities};
use super::total::SummableAmounts;
use super::volcano::VolcanoAmounts;
use pumice_engine::model::resource_name::{AmountError, AmountUnit, amount_in};

/// Amounts that capacity-card derives from a pod.
#[derive(Clone, Debug)]
pub struct CardAmounts {
    /// Effective requests, exact: with resize status and overhead, without pod level.
    pub requests: ResourceQuantities,
    /// Effective limits, exact: with overhead, without resize status and pod level.
    pub limits: ResourceQuantities,
    /// Task's request of that commit, including one pod (`pods`). Overhead is added before the maximum with init
    /// containers. Requests at pod level and resize status are ignored.
    pub resreq: VolcanoAmounts,
    /// True if the pod requests nothing but `pods`.
    pub best_effort: bool,
}

/// Error of counting a pod's cards.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CardError {
    /// The card's resource is neither limited nor requested.
    #[error("no resource `{resource}` in the pod's requests or limits")]
    Missing {
        /// Name of the resource.
        resource: String,
    },
    /// The number does not fit.
    #[error(transparent)]
    Amount(#[from] AmountError),
}

impl CardAmounts {
    /// Thousandths of cards of a resource: its effective limit, else its effective request, rounded up to whole cards.
    ///
    /// # Errors
    /// The pod names the resource in neither, or the number does not fit in 64 bits.
    pub fn cards_milli(&self, resource: &str) -> Result<i64, CardError> {
        let quantity = self.limits.get(resource).or_else(|| self.requests.get(resource));
        let missing = || CardError::Missing {
            resource: resource.to_owned(),
        };
        let cards = amount_in(AmountUnit::Whole, resource, quantity.ok_or_else(missing)?)?;
        let too_large = || AmountError::too_large(AmountUnit::Milli, resource, i128::from(cards) * 1000);
        cards.checked_mul(1000).ok_or_else(|| too_large().into())
    }
}

/// Derives the amounts of capacity-card from a pod.
///
/// # Errors
/// The amount of a container does not fit in 64 bits.
pub fn card_amounts(pod: &Pod) -> Result<CardAmounts, PodError> {
    let mut requests = container_requests(pod, ContainerStatusSource::EitherList, &ResourceQuantities::new());
    if let Some(overhead) = &pod.overhead {
        requests.add(overhead);
    }
    let mut limits = container_limits(pod, ContainerStatusSource::Ignored);
    add_overhead_to_limits(&mut limits, pod);
    let resreq = resreq(pod)?;
    Ok(CardAmounts {
        requests,
        limits,
        best_effort: resreq.is_best_effort(),
        resreq,
    })
}

fn resreq(pod: &Pod) -> Result<VolcanoAmounts, PodError> {
    let mut amounts = each_request(pod, ContainerStatusSource::Ignored).try_map(VolcanoAmounts::of)?;
    // The overhead is one more container: it counts besides the others, and before the maximum.
    let overhead = pod.overhead.as_ref().map(VolcanoAmounts::of).transpose()?;
    amounts.containers.extend(overhead);
    Ok(amounts.total().with_pod_count())
}
