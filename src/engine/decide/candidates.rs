//! The nodes of a question, chunk by chunk.

use crate::engine::model::{CHUNK, Chunk, Mask, Slot, View};

/// Some nodes of one chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part<'v> {
    /// Slot of the chunk's first place.
    pub(super) first: Slot,
    pub(super) chunk: &'v Chunk,
    /// The nodes; all of them are there.
    pub(super) among: Mask,
}

impl Part<'_> {
    /// Appends the slots of these places.
    pub(super) fn push_slots(&self, among: &Mask, slots: &mut Vec<Slot>) {
        for (first, mut word) in (self.first..).step_by(64).zip(among.words()) {
            if word == u64::MAX {
                slots.extend(first..first + 64);
                continue;
            }
            while word != 0 {
                slots.push(first + word.trailing_zeros());
                word &= word - 1;
            }
        }
    }

    /// The slot of a place.
    pub(super) fn slot(&self, offset: usize) -> Slot {
        Slot::try_from(offset).map_or(self.first, |offset| self.first + offset)
    }
}

/// The nodes of a question.
#[derive(Clone, Debug)]
pub(super) struct Candidates<'v> {
    /// By slot, none empty.
    pub(super) parts: Vec<Part<'v>>,
    /// Slots asked about where no node is, by slot.
    pub(super) absent: Vec<Slot>,
    /// The caller's order as (slot, position), by slot; `None`: by slot anyway.
    order: Option<Vec<(Slot, usize)>>,
}

impl<'v> Candidates<'v> {
    /// All nodes, or those at the slots given.
    pub(super) fn of(view: &'v View, slots: Option<&[Slot]>) -> Self {
        let Some(slots) = slots else {
            let parts = (0..)
                .zip(view.chunks())
                .map(|(number, chunk)| part(number, chunk, *chunk.live()));
            return Self {
                parts: parts.filter(|part| !part.among.is_empty()).collect(),
                absent: Vec::new(),
                order: None,
            };
        };
        let mut candidates = Self {
            parts: Vec::new(),
            absent: Vec::new(),
            order: None,
        };
        if slots.is_sorted() {
            candidates.take(view, slots.iter().copied());
        } else {
            let mut order: Vec<(Slot, usize)> = slots.iter().copied().zip(0..).collect();
            order.sort_unstable();
            candidates.take(view, order.iter().map(|&(slot, _)| slot));
            candidates.order = Some(order);
        }
        candidates
    }

    /// The nodes at these slots, in ascending order.
    pub(super) fn at(view: &'v View, slots: impl IntoIterator<Item = Slot>) -> Self {
        let mut candidates = Self {
            parts: Vec::new(),
            absent: Vec::new(),
            order: None,
        };
        candidates.take(view, slots);
        candidates
    }

    fn take(&mut self, view: &'v View, slots: impl IntoIterator<Item = Slot>) {
        for slot in slots {
            let (number, offset) = (slot as usize / CHUNK, slot as usize % CHUNK);
            let Some(chunk) = view.chunks().get(number).filter(|chunk| chunk.live().get(offset)) else {
                self.absent.push(slot);
                continue;
            };
            let new = part(slot / CHUNK_SLOTS, chunk, Mask::NONE);
            if self.parts.last().is_none_or(|last| last.first != new.first) {
                self.parts.push(new);
            }
            if let Some(last) = self.parts.last_mut() {
                last.among.set(offset, true);
            }
        }
    }

    /// Number of nodes.
    pub(super) fn len(&self) -> usize {
        self.parts.iter().map(|part| part.among.count() as usize).sum()
    }

    /// For nodes given by slot: their indexes in the caller's order. `None`: it is the same.
    pub(super) fn callers_order(&self, slots: &[Slot]) -> Option<Vec<usize>> {
        let order = self.order.as_ref()?;
        let position = |slot: Slot| {
            let at = order.partition_point(|&(other, _)| other < slot);
            order.get(at).map_or(usize::MAX, |&(_, position)| position)
        };
        let mut indexes: Vec<(usize, usize)> = slots.iter().map(|&slot| position(slot)).zip(0..).collect();
        indexes.sort_unstable();
        Some(indexes.into_iter().map(|(_, index)| index).collect())
    }
}

const CHUNK_SLOTS: Slot = 256;
const _: () = assert!(CHUNK_SLOTS as usize == CHUNK);

fn part(number: Slot, chunk: &Chunk, among: Mask) -> Part<'_> {
    Part {
        first: number * CHUNK_SLOTS,
        chunk,
        among,
    }
}
