//! The least that a job needs until all of it has run: what its queue promises it, and all questions read.
//!
//! - The first `min_member` unfinished tasks need it, those of higher priority first. `card.request`, if it says more,
//!   counts, too; while there are fewer tasks than that, it and `minResources` say it.
//! - What tasks that succeeded needed is needed no more; what tasks behind a gate need is not needed yet.
//! - Tasks that must all use one card of a choice claim it whole, see [`super::card_claims`].

use std::sync::Arc;

use super::card_claims::Sizes;
use super::matching::{merged, set_off};
use super::task_need::{NeedContext, TaskNeed, holds_resources};
use crate::held_bytes::held_bytes;
use crate::model::{JobRecord, ResourceAmounts, ResourceId, TaskRecord, TaskStatus};
use crate::plugins::capacity_card::{ClusterCards, QuotaAmounts, REQUEST, annotations, cards_milli};
use crate::policy::Compatibility;

/// The least that a job needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct JobMinimum {
    /// Cards by choice.
    pub(super) min: Arc<QuotaAmounts>,
    /// Amounts that tasks that succeeded needed.
    pub(super) finished: QuotaAmounts,
    /// With `mixedCards`: sizes of the tasks that wait.
    pub(super) sizes: Option<Sizes>,
    /// Why nothing can be promised.
    pub(super) problem: Option<String>,
    /// The request of a needed task cannot be evaluated: a problem while not all needed tasks hold what they need, so that
    /// the least changes with any task.
    pub(super) has_request_errors: bool,
    /// Of a job whose unfinished tasks all have a gate: the least of these, which is asked about and not reserved.
    pub(super) behind_gates: Option<Arc<QuotaAmounts>>,
}

held_bytes! { JobMinimum { min, finished, sizes, behind_gates, problem; has_request_errors } }

/// Tasks of a job by what becomes of them.
#[derive(Default)]
struct Sorted<'a> {
    /// Neither finished nor gated, those that are needed first in front.
    free: Vec<(&'a TaskRecord, Arc<TaskNeed>)>,
    /// Tasks behind a gate.
    gated: Vec<(&'a TaskRecord, Arc<TaskNeed>)>,
    succeeded: usize,
    failed: Vec<(&'a TaskRecord, Arc<TaskNeed>)>,
    /// Amounts that tasks that succeeded needed.
    finished: QuotaAmounts,
    /// Some task asks for cards, whatever became of it.
    cards: bool,
}

impl<'a> Sorted<'a> {
    /// `tasks`: with what they need wherever they run. `open`: gates count as open.
    fn of(tasks: impl Iterator<Item = (&'a TaskRecord, Arc<TaskNeed>)>, open: bool) -> Self {
        let mut sorted = Self::default();
        for (task, need) in tasks {
            sorted.cards |= !need.demands.is_empty();
            if task.status == TaskStatus::Succeeded {
                sorted.succeeded += 1;
                sorted.finished.add(&need.amounts());
            } else if task.status == TaskStatus::Failed {
                sorted.failed.push((task, need));
            } else if task.gated && !open && !holds_resources(task.status) {
                sorted.gated.push((task, need));
            } else {
                sorted.free.push((task, need));
            }
        }
        let order = |task: &TaskRecord| (-i64::from(task.priority), Arc::clone(&task.name));
        sorted.free.sort_by_cached_key(|(task, _)| order(task));
        sorted.failed.sort_by_cached_key(|(task, _)| order(task));
        sorted
    }

    /// Amounts that failed tasks needed, as far as no others came in their places. `needed`: how many must still run.
    fn lost(&self, needed: usize) -> QuotaAmounts {
        let missing = needed.saturating_sub(self.free.len() + self.gated.len());
        let mut lost = QuotaAmounts::default();
        for (_, need) in self.failed.iter().take(missing) {
            lost.add(&need.amounts());
        }
        lost
    }
}

/// The least that a job needs, with its gates as they are, or open.
#[expect(clippy::too_many_lines, reason = "one account, each kind of task once")]
fn by_gates(context: NeedContext<'_>, job: &JobRecord, tasks: &[&TaskRecord], open: bool) -> JobMinimum {
    let count = tasks.len();
    let mut last = None;
    let needs = tasks.iter().map(|task| {
        let task: &TaskRecord = task;
        // Tasks of one template need the same.
        let known = last.take().filter(|(shape, _)| Arc::ptr_eq(shape, &task.shape));
        let (_, need) =
            last.insert(known.unwrap_or_else(|| (Arc::clone(&task.shape), Arc::new(TaskNeed::of(context, task)))));
        (task, Arc::clone(need))
    });
    let sorted = Sorted::of(needs, open);
    let members = usize::try_from(job.min_member).unwrap_or(0);
    let complete = count > 0 && count >= members;
    let needed = members.saturating_sub(sorted.succeeded);
    let enough = sorted.free.len() >= needed;
    // Without a minimum every task belongs to it.
    let first = if members == 0 { sorted.free.len() } else { needed };
    let mut minimum = JobMinimum {
        sizes: context.mixed.then(Vec::new),
        ..JobMinimum::default()
    };
    let holding = sorted
        .free
        .iter()
        .filter(|(task, _)| holds_resources(task.status))
        .count();
    let waits = first > holding;
    // What tasks name that run on cards which they do not name.
    let mut elsewhere = QuotaAmounts::default();
    let mut of_tasks = QuotaAmounts::default();
    for (task, need) in sorted.free.iter().take(first) {
        let own = own_counts(context, task, need);
        if own != need.amounts() {
            elsewhere.add(&need.amounts());
        }
        of_tasks.add(&own);
        minimum.has_request_errors |= need.request_error.is_some();
        if !holds_resources(task.status) {
            if let (Some(problem), None, true) = (&need.request_error, &minimum.problem, waits) {
                minimum.problem = Some(problem.to_string());
            }
            minimum.wait(need);
        }
    }
    let mut done = sorted.lost(needed);
    done.add(&sorted.finished);
    if !enough {
        for (_, need) in &sorted.gated {
            done.add(&need.amounts());
        }
    }
    let (declared, problem) = match annotations::read_cards(&job.annotations, REQUEST, Compatibility::Corrected) {
        Ok(declared) => (declared.unwrap_or_default(), None),
        Err(problem) => (QuotaAmounts::default(), Some(problem)),
    };
    let is_card_job = sorted.cards || declared.has_cards();
    let mut reported = on_nodes(context.cards, &declared);
    if let (Some(given), false) = (&job.min_resources, complete) {
        add_unnamed(context.cards, given, &mut reported);
    }
    set_off(&mut reported, &done);
    set_off(&mut reported, &elsewhere);
    let mut min = if complete {
        merged(&of_tasks, &reported)
    } else {
        reported
    };
    (min.cpu, min.memory) = plain(context, job, is_card_job, &of_tasks, &done);
    minimum.problem = problem.map(|problem| problem.to_string()).or(minimum.problem);
    (minimum.min, minimum.finished) = (Arc::new(min), sorted.finished);
    minimum
}

/// Amounts of a job's annotation by the cards of each choice that some node has, as tasks count them; a choice of which no node
/// has a card stays.
fn on_nodes(cards: &ClusterCards, declared: &QuotaAmounts) -> QuotaAmounts {
    let mut amounts = QuotaAmounts::new(declared.cpu, declared.memory);
    for (name, amount) in declared.cards() {
        let known: Vec<&str> = cards.of_choice(name).map(|(card, _)| card).collect();
        if known.is_empty() {
            amounts.add_card(name, amount);
        } else {
            amounts.add_card(&Arc::from(known.join("|")), amount);
        }
    }
    amounts
}

/// Cpu and memory: of the tasks, or what `minResources` says, less what is needed no more, or not yet.
fn plain(
    context: NeedContext<'_>,
    job: &JobRecord,
    has_cards: bool,
    of_tasks: &QuotaAmounts,
    done: &QuotaAmounts,
) -> (i128, i128) {
    let Some(given) = &job.min_resources else {
        return (of_tasks.cpu, of_tasks.memory);
    };
    if context.unlimited_cpu_memory && (has_cards || context.cards.has_card_resource(given)) {
        return (0, 0);
    }
    let amount = |id, done: i128| (i128::from(given.get(id).unwrap_or(0)) - done).max(0);
    (
        amount(ResourceId::CPU, done.cpu),
        amount(ResourceId::MEMORY, done.memory),
    )
}

impl JobMinimum {
    /// The least that a job with these tasks needs. A job that has nothing but tasks behind gates is asked about as if these were
    /// open: what it could never have does not come with their opening.
    pub(super) fn of(context: NeedContext<'_>, job: &JobRecord, tasks: &[&TaskRecord]) -> Self {
        let own = by_gates(context, job, tasks, false);
        let is_done = |task: &TaskRecord| matches!(task.status, TaskStatus::Succeeded | TaskStatus::Failed);
        let mut unfinished = tasks.iter().filter(|task| !is_done(task)).peekable();
        let only_gated =
            unfinished.peek().is_some() && unfinished.all(|task| task.gated && !holds_resources(task.status));
        if !only_gated {
            return own;
        }
        let open = by_gates(context, job, tasks, true);
        Self {
            sizes: open.sizes,
            problem: open.problem,
            has_request_errors: open.has_request_errors,
            behind_gates: Some(open.min),
            ..own
        }
    }

    /// A task waits for what it needs.
    fn wait(&mut self, need: &TaskNeed) {
        let Some(sizes) = &mut self.sizes else { return };
        for demand in need.demands.iter().filter(|demand| demand.is_choice()) {
            let (name, size) = (demand.name(), demand.max_amount());
            match sizes.last_mut() {
                Some((own, last, count)) if *own == name && *last == size => *count += 1,
                _ => sizes.push((name, size, 1)),
            }
        }
    }
}

/// Amounts that a task counts for its job: a choice stays a choice wherever it runs, so that what the job holds can be
/// set against it. A task that runs on a card that it does not name counts as what it uses.
fn own_counts(context: NeedContext<'_>, task: &TaskRecord, need: &TaskNeed) -> QuotaAmounts {
    if !holds_resources(task.status) || task.node.is_empty() || need.demands.is_empty() {
        return need.amounts();
    }
    let held = TaskNeed::on_node(context, task, &task.node, "");
    let mut own = QuotaAmounts::new(need.cpu, need.memory);
    for demand in &held.demands {
        let is_used = |named: &&super::task_need::CardDemand| {
            let mut used = demand.alternatives.iter();
            used.any(|(card, _)| named.alternatives.iter().any(|(own, _)| own == card))
        };
        let named = need.demands.iter().find(is_used).unwrap_or(demand);
        own.add_card(&named.name(), demand.max_amount());
    }
    own
}

/// Cards' resources of `minResources` that the annotation does not cover. A card in it that no node has may be of any of
/// them: then nothing is counted as another card.
fn add_unnamed(cards: &ClusterCards, given: &ResourceAmounts, min: &mut QuotaAmounts) {
    let unknown = |name: &str| cards.of_choice(name).next().is_none();
    if min.cards().any(|(name, amount)| amount > 0 && unknown(name)) {
        return;
    }
    for (id, amount) in given.iter() {
        let kinds = cards.cards_of_resource(id);
        let covered = min
            .cards()
            .any(|(name, _)| cards.of_choice(name).any(|(_, own)| own == id));
        if kinds.is_empty() || covered || amount <= 0 {
            continue;
        }
        let names: Vec<&str> = kinds.iter().map(|name| &**name).collect();
        min.add_card(&Arc::from(names.join("|")), cards_milli(id, amount));
    }
}
