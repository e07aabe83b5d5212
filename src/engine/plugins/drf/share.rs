//! Dominant shares: what part of the cluster a vector takes, and of which resource most.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::bits::Bits;
use crate::engine::model::{Amounts, MIN_AMOUNT, ResourceId, Totals, Vector, View};

/// Exact amounts, one per resource of [`Dims`].
pub(super) type Exact = SmallVec<[i128; 4]>;

/// The same as the formulas see them.
pub(super) type Floats = SmallVec<[f64; 4]>;

/// The resources that count, in the order that all comparisons run in: cpu, memory, then by name.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Dims {
    resources: Vec<(ResourceId, Arc<str>)>,
    /// Position by resource id.
    places: Vec<Option<usize>>,
    /// What the cluster has.
    total: Exact,
    /// The same; infinite where the cluster has less than [`MIN_AMOUNT`], so that the share is 0.
    divisors: Floats,
}

impl Dims {
    /// The resources of all ready nodes and of these tasks' requests.
    pub(super) fn of<'a>(view: &View, requests: impl Iterator<Item = &'a Amounts>) -> Self {
        let table = view.resources();
        let mut totals: Vec<Option<i128>> = vec![None; table.len()];
        let mut seen = vec![false; table.len()];
        for (_, entry) in view.nodes().filter(|(_, entry)| entry.record.ready != Some(false)) {
            let given = [Some(&entry.record.allocatable), entry.record.oversubscription.as_ref()];
            let mut ids: SmallVec<[ResourceId; 8]> = given
                .into_iter()
                .flatten()
                .flat_map(|amounts| amounts.iter().map(|(id, _)| id))
                .collect();
            ids.sort_unstable();
            ids.dedup();
            for id in ids {
                if let Some(total) = totals.get_mut(id.index()) {
                    *total = Some(total.unwrap_or(0) + entry.exact(id, Vector::Allocatable).unwrap_or(0));
                }
            }
        }
        for (id, _) in requests.flat_map(Amounts::iter) {
            if let Some(seen) = seen.get_mut(id.index()) {
                *seen = true;
            }
        }
        let wanted = (0..)
            .map(ResourceId)
            .zip(totals.iter().zip(&seen))
            .filter(|(_, (total, seen))| total.is_some() || **seen);
        let mut resources: Vec<(ResourceId, Arc<str>)> = wanted
            .filter_map(|(id, _)| Some((id, Arc::clone(table.shared_name(id)?))))
            .collect();
        resources.sort_by(|a, b| order(a).cmp(&order(b)));
        let mut places = vec![None; table.len()];
        for (place, (id, _)) in resources.iter().enumerate() {
            if let Some(entry) = places.get_mut(id.index()) {
                *entry = Some(place);
            }
        }
        let total: Exact = resources
            .iter()
            .map(|(id, _)| totals.get(id.index()).copied().flatten().unwrap_or(0))
            .collect();
        let divisors = total.iter().map(|total| divisor(*total)).collect();
        Self {
            resources,
            places,
            total,
            divisors,
        }
    }

    /// Divisors of the dominant share.
    pub(super) fn divisors(&self) -> &Floats {
        &self.divisors
    }

    /// Number of resources.
    pub(super) fn len(&self) -> usize {
        self.resources.len()
    }

    /// No amounts.
    pub(super) fn zero(&self) -> Exact {
        smallvec![0; self.len()]
    }

    /// The resource at a position.
    pub(super) fn resource(&self, at: usize) -> Option<(ResourceId, &Arc<str>)> {
        self.resources.get(at).map(|(id, name)| (*id, name))
    }

    /// What the cluster has.
    pub(super) fn total(&self) -> &Exact {
        &self.total
    }

    /// Amounts by position. The other list holds resources that nothing else here has.
    pub(super) fn place(&self, amounts: &Amounts) -> (Exact, SmallVec<[(ResourceId, i64); 1]>) {
        let (mut placed, mut foreign) = (self.zero(), SmallVec::new());
        for (id, amount) in amounts.iter() {
            let place = self.places.get(id.index()).copied().flatten();
            match place.and_then(|place| placed.get_mut(place)) {
                Some(entry) => *entry += i128::from(amount),
                None => foreign.push((id, amount)),
            }
        }
        (placed, foreign)
    }

    /// Adds totals by position.
    pub(super) fn place_totals(&self, totals: &Totals, to: &mut Exact) {
        for (id, amount) in totals.iter() {
            let place = self.places.get(id.index()).copied().flatten();
            if let Some(entry) = place.and_then(|place| to.get_mut(place)) {
                *entry += amount;
            }
        }
    }

    /// The name of a resource, which need not count here.
    pub(super) fn name(&self, id: ResourceId) -> &str {
        self.resources
            .iter()
            .find(|(known, _)| *known == id)
            .map_or("of a resource that nobody has", |(_, name)| name)
    }

    /// Divisors of the dominant share, without these resources.
    pub(super) fn divisors_without(&self, left_out: &Bits) -> Floats {
        let numbered = self.divisors.iter().enumerate();
        numbered
            .map(|(at, divisor)| if left_out.contains(at) { f64::INFINITY } else { *divisor })
            .collect()
    }

    /// The dominant share over all resources.
    pub(super) fn share(&self, amounts: &[f64]) -> f64 {
        share(amounts, &self.divisors)
    }

    /// Position of the resource of which amounts are the largest part; `None`: they are nothing that the cluster has.
    pub(super) fn largest(&self, amounts: &Exact) -> Option<usize> {
        let amounts = floats(amounts);
        let most = self.share(&amounts);
        let at = amounts
            .iter()
            .zip(&self.divisors)
            .position(|(amount, divisor)| amount / divisor == most);
        at.filter(|_| most > 0.0)
    }

    /// The part of one resource that amounts are.
    pub(super) fn part(&self, amounts: &Exact, at: usize) -> Option<f64> {
        Some(*amounts.get(at)? as f64 / self.divisors.get(at)?)
    }

    /// The dominant share of exact amounts.
    pub(super) fn exact_share(&self, amounts: &Exact) -> f64 {
        self.share(&floats(amounts))
    }

    /// The first resource that reaches the dominant share; `None` for a share of 0.
    pub(super) fn dominant(&self, amounts: &[f64], divisors: &[f64]) -> Option<&Arc<str>> {
        let most = share(amounts, divisors);
        let at = amounts
            .iter()
            .zip(divisors)
            .position(|(amount, divisor)| amount / divisor == most)?;
        self.resources.get(at).filter(|_| most > 0.0).map(|(_, name)| name)
    }

    /// Resources of which nothing is left, or of which the cluster has none.
    pub(super) fn exhausted(&self, allocated: &Exact) -> Bits {
        let mut exhausted = Bits::none(self.len());
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

/// The largest quotient, at least 0.
pub(super) fn share(amounts: &[f64], divisors: &[f64]) -> f64 {
    amounts.iter().zip(divisors).fold(0.0, |most, (amount, divisor)| {
        let share = amount / divisor;
        if share > most { share } else { most }
    })
}

/// Exact amounts as the formulas see them.
pub(super) fn floats(amounts: &Exact) -> Floats {
    amounts.iter().map(|amount| *amount as f64).collect()
}

/// Adds amounts.
pub(super) fn add(to: &mut Exact, amounts: &Exact) {
    to.iter_mut().zip(amounts).for_each(|(to, amount)| *to += amount);
}

/// Takes amounts away.
pub(super) fn subtract(from: &mut Exact, amounts: &Exact) {
    from.iter_mut().zip(amounts).for_each(|(from, amount)| *from -= amount);
}

fn divisor(total: i128) -> f64 {
    let total = total as f64;
    if total >= MIN_AMOUNT { total } else { f64::INFINITY }
}

fn order(resource: &(ResourceId, Arc<str>)) -> (u8, &str) {
    match resource.0 {
        ResourceId::CPU => (0, ""),
        ResourceId::MEMORY => (1, ""),
        _ => (2, &resource.1),
    }
}
