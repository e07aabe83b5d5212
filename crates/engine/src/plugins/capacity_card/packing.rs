//! Whether pieces that cannot be taken apart find room on cards: each goes to one card, in its queue and in those above.
//!
//! The search is bounded: who cannot be told to fit within its steps does not. What fits is told quickly almost always.

use smallvec::SmallVec;

use super::card_flow::CardFlow;

/// Steps of one search.
const STEPS: u32 = 20_000;

/// Equal pieces, and where they may go.
#[derive(Clone, Debug)]
pub(super) struct Load {
    /// The rooms that a piece takes of, one such set for each card that would do.
    pub(super) options: SmallVec<[SmallVec<[usize; 1]>; 2]>,
    pub(super) size: i128,
    pub(super) count: i128,
    /// All of them must find room.
    pub(super) must: bool,
}

/// Rooms, and what asks for them.
#[derive(Clone, Debug, Default)]
pub(super) struct Packing {
    pub(super) rooms: Vec<i128>,
    pub(super) loads: Vec<Load>,
}

/// How far a search has come.
struct Search<'p> {
    loads: Vec<&'p Load>,
    rooms: Vec<i128>,
    /// The least that found no room so far.
    best: Option<i128>,
    steps: u32,
}

impl Packing {
    /// The least of all sizes that finds no room, and whether that is sure; `None`: what must find room does not.
    pub(super) fn least_left(&self) -> (Option<i128>, bool) {
        let mut loads: Vec<&Load> = self.loads.iter().filter(|load| load.count > 0).collect();
        // Large pieces first, and those that have little choice.
        let key = |load: &&Load| (-load.size, load.options.len(), !load.must);
        loads.sort_by_key(key);
        let all_must = loads.iter().any(|load| load.must);
        let mut search = Search {
            loads,
            rooms: self.rooms.iter().map(|room| (*room).max(0)).collect(),
            best: None,
            steps: STEPS,
        };
        // First as if nothing could be left out: mostly nothing is.
        search.go(0, 0, true);
        if search.best != Some(0) && search.steps > 0 {
            if all_must {
                search
                    .loads
                    .sort_by_key(|load| (!load.must, -load.size, load.options.len()));
            }
            search.go(0, 0, false);
        }
        (search.best, search.steps > 0)
    }
}

impl Search<'_> {
    /// Places the loads from this one on; `lost` of those before found no room. `whole`: none may be lost.
    fn go(&mut self, at: usize, lost: i128, whole: bool) {
        if self.best.is_some_and(|best| best <= lost) {
            return;
        }
        let Some(load) = self.loads.get(at).copied() else {
            self.best = Some(lost);
            return;
        };
        if (whole || !load.must) && self.finish(at, lost, whole) {
            return;
        }
        self.place(at, load, 0, load.count, (lost, whole));
    }

    /// Gives pieces of a load to its options from this one on, as many as possible first.
    fn place(&mut self, at: usize, load: &Load, option: usize, left: i128, (lost, whole): (i128, bool)) {
        let Some(rooms) = load.options.get(option).filter(|_| left > 0) else {
            if left == 0 || !(whole || load.must) {
                self.go(at + 1, lost + left * load.size, whole);
            }
            return;
        };
        let room = rooms.iter().filter_map(|room| self.rooms.get(*room)).min();
        let most = (room.copied().unwrap_or(0) / load.size.max(1)).min(left);
        let mut count = most;
        loop {
            if self.steps == 0 || self.best == Some(0) {
                return;
            }
            self.steps -= 1;
            self.take(rooms, count * load.size);
            self.place(at, load, option + 1, left - count, (lost, whole));
            self.take(rooms, -count * load.size);
            if count == 0 {
                return;
            }
            count -= 1;
        }
    }

    fn take(&mut self, rooms: &[usize], amount: i128) {
        for room in rooms {
            if let Some(room) = self.rooms.get_mut(*room) {
                *room -= amount;
            }
        }
    }

    /// Places all that is left at once, if it is of one size and each piece takes of one room: then the flow is exact.
    fn finish(&mut self, at: usize, lost: i128, whole: bool) -> bool {
        let loads = self.loads.get(at..).unwrap_or_default();
        let Some(size) = loads.first().map(|load| load.size.max(1)) else {
            return false;
        };
        let simple = |load: &&Load| load.size == size && load.options.iter().all(|rooms| rooms.len() == 1);
        if !loads.iter().all(simple) || (!whole && loads.iter().any(|load| load.must)) {
            return false;
        }
        let demand = |load: &&Load| {
            let rooms = load.options.iter().filter_map(|rooms| rooms.first().copied());
            (rooms.collect::<Vec<usize>>(), load.count)
        };
        let demands: Vec<(Vec<usize>, i128)> = loads.iter().map(demand).collect();
        let all: i128 = demands.iter().map(|(_, count)| *count).sum();
        let placed = CardFlow::between(self.rooms.iter().map(|room| room / size).collect(), demands).max_flow();
        self.steps = self.steps.saturating_sub(1);
        let left = lost + (all - placed) * size;
        if !(whole && placed < all) && self.best.is_none_or(|best| left < best) {
            self.best = Some(left);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The least that finds no room, by trying everything.
    fn plain(rooms: &mut [i128], pieces: &[(&Load, i128)]) -> Option<i128> {
        let Some((&(load, size), rest)) = pieces.split_first() else {
            return Some(0);
        };
        let mut best = if load.must {
            None
        } else {
            plain(rooms, rest).map(|lost| lost + size)
        };
        for option in &load.options {
            if option.iter().any(|room| rooms[*room] < size) {
                continue;
            }
            option.iter().for_each(|room| rooms[*room] -= size);
            let lost = plain(rooms, rest);
            option.iter().for_each(|room| rooms[*room] += size);
            best = match (best, lost) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
        best
    }

    fn load(levels: usize) -> impl Strategy<Value = Load> {
        let cards = prop::collection::btree_set(0_usize..3, 1..=3);
        (cards, 1_i128..4, 1_i128..3, prop::bool::weighted(0.3), 0..levels).prop_map(
            move |(cards, size, count, must, from)| Load {
                options: cards
                    .iter()
                    .map(|card| (from..levels).map(|level| level * 3 + card).collect())
                    .collect(),
                size,
                count,
                must,
            },
        )
    }

    proptest! {
        #[test]
        fn equals_trying_everything(
            levels in 1_usize..3,
            rooms in prop::collection::vec(-1_i128..7, 6),
            seed in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
            many in prop::collection::vec(load(2), 8),
            flat in prop::collection::vec(load(1), 8),
        ) {
            let from = if levels == 1 { &flat } else { &many };
            let loads: Vec<Load> = seed.iter().map(|index| index.get(from).clone()).collect();
            let packing = Packing { rooms: rooms.clone(), loads };
            let pieces: Vec<(&Load, i128)> = packing.loads.iter()
                .flat_map(|load| (0..load.count).map(move |_| (load, load.size))).collect();
            let mut rooms: Vec<i128> = rooms.iter().map(|room| (*room).max(0)).collect();
            prop_assert_eq!(packing.least_left(), (plain(&mut rooms, &pieces), true));
        }
    }

    #[test]
    fn a_search_without_an_end_is_given_up() {
        let rooms = vec![1_000_000_007; 9];
        let load = |number: i128| Load {
            options: (0..9).map(|room| SmallVec::from_iter([room])).collect(),
            size: 31_337 + number * 17,
            count: 1_000_000,
            must: false,
        };
        let packing = Packing {
            rooms,
            loads: (0..9).map(load).collect(),
        };
        assert!(!packing.least_left().1);
    }
}
