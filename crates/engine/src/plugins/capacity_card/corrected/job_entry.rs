//! A job in figures: the least that it needs, what it holds, and what its queue reserves for it.
//!
//! A queue reserves the least that the job needs ([`super::job_minimum`]), less what the job holds. What the job holds
//! beyond the least is elastic.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::card_claims::CardClaims;
use super::job_minimum::JobMinimum;
use super::matching::{key_of, merged, named_as, set_off, share, singles_first};
use super::task_need::{NeedContext, TaskNeed, holds_resources};
use crate::held_bytes::held_bytes;
use crate::model::{JobPhase, JobRecord, StoredRecord, TaskRecord, TaskStatus};
use crate::plugins::capacity_card::{CARD_SEPARATOR, QuotaAmounts};

/// A job in figures, and what becomes of it. It reads, and is changed, as if its figures were its own; permits change
/// nothing of these, so that they stay shared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobEntry {
    /// Figures of the job.
    pub amounts: Arc<JobAmounts>,
    /// True if the queue reserves what the job does not hold yet.
    pub admitted: bool,
    /// True if the job is admitted by a permit that ends with the next vote, unless it is confirmed.
    pub(super) tentative: bool,
    /// The least that it needs on the cards that its permit gave it; `None`: nothing was to be chosen.
    pub(super) chosen: Option<Arc<QuotaAmounts>>,
}

held_bytes! { JobEntry { amounts, chosen; admitted, tentative } }

/// Amounts that a job needs, holds, and was promised.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobAmounts {
    /// Name of the queue that is charged.
    pub queue: Arc<str>,
    /// The least that it needs.
    pub(super) minimum: Arc<JobMinimum>,
    /// Amounts that its tasks hold.
    pub allocated: QuotaAmounts,
    /// Number of its tasks by choice, its cards sorted, and the card of it that they use.
    pub(super) in_use: BTreeMap<(Arc<str>, Arc<str>), u32>,
    /// Amounts that its pending tasks ask for.
    pub pending: Arc<QuotaAmounts>,
    /// Amounts that a confirmed reservation promises it, in any phase.
    pub reserved: Option<Arc<QuotaAmounts>>,
    /// Record of the job in the cluster state that the state was worked out from; `None`: it is only asked about.
    pub(super) stored: Option<Arc<StoredRecord<JobRecord>>>,
    /// True if the figures are those of the stored record; else those of another one of its name, that was asked about.
    pub(super) is_of_stored: bool,
}

held_bytes! {
    JobAmounts {
        minimum, allocated, in_use, pending, reserved; queue, stored, is_of_stored
    }
}

impl Deref for JobEntry {
    type Target = JobAmounts;

    fn deref(&self) -> &JobAmounts {
        &self.amounts
    }
}

impl DerefMut for JobEntry {
    fn deref_mut(&mut self) -> &mut JobAmounts {
        Arc::make_mut(&mut self.amounts)
    }
}

/// Contribution of a job to its queue's account.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobContribution {
    /// Held.
    pub(super) allocated: QuotaAmounts,
    /// Held or waited for.
    pub(super) request: QuotaAmounts,
    /// Reserved, choices by the cards that were given.
    pub inqueue: QuotaAmounts,
    /// Held beyond the least.
    pub elastic: QuotaAmounts,
    /// Reserved of choices for which no card was given yet.
    pub(super) claims: CardClaims,
}

impl JobAmounts {
    /// A task that needs this now holds cards of its choices, or no longer.
    pub(super) fn update_card_use(&mut self, need: &TaskNeed, held: &QuotaAmounts, holds: bool) {
        for demand in need.demands.iter().filter(|demand| demand.is_choice()) {
            let has = |name: &str| held.cards().find(|(card, amount)| ***card == *name && *amount > 0);
            let mut names = demand.alternatives.iter();
            if let Some((card, _)) = names.find_map(|(name, _)| has(name)) {
                let used = (key_of(&demand.name()), Arc::clone(card));
                let tasks = self.in_use.entry(used).or_default();
                *tasks = if holds { *tasks + 1 } else { tasks.saturating_sub(1) };
            }
        }
        self.in_use.retain(|_, tasks| *tasks > 0);
    }

    /// True if tasks of the job use this card of a choice, whose cards are sorted.
    pub(super) fn uses(&self, choice: &str, card: &str) -> bool {
        self.in_use
            .keys()
            .any(|(own, used)| **own == *choice && **used == *card)
    }
}

impl JobEntry {
    /// A job and its tasks.
    pub(super) fn of<'a>(
        context: NeedContext<'_>,
        job: &JobRecord,
        tasks: impl Iterator<Item = &'a TaskRecord>,
    ) -> Self {
        let tasks: Vec<&TaskRecord> = tasks.collect();
        let mut amounts = JobAmounts {
            queue: Arc::clone(&job.queue),
            minimum: Arc::new(JobMinimum::of(context, job, &tasks)),
            ..JobAmounts::default()
        };
        let mut pending = QuotaAmounts::default();
        for task in tasks {
            if holds_resources(task.status) {
                let held = current_need(context, task).amounts();
                amounts.update_card_use(&TaskNeed::of(context, task), &held, true);
                amounts.allocated.add(&held);
            } else if task.status == TaskStatus::Pending {
                pending.add(&current_need(context, task).amounts());
            }
        }
        amounts.pending = Arc::new(pending);
        Self {
            amounts: Arc::new(amounts),
            admitted: matches!(job.phase, JobPhase::Inqueue | JobPhase::Running | JobPhase::Unknown),
            ..Self::default()
        }
    }

    /// Amounts that it would still reserve, of choices by name; of those that its tasks use a card of, by that card.
    pub(super) fn rest(&self) -> Cow<'_, QuotaAmounts> {
        let min = &*self.minimum.min;
        if self.allocated.is_empty() && min.cards().all(|(_, amount)| amount != 0) {
            return Cow::Borrowed(min);
        }
        let (left, _) = split_promised(min, &self.allocated);
        Cow::Owned(self.on_cards(left, None))
    }

    /// Amounts of the least that it needs on the cards that its permit or its reservation gave it.
    fn given(&self) -> Option<&QuotaAmounts> {
        self.chosen.as_deref().or(self.reserved.as_deref())
    }

    /// The one card that it was given of a choice, without `mixedCards`.
    pub(super) fn given_card<'c>(&self, choice: &'c str) -> Option<&'c str> {
        card_of(self.given()?, &self.minimum.min, choice)
    }

    /// Amounts by single cards: of a choice by the card that the job's tasks use, else by those that it was given.
    fn on_cards(&self, amounts: QuotaAmounts, given: Option<&QuotaAmounts>) -> QuotaAmounts {
        if amounts.choices().next().is_none() {
            return amounts;
        }
        let mut named = amounts.without_choices();
        for (choice, amount) in amounts.choices() {
            let mut left = amount;
            if self.minimum.sizes.is_none() {
                let key = key_of(choice);
                let used = choice.split(CARD_SEPARATOR).find(|card| self.uses(&key, card));
                let card = used.or_else(|| card_of(given?, &self.minimum.min, choice));
                if let Some(card) = card {
                    left = put_on_cards(&mut named, card, amount, |_, _| amount);
                }
            } else if let Some(given) = given {
                left = put_on_cards(&mut named, choice, amount, |named, card| {
                    given.card_or_zero(card) - self.allocated.card_or_zero(card) - named.card_or_zero(card)
                });
            }
            if left > 0 || amount == 0 {
                named.add_card(choice, left);
            }
        }
        named
    }

    /// The least that it needs by single cards, if what it does not hold of it (`rest`) is on these cards (`given`).
    pub(super) fn min_on_cards(&self, rest: &QuotaAmounts, given: &QuotaAmounts) -> QuotaAmounts {
        let mut min = given.clone();
        (min.cpu, min.memory) = (self.minimum.min.cpu, self.minimum.min.memory);
        // The part of the least that the job holds, under the names by which the job needs it.
        let mut held = QuotaAmounts::clone(&self.minimum.min);
        set_off(&mut held, rest);
        for (name, amount) in held.cards() {
            let left = put_on_cards(&mut min, name, amount, |min, card| {
                self.allocated.card_or_zero(card) + given.card_or_zero(card) - min.card_or_zero(card)
            });
            if left > 0 || amount == 0 && !name.contains(CARD_SEPARATOR) {
                min.add_card(name, left);
            }
        }
        min
    }

    /// Contribution by its reservation, cards by choice: what of it is reserved, and what it holds beyond that; `None`: it
    /// has none.
    ///
    /// A promise is less what tasks that succeeded needed: it was fulfilled as far. What was promised when some had ended
    /// already stays: it does not fall below what the job still needs.
    fn promised(&self) -> Option<(QuotaAmounts, QuotaAmounts)> {
        let mut still = named_as(self.reserved.as_deref()?, &self.minimum.min);
        if !self.minimum.finished.is_zero() {
            let mut beyond_need = still.clone();
            set_off(&mut beyond_need, &self.minimum.min);
            let mut needed = still.clone();
            set_off(&mut needed, &beyond_need);
            set_off(&mut still, &self.minimum.finished);
            still.raise_to(&needed);
        }
        Some(split_promised(&still, &self.allocated))
    }

    /// Amounts that its reservation still reserves; `None`: it has none.
    pub(super) fn reservation_rest(&self) -> Option<QuotaAmounts> {
        let (left, _) = self.promised()?;
        Some(self.on_cards(left, self.given()))
    }

    /// Contribution to its queue's account now.
    pub fn contribution(&self) -> JobContribution {
        let mut request = self.allocated.clone();
        request.add(&self.pending);
        JobContribution {
            allocated: self.allocated.clone(),
            request,
            ..self.promise_and_rest()
        }
    }

    /// Parts of its contribution that are reserved, or held beyond the least.
    pub(super) fn promise_and_rest(&self) -> JobContribution {
        if self.allocated.is_empty() && !self.admitted && self.reserved.is_none() {
            return JobContribution::default();
        }
        let (left, mut elastic) = split_promised(&self.minimum.min, &self.allocated);
        let mut inqueue = if self.admitted { left } else { QuotaAmounts::default() };
        if let Some((left, beyond)) = self.promised() {
            // One promise, told by two: by its phase and by the ledger. What is promised is not elastic.
            inqueue = promised_once(inqueue, &left);
            elastic.lower_to(&beyond);
        }
        inqueue = self.on_cards(inqueue, self.given());
        JobContribution {
            claims: CardClaims::of(&self.queue, &inqueue, self.minimum.sizes.as_ref()),
            inqueue,
            elastic,
            ..JobContribution::default()
        }
    }
}

/// Puts an amount of a choice on its cards, on each as far as it has room; returns what is left.
fn put_on_cards(
    amounts: &mut QuotaAmounts,
    choice: &str,
    amount: i128,
    room: impl Fn(&QuotaAmounts, &str) -> i128,
) -> i128 {
    let mut left = amount;
    for card in choice.split(CARD_SEPARATOR) {
        let own = room(amounts, card).min(left);
        if own > 0 {
            amounts.add_card(&Arc::from(card), own);
            left -= own;
        }
    }
    left
}

/// The card of a choice on which amounts are that no task asks for by its name.
fn card_of<'c>(given: &QuotaAmounts, min: &QuotaAmounts, choice: &'c str) -> Option<&'c str> {
    let mut cards = choice.split(CARD_SEPARATOR);
    cards.find(|card| given.card_or_zero(card) > min.card_or_zero(card))
}

/// Amounts that phase and ledger tell of one promise, counted once. Nodes come and go between them, so that one may name a choice and the other
/// a card that is left of it; and a card that tasks name is one of a choice in the annotation.
fn promised_once(mut by_phase: QuotaAmounts, by_ledger: &QuotaAmounts) -> QuotaAmounts {
    let is_covered = |(name, amount): (&Arc<str>, i128)| by_phase.card(name).is_some_and(|own| own >= amount);
    if by_phase.has_cards() && !by_ledger.cards().all(is_covered) {
        let mut once = merged(&by_phase, by_ledger);
        once.drop_zero_cards();
        (once.cpu, once.memory) = (by_phase.cpu.max(by_ledger.cpu), by_phase.memory.max(by_ledger.memory));
        return once;
    }
    by_phase.raise_to(by_ledger);
    by_phase
}

/// Parts of a promise and of what is held: what of the promise is not held yet, and what is held beyond it.
pub(super) fn split_promised(promised: &QuotaAmounts, allocated: &QuotaAmounts) -> (QuotaAmounts, QuotaAmounts) {
    let mut left = promised.clone();
    if allocated.is_empty() {
        left.drop_zero_cards();
        return (left, QuotaAmounts::default());
    }
    let mut beyond = allocated.clone();
    let cpu = left.cpu.min(beyond.cpu).max(0);
    let memory = left.memory.min(beyond.memory).max(0);
    for counts in [&mut left, &mut beyond] {
        counts.cpu -= cpu;
        counts.memory -= memory;
    }
    // Single cards first: what a choice can use is what they leave.
    for (name, mut wanted) in singles_first(promised) {
        for card in name.split(CARD_SEPARATOR) {
            wanted -= beyond.take_card(card, wanted);
        }
        // A task whose node is not there (any more) may hold any of its cards.
        let unsettled = beyond.choices().filter(|(held, _)| share(held, name));
        let unsettled: Vec<Arc<str>> = unsettled.map(|(held, _)| Arc::clone(held)).collect();
        for held in &unsettled {
            wanted -= beyond.take_card(held, wanted);
        }
        left.set_card(name, wanted);
    }
    left.drop_zero_cards();
    beyond.drop_zero_cards();
    (left, beyond)
}

/// Need of a task: on its node, or anywhere.
pub(super) fn current_need(context: NeedContext<'_>, task: &TaskRecord) -> TaskNeed {
    if task.node.is_empty() || !task.status.is_on_node() {
        return TaskNeed::of(context, task);
    }
    TaskNeed::on_node(context, task, &task.node, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cards(cards: &[(&str, i128)]) -> QuotaAmounts {
        let mut amounts = QuotaAmounts::default();
        for (name, amount) in cards {
            amounts.add_card(&Arc::from(*name), *amount);
        }
        amounts
    }

    #[test]
    fn a_promise_that_two_report_counts_once() {
        let once = |phase, ledger| promised_once(cards(phase), &cards(ledger));
        assert_eq!(once(&[("B", 2)], &[("B", 3)]), cards(&[("B", 3)]));
        assert_eq!(once(&[("A|B", 2)], &[("B", 2)]), cards(&[("B", 2)]));
        // Both names are in both: the choice of the ledger is the card of the tasks and what their annotation adds.
        assert_eq!(
            once(&[("B", 2), ("G|B", 1)], &[("G|B", 3)]),
            cards(&[("B", 2), ("G|B", 1)])
        );
        assert_eq!(
            once(&[("A", 4), ("A|B", 2)], &[("A", 2), ("A|B", 5)]),
            cards(&[("A", 4), ("A|B", 3)])
        );
    }

    #[test]
    fn a_promise_keeps_what_is_needed_under_any_name() {
        let entry = JobEntry {
            amounts: Arc::new(JobAmounts {
                minimum: Arc::new(JobMinimum {
                    min: Arc::new(cards(&[("B", 2), ("G|B", 1)])),
                    finished: cards(&[("B", 2)]),
                    ..JobMinimum::default()
                }),
                reserved: Some(Arc::new(cards(&[("G|B", 3)]))),
                ..JobAmounts::default()
            }),
            ..JobEntry::default()
        };
        assert_eq!(entry.promised().unwrap().0, cards(&[("G|B", 3)]));
    }
}
