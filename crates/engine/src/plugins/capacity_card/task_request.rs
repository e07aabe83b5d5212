//! Request of a task, as far as cards depend on it.

use crate::cards::whole_units;
use crate::model::{ResourceAmounts, ResourceId, TaskClass, TaskRecord, TextMap};

/// Request of a task, as far as cards depend on it.
#[derive(Clone, Copy, Debug)]
pub struct TaskRequest<'a> {
    /// Name of the task's job; empty: none.
    pub job: &'a str,
    /// Card that the record names; empty: none.
    pub card: &'a str,
    /// Texts by key, of which `volcano.sh/card.name` is read.
    pub annotations: &'a TextMap,
    /// Effective requests; `pods` is at least 1.
    pub requests: &'a ResourceAmounts,
    /// Effective limits; `None`: the record has none.
    pub limits: Option<&'a ResourceAmounts>,
}

impl<'a> From<&'a TaskRecord> for TaskRequest<'a> {
    fn from(task: &'a TaskRecord) -> Self {
        Self {
            job: &task.job,
            card: &task.card,
            annotations: &task.annotations,
            requests: &task.requests,
            limits: task.limits.as_deref(),
        }
    }
}

impl<'a> TaskRequest<'a> {
    /// Request of any task of a class; `None`: nobody says whose it is.
    pub(super) fn of_class(class: &'a TaskClass) -> Option<Self> {
        let charge = class.charge.as_ref()?;
        Some(Self {
            job: &charge.job,
            card: &charge.card,
            annotations: &class.annotations,
            requests: &charge.requests,
            limits: charge.limits.as_deref(),
        })
    }

    /// Resources that it names anywhere; may repeat.
    pub(super) fn requested_resources(self) -> impl Iterator<Item = ResourceId> + use<'a> {
        let limits = self.limits.into_iter().flat_map(ResourceAmounts::iter);
        self.requests.iter().chain(limits).map(|(id, _)| id)
    }
}

/// Thousandths of cards that a task asks for by a resource: its limit, else its request, rounded up to whole cards;
/// `None`: it names the resource in neither.
pub(super) fn requested_milli<'a>(task: impl Into<TaskRequest<'a>>, resource: ResourceId) -> Option<i128> {
    let task = task.into();
    let limit = task.limits.and_then(|limits| limits.get(resource));
    let amount = limit.or_else(|| task.requests.get(resource))?;
    Some(cards_milli(resource, amount))
}

/// An amount of a resource as thousandths of whole cards.
pub(super) fn cards_milli(resource: ResourceId, amount: i64) -> i128 {
    match resource {
        ResourceId::MEMORY | ResourceId::PODS => i128::from(amount) * 1000,
        _ => i128::from(whole_units(amount)) * 1000,
    }
}
