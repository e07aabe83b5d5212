//! Votes and events under `compatibility: corrected`: exact accounts, every reason, and no way past a quota.
//!
//! A job that may use any of several cards is permitted if one of them has room for all of it. What it keeps back is
//! booked to the choice, and every later vote leaves so much room among those cards as the bookings need.

use std::sync::Arc;

use super::account::Account;
use super::annotations::OR;
use super::counts::Counts;
use super::entry::{Contribution, JobEntry, counts, need_of};
use super::limits::Limits;
use super::need::{Context, Need};
use super::refusal;
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
        let may = |card: &&str| self.capability.card_or_zero(card) > 0;
        if choice.split(OR).is_sorted() && choice.split(OR).all(|card| may(&card)) {
            return Arc::clone(choice);
        }
        let mut cards: Vec<&str> = choice.split(OR).filter(may).collect();
        if cards.is_empty() {
            return Arc::clone(choice);
        }
        cards.sort_unstable();
        Arc::from(cards.join("|"))
    }

    /// Adds amounts to others so often, under the names that they are booked under.
    pub(super) fn book(&self, into: &mut Counts, amounts: &Counts, times: i128) {
        into.cpu += amounts.cpu * times;
        into.memory += amounts.memory * times;
        for (choice, amount) in amounts.cards() {
            into.add_card(&self.booking(choice), amount * times);
        }
    }
}

impl Account {
    /// Takes a job in. `level`: how far its queue is below this one.
    pub(super) fn add_job(&mut self, level: usize, job: &JobEntry) {
        self.jobs += u32::from(level == 0);
        self.allocated.add(&job.allocated);
        self.add(&job.contribution());
    }

    /// Takes a job out.
    pub(super) fn take_job(&mut self, level: usize, job: &JobEntry) {
        self.jobs = self.jobs.saturating_sub(u32::from(level == 0));
        self.take(&job.contribution());
        self.allocated.subtract(&job.allocated);
        self.allocated.forget_zeros();
    }

    /// Takes in what a job holds and waits for.
    pub(super) fn add_request(&mut self, job: &JobEntry) {
        let request = Arc::make_mut(&mut self.request);
        request.add(&job.allocated);
        request.add(&job.pending);
    }

    /// Takes out what a job held and waited for.
    pub(super) fn take_request(&mut self, job: &JobEntry) {
        let request = Arc::make_mut(&mut self.request);
        request.subtract(&job.allocated);
        request.subtract(&job.pending);
        request.forget_zeros();
    }

    /// Keeps so much more back, or less.
    pub(super) fn keep_back(&mut self, amounts: &Counts, times: i128) {
        self.limits.book(&mut self.inqueue, amounts, times);
    }

    /// Takes a job's contribution in.
    pub(super) fn add(&mut self, contribution: &Contribution) {
        self.keep_back(&contribution.inqueue, 1);
        self.elastic.add(&contribution.elastic);
    }

    /// Takes a job's contribution out.
    pub(super) fn take(&mut self, contribution: &Contribution) {
        self.keep_back(&contribution.inqueue, -1);
        self.elastic.subtract(&contribution.elastic);
        self.inqueue.forget_zeros();
        self.elastic.forget_zeros();
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
    pub(super) fn entry(&self, view: &View, job: &JobRecord, kept: Option<&Arc<JobEntry>>) -> Arc<JobEntry> {
        let is_stored = kept.is_some_and(|kept| kept.stored.as_ref().is_some_and(|stored| stored.record == *job));
        if let Some(kept) = kept.filter(|kept| is_stored && kept.of_stored) {
            return Arc::clone(kept);
        }
        let mut entry = JobEntry::of(self.context(view), job, self.tasks(view, &job.name));
        entry.stored = kept.and_then(|kept| kept.stored.clone());
        entry.of_stored = is_stored;
        entry.row_aside = kept.map_or_else(|| self.rows.contains(&job.name), |kept| kept.row_aside);
        if let Some(kept) = kept.filter(|kept| kept.queue == job.queue) {
            entry.allocated = kept.allocated.clone();
            entry.in_use.clone_from(&kept.in_use);
            entry.reserved.clone_from(&kept.reserved);
        }
        Arc::new(entry)
    }

    /// The vote on a job: every reason against it. Its own former reservation does not stand in its way.
    pub(super) fn corrected_job(&self, view: &View, job: &JobRecord) -> Result<Verdict, Problem> {
        let path = self.path(&job.queue)?;
        let kept = self.jobs.get(&job.name);
        let entry = self.entry(view, job, kept);
        let (own, held_here) = self.own_of(view, job, kept, &entry);
        let mut refusals = path.closed();
        if let Some(fault) = &entry.fault {
            refusals.push(refusal::request_failed(&job.queue, fault));
        }
        // What it holds in another queue, or held as another incarnation, is no part of what it asks for here.
        let reserve = if held_here {
            entry.split().inqueue
        } else {
            Counts::clone(&entry.min)
        };
        if path.is_configured() {
            let mut ledger = path.for_job(&own);
            refusals.extend(ledger.plain(&reserve));
            for choices in [false, true] {
                for (card, wanted) in reserve.cards().filter(|(card, _)| card.contains(OR) == choices) {
                    refusals.extend(ledger.card(card, wanted, self.config.mixed));
                }
            }
        }
        Ok(Verdict {
            refusals,
            reserve,
            least: Arc::clone(&entry.min),
            entry: Some(entry),
            ..Verdict::default()
        })
    }

    /// Keeps back what a permitted job needs; once more for the same job: instead of the former.
    pub(super) fn reserve_corrected(&mut self, view: &View, job: &JobRecord, verdict: &Verdict) {
        let known = self.jobs.get(&job.name);
        let entry = verdict.entry.clone();
        let entry = entry.unwrap_or_else(|| self.entry(view, job, known));
        let kept = known.is_some_and(|own| own.admitted);
        if known.is_some_and(|known| Arc::ptr_eq(known, &entry)) {
            self.admit(&job.name, true);
        } else {
            let admitted = JobEntry {
                admitted: true,
                ..JobEntry::clone(&entry)
            };
            self.replace(&job.name, admitted);
        }
        if !kept {
            Arc::make_mut(&mut self.tentative).insert(Arc::clone(&job.name));
        }
    }

    /// A job is admitted, or no longer: what is kept back for it changes, and nothing else.
    pub(super) fn admit(&mut self, job: &Arc<str>, admitted: bool) {
        let Some(entry) = self.jobs.get(job).filter(|entry| entry.admitted != admitted) else {
            return;
        };
        let next = JobEntry {
            admitted,
            ..JobEntry::clone(entry)
        };
        if next.reserved.is_some() {
            return self.replace(job, next);
        }
        let kept_back = entry.split().inqueue;
        self.shift(&next.queue, |_, account| {
            account.keep_back(&kept_back, if admitted { 1 } else { -1 });
            if !admitted {
                account.inqueue.forget_zeros();
            }
        });
        self.jobs.insert(Arc::clone(job), Arc::new(next));
    }

    /// Changes the accounts of a queue and, with `cardHierarchy`, of those above it. Queues that are not there have none:
    /// when they come, all is summed anew.
    pub(super) fn shift(&mut self, queue: &Arc<str>, change: impl Fn(usize, &mut Account)) {
        for (level, queue) in self.line(queue).0.into_iter().enumerate() {
            if let Some(account) = self.accounts.get_mut(&queue) {
                change(level, Arc::make_mut(account));
            }
        }
    }

    /// Puts a job's figures in the place of the former ones; its queue's account follows.
    pub(super) fn replace(&mut self, job: &Arc<str>, entry: JobEntry) {
        if let Some(old) = self.jobs.get(job).cloned() {
            self.shift(&old.queue, |level, account| account.take_job(level, &old));
        }
        self.shift(&entry.queue, |level, account| account.add_job(level, &entry));
        self.jobs.insert(Arc::clone(job), Arc::new(entry));
    }

    /// The check of a task: every reason against it, or the cards that would do.
    pub(super) fn corrected_task(&self, view: &View, queue: &str, task: &TaskRecord) -> Result<Verdict, Problem> {
        let path = self.path(&Arc::from(queue))?;
        let mut need = Need::of(self.context(view), task);
        let ledger = path.is_configured().then(|| path.for_task());
        self.keep_to_one_card(&task.job, &task.annotations, &task.card, &mut need, ledger.as_ref());
        let mut refusals = path.closed();
        if let Some(fault) = &need.fault {
            refusals.push(refusal::request_failed(queue, fault));
        }
        let mut verdict = Verdict::default();
        if let Some(ledger) = ledger {
            let wanted = Counts::new(need.cpu, need.memory);
            refusals.extend(ledger.plain(&wanted));
            verdict.headroom = ledger.headroom(&wanted);
            for demand in &need.demands {
                match ledger.demand(demand) {
                    Ok(cards) => {
                        let room = cards.iter().map(|(_, room)| *room).fold(0, u64::saturating_add);
                        verdict.headroom = Some(verdict.headroom.map_or(room, |least| least.min(room)));
                        verdict
                            .choices
                            .push(cards.iter().map(|(card, _)| Arc::clone(card)).collect());
                        verdict.cards.extend(cards);
                    }
                    Err(short) => refusals.extend(short),
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
    pub(super) fn held(&self, task: &str) -> Option<Arc<Counts>> {
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
        let entry = Arc::clone(entry);
        let mut next = JobEntry::clone(&entry);
        let moved = |counts: &mut Counts| {
            if let Some(before) = &before {
                counts.subtract(before);
            }
            if let Some(after) = &after {
                counts.add(after);
            }
            counts.forget_zeros();
        };
        moved(&mut next.allocated);
        for (held, holds) in [(&before, false), (&after, true)] {
            if let Some(held) = held {
                next.use_cards(&task.annotations, held, holds);
            }
        }
        let (taken, added) = (entry.contribution(), next.contribution());
        self.shift(&queue, |_, account| {
            account.take(&taken);
            moved(&mut account.allocated);
            account.add(&added);
        });
        self.jobs.insert(Arc::clone(&task.job), Arc::new(next));
        self.held.insert(Arc::clone(&task.name), after);
        Some(queue)
    }
}
