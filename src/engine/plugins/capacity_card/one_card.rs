//! Without `mixedCards`: the tasks of a job that may use any of several cards all use the same one.
//!
//! Which one that is shows when the first of them is given a card: one with room for all that wait, else one with room
//! for all that the job needs at least, as it was admitted. From then on it is the only one for the others.

use std::sync::Arc;

use super::amounts::QuotaAmounts;
use super::annotations::{CARD_SEPARATOR, NAME, normalize_choice};
use super::job_entry::JobAmounts;
use super::quota_accounts::QuotaAccounts;
use super::state::CapacityState;
use super::task_need::TaskNeed;
use crate::engine::model::{TextMap, find_text};

/// A card that tasks of a job use, of those that they may use, and how many tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CardUse {
    choice: Arc<str>,
    card: Arc<str>,
    task_count: u32,
}

/// The choice that an annotation leaves; `None`: there is none.
fn annotated_choice(annotations: &TextMap) -> Option<Arc<str>> {
    let name = find_text(annotations, NAME).filter(|name| name.contains(CARD_SEPARATOR))?;
    Some(normalize_choice(name)).filter(|choice| choice.contains(CARD_SEPARATOR))
}

impl JobAmounts {
    /// A task with these annotations now holds this, or no longer.
    pub(super) fn update_card_use(&mut self, annotations: &TextMap, held: &QuotaAmounts, holds: bool) {
        let Some(choice) = annotated_choice(annotations) else {
            return;
        };
        let has = |name: &str| held.cards().find(|(card, amount)| ***card == *name && *amount > 0);
        let Some((card, _)) = choice.split(CARD_SEPARATOR).find_map(has) else {
            return;
        };
        let place = self
            .in_use
            .binary_search_by(|own| (&own.choice, &own.card).cmp(&(&choice, card)));
        match (place, holds) {
            (Ok(at), true) => {
                if let Some(own) = self.in_use.get_mut(at) {
                    own.task_count += 1;
                }
            }
            (Ok(at), false) => {
                if let Some(own) = self.in_use.get_mut(at) {
                    own.task_count -= 1;
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

impl CapacityState {
    /// Leaves of what a task of a job needs only the card that the job's tasks of its kind use; while none of them uses
    /// any, the one `named`, if it has room for as many as the job needs at least; else those with room for all of them,
    /// or for the least; if there are none, all.
    pub(super) fn restrict_to_one_card(
        &self,
        job: &str,
        annotations: &TextMap,
        named: &str,
        need: &mut TaskNeed,
        ledger: Option<&QuotaAccounts<'_>>,
    ) {
        if self.config.mixed_cards {
            return;
        }
        let (Some(choice), Some(job)) = (annotated_choice(annotations), self.jobs.get(job)) else {
            return;
        };
        let of_choice = |card: &str| choice.split(CARD_SEPARATOR).any(|name| name == card);
        let mut demands = need.demands.iter_mut();
        let Some(demand) = demands.find(|own| own.alternatives.iter().all(|(card, _)| of_choice(card))) else {
            return;
        };
        let known = demand.name();
        let asked = |counts: &QuotaAmounts| counts.card_or_zero(&choice).max(counts.card_or_zero(&known));
        let (all, least) = (asked(&job.pending), asked(&job.min));
        let in_use = |card: &str| job.in_use.iter().any(|own| own.choice == choice && *own.card == *card);
        let fits = |card: &str, amount: i128| ledger.is_none_or(|ledger| ledger.card_headroom(card) >= amount);
        let kept = demand.retain_any(in_use)
            || demand.retain_any(|card| card == named && fits(card, least))
            || demand.retain_any(|card| fits(card, all));
        if !kept {
            demand.retain_any(|card| fits(card, least));
        }
    }
}
