//! Masks: sets of the nodes of one chunk.

use crate::kernel::kernel;

/// Number of nodes in a chunk.
pub const CHUNK_SIZE: usize = 256;

/// A set of nodes of one chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeMask([u64; 4]);

impl NodeMask {
    /// No node.
    pub const NONE: Self = Self([0; 4]);
    /// Every place of the chunk.
    pub const ALL: Self = Self([u64::MAX; 4]);

    /// Nodes whose entry is true.
    pub fn from_bools(members: &[bool; CHUNK_SIZE]) -> Self {
        // Multiplying gathers the lowest bits of eight bytes in the highest byte, the first byte's bit lowest.
        const GATHER: u64 = 0x0102_0408_1020_4080;
        let mut mask = Self::NONE;
        let (words, _) = members.as_chunks::<64>();
        for (word, members) in mask.0.iter_mut().zip(words) {
            let (groups, _) = members.as_chunks::<8>();
            *word = groups.iter().rev().fold(0, |word, group| {
                let bytes = u64::from_le_bytes(group.map(u8::from));
                word << 8 | bytes.wrapping_mul(GATHER) >> 56
            });
        }
        mask
    }

    /// Nodes for whose offset `member` is true. In kernels eight comparisons become eight bits without leaving their
    /// lanes.
    #[expect(clippy::inline_always, reason = "it is compiled with the features of its kernel")]
    #[inline(always)]
    pub fn gather(member: impl Fn(usize) -> bool) -> Self {
        let mut mask = Self::NONE;
        for (first, word) in (0..CHUNK_SIZE).step_by(64).zip(&mut mask.0) {
            let (mut lanes, mut bits) = ([0_u64; 8], [1_u64, 2, 4, 8, 16, 32, 64, 128]);
            for first in (first..first + 64).step_by(8) {
                for ((lane, bit), offset) in lanes.iter_mut().zip(&mut bits).zip(first..) {
                    *lane |= if member(offset) { *bit } else { 0 };
                    *bit <<= 8;
                }
            }
            *word = lanes.iter().fold(0, |word, lane| word | lane);
        }
        mask
    }

    /// Nodes of the leading places whose items are true: few where there are few items.
    #[inline]
    pub fn from_leading(mut members: impl Iterator<Item = bool>) -> Self {
        let mut mask = Self::NONE;
        for word in &mut mask.0 {
            let mut count = 0;
            for (bit, member) in (0..u64::BITS).zip(&mut members) {
                *word |= u64::from(member) << bit;
                count += 1;
            }
            if count < u64::BITS {
                break;
            }
        }
        mask
    }

    /// First `count` places.
    #[inline]
    pub fn first_n(count: usize) -> Self {
        let mut first = Self::NONE;
        for (number, word) in first.0.iter_mut().enumerate() {
            let here = count.saturating_sub(number * 64).min(64);
            *word = if here == 64 { u64::MAX } else { (1 << here) - 1 };
        }
        first
    }

    /// Set of one node.
    #[inline]
    pub fn single(offset: usize) -> Self {
        let mut mask = Self::NONE;
        mask.set(offset, true);
        mask
    }

    /// The set as bits: bit `i` of word `w` is the node at `64 w + i`.
    #[inline]
    pub fn words(&self) -> [u64; 4] {
        self.0
    }

    /// True if the node at `offset` is in the set.
    #[inline]
    pub fn get(&self, offset: usize) -> bool {
        self.0
            .get(offset / 64)
            .is_some_and(|word| word >> (offset % 64) & 1 == 1)
    }

    /// Adds the node at `offset` to the set, or removes it.
    #[inline]
    pub fn set(&mut self, offset: usize, member: bool) {
        if let Some(word) = self.0.get_mut(offset / 64) {
            let bit = 1 << (offset % 64);
            *word = if member { *word | bit } else { *word & !bit };
        }
    }

    /// The nodes in both sets.
    #[must_use]
    #[inline]
    pub fn and(&self, other: &Self) -> Self {
        let mut both = *self;
        both.0.iter_mut().zip(other.0).for_each(|(a, b)| *a &= b);
        both
    }

    /// The nodes in either set.
    #[must_use]
    #[inline]
    pub fn or(&self, other: &Self) -> Self {
        let mut either = *self;
        either.0.iter_mut().zip(other.0).for_each(|(a, b)| *a |= b);
        either
    }

    /// The nodes of this set that are not in the other.
    #[must_use]
    #[inline]
    pub fn and_not(&self, other: &Self) -> Self {
        let mut rest = *self;
        rest.0.iter_mut().zip(other.0).for_each(|(a, b)| *a &= !b);
        rest
    }

    /// Number of nodes.
    #[inline]
    pub fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// True if the set has no node.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }

    /// Offsets of the nodes, ascending.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = usize> + use<> {
        let [word, later @ ..] = self.0;
        MaskOffsets { word, first: 0, later }
    }

    /// Writes `value` at the nodes of the set.
    pub fn write_at(&self, value: f64, values: &mut [f64; CHUNK_SIZE]) {
        let (blocks, _) = values.as_chunks_mut::<64>();
        for (word, block) in self.0.into_iter().zip(blocks) {
            match word.count_ones() {
                0 => {}
                64 => block.fill(value),
                // For few nodes a loop is cheaper.
                1..16 => {
                    let mut left = word;
                    while left != 0 {
                        if let Some(place) = block.get_mut(left.trailing_zeros() as usize) {
                            *place = value;
                        }
                        left &= left - 1;
                    }
                }
                _ => choose(word, value, block),
            }
        }
    }
}

/// Offsets of the nodes of a set, ascending.
#[derive(Clone, Debug)]
struct MaskOffsets {
    /// Rest of the word that begins at `first`.
    word: u64,
    first: usize,
    /// Words after it.
    later: [u64; 3],
}

impl Iterator for MaskOffsets {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        while self.word == 0 {
            let [next, after @ ..] = self.later;
            if self.first == CHUNK_SIZE - 64 {
                return None;
            }
            self.word = next;
            let [second, third] = after;
            self.later = [second, third, 0];
            self.first += 64;
        }
        let offset = self.first + self.word.trailing_zeros() as usize;
        self.word &= self.word - 1;
        Some(offset)
    }
}

kernel! {
    /// Writes a value at the places of a block whose bits are set.
    fn choose / choose_portable(word: u64, value: f64, block: &mut [f64; 64]) {
        for (bit, place) in block.iter_mut().enumerate() {
            *place = if word >> bit & 1 == 1 { value } else { *place };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_hold_what_is_put_in() {
        let members: [bool; CHUNK_SIZE] = std::array::from_fn(|i| i % 7 == 0 || i > 250);
        let mask = NodeMask::gather(|offset| members[offset]);
        let mut one_by_one = NodeMask::NONE;
        for (offset, member) in members.into_iter().enumerate() {
            assert_eq!(mask.get(offset), member, "{offset}");
            one_by_one.set(offset, member);
        }
        assert_eq!(mask, one_by_one);
        assert!(mask.iter().eq((0..CHUNK_SIZE).filter(|&i| members[i])));
        assert_eq!(NodeMask::ALL.and_not(&mask).or(&mask), NodeMask::ALL);
        for count in [0, 1, 63, 64, 65, 200, CHUNK_SIZE] {
            let leading = NodeMask::from_leading(members.iter().take(count).copied());
            assert_eq!(leading, mask.and(&NodeMask::first_n(count)), "{count}");
        }
    }

    #[test]
    fn every_processor_writes_the_same_values() {
        for word in [
            0,
            1,
            u64::MAX,
            1 << 63,
            0x5555_5555_5555_5555,
            0x8000_0000_ffff_0001,
            0x0f1e_2d3c_4b5a_6978,
        ] {
            let before: [f64; 64] = std::array::from_fn(|bit| bit as f64);
            let expected = std::array::from_fn(|bit| if word >> bit & 1 == 1 { -0.5 } else { before[bit] });
            let [mut chosen, mut plain] = [before; 2];
            choose(word, -0.5, &mut chosen);
            choose_portable::<false>(word, -0.5, &mut plain);
            assert_eq!((chosen, plain), (expected, expected), "{word:x}");
        }
    }

    #[test]
    fn values_are_written_at_the_nodes_of_the_set() {
        for keep in [1, 2, 3, 5, 64, 100, 300] {
            let members: [bool; CHUNK_SIZE] = std::array::from_fn(|i| i % keep == 0 || (64..128).contains(&i));
            let mut values: [f64; CHUNK_SIZE] = std::array::from_fn(|i| i as f64);
            NodeMask::gather(|offset| members[offset]).write_at(-1.0, &mut values);
            for (offset, member) in members.into_iter().enumerate() {
                assert_eq!(
                    values[offset],
                    if member { -1.0 } else { offset as f64 },
                    "{keep} {offset}"
                );
            }
        }
    }
}
