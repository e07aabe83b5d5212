//! How much of a card must be left to those that may also use another: a small maximum flow.

use std::collections::VecDeque;
use std::sync::Arc;

use super::amounts::CARD_SEPARATOR;

/// Amounts that may go to any of several cards, and the room that each card has.
#[derive(Clone, Debug, Default)]
pub(super) struct CardFlow<'a> {
    card_capacities: Vec<(&'a str, i128)>,
    demands: Vec<(Vec<usize>, i128)>,
}

impl<'a> CardFlow<'a> {
    /// The choices among `amounts`, with the room of each of their cards.
    pub(super) fn new(amounts: impl Iterator<Item = (&'a Arc<str>, i128)>, room: impl Fn(&str) -> i128) -> Self {
        let mut flow = Self::default();
        for (choice, amount) in amounts.filter(|(name, amount)| name.contains(CARD_SEPARATOR) && *amount > 0) {
            let cards = choice
                .split(CARD_SEPARATOR)
                .map(|card| flow.card_index(card, &room))
                .collect();
            flow.demands.push((cards, amount));
        }
        flow
    }

    /// Amounts that may go to any of several rooms, by number.
    pub(super) fn between(rooms: Vec<i128>, demands: Vec<(Vec<usize>, i128)>) -> Self {
        let card_capacities = rooms.into_iter().map(|room| ("", room.max(0))).collect();
        Self {
            card_capacities,
            demands,
        }
    }

    fn card_index(&mut self, card: &'a str, room: impl Fn(&str) -> i128) -> usize {
        if let Some(known) = self.card_capacities.iter().position(|(name, _)| *name == card) {
            return known;
        }
        self.card_capacities.push((card, room(card).max(0)));
        self.card_capacities.len() - 1
    }

    /// The least that must go to a card if as much as possible is to find room somewhere.
    pub(super) fn min_flow_on(&self, card: &str) -> i128 {
        let Some(at) = self.card_capacities.iter().position(|(name, _)| *name == card) else {
            return 0;
        };
        let with = |room: i128| {
            let mut rooms: Vec<i128> = self.card_capacities.iter().map(|(_, room)| *room).collect();
            if let Some(place) = rooms.get_mut(at) {
                *place = room;
            }
            self.max_flow_with(rooms)
        };
        with(i128::MAX / 4) - with(0)
    }

    /// The most that finds room.
    pub(super) fn max_flow(&self) -> i128 {
        self.max_flow_with(self.card_capacities.iter().map(|(_, room)| *room).collect())
    }

    /// The most that finds room, if the cards have these.
    fn max_flow_with(&self, mut rooms: Vec<i128>) -> i128 {
        // placed[demand][card]
        let mut placed = vec![vec![0_i128; rooms.len()]; self.demands.len()];
        let mut total = 0;
        for (number, (_, amount)) in self.demands.iter().enumerate() {
            let mut left = *amount;
            while left > 0 {
                let Some(moved) = self.augment(number, left, &mut rooms, &mut placed) else {
                    break;
                };
                left -= moved;
                total += moved;
            }
        }
        total
    }

    /// Places some more of a demand, others moving aside where they can; `None`: no more finds room.
    fn augment(&self, first: usize, left: i128, rooms: &mut [i128], placed: &mut [Vec<i128>]) -> Option<i128> {
        // How each card was reached: the demand that moves there, and the card that it moves away from.
        let mut reached: Vec<Option<(usize, Option<usize>)>> = vec![None; rooms.len()];
        let mut queue = VecDeque::new();
        let reach = |demand: usize, from: Option<usize>, reached: &mut Vec<Option<_>>, queue: &mut VecDeque<usize>| {
            for &card in self.demands.get(demand).map_or(&[][..], |(cards, _)| cards) {
                if let Some(place @ None) = reached.get_mut(card) {
                    *place = Some((demand, from));
                    queue.push_back(card);
                }
            }
        };
        reach(first, None, &mut reached, &mut queue);
        while let Some(card) = queue.pop_front() {
            let room = rooms.get(card).copied().unwrap_or(0);
            if room > 0 {
                return Some(push_flow(card, left.min(room), &reached, rooms, placed));
            }
            for demand in 0..self.demands.len() {
                if flow_at(placed, demand, card) > 0 {
                    reach(demand, Some(card), &mut reached, &mut queue);
                }
            }
        }
        None
    }
}

fn flow_at(placed: &[Vec<i128>], demand: usize, card: usize) -> i128 {
    placed.get(demand).and_then(|row| row.get(card)).copied().unwrap_or(0)
}

fn add_flow_at(placed: &mut [Vec<i128>], demand: usize, card: usize, amount: i128) {
    if let Some(place) = placed.get_mut(demand).and_then(|row| row.get_mut(card)) {
        *place += amount;
    }
}

/// Moves along the path that ends at a card with room; how much moved.
fn push_flow(
    end: usize,
    most: i128,
    reached: &[Option<(usize, Option<usize>)>],
    rooms: &mut [i128],
    placed: &mut [Vec<i128>],
) -> i128 {
    let path: Vec<(usize, usize, Option<usize>)> = std::iter::successors(Some(end), |card| {
        let (_, from) = reached.get(*card).copied().flatten()?;
        from
    })
    .filter_map(|card| {
        let (demand, from) = reached.get(card).copied().flatten()?;
        Some((card, demand, from))
    })
    .collect();
    let moved = path
        .iter()
        .filter_map(|&(_, demand, from)| Some(flow_at(placed, demand, from?)))
        .fold(most, i128::min);
    for (card, demand, from) in path {
        add_flow_at(placed, demand, card, moved);
        if let Some(from) = from {
            add_flow_at(placed, demand, from, -moved);
        }
    }
    if let Some(room) = rooms.get_mut(end) {
        *room -= moved;
    }
    moved
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NAMES: [&str; 4] = ["A", "B", "C", "D"];

    fn choice(set: usize) -> Arc<str> {
        let names: Vec<&str> = (0..4)
            .filter(|card| set >> card & 1 == 1)
            .map(|card| NAMES[card])
            .collect();
        Arc::from(names.join("|"))
    }

    /// By Hall: the most that finds room is the least, over sets of cards, of what may avoid the set plus its room.
    fn most(demands: &[(usize, i128)], rooms: [i128; 4]) -> i128 {
        let cut = |set: usize| {
            let room: i128 = (0..4).filter(|card| set >> card & 1 == 1).map(|card| rooms[card]).sum();
            let free = demands.iter().filter(|(cards, _)| cards & !set != 0);
            room + free.map(|(_, amount)| amount).sum::<i128>()
        };
        (0..16).map(cut).min().unwrap()
    }

    proptest! {
        #[test]
        fn min_flow_equals_the_min_cut(
            demands in prop::collection::vec((1_usize..16, 1_i128..9), 0..6),
            rooms in prop::array::uniform4(0_i128..9),
            card in 0_usize..4,
        ) {
            let demands: Vec<_> = demands.into_iter().filter(|(set, _)| set.count_ones() > 1).collect();
            let names: Vec<(Arc<str>, i128)> = demands.iter().map(|(set, amount)| (choice(*set), *amount)).collect();
            let room = |name: &str| rooms[NAMES.iter().position(|known| *known == name).unwrap()];
            let flow = CardFlow::new(names.iter().map(|(name, amount)| (name, *amount)), room);
            let with = |amount| {
                let mut rooms = rooms;
                rooms[card] = amount;
                most(&demands, rooms)
            };
            prop_assert_eq!(flow.min_flow_on(NAMES[card]), with(1_000_000) - with(0));
        }
    }

    #[test]
    fn flow_is_rerouted_to_make_space() {
        let amounts: Vec<(Arc<str>, i128)> = vec![("A|B".into(), 3), ("B|C".into(), 2)];
        let flow = CardFlow::new(
            amounts.iter().map(|(name, amount)| (name, *amount)),
            |card| match card {
                "A" => 2,
                "B" => 4,
                _ => 1,
            },
        );
        assert_eq!(
            (flow.min_flow_on("A"), flow.min_flow_on("B"), flow.min_flow_on("C")),
            (0, 2, 0)
        );
        assert_eq!(flow.min_flow_on("D"), 0);
    }
}
