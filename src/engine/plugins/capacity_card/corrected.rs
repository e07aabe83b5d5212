//! Votes and events under `compatibility: corrected`: exact accounts, every reason, and no way past a quota.
//!
//! A job that may use any of several cards is permitted if one of them has room for all of it. What it keeps back is
//! booked to the choice, and every later vote leaves so much room among those cards as the bookings need.

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::SmallVec;

use super::account::Account;
use super::annotations::OR;
use super::counts::Counts;
use super::entry::{Contribution, Figures, JobEntry, counts, need_of};
use super::limits::Limits;
use super::need::{Context, Need};
use super::refusal;
use super::state::CapacityState;
use super::votes::Verdict;
use crate::engine::model::{JobRecord, Problem, TaskRecord, View};

impl Limits {
    /// The name under which an amount of a choice is booked: cards that the queue may hold, sorted; all of them, if it
    /// may hold none.
    pub(super) fn booking<'a>(&self, choice: &'a Arc<str>) -> Cow<'a, Arc<str>> {
        if !choice.contains(OR) {
            return Cow::Borrowed(choice);
        }
        let may = |card: &&str| self.capability.card_or_zero(card) > 0;
        if choice.split(OR).is_sorted() && choice.split(OR).all(|card| may(&card)) {
            return Cow::Borrowed(choice);
        }
        let mut cards: Vec<&str> = choice.split(OR).filter(may).collect();
        if cards.is_empty() {
            return Cow::Borrowed(choice);
        }
        cards.sort_unstable();
        Cow::Owned(Arc::from(cards.join("|")))
    }

    /// Adds amounts to others, under the names that they are booked under.
    pub(super) fn book(&self, into: &mut Counts, amounts: &Counts) {
        into.cpu += amounts.cpu;
        into.memory += amounts.memory;
        for (choice, amount) in amounts.cards() {
            into.add_card(&self.booking(choice), amount);
        }
    }

    /// Takes amounts away from others, under the names that they are booked under.
    fn unbook(&self, from: &mut Counts, amounts: &Counts) {
        from.cpu -= amounts.cpu;
        from.memory -= amounts.memory;
        for (choice, amount) in amounts.cards() {
            from.add_card(&self.booking(choice), -amount);
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

    /// Keeps so much more back.
    pub(super) fn keep_back(&mut self, amounts: &Counts) {
        self.limits.book(&mut self.inqueue, amounts);
    }

    /// Keeps so much less back.
    pub(super) fn give_back(&mut self, amounts: &Counts) {
        self.limits.unbook(&mut self.inqueue, amounts);
    }

    /// Takes a job's contribution in.
    pub(super) fn add(&mut self, contribution: &Contribution) {
        self.keep_back(&contribution.inqueue);
        self.elastic.add(&contribution.elastic);
    }

    /// Takes a job's contribution out.
    pub(super) fn take(&mut self, contribution: &Contribution) {
        self.give_back(&contribution.inqueue);
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
    pub(super) fn entry<'a>(&self, view: &View, job: &JobRecord, kept: Option<&'a JobEntry>) -> Cow<'a, JobEntry> {
        let is_stored = kept.is_some_and(|kept| kept.stored.as_ref().is_some_and(|stored| stored.record.is(job)));
        if let Some(kept) = kept.filter(|kept| is_stored && kept.of_stored) {
            return Cow::Borrowed(kept);
        }
        let mut anew = JobEntry::of(self.context(view), job, self.tasks(view, &job.name));
        let entry: &mut Figures = &mut anew;
        entry.stored = kept.and_then(|kept| kept.stored.clone());
        entry.of_stored = is_stored;
        entry.row_aside = kept.map_or_else(|| self.rows.contains(&job.name), |kept| kept.row_aside);
        if let Some(kept) = kept.filter(|kept| kept.queue == job.queue) {
            entry.allocated = kept.allocated.clone();
            entry.in_use.clone_from(&kept.in_use);
            entry.reserved.clone_from(&kept.reserved);
        }
        Cow::Owned(anew)
    }

    /// The vote on a job: every reason against it. Its own former reservation does not stand in its way.
    pub(super) fn corrected_job(&self, view: &View, job: &JobRecord) -> Result<Verdict, Problem> {
        self.corrected_vote(view, job, self.accounts.get(&job.queue), self.jobs.get(&job.name))
    }

    /// The same, beside the account of its queue and the figures kept of it, if there are any.
    fn corrected_vote(
        &self,
        view: &View,
        job: &JobRecord,
        account: Option<&Arc<Account>>,
        kept: Option<&JobEntry>,
    ) -> Result<Verdict, Problem> {
        let path = self.path_from(&job.queue, account)?;
        let entry = self.entry(view, job, kept);
        let (own, held_here) = self.own_of(view, job, kept, &entry);
        let mut refusals = path.closed();
        if let Some(fault) = &entry.fault {
            refusals.push(refusal::request_failed(&job.queue, fault));
        }
        // What it holds in another queue, or held as another incarnation, is no part of what it asks for here.
        let reserve = if held_here {
            entry.left()
        } else {
            Arc::clone(&entry.min)
        };
        if path.is_configured() {
            let mut ledger = path.for_job(&own);
            refusals.extend(ledger.plain(&reserve));
            let mut left = reserve.cards().count();
            for choices in [false, true] {
                for (card, wanted) in reserve.cards().filter(|(card, _)| card.contains(OR) == choices) {
                    let short = ledger.card(card, wanted, self.config.mixed);
                    left -= 1;
                    if short.is_empty() && left > 0 {
                        ledger.book(card, wanted);
                    }
                    refusals.extend(short);
                }
            }
        }
        Ok(Verdict {
            refusals,
            reserve,
            least: Arc::clone(&entry.min),
            entry: match entry {
                Cow::Borrowed(_) => None,
                Cow::Owned(entry) => Some(entry),
            },
            ..Verdict::default()
        })
    }

    /// The vote on a job; what a permitted one needs is kept back at once. The job and its queue are looked up once.
    pub(super) fn corrected_permit(&mut self, view: &View, job: &JobRecord) -> Result<Verdict, Problem> {
        let (queue, known) = (self.accounts.find(&job.queue), self.jobs.find(&job.name));
        let account = queue.and_then(|spot| self.accounts.at(spot));
        let kept = known.and_then(|spot| self.jobs.at(spot));
        let verdict = self.corrected_vote(view, job, account, kept)?;
        if !verdict.permitted() {
            return Ok(verdict);
        }
        // Mostly it waits as it is stored, and is promised nothing yet.
        let waits = kept.is_some_and(|kept| !kept.admitted && !kept.tentative && kept.reserved.is_none());
        let (Some(queue), Some(known), true) = (queue, known, waits && verdict.entry.is_none()) else {
            self.reserve_corrected(view, job, &verdict);
            return Ok(verdict);
        };
        if let Some(entry) = self.jobs.at_mut(known) {
            (entry.admitted, entry.tentative) = (true, true);
        }
        Arc::make_mut(&mut self.tentative).push(Arc::clone(&job.name));
        if self.config.hierarchy {
            self.shift(&job.queue, |_, account| account.keep_back(&verdict.reserve));
        } else if let Some(account) = self.accounts.at_mut(queue) {
            Arc::make_mut(account).keep_back(&verdict.reserve);
        }
        Ok(verdict)
    }

    /// Keeps back what a permitted job needs; once more for the same job: instead of the former.
    pub(super) fn reserve_corrected(&mut self, view: &View, job: &JobRecord, verdict: &Verdict) {
        let known = self.jobs.get(&job.name);
        let entry = match &verdict.entry {
            Some(entry) => entry.clone(),
            None => self.entry(view, job, known).into_owned(),
        };
        let (admitted, was) = known.map_or((false, false), |own| (own.admitted, own.tentative));
        let tentative = was || !admitted;
        if tentative && !was {
            Arc::make_mut(&mut self.tentative).push(Arc::clone(&job.name));
        }
        if known.is_some_and(|known| Arc::ptr_eq(&known.figures, &entry.figures)) {
            self.admit(&job.name, true);
            if let Some(entry) = self.jobs.get_mut(&job.name) {
                entry.tentative = tentative;
            }
        } else {
            let admitted = JobEntry {
                admitted: true,
                tentative,
                ..entry
            };
            self.replace(&job.name, admitted);
        }
    }

    /// A job is admitted, or no longer: what is kept back for it changes, and nothing else.
    pub(super) fn admit(&mut self, job: &Arc<str>, admitted: bool) {
        let Some(entry) = self.jobs.get(job).filter(|entry| entry.admitted != admitted) else {
            return;
        };
        let next = JobEntry {
            admitted,
            ..entry.clone()
        };
        if next.reserved.is_some() {
            return self.replace(job, next);
        }
        let left = entry.left();
        self.shift(&next.queue, |_, account| {
            if admitted {
                account.keep_back(&left);
            } else {
                account.give_back(&left);
                account.inqueue.forget_zeros();
            }
        });
        if let Some(entry) = self.jobs.get_mut(job) {
            entry.admitted = admitted;
        }
    }

    /// Changes the accounts of a queue and, with `cardHierarchy`, of those above it. Queues that are not there have none:
    /// when they come, all is summed anew.
    pub(super) fn shift(&mut self, queue: &Arc<str>, change: impl Fn(usize, &mut Account)) {
        let line: SmallVec<[Arc<str>; 1]> = self.line(queue).0.into_iter().map(Arc::clone).collect();
        for (level, queue) in line.into_iter().enumerate() {
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
        self.jobs.insert(Arc::clone(job), entry);
    }

    /// The check of a task: every reason against it, or the cards that would do.
    pub(super) fn corrected_task(&self, view: &View, queue: &str, task: &TaskRecord) -> Result<Verdict, Problem> {
        let own = Arc::from(queue);
        let path = self.path(&own)?;
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
        let entry = entry.clone();
        let mut next = entry.clone();
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
        self.jobs.insert(Arc::clone(&task.job), next);
        self.held.insert(Arc::clone(&task.name), after);
        Some(queue)
    }
}
