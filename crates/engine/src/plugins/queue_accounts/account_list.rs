//! Accounts of queues in one list: a name is looked up once, and its place reaches the accounts of the queues above it, too.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;

use super::account::QueueTotals;
use crate::model::name_order;

/// Queues above each queue, from its parent upwards; a queue that is missing has none.
pub(crate) type QueueAncestors = BTreeMap<Arc<str>, Arc<[Arc<str>]>>;

/// Number of accounts in a group: a change copies one group and the list of groups.
const ACCOUNTS_PER_GROUP: usize = 16;

/// Place of a queue's account in the list, valid until queues come or go.
pub(crate) type QueuePlace = u32;

/// Places of a queue's own account and of those of the queues above it, from below.
type PlacesToRoot = SmallVec<[QueuePlace; 4]>;

type AccountGroup = Arc<Vec<Arc<QueueTotals>>>;

/// Accounts of all queues that exist, by name. Clones share what neither of them changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct AccountList {
    places: Arc<QueuePlaces>,
    /// Groups of accounts, all full except the last one.
    groups: Arc<Vec<AccountGroup>>,
}

/// Names of queues and what is above them: the same for all states between two changes of the queues.
#[derive(Debug, Default, PartialEq)]
struct QueuePlaces {
    /// Names, sorted.
    names: Vec<Arc<str>>,
    to_root: Vec<PlacesToRoot>,
}

impl PartialEq for AccountList {
    fn eq(&self, other: &Self) -> bool {
        self.places == other.places && self.groups == other.groups
    }
}

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
        let groups = accounts
            .chunks(ACCOUNTS_PER_GROUP)
            .map(|group| Arc::new(group.to_vec()));
        Self {
            groups: Arc::new(groups.collect()),
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
        let place = place as usize;
        self.groups
            .get(place / ACCOUNTS_PER_GROUP)?
            .get(place % ACCOUNTS_PER_GROUP)
    }

    /// Account at a place, to change it.
    pub(crate) fn at_mut(&mut self, place: QueuePlace) -> Option<&mut QueueTotals> {
        let place = place as usize;
        let group = Arc::make_mut(&mut self.groups).get_mut(place / ACCOUNTS_PER_GROUP)?;
        Arc::make_mut(group)
            .get_mut(place % ACCOUNTS_PER_GROUP)
            .map(Arc::make_mut)
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
        self.places
            .names
            .iter()
            .zip(self.groups.iter().flat_map(|group| group.iter()))
    }

    /// Calls `change` with each name and account, by name. What clones share is copied.
    pub(crate) fn update_each(&mut self, mut change: impl FnMut(&Arc<str>, &mut QueueTotals)) {
        let mut names = self.places.names.iter();
        for group in Arc::make_mut(&mut self.groups) {
            for (account, name) in Arc::make_mut(group).iter_mut().zip(&mut names) {
                change(name, Arc::make_mut(account));
            }
        }
    }

    /// Bytes that this list holds and an older one does not share.
    pub(super) fn unshared_bytes(&self, older: &Self) -> usize {
        if Arc::ptr_eq(&self.groups, &older.groups) {
            return 0;
        }
        let mut sum = size_of_val(self.groups.as_slice());
        for (number, group) in self.groups.iter().enumerate() {
            let before = older.groups.get(number);
            if before.is_some_and(|before| Arc::ptr_eq(before, group)) {
                continue;
            }
            sum += size_of::<Vec<usize>>() + size_of_val(group.as_slice());
            for (at, account) in group.iter().enumerate() {
                let before = before.and_then(|before| before.get(at));
                if !before.is_some_and(|before| Arc::ptr_eq(before, account)) {
                    sum += account.held_bytes();
                }
            }
        }
        if !Arc::ptr_eq(&self.places, &older.places) {
            sum += size_of_val(self.places.names.as_slice()) + size_of_val(self.places.to_root.as_slice());
        }
        sum
    }
}

impl QueuePlaces {
    fn find(&self, queue: &str) -> Option<QueuePlace> {
        let found = self.names.binary_search_by(|name| name_order(name, queue)).ok()?;
        QueuePlace::try_from(found).ok()
    }
}
