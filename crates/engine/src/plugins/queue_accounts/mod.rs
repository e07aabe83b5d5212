//! Accounts of queues as Volcano's quota plugins for queues (proportion, capacity) keep them: sums over jobs that both
//! plugins read, and that each limits in its own way.

mod account;
mod account_list;
mod admission;
mod all_accounts;
mod gauges;
mod integer_amounts;
mod job_sums;
mod plugin;
#[cfg(test)]
pub(super) mod testing;

pub(super) use account::{QueueBounds, QueueTotals, guarantee_sum, limits, optional_vector, unguaranteed};
pub(super) use account_list::{QueueAncestors, QueuePlace};
pub(super) use admission::{QuotaLimit, QuotaReason, lasting_reason, missing_amount, not_open, opinion, sum_with};
pub(super) use all_accounts::{QueueAccounts, reference_panics};
pub(super) use gauges::{amount_help, gauge, help, push_account, push_amounts};
pub(super) use integer_amounts::{IntegerAmounts, PresentTotals};
pub(super) use job_sums::JobRules;
pub(super) use plugin::{ChargedTask, QueueLimiter, QuotaState, is_reclaimable, missing_state};
