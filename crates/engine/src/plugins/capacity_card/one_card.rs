//! Without `mixedCards`: the tasks of a job that may use any of several cards all use the same one.
//!
//! Which one that is shows when the first of them is given a card: one with room for all that wait, by the quota and on
//! nodes, else one with room for all that the job needs at least; where nodes have no such room now, the quota alone
//! says it. From then on it is the only one for the others. Cards that others were promised are left to them, as long
//! as another one does.

use std::sync::Arc;

use super::amounts::{CARD_SEPARATOR, QuotaAmounts};
use super::card_use::CardUse;
use super::gang::{Gang, Tasks};
use super::job_entry::{JobAmounts, JobEntry};
use super::matching::{amount_of, key_of};
use super::pieces::{Piece, Pieces};
use super::quota_accounts::{QueuePath, QuotaAccounts};
use super::reservations::Own;
use super::state::CapacityState;
use super::task_need::{CardDemand, TaskNeed};
use crate::model::{ClusterState, ResourceAmounts, TaskClass, TaskRecord};

/// A task that is to be given a card.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chooser<'a> {
    job: &'a str,
    /// The card that its record names; empty: none.
    named: &'a str,
    requests: &'a ResourceAmounts,
}

impl<'a> Chooser<'a> {
    pub(super) fn of(task: &'a TaskRecord) -> Self {
        Self {
            job: &task.job,
            named: &task.card,
            requests: &task.requests,
        }
    }

    /// Any task of a class; `None`: nobody says whose it is.
    pub(super) fn of_class(class: &'a TaskClass) -> Option<Self> {
        let charge = class.charge.as_ref()?;
        Some(Self {
            job: &charge.job,
            named: &charge.card,
            requests: &charge.requests,
        })
    }
}

impl JobAmounts {
    /// A task with these choices now holds this, or no longer.
    pub(super) fn update_card_use(&mut self, choices: &[CardDemand], held: &QuotaAmounts, holds: bool) {
        for demand in choices {
            let has = |name: &str| held.cards().find(|(card, amount)| ***card == *name && *amount > 0);
            let mut names = demand.alternatives.iter();
            if let Some((card, _)) = names.find_map(|(name, _)| has(name)) {
                self.use_card(key_of(&demand.name()), card, holds);
            }
        }
    }

    fn use_card(&mut self, choice: Arc<str>, card: &Arc<str>, holds: bool) {
        let place = self
            .in_use
            .binary_search_by(|own| (&own.choice, &own.card).cmp(&(&choice, card)));
        match (place, holds) {
            (Ok(at), holds) => {
                if let Some(own) = self.in_use.get_mut(at) {
                    own.task_count = if holds {
                        own.task_count + 1
                    } else {
                        own.task_count.saturating_sub(1)
                    };
                }
                self.in_use.retain(|own| own.task_count > 0);
            }
            (Err(at), true) => {
                let (card, tasks) = (Arc::clone(card), 1);
                self.in_use.insert(
                    at,
                    CardUse {
                        choice,
                        card,
                        task_count: tasks,
                    },
                );
            }
            (Err(_), false) => {}
        }
    }
}

impl JobEntry {
    /// True if tasks of the job use this card of a choice.
    fn uses(&self, choice: &str, card: &str) -> bool {
        self.in_use
            .iter()
            .any(|own| *own.choice == *choice && *own.card == *card)
    }

    /// Amounts as given; of choices of which the job uses a card already, that card's.
    pub(super) fn with_cards_in_use(&self, amounts: &QuotaAmounts) -> QuotaAmounts {
        let mut pinned = QuotaAmounts::new(amounts.cpu, amounts.memory);
        for (name, amount) in amounts.cards() {
            let key = key_of(name);
            let used: Vec<&str> = name
                .split(CARD_SEPARATOR)
                .filter(|card| self.uses(&key, card))
                .collect();
            if used.is_empty() || !name.contains(CARD_SEPARATOR) {
                pinned.add_card(name, amount);
            } else {
                pinned.add_card(&Arc::from(used.join("|")), amount);
            }
        }
        pinned
    }
}

/// Request for cards, and what counts for and against it.
struct Asking<'a, 'p, 'h> {
    cluster_state: &'a ClusterState,
    task: Chooser<'a>,
    job: &'a JobEntry,
    /// Of the job's queue and those above it; `None`: nothing says what they may hold.
    path: Option<&'a QueuePath<'p>>,
    held: Option<&'a QuotaAccounts<'h>>,
}

impl Asking<'_, '_, '_> {
    /// The quota would give so much of a card.
    fn fits(&self, card: &str, amount: i128) -> bool {
        self.held.is_none_or(|held| held.card_headroom(card) >= amount)
    }

    /// The cards that would do which leave what is kept back for others the room that it has. `own`: what is kept back
    /// for this choice itself, and how much of each card is wanted.
    fn sparing(&self, demand: &CardDemand, own: Option<Piece>, wanted: impl Fn(i128) -> i128) -> Vec<Arc<str>> {
        let mut less = Own::default();
        if let Some(own) = own {
            less.pieces.put(own);
        }
        let ledger = self.path.map(|path| path.job_quota_accounts(&less));
        let spares = |(card, each): &&(Arc<str>, i128)| {
            let mut counts = QuotaAmounts::default();
            counts.add_card(card, wanted(*each));
            ledger
                .as_ref()
                .is_none_or(|ledger| ledger.cards(&counts, &Pieces::default()).is_empty())
        };
        let cards = demand.alternatives.iter().filter(spares);
        cards.map(|(card, _)| Arc::clone(card)).collect()
    }
}

/// Leaves the cards that the quota would give and that others need not be given.
fn keep_to_sparing(asking: &Asking<'_, '_, '_>, key: &str, demand: &mut CardDemand) {
    let pieces = asking.job.promise_and_rest().pieces;
    let of_size = |piece: &&Piece| *piece.choice == *key && piece.size == demand.max_amount();
    let own = pieces.iter().find(of_size).map(|piece| Piece {
        count: 1,
        ..piece.clone()
    });
    let sparing = asking.sparing(demand, own, |each| each);
    let most = demand.max_amount();
    let spares = |card: &str| sparing.iter().any(|own| **own == *card);
    let is_given = |card: &str| asking.fits(card, most);
    // What the quota does not give anyway stays, so that it is said.
    if demand
        .alternatives
        .iter()
        .any(|(card, _)| is_given(card) && spares(card))
    {
        demand.retain_any(|card| spares(card) || !is_given(card));
    }
}

impl CapacityState {
    /// Leaves of what a task needs the cards that it should be given. With `mixedCards` those that leave others what is
    /// kept back for them, if there are any. Without, only the card that the job's tasks of its kind use. While none of
    /// them uses any: the one that its record names, if it has room for as many as the job needs at least; else those
    /// with room for all of them, or for the least, by the quota and on nodes, that leave others what is kept back for
    /// them; then those that do not; then those to which the quota alone would give as much; if there are none, all.
    pub(super) fn restrict_to_one_card(
        &self,
        cluster_state: &ClusterState,
        task: Chooser<'_>,
        need: &mut TaskNeed,
        path: &QueuePath<'_>,
        held: Option<&QuotaAccounts<'_>>,
    ) {
        let Some(job) = self.jobs.get(task.job) else { return };
        let asking = Asking {
            cluster_state,
            task,
            job,
            path: held.and(Some(path)),
            held,
        };
        for demand in need.demands.iter_mut().filter(|demand| demand.is_choice()) {
            let key = key_of(&demand.name());
            if self.config.mixed_cards {
                keep_to_sparing(&asking, &key, demand);
                continue;
            }
            if !demand.retain_any(|card| job.uses(&key, card)) {
                self.keep_to_cards_with_room(&asking, &key, demand);
            }
        }
    }

    fn keep_to_cards_with_room(&self, asking: &Asking<'_, '_, '_>, key: &str, demand: &mut CardDemand) {
        let (job, task) = (asking.job, asking.task);
        let (all, least) = (amount_of(&job.pending, key), amount_of(&job.min, key));
        let fits = |card: &str, amount: i128| asking.fits(card, amount);
        if demand.retain_any(|card| card == task.named && fits(card, least)) {
            return;
        }
        let each = demand.max_amount();
        let gang = Gang::of(self, asking.cluster_state, task.job, key);
        let (of_all, of_least) = (
            gang.first(all, task.requests, each),
            gang.first(least, task.requests, each),
        );
        let on_nodes: Vec<(Arc<str>, [bool; 2])> = demand
            .alternatives
            .iter()
            .map(|(card, _)| {
                let room = |amount, tasks: &Tasks<'_>| {
                    fits(card, amount) && self.room_on_nodes(asking.cluster_state, tasks, card)
                };
                let least = room(least, &of_least);
                (Arc::clone(card), [room(all, &of_all), least])
            })
            .collect();
        let holds = |card: &str, which: usize| {
            let own = on_nodes.iter().find(|(own, _)| **own == *card);
            own.is_some_and(|(_, room)| room.get(which) == Some(&true))
        };
        let pieces = job.promise_and_rest().pieces;
        let own = || pieces.iter().find(|piece| *piece.choice == *key).cloned();
        let sparing = |amount: i128| asking.sparing(demand, own(), |each| amount.max(each));
        let (spare_all, spare_least) = (sparing(all), sparing(least));
        let among = |cards: &[Arc<str>], card: &str| cards.iter().any(|own| **own == *card);
        let _ = demand.retain_any(|card| holds(card, 0) && among(&spare_all, card))
            || demand.retain_any(|card| holds(card, 1) && among(&spare_least, card))
            || demand.retain_any(|card| holds(card, 0))
            || demand.retain_any(|card| holds(card, 1))
            || demand.retain_any(|card| fits(card, all))
            || demand.retain_any(|card| fits(card, least));
    }
}
