//! Advances shares to a newer cluster state in which tasks only moved; the result is bit-identical to a computation
//! from that state.

use std::collections::BTreeMap;

use super::share::{add_amounts, subtract_amounts};
use super::{DrfState, JobAccount};
use crate::model::{StateDiff, TaskRecord, TaskStatus};
use crate::policy::Compatibility;

impl DrfState {
    /// Shares of the newer cluster state, if `self` holds those of the older one and only placements and statuses of
    /// tasks differ. Any other difference changes the jobs' requests, or the tree.
    pub(super) fn advanced(&self, changes: &StateDiff<'_>) -> Option<Self> {
        let same = changes.same_slots()
            && changes.old.resources().has_same_names(changes.new.resources())
            && changes.queues().is_empty()
            && changes.jobs().is_empty()
            && changes.nodes().is_empty();
        if !same {
            return None;
        }
        let mut accounts: BTreeMap<usize, JobAccount> = BTreeMap::new();
        for task in changes.tasks() {
            let (before, after) = (task.before?, task.after?);
            let asks = (&before.job, &before.requests) == (&after.job, &after.requests);
            if !asks || self.layout.is_requested(before) != self.layout.is_requested(after) {
                return None;
            }
            let Some(job) = self.layout.job_number(&after.job) else {
                continue;
            };
            let Some(known) = self.accounts.get(job) else { continue };
            let account = accounts.entry(job).or_insert_with(|| JobAccount::clone(known));
            let (requests, _) = self.layout.dimensions.by_position(&after.requests);
            if self.is_held(before) {
                subtract_amounts(&mut account.held, &requests);
            }
            if self.is_held(after) {
                add_amounts(&mut account.held, &requests);
            }
            for (task, more) in [(before, false), (after, true)] {
                if self.layout.is_waiting(task) {
                    account.count_waiting(&requests, more);
                }
            }
        }
        let mut allocated = self.allocated.clone();
        for (job, account) in &accounts {
            if let Some(before) = self.accounts.get(*job) {
                subtract_amounts(&mut allocated, &before.held);
                add_amounts(&mut allocated, &account.held);
            }
        }
        let mut next = self.clone();
        for (job, account) in accounts {
            next.update_job(job, account, allocated.clone());
        }
        Some(next)
    }

    /// True if the job holds the task's requests at the beginning.
    fn is_held(&self, task: &TaskRecord) -> bool {
        let pipelined = self.layout.compatibility == Compatibility::Corrected && task.status == TaskStatus::Pipelined;
        task.status.is_allocated() || pipelined
    }
}
