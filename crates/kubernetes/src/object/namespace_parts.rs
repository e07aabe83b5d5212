//! Objects that are parts of the record of their namespace: `ResourceQuota` and `PodDisruptionBudget`.

use std::collections::BTreeMap;

use serde_json::Value;

use super::cluster::{disruption_budget, resource_quota};
use super::fields::{FieldError, required_text};
use super::kind::ObjectKind;
use pumice_engine::model::namespace_of;
use pumice_protocol::v1 as pb;

/// Part of the record of a namespace.
#[derive(Debug, Clone, PartialEq)]
pub struct NamespacePart {
    /// Namespace and name, such as `web/quota`.
    name: String,
    content: PartContent,
}

#[derive(Debug, Clone, PartialEq)]
enum PartContent {
    Quota(pb::ResourceQuota),
    Budget(pb::DisruptionBudget),
}

impl NamespacePart {
    /// Reads the object of a kind.
    pub(super) fn read(kind: ObjectKind, object: &Value) -> Result<Self, FieldError> {
        let namespace = required_text(object, "metadata.namespace")?;
        let name = kind.record_name(&namespace, &required_text(object, "metadata.name")?);
        let content = if kind == ObjectKind::ResourceQuota {
            PartContent::Quota(resource_quota(object)?)
        } else {
            PartContent::Budget(disruption_budget(object)?)
        };
        Ok(Self { name, content })
    }

    /// Namespace and name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Parts of namespaces by namespace and name.
#[derive(Debug, Default)]
pub struct NamespaceParts {
    quotas: BTreeMap<String, pb::ResourceQuota>,
    budgets: BTreeMap<String, pb::DisruptionBudget>,
}

impl NamespaceParts {
    /// Puts a part, which replaces an earlier one of its name. Returns its namespace.
    pub fn put(&mut self, part: NamespacePart) -> String {
        let NamespacePart { name, content } = part;
        let namespace = namespace_of(&name).to_owned();
        match content {
            PartContent::Quota(quota) => drop(self.quotas.insert(name, quota)),
            PartContent::Budget(budget) => drop(self.budgets.insert(name, budget)),
        }
        namespace
    }

    /// Removes the part of a kind and a name.
    pub fn remove(&mut self, kind: ObjectKind, name: &str) {
        if kind == ObjectKind::ResourceQuota {
            self.quotas.remove(name);
        } else {
            self.budgets.remove(name);
        }
    }

    /// Puts the parts of a namespace into its record.
    pub fn complete(&self, record: &mut pb::Namespace) {
        record.resource_quotas = of_namespace(&self.quotas, &record.name);
        record.disruption_budgets = of_namespace(&self.budgets, &record.name);
    }

    /// A note for each part whose namespace has no record: a record without the labels of the namespace would change what
    /// selectors of namespaces select.
    pub(crate) fn notes(&self, namespaces: &BTreeMap<String, pb::Namespace>) -> Vec<&'static str> {
        let lacks = |name: &&String| !namespaces.contains_key(namespace_of(name));
        let quotas = self.quotas.keys().filter(lacks);
        let quotas = quotas.map(|_| "ResourceQuota: its Namespace is not in the files, so it limits nothing");
        let budgets = self.budgets.keys().filter(lacks);
        let budgets = budgets.map(|_| "PodDisruptionBudget: its Namespace is not in the files, so it protects nothing");
        quotas.chain(budgets).collect()
    }
}

/// Parts whose names begin with a namespace, by name.
fn of_namespace<T: Clone>(parts: &BTreeMap<String, T>, namespace: &str) -> Vec<T> {
    let from = parts.range(format!("{namespace}/")..);
    let own = from.take_while(|(name, _)| namespace_of(name) == namespace);
    own.map(|(_, part)| part.clone()).collect()
}
