//! Namespaces: their labels, which selectors of namespaces read, and the budgets and quotas of their pods.

use std::sync::Arc;

use super::constraints::LabelSelector;
use super::exact_quantities::ExactQuantities;
use super::stored::StoredRecord;
use super::table::SortedTable;
use super::text_map::TextMap;
use crate::held_bytes::held_bytes;

/// `PodDisruptionBudget` of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DisruptionBudget {
    /// Name, without the namespace.
    pub name: Arc<str>,
    /// Selector of the pods; `None`: it selects none.
    pub selector: Option<LabelSelector>,
    /// Number of selected pods that may be evicted (`status.disruptionsAllowed`).
    pub disruptions_allowed: i32,
    /// Names of pods whose eviction is charged already, without the namespace.
    pub disrupted_pods: Vec<Arc<str>>,
}

held_bytes! { DisruptionBudget { name, selector, disrupted_pods; disruptions_allowed } }

/// `ResourceQuota` of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceQuota {
    /// Name, without the namespace.
    pub name: Arc<str>,
    /// Limits (`status.hard`), such as 8 of `requests.cpu`.
    pub hard: ExactQuantities,
    /// Amounts that the pods of the namespace use (`status.used`).
    pub used: ExactQuantities,
}

held_bytes! { NamespaceQuota { name, hard, used } }

/// Record of a namespace, as its source sent it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamespaceRecord {
    /// Name of the namespace; the key.
    pub name: Arc<str>,
    /// Labels, which selectors of namespaces read.
    pub labels: TextMap,
    /// Budgets of the pods.
    pub disruption_budgets: Vec<DisruptionBudget>,
    /// Quotas of the pods' resources.
    pub resource_quotas: Vec<NamespaceQuota>,
}

held_bytes! { NamespaceRecord { name, labels, disruption_budgets, resource_quotas } }

/// Namespaces by name.
pub type NamespaceTable = SortedTable<Arc<StoredRecord<NamespaceRecord>>>;
