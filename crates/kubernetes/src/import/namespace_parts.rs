//! Objects that are parts of the record of their namespace: `ResourceQuota` and `PodDisruptionBudget`.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::object::{disruption_budget, fields, resource_quota};
use fields::{FieldError, required_text};
use pumice_protocol::v1 as pb;

/// Kind of an object that is a part of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NamespacePart {
    /// `ResourceQuota` of `v1`.
    Quota,
    /// `PodDisruptionBudget` of `policy`.
    Budget,
}

impl NamespacePart {
    /// Kind by the API version and the kind of an object; `None`: another one.
    pub(super) fn of(version: &str, kind: &str) -> Option<Self> {
        match (version, kind) {
            ("v1", "ResourceQuota") => Some(Self::Quota),
            ("policy/v1", "PodDisruptionBudget") => Some(Self::Budget),
            _ => None,
        }
    }
}

/// Parts of namespaces by namespace and name.
#[derive(Debug, Default)]
pub(super) struct NamespaceParts {
    quotas: BTreeMap<(String, String), pb::ResourceQuota>,
    budgets: BTreeMap<(String, String), pb::DisruptionBudget>,
}

impl NamespaceParts {
    /// Reads an object, which replaces an earlier one of its name.
    ///
    /// # Errors
    /// A field cannot be used; the error names it.
    pub(super) fn put(&mut self, part: NamespacePart, object: &Value) -> Result<(), FieldError> {
        let key = (
            required_text(object, "metadata.namespace")?,
            required_text(object, "metadata.name")?,
        );
        match part {
            NamespacePart::Quota => drop(self.quotas.insert(key, resource_quota(object)?)),
            NamespacePart::Budget => drop(self.budgets.insert(key, disruption_budget(object)?)),
        }
        Ok(())
    }

    /// Puts the parts into the records of their namespaces. Returns a note for each part whose namespace has no record: a
    /// record without the labels of the namespace would change what selectors of namespaces select.
    pub(super) fn apply(self, namespaces: &mut BTreeMap<String, pb::Namespace>) -> Vec<&'static str> {
        let mut notes = Vec::new();
        for ((namespace, _), quota) in self.quotas {
            match namespaces.get_mut(&namespace) {
                Some(record) => record.resource_quotas.push(quota),
                None => notes.push("ResourceQuota: its Namespace is not in the files, so it limits nothing"),
            }
        }
        for ((namespace, _), budget) in self.budgets {
            match namespaces.get_mut(&namespace) {
                Some(record) => record.disruption_budgets.push(budget),
                None => notes.push("PodDisruptionBudget: its Namespace is not in the files, so it protects nothing"),
            }
        }
        notes
    }
}
