//! Amounts that the plugin counts: processor time, memory, and cards by name.

use std::sync::{Arc, LazyLock};

use crate::held_bytes::held_bytes;
use crate::model::Reservation;
use smallvec::SmallVec;

/// Between acceptable cards.
pub(super) const CARD_SEPARATOR: char = '|';

/// Amounts of processor time, memory and cards. A card that is present with 0 differs from one that is absent.
///
/// Units: milli-cores, bytes, thousandths of cards. The name of several acceptable cards is joined by `|`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuotaAmounts {
    /// Milli-cores.
    pub cpu: i128,
    /// Bytes.
    pub memory: i128,
    /// By name.
    cards: SmallVec<[(Arc<str>, i128); 2]>,
}

held_bytes! { QuotaAmounts { cards; cpu, memory } }

impl QuotaAmounts {
    /// Processor time and memory only.
    pub fn new(cpu: impl Into<i128>, memory: impl Into<i128>) -> Self {
        Self {
            cpu: cpu.into(),
            memory: memory.into(),
            cards: SmallVec::new(),
        }
    }

    /// Amounts of a reservation: cpu and memory first, then cards. A card may be named like a resource.
    pub(super) fn of_reservation(row: &Reservation) -> Self {
        let mut amounts = Self::default();
        let [cpu, memory] = Self::plain_names();
        for (place, (name, amount)) in row.amounts.iter().enumerate() {
            match place {
                0 if name == cpu => amounts.cpu = *amount,
                1 if name == memory => amounts.memory = *amount,
                _ => amounts.add_card(name, *amount),
            }
        }
        amounts
    }

    /// Names of processor time and memory, as lists of amounts have them.
    fn plain_names() -> [&'static Arc<str>; 2] {
        static PLAIN: LazyLock<[Arc<str>; 2]> = LazyLock::new(|| [Arc::from("cpu"), Arc::from("memory")]);
        PLAIN.each_ref()
    }

    /// Thousandths of a card, if it is present.
    pub fn card(&self, name: &str) -> Option<i128> {
        let at = self.cards.binary_search_by(|(card, _)| (**card).cmp(name)).ok()?;
        self.cards.get(at).map(|(_, amount)| *amount)
    }

    /// Thousandths of a card, 0 if it is absent.
    pub fn card_or_zero(&self, name: &str) -> i128 {
        self.card(name).unwrap_or(0)
    }

    /// The place of a card, which becomes present.
    fn card_slot(&mut self, name: &Arc<str>) -> Option<&mut i128> {
        let at = match self.cards.binary_search_by(|(card, _)| card.cmp(name)) {
            Ok(found) => found,
            Err(place) => {
                self.cards.insert(place, (Arc::clone(name), 0));
                place
            }
        };
        self.cards.get_mut(at).map(|(_, amount)| amount)
    }

    /// Replaces the thousandths of a card.
    pub fn set_card(&mut self, name: &Arc<str>, amount: i128) {
        if let Some(place) = self.card_slot(name) {
            *place = amount;
        }
    }

    /// Increases the thousandths of a card.
    pub fn add_card(&mut self, name: &Arc<str>, amount: i128) {
        if let Some(place) = self.card_slot(name) {
            *place += amount;
        }
    }

    /// Takes away at most so much of a card; returns how much, at least 0.
    pub(super) fn take_card(&mut self, name: &str, most: i128) -> i128 {
        let found = self.cards.binary_search_by(|(card, _)| (**card).cmp(name)).ok();
        let Some((_, amount)) = found.and_then(|at| self.cards.get_mut(at)) else {
            return 0;
        };
        let taken = most.min(*amount).max(0);
        *amount -= taken;
        taken
    }

    /// All cards, by name.
    pub fn cards(&self) -> impl Iterator<Item = (&Arc<str>, i128)> + '_ {
        self.cards.iter().map(|(name, amount)| (name, *amount))
    }

    /// Amounts of single cards, by name.
    pub(super) fn singles(&self) -> impl Iterator<Item = (&Arc<str>, i128)> + '_ {
        self.cards().filter(|(name, _)| !name.contains(CARD_SEPARATOR))
    }

    /// Amounts of several acceptable cards, by name.
    pub(super) fn choices(&self) -> impl Iterator<Item = (&Arc<str>, i128)> + '_ {
        self.cards().filter(|(name, _)| name.contains(CARD_SEPARATOR))
    }

    /// Amounts without those of several acceptable cards.
    pub(super) fn without_choices(&self) -> Self {
        let mut singles = self.clone();
        singles.cards.retain(|(name, _)| !name.contains(CARD_SEPARATOR));
        singles
    }

    /// All amounts by name: cpu and memory first, whether or not there is any, then cards.
    pub(super) fn named(&self) -> impl Iterator<Item = (&Arc<str>, i128)> + '_ {
        let [cpu, memory] = Self::plain_names();
        [(cpu, self.cpu), (memory, self.memory)].into_iter().chain(self.cards())
    }

    /// True if any card is present.
    pub fn has_cards(&self) -> bool {
        !self.cards.is_empty()
    }

    /// Adds every amount of another.
    pub fn add(&mut self, other: &Self) {
        self.cpu += other.cpu;
        self.memory += other.memory;
        for (name, amount) in other.cards() {
            self.add_card(name, amount);
        }
    }

    /// Takes every amount of another away; what is absent here becomes negative.
    pub fn subtract(&mut self, other: &Self) {
        self.cpu -= other.cpu;
        self.memory -= other.memory;
        for (name, amount) in other.cards() {
            self.add_card(name, -amount);
        }
    }

    /// Multiplies every amount.
    pub(super) fn multiply(&mut self, times: u64) {
        let times = i128::from(times);
        self.cpu *= times;
        self.memory *= times;
        for (_, amount) in &mut self.cards {
            *amount *= times;
        }
    }

    /// Rest of each amount when another is taken away, at least 0; over the cards of both.
    #[must_use]
    pub fn saturating_sub(&self, other: &Self) -> Self {
        let mut left = self.clone();
        left.subtract(other);
        left.clamp_negatives();
        left
    }

    /// No amount is less than another's.
    pub fn raise_to(&mut self, other: &Self) {
        self.cpu = self.cpu.max(other.cpu);
        self.memory = self.memory.max(other.memory);
        for (name, amount) in other.cards() {
            self.set_card(name, amount.max(self.card_or_zero(name)));
        }
    }

    /// No amount is more than another's; what is absent there is 0.
    pub fn lower_to(&mut self, other: &Self) {
        self.cpu = self.cpu.min(other.cpu);
        self.memory = self.memory.min(other.memory);
        for (name, amount) in &mut self.cards {
            *amount = (*amount).min(other.card_or_zero(name));
        }
        self.drop_zero_cards();
    }

    /// Negative amounts become 0.
    pub fn clamp_negatives(&mut self) {
        self.cpu = self.cpu.max(0);
        self.memory = self.memory.max(0);
        for (_, amount) in &mut self.cards {
            *amount = (*amount).max(0);
        }
    }

    /// True if no amount is larger than another's; absent cards count as 0.
    pub fn fits_in(&self, other: &Self) -> bool {
        self.cpu <= other.cpu
            && self.memory <= other.memory
            && self.cards().all(|(name, amount)| amount <= other.card_or_zero(name))
    }

    /// True if both have some of the same.
    pub fn overlaps(&self, other: &Self) -> bool {
        let both = |a: i128, b: i128| a > 0 && b > 0;
        both(self.cpu, other.cpu)
            || both(self.memory, other.memory)
            || self
                .cards()
                .any(|(name, amount)| both(amount, other.card_or_zero(name)))
    }

    /// True if there is nothing, and no card is present.
    pub fn is_empty(&self) -> bool {
        self.cpu == 0 && self.memory == 0 && self.cards.is_empty()
    }

    /// True if nothing is above or below 0.
    pub fn is_zero(&self) -> bool {
        self.cpu == 0 && self.memory == 0 && self.cards.iter().all(|(_, amount)| *amount == 0)
    }

    /// Forgets cards without an amount.
    pub fn drop_zero_cards(&mut self) {
        self.cards.retain(|(_, amount)| *amount != 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_keep_their_order_and_presence() {
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let mut counts = QuotaAmounts::new(1000, 5);
        counts.add_card(&b, 2000);
        counts.set_card(&a, 0);
        assert_eq!(counts.cards().map(|(name, _)| &**name).collect::<Vec<_>>(), ["a", "b"]);
        let mut more = counts.clone();
        more.add(&counts);
        assert!(counts.fits_in(&more) && !more.fits_in(&counts));
        assert_eq!(counts.saturating_sub(&more), {
            let mut zeros = QuotaAmounts::default();
            zeros.set_card(&a, 0);
            zeros.set_card(&b, 0);
            zeros
        });
    }
}
