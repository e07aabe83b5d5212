//! A job under `compatibility: corrected`: the least that it needs, what it holds, and what its queue keeps back for it.
//!
//! The least is what the first `min_member` unfinished tasks need, those of higher priority first; while there are
//! fewer tasks than that, what the annotation and `minResources` say. What is kept back is that least, less what the
//! job holds already; what it holds beyond is elastic.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::amounts::QuotaAmounts;
use super::annotations::{self, CARD_SEPARATOR, CardsError, REQUEST};
use super::cards::{ClusterCards, cards_milli};
use super::one_card::CardUse;
use super::task_need::{NeedContext, TaskNeed};
use crate::engine::model::{JobPhase, JobRecord, ResourceAmounts, ResourceId, StoredRecord, TaskRecord, TaskStatus};
use crate::engine::policy::Compatibility;

/// A job in figures, and what becomes of it. It reads, and is changed, as if its figures were its own; permits change
/// nothing of these, so that they stay shared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobEntry {
    /// Its figures.
    pub amounts: Arc<JobAmounts>,
    /// Its queue keeps back what it does not hold yet.
    pub admitted: bool,
    /// It is admitted by a permit that ends with the next vote, unless it is kept.
    pub(super) tentative: bool,
}

/// What a job needs, holds, and was promised.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobAmounts {
    /// Its queue.
    pub queue: Arc<str>,
    /// The least that it needs, cards by choice.
    pub min: Arc<QuotaAmounts>,
    /// Why the annotation could not be read.
    pub annotation_error: Option<Arc<CardsError>>,
    /// What its tasks hold.
    pub allocated: QuotaAmounts,
    /// Cards that its tasks use, of those that they may use.
    pub(super) in_use: Vec<CardUse>,
    /// What its pending tasks ask for.
    pub pending: Arc<QuotaAmounts>,
    /// What a confirmed reservation promises it, whatever its phase.
    pub reserved: Option<Arc<QuotaAmounts>>,
    /// There is a reservation of its name that is not its own, and counts by itself.
    pub(super) has_detached_reservation: bool,
    /// Its record in the cluster state that the state was worked out from; `None`: it is only asked about.
    pub(super) stored: Option<Arc<StoredRecord<JobRecord>>>,
    /// Its figures are those of the record that is stored; else those of another one of its name, that was asked about.
    pub(super) is_of_stored: bool,
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

/// What a job adds to its queue's account.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobContribution {
    /// Kept back.
    pub inqueue: QuotaAmounts,
    /// Held beyond the least.
    pub elastic: QuotaAmounts,
}

impl JobEntry {
    /// A job and its tasks.
    pub fn of<'a>(context: NeedContext<'_>, job: &JobRecord, tasks: impl Iterator<Item = &'a TaskRecord>) -> Self {
        let tasks: Vec<(&TaskRecord, TaskNeed)> = tasks.map(|task| (task, current_need(context, task))).collect();
        let mut allocated = QuotaAmounts::default();
        for (_, need) in tasks.iter().filter(|(task, _)| holds_resources(task.status)) {
            allocated.add(&need.amounts());
        }
        let mut pending = QuotaAmounts::default();
        for (_, need) in tasks.iter().filter(|(task, _)| task.status == TaskStatus::Pending) {
            pending.add(&need.amounts());
        }
        let declared = annotations::read_cards(&job.annotations, REQUEST, Compatibility::Corrected);
        let (declared, problem) = match declared {
            Ok(declared) => (declared.unwrap_or_default(), None),
            Err(problem) => (QuotaAmounts::default(), Some(Arc::new(problem))),
        };
        let mut measurements = JobAmounts {
            queue: Arc::clone(&job.queue),
            min: Arc::new(min_amounts(context, job, declared, &tasks)),
            annotation_error: problem,
            allocated,
            in_use: Vec::new(),
            pending: Arc::new(pending),
            reserved: None,
            has_detached_reservation: false,
            stored: None,
            is_of_stored: false,
        };
        for (task, need) in tasks.iter().filter(|(task, _)| holds_resources(task.status)) {
            measurements.update_card_use(&task.annotations, &need.amounts(), true);
        }
        Self {
            amounts: Arc::new(measurements),
            admitted: matches!(job.phase, JobPhase::Inqueue | JobPhase::Running | JobPhase::Unknown),
            tentative: false,
        }
    }

    /// What it would still keep back, and what it holds beyond its least.
    pub fn split_min(&self) -> JobContribution {
        split_promised(&self.min, &self.allocated)
    }

    /// What it would still keep back.
    pub(super) fn remaining_reserve(&self) -> Arc<QuotaAmounts> {
        if self.allocated.is_empty() && self.min.cards().all(|(_, amount)| amount != 0) {
            return Arc::clone(&self.min);
        }
        Arc::new(self.split_min().inqueue)
    }

    /// What it adds to its queue's account now.
    pub fn contribution(&self) -> JobContribution {
        if self.allocated.is_empty() && !self.admitted && self.reserved.is_none() {
            return JobContribution::default();
        }
        let mut own = self.split_min();
        if !self.admitted {
            own.inqueue = QuotaAmounts::default();
        }
        if let Some(reserved) = &self.reserved {
            // One promise, told by two: by its phase and by the ledger. What is promised is not elastic.
            let promised = split_promised(reserved, &self.allocated);
            own.inqueue.raise_to(&promised.inqueue);
            own.elastic.lower_to(&promised.elastic);
        }
        own
    }
}

/// What of a promise is not held yet, and what is held beyond it.
pub(super) fn split_promised(promised: &QuotaAmounts, allocated: &QuotaAmounts) -> JobContribution {
    if allocated.is_empty() {
        let mut inqueue = promised.clone();
        inqueue.drop_zero_cards();
        return JobContribution {
            inqueue,
            elastic: QuotaAmounts::default(),
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
            left.set_card(name, wanted);
        }
    }
    left.drop_zero_cards();
    beyond.drop_zero_cards();
    JobContribution {
        inqueue: left,
        elastic: beyond,
    }
}

/// True if a task in this status counts as holding what it needs.
pub(super) fn holds_resources(status: TaskStatus) -> bool {
    status.is_allocated() || status == TaskStatus::Pipelined
}

/// What a task needs: on its node, or anywhere.
pub(super) fn current_need(context: NeedContext<'_>, task: &TaskRecord) -> TaskNeed {
    if task.node.is_empty() || !task.status.is_on_node() {
        return TaskNeed::of(context, task);
    }
    TaskNeed::on_node(context, task, &task.node, "")
}

fn min_amounts(
    context: NeedContext<'_>,
    job: &JobRecord,
    declared: QuotaAmounts,
    tasks: &[(&TaskRecord, TaskNeed)],
) -> QuotaAmounts {
    let finished = |task: &TaskRecord| matches!(task.status, TaskStatus::Succeeded | TaskStatus::Failed);
    let ended = tasks
        .iter()
        .filter(|(task, _)| task.status == TaskStatus::Succeeded)
        .count();
    let members = usize::try_from(job.min_member).unwrap_or(0);
    let complete = !tasks.is_empty() && tasks.len() >= members;
    let mut free: Vec<&TaskRecord> = Vec::new();
    let mut gated = QuotaAmounts::default();
    for (task, need) in tasks.iter().filter(|(task, _)| !finished(task)) {
        if task.gated && !holds_resources(task.status) {
            gated.add(&need.amounts());
        } else {
            free.push(task);
        }
    }
    free.sort_by(|a, b| (-i64::from(a.priority), &a.name).cmp(&(-i64::from(b.priority), &b.name)));
    let needed = members.saturating_sub(ended);
    let enough = free.len() >= needed;
    // Without a minimum every task belongs to it.
    let first = if members == 0 { free.len() } else { needed };
    let mut of_tasks = QuotaAmounts::default();
    for task in free.iter().take(first) {
        // Wherever it runs: a choice stays a choice, so that what the job holds can be set against it.
        of_tasks.add(&TaskNeed::of(context, task).amounts());
    }
    let mut min = if complete { of_tasks.clone() } else { declared };
    if !complete && !enough {
        min = min.saturating_sub(&gated);
    }
    let Some(given) = &job.min_resources else {
        (min.cpu, min.memory) = (of_tasks.cpu, of_tasks.memory);
        return min;
    };
    if !complete {
        add_unnamed_min(context.cards, given, &mut min);
    }
    (min.cpu, min.memory) = (0, 0);
    if !(context.unlimited_cpu_memory && (min.has_cards() || context.cards.has_card_resource(given))) {
        let off = |amount: i128, gated: i128| if enough { amount } else { (amount - gated).max(0) };
        min.cpu = off(given.get(ResourceId::CPU).unwrap_or(0).into(), gated.cpu);
        min.memory = off(given.get(ResourceId::MEMORY).unwrap_or(0).into(), gated.memory);
    }
    min
}

/// Cards' resources of `minResources` that the annotation does not cover.
fn add_unnamed_min(cards: &ClusterCards, given: &ResourceAmounts, min: &mut QuotaAmounts) {
    for (id, amount) in given.iter() {
        let kinds = cards.cards_of_resource(id);
        let covered = min.cards().any(|(name, _)| {
            let mut of_choice = name.split(CARD_SEPARATOR);
            of_choice.any(|card| cards.resource(card).is_some_and(|(own, _)| own == id))
        });
        if kinds.is_empty() || covered || amount <= 0 {
            continue;
        }
        let names: Vec<&str> = kinds.iter().map(|name| &**name).collect();
        min.add_card(&Arc::from(names.join("|")), cards_milli(id, amount));
    }
}
