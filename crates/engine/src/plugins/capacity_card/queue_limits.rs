//! Limits of what a queue may hold: its ceiling, its entitlement and its floor.

use std::sync::Arc;

use super::amounts::QuotaAmounts;
use super::annotations::{self, CardsError, QUOTA};
use crate::held_bytes::held_bytes;
use crate::model::{QueueRecord, QueueState, ResourceAmounts, ResourceId};
use crate::policy::Compatibility;

/// A queue's own figures, before the cluster and other queues are looked at.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CardQuota {
    /// Cards of the annotation.
    pub cards: QuotaAmounts,
    /// Why the annotation could not be read; then there are no cards.
    pub error: Option<CardsError>,
}

impl CardQuota {
    /// The quota of a queue.
    pub fn of(queue: &QueueRecord, compatibility: Compatibility) -> Self {
        match annotations::read_cards(&queue.annotations, QUOTA, compatibility) {
            Ok(cards) => Self {
                cards: cards.unwrap_or_default(),
                error: None,
            },
            Err(problem) => Self {
                cards: QuotaAmounts::default(),
                error: Some(problem),
            },
        }
    }

    /// Cpu and memory of a list, and these cards.
    pub fn with_cpu_memory(&self, amounts: Option<&ResourceAmounts>) -> QuotaAmounts {
        let amount = |id| amounts.and_then(|amounts| amounts.get(id)).unwrap_or(0);
        let mut counts = self.cards.clone();
        counts.cpu = amount(ResourceId::CPU).into();
        counts.memory = amount(ResourceId::MEMORY).into();
        counts
    }
}

/// Limits of what a queue may hold.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each ceiling is said or not, whatever the others are"
)]
pub struct QueueLimits {
    /// Whether the queue accepts jobs: open, closed, closing or unknown.
    pub state: QueueState,
    /// Larger first.
    pub priority: i32,
    /// Ceiling.
    pub capability: QuotaAmounts,
    /// There is a ceiling of cpu.
    pub cpu_limited: bool,
    /// There is a ceiling of memory.
    pub memory_limited: bool,
    /// A quota of cards is said, even one that cannot be read.
    pub cards_configured: bool,
    /// Any ceiling is said, or a quota of cards.
    pub configured: bool,
    /// Amounts that the queue is said to deserve.
    declared_deserved: QuotaAmounts,
    /// Entitlement: what is said, at most the real capability, at least the guarantee.
    pub deserved: QuotaAmounts,
    /// Floor.
    pub guarantee: QuotaAmounts,
    /// Amounts that the cluster leaves after other queues' guarantees, and its own.
    pub real_capability: QuotaAmounts,
    /// Cpu that it may hold, by its ceiling and beside what others are guaranteed; `None`: any.
    pub cpu_most: Option<i128>,
    /// Memory, likewise.
    pub memory_most: Option<i128>,
    /// Guarantees of others bound it.
    bound: bool,
    /// Why the quota of cards could not be read.
    pub quota_error: Option<CardsError>,
}

held_bytes! {
    QueueLimits {
        capability, declared_deserved, deserved, guarantee, real_capability; state, priority, cpu_limited,
        memory_limited, cards_configured, configured, cpu_most, memory_most, bound, quota_error
    }
}

impl QueueLimits {
    /// The limits of a queue in a cluster with `total`, of which all queues together are guaranteed `guaranteed`.
    ///
    /// Under `upstream` a ceiling that is not said is 0; under `corrected` there is none.
    pub fn of(
        queue: &QueueRecord,
        quota: &CardQuota,
        total: &QuotaAmounts,
        guaranteed: &QuotaAmounts,
        compatibility: Compatibility,
    ) -> Self {
        let said = |id| queue.capability.as_ref().and_then(|amounts| amounts.get(id)).is_some();
        let upstream = compatibility.is_upstream();
        let guarantee = quota.with_cpu_memory(queue.guarantee.as_ref());
        let given = queue.capability.as_ref().is_some_and(|amounts| !amounts.is_empty());
        let cards_configured = quota.cards.has_cards() || quota.error.is_some();
        let mut limits = Self {
            state: queue.state,
            priority: queue.priority,
            capability: quota.with_cpu_memory(queue.capability.as_ref()),
            cpu_limited: upstream || said(ResourceId::CPU),
            memory_limited: upstream || said(ResourceId::MEMORY),
            cards_configured,
            configured: upstream || given || cards_configured,
            declared_deserved: quota.with_cpu_memory(queue.deserved.as_ref()),
            guarantee,
            bound: !upstream,
            quota_error: quota.error.clone(),
            ..Self::default()
        };
        limits.update_cluster(total, guaranteed);
        limits
    }

    /// Follows the cluster, and what all queues are guaranteed.
    pub(super) fn update_cluster(&mut self, total: &QuotaAmounts, guaranteed: &QuotaAmounts) {
        self.real_capability = total.saturating_sub(guaranteed);
        self.real_capability.add(&self.guarantee);
        self.deserved = clamp_amounts(&self.declared_deserved, &self.real_capability, &self.guarantee);
        let most = |of: fn(&QuotaAmounts) -> i128, limited: bool| {
            let others = self.bound && of(guaranteed) > of(&self.guarantee);
            let said = limited.then(|| of(&self.capability));
            let left = others.then(|| of(&self.real_capability));
            said.into_iter().chain(left).min()
        };
        let cpu = most(|counts| counts.cpu, self.cpu_limited);
        let memory = most(|counts| counts.memory, self.memory_limited);
        (self.cpu_most, self.memory_most) = (cpu, memory);
    }

    /// True if the queue takes jobs and tasks.
    pub fn is_open(&self) -> bool {
        matches!(self.state, QueueState::Open | QueueState::Unspecified)
    }
}

/// At most `ceiling`, at least `floor`, cards not below 0.
fn clamp_amounts(counts: &QuotaAmounts, ceiling: &QuotaAmounts, floor: &QuotaAmounts) -> QuotaAmounts {
    let mut clipped = QuotaAmounts::new(
        counts.cpu.min(ceiling.cpu).max(floor.cpu),
        counts.memory.min(ceiling.memory).max(floor.memory),
    );
    let names: Vec<&Arc<str>> = counts.cards().chain(floor.cards()).map(|(name, _)| name).collect();
    for name in names {
        let held = counts.card_or_zero(name);
        let held = ceiling.card(name).map_or(held, |ceiling| held.min(ceiling));
        clipped.set_card(name, held.max(floor.card_or_zero(name)).max(0));
    }
    clipped
}
