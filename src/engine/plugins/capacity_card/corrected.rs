//! Votes and events under `compatibility: corrected`: exact accounts, every reason, and no way past a quota.
//!
//! A job that may use any of several cards is permitted if one of them has room for all of it. What it keeps back is
//! booked to the choice, and every later vote leaves so much room among those cards as the bookings need.

use std::sync::Arc;

use super::account::Account;
use super::annotations::OR;
use super::counts::Counts;
use super::entry::{Contribution, JobEntry, counts, need_of};
use super::flow::Flow;
use super::limits::Limits;
use super::need::{Context, Demand, Need};
use super::refusal::{self, Compared, Dimension, Refusal, insufficient};
use super::state::CapacityState;
use super::votes::Verdict;
use crate::engine::model::{JobRecord, Problem, TaskRecord, View};

impl Limits {
    /// The name under which an amount of a choice is booked: cards that the queue may hold, sorted; all of them, if it
    /// may hold none.
    pub(super) fn booking(&self, choice: &Arc<str>) -> Arc<str> {
        if !choice.contains(OR) {
            return Arc::clone(choice);
        }
        let mut cards: Vec<&str> = choice
            .split(OR)
            .filter(|card| self.capability.card_or_zero(card) > 0)
            .collect();
        if cards.is_empty() {
            return Arc::clone(choice);
        }
        cards.sort_unstable();
        Arc::from(cards.join("|"))
    }

    fn booked(&self, amounts: &Counts) -> Counts {
        let mut booked = Counts::new(amounts.cpu, amounts.memory);
        for (choice, amount) in amounts.cards() {
            booked.add_card(&self.booking(choice), amount);
        }
        booked
    }
}

impl Account {
    /// Takes a job's contribution in.
    pub(super) fn add(&mut self, contribution: &Contribution) {
        self.inqueue.add(&self.limits.booked(&contribution.inqueue));
        self.elastic.add(&contribution.elastic);
    }

    /// Takes a job's contribution out.
    pub(super) fn take(&mut self, contribution: &Contribution) {
        self.inqueue.subtract(&self.limits.booked(&contribution.inqueue));
        self.elastic.subtract(&contribution.elastic);
        self.inqueue.forget_zeros();
        self.elastic.forget_zeros();
    }
}

/// What is held and kept back in a queue, as jobs are asked about one after the other.
struct Books<'a> {
    queue: &'a str,
    limits: &'a Limits,
    /// Held and kept back, less what is elastic; choices apart.
    used: Counts,
}

impl<'a> Books<'a> {
    fn of(queue: &'a str, account: &'a Account) -> Self {
        let mut used = account.allocated.clone();
        used.add(&account.inqueue);
        used.subtract(&account.elastic);
        let limits = &account.limits;
        Self { queue, limits, used }
    }

    fn capability(&self, card: &str) -> i128 {
        self.limits.capability.card_or_zero(card)
    }

    /// Held of a card, and the least of the choices' bookings that must go there.
    fn held(&self, card: &str) -> i128 {
        let room = |card: &str| self.capability(card) - self.used.card_or_zero(card);
        let choices = self.used.cards().filter(|(name, _)| name.contains(OR));
        self.used.card_or_zero(card) + Flow::new(choices, room).least_on(card)
    }

    fn compared(&self, card: &str, requested: i128) -> Compared {
        Compared {
            requested,
            total: self.held(card) + requested,
            capability: self.capability(card),
        }
    }

    fn note(&self) -> String {
        match &self.limits.fault {
            Some(fault) => format!("; the quota counts as empty: {fault}"),
            None => String::new(),
        }
    }

    /// Cpu and memory, where there is a limit.
    fn plain(&self, wanted: &Counts) -> Vec<Refusal> {
        let mut total = self.used.clone();
        total.add(wanted);
        let limited = [self.limits.cpu_limited, self.limits.memory_limited];
        refusal::plain(wanted, &total, &self.limits.capability)
            .into_iter()
            .zip(limited)
            .filter(|((_, compared), limited)| {
                *limited && compared.requested > 0 && compared.total > compared.capability
            })
            .map(|((dimension, compared), _)| insufficient(self.queue, dimension, compared, ""))
            .collect()
    }

    /// One card, or one of several, for a job; what fits is booked.
    fn card(&mut self, choice: &Arc<str>, wanted: i128) -> Option<Refusal> {
        let compared: Vec<(&str, Compared)> = choice
            .split(OR)
            .map(|card| (card, self.compared(card, wanted)))
            .collect();
        if wanted <= 0
            || compared
                .iter()
                .any(|(_, compared)| compared.total <= compared.capability)
        {
            self.used.add_card(&self.limits.booking(choice), wanted);
            return None;
        }
        Some(self.refuse(choice, &compared))
    }

    /// The figures are those of the alternative that is the least short.
    fn refuse(&self, choice: &str, compared: &[(&str, Compared)]) -> Refusal {
        let short = |compared: &Compared| compared.total - compared.capability;
        let least = compared.iter().min_by_key(|(_, compared)| short(compared));
        let least = least.map_or(
            Compared {
                requested: 0,
                total: 0,
                capability: 0,
            },
            |(_, compared)| *compared,
        );
        let mut note = self.note();
        if compared.len() > 1 {
            let cards = |milli: i128| milli as f64 / 1000.0;
            let each = compared.iter().map(|(card, compared)| {
                format!("<{card}> {} of {}", cards(compared.total), cards(compared.capability))
            });
            note = format!("; with this task or job {}{note}", each.collect::<Vec<_>>().join(", "));
        }
        insufficient(self.queue, Dimension::Card(choice), least, &note)
    }
}

impl CapacityState {
    pub(super) fn context<'a>(&'a self, view: &'a View) -> Context<'a> {
        Context {
            cards: &self.cards,
            resources: view.resources(),
            unlimited: self.config.unlimited,
        }
    }

    /// A job in figures: as it is kept, or anew for one that is only asked about.
    pub(super) fn entry(&self, view: &View, job: &JobRecord) -> Arc<JobEntry> {
        let stored = self.opened.jobs().get(&job.name);
        let same = stored.is_some_and(|stored| stored.record == *job);
        let kept = self.jobs.get(&job.name);
        if let Some(entry) = kept.filter(|_| same) {
            return Arc::clone(entry);
        }
        let mut entry = JobEntry::of(self.context(view), job, self.tasks(view, &job.name));
        if let Some(kept) = kept.filter(|kept| kept.queue == job.queue) {
            entry.allocated = kept.allocated.clone();
            entry.reserved.clone_from(&kept.reserved);
        }
        Arc::new(entry)
    }

    /// The vote on a job: every reason against it. Its own former reservation does not stand in its way.
    pub(super) fn corrected_job(&self, view: &View, job: &JobRecord) -> Result<Verdict, Problem> {
        let mut account = Account::clone(&*self.account_of(&job.queue)?);
        let entry = self.entry(view, job);
        let held_here = self.without_own(view, job, &mut account);
        let mut refusals = closed(&job.queue, &account);
        if let Some(fault) = &entry.fault {
            refusals.push(refusal::request_failed(&job.queue, fault));
        }
        // What it holds in another queue, or held as another incarnation, is no part of what it asks for here.
        let reserve = if held_here {
            entry.split().inqueue
        } else {
            Counts::clone(&entry.min)
        };
        if account.limits.configured {
            let mut books = Books::of(&job.queue, &account);
            refusals.extend(books.plain(&reserve));
            for choices in [false, true] {
                for (card, wanted) in reserve.cards().filter(|(card, _)| card.contains(OR) == choices) {
                    refusals.extend(books.card(card, wanted));
                }
            }
        }
        Ok(Verdict {
            refusals,
            reserve,
            least: Arc::clone(&entry.min),
            ..Verdict::default()
        })
    }

    /// Keeps back what a permitted job needs; once more for the same job: instead of the former.
    pub(super) fn reserve_corrected(&mut self, view: &View, job: &JobRecord) -> Result<(), Problem> {
        let entry = self.entry(view, job);
        let kept = self.jobs.get(&job.name).is_some_and(|own| own.admitted);
        let admitted = JobEntry {
            admitted: true,
            ..JobEntry::clone(&entry)
        };
        self.replace(&job.name, admitted)?;
        if !kept {
            Arc::make_mut(&mut self.tentative).insert(Arc::clone(&job.name));
        }
        Ok(())
    }

    /// Puts a job's figures in the place of the former ones; its queue's account follows.
    pub(super) fn replace(&mut self, job: &Arc<str>, entry: JobEntry) -> Result<(), Problem> {
        if let Some(old) = self.jobs.get(job).cloned() {
            let mut account = Account::clone(&*self.account_of(&old.queue)?);
            account.take(&old.contribution());
            account.allocated.subtract(&old.allocated);
            account.allocated.forget_zeros();
            account.jobs = account.jobs.saturating_sub(1);
            self.accounts.insert(Arc::clone(&old.queue), Arc::new(account));
        }
        let mut account = Account::clone(&*self.account_of(&entry.queue)?);
        account.add(&entry.contribution());
        account.allocated.add(&entry.allocated);
        account.jobs += 1;
        self.accounts.insert(Arc::clone(&entry.queue), Arc::new(account));
        self.jobs.insert(Arc::clone(job), Arc::new(entry));
        Ok(())
    }

    /// The check of a task: every reason against it, or the cards that would do.
    pub(super) fn corrected_task(&self, view: &View, queue: &str, task: &TaskRecord) -> Result<Verdict, Problem> {
        let account = self.account_of(queue)?;
        let need = Need::of(self.context(view), task);
        let mut refusals = closed(queue, &account);
        if let Some(fault) = &need.fault {
            refusals.push(refusal::request_failed(queue, fault));
        }
        let mut verdict = Verdict::default();
        if account.limits.configured {
            let books = Books {
                queue,
                limits: &account.limits,
                used: account.allocated.clone(),
            };
            let wanted = Counts::new(need.cpu, need.memory);
            refusals.extend(books.plain(&wanted));
            verdict.headroom = books.headroom(&wanted);
            for demand in &need.demands {
                match books.demand(demand) {
                    Ok(cards) => {
                        let room = cards.iter().map(|(_, room)| *room).fold(0, u64::saturating_add);
                        verdict.headroom = Some(verdict.headroom.map_or(room, |least| least.min(room)));
                        verdict
                            .choices
                            .push(cards.iter().map(|(card, _)| Arc::clone(card)).collect());
                        verdict.cards.extend(cards);
                    }
                    Err(refusal) => refusals.push(refusal),
                }
            }
        }
        if !refusals.is_empty() {
            verdict = Verdict {
                refusals,
                headroom: Some(0),
                ..Verdict::default()
            };
        }
        Ok(verdict)
    }

    /// What a task holds, as it is counted now; `None`: it does not count.
    fn held(&self, task: &str) -> Option<Arc<Counts>> {
        if let Some(held) = self.held.get(task) {
            return held.clone();
        }
        let record = &self.opened.tasks().get(task)?.record;
        let held = || Arc::new(need_of(self.context(&self.opened), record).counts());
        counts(record.status).then(held)
    }

    /// A task now holds what it needs on a node (`Some`), or nothing any more. The queue whose account moved.
    pub(super) fn hold(&mut self, view: &View, task: &TaskRecord, on: Option<(&str, &str)>) -> Option<Arc<str>> {
        let before = self.held(&task.name);
        let after = on.map(|(node, card)| Arc::new(Need::on_node(self.context(view), task, node, card).counts()));
        if before == after {
            return None;
        }
        let entry = self.jobs.get(&task.job)?;
        let queue = Arc::clone(&entry.queue);
        let mut next = JobEntry::clone(entry);
        let mut account = Account::clone(self.accounts.get(&queue)?);
        account.take(&entry.contribution());
        for counts in [&mut next.allocated, &mut account.allocated] {
            if let Some(before) = &before {
                counts.subtract(before);
            }
            if let Some(after) = &after {
                counts.add(after);
            }
            counts.forget_zeros();
        }
        account.add(&next.contribution());
        self.accounts.insert(Arc::clone(&queue), Arc::new(account));
        self.jobs.insert(Arc::clone(&task.job), Arc::new(next));
        self.held.insert(Arc::clone(&task.name), after);
        Some(queue)
    }
}

/// Reasons that do not depend on amounts.
fn closed(queue: &str, account: &Account) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    if !account.limits.is_open() {
        refusals.push(refusal::not_open(queue));
    }
    if !account.limits.configured {
        refusals.push(refusal::empty_capability(queue));
    }
    refusals
}

impl Books<'_> {
    /// The alternatives that have room for a task, with how many such tasks each has room for.
    fn demand(&self, demand: &Demand) -> Result<Vec<(Arc<str>, u64)>, Refusal> {
        let mut fitting = Vec::new();
        let mut compared = Vec::new();
        for (card, wanted) in &demand.alternatives {
            let (held, capability) = (self.used.card_or_zero(card), self.capability(card));
            if held + wanted <= capability {
                fitting.push((Arc::clone(card), times(capability - held, *wanted)));
            }
            compared.push((
                &**card,
                Compared {
                    requested: *wanted,
                    total: held + wanted,
                    capability,
                },
            ));
        }
        if fitting.is_empty() {
            return Err(self.refuse(&demand.name(), &compared));
        }
        Ok(fitting)
    }

    /// How many tasks of this cpu and memory there is room for; `None`: without limit.
    fn headroom(&self, wanted: &Counts) -> Option<u64> {
        let capability = &self.limits.capability;
        let one = |limited: bool, wanted: i128, room: i128| (limited && wanted > 0).then(|| times(room, wanted));
        let cpu = one(self.limits.cpu_limited, wanted.cpu, capability.cpu - self.used.cpu);
        let memory = one(
            self.limits.memory_limited,
            wanted.memory,
            capability.memory - self.used.memory,
        );
        cpu.into_iter().chain(memory).min()
    }
}

/// How often an amount above 0 fits.
fn times(room: i128, wanted: i128) -> u64 {
    u64::try_from(room.max(0) / wanted.max(1)).unwrap_or(u64::MAX)
}
