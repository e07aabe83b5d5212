//! Cards of a choice that a task of a job may use: those that the job was given.
//!
//! A card is chosen when the job is admitted, and stored with its permit or reservation. Who was admitted elsewhere, by its
//! phase alone, or not at all, chooses when the first of its tasks asks. Without `mixedCards` all tasks of the job then use the
//! card of the first.

use std::sync::Arc;

use super::card_claims::CardClaim;
use super::gang::Gang;
use super::job_entry::{JobEntry, split_promised};
use super::matching::{amount_of, key_of};
use super::path_usage::OwnPart;
use super::queue_path::QueuePath;
use super::state::CapacityState;
use super::task_need::{CardDemand, TaskNeed};
use crate::model::ClusterState;
use crate::plugins::capacity_card::TaskRequest;

impl JobEntry {
    /// Amount of a card that is reserved for tasks that may use several.
    fn reserved_of_choices(&self, card: &str) -> i128 {
        let (singles, _) = split_promised(&self.minimum.min, &self.allocated);
        self.promise_and_rest().inqueue.card_or_zero(card) - singles.card_or_zero(card)
    }

    /// The claim of its tasks of one size on a choice, whose cards are sorted, if the job has one.
    fn claim_on(&self, choice: &str, size: Option<i128>) -> Option<CardClaim> {
        let claims = self.promise_and_rest().claims;
        let mut own = claims.iter().filter(|claim| *key_of(&claim.choice) == *choice);
        own.find(|claim| size.is_none_or(|size| claim.size == size)).cloned()
    }
}

impl CapacityState {
    /// Leaves of what a task needs the cards that the job was given, if it was given any.
    pub(super) fn keep_to_given_cards(
        &self,
        cluster_state: &ClusterState,
        task: TaskRequest<'_>,
        need: &mut TaskNeed,
        path: &QueuePath<'_>,
    ) {
        let Some(job) = self.jobs.get(task.job) else { return };
        for demand in need.demands.iter_mut().filter(|demand| demand.is_choice()) {
            let choice = key_of(&demand.name());
            if self.config.mixed_cards {
                keep_to_reserved(job, &choice, demand, path);
            } else if !demand.retain_any(|card| job.uses(&choice, card)) {
                self.keep_to_chosen_card(cluster_state, (task, job), &choice, demand, path);
            }
        }
    }

    /// The card that the job was given, else the one that the task's record names, if it has quota for the least that the
    /// job needs. Else the first card with quota for it beside what is reserved for others, and free capacity on nodes;
    /// then the first with quota beside others; then with what others do not hold; if there is none, all.
    fn keep_to_chosen_card(
        &self,
        cluster_state: &ClusterState,
        (task, job): (TaskRequest<'_>, &JobEntry),
        choice: &str,
        demand: &mut CardDemand,
        path: &QueuePath<'_>,
    ) {
        if let Some(given) = job.given_card(&demand.name()) {
            let given = Arc::<str>::from(given);
            if demand.retain_any(|card| *card == *given) {
                return;
            }
        }
        let each = demand.max_amount();
        let amount = amount_of(&job.minimum.min, choice).max(each);
        let by_quota = path.is_configured();
        let held = path.usage_for_task();
        let fits = |card: &str| !by_quota || held.card_headroom(card) >= amount;
        if demand.retain_any(|card| card == task.card && fits(card)) {
            return;
        }
        let own = OwnPart::default();
        let mut usage = path.usage_for_job(&own);
        let claim = job.claim_on(choice, None);
        let claimed = usage.give_claims(claim.as_ref());
        let spares = |card: &str| {
            let is_left = || claimed.iter().any(|own| **own == *card) || usage.card_headroom(card) >= amount;
            fits(card) && (!by_quota || is_left())
        };
        let gang = Gang::of(self, cluster_state, task.job, choice);
        let tasks = gang.first(amount, task.requests, each);
        let on_nodes = |card: &str| self.left_on_nodes(cluster_state, &tasks, card) == 0;
        let first = |which: &dyn Fn(&str) -> bool| {
            let mut cards = demand.alternatives.iter().map(|(card, _)| card);
            cards.find(|card| which(card)).cloned()
        };
        let chosen = first(&|card| spares(card) && on_nodes(card))
            .or_else(|| claimed.iter().find(|card| fits(card)).cloned())
            .or_else(|| first(&spares))
            .or_else(|| first(&|card| fits(card) && on_nodes(card)))
            .or_else(|| first(&fits));
        if let Some(chosen) = chosen {
            demand.retain_any(|card| *card == *chosen);
        }
    }
}

/// Task by task: the cards that are reserved for the job's tasks, else those that leave others what is reserved for them, if
/// there are any. Cards that the quota does not give anyway stay, so that the rejection names them.
fn keep_to_reserved(job: &JobEntry, choice: &str, demand: &mut CardDemand, path: &QueuePath<'_>) {
    let size = demand.max_amount();
    if demand.retain_any(|card| job.reserved_of_choices(card) >= size) || !path.is_configured() {
        return;
    }
    let own = OwnPart::default();
    let mut usage = path.usage_for_job(&own);
    let claim = job.claim_on(choice, Some(size));
    let claimed = usage.give_claims(claim.as_ref());
    let held = path.usage_for_task();
    let fits = |card: &str| held.card_headroom(card) >= size;
    let spares = |card: &str| claimed.iter().any(|own| **own == *card) || usage.card_headroom(card) >= size;
    if demand.alternatives.iter().any(|(card, _)| fits(card) && spares(card)) {
        demand.retain_any(|card| spares(card) || !fits(card));
    }
}
