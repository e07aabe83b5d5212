//! Accounts of queues in one list: a name is looked up once, and its place reaches the accounts of the queues above it, too.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;

use super::account::QueueTotals;
use crate::held_bytes::held_bytes;
use crate::model::{SharedList, name_order};

/// Queues above each queue, from its parent upwards; a queue that is missing has none.
pub(crate) type QueueAncestors = BTreeMap<Arc<str>, Arc<[Arc<str>]>>;

/// Place of a queue's account in the list, valid until queues come or go.
pub(crate) type QueuePlace = u32;

/// Places of a queue's own account and of those of the queues above it, from below.
type PlacesToRoot = SmallVec<[QueuePlace; 4]>;

/// Accounts of all queues that exist, by name. Clones share what neither of them changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AccountList {
    places: Arc<QueuePlaces>,
    accounts: SharedList<Arc<QueueTotals>, 16>,
}

held_bytes! { AccountList { places, accounts } }

/// Names of queues and what is above them: the same for all states between two changes of the queues.
#[derive(Debug, Default, PartialEq)]
struct QueuePlaces {
    /// Names, sorted.
    names: Vec<Arc<str>>,
    to_root: Vec<PlacesToRoot>,
}

held_bytes! { QueuePlaces { names, to_root } }

impl AccountList {
    /// List of accounts by name, in the order of the names.
    pub(super) fn of(accounts: impl Iterator<Item = (Arc<str>, Arc<QueueTotals>)>, ancestors: &QueueAncestors) -> Self {
        let (names, accounts): (Vec<_>, Vec<_>) = accounts.unzip();
        let mut places = QueuePlaces {
            names,
            to_root: Vec::new(),
        };
        let to_root = places.names.iter().map(|queue| {
            let above = ancestors.get(queue).into_iter().flat_map(|above| above.iter());
            let line = std::iter::once(queue).chain(above);
            line.filter_map(|queue| places.find(queue)).collect()
        });
        places.to_root = to_root.collect();
        Self {
            accounts: accounts.into_iter().collect(),
            places: Arc::new(places),
        }
    }

    /// Place of a queue that exists.
    pub(crate) fn find(&self, queue: &str) -> Option<QueuePlace> {
        self.places.find(queue)
    }

    /// Place of a queue that exists, found without a search if it is at `near` or right behind it, as names in order are.
    pub(crate) fn find_near(&self, queue: &str, near: &mut QueuePlace) -> Option<QueuePlace> {
        let is_at = |place: QueuePlace| {
            self.places
                .names
                .get(place as usize)
                .is_some_and(|name| **name == *queue)
        };
        let adjacent = [*near, near.saturating_add(1)].into_iter().find(|place| is_at(*place));
        let place = adjacent.or_else(|| self.find(queue))?;
        *near = place;
        Some(place)
    }

    /// Account at a place.
    pub(crate) fn at(&self, place: QueuePlace) -> Option<&Arc<QueueTotals>> {
        self.accounts.get(place as usize)
    }

    /// Account at a place, to change it.
    pub(crate) fn at_mut(&mut self, place: QueuePlace) -> Option<&mut QueueTotals> {
        self.accounts.get_mut(place as usize).map(Arc::make_mut)
    }

    /// Account of a queue that exists.
    pub(crate) fn get(&self, queue: &str) -> Option<&Arc<QueueTotals>> {
        self.at(self.find(queue)?)
    }

    /// Places of the accounts of the queue at a place and of those above it, from below.
    pub(crate) fn to_root(&self, place: QueuePlace) -> &[QueuePlace] {
        self.places.to_root.get(place as usize).map_or(&[], |places| places)
    }

    /// Changes the accounts of the queue at a place and of those above it.
    pub(crate) fn update_to_root(&mut self, place: QueuePlace, mut change: impl FnMut(&mut QueueTotals)) {
        let places = Arc::clone(&self.places);
        for place in places.to_root.get(place as usize).into_iter().flatten() {
            if let Some(account) = self.at_mut(*place) {
                change(account);
            }
        }
    }

    /// Changes the accounts at some places.
    pub(crate) fn update_at(&mut self, places: &[QueuePlace], mut change: impl FnMut(&mut QueueTotals)) {
        for place in places {
            if let Some(account) = self.at_mut(*place) {
                change(account);
            }
        }
    }

    pub(crate) fn name(&self, place: QueuePlace) -> Option<&Arc<str>> {
        self.places.names.get(place as usize)
    }

    /// Names and accounts, by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<QueueTotals>)> {
        self.places.names.iter().zip(&self.accounts)
    }

    /// Calls `change` with each name and account, by name. What clones share is copied.
    pub(crate) fn update_each(&mut self, mut change: impl FnMut(&Arc<str>, &mut QueueTotals)) {
        for (name, account) in self.places.names.iter().zip(self.accounts.iter_mut()) {
            change(name, Arc::make_mut(account));
        }
    }
}

impl QueuePlaces {
    fn find(&self, queue: &str) -> Option<QueuePlace> {
        let found = self.names.binary_search_by(|name| name_order(name, queue)).ok()?;
        QueuePlace::try_from(found).ok()
    }
}
