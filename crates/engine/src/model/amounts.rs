//! Amounts of resources: dense ids in place of names, one integer per record and resource, exact totals over records.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use smallvec::SmallVec;

use crate::held_bytes::held_bytes;

/// Dense number of a resource, which a [`ResourceTable`](super::ResourceTable) gives its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId(pub(crate) u16);

held_bytes! { plain ResourceId }

impl ResourceId {
    /// Processor time, in milli-cores.
    pub const CPU: Self = Self(0);
    /// Memory, in bytes.
    pub const MEMORY: Self = Self(1);
    /// Number of pods.
    pub const PODS: Self = Self(2);

    /// Id as an index into columns: 0 cpu, 1 memory, 2 pods, then scalars.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// The id of a place in the table.
    pub fn from_index(index: u16) -> Self {
        Self(index)
    }

    /// True if Kubernetes uses the engine's unit for the resource: for cpu, memory and pods. For every other resource
    /// Kubernetes uses whole units.
    pub fn has_kubernetes_unit(self) -> bool {
        self <= Self::PODS
    }
}

/// Number of thousandths in a whole unit.
pub(crate) const THOUSAND: i64 = 1_000;

/// Bit that marks the id of a whole-units entry: the amount of a resource whose thousandths do not fit in 64 bits.
/// Marked entries sort after all others.
pub(super) const WHOLE_UNITS_BIT: u16 = 1 << 15;

/// Amounts of one record, by resource. Present and zero differ from absent.
///
/// Units: milli-cores of cpu, bytes of memory, number of pods, thousandths of every other resource. For example, 2 GPUs
/// are 2000. If the thousandths do not fit in 64 bits, the entry has the largest amount, and a second entry has the
/// whole units.
///
/// Clones share the list until a clone is changed. An absent list and an empty list are equivalent.
#[derive(Clone, Default, Eq)]
pub struct ResourceAmounts(Option<Arc<AmountList>>);

held_bytes! { ResourceAmounts { 0 } }

/// Sorted by id.
type AmountList = SmallVec<[(ResourceId, i64); 4]>;

impl PartialEq for ResourceAmounts {
    fn eq(&self, other: &Self) -> bool {
        let shared = |(one, other): (&Arc<AmountList>, &Arc<AmountList>)| Arc::ptr_eq(one, other);
        self.0.as_ref().zip(other.0.as_ref()).is_some_and(shared) || self.list() == other.list()
    }
}

impl Hash for ResourceAmounts {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.list().hash(state);
    }
}

impl PartialOrd for ResourceAmounts {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ResourceAmounts {
    fn cmp(&self, other: &Self) -> Ordering {
        self.list().cmp(other.list())
    }
}

impl fmt::Debug for ResourceAmounts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Amounts").field(&self.list()).finish()
    }
}

impl ResourceAmounts {
    /// The amount of a resource, if it is present.
    pub fn get(&self, id: ResourceId) -> Option<i64> {
        let list = self.list();
        let found = list.binary_search_by_key(&id, |&(id, _)| id).ok()?;
        list.get(found).map(|&(_, amount)| amount)
    }

    /// True if nothing but pods is requested.
    pub fn is_only_pods(&self) -> bool {
        let mut requested = self.iter().filter(|(id, _)| *id != ResourceId::PODS);
        requested.all(|(_, amount)| amount <= 0)
    }

    fn list(&self) -> &[(ResourceId, i64)] {
        self.0.as_ref().map_or(&[], |list| list)
    }

    /// Sets the amount of a resource in the engine's unit, such as 2000 for 2 cores or 2 GPUs.
    pub fn set(&mut self, id: ResourceId, amount: i64) {
        self.put(id, amount);
        let beside = ResourceId(id.0 | WHOLE_UNITS_BIT);
        if self
            .list()
            .last()
            .is_some_and(|&(last, _)| last.0 & WHOLE_UNITS_BIT != 0)
        {
            Arc::make_mut(self.0.get_or_insert_default()).retain(|(id, _)| *id != beside);
        }
    }

    /// Sets the amount of a resource with the unit thousandths, given in whole units.
    pub fn set_whole_units(&mut self, id: ResourceId, whole: i64) {
        self.set(id, whole.saturating_mul(THOUSAND));
        if whole.checked_mul(THOUSAND).is_none() {
            self.put(ResourceId(id.0 | WHOLE_UNITS_BIT), whole);
        }
    }

    /// Amount of a present resource in Kubernetes' unit: thousandths of cpu, and whole units, rounded up, of everything
    /// else.
    pub fn whole_units(&self, id: ResourceId) -> Option<i64> {
        let amount = self.get(id)?;
        if id.has_kubernetes_unit() {
            return Some(amount);
        }
        let up = i64::from(amount.rem_euclid(THOUSAND) > 0);
        Some(
            self.beyond_64_bits(id)
                .unwrap_or_else(|| amount.div_euclid(THOUSAND) + up),
        )
    }

    /// Whole units of a resource whose thousandths do not fit in 64 bits.
    pub(super) fn beyond_64_bits(&self, id: ResourceId) -> Option<i64> {
        self.get(ResourceId(id.0 | WHOLE_UNITS_BIT))
    }

    /// Amount of a present resource in the engine's unit, exact even where the thousandths do not fit in 64 bits.
    pub fn exact(&self, id: ResourceId) -> Option<i128> {
        self.beyond_64_bits(id).map_or_else(
            || self.get(id).map(i128::from),
            |whole| Some(i128::from(whole) * i128::from(THOUSAND)),
        )
    }

    fn put(&mut self, id: ResourceId, amount: i64) {
        let list = Arc::make_mut(self.0.get_or_insert_default());
        match list.binary_search_by_key(&id, |&(id, _)| id) {
            Ok(found) => {
                if let Some(entry) = list.get_mut(found) {
                    entry.1 = amount;
                }
            }
            Err(place) => list.insert(place, (id, amount)),
        }
    }

    /// Copy of the amounts in memory of its own, without spare capacity.
    #[must_use]
    pub fn copied(&self) -> Self {
        Self(self.0.as_ref().map(|list| Arc::new(AmountList::from_slice(list))))
    }

    /// All amounts, by id.
    pub fn iter(&self) -> impl Iterator<Item = (ResourceId, i64)> + '_ {
        self.list()
            .iter()
            .copied()
            .take_while(|(id, _)| id.0 & WHOLE_UNITS_BIT == 0)
    }

    /// True if nothing is present.
    pub fn is_empty(&self) -> bool {
        self.list().is_empty()
    }
}

impl FromIterator<(ResourceId, i64)> for ResourceAmounts {
    fn from_iter<I: IntoIterator<Item = (ResourceId, i64)>>(entries: I) -> Self {
        let mut amounts = Self::default();
        for (id, amount) in entries {
            amounts.set(id, amount);
        }
        amounts
    }
}

/// Exact sum of one resource over records, and the number of records that have the resource; in 24 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ResourceTotal {
    low: u64,
    high: i64,
    records: u32,
    id: ResourceId,
}

held_bytes! { plain ResourceTotal }

impl ResourceTotal {
    fn none(id: ResourceId) -> Self {
        Self {
            low: 0,
            high: 0,
            records: 0,
            id,
        }
    }

    fn sum(self) -> i128 {
        i128::from(self.high) << 64 | i128::from(self.low)
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the two halves of the sum"
    )]
    fn add(&mut self, amount: i128) {
        let sum = self.sum() + amount;
        (self.low, self.high) = (sum as u64, (sum >> 64) as i64);
    }
}

/// Exact totals by resource. Additions and subtractions in any order give the same totals as adding only the records
/// that are left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceTotals(Vec<ResourceTotal>);

held_bytes! { ResourceTotals { 0 } }

impl ResourceTotals {
    fn find(&self, id: ResourceId) -> Result<usize, usize> {
        self.0.binary_search_by_key(&id, |total| total.id)
    }

    /// Adds amounts, or subtracts those that were added.
    pub(crate) fn count_all(&mut self, amounts: &ResourceAmounts, adds: bool) {
        let amounts = amounts.iter();
        amounts.for_each(|(id, amount)| self.count(id, amount.into(), adds));
    }

    /// Adds the amounts of one record.
    pub fn add(&mut self, amounts: &ResourceAmounts) {
        self.count_all(amounts, true);
    }

    /// Subtracts the amounts of one record that was added.
    pub fn subtract(&mut self, amounts: &ResourceAmounts) {
        self.count_all(amounts, false);
    }

    /// Adds an amount of one record, or subtracts an amount that was added before.
    pub(crate) fn count(&mut self, id: ResourceId, amount: i128, adds: bool) {
        let found = self.find(id);
        debug_assert!(adds || found.is_ok(), "took away what was never added");
        let at = found.unwrap_or_else(|place| {
            self.0.insert(place, ResourceTotal::none(id));
            place
        });
        let Some(total) = self.0.get_mut(at) else { return };
        if adds {
            total.add(amount);
            total.records = total.records.saturating_add(1);
        } else {
            total.add(-amount);
            total.records = total.records.saturating_sub(1);
        }
        if total.records == 0 {
            self.0.remove(at);
        }
    }

    /// Total of a resource; `None`: no record has it.
    pub fn get(&self, id: ResourceId) -> Option<i128> {
        self.0.get(self.find(id).ok()?).map(|total| total.sum())
    }

    /// Number of records; every record has pods.
    pub fn records(&self) -> u32 {
        self.0.iter().map(|total| total.records).max().unwrap_or(0)
    }

    /// All totals, by id.
    pub fn iter(&self) -> impl Iterator<Item = (ResourceId, i128)> + '_ {
        self.0.iter().map(|total| (total.id, total.sum()))
    }

    /// True if no record has any resource.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_forget_a_resource_with_its_last_record() {
        let gpu = ResourceId(7);
        let (mut totals, zero) = (ResourceTotals::default(), ResourceAmounts::from_iter([(gpu, 0)]));
        totals.add(&zero);
        totals.add(&ResourceAmounts::from_iter([(ResourceId::CPU, 5), (gpu, 1)]));
        assert_eq!(totals.get(gpu), Some(1));
        totals.subtract(&ResourceAmounts::from_iter([(ResourceId::CPU, 5), (gpu, 1)]));
        assert_eq!(totals.get(gpu), Some(0), "present and zero");
        assert_eq!(totals.get(ResourceId::CPU), None);
        totals.subtract(&zero);
        assert_eq!(totals, ResourceTotals::default());
    }

    #[test]
    fn whole_units_are_rounded_up_and_may_exceed_what_thousandths_hold() {
        let disk = ResourceId(7);
        let mut amounts = ResourceAmounts::from_iter([(ResourceId::CPU, 1_500), (disk, 1_001)]);
        assert_eq!(
            (amounts.whole_units(ResourceId::CPU), amounts.whole_units(disk)),
            (Some(1_500), Some(2))
        );
        assert_eq!(amounts.whole_units(ResourceId::MEMORY), None);
        let exa = 1_000_000_000_000_000_000;
        amounts.set_whole_units(disk, exa);
        assert_eq!(
            (amounts.get(disk), amounts.whole_units(disk)),
            (Some(i64::MAX), Some(exa))
        );
        assert_eq!(amounts.exact(disk), Some(1_000 * i128::from(exa)));
        assert_eq!(amounts.iter().count(), 2, "one entry each");
        amounts.set_whole_units(disk, 3);
        assert_eq!(
            amounts,
            ResourceAmounts::from_iter([(ResourceId::CPU, 1_500), (disk, 3_000)])
        );
    }
}
