//! Status of tasks in the accounts of a cycle: what they hold, and whether they wait.

use std::sync::Arc;

use super::amounts::QuotaAmounts;
use super::task_need::{CardDemand, NeedContext, TaskNeed, choices_of};
use crate::held_bytes::held_bytes;
use crate::model::TaskRecord;

/// Status of a task in the accounts.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct HoldingStatus {
    /// Amounts that the task holds; `None`: it does not count.
    pub(super) holds: Option<Arc<QuotaAmounts>>,
    /// True if the task waits for what it needs.
    pub(super) waits: bool,
}

held_bytes! { HoldingStatus { holds; waits } }

/// Changes of what the tasks of a job hold and wait for.
#[derive(Clone, Debug, Default)]
pub(super) struct Moved {
    pub(super) held: QuotaAmounts,
    pub(super) pending: QuotaAmounts,
    /// Tasks with choices: these, what they hold, and whether they hold it now or no longer do.
    pub(super) choices: Vec<(Vec<CardDemand>, Arc<QuotaAmounts>, bool)>,
}

impl Moved {
    /// Adds the change of one task's status.
    pub(super) fn add(
        &mut self,
        context: NeedContext<'_>,
        task: &TaskRecord,
        before: &HoldingStatus,
        after: &HoldingStatus,
    ) {
        if before.waits != after.waits {
            let need = TaskNeed::of(context, task).amounts();
            if after.waits {
                self.pending.add(&need);
            } else {
                self.pending.subtract(&need);
            }
        }
        let with_cards = |own: &&Arc<QuotaAmounts>| own.has_cards();
        let any = before.holds.iter().chain(&after.holds).any(|own| with_cards(&own));
        let choices = if any { choices_of(context, task) } else { Vec::new() };
        for (holds, now) in [(&before.holds, false), (&after.holds, true)] {
            let Some(holds) = holds else { continue };
            if now {
                self.held.add(holds);
            } else {
                self.held.subtract(holds);
            }
            if !choices.is_empty() {
                self.choices.push((choices.clone(), Arc::clone(holds), now));
            }
        }
    }
}
