//! Amounts of cards under several names, set against each other: a choice and the cards it leaves are one demand.

use crate::plugins::capacity_card::{CARD_SEPARATOR, QuotaAmounts};
use std::sync::Arc;

/// The names of a choice in a fixed order: what tells one choice from another, however it is written.
pub(super) fn key_of(name: &Arc<str>) -> Arc<str> {
    if !name.contains(CARD_SEPARATOR) || name.split(CARD_SEPARATOR).is_sorted() {
        return Arc::clone(name);
    }
    let mut cards: Vec<&str> = name.split(CARD_SEPARATOR).collect();
    cards.sort_unstable();
    Arc::from(cards.join("|"))
}

/// True if both leave the same cards.
pub(super) fn same(a: &str, b: &str) -> bool {
    let within = |a: &str, b: &str| {
        a.split(CARD_SEPARATOR)
            .all(|card| b.split(CARD_SEPARATOR).any(|other| other == card))
    };
    a == b || (within(a, b) && within(b, a))
}

/// True if some card would do for both.
pub(super) fn share(a: &str, b: &str) -> bool {
    a.split(CARD_SEPARATOR)
        .any(|card| b.split(CARD_SEPARATOR).any(|other| other == card))
}

/// The cards that would do for both, in the order of the first.
fn both(a: &str, b: &str) -> Arc<str> {
    let cards: Vec<&str> = a
        .split(CARD_SEPARATOR)
        .filter(|card| b.split(CARD_SEPARATOR).any(|other| other == *card))
        .collect();
    Arc::from(cards.join("|"))
}

/// Cards by name, single ones before choices.
pub(super) fn singles_first(counts: &QuotaAmounts) -> impl Iterator<Item = (&Arc<str>, i128)> {
    counts.singles().chain(counts.choices())
}

/// The names of `among` that some amount named `name` may be set against: the same first, then those that share a card.
fn partners(among: &QuotaAmounts, name: &str) -> Vec<Arc<str>> {
    let own = singles_first(among).filter(|(other, _)| same(other, name));
    let others = singles_first(among).filter(|(other, _)| !same(other, name) && share(other, name));
    own.chain(others).map(|(other, _)| Arc::clone(other)).collect()
}

/// Takes off an amount what is done of it already, whatever name that was counted under; nothing falls below 0.
pub(super) fn set_off(amounts: &mut QuotaAmounts, done: &QuotaAmounts) {
    amounts.cpu = (amounts.cpu - done.cpu).max(0);
    amounts.memory = (amounts.memory - done.memory).max(0);
    for (name, amount) in singles_first(done) {
        let mut left = amount.max(0);
        for other in partners(amounts, name) {
            left -= amounts.take_card(&other, left);
        }
    }
}

/// Cards that are told of twice, by tasks and by an annotation, each counted once: under the cards that are in both.
pub(super) fn merged(tasks: &QuotaAmounts, reported: &QuotaAmounts) -> QuotaAmounts {
    let (mut all, mut open) = (tasks.clone(), tasks.clone());
    for (name, amount) in singles_first(reported) {
        let mut left = amount;
        for other in partners(&open, name) {
            let used = open.take_card(&other, left);
            left -= used;
            if used > 0 && !same(&other, name) {
                all.add_card(&other, -used);
                all.add_card(&both(&other, name), used);
            }
        }
        let known = singles_first(tasks).find(|(other, _)| same(other, name));
        let name = known.map_or(name, |(known, _)| known);
        // An amount of 0 says that there is such a card.
        if left > 0 || all.card(name).is_none() {
            all.add_card(name, left);
        }
    }
    all
}

/// Amounts under the names that `known` has for them: what is on a card beyond what `known` has by its name is of the
/// choice that it was given for, and a choice has the name that is left of it where no node has its other cards any more.
pub(super) fn named_as(amounts: &QuotaAmounts, known: &QuotaAmounts) -> QuotaAmounts {
    let mut renamed = QuotaAmounts::new(amounts.cpu, amounts.memory);
    for (name, amount) in amounts.cards() {
        if name.contains(CARD_SEPARATOR) {
            renamed.add_card(known_name(amounts, known, name).unwrap_or(name), amount);
            continue;
        }
        let mut left = (amount - known.card_or_zero(name)).max(0);
        let mut own = amount - left;
        for (choice, wanted) in known.choices().filter(|(choice, _)| share(choice, name)) {
            let given = left.min(wanted - renamed.card_or_zero(choice)).max(0);
            if given > 0 {
                renamed.add_card(choice, given);
                left -= given;
            }
        }
        own += left;
        if own != 0 || amount == 0 {
            renamed.add_card(name, own);
        }
    }
    renamed
}

fn known_name<'k>(amounts: &QuotaAmounts, known: &'k QuotaAmounts, choice: &str) -> Option<&'k Arc<str>> {
    let names = || known.cards().map(|(name, _)| name);
    if let Some(equal) = names().find(|name| same(name, choice)) {
        return Some(equal);
    }
    let mut left = names().filter(|name| same(&both(name, choice), name) && amounts.card(name).is_none());
    let only = left.next()?;
    left.next().is_none().then_some(only)
}

/// Amount of a choice, however it is written.
pub(super) fn amount_of(counts: &QuotaAmounts, choice: &str) -> i128 {
    let own = counts.cards().filter(|(name, _)| same(name, choice));
    own.map(|(_, amount)| amount).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(cards: &[(&str, i128)]) -> QuotaAmounts {
        let mut counts = QuotaAmounts::default();
        for (name, amount) in cards {
            counts.add_card(&Arc::from(*name), *amount);
        }
        counts
    }

    fn some(mut counts: QuotaAmounts) -> QuotaAmounts {
        counts.drop_zero_cards();
        counts
    }

    #[test]
    fn what_tasks_and_annotation_say_counts_once() {
        let merged = |tasks, reported| some(merged(&counts(tasks), &counts(reported)));
        assert_eq!(merged(&[("A", 4)], &[("A", 8)]), counts(&[("A", 8)]));
        assert_eq!(merged(&[("A|B", 4)], &[("B|A", 2)]), counts(&[("A|B", 4)]));
        assert_eq!(merged(&[("A|B", 4)], &[("A", 4)]), counts(&[("A", 4)]));
        assert_eq!(merged(&[("A", 4)], &[("A|B", 6)]), counts(&[("A", 4), ("A|B", 2)]));
        assert_eq!(merged(&[("B", 2)], &[("A", 1)]), counts(&[("A", 1), ("B", 2)]));
    }

    #[test]
    fn a_choice_is_named_as_what_is_left_of_it() {
        let named_as = |amounts, known| named_as(&counts(amounts), &counts(known));
        assert_eq!(named_as(&[("A|B", 2)], &[("B|A", 1)]), counts(&[("B|A", 2)]));
        assert_eq!(named_as(&[("A|B|C", 2)], &[("B|A", 1)]), counts(&[("B|A", 2)]));
        assert_eq!(named_as(&[("A|B", 2)], &[("B", 1)]), counts(&[("B", 2)]));
        // Nothing says which of two it is, and another amount has the name already.
        assert_eq!(named_as(&[("A|B", 2)], &[("A", 1), ("B", 1)]), counts(&[("A|B", 2)]));
        assert_eq!(
            named_as(&[("A|B", 2), ("B", 3)], &[("B", 5)]),
            counts(&[("A|B", 2), ("B", 3)])
        );
        // A card that was given for a choice counts as the choice, up to what the choice needs and no task asks for by name.
        assert_eq!(named_as(&[("B", 2)], &[("A|B", 1)]), counts(&[("A|B", 1), ("B", 1)]));
        assert_eq!(
            named_as(&[("B", 3)], &[("A|B", 4), ("B", 1)]),
            counts(&[("A|B", 2), ("B", 1)])
        );
    }

    #[test]
    fn what_is_done_is_taken_off_once() {
        let mut left = counts(&[("A", 2), ("A|B", 3)]);
        set_off(&mut left, &counts(&[("A", 3), ("A|B", 1)]));
        assert_eq!(some(left), counts(&[("A|B", 1)]));
    }
}
