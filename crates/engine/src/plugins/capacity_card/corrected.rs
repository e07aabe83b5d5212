//! Votes and events under `compatibility: corrected`: exact accounts, every reason, and no way past a quota.
//!
//! A job that may use any of several cards is permitted if one of them has room for all of it. What it keeps back is
//! booked to the choice, and every later vote leaves so much room among those cards as the bookings need.

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::SmallVec;

use super::account::QueueAccount;
use super::amounts::{CARD_SEPARATOR, QuotaAmounts};
use super::holding_status::{HoldingStatus, Moved};
use super::job_entry::{JobAmounts, JobContribution, JobEntry, current_need};
use super::limits::QueueLimits;
use super::matching::key_of;
use super::one_card::Chooser;
use super::pieces::Pieces;
use super::problems::CardRequestError;
use super::rejection;
use super::state::CapacityState;
use super::task_need::{NeedContext, TaskNeed, holds_resources};
use super::votes::QuotaVerdict;
use crate::model::{ClusterState, JobRecord, Problem, TaskRecord, TaskStatus};

impl QueueLimits {
    /// Name under which the account books an amount of a choice: the cards that the queue may hold, sorted. A choice of
    /// which it may hold at most one stays whole: its pieces would otherwise count beside the single card.
    pub(super) fn charged_name<'a>(&self, choice: &'a Arc<str>) -> Cow<'a, Arc<str>> {
        if !choice.contains(CARD_SEPARATOR) {
            return Cow::Borrowed(choice);
        }
        let may = |card: &&str| self.capability.card_or_zero(card) > 0;
        if choice.split(CARD_SEPARATOR).is_sorted() && choice.split(CARD_SEPARATOR).all(|card| may(&card)) {
            return Cow::Borrowed(choice);
        }
        let mut cards: Vec<&str> = choice.split(CARD_SEPARATOR).filter(may).collect();
        if cards.len() < 2 {
            return Cow::Owned(key_of(choice));
        }
        cards.sort_unstable();
        Cow::Owned(Arc::from(cards.join("|")))
    }

    /// Adds amounts to others, under the names that they are booked under.
    pub(super) fn charge(&self, into: &mut QuotaAmounts, amounts: &QuotaAmounts) {
        into.cpu += amounts.cpu;
        into.memory += amounts.memory;
        for (choice, amount) in amounts.cards() {
            into.add_card(&self.charged_name(choice), amount);
        }
    }

    /// Takes amounts away from others, under the names that they are booked under.
    fn uncharge(&self, from: &mut QuotaAmounts, amounts: &QuotaAmounts) {
        from.cpu -= amounts.cpu;
        from.memory -= amounts.memory;
        for (choice, amount) in amounts.cards() {
            from.add_card(&self.charged_name(choice), -amount);
        }
    }
}

impl QueueAccount {
    /// Keeps so much more back; of choices these pieces.
    fn reserve(&mut self, amounts: &QuotaAmounts, pieces: &Pieces) {
        self.limits.charge(&mut self.inqueue, amounts);
        self.pieces.join(pieces);
    }

    /// Adds a job's contribution.
    pub(super) fn add(&mut self, contribution: &JobContribution) {
        self.allocated.add(&contribution.allocated);
        if !contribution.request.is_empty() {
            Arc::make_mut(&mut self.request).add(&contribution.request);
        }
        self.elastic.add(&contribution.elastic);
        self.reserve(&contribution.inqueue, &contribution.pieces);
    }

    /// Subtracts a job's contribution.
    pub(super) fn subtract(&mut self, contribution: &JobContribution) {
        self.allocated.subtract(&contribution.allocated);
        if !contribution.request.is_empty() {
            let request = Arc::make_mut(&mut self.request);
            request.subtract(&contribution.request);
            request.drop_zero_cards();
        }
        self.elastic.subtract(&contribution.elastic);
        self.limits.uncharge(&mut self.inqueue, &contribution.inqueue);
        self.pieces.leave(&contribution.pieces);
        for amounts in [&mut self.allocated, &mut self.elastic, &mut self.inqueue] {
            amounts.drop_zero_cards();
        }
    }
}

impl CapacityState {
    pub(super) fn need_context<'a>(&'a self, cluster_state: &'a ClusterState) -> NeedContext<'a> {
        NeedContext {
            cards: &self.cards,
            resources: cluster_state.resources(),
            unlimited_cpu_memory: self.config.unlimited_cpu_memory,
            mixed: self.config.mixed_cards,
        }
    }

    /// A job in figures: the existing entry, or one computed again for a job that is only asked about.
    pub(super) fn job_entry<'a>(
        &self,
        cluster_state: &ClusterState,
        job: &JobRecord,
        existing: Option<&'a JobEntry>,
    ) -> Cow<'a, JobEntry> {
        let is_stored = existing.is_some_and(|existing| {
            existing
                .stored
                .as_ref()
                .is_some_and(|stored| stored.record.same_as(job))
        });
        if let Some(existing) = existing.filter(|existing| is_stored && existing.is_of_stored) {
            return Cow::Borrowed(existing);
        }
        let mut computed = JobEntry::of(
            self.need_context(cluster_state),
            job,
            self.job_tasks(cluster_state, &job.name),
        );
        let entry: &mut JobAmounts = &mut computed;
        entry.stored = existing.and_then(|existing| existing.stored.clone());
        entry.is_of_stored = is_stored;
        entry.has_detached_reservation = existing.map_or_else(
            || self.detached_reservations.contains(&job.name),
            |existing| existing.has_detached_reservation,
        );
        if let Some(existing) = existing.filter(|existing| existing.queue == job.queue) {
            entry.allocated = existing.allocated.clone();
            entry.in_use.clone_from(&existing.in_use);
            entry.reserved.clone_from(&existing.reserved);
        }
        Cow::Owned(computed)
    }

    /// The vote on a job: every reason against it. Its own former reservation does not count against it.
    pub(super) fn vote_job_corrected(
        &self,
        cluster_state: &ClusterState,
        job: &JobRecord,
    ) -> Result<QuotaVerdict, Problem> {
        self.vote_job_against(
            cluster_state,
            job,
            self.accounts.get(&job.queue),
            self.jobs.get(&job.name),
        )
    }

    /// The vote on a job, given the account of its queue and its existing entry, if there are any.
    fn vote_job_against(
        &self,
        cluster_state: &ClusterState,
        job: &JobRecord,
        account: Option<&Arc<QueueAccount>>,
        existing: Option<&JobEntry>,
    ) -> Result<QuotaVerdict, Problem> {
        let path = self.queue_path_with(&job.queue, account)?;
        let entry = self.job_entry(cluster_state, job, existing);
        let own = self.own_reserves(cluster_state, job, existing, &entry);
        let mut rejections = path.closed_rejections();
        if let Some(problem) = &entry.annotation_error {
            rejections.push(rejection::request_failed(&job.queue, problem));
        }
        // What it holds in another queue, or held as another incarnation, is no part of what it asks for here.
        let (reserve, pieces) = if own.held_here {
            entry.remaining_reserve()
        } else {
            entry.least_in_pieces()
        };
        let (asked, asked_pieces) = entry.asked((Arc::clone(&reserve), pieces.clone()));
        if path.is_configured() {
            let ledger = path.job_quota_accounts(&own);
            rejections.extend(ledger.cpu_memory_rejections(&asked));
            rejections.extend(ledger.cards(&asked, &asked_pieces));
        }
        if entry.annotation_error.is_none() {
            let short = |card: &str| rejections.iter().any(|own| *own.reason.resource == *card);
            let unknown = self.nowhere(&asked, short);
            rejections.extend(unknown.map(|problem| rejection::request_failed(&job.queue, &problem)));
        }
        Ok(QuotaVerdict {
            rejections,
            reserve,
            pieces,
            min_amounts: Arc::clone(&entry.min),
            entry: match entry {
                Cow::Borrowed(_) => None,
                Cow::Owned(entry) => Some(entry),
            },
            ..QuotaVerdict::default()
        })
    }

    /// A card of these amounts that no node has, though nodes have others: nobody can ever give it. Choices need one that
    /// some node has. Not those that are `short` already.
    fn nowhere(&self, amounts: &QuotaAmounts, short: impl Fn(&str) -> bool) -> Option<CardRequestError> {
        if self.cards.is_empty() {
            return None;
        }
        let known = |name: &str| {
            name.split(CARD_SEPARATOR)
                .any(|card| self.cards.resource(card).is_some())
        };
        let mut wanted = amounts.cards().filter(|(_, amount)| *amount > 0);
        let (name, _) = wanted.find(|(name, _)| !known(name) && !short(name))?;
        Some(CardRequestError::UnknownCard { card: name.to_string() })
    }

    /// The vote on a job; what a permitted one needs is kept back at once. The job and its queue are looked up once.
    pub(super) fn permit_corrected(
        &mut self,
        cluster_state: &ClusterState,
        job: &JobRecord,
    ) -> Result<QuotaVerdict, Problem> {
        let (queue, known) = (self.accounts.find(&job.queue), self.jobs.find(&job.name));
        let account = queue.and_then(|spot| self.accounts.at(spot));
        let existing = known.and_then(|spot| self.jobs.at(spot));
        let verdict = self.vote_job_against(cluster_state, job, account, existing)?;
        if !verdict.is_permitted() {
            return Ok(verdict);
        }
        // Mostly it waits as it is stored, and is promised nothing yet.
        let waits =
            existing.is_some_and(|existing| !existing.admitted && !existing.tentative && existing.reserved.is_none());
        let (Some(queue), Some(known), true) = (queue, known, waits && verdict.entry.is_none()) else {
            self.reserve_corrected(cluster_state, job, &verdict);
            return Ok(verdict);
        };
        if let Some(entry) = self.jobs.at_mut(known) {
            (entry.admitted, entry.tentative) = (true, true);
        }
        Arc::make_mut(&mut self.tentative_jobs).push(Arc::clone(&job.name));
        if self.config.hierarchy {
            self.update_accounts(&job.queue, |_, account| {
                account.reserve(&verdict.reserve, &verdict.pieces);
            });
        } else if let Some(account) = self.accounts.at_mut(queue) {
            Arc::make_mut(account).reserve(&verdict.reserve, &verdict.pieces);
        }
        Ok(verdict)
    }

    /// Keeps back what a permitted job needs; once more for the same job: instead of the former.
    pub(super) fn reserve_corrected(&mut self, cluster_state: &ClusterState, job: &JobRecord, verdict: &QuotaVerdict) {
        let known = self.jobs.get(&job.name);
        let entry = match &verdict.entry {
            Some(entry) => entry.clone(),
            None => self.job_entry(cluster_state, job, known).into_owned(),
        };
        let (admitted, was) = known.map_or((false, false), |own| (own.admitted, own.tentative));
        let tentative = was || !admitted;
        if tentative && !was {
            Arc::make_mut(&mut self.tentative_jobs).push(Arc::clone(&job.name));
        }
        if known.is_some_and(|known| Arc::ptr_eq(&known.amounts, &entry.amounts)) {
            self.set_admitted(&job.name, true);
            if let Some(entry) = self.jobs.get_mut(&job.name) {
                entry.tentative = tentative;
            }
        } else {
            let admitted = JobEntry {
                admitted: true,
                tentative,
                ..entry
            };
            self.replace_job(&job.name, Some(admitted));
        }
    }

    /// A job is admitted, or no longer.
    pub(super) fn set_admitted(&mut self, job: &Arc<str>, admitted: bool) {
        if let Some(entry) = self.jobs.get(job).filter(|entry| entry.admitted != admitted) {
            let entry = entry.clone();
            self.replace_job(job, Some(JobEntry { admitted, ..entry }));
        }
    }

    /// Changes the accounts of a queue and, with `cardHierarchy`, of those above it. Queues that are not there have none:
    /// when they come, all is summed again.
    pub(super) fn update_accounts(&mut self, queue: &Arc<str>, change: impl Fn(usize, &mut QueueAccount)) {
        let line: SmallVec<[Arc<str>; 1]> = self.queue_chain(queue).0.into_iter().map(Arc::clone).collect();
        for (level, queue) in line.into_iter().enumerate() {
            if let Some(account) = self.accounts.get_mut(&queue) {
                change(level, Arc::make_mut(account));
            }
        }
    }

    /// Puts a job's figures in the place of the former ones, or removes them (`None`); the accounts of its queues follow.
    pub(super) fn replace_job(&mut self, job: &Arc<str>, next: Option<JobEntry>) {
        let charged = |entry: &JobEntry| (Arc::clone(&entry.queue), entry.contribution());
        let mut added = next.as_ref().map(charged);
        let old = match next {
            Some(next) => self.jobs.insert(Arc::clone(job), next),
            None => self.jobs.remove(job),
        };
        let mut taken = old.as_ref().map(charged);
        if let (Some((queue, added)), Some((former, taken))) = (&mut added, &mut taken)
            && queue == former
        {
            if added.request == taken.request {
                (added.request, taken.request) = Default::default();
            }
            return self.update_accounts(queue, |_, account| {
                account.subtract(taken);
                account.add(added);
            });
        }
        if let Some((queue, taken)) = taken {
            self.update_accounts(&queue, |level, account| {
                account.job_count = account.job_count.saturating_sub(u32::from(level == 0));
                account.subtract(&taken);
            });
        }
        if let Some((queue, added)) = added {
            self.update_accounts(&queue, |level, account| {
                account.job_count += u32::from(level == 0);
                account.add(&added);
            });
        }
    }

    /// The check of a task: every reason against it, or the cards that would do.
    pub(super) fn vote_task_corrected(
        &self,
        cluster_state: &ClusterState,
        queue: &str,
        task: &TaskRecord,
    ) -> Result<QuotaVerdict, Problem> {
        let own = Arc::from(queue);
        let path = self.queue_path(&own)?;
        let mut need = TaskNeed::of(self.need_context(cluster_state), task);
        let ledger = path.is_configured().then(|| path.task_quota_accounts());
        self.restrict_to_one_card(cluster_state, Chooser::of(task), &mut need, &path, ledger.as_ref());
        let mut rejections = path.closed_rejections();
        if let Some(problem) = &need.request_error {
            rejections.push(rejection::request_failed(queue, problem));
        }
        let mut verdict = QuotaVerdict::default();
        if let Some(ledger) = ledger {
            let wanted = QuotaAmounts::new(need.cpu, need.memory);
            rejections.extend(ledger.cpu_memory_rejections(&wanted));
            verdict.headroom = ledger.task_headroom(&wanted);
            for demand in &need.demands {
                match ledger.fitting_cards(demand) {
                    Ok(cards) => {
                        let rooms = cards.iter().map(|(_, room)| *room);
                        // All of a job go to one card, whichever the first of them is given.
                        let room = if self.config.mixed_cards {
                            rooms.fold(0, u64::saturating_add)
                        } else {
                            rooms.min().unwrap_or(0)
                        };
                        verdict.headroom = Some(verdict.headroom.map_or(room, |least| least.min(room)));
                        verdict
                            .cards_by_demand
                            .push(cards.iter().map(|(card, _)| Arc::clone(card)).collect());
                        verdict.cards.extend(cards);
                    }
                    Err(short) => rejections.extend(short),
                }
            }
        }
        if !rejections.is_empty() {
            verdict = QuotaVerdict {
                rejections,
                headroom: Some(0),
                ..QuotaVerdict::default()
            };
        }
        Ok(verdict)
    }

    /// Amounts that a task holds, as it is counted now; `None`: it does not count.
    pub(super) fn task_holding(&self, task: &str) -> Option<Arc<QuotaAmounts>> {
        self.holding_status_near(task, &mut Default::default()).holds
    }

    /// Status of a task by its record, before anything was reported of it.
    pub(super) fn holding_status_of(&self, record: &TaskRecord) -> HoldingStatus {
        let need = || Arc::new(current_need(self.need_context(&self.opening_state), record).amounts());
        HoldingStatus {
            holds: holds_resources(record.status).then(need),
            waits: record.status == TaskStatus::Pending,
        }
    }

    /// A job holds and waits for something else than before; its queue's account follows.
    pub(super) fn move_job(&mut self, job: &Arc<str>, mut entry: JobEntry, moved: &Moved) {
        entry.allocated.add(&moved.held);
        entry.allocated.drop_zero_cards();
        if !moved.pending.is_zero() {
            let pending = Arc::make_mut(&mut entry.pending);
            pending.add(&moved.pending);
            pending.drop_zero_cards();
        }
        for (choices, held, holds) in &moved.choices {
            entry.update_card_use(choices, held, *holds);
        }
        self.replace_job(job, Some(entry));
    }
}
