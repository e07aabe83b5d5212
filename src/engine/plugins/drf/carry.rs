//! Shares beside a newer View in which tasks only moved: equal to those worked out anew, to the last bit.

use std::collections::BTreeMap;

use super::share::{add, subtract};
use super::{Account, Drf};
use crate::engine::model::{Changes, TaskRecord, TaskStatus};
use crate::engine::policy::Compatibility;

impl Drf {
    /// The shares of the newer View, if these are those of the older one and nothing differs but where tasks stand.
    /// Anything else changes what jobs ask for, or the tree.
    pub(super) fn carried(&self, changes: &Changes<'_>) -> Option<Self> {
        let same = changes.same_slots()
            && changes.old.resources().len() == changes.new.resources().len()
            && changes.queues().is_empty()
            && changes.jobs().is_empty()
            && changes.nodes().is_empty();
        if !same {
            return None;
        }
        let mut accounts: BTreeMap<usize, Account> = BTreeMap::new();
        for task in changes.tasks() {
            let (before, after) = (task.before?, task.after?);
            let asks = (&before.job, &before.requests) == (&after.job, &after.requests);
            if !asks || self.is_asked(before) != self.is_asked(after) {
                return None;
            }
            let Some(job) = self.shape.job_number(&after.job) else {
                continue;
            };
            let Some(known) = self.accounts.get(job) else { continue };
            let account = accounts.entry(job).or_insert_with(|| known.clone());
            let (requests, _) = self.shape.dims.place(&after.requests);
            if self.is_held(before) {
                subtract(&mut account.held, &requests);
            }
            if self.is_held(after) {
                add(&mut account.held, &requests);
            }
            for (task, more) in [(before, false), (after, true)] {
                if self.is_waiting(task) {
                    account.wait(&requests, more);
                }
            }
        }
        let mut allocated = self.allocated.clone();
        for (job, account) in &accounts {
            if let Some(before) = self.accounts.get(*job) {
                subtract(&mut allocated, &before.held);
                add(&mut allocated, &account.held);
            }
        }
        let mut next = self.clone();
        for (job, account) in accounts {
            next.restate(job, account, allocated.clone());
        }
        Some(next)
    }

    /// True if a job asks for what the task requests.
    fn is_asked(&self, task: &TaskRecord) -> bool {
        self.shape.compatibility == Compatibility::Upstream
            || !matches!(task.status, TaskStatus::Succeeded | TaskStatus::Failed)
    }

    /// True if the job holds it at the beginning.
    fn is_held(&self, task: &TaskRecord) -> bool {
        let pipelined = self.shape.compatibility == Compatibility::Corrected && task.status == TaskStatus::Pipelined;
        task.status.is_allocated() || pipelined
    }

    /// True if the task waits for it.
    fn is_waiting(&self, task: &TaskRecord) -> bool {
        self.shape.compatibility == Compatibility::Corrected
            && matches!(task.status, TaskStatus::Pending | TaskStatus::Releasing)
            && !task.gated
    }
}
