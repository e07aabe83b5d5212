//! A job under `compatibility: corrected`: the least that it needs, what it holds, and what its queue keeps back for it.
//!
//! The least is what the first `min_member` unfinished tasks need, those of higher priority first; while there are
//! fewer tasks than that, what the annotation and `minResources` say. What is kept back is that least, less what the
//! job holds already; what it holds beyond is elastic.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::annotations::{self, CardsError, OR, REQUEST};
use super::cards::{Cards, cards_milli};
use super::counts::Counts;
use super::need::{Context, Need};
use super::one_card::InUse;
use crate::engine::model::{Amounts, JobPhase, JobRecord, ResourceId, Stored, TaskRecord, TaskStatus};
use crate::engine::policy::Compatibility;

/// A job in figures, and what becomes of it. It reads, and is changed, as if its figures were its own; permits change
/// nothing of these, so that they stay shared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobEntry {
    /// Its figures.
    pub figures: Arc<Figures>,
    /// Its queue keeps back what it does not hold yet.
    pub admitted: bool,
    /// It is admitted by a permit that ends with the next vote, unless it is kept.
    pub(super) tentative: bool,
}

/// What a job needs, holds, and was promised.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Its queue.
    pub queue: Arc<str>,
    /// The least that it needs, cards by choice.
    pub min: Arc<Counts>,
    /// Why the annotation could not be read.
    pub fault: Option<Arc<CardsError>>,
    /// What its tasks hold.
    pub allocated: Counts,
    /// Cards that its tasks use, of those that they may use.
    pub(super) in_use: Vec<InUse>,
    /// What its pending tasks ask for.
    pub pending: Arc<Counts>,
    /// What a confirmed reservation promises it, whatever its phase.
    pub reserved: Option<Arc<Counts>>,
    /// There is a reservation of its name that is not its own, and counts by itself.
    pub(super) row_aside: bool,
    /// Its record in the View that the state was worked out from; `None`: it is only asked about.
    pub(super) stored: Option<Arc<Stored<JobRecord>>>,
    /// Its figures are those of the record that is stored; else those of another one of its name, that was asked about.
    pub(super) of_stored: bool,
}

impl Deref for JobEntry {
    type Target = Figures;

    fn deref(&self) -> &Figures {
        &self.figures
    }
}

impl DerefMut for JobEntry {
    fn deref_mut(&mut self) -> &mut Figures {
        Arc::make_mut(&mut self.figures)
    }
}

/// What a job adds to its queue's account.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contribution {
    /// Kept back.
    pub inqueue: Counts,
    /// Held beyond the least.
    pub elastic: Counts,
}

impl JobEntry {
    /// A job and its tasks.
    pub fn of<'a>(context: Context<'_>, job: &JobRecord, tasks: impl Iterator<Item = &'a TaskRecord>) -> Self {
        let tasks: Vec<(&TaskRecord, Need)> = tasks.map(|task| (task, need_of(context, task))).collect();
        let mut allocated = Counts::default();
        for (_, need) in tasks.iter().filter(|(task, _)| counts(task.status)) {
            allocated.add(&need.counts());
        }
        let mut pending = Counts::default();
        for (_, need) in tasks.iter().filter(|(task, _)| task.status == TaskStatus::Pending) {
            pending.add(&need.counts());
        }
        let declared = annotations::cards(&job.annotations, REQUEST, Compatibility::Corrected);
        let (declared, fault) = match declared {
            Ok(declared) => (declared.unwrap_or_default(), None),
            Err(fault) => (Counts::default(), Some(Arc::new(fault))),
        };
        let mut figures = Figures {
            queue: Arc::clone(&job.queue),
            min: Arc::new(least(context, job, declared, &tasks)),
            fault,
            allocated,
            in_use: Vec::new(),
            pending: Arc::new(pending),
            reserved: None,
            row_aside: false,
            stored: None,
            of_stored: false,
        };
        for (task, need) in tasks.iter().filter(|(task, _)| counts(task.status)) {
            figures.use_cards(&task.annotations, &need.counts(), true);
        }
        Self {
            figures: Arc::new(figures),
            admitted: matches!(job.phase, JobPhase::Inqueue | JobPhase::Running | JobPhase::Unknown),
            tentative: false,
        }
    }

    /// What it would still keep back, and what it holds beyond its least.
    pub fn split(&self) -> Contribution {
        split(&self.min, &self.allocated)
    }

    /// What it would still keep back.
    pub(super) fn left(&self) -> Arc<Counts> {
        if self.allocated.is_empty() && self.min.cards().all(|(_, amount)| amount != 0) {
            return Arc::clone(&self.min);
        }
        Arc::new(self.split().inqueue)
    }

    /// What it adds to its queue's account now.
    pub fn contribution(&self) -> Contribution {
        if self.allocated.is_empty() && !self.admitted && self.reserved.is_none() {
            return Contribution::default();
        }
        let mut own = self.split();
        if !self.admitted {
            own.inqueue = Counts::default();
        }
        if let Some(reserved) = &self.reserved {
            // One promise, told by two: by its phase and by the ledger. What is promised is not elastic.
            let promised = split(reserved, &self.allocated);
            own.inqueue.raise_to(&promised.inqueue);
            own.elastic.lower_to(&promised.elastic);
        }
        own
    }
}

/// What of a promise is not held yet, and what is held beyond it.
pub(super) fn split(promised: &Counts, allocated: &Counts) -> Contribution {
    if allocated.is_empty() {
        let mut inqueue = promised.clone();
        inqueue.forget_zeros();
        return Contribution {
            inqueue,
            elastic: Counts::default(),
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
        for (name, wanted) in promised.cards().filter(|(name, _)| name.contains(OR) == choices) {
            let mut wanted = wanted;
            for card in name.split(OR) {
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
    left.forget_zeros();
    beyond.forget_zeros();
    Contribution {
        inqueue: left,
        elastic: beyond,
    }
}

/// True if a task in this status counts as holding what it needs.
pub(super) fn counts(status: TaskStatus) -> bool {
    status.is_allocated() || status == TaskStatus::Pipelined
}

/// What a task needs: on its node, or anywhere.
pub(super) fn need_of(context: Context<'_>, task: &TaskRecord) -> Need {
    if task.node.is_empty() || !task.status.is_on_node() {
        return Need::of(context, task);
    }
    Need::on_node(context, task, &task.node, "")
}

fn least(context: Context<'_>, job: &JobRecord, declared: Counts, tasks: &[(&TaskRecord, Need)]) -> Counts {
    let finished = |task: &TaskRecord| matches!(task.status, TaskStatus::Succeeded | TaskStatus::Failed);
    let ended = tasks
        .iter()
        .filter(|(task, _)| task.status == TaskStatus::Succeeded)
        .count();
    let members = usize::try_from(job.min_member).unwrap_or(0);
    let complete = !tasks.is_empty() && tasks.len() >= members;
    let mut free: Vec<&TaskRecord> = Vec::new();
    let mut gated = Counts::default();
    for (task, need) in tasks.iter().filter(|(task, _)| !finished(task)) {
        if task.gated && !counts(task.status) {
            gated.add(&need.counts());
        } else {
            free.push(task);
        }
    }
    free.sort_by(|a, b| (-i64::from(a.priority), &a.name).cmp(&(-i64::from(b.priority), &b.name)));
    let needed = members.saturating_sub(ended);
    let enough = free.len() >= needed;
    // Without a minimum every task belongs to it.
    let first = if members == 0 { free.len() } else { needed };
    let mut of_tasks = Counts::default();
    for task in free.iter().take(first) {
        // Wherever it runs: a choice stays a choice, so that what the job holds can be set against it.
        of_tasks.add(&Need::of(context, task).counts());
    }
    let mut min = if complete { of_tasks.clone() } else { declared };
    if !complete && !enough {
        min = min.left_after(&gated);
    }
    let Some(given) = &job.min_resources else {
        (min.cpu, min.memory) = (of_tasks.cpu, of_tasks.memory);
        return min;
    };
    if !complete {
        add_unnamed(context.cards, given, &mut min);
    }
    (min.cpu, min.memory) = (0, 0);
    if !(context.unlimited && (min.has_cards() || context.cards.any_in(given))) {
        let off = |amount: i128, gated: i128| if enough { amount } else { (amount - gated).max(0) };
        min.cpu = off(given.get(ResourceId::CPU).unwrap_or(0).into(), gated.cpu);
        min.memory = off(given.get(ResourceId::MEMORY).unwrap_or(0).into(), gated.memory);
    }
    min
}

/// Cards' resources of `minResources` that the annotation does not cover.
fn add_unnamed(cards: &Cards, given: &Amounts, min: &mut Counts) {
    for (id, amount) in given.iter() {
        let kinds = cards.of_resource(id);
        let covered = min.cards().any(|(name, _)| {
            let mut of_choice = name.split(OR);
            of_choice.any(|card| cards.resource(card).is_some_and(|(own, _)| own == id))
        });
        if kinds.is_empty() || covered || amount <= 0 {
            continue;
        }
        let names: Vec<&str> = kinds.iter().map(|name| &**name).collect();
        min.add_card(&Arc::from(names.join("|")), cards_milli(id, amount));
    }
}
