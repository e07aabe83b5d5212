//! Votes on jobs and tasks: every reason against them, or the cards that they are given.

use std::borrow::Cow;
use std::sync::Arc;

use super::card_claims::CardClaims;
use super::gang::Gang;
use super::job_entry::JobEntry;
use super::path_usage::PathUsage;
use super::state::CapacityState;
use super::task_need::TaskNeed;
use crate::model::{ClusterState, JobRecord, Problem, TaskRecord};
use crate::plugins::capacity_card::{
    CardRequestError, CardVotes, QuotaAmounts, QuotaRejection, QuotaVerdict, rejection,
};

impl CardVotes for CapacityState {
    fn vote_job(&self, cluster_state: &ClusterState, job: &JobRecord) -> Result<QuotaVerdict, Problem> {
        self.vote_beside(cluster_state, job, self.jobs.get(&job.name))
    }

    fn permit(&mut self, cluster_state: &ClusterState, job: &JobRecord) -> Result<QuotaVerdict, Problem> {
        let known = self.jobs.find(&job.name);
        let verdict = self.vote_beside(cluster_state, job, known.and_then(|known| self.jobs.at(known)))?;
        if verdict.is_permitted() {
            self.reserve(&job.name, known, &verdict);
        }
        Ok(verdict)
    }

    fn end_tentative(&mut self) {
        for job in std::mem::take(&mut self.tentative_jobs).iter() {
            let known = self.jobs.find(job);
            let tentative = known.filter(|known| self.jobs.at(*known).is_some_and(|entry| entry.tentative));
            if let Some(known) = tentative {
                self.change_job(known, |entry| {
                    (entry.admitted, entry.tentative, entry.chosen) = (false, false, None);
                });
            }
        }
    }

    fn vote_task(&self, cluster_state: &ClusterState, queue: &str, task: &TaskRecord) -> Result<QuotaVerdict, Problem> {
        let own = Arc::from(queue);
        let path = self.queue_path(&own)?;
        let mut need = TaskNeed::of(self.need_context(cluster_state), task);
        let mut rejections = path.closed_rejections();
        if let Some(problem) = &need.request_error {
            rejections.push(rejection::request_failed(queue, problem));
        }
        self.keep_to_given_cards(cluster_state, task.into(), &mut need, &path);
        let mut verdict = QuotaVerdict::default();
        if path.is_configured() {
            let usage = path.usage_for_task();
            let wanted = QuotaAmounts::new(need.cpu, need.memory);
            rejections.extend(usage.cpu_memory_rejections(&wanted));
            verdict.headroom = usage.task_headroom(&wanted);
            for demand in &need.demands {
                match usage.fitting_cards(demand) {
                    Ok(cards) => {
                        let room = cards.iter().map(|(_, room)| *room).fold(0, u64::saturating_add);
                        verdict.headroom = Some(verdict.headroom.map_or(room, |least| least.min(room)));
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
}

impl CapacityState {
    /// The vote on a job beside the figures that there are of it.
    pub(super) fn vote_beside(
        &self,
        cluster_state: &ClusterState,
        job: &JobRecord,
        existing: Option<&JobEntry>,
    ) -> Result<QuotaVerdict, Problem> {
        let path = self.queue_path(&job.queue)?;
        let entry = self.job_entry(cluster_state, job, existing);
        let own = self.own_part(cluster_state, job, existing, &entry);
        let mut rejections = path.closed_rejections();
        if let Some(problem) = &entry.minimum.problem {
            rejections.push(rejection::request_failed(&job.queue, problem));
        }
        // What it holds in another queue, or held as another incarnation, is no part of what it asks for here.
        let rest = if own.held_here {
            entry.rest()
        } else {
            Cow::Borrowed(&*entry.minimum.min)
        };
        // Of a job behind gates: what it would need.
        let asked = entry.minimum.behind_gates.as_deref().unwrap_or(&rest);
        let mut given = Cow::Borrowed(asked);
        if path.is_configured() {
            let mut usage = path.usage_for_job(&own).over_committed();
            rejections.extend(usage.cpu_memory_rejections(asked));
            if asked.has_cards() {
                usage.give_claims(None);
                let short = |(card, amount): &(&Arc<str>, i128)| *amount > 0 && usage.card_headroom(card) < *amount;
                let short = asked.singles().filter(short);
                rejections.extend(short.flat_map(|(card, amount)| usage.reject_choice(card, amount)));
            }
            if asked.choices().next().is_some() {
                given = Cow::Owned(self.give_cards(cluster_state, job, &entry, &mut usage, asked, &mut rejections));
            }
        }
        if entry.minimum.problem.is_none() {
            let short = |card: &str| rejections.iter().any(|own| *own.reason.resource == *card);
            let unknown = self.nowhere(asked, short);
            rejections.extend(unknown.map(|problem| rejection::request_failed(&job.queue, &problem)));
        }
        let is_given = entry.minimum.behind_gates.is_none() && entry.minimum.min.choices().next().is_some();
        let min_amounts = if is_given {
            Arc::new(entry.min_on_cards(&rest, &given))
        } else {
            Arc::clone(&entry.minimum.min)
        };
        Ok(QuotaVerdict {
            rejections,
            min_amounts,
            amounts: match entry {
                Cow::Borrowed(_) => None,
                Cow::Owned(entry) => Some(entry.amounts),
            },
            ..QuotaVerdict::default()
        })
    }

    /// Gives a job cards beside those that are reserved for others: of each choice, in its order, the first card that has quota
    /// and, where the job's tasks are known, free capacity on nodes; if there is none, the first that has quota; then the first
    /// that the queue admits beyond its quota.
    fn give_cards(
        &self,
        cluster_state: &ClusterState,
        job: &JobRecord,
        entry: &JobEntry,
        usage: &mut PathUsage<'_>,
        asked: &QuotaAmounts,
        rejections: &mut Vec<QuotaRejection>,
    ) -> QuotaAmounts {
        let mut given = asked.without_choices();
        for (card, amount) in given.cards() {
            usage.give(card, amount.max(0));
        }
        for (choice, amount) in asked.choices().filter(|(_, amount)| *amount > 0) {
            let gang = Gang::of(self, cluster_state, &job.name, choice);
            let mut open = QuotaAmounts::default();
            open.add_card(choice, amount);
            let claims = CardClaims::of(&job.queue, &open, entry.minimum.sizes.as_ref());
            let mut no_room: Option<(i128, i128)> = None;
            for claim in claims.iter() {
                let mut left = claim.count;
                let cards = self.cards_on_nodes(claim, 1);
                let passes = [(true, true), (false, true), (false, false)];
                let passes = passes.into_iter().take(if usage.over_commits() { 3 } else { 2 });
                for (on_nodes, by_quota) in passes {
                    for card in &cards {
                        let most = (usage.headroom(card, by_quota).max(0) / claim.size).min(left);
                        let count = if most > 0 && on_nodes {
                            gang.count_on_nodes(self, cluster_state, card, claim, most, &given)
                        } else {
                            most
                        };
                        if count > 0 {
                            usage.give(card, count * claim.size);
                            given.add_card(&Arc::from(*card), count * claim.size);
                            left -= count;
                        }
                    }
                }
                if left > 0 {
                    let (_, before) = no_room.unwrap_or_default();
                    no_room = Some((claim.size, before + left * claim.size));
                }
            }
            if let Some((size, left)) = no_room {
                let split = entry
                    .minimum
                    .sizes
                    .as_ref()
                    .map(|_| usage.reject_split(choice, amount, left));
                match split.filter(|split| !split.is_empty()) {
                    Some(split) => rejections.extend(split),
                    None => rejections.extend(usage.reject_choice(choice, size)),
                }
            }
        }
        given
    }

    /// A card of these amounts that no node has, though nodes have others: nobody can ever give it. Choices need one that
    /// some node has. Not those that are `short` already.
    fn nowhere(&self, amounts: &QuotaAmounts, short: impl Fn(&str) -> bool) -> Option<CardRequestError> {
        if self.cards.is_empty() {
            return None;
        }
        let known = |name: &str| self.cards.of_choice(name).next().is_some();
        let mut wanted = amounts.cards().filter(|(_, amount)| *amount > 0);
        let (name, _) = wanted.find(|(name, _)| !known(name) && !short(name))?;
        Some(CardRequestError::UnknownCard { card: name.to_string() })
    }
}
