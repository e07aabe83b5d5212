//! Dominant shares: the largest part of any resource of the cluster that amounts take.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::super::queue_accounts::PresentTotals;
use super::resource_set::ResourceSet;
use crate::held_bytes::held_bytes;
use crate::model::{ClusterState, MIN_AMOUNT, ResourceAmounts, ResourceId, ResourceTotals};
use crate::policy::Compatibility;

/// Exact amounts, one per resource of [`ShareDimensions`].
pub(super) type ExactAmounts = SmallVec<[i128; 4]>;

/// Same amounts as floats, which the formulas read.
pub(super) type FloatAmounts = SmallVec<[f64; 4]>;

/// Resources that count, in the order of all comparisons: cpu, memory, then by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ShareDimensions {
    resources: Vec<(ResourceId, Arc<str>)>,
    /// Position by resource id.
    position_by_id: Vec<Option<usize>>,
    /// Total of the cluster.
    total: ExactAmounts,
    /// Divisors of shares: the total, and infinity where the cluster has less than [`MIN_AMOUNT`], so that the share is
    /// 0.
    pub(super) divisors: FloatAmounts,
}

held_bytes! { ShareDimensions { resources, position_by_id, total, divisors } }

impl ShareDimensions {
    /// Resources of all nodes that count and of these tasks' requests.
    pub(super) fn of<'a>(
        cluster_state: &ClusterState,
        compatibility: Compatibility,
        requests: impl Iterator<Item = &'a ResourceAmounts>,
    ) -> Self {
        let table = cluster_state.resources();
        let mut totals: Vec<Option<i128>> = vec![None; table.len()];
        for (id, total) in PresentTotals::of(cluster_state, compatibility).iter() {
            if let Some(own) = totals.get_mut(id.index()) {
                *own = Some(total);
            }
        }
        for (id, _) in requests.flat_map(ResourceAmounts::iter) {
            if let Some(total) = totals.get_mut(id.index()) {
                total.get_or_insert(0);
            }
        }
        let wanted = (0..)
            .map(ResourceId)
            .zip(&totals)
            .filter(|(id, total)| total.is_some() && table.is_counted_by_volcano(*id));
        let mut resources: Vec<(ResourceId, Arc<str>)> = wanted
            .filter_map(|(id, _)| Some((id, Arc::clone(table.shared_name(id)?))))
            .collect();
        resources.sort_by(|a, b| resource_order(a).cmp(&resource_order(b)));
        let mut position_by_id = vec![None; table.len()];
        for (place, (id, _)) in resources.iter().enumerate() {
            if let Some(entry) = position_by_id.get_mut(id.index()) {
                *entry = Some(place);
            }
        }
        let total: ExactAmounts = resources
            .iter()
            .map(|(id, _)| totals.get(id.index()).copied().flatten().unwrap_or(0))
            .collect();
        let divisors = total.iter().map(|total| share_divisor(*total)).collect();
        Self {
            resources,
            position_by_id,
            total,
            divisors,
        }
    }

    /// Number of resources.
    pub(super) fn len(&self) -> usize {
        self.resources.len()
    }

    pub(super) fn zero_amounts(&self) -> ExactAmounts {
        smallvec![0; self.len()]
    }

    /// Resource at a position.
    pub(super) fn resource(&self, at: usize) -> Option<(ResourceId, &Arc<str>)> {
        self.resources.get(at).map(|(id, name)| (*id, name))
    }

    /// Amounts by position. The second list holds amounts of resources that do not count here.
    pub(super) fn by_position(&self, amounts: &ResourceAmounts) -> (ExactAmounts, SmallVec<[(ResourceId, i64); 1]>) {
        let (mut placed, mut foreign) = (self.zero_amounts(), SmallVec::new());
        for (id, amount) in amounts.iter() {
            let place = self.position_by_id.get(id.index()).copied().flatten();
            match place.and_then(|place| placed.get_mut(place)) {
                Some(entry) => *entry += i128::from(amount),
                None => foreign.push((id, amount)),
            }
        }
        (placed, foreign)
    }

    /// Adds totals by position.
    pub(super) fn add_totals(&self, totals: &ResourceTotals, to: &mut ExactAmounts) {
        for (id, amount) in totals.iter() {
            let place = self.position_by_id.get(id.index()).copied().flatten();
            if let Some(entry) = place.and_then(|place| to.get_mut(place)) {
                *entry += amount;
            }
        }
    }

    /// Name of a resource, which need not count here.
    pub(super) fn name(&self, id: ResourceId) -> &str {
        self.resources
            .iter()
            .find(|(known, _)| *known == id)
            .map_or("of a resource that nobody has", |(_, name)| name)
    }

    /// Divisors of the dominant share, without these resources.
    pub(super) fn divisors_without(&self, left_out: &ResourceSet) -> FloatAmounts {
        let numbered = self.divisors.iter().enumerate();
        numbered
            .map(|(at, divisor)| if left_out.contains(at) { f64::INFINITY } else { *divisor })
            .collect()
    }

    /// Dominant share over all resources.
    pub(super) fn share(&self, amounts: &[f64]) -> f64 {
        dominant_share(amounts, &self.divisors)
    }

    /// Position of the resource of which the amounts are the largest part; `None`: they are part of nothing in the
    /// cluster.
    pub(super) fn largest_resource(&self, amounts: &ExactAmounts) -> Option<usize> {
        dominant_position(&to_floats(amounts), &self.divisors)
    }

    /// Part of one resource that the amounts take.
    pub(super) fn resource_part(&self, amounts: &ExactAmounts, at: usize) -> Option<f64> {
        Some(*amounts.get(at)? as f64 / self.divisors.get(at)?)
    }

    /// Dominant share of exact amounts.
    pub(super) fn exact_share(&self, amounts: &ExactAmounts) -> f64 {
        self.share(&to_floats(amounts))
    }

    /// First resource that reaches the dominant share; `None` for a share of 0.
    pub(super) fn dominant(&self, amounts: &[f64], divisors: &[f64]) -> Option<&Arc<str>> {
        let (_, name) = self.resource(dominant_position(amounts, divisors)?)?;
        Some(name)
    }

    /// Resources of which nothing is left, or of which the cluster has none.
    pub(super) fn exhausted(&self, allocated: &ExactAmounts) -> ResourceSet {
        let mut exhausted = ResourceSet::empty(self.len());
        for (at, (allocated, (total, divisor))) in
            allocated.iter().zip(self.total.iter().zip(&self.divisors)).enumerate()
        {
            if divisor.is_infinite() || allocated >= total {
                exhausted.insert(at);
            }
        }
        exhausted
    }
}

/// Largest quotient, at least 0.
pub(super) fn dominant_share(amounts: &[f64], divisors: &[f64]) -> f64 {
    amounts.iter().zip(divisors).fold(0.0, |most, (amount, divisor)| {
        let share = amount / divisor;
        if share > most { share } else { most }
    })
}

/// Position of the first largest quotient; `None`: none is above 0.
fn dominant_position(amounts: &[f64], divisors: &[f64]) -> Option<usize> {
    let most = dominant_share(amounts, divisors);
    let mut shares = amounts.iter().zip(divisors).map(|(amount, divisor)| amount / divisor);
    shares.position(|share| share == most).filter(|_| most > 0.0)
}

/// Exact amounts as floats, which the formulas read.
pub(super) fn to_floats(amounts: &ExactAmounts) -> FloatAmounts {
    amounts.iter().map(|amount| *amount as f64).collect()
}

pub(super) fn add_amounts(to: &mut ExactAmounts, amounts: &ExactAmounts) {
    to.iter_mut().zip(amounts).for_each(|(to, amount)| *to += amount);
}

pub(super) fn subtract_amounts(from: &mut ExactAmounts, amounts: &ExactAmounts) {
    from.iter_mut().zip(amounts).for_each(|(from, amount)| *from -= amount);
}

fn share_divisor(total: i128) -> f64 {
    let total = total as f64;
    if total >= MIN_AMOUNT { total } else { f64::INFINITY }
}

fn resource_order(resource: &(ResourceId, Arc<str>)) -> (u8, &str) {
    match resource.0 {
        ResourceId::CPU => (0, ""),
        ResourceId::MEMORY => (1, ""),
        _ => (2, &resource.1),
    }
}
