//! Memory of the state in bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::account::QueueAccount;
use super::amounts::QuotaAmounts;
use super::card_use::CardUse;
use super::cards::ClusterCards;
use super::held_bytes::map_bytes;
use super::job_entry::{JobAmounts, JobEntry};
use super::limits::QueueLimits;
use super::state::CapacityState;
use crate::model::{COUNT_BYTES, SortedTable};

/// Bytes of shared content that the older one is not.
fn unshared<T>(own: &Arc<T>, older: Option<&Arc<T>>, beyond: impl FnOnce(&T) -> usize) -> usize {
    match older {
        Some(older) if Arc::ptr_eq(older, own) => 0,
        _ => COUNT_BYTES + size_of::<T>() + beyond(own),
    }
}

fn amounts_bytes(own: &Arc<QuotaAmounts>, older: Option<&Arc<QuotaAmounts>>) -> usize {
    unshared(own, older, QuotaAmounts::bytes_beyond)
}

fn account_bytes(account: &QueueAccount, older: Option<&QueueAccount>) -> usize {
    let lists = [&account.allocated, &account.inqueue, &account.elastic];
    unshared(
        &account.limits,
        older.map(|older| &older.limits),
        QueueLimits::bytes_beyond,
    ) + amounts_bytes(&account.request, older.map(|older| &older.request))
        + lists.map(QuotaAmounts::bytes_beyond).iter().sum::<usize>()
        + account.pieces.held_bytes()
}

fn job_bytes(job: &JobAmounts, older: Option<&JobAmounts>) -> usize {
    let sizes = job.sizes.as_ref().map_or(0, |own| {
        let older = older.and_then(|older| older.sizes.as_ref());
        unshared(own, older, |sizes| {
            sizes.capacity() * size_of::<(Arc<str>, i128, i128)>()
        })
    });
    let reserved = job.reserved.as_ref().map_or(0, |own| {
        amounts_bytes(own, older.and_then(|older| older.reserved.as_ref()))
    });
    amounts_bytes(&job.min, older.map(|older| &older.min))
        + amounts_bytes(&job.finished, older.map(|older| &older.finished))
        + amounts_bytes(&job.pending, older.map(|older| &older.pending))
        + job.allocated.bytes_beyond()
        + job.in_use.capacity() * size_of::<CardUse>()
        + sizes
        + reserved
}

/// Bytes of the blocks of a table, and of the values in them, that the older table does not share.
fn table_bytes<V: Clone>(
    table: &SortedTable<V>,
    older: Option<&SortedTable<V>>,
    value: impl Fn(&V, Option<&V>) -> usize,
) -> usize {
    let empty = SortedTable::default();
    let older = older.unwrap_or(&empty);
    let mut sum = table.unshared_bytes(older);
    table.unshared_entries(older, |own, before| sum += value(own, before));
    sum
}

fn jobs_bytes(jobs: &SortedTable<JobEntry>, older: Option<&SortedTable<JobEntry>>) -> usize {
    table_bytes(jobs, older, |own, before| {
        let before = before.map(|before| &before.amounts);
        unshared(&own.amounts, before, |own| {
            job_bytes(own, before.map(|before| &**before))
        })
    })
}

impl CapacityState {
    /// Bytes that this state holds, and that the older one does not share.
    pub(super) fn bytes_beside(&self, older: Option<&Self>) -> usize {
        let task_names = |names: &Vec<Arc<str>>| names.capacity() * size_of::<Arc<str>>();
        let guarantees = |guaranteed: &BTreeMap<Arc<str>, QuotaAmounts>| {
            map_bytes(guaranteed) + guaranteed.values().map(QuotaAmounts::bytes_beyond).sum::<usize>()
        };
        let tasks = table_bytes(
            &self.tasks_by_job,
            older.map(|older| &older.tasks_by_job),
            |own, before| unshared(own, before, task_names),
        );
        let accounts = table_bytes(&self.accounts, older.map(|older| &older.accounts), |own, before| {
            unshared(own, before, |own| account_bytes(own, before.map(|before| &**before)))
        });
        let holdings = table_bytes(
            &self.task_holdings,
            older.map(|older| &older.task_holdings),
            |own, before| {
                let before = before.and_then(|before| before.holds.as_ref());
                own.holds.as_ref().map_or(0, |own| amounts_bytes(own, before))
            },
        );
        let pod_nodes = self
            .pod_nodes
            .unshared_bytes(older.map_or(&SortedTable::default(), |older| &older.pod_nodes));
        COUNT_BYTES
            + size_of::<Self>()
            + unshared(&self.cards, older.map(|older| &older.cards), ClusterCards::held_bytes)
            + amounts_bytes(&self.total_guaranteed, older.map(|older| &older.total_guaranteed))
            + unshared(&self.guaranteed_by, older.map(|older| &older.guaranteed_by), guarantees)
            + tasks
            + accounts
            + pod_nodes
            + holdings
            + jobs_bytes(&self.jobs, older.map(|older| &older.jobs))
            + jobs_bytes(
                &self.detached_reservations,
                older.map(|older| &older.detached_reservations),
            )
            + unshared(
                &self.tentative_jobs,
                older.map(|older| &older.tentative_jobs),
                task_names,
            )
    }
}
