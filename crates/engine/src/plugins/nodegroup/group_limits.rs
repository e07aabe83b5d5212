//! Limits of a queue on node groups: how much its tasks may hold on the nodes of each group.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::json_object::{self, JsonObjectError};
use crate::held_bytes::held_bytes;
use crate::model::quantity::{Quantity, QuantityError};
use crate::model::resource_name::{AmountError, ResourceKind, signed_amount};
use crate::model::{QueueRecord, ResourceTable, ResourceTotals, find_text};

/// Annotation of a queue with its limits, for example `{"a100": {"cpu": "64", "nvidia.com/gpu": "8"}}`.
pub(super) const LIMITS: &str = "volcano.sh/nodegroup-resource-limits";

/// Why the limits of a queue cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum GroupLimitsError {
    /// The annotation is not the JSON that is expected.
    #[error("{0}")]
    Json(#[from] JsonObjectError),
    /// A text is no quantity.
    #[error("`{name}` of group `{group}`: {error}")]
    Quantity {
        /// Name of the group.
        group: Arc<str>,
        /// Name of the resource.
        name: Arc<str>,
        /// Error in the text.
        error: QuantityError,
    },
    /// A quantity is no amount.
    #[error("group `{group}`: {error}")]
    Amount {
        /// Name of the group.
        group: Arc<str>,
        /// Why.
        error: AmountError,
    },
}

/// Limits of one queue: the amount of each resource, in the engine's unit, by group.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct GroupLimits(BTreeMap<Arc<str>, Vec<(Arc<str>, i64)>>);

held_bytes! { GroupLimits { 0 } }

/// Limit of a group that a task would pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PassedLimit {
    /// Name of the resource.
    pub(super) resource: Arc<str>,
    /// Amount that the queue would hold in the group, in the engine's unit.
    pub(super) wanted: i128,
    /// Limit, in the same unit.
    pub(super) limit: i64,
}

impl GroupLimits {
    /// Limits that a queue's annotation sets; `None`: none.
    ///
    /// # Errors
    /// The annotation cannot be read.
    pub(super) fn of(queue: &QueueRecord) -> Result<Option<Self>, GroupLimitsError> {
        let text = find_text(&queue.annotations, LIMITS).unwrap_or_default();
        if text.is_empty() {
            return Ok(None);
        }
        let mut limits = Self::default();
        for (group, written) in json_object::read_quantities(text)? {
            let mut amounts = Vec::new();
            for (name, text) in written {
                let quantity = Quantity::parse_in_object(&text).map_err(|error| GroupLimitsError::Quantity {
                    group: Arc::clone(&group),
                    name: Arc::clone(&name),
                    error,
                })?;
                if !ResourceKind::of(&name).counted_by_volcano() {
                    continue;
                }
                let amount = signed_amount(&name, &quantity).map_err(|error| GroupLimitsError::Amount {
                    group: Arc::clone(&group),
                    error,
                })?;
                amounts.push((name, amount));
            }
            limits.0.insert(group, amounts);
        }
        Ok((!limits.0.is_empty()).then_some(limits))
    }

    /// Names of the groups that have limits, in order.
    pub(super) fn groups(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.keys()
    }

    /// First limit of a group that a queue would pass with a request beside what it holds there; each written limit counts,
    /// also of a resource that is not requested.
    pub(super) fn passed(
        &self,
        group: &str,
        held: &ResourceTotals,
        request: &ResourceTotals,
        resources: &ResourceTable,
    ) -> Option<PassedLimit> {
        let mut limits = self.0.get(group)?.iter();
        limits.find_map(|(name, limit)| {
            let of = |amounts: &ResourceTotals| resources.get(name).and_then(|id| amounts.get(id)).unwrap_or(0);
            let wanted = of(held) + of(request);
            (wanted > i128::from(*limit)).then(|| PassedLimit {
                resource: Arc::clone(name),
                wanted,
                limit: *limit,
            })
        })
    }
}
