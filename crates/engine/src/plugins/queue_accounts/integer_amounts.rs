//! Exact amounts: sums of integers by resource, so that adding and subtracting in any order gives the same.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::held_bytes::held_bytes;
use crate::model::{
    ClusterState, NamedAmounts, NodeChange, NodeEntry, NodeVector, ResourceAmounts, ResourceId, ResourceTable,
    ResourceTotals, ResourceVector, TaskRecord, UNLIMITED_MARK,
};
use crate::policy::Compatibility;

/// Amounts in the engine's unit of each resource, sorted by id, without zeros.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct IntegerAmounts(ExactList);

held_bytes! { IntegerAmounts { 0 } }

impl Clone for IntegerAmounts {
    /// Copies the entries at once: `clone` of a `SmallVec` goes entry by entry.
    fn clone(&self) -> Self {
        Self(ExactList::from_slice(&self.0))
    }
}

/// Amounts by resource. Most records have no more resources than fit into the list itself: an account is copied with each change, and
/// a list on the heap would be an allocation each time.
type ExactList = SmallVec<[(ResourceId, i128); 4]>;

impl From<&ResourceAmounts> for IntegerAmounts {
    fn from(amounts: &ResourceAmounts) -> Self {
        let mut exact = Self::default();
        exact.add_record(amounts, 1);
        exact
    }
}

impl From<&ResourceTotals> for IntegerAmounts {
    fn from(totals: &ResourceTotals) -> Self {
        totals.iter().collect()
    }
}

impl FromIterator<(ResourceId, i128)> for IntegerAmounts {
    fn from_iter<I: IntoIterator<Item = (ResourceId, i128)>>(entries: I) -> Self {
        let mut amounts = Self::default();
        for (id, amount) in entries {
            amounts.change(id, amount);
        }
        amounts
    }
}

impl From<&IntegerAmounts> for ResourceVector {
    fn from(amounts: &IntegerAmounts) -> Self {
        let float = |amount: i128| i64::try_from(amount).map_or_else(|_| amount as f64, |short| short as f64);
        amounts.iter().map(|(id, amount)| (id, float(amount))).collect()
    }
}

impl IntegerAmounts {
    /// Amounts of a reservation; names that nobody has are left out.
    pub(crate) fn of_names(resources: &ResourceTable, named: &NamedAmounts) -> Self {
        let mut exact = Self::default();
        for (name, amount) in named {
            if let Some(id) = resources.get(name) {
                exact.change(id, *amount);
            }
        }
        exact
    }

    /// Requests of some tasks together.
    pub(crate) fn of_tasks(tasks: &[&TaskRecord]) -> Self {
        let mut requests = Self::default();
        for task in tasks {
            requests.add_record(&task.requests, 1);
        }
        requests
    }

    /// Same amounts by name: cpu and memory first, whether or not there is any.
    pub(crate) fn named(&self, names: &ResourceTable) -> NamedAmounts {
        let plain = [ResourceId::CPU, ResourceId::MEMORY];
        let plain = plain.into_iter().map(|id| (id, self.get(id)));
        let scalars = self.iter().filter(|(id, _)| *id > ResourceId::MEMORY);
        plain
            .chain(scalars)
            .filter_map(|(id, amount)| Some((Arc::clone(names.shared_name(id)?), amount)))
            .collect()
    }

    /// Amount of a resource.
    pub(crate) fn get(&self, id: ResourceId) -> i128 {
        let found = self.0.binary_search_by_key(&id, |&(id, _)| id).ok();
        found.and_then(|at| self.0.get(at)).map_or(0, |&(_, amount)| amount)
    }

    /// Amount of a resource that is probably at this place.
    fn get_near(&self, at: usize, id: ResourceId) -> i128 {
        match self.0.get(at) {
            Some(&(own, amount)) if own == id => amount,
            Some(_) | None => self.get(id),
        }
    }

    /// True if no amount differs from zero.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All amounts but zeros, by id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ResourceId, i128)> + '_ {
        self.0.iter().copied()
    }

    /// Adds to the amount of a resource.
    pub(crate) fn change(&mut self, id: ResourceId, by: i128) {
        if by == 0 {
            return;
        }
        match self.0.binary_search_by_key(&id, |&(id, _)| id) {
            Err(place) => self.0.insert(place, (id, by)),
            Ok(at) => {
                let left = self.0.get_mut(at).map_or(0, |(_, amount)| {
                    *amount += by;
                    *amount
                });
                if left == 0 {
                    self.0.remove(at);
                }
            }
        }
    }

    /// Adds the amounts of a record, `times` times; a negative number subtracts.
    pub(crate) fn add_record(&mut self, amounts: &ResourceAmounts, times: i128) {
        for (at, (id, amount)) in amounts.iter().enumerate() {
            let exact = amounts.exact(id).unwrap_or_else(|| i128::from(amount));
            self.change_near(at, id, exact * times);
        }
    }

    /// Adds to the amount of a resource that is probably at this place: most lists have the same resources.
    fn change_near(&mut self, at: usize, id: ResourceId, by: i128) {
        match self.0.get_mut(at) {
            Some((own, amount)) if *own == id && *amount + by != 0 => *amount += by,
            Some(_) | None => self.change(id, by),
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (at, (id, amount)) in other.iter().enumerate() {
            self.change_near(at, id, amount);
        }
    }

    pub(crate) fn subtract(&mut self, other: &Self) {
        for (at, (id, amount)) in other.iter().enumerate() {
            self.change_near(at, id, -amount);
        }
    }

    /// Amounts above those of another one, of the resources that this one has.
    pub(crate) fn above(&self, other: &Self) -> Self {
        let amounts = self.iter().enumerate();
        let above = amounts.map(|(at, (id, amount))| (id, amount - other.get_near(at, id)));
        Self(above.filter(|(_, amount)| *amount > 0).collect())
    }

    /// Amounts above those of another one, as [`ResourceVector::excess_over`] has them.
    pub(crate) fn excess_over(&self, other: &Self) -> Self {
        let counts = |id: ResourceId, limit: i128| id <= ResourceId::MEMORY || limit != i128::from(UNLIMITED_MARK);
        let amounts = self.iter().enumerate().filter_map(|(at, (id, amount))| {
            let limit = other.get_near(at, id);
            (amount > limit && counts(id, limit)).then_some((id, amount - limit))
        });
        let mut excess = Self(amounts.collect());
        for (id, limit) in other.iter().filter(|(id, limit)| *limit < 0 && counts(*id, *limit)) {
            if self.get(id) == 0 {
                excess.change(id, -limit);
            }
        }
        excess
    }

    /// Negative amounts of resources after this one of which another list has none.
    pub(crate) fn negative_beside(&self, other: &Self, last: ResourceId) -> Self {
        let negative = self.iter().filter(|(id, amount)| *amount < 0 && *id > last);
        Self(negative.filter(|(id, _)| other.get(*id) == 0).collect())
    }

    /// Amounts without what tasks with a scheduling gate request, unless they request pods only.
    pub(crate) fn ungated(self, gated: &Self) -> Self {
        if gated.iter().all(|(id, _)| id == ResourceId::PODS) {
            return self;
        }
        let mut left = self.above(gated);
        // Scalars that no gated task requests stay as they are.
        left.add(&self.negative_beside(gated, ResourceId::MEMORY));
        left
    }

    /// Same amounts without one resource.
    pub(crate) fn without(mut self, id: ResourceId) -> Self {
        self.0.retain(|&mut (own, _)| own != id);
        self
    }

    /// Raises amounts to those of another one.
    pub(crate) fn raise_to(&mut self, other: &Self) {
        let above = other.above(self);
        self.add(&above);
    }

    /// First resource of which another one has less.
    pub(crate) fn first_beyond(&self, other: &Self) -> Option<ResourceId> {
        let mut above = self.iter().filter(|(id, amount)| *amount > other.get(*id));
        above.next().map(|(id, _)| id)
    }
}

/// Totals of nodes that know which resources any node has: present and zero differ from absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PresentTotals {
    totals: ResourceTotals,
    compatibility: Compatibility,
}

held_bytes! { PresentTotals { totals; compatibility } }

impl PresentTotals {
    /// Totals of the nodes of a cluster state that count.
    pub(crate) fn of(cluster_state: &ClusterState, compatibility: Compatibility) -> Self {
        let mut totals = Self {
            totals: ResourceTotals::default(),
            compatibility,
        };
        for (_, entry) in cluster_state.nodes() {
            totals.count_node(entry, true);
        }
        totals
    }

    /// Follows changes of nodes.
    pub(crate) fn follow(&mut self, nodes: &[NodeChange<'_>]) {
        for node in nodes {
            for (entry, add) in [(node.before, false), (node.after, true)] {
                if let Some(entry) = entry {
                    self.count_node(entry, add);
                }
            }
        }
    }

    /// Adds the allocatable amounts of a node that counts, or subtracts them.
    fn count_node(&mut self, entry: &NodeEntry, add: bool) {
        let record = &entry.record;
        if !record.is_ready(self.compatibility) {
            return;
        }
        let given = [Some(&record.allocatable), record.oversubscription.as_ref()];
        let mut ids: SmallVec<[ResourceId; 8]> = given
            .into_iter()
            .flatten()
            .flat_map(|amounts| amounts.iter().map(|(id, _)| id))
            .collect();
        ids.sort_unstable();
        ids.dedup();
        for id in ids {
            let amount = entry.exact(id, NodeVector::Allocatable).unwrap_or(0);
            self.totals.count(id, amount, add);
        }
    }

    /// All totals, by id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ResourceId, i128)> + '_ {
        self.totals.iter()
    }

    /// Totals of the resources that Volcano counts, as a vector.
    pub(crate) fn counted_vector(&self, names: &ResourceTable) -> ResourceVector {
        let counted = self.iter().filter(|(id, _)| names.is_counted_by_volcano(*id));
        counted.map(|(id, total)| (id, total as f64)).collect()
    }
}
