//! Tasks that may have to go for a task that needs cards, with `cardVictims`: none whose going would be in vain.
//!
//! No task of the preemptor's own job goes, and in reclaim none of its own queue: reclaim takes from other queues.
//! A candidate goes only if its node has a card that would do. Where the quota of the task's queue, or of one above it, is
//! short, only those go that hold some of what is short there; and if all of them together do not free enough, nobody
//! goes. A candidate of another queue goes only while its queue holds more than it deserves of something that the
//! candidate holds, earlier ones gone.
//!
//! Where service types count, they say whose tasks go, instead of what queues deserve, and tasks without cards are asked
//! about, too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use smallvec::SmallVec;

use super::job_entry::current_need;
use super::queue_path::QueuePath;
use super::state::CapacityState;
use super::task_need::TaskNeed;
use crate::model::{ClusterState, TaskRecord};
use crate::plugin::{Shortfall, VictimKind, VictimQuery};
use crate::plugins::capacity_card::{QuotaAmounts, ServiceTypes};

/// A task that may have to go.
struct CardVictim<'a> {
    /// Queue of the task, and those above it that count.
    queue_chain: SmallVec<[&'a Arc<str>; 1]>,
    /// Amounts that the task holds.
    held: Arc<QuotaAmounts>,
    /// Amounts that the preemptor would hold on its node; `None`: no card there would do.
    wanted: Option<QuotaAmounts>,
}

impl CardVictim<'_> {
    fn counts_in_queue(&self, queue: &str) -> bool {
        self.queue_chain.iter().any(|own| ***own == *queue)
    }

    /// True if the task gives back something that the preemptor wants: one of its cards; without cards, cpu or memory of a
    /// task that has no card either.
    fn gives_wanted(&self) -> bool {
        let Some(wanted) = &self.wanted else { return false };
        if !wanted.has_cards() {
            return !self.held.has_cards() && self.held.overlaps(wanted);
        }
        let mut cards = wanted.cards().filter(|(_, amount)| *amount > 0);
        cards.any(|(card, _)| self.held.card_or_zero(card) > 0)
    }
}

impl CapacityState {
    /// For each candidate whether it may go; `None`: the preemptor belongs to no queue, or needs no cards and service types
    /// do not count.
    pub(super) fn card_victims(
        &self,
        cluster_state: &ClusterState,
        query: &VictimQuery<'_>,
        service_types: Option<&ServiceTypes>,
    ) -> Option<Vec<bool>> {
        let (path, need) = self.preemptor_need(cluster_state, query, service_types.is_none())?;
        let Some(need) = need else {
            return Some(vec![false; query.candidates.len()]);
        };
        let candidates: Vec<Option<CardVictim<'_>>> = self.victim_candidates(query, &need);
        let mut may: Vec<bool> = candidates
            .iter()
            .map(|candidate| candidate.as_ref().is_some_and(|candidate| candidate.wanted.is_some()))
            .collect();
        if let Some(types) = service_types {
            let permitted = types.permitted(cluster_state, query);
            for ((candidate, may), permitted) in candidates.iter().zip(&mut may).zip(permitted) {
                *may &= permitted && candidate.as_ref().is_some_and(CardVictim::gives_wanted);
            }
        }
        if query.kind == VictimKind::Reclaim {
            self.spare_in_reclaim(&candidates, service_types.is_none(), &mut may);
        }
        let mut kinds: Vec<&QuotaAmounts> = Vec::new();
        for wanted in candidates
            .iter()
            .flatten()
            .filter_map(|candidate| candidate.wanted.as_ref())
        {
            if !kinds.contains(&wanted) {
                kinds.push(wanted);
            }
        }
        for wanted in kinds {
            spare_unhelpful(&path, wanted, &candidates, &mut may);
        }
        Some(may)
    }

    /// Shortfalls of quota in the preemptor's queue, and in those above it, for what it would hold on a node. Where service
    /// types do not count, a task without cards (`needs_cards`) has none.
    pub(super) fn card_shortfalls(
        &self,
        cluster_state: &ClusterState,
        query: &VictimQuery<'_>,
        node: &str,
        needs_cards: bool,
    ) -> Vec<Shortfall> {
        let Some((path, need)) = self.preemptor_need(cluster_state, query, needs_cards) else {
            return Vec::new();
        };
        let wanted = need.and_then(|need| Some((self.amounts_on_node(node, &need)?, need)));
        let Some((wanted, need)) = wanted else {
            // Nobody's going helps.
            return vec![Shortfall {
                missing: 1,
                gains: vec![0; query.candidates.len()],
            }];
        };
        let tasks = query.candidates.iter();
        let candidates: Vec<Option<CardVictim<'_>>> = tasks.map(|task| self.victim_candidate(task, &need)).collect();
        let mut lacks = Vec::new();
        for (queue, short) in path.usage_for_task().shortages(&wanted) {
            let mut lack = |missing: i128, held: &dyn Fn(&QuotaAmounts) -> i128| {
                let gain = |candidate: &Option<CardVictim<'_>>| {
                    let counted = candidate.as_ref().filter(|own| own.counts_in_queue(queue));
                    counted.map_or(0, |own| held(&own.held))
                };
                if missing > 0 {
                    let gains = candidates.iter().map(gain).collect();
                    lacks.push(Shortfall { missing, gains });
                }
            };
            lack(short.cpu, &|held| held.cpu);
            lack(short.memory, &|held| held.memory);
            for (card, missing) in short.cards() {
                lack(missing, &|held| held.card_or_zero(card));
            }
        }
        lacks
    }

    /// Need of a preemptor on the cards that it was given, and the path of its queue; `None`: it belongs to no queue, or, where
    /// that counts, needs no cards. No need: it is rejected, whoever is evicted.
    fn preemptor_need(
        &self,
        cluster_state: &ClusterState,
        query: &VictimQuery<'_>,
        needs_cards: bool,
    ) -> Option<(QueuePath<'_>, Option<TaskNeed>)> {
        let path = self.queue_path(&self.jobs.get(&query.preemptor.job)?.queue).ok()?;
        let mut need = TaskNeed::of(self.need_context(&self.opening_state), query.preemptor);
        if needs_cards && need.is_plain() {
            return None;
        }
        // Filters and admission keep to the given cards, too: they reject nodes without them, whoever is evicted.
        self.keep_to_given_cards(cluster_state, query.preemptor.into(), &mut need, &path);
        let passes = need.request_error.is_none() && path.closed_rejections().is_empty();
        Some((path, passes.then_some(need)))
    }

    /// Candidates that this kind of eviction is for. A candidate that is listed twice counts once, the first time.
    fn victim_candidates(&self, query: &VictimQuery<'_>, need: &TaskNeed) -> Vec<Option<CardVictim<'_>>> {
        let mut known: BTreeSet<&Arc<str>> = BTreeSet::new();
        let queue_of = |task: &TaskRecord| self.jobs.get(&task.job).map(|job| &job.queue);
        let own = queue_of(query.preemptor);
        let is_other = |task: &TaskRecord| {
            let spares_queue = query.kind == VictimKind::Reclaim;
            task.job != query.preemptor.job && !(spares_queue && queue_of(task) == own)
        };
        let candidates = query.candidates.iter();
        candidates
            .map(|task| {
                let again = !task.name.is_empty() && !known.insert(&task.name);
                let counts = !again && is_other(task);
                counts.then(|| self.victim_candidate(task, need)).flatten()
            })
            .collect()
    }

    fn victim_candidate(&self, task: &TaskRecord, need: &TaskNeed) -> Option<CardVictim<'_>> {
        let queue = &self.jobs.get(&task.job)?.queue;
        let held = match self.task_holding(&task.name) {
            Some(held) => held,
            None => Arc::new(current_need(self.need_context(&self.opening_state), task).amounts()),
        };
        Some(CardVictim {
            queue_chain: self.queue_chain(queue).0,
            held,
            wanted: self.amounts_on_node(&task.node, need),
        })
    }

    fn amounts_on_node(&self, node: &str, need: &TaskNeed) -> Option<QuotaAmounts> {
        let on_node = self.cards.node_cards(node)?;
        let mut wanted = QuotaAmounts::new(need.cpu, need.memory);
        for demand in &need.demands {
            let mut alternatives = demand.alternatives.iter();
            let (card, amount) = alternatives.find(|(card, _)| on_node.cards.contains_key(card))?;
            wanted.add_card(card, *amount);
        }
        Some(wanted)
    }

    /// Queues that must not be reclaimed from lose nothing, and where `keeps_deserved` the others keep what they deserve.
    fn spare_in_reclaim(&self, candidates: &[Option<CardVictim<'_>>], keeps_deserved: bool, may: &mut [bool]) {
        let mut left: BTreeMap<&Arc<str>, QuotaAmounts> = BTreeMap::new();
        for (candidate, may) in candidates.iter().zip(may) {
            let Some((candidate, queue)) = candidate.as_ref().and_then(|own| Some((own, own.queue_chain.first()?)))
            else {
                continue;
            };
            let (Some(account), Some(record)) = (self.account(queue), self.opening_state.queues().get(queue)) else {
                *may = false;
                continue;
            };
            let own = left.entry(queue).or_insert_with(|| account.allocated.clone());
            let deserved = &account.limits.deserved;
            let beyond = |held: i128, has: i128, deserved: i128| held > 0 && has > deserved;
            let over = beyond(candidate.held.cpu, own.cpu, deserved.cpu)
                || beyond(candidate.held.memory, own.memory, deserved.memory)
                || candidate
                    .held
                    .cards()
                    .any(|(card, held)| beyond(held, own.card_or_zero(card), deserved.card_or_zero(card)));
            *may &= (over || !keeps_deserved) && record.record.reclaimable != Some(false);
            if *may {
                own.subtract(&candidate.held);
            }
        }
    }
}

/// Of those on whose nodes the preemptor would hold the same: only who frees what is short, and nobody if that is not
/// enough.
fn spare_unhelpful(
    path: &QueuePath<'_>,
    wanted: &QuotaAmounts,
    candidates: &[Option<CardVictim<'_>>],
    may: &mut [bool],
) {
    let usage = path.usage_for_task();
    let short = usage.shortages(wanted);
    let of_kind = |candidate: &&CardVictim<'_>| candidate.wanted.as_ref() == Some(wanted);
    let helps = |candidate: &CardVictim<'_>| {
        short
            .iter()
            .any(|(queue, short)| candidate.counts_in_queue(queue) && short.overlaps(&candidate.held))
    };
    if short.is_empty() {
        return;
    }
    let mut freed: Vec<QuotaAmounts> = vec![QuotaAmounts::default(); short.len()];
    for (candidate, may) in candidates.iter().zip(may.iter_mut()) {
        let Some(candidate) = candidate.as_ref().filter(of_kind) else {
            continue;
        };
        *may &= helps(candidate);
        for ((queue, _), freed) in short.iter().zip(&mut freed) {
            if *may && candidate.counts_in_queue(queue) {
                freed.add(&candidate.held);
            }
        }
    }
    let enough = short.iter().zip(&freed).all(|((_, short), freed)| short.fits_in(freed));
    if !enough {
        for (candidate, may) in candidates.iter().zip(may) {
            if candidate.as_ref().is_some_and(|candidate| of_kind(&candidate)) {
                *may = false;
            }
        }
    }
}
