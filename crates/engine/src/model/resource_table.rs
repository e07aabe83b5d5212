//! Names of resources and their ids, and how names are forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use super::amounts::{ResourceId, WHOLE_UNITS_BIT};
use super::resource_name::ResourceKind;

/// Most names that are only asked for: half of all ids, so that they never take those of offered names.
const MOST_ASKED: usize = 16_383;

/// Error: one resource name more than the table may hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("resource `{name}` would exceed the limit of {limit} resource names")]
pub struct TooManyResourcesError {
    /// Name that did not fit.
    pub name: String,
    /// Active limit of the number of names.
    pub limit: usize,
}

/// Kind of record that names a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceNaming {
    /// Nodes that have it, or queues that share it: what operators write.
    Offered,
    /// Tasks and jobs only: what any user writes.
    Asked,
}

/// Table of resource names and their ids.
///
/// Names that are offered have places of their own: names that are only asked for take none of them. Beyond their places, all names
/// that are only asked for share one, [`ResourceTable::OTHERS`], which nothing offers.
///
/// An id has the same name in all tables of an *era*. Forgetting a name starts a new era. The owner of a lineage reuses
/// an id for another name only after all tables of eras with the old name have been dropped.
#[derive(Clone, Debug)]
pub struct ResourceTable {
    names: Vec<Option<Arc<str>>>,
    ids: BTreeMap<Arc<str>, ResourceId>,
    /// Ids whose names are offered.
    offered: BTreeSet<ResourceId>,
    /// Number of times that a name became an offered one.
    offers: u64,
    /// Ids without a name that may get one.
    free: Vec<ResourceId>,
    era: Arc<NameEra>,
}

/// Era of a lineage of tables, in which no name is forgotten.
#[derive(Debug, Default)]
pub struct NameEra(());

impl Default for ResourceTable {
    fn default() -> Self {
        let names = ["cpu", "memory", "pods"].map(Arc::from);
        let ids: BTreeMap<_, _> = names.iter().cloned().zip((0..).map(ResourceId)).collect();
        Self {
            names: names.into_iter().map(Some).collect(),
            offered: ids.values().copied().collect(),
            offers: 0,
            ids,
            free: Vec::new(),
            era: Arc::default(),
        }
    }
}

impl ResourceTable {
    /// Name that all resources share which have no place in the table. No node offers it.
    pub const OTHERS: &str = "pumice/other-resources";

    /// True if nodes or queues have named the resource of an id.
    pub fn is_offered(&self, id: ResourceId) -> bool {
        self.offered.contains(&id)
    }

    /// Number of times that a name became an offered one. After one more, [`Self::OTHERS`] may stand for a resource that a node has.
    pub fn offers(&self) -> u64 {
        self.offers
    }

    /// Id of a name. `None`: the table does not have the name.
    pub fn get(&self, name: &str) -> Option<ResourceId> {
        self.ids.get(name).copied()
    }

    /// Id of a name, which the table learns if it is new: with an id that it never had. The table holds at most `limit`
    /// ids, and never more than 32,768.
    ///
    /// # Errors
    /// The table is full.
    pub fn intern(&mut self, name: &str, limit: usize) -> Result<ResourceId, TooManyResourcesError> {
        if let Some(id) = self.get(name) {
            return Ok(id);
        }
        let next = u16::try_from(self.names.len())
            .ok()
            .filter(|&next| self.names.len() < limit && next & WHOLE_UNITS_BIT == 0);
        let Some(next) = next else {
            return Err(TooManyResourcesError {
                name: name.to_owned(),
                limit,
            });
        };
        self.names.push(None);
        Ok(self.give(ResourceId(next), name))
    }

    /// Id of a name, which the table learns if it is new: with a free id, if there is one. The table holds at most `limit` names that
    /// are offered, and as many others. Only the owner of a lineage may call this.
    ///
    /// # Errors
    /// The table has no place for such a name.
    pub fn intern_shared(
        &mut self,
        name: &str,
        named_by: ResourceNaming,
        limit: usize,
    ) -> Result<ResourceId, TooManyResourcesError> {
        let known = self.get(name);
        let (taken, limit) = match (named_by, known) {
            (ResourceNaming::Asked, Some(id)) => return Ok(id),
            (ResourceNaming::Offered, Some(id)) if self.offered.contains(&id) => return Ok(id),
            (ResourceNaming::Asked, None) => (self.name_count() - self.offered.len(), limit.min(MOST_ASKED)),
            (ResourceNaming::Offered, _) => (self.offered.len(), limit),
        };
        if taken >= limit || (named_by == ResourceNaming::Offered && name == Self::OTHERS) {
            return Err(TooManyResourcesError {
                name: name.to_owned(),
                limit,
            });
        }
        let id = match known {
            Some(id) => id,
            None => self.intern_free(name)?,
        };
        if named_by == ResourceNaming::Offered {
            self.offered.insert(id);
            self.offers += 1;
        }
        Ok(id)
    }

    /// Id that the names share which have no place of their own. Only the owner of a lineage may call this.
    ///
    /// # Errors
    /// The table has all ids that there are.
    pub fn intern_others(&mut self) -> Result<ResourceId, TooManyResourcesError> {
        match self.get(Self::OTHERS) {
            Some(id) => Ok(id),
            None => self.intern_free(Self::OTHERS),
        }
    }

    fn intern_free(&mut self, name: &str) -> Result<ResourceId, TooManyResourcesError> {
        match self.free.pop() {
            Some(id) => Ok(self.give(id, name)),
            None => self.intern(name, usize::MAX),
        }
    }

    fn give(&mut self, id: ResourceId, name: &str) -> ResourceId {
        let name: Arc<str> = Arc::from(name);
        if let Some(place) = self.names.get_mut(id.index()) {
            *place = Some(Arc::clone(&name));
        }
        self.ids.insert(name, id);
        id
    }

    /// Forgets names and starts a new era. Returns the old era: after it and all earlier eras are dropped, the ids can
    /// be [`Self::free`]. The names of cpu, memory and pods cannot be forgotten.
    pub fn forget(&mut self, ids: impl IntoIterator<Item = ResourceId>) -> Weak<NameEra> {
        for id in ids.into_iter().filter(|id| *id > ResourceId::PODS) {
            if let Some(name) = self.names.get_mut(id.index()).and_then(Option::take) {
                self.ids.remove(&name);
                self.offered.remove(&id);
            }
        }
        let old = std::mem::take(&mut self.era);
        Arc::downgrade(&old)
    }

    /// Lets ids have another name.
    pub fn free(&mut self, ids: impl IntoIterator<Item = ResourceId>) {
        let nameless: Vec<_> = ids
            .into_iter()
            .filter(|id| self.shared_name(*id).is_none() && !self.free.contains(id))
            .collect();
        self.free.extend(nameless);
    }

    /// True if no name was forgotten between the two tables of one lineage.
    pub fn is_of_same_era(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.era, &other.era)
    }

    /// True if two tables of one lineage have the same names.
    pub fn has_same_names(&self, other: &Self) -> bool {
        // Within an era names are only added.
        self.is_of_same_era(other) && self.name_count() == other.name_count()
    }

    /// Name of an id. Empty: the id has no name in this table.
    pub fn name(&self, id: ResourceId) -> &str {
        self.shared_name(id).map_or("", |name| name)
    }

    /// Shared name of an id. `None`: the id has no name in this table.
    pub fn shared_name(&self, id: ResourceId) -> Option<&Arc<str>> {
        self.names.get(id.index())?.as_ref()
    }

    /// True if Volcano schedules by the resource of an id.
    pub fn is_counted_by_volcano(&self, id: ResourceId) -> bool {
        ResourceKind::of(self.name(id)).counted_by_volcano()
    }

    /// Ids with their names, in the order of ids.
    pub fn names(&self) -> impl Iterator<Item = (ResourceId, &Arc<str>)> {
        let numbered = (0..).map(ResourceId).zip(&self.names);
        numbered.filter_map(|(id, name)| Some((id, name.as_ref()?)))
    }

    /// Number of names.
    pub fn name_count(&self) -> usize {
        self.ids.len()
    }

    /// Number of ids, including ids that currently have no name.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Always false: every table has cpu, memory and pods.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_the_limit() {
        let mut table = ResourceTable::default();
        assert_eq!(table.intern("memory", 3), Ok(ResourceId::MEMORY));
        assert!(table.intern("nvidia.com/gpu", 3).is_err());
        let gpu = table.intern("nvidia.com/gpu", 4).unwrap();
        assert_eq!(
            (table.name(gpu), table.get("nvidia.com/gpu")),
            ("nvidia.com/gpu", Some(gpu))
        );
    }

    #[test]
    fn a_forgotten_name_leaves_its_id_to_another_when_it_is_freed() {
        let mut table = ResourceTable::default();
        let [a, b] = ["a", "b"].map(|name| table.intern_shared(name, ResourceNaming::Offered, 5).unwrap());
        assert!(table.intern_shared("c", ResourceNaming::Offered, 5).is_err());
        let before = table.clone();
        let era = table.forget([a, ResourceId::CPU]);
        assert_eq!((table.get("a"), table.name(a), table.name_count()), (None, "", 4));
        assert_eq!(table.get("cpu"), Some(ResourceId::CPU), "it stays");
        assert!(!table.is_of_same_era(&before) && before.get("a") == Some(a));
        let c = table.intern_shared("c", ResourceNaming::Offered, 5).unwrap();
        assert!(c > b, "the id of `a` is not free yet");
        table.forget([c]);
        assert!(era.upgrade().is_some());
        drop(before);
        assert!(era.upgrade().is_none());
        table.free([a, a, b]);
        assert_eq!(table.intern_shared("d", ResourceNaming::Offered, 9), Ok(a));
        assert_ne!(
            table.intern_shared("e", ResourceNaming::Offered, 9),
            Ok(b),
            "it has a name"
        );
        let older = table.clone();
        assert!(table.has_same_names(&older));
        table.intern_shared("f", ResourceNaming::Offered, 9).unwrap();
        assert!(!table.has_same_names(&older) && table.is_of_same_era(&older));
    }
    #[test]
    fn names_that_are_only_asked_for_take_no_place_of_offered_ones() {
        let mut table = ResourceTable::default();
        let [a, b] = ["a", "b"].map(|name| table.intern_shared(name, ResourceNaming::Asked, 2).unwrap());
        assert!(table.intern_shared("c", ResourceNaming::Asked, 2).is_err());
        let others = table.intern_others().unwrap();
        assert_eq!(table.intern_others(), Ok(others));
        assert_eq!(table.intern_shared("a", ResourceNaming::Asked, 2), Ok(a));
        // An offered name keeps the id that it has.
        assert_eq!(table.intern_shared("b", ResourceNaming::Offered, 5), Ok(b));
        assert_eq!(table.intern_shared("b", ResourceNaming::Offered, 4), Ok(b));
        let d = table.intern_shared("d", ResourceNaming::Offered, 5).unwrap();
        assert!(table.intern_shared("e", ResourceNaming::Offered, 5).is_err());
        assert!(
            table
                .intern_shared(ResourceTable::OTHERS, ResourceNaming::Offered, 9)
                .is_err()
        );
        assert_eq!(table.offers(), 2);
        assert!(table.is_offered(d) && table.is_offered(ResourceId::CPU) && !table.is_offered(a));
        // A forgotten name is no longer offered.
        table.forget([b]);
        table.intern_shared("e", ResourceNaming::Offered, 5).unwrap();
        assert_eq!(table.offers(), 3);
    }
}
