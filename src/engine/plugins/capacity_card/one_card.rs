//! Without `mixedCards`: the tasks of a job that may use any of several cards all use the same one.
//!
//! Which one that is shows when the first of them is given a card: one with room for all that wait, else one with room
//! for all that the job needs at least, as it was admitted. From then on it is the only one for the others.

use std::sync::Arc;

use super::annotations::{NAME, OR, choice};
use super::books::Ledger;
use super::counts::Counts;
use super::entry::Figures;
use super::need::Need;
use super::state::CapacityState;
use crate::engine::model::{Texts, text};

/// A card that tasks of a job use, of those that they may use, and how many tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InUse {
    choice: Arc<str>,
    card: Arc<str>,
    tasks: u32,
}

/// The choice that an annotation leaves; `None`: there is none.
fn choice_of(annotations: &Texts) -> Option<Arc<str>> {
    let name = text(annotations, NAME).filter(|name| name.contains(OR))?;
    Some(choice(name)).filter(|choice| choice.contains(OR))
}

impl Figures {
    /// A task with these annotations now holds this, or no longer.
    pub(super) fn use_cards(&mut self, annotations: &Texts, held: &Counts, holds: bool) {
        let Some(choice) = choice_of(annotations) else { return };
        let has = |name: &str| held.cards().find(|(card, amount)| ***card == *name && *amount > 0);
        let Some((card, _)) = choice.split(OR).find_map(has) else {
            return;
        };
        let place = self
            .in_use
            .binary_search_by(|own| (&own.choice, &own.card).cmp(&(&choice, card)));
        match (place, holds) {
            (Ok(at), true) => {
                if let Some(own) = self.in_use.get_mut(at) {
                    own.tasks += 1;
                }
            }
            (Ok(at), false) => {
                if let Some(own) = self.in_use.get_mut(at) {
                    own.tasks -= 1;
                }
                self.in_use.retain(|own| own.tasks > 0);
            }
            (Err(at), true) => {
                let (card, tasks) = (Arc::clone(card), 1);
                self.in_use.insert(at, InUse { choice, card, tasks });
            }
            (Err(_), false) => {}
        }
    }
}

impl CapacityState {
    /// Leaves of what a task of a job needs only the card that the job's tasks of its kind use; while none of them uses
    /// any, the one `named`, if it has room for as many as the job needs at least; else those with room for all of them,
    /// or for the least; if there are none, all.
    pub(super) fn keep_to_one_card(
        &self,
        job: &str,
        annotations: &Texts,
        named: &str,
        need: &mut Need,
        ledger: Option<&Ledger<'_>>,
    ) {
        if self.config.mixed {
            return;
        }
        let (Some(choice), Some(job)) = (choice_of(annotations), self.jobs.get(job)) else {
            return;
        };
        let of_choice = |card: &str| choice.split(OR).any(|name| name == card);
        let mut demands = need.demands.iter_mut();
        let Some(demand) = demands.find(|own| own.alternatives.iter().all(|(card, _)| of_choice(card))) else {
            return;
        };
        let known = demand.name();
        let asked = |counts: &Counts| counts.card_or_zero(&choice).max(counts.card_or_zero(&known));
        let (all, least) = (asked(&job.pending), asked(&job.min));
        let in_use = |card: &str| job.in_use.iter().any(|own| own.choice == choice && *own.card == *card);
        let fits = |card: &str, amount: i128| ledger.is_none_or(|ledger| ledger.room(card) >= amount);
        let kept = demand.keep(in_use)
            || demand.keep(|card| card == named && fits(card, least))
            || demand.keep(|card| fits(card, all));
        if !kept {
            demand.keep(|card| fits(card, least));
        }
    }
}
