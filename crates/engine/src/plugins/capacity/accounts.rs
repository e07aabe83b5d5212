//! Accounts as listings and metrics show them.

use super::super::queue_accounts::{account_gauges, shown_amounts};
use super::state::QueueCapacityState;
use crate::model::{ClusterState, JobRecord, Problem, Reservation, ResourceVector};
use crate::plugin::{AccountAmounts, PluginAccount, PluginAccounts, QueueGauge};

impl PluginAccounts for QueueCapacityState {
    fn job_account(&self, _: &ClusterState, job: &JobRecord) -> Option<PluginAccount> {
        let sums = self.accounts.job(&job.name)?;
        Some(sums.shown(self.accounts.rules, &self.accounts.resources))
    }

    fn queue_account(&self, queue: &str) -> Option<PluginAccount> {
        let account = self.known_account(queue).ok()?;
        Some(account.shown(&self.accounts.resources))
    }

    fn queue_problem(&self, queue: &str) -> Option<&Problem> {
        self.place_problem(queue)
    }

    fn queue_gauges(&self, _: &ClusterState) -> Vec<QueueGauge> {
        account_gauges(&self.accounts.resources, self.accounts.by_queue.iter())
    }

    fn remaining_reservation(&self, reservation: &Reservation) -> Option<AccountAmounts> {
        let left = ResourceVector::from(&self.accounts.promise_left(reservation));
        let mut left = shown_amounts(&self.accounts.resources, &left);
        left.retain(|(_, amount)| *amount != 0.0);
        Some(left)
    }
}
