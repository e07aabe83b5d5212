//! Names of the objects that were read, by which a new list shows which of them are gone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pumice_kubernetes::object::ObjectKind;

use crate::resources::ResourceScope;

/// Kind, and the namespace that is listed; `None`: all namespaces.
type ListedScope = (ObjectKind, Option<Arc<str>>);

/// Names of the objects that were read, by kind. An object of a namespace has the name `namespace/name`.
#[derive(Debug, Default)]
pub(super) struct ObjectNames {
    known: BTreeMap<ObjectKind, BTreeSet<Box<str>>>,
    /// Names that the new lists under way have shown so far.
    listing: BTreeMap<ListedScope, BTreeSet<Box<str>>>,
}

impl ObjectNames {
    pub(super) fn add(&mut self, kind: ObjectKind, name: &str) {
        if !self.listing.is_empty() {
            let namespace = name.split_once('/').map(|(namespace, _)| namespace.into());
            for scope in [(kind, None), (kind, namespace)] {
                if let Some(shown) = self.listing.get_mut(&scope) {
                    shown.insert(name.into());
                }
            }
        }
        self.add_unlisted(kind, name);
    }

    /// Adds a name that no object has: a list under way does not show it.
    pub(super) fn add_unlisted(&mut self, kind: ObjectKind, name: &str) {
        let known = self.known.entry(kind).or_default();
        if !known.contains(name) {
            known.insert(name.into());
        }
    }

    pub(super) fn remove(&mut self, kind: ObjectKind, name: &str) {
        if let Some(known) = self.known.get_mut(&kind) {
            known.remove(name);
        }
    }

    /// Names of a kind.
    pub(super) fn of(&self, kind: ObjectKind) -> impl Iterator<Item = &str> {
        self.known.get(&kind).into_iter().flatten().map(|name| &**name)
    }

    pub(super) fn has_any(&self, kind: ObjectKind) -> bool {
        self.known.get(&kind).is_some_and(|known| !known.is_empty())
    }

    pub(super) fn has(&self, kind: ObjectKind, name: &str) -> bool {
        self.known.get(&kind).is_some_and(|known| known.contains(name))
    }

    /// True if a new list of objects of a kind is under way.
    pub(super) fn is_listing(&self, kind: ObjectKind) -> bool {
        self.listing.keys().any(|(listed, _)| *listed == kind)
    }

    pub(super) fn begin_list(&mut self, scope: &ResourceScope) {
        self.listing.insert(key(scope), BTreeSet::new());
    }

    /// Ends a new list. Returns the names that were known and that the list does not show, sorted.
    pub(super) fn end_list(&mut self, scope: &ResourceScope) -> Vec<String> {
        let shown = self.listing.remove(&key(scope)).unwrap_or_default();
        let prefix = scope.namespace.as_ref().map(|namespace| format!("{namespace}/"));
        let is_listed = |name: &&str| prefix.as_ref().is_none_or(|prefix| name.starts_with(prefix));
        let known = self.of(scope.resource.kind).filter(is_listed);
        known.filter(|name| !shown.contains(*name)).map(str::to_owned).collect()
    }

    /// Forgets a list that did not come to its end.
    pub(super) fn give_list_up(&mut self, scope: &ResourceScope) {
        self.listing.remove(&key(scope));
    }
}

fn key(scope: &ResourceScope) -> ListedScope {
    (scope.resource.kind, scope.namespace.clone())
}
