//! Sums of integers by resource: in whatever order they are added and subtracted, the same is left.

use std::collections::BTreeMap;

use crate::model::{ResourceAmounts, ResourceId, ResourceTotals, ResourceVector};

/// Exact amounts by resource, without zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ExactVector(BTreeMap<ResourceId, i128>);

impl From<&ResourceAmounts> for ExactVector {
    fn from(amounts: &ResourceAmounts) -> Self {
        let exact = |(id, amount)| (id, amounts.exact(id).unwrap_or_else(|| i128::from(amount)));
        amounts.iter().map(exact).collect()
    }
}

impl From<&ResourceTotals> for ExactVector {
    fn from(totals: &ResourceTotals) -> Self {
        totals.iter().collect()
    }
}

impl From<&ExactVector> for ResourceVector {
    fn from(amounts: &ExactVector) -> Self {
        amounts.iter().map(|(id, amount)| (id, amount as f64)).collect()
    }
}

impl FromIterator<(ResourceId, i128)> for ExactVector {
    fn from_iter<I: IntoIterator<Item = (ResourceId, i128)>>(entries: I) -> Self {
        let mut amounts = Self::default();
        for (id, amount) in entries {
            amounts.change(id, amount);
        }
        amounts
    }
}

impl ExactVector {
    /// Adds to the amount of a resource.
    pub(super) fn change(&mut self, id: ResourceId, by: i128) {
        let amount = self.0.entry(id).or_default();
        *amount += by;
        if *amount == 0 {
            self.0.remove(&id);
        }
    }

    /// Adds amounts, or subtracts them.
    pub(super) fn add(&mut self, other: &Self, joins: bool) {
        for (id, amount) in other.iter() {
            self.change(id, if joins { amount } else { -amount });
        }
    }

    /// Amount of a resource.
    pub(super) fn get(&self, id: ResourceId) -> i128 {
        self.0.get(&id).copied().unwrap_or(0)
    }

    /// Amounts other than 0, by resource.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ResourceId, i128)> + '_ {
        self.0.iter().map(|(id, amount)| (*id, *amount))
    }

    /// True if every amount is 0.
    pub(super) fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    /// Amounts above those of another one; only resources of which this one has some.
    pub(super) fn above(&self, other: &Self) -> Self {
        let above = self.iter().map(|(id, amount)| (id, (amount - other.get(id)).max(0)));
        above.collect()
    }

    /// Negative amounts of resources after this one of which another vector has none.
    pub(super) fn negative_beside(&self, other: &Self, last: ResourceId) -> Self {
        let negative = self.iter().filter(|(id, amount)| *amount < 0 && *id > last);
        negative.filter(|(id, _)| other.get(*id) == 0).collect()
    }

    /// Bytes of the entries.
    pub(super) fn held_bytes(&self) -> usize {
        self.0.len() * (size_of::<ResourceId>() + size_of::<i128>())
    }
}
