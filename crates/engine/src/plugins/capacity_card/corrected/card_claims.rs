//! Claims on choices of cards that nobody has made yet, of jobs that were admitted elsewhere: by their phase alone.
//!
//! Without `mixedCards` all that a job still needs of a choice is one claim, for all of it must go to one card; with it
//! each task is a claim, and what only an annotation tells of comes card by card.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::held_bytes::held_bytes;
use crate::plugins::capacity_card::{CARD_SEPARATOR, QuotaAmounts};

/// One card, in thousandths.
pub(super) const CARD: i128 = 1000;

/// Equal claims of one queue on a choice, each of which takes one card whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CardClaim {
    /// Acceptable cards, best first, joined.
    pub(super) choice: Arc<str>,
    /// Queue that reserves them.
    pub(super) queue: Arc<str>,
    /// Amount of one of them, in thousandths of cards.
    pub(super) size: i128,
    /// Number of these claims.
    pub(super) count: i128,
}

held_bytes! { CardClaim { choice, queue; size, count } }

/// Sizes of the tasks of a job that wait for a choice: its name, the size, and how many tasks in a row have it.
pub(super) type Sizes = Vec<(Arc<str>, i128, i128)>;

/// Claims in the order in which they get cards: large ones first, then by name of the choice and the queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CardClaims(Vec<CardClaim>);

held_bytes! { CardClaims { 0 } }

impl CardClaims {
    /// The claims of the choices among amounts. `sizes`: of the tasks that they are for; `None`: each choice is one.
    pub(super) fn of(queue: &Arc<str>, amounts: &QuotaAmounts, sizes: Option<&Sizes>) -> Self {
        let mut claims = Self::default();
        for (choice, amount) in amounts.choices().filter(|(_, amount)| *amount > 0) {
            let claim = |size: i128, count: i128| CardClaim {
                choice: Arc::clone(choice),
                queue: Arc::clone(queue),
                size,
                count,
            };
            let Some(sizes) = sizes else {
                claims.add(&claim(amount, 1), 1);
                continue;
            };
            let mut left = amount;
            for (_, size, count) in sizes.iter().filter(|(own, size, _)| own == choice && *size > 0) {
                let whole = (left / size).min(*count);
                claims.add(&claim(*size, whole), 1);
                left -= whole * size;
            }
            claims.add(&claim(CARD, left / CARD), 1);
            claims.add(&claim(left % CARD, 1), 1);
        }
        claims
    }

    /// Adds to the count of a claim, or with −1 takes away from it.
    fn add(&mut self, claim: &CardClaim, sign: i128) {
        if claim.size <= 0 || claim.count == 0 {
            return;
        }
        match self.0.binary_search_by_key(&claim.order(), CardClaim::order) {
            Ok(at) => {
                if let Some(own) = self.0.get_mut(at) {
                    own.count += sign * claim.count;
                    if own.count == 0 {
                        self.0.remove(at);
                    }
                }
            }
            Err(at) => {
                let count = sign * claim.count;
                self.0.insert(at, CardClaim { count, ..claim.clone() });
            }
        }
    }

    /// Takes others in.
    pub(super) fn join(&mut self, others: &Self) {
        others.iter().for_each(|claim| self.add(claim, 1));
    }

    /// Takes others out.
    pub(super) fn leave(&mut self, others: &Self) {
        others.iter().for_each(|claim| self.add(claim, -1));
    }

    /// All of them, in the order in which they get cards.
    pub(super) fn iter(&self) -> impl Iterator<Item = &CardClaim> {
        self.0.iter()
    }

    /// True if there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl CardClaim {
    fn order(&self) -> (Reverse<i128>, &str, &str) {
        (Reverse(self.size), &self.choice, &self.queue)
    }

    /// True if both are the same, however many there are.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.order() == other.order()
    }

    /// Acceptable cards, best first.
    pub(super) fn cards(&self) -> impl Iterator<Item = &str> {
        self.choice.split(CARD_SEPARATOR)
    }
}
