//! Nodes as they would stand after more tasks, so that plugins' own kernels judge many of them at once.

use super::run::Run;
use crate::engine::decide::score::Scratch;
use crate::engine::model::{CHUNK, Chunk, Imagined, Mask, Slot, View};

/// Nodes that are looked at together.
pub(super) struct Ahead<'r> {
    how: How<'r>,
    /// Whose each place is.
    places: Vec<u32>,
    scratch: Box<Scratch>,
}

enum How<'r> {
    /// Tasks add to columns alike.
    Columns(Box<Imagined<'r>>),
    /// A node that takes a task keeps vectors of its own, as under `compatibility: upstream`.
    Entries { view: &'r View, chunk: Box<Chunk> },
}

impl<'r> Ahead<'r> {
    pub(super) fn new(run: &'r Run<'_>) -> Self {
        let how = match run.joining() {
            Some(joining) => How::Columns(Box::new(Imagined::new(run.view(), joining))),
            None => How::Entries {
                view: run.view(),
                chunk: Box::default(),
            },
        };
        Self {
            how,
            places: Vec::with_capacity(CHUNK),
            scratch: Box::new(Scratch::new()),
        }
    }

    pub(super) fn clear(&mut self) {
        self.places.clear();
        if let How::Columns(imagined) = &mut self.how {
            imagined.clear();
        }
    }

    /// Places that are left.
    pub(super) fn room(&self) -> usize {
        CHUNK - self.places.len()
    }

    /// Takes in a node that took so many tasks, as it would stand after one more, two more, and so on: so many times, or
    /// as often as there is room.
    pub(super) fn add(&mut self, run: &Run<'_>, number: u32, slot: Slot, taken: u32, depth: u32) {
        let depth = depth.min(u32::try_from(self.room()).unwrap_or(0));
        match &mut self.how {
            How::Columns(imagined) => (1..=depth).for_each(|more| imagined.add(slot, taken + more)),
            How::Entries { view, chunk } => {
                let Some(mut entry) = view.node(slot).map(|entry| run.after(entry, taken)) else {
                    return;
                };
                for at in self.places.len()..self.places.len() + depth as usize {
                    entry = run.after(&entry, 1);
                    chunk.set_entry(at, Some(entry.clone().into()));
                }
            }
        }
        self.places.extend((0..depth).map(|_| number));
    }

    /// Scores of all that were taken in, in that order.
    pub(super) fn judge(&mut self, run: &Run<'_>, mut say: impl FnMut(u32, Option<u64>)) {
        let (chunk, among) = match &mut self.how {
            How::Columns(imagined) => imagined.chunk(),
            How::Entries { chunk, .. } => (&**chunk, Mask::first(self.places.len())),
        };
        let places = &self.places;
        run.judge(chunk, &among, &mut self.scratch, |place, score| {
            if let Some(number) = places.get(place) {
                say(*number, score);
            }
        });
    }
}
