//! A job under `compatibility: corrected`: the least that it needs, what it holds, and what its queue keeps back for it.
//!
//! What is kept back is the least ([`super::least`]), less what the job holds already; what it holds beyond is elastic.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::amounts::{CARD_SEPARATOR, QuotaAmounts};
use super::card_use::CardUse;
use super::least::{Least, least};
use super::matching::{merged, named_as, set_off, share};
use super::pieces::{Pieces, Sizes};
use super::problems::JobProblem;
use super::task_need::{NeedContext, TaskNeed};
use super::task_need::{choices_of, holds_resources};
use crate::held_bytes::held_bytes;
use crate::model::{JobPhase, JobRecord, StoredRecord, TaskRecord, TaskStatus};

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
}

held_bytes! { JobEntry { amounts; admitted, tentative } }

/// Amounts that a job needs, holds, and was promised.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobAmounts {
    /// Name of the queue that is charged.
    pub queue: Arc<str>,
    /// The least that it needs, cards by choice.
    pub min: Arc<QuotaAmounts>,
    /// Amounts that those of its tasks that succeeded needed.
    pub(super) finished: Arc<QuotaAmounts>,
    /// With `mixedCards`: sizes of its tasks that wait for choices.
    pub(super) sizes: Option<Arc<Sizes>>,
    /// Why nothing can be promised to it.
    pub annotation_error: Option<Arc<JobProblem>>,
    /// The request of one of its tasks cannot be evaluated: whether that matters changes with any of its tasks.
    pub(super) has_request_errors: bool,
    /// Of a job whose unfinished tasks all have a gate: the least of these, which is asked about and not reserved.
    pub(super) behind_gates: Option<Arc<QuotaAmounts>>,
    /// Amounts that its tasks hold.
    pub allocated: QuotaAmounts,
    /// Cards that its tasks use, of those that they may use.
    pub(super) in_use: Vec<CardUse>,
    /// Amounts that its pending tasks ask for.
    pub pending: Arc<QuotaAmounts>,
    /// Amounts that a confirmed reservation promises it, in any phase.
    pub reserved: Option<Arc<QuotaAmounts>>,
    /// There is a reservation of its name that is not its own, and counts by itself.
    pub(super) has_detached_reservation: bool,
    /// Record of the job in the cluster state that the state was worked out from; `None`: it is only asked about.
    pub(super) stored: Option<Arc<StoredRecord<JobRecord>>>,
    /// True if the figures are those of the stored record; else those of another one of its name, that was asked about.
    pub(super) is_of_stored: bool,
}

held_bytes! {
    JobAmounts {
        min, finished, sizes, behind_gates, allocated, in_use, pending, reserved; queue, annotation_error,
        has_request_errors, has_detached_reservation, stored, is_of_stored
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
    /// Kept back.
    pub inqueue: QuotaAmounts,
    /// Held beyond the least.
    pub elastic: QuotaAmounts,
    /// Pieces of choices that are reserved.
    pub(super) pieces: Pieces,
}

impl JobEntry {
    /// A job and its tasks.
    pub fn of<'a>(context: NeedContext<'_>, job: &JobRecord, tasks: impl Iterator<Item = &'a TaskRecord>) -> Self {
        let tasks: Vec<&TaskRecord> = tasks.collect();
        let Least {
            min,
            finished,
            sizes,
            problem,
            has_request_errors,
            behind_gates,
        } = least(context, job, &tasks);
        let mut measurements = JobAmounts {
            queue: Arc::clone(&job.queue),
            min: Arc::new(min),
            finished: Arc::new(finished),
            sizes: sizes.map(Arc::new),
            annotation_error: problem.map(Arc::new),
            has_request_errors,
            behind_gates: behind_gates.map(Arc::new),
            ..JobAmounts::default()
        };
        let mut pending = QuotaAmounts::default();
        for task in tasks {
            if holds_resources(task.status) {
                let held = current_need(context, task).amounts();
                measurements.update_card_use(&choices_of(context, task), &held, true);
                measurements.allocated.add(&held);
            } else if task.status == TaskStatus::Pending {
                pending.add(&current_need(context, task).amounts());
            }
        }
        measurements.pending = Arc::new(pending);
        Self {
            amounts: Arc::new(measurements),
            admitted: matches!(job.phase, JobPhase::Inqueue | JobPhase::Running | JobPhase::Unknown),
            tentative: false,
        }
    }

    /// Contribution with the least that the job needs: what it would still reserve, and what it holds beyond that.
    pub fn split_min(&self) -> JobContribution {
        self.set_against(&self.min)
    }

    /// Contribution by an amount that is promised to it: what is not held yet, and what is held beyond it.
    fn set_against(&self, promised: &QuotaAmounts) -> JobContribution {
        let mut split = split_promised(promised, &self.allocated);
        if !self.in_use.is_empty() && self.sizes.is_none() {
            split.inqueue = self.with_cards_in_use(&split.inqueue);
        }
        split.pieces = self.pieces_of(&split.inqueue);
        split
    }

    /// Amounts that a vote asks for, where the job would reserve these: of a job behind gates those that it would need.
    pub(super) fn asked(&self, reserve: (Arc<QuotaAmounts>, Pieces)) -> (Arc<QuotaAmounts>, Pieces) {
        match &self.behind_gates {
            Some(gated) => (Arc::clone(gated), self.pieces_of(gated)),
            None => reserve,
        }
    }

    fn pieces_of(&self, amounts: &QuotaAmounts) -> Pieces {
        Pieces::of(&self.queue, amounts, self.sizes.as_deref())
    }

    /// Amounts that it would still reserve.
    pub(super) fn remaining_reserve(&self) -> (Arc<QuotaAmounts>, Pieces) {
        if self.allocated.is_empty() && self.min.cards().all(|(_, amount)| amount != 0) {
            return (Arc::clone(&self.min), self.pieces_of(&self.min));
        }
        let split = self.split_min();
        (Arc::new(split.inqueue), split.pieces)
    }

    /// The least that it needs, as if it held nothing.
    pub(super) fn least_in_pieces(&self) -> (Arc<QuotaAmounts>, Pieces) {
        (Arc::clone(&self.min), self.pieces_of(&self.min))
    }

    /// Contribution by its reservation: what of it is reserved, and what it holds beyond that; `None`: it has none.
    ///
    /// A promise is less what tasks that succeeded needed: it was fulfilled as far. What was promised when some had ended
    /// already stays: it does not fall below what the job still needs.
    pub(super) fn promised(&self) -> Option<JobContribution> {
        let reserved = self.reserved.as_deref()?;
        if self.finished.is_zero() {
            return Some(self.set_against(&named_as(reserved, &self.min)));
        }
        let mut still = named_as(reserved, &self.min);
        let mut beyond_need = still.clone();
        set_off(&mut beyond_need, &self.min);
        let mut needed = still.clone();
        set_off(&mut needed, &beyond_need);
        set_off(&mut still, &self.finished);
        still.raise_to(&needed);
        Some(self.set_against(&still))
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

    /// Parts of its contribution that are kept back, or held beyond the least.
    pub(super) fn promise_and_rest(&self) -> JobContribution {
        if self.allocated.is_empty() && !self.admitted && self.reserved.is_none() {
            return JobContribution::default();
        }
        let mut own = self.split_min();
        if !self.admitted {
            (own.inqueue, own.pieces) = (QuotaAmounts::default(), Pieces::default());
        }
        if let Some(promised) = self.promised() {
            // One promise, told by two: by its phase and by the ledger. What is promised is not elastic.
            own.inqueue = promised_once(own.inqueue, &promised.inqueue);
            own.elastic.lower_to(&promised.elastic);
            own.pieces = self.pieces_of(&own.inqueue);
        }
        own
    }
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

/// Contribution by a promise: what of it is not held yet, and what is held beyond it.
pub(super) fn split_promised(promised: &QuotaAmounts, allocated: &QuotaAmounts) -> JobContribution {
    if allocated.is_empty() {
        let mut inqueue = promised.clone();
        inqueue.drop_zero_cards();
        return JobContribution {
            inqueue,
            ..JobContribution::default()
        };
    }
    let (mut left, mut beyond) = (promised.clone(), allocated.clone());
    let cpu = left.cpu.min(beyond.cpu).max(0);
    let memory = left.memory.min(beyond.memory).max(0);
    for counts in [&mut left, &mut beyond] {
        counts.cpu -= cpu;
        counts.memory -= memory;
    }
    // Single cards first: what a choice can use is what they leave.
    for choices in [false, true] {
        for (name, wanted) in promised
            .cards()
            .filter(|(name, _)| name.contains(CARD_SEPARATOR) == choices)
        {
            let mut wanted = wanted;
            for card in name.split(CARD_SEPARATOR) {
                let Some((card, held)) = beyond.cards().find(|(held, _)| ***held == *card) else {
                    continue;
                };
                let (card, used) = (Arc::clone(card), held.min(wanted).max(0));
                beyond.add_card(&card, -used);
                wanted -= used;
            }
            // A task whose node is not there (any more) may hold any of its cards.
            let unsettled = |(held, _): &(&Arc<str>, i128)| share(held, name);
            let held: Vec<Arc<str>> = beyond
                .choices()
                .filter(unsettled)
                .map(|(held, _)| Arc::clone(held))
                .collect();
            for held in held {
                let used = beyond.card_or_zero(&held).min(wanted).max(0);
                beyond.add_card(&held, -used);
                wanted -= used;
            }
            left.set_card(name, wanted);
        }
    }
    left.drop_zero_cards();
    beyond.drop_zero_cards();
    JobContribution {
        inqueue: left,
        elastic: beyond,
        ..JobContribution::default()
    }
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
                min: Arc::new(cards(&[("B", 2), ("G|B", 1)])),
                finished: Arc::new(cards(&[("B", 2)])),
                reserved: Some(Arc::new(cards(&[("G|B", 3)]))),
                ..JobAmounts::default()
            }),
            ..JobEntry::default()
        };
        assert_eq!(entry.promised().unwrap().inqueue, cards(&[("G|B", 3)]));
    }
}
