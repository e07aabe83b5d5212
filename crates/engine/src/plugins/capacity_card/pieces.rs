//! Pieces of choices of cards that are reserved, which cannot be taken apart.
//!
//! Without `mixedCards` all that a job still needs of a choice is one piece, for all of it must go to one card; with it
//! each task is a piece, and what only an annotation tells of comes card by card.

use std::sync::Arc;

use super::amounts::{CARD_SEPARATOR, QuotaAmounts};
use super::matching::key_of;
use crate::held_bytes::held_bytes;

/// One card, in thousandths.
const CARD: i128 = 1000;

/// Equal pieces of one choice, reserved in one queue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Piece {
    /// The cards of the choice, sorted.
    pub(super) choice: Arc<str>,
    /// Queue that reserves them.
    pub(super) queue: Arc<str>,
    /// Of one of them, in thousandths of cards.
    pub(super) size: i128,
    /// How many there are.
    pub(super) count: i128,
}

held_bytes! { Piece { choice, queue; size, count } }

/// Sizes of the tasks of a job that wait for a choice: its name, the size, and how many tasks in a row have it.
pub(super) type Sizes = Vec<(Arc<str>, i128, i128)>;

/// Pieces, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pieces(Vec<Piece>);

held_bytes! { Pieces { 0 } }

impl Pieces {
    /// The pieces of the choices among amounts. `sizes`: of the tasks that they are for; `None`: each choice is one.
    pub(super) fn of(queue: &Arc<str>, amounts: &QuotaAmounts, sizes: Option<&Sizes>) -> Self {
        let mut pieces = Self::default();
        for (name, amount) in amounts.choices().filter(|(_, amount)| *amount > 0) {
            let piece = |size: i128, count: i128| Piece {
                choice: key_of(name),
                queue: Arc::clone(queue),
                size,
                count,
            };
            let Some(sizes) = sizes else {
                pieces.add(piece(amount, 1), 1);
                continue;
            };
            let mut left = amount;
            for (_, size, count) in sizes.iter().filter(|(own, size, _)| own == name && *size > 0) {
                let whole = (left / size).min(*count);
                pieces.add(piece(*size, whole), 1);
                left -= whole * size;
            }
            pieces.add(piece(CARD, left / CARD), 1);
            pieces.add(piece(left % CARD, 1), 1);
        }
        pieces
    }

    /// Adds to the count of a piece, or with −1 takes away from it.
    fn add(&mut self, piece: Piece, sign: i128) {
        if piece.size <= 0 || piece.count == 0 {
            return;
        }
        let wanted = (&piece.choice, &piece.queue, piece.size);
        let found = self
            .0
            .binary_search_by(|own| (&own.choice, &own.queue, own.size).cmp(&wanted));
        match found {
            Ok(at) => {
                if let Some(own) = self.0.get_mut(at) {
                    own.count += sign * piece.count;
                }
                self.0.retain(|own| own.count != 0);
            }
            Err(at) => self.0.insert(
                at,
                Piece {
                    count: sign * piece.count,
                    ..piece
                },
            ),
        }
    }

    /// Takes one more kind of pieces in.
    pub(super) fn put(&mut self, piece: Piece) {
        self.add(piece, 1);
    }

    /// Takes others in.
    pub(super) fn join(&mut self, others: &Self) {
        others.iter().for_each(|piece| self.add(piece.clone(), 1));
    }

    /// Takes others out.
    pub(super) fn leave(&mut self, others: &Self) {
        others.iter().for_each(|piece| self.add(piece.clone(), -1));
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Piece> {
        self.0.iter()
    }

    /// True if there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Amount of them that might go to a card.
    pub(super) fn might_use(&self, card: &str) -> i128 {
        let own = self.0.iter().filter(|piece| piece.may_use(card));
        own.map(|piece| piece.size * piece.count).sum()
    }
}

impl Piece {
    /// True if a card is one of the choice.
    pub(super) fn may_use(&self, card: &str) -> bool {
        self.choice.split(CARD_SEPARATOR).any(|own| own == card)
    }
}
