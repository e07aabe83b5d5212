//! A chunk made of nodes as they would stand after more tasks of one kind, so that kernels judge many such at once.

use std::sync::Arc;

use super::amounts::ResourceId;
use super::chunk::{CHUNK, Chunk};
use super::chunks::Chunks;
use super::column::{Column, ResourceColumns, Vector};
use super::joining::{Joining, sum};
use super::mask::Mask;
use super::view::{Slot, View};
use super::whole::{DENSE, Exact, Whole, beside};

/// One vector of one resource: where it comes from.
#[derive(Debug)]
struct Source<'v> {
    /// Its resource's place among the columns.
    at: usize,
    id: ResourceId,
    vector: Vector,
    /// What each task adds; `None`: nothing, and the resource does not come with it.
    added: Option<i64>,
    /// By chunk of the View.
    of: Vec<Option<&'v Column>>,
}

/// A node, and how many tasks it has more.
#[derive(Clone, Copy, Debug)]
struct Place {
    chunk: u32,
    offset: u8,
    more: u32,
}

/// Nodes as they would stand, side by side.
#[derive(Debug)]
pub(crate) struct Imagined<'v> {
    chunks: &'v Chunks,
    joining: &'v Joining,
    sources: Vec<Source<'v>>,
    /// Some node's integers are not told by its floats.
    exact: bool,
    chunk: Chunk,
    places: Vec<Place>,
}

impl<'v> Imagined<'v> {
    /// None yet. The tasks are such as a cycle under `compatibility: corrected` counts.
    pub(crate) fn new(view: &'v View, joining: &'v Joining) -> Self {
        let chunks = view.chunks();
        let mut ids = joining.resources();
        ids.extend(chunks.iter().flat_map(|chunk| chunk.resources()));
        ids.sort_unstable();
        ids.dedup();
        let mut chunk = Chunk::of_places();
        let mut sources = Vec::new();
        for (at, id) in ids.into_iter().enumerate() {
            let mut columns = ResourceColumns::new(id);
            for vector in [Vector::Allocatable, Vector::Used, Vector::Releasing, Vector::Pipelined] {
                let of: Vec<Option<&Column>> = chunks.iter().map(|chunk| chunk.stored(id, vector)).collect();
                let added = joining.added(id, vector);
                let slot = columns.vectors.get_mut(vector as usize);
                if let Some(slot) = slot.filter(|_| added.is_some() || of.iter().any(Option::is_some)) {
                    *slot = Some(Arc::new(Column::EMPTY));
                    sources.push(Source {
                        at,
                        id,
                        vector,
                        added,
                        of,
                    });
                }
            }
            chunk.columns.push(columns);
        }
        let mut columns = chunks.iter().flat_map(|chunk| &chunk.columns);
        Self {
            chunks,
            joining,
            sources,
            exact: columns.any(|columns| columns.wholes.iter().any(Option::is_some)),
            chunk,
            places: Vec::with_capacity(CHUNK),
        }
    }

    /// Begins anew.
    pub(crate) fn clear(&mut self) {
        self.places.clear();
    }

    /// Takes in a node with so many tasks more; without room for it nothing happens.
    pub(crate) fn add(&mut self, slot: Slot, more: u32) {
        let at = self.places.len();
        if let Some(own) = self.chunk.slots.as_mut().and_then(|slots| slots.get_mut(at)) {
            *own = slot;
            self.places.push(Place {
                chunk: slot >> 8,
                offset: slot.to_le_bytes()[0],
                more,
            });
        }
    }

    /// The chunk of all that were taken in, in that order.
    pub(crate) fn chunk(&mut self) -> (&Chunk, Mask) {
        let among = Mask::first(self.places.len());
        let mut dense = true;
        for source in &self.sources {
            let columns = self.chunk.columns.get_mut(source.at);
            let Some(columns) = columns else { continue };
            let slot = columns.vectors.get_mut(source.vector as usize);
            let Some(column) = slot.and_then(Option::as_mut).and_then(Arc::get_mut) else {
                continue;
            };
            dense &= source.fill(&self.places, self.chunks, column);
            if source.vector == Vector::Allocatable {
                let mut offered = [false; CHUNK];
                for (offered, value) in offered.iter_mut().zip(&column.values) {
                    *offered = *value > 0.0;
                }
                columns.offered = Mask::from_bools(&offered).and(&column.present);
                // Nobody asks often enough to find it out.
                columns.least_offered = 0.0;
            }
        }
        if self.exact || !self.joining.alike || !dense {
            self.count_whole();
        } else {
            // What an earlier chunk had of them is not of these nodes.
            for columns in &mut self.chunk.columns {
                columns.wholes.fill(None);
            }
        }
        self.chunk.live = among;
        self.chunk.placeable = Mask::NONE;
        for (at, place) in self.places.iter().enumerate() {
            let from = self.chunks.get(place.chunk as usize);
            let placeable = from.is_some_and(|from| from.placeable.get(usize::from(place.offset)));
            self.chunk.placeable.set(at, placeable);
        }
        (&self.chunk, among)
    }

    /// What floats do not tell of Kubernetes' integers.
    fn count_whole(&mut self) {
        for columns in &mut self.chunk.columns {
            let id = columns.id;
            let used = columns.vectors.get(Vector::Used as usize).and_then(Option::as_deref);
            let [mut allocatable, mut requested] = [Exact::EMPTY; 2];
            for (at, place) in self.places.iter().enumerate() {
                let Some(from) = self.chunks.get(place.chunk as usize) else {
                    continue;
                };
                let offset = usize::from(place.offset);
                let held = from.exact(id, Whole::Allocatable);
                allocatable.set(at, held.and_then(|exact| exact.get(offset)));
                let before = from.whole(id, Whole::Requested, offset);
                let after = before + i128::from(self.joining.whole(id)) * i128::from(place.more);
                let shown = used.and_then(|used| used.values.get(at)).copied();
                requested.set(at, beside(id, shown, after));
            }
            for (whole, exact) in [(Whole::Allocatable, allocatable), (Whole::Requested, requested)] {
                if let Some(slot) = columns.wholes.get_mut(whole as usize) {
                    *slot = (!exact.is_empty()).then(|| Arc::new(exact));
                }
            }
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "integers within 2^53 are no longer than that"
)]
fn integer(dense: f64) -> i128 {
    i128::from(dense as i64)
}

impl Source<'_> {
    /// Fills the column; false: somewhere floats skip integers.
    fn fill(&self, places: &[Place], chunks: &Chunks, column: &mut Column) -> bool {
        let mut present = [false; CHUNK];
        let mut dense = true;
        let each = column.values.iter_mut().zip(&mut present).zip(places);
        for ((value, present), place) in each {
            let offset = usize::from(place.offset);
            let from = self.of.get(place.chunk as usize).copied().flatten();
            let before = from.and_then(|from| from.values.get(offset)).copied().unwrap_or(0.0);
            *value = before;
            *present = from.is_some_and(|from| from.present.get(offset));
            if let Some(added) = self.added {
                let after = sum(before, added, place.more);
                dense &= after.is_some();
                *value = after.unwrap_or_else(|| self.exact(*place, chunks, before, added));
                *present |= place.more > 0;
            }
        }
        column.present = Mask::from_bools(&present);
        dense
    }

    /// The same from the node's integers. Tasks that joined columns alone stand in no entry, but only where floats tell all.
    fn exact(&self, place: Place, chunks: &Chunks, shown: f64, added: i64) -> f64 {
        let entry = chunks.get(place.chunk as usize);
        let entry = entry.and_then(|chunk| chunk.entry(usize::from(place.offset)));
        let kept = || entry.and_then(|entry| entry.exact(self.id, self.vector)).unwrap_or(0);
        let before = if shown.abs() < DENSE { integer(shown) } else { kept() };
        (before + i128::from(added) * i128::from(place.more)) as f64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::engine::model::{
        Amounts, NodeEntry, NodeRecord, ResourceTable, Table, TaskFields, TaskRecord, TaskStatus,
    };

    const NODES: Slot = 600;

    /// Amounts around the places where floats, or Volcano's units, stop telling what Kubernetes counts.
    fn amounts() -> impl Strategy<Value = Amounts> {
        let amount = prop_oneof![
            4 => 0..5_000_i64,
            1 => Just(16_000_000),
            1 => Just(1 << 53),
            1 => Just((1 << 53) - 3),
            1 => Just(i64::MAX / 5),
        ];
        prop::collection::vec(prop::option::of(amount), 5).prop_map(|amounts| {
            let ids = (0..).map(ResourceId::from_index);
            let mut amounts: Amounts = ids.zip(amounts).filter_map(|(id, own)| Some((id, own?))).collect();
            if amounts.get(ResourceId::from_index(4)) == Some(i64::MAX / 5) {
                amounts.set_whole(ResourceId::from_index(4), i64::MAX / 7);
            }
            amounts
        })
    }

    fn task() -> impl Strategy<Value = TaskRecord> {
        (amounts(), prop::option::of(amounts()), any::<bool>()).prop_map(|(requests, nonzero, late)| {
            TaskRecord::from(TaskFields {
                requests,
                nonzero_requests: nonzero.map(Box::new),
                status: if late {
                    TaskStatus::Pipelined
                } else {
                    TaskStatus::Allocated
                },
                ..TaskFields::default()
            })
        })
    }

    proptest! {
        #[test]
        fn equals_nodes_with_that_many_tasks(
            nodes in prop::collection::vec((0..NODES, amounts(), prop::option::of(amounts())), 1..20),
            there in prop::collection::vec((any::<prop::sample::Index>(), task()), 0..8),
            joins in task(),
            asked in prop::collection::vec((any::<prop::sample::Index>(), 0_u32..5), 0..80),
        ) {
            let (mut index, mut resources) = (Table::default(), ResourceTable::default());
            for slot in 0..NODES {
                index.insert(format!("n{slot}").into(), slot);
            }
            for name in ["a.b/c", "d.e/f"] {
                resources.intern(name, 9).unwrap();
            }
            let mut view = View::new(Arc::new(index), 1);
            view.set_resources(Arc::new(resources));
            let source = Arc::from("s");
            for (slot, allocatable, used) in &nodes {
                let record = NodeRecord {
                    name: format!("n{slot}").into(),
                    allocatable: allocatable.clone(),
                    unattributed_used: used.clone(),
                    unschedulable: slot % 3 == 0,
                    ..NodeRecord::default()
                };
                view.put_node(Arc::new(record), &source);
            }
            for (number, (on, task)) in there.iter().enumerate() {
                let name = format!("t{number}").into();
                let node = format!("n{}", on.get(&nodes).0).into();
                view.put_task(TaskRecord { name, node, ..task.clone() }, &source);
            }
            let joining = Joining::of(&joins);
            let mut imagined = Imagined::new(&view, &joining);
            // What stood there before must leave nothing behind.
            for (slot, _, _) in &nodes {
                imagined.add(*slot, 1 << 30);
            }
            imagined.chunk();
            imagined.clear();
            let mut plain = Chunk::default();
            for (at, (on, more)) in asked.iter().enumerate() {
                let slot = on.get(&nodes).0;
                imagined.add(slot, *more);
                let mut entry = (**view.node(slot).unwrap()).clone();
                (0..*more).for_each(|_| entry.usage.add(&joins));
                plain.set_entry(at, Some(Arc::new(entry)));
            }
            let (chunk, among) = imagined.chunk();
            prop_assert_eq!((among.count() as usize, chunk.live(), chunk.placeable()), (asked.len(), plain.live(), plain.placeable()));
            for id in (0..5).map(ResourceId::from_index) {
                for at in 0..asked.len() {
                    for vector in [Vector::Allocatable, Vector::Used, Vector::Releasing, Vector::Pipelined] {
                        let [own, plain] = [chunk, &plain].map(|chunk| chunk.value(id, vector, at).map(f64::to_bits));
                        prop_assert_eq!(own, plain);
                    }
                    prop_assert_eq!(chunk.offered(id).get(at), plain.offered(id).get(at));
                    for whole in [Whole::Allocatable, Whole::Requested] {
                        let narrow = |wide: i128| i64::try_from(wide).unwrap_or(i64::MAX);
                        prop_assert_eq!(chunk.wholes(id, whole, narrow)[at], plain.wholes(id, whole, narrow)[at]);
                    }
                }
            }
        }
    }

    #[test]
    fn integers_of_an_earlier_chunk_are_gone() {
        let (mut index, mut resources) = (Table::default(), ResourceTable::default());
        index.insert("n".into(), 0);
        let storage = resources.intern("a.b/c", 9).unwrap();
        let mut view = View::new(Arc::new(index), 1);
        view.set_resources(Arc::new(resources));
        let record = NodeRecord {
            name: "n".into(),
            allocatable: Amounts::from_iter([(storage, 64_000_000)]),
            ..NodeRecord::default()
        };
        view.put_node(Arc::new(record), &Arc::from("s"));
        let joining = Joining::of(&TaskRecord::from(TaskFields {
            requests: Amounts::from_iter([(storage, 16_000_000)]),
            nonzero_requests: Some(Box::default()),
            status: TaskStatus::Allocated,
            ..TaskFields::default()
        }));
        let mut imagined = Imagined::new(&view, &joining);
        for (more, whole) in [(1 << 30, 16_000 << 30), (2, 32_000)] {
            imagined.clear();
            imagined.add(0, more);
            let (chunk, _) = imagined.chunk();
            assert_eq!(chunk.whole(storage, Whole::Requested, 0), whole);
        }
    }

    proptest! {
        #[test]
        fn columns_that_tasks_join_equal_those_of_the_node(
            (allocatable, used, nonzero) in (amounts(), prop::option::of(amounts()), prop::option::of(amounts())),
            steps in prop::collection::vec((task(), 1_u32..4), 0..5),
        ) {
            let record = NodeRecord {
                allocatable,
                unattributed_used: used,
                unattributed_nonzero_used: nonzero,
                ..NodeRecord::default()
            };
            let mut entry = NodeEntry {
                record: Arc::new(record),
                source: Arc::from("s"),
                usage: super::super::Usage::default(),
                invalid: None,
                upstream: None,
            };
            let mut joined = Chunk::default();
            joined.set_entry(7, Some(Arc::new(entry.clone())));
            for (task, times) in steps {
                let (joining, mut plain) = (Joining::of(&task), Chunk::default());
                (0..times).for_each(|_| entry.usage.add(&task));
                plain.set_entry(7, Some(Arc::new(entry.clone())));
                if !joined.join(7, &joining, times) {
                    joined.set_entry(7, Some(Arc::new(entry.clone())));
                }
                let columns = |chunk: &Chunk| format!("{:?}", chunk.columns);
                prop_assert_eq!(columns(&joined), columns(&plain));
            }
        }
    }
}
