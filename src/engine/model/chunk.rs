//! Chunks: 256 nodes side by side in columns, one per resource and vector, shared until changed.

use std::sync::Arc;

use super::amounts::{Amounts, ResourceId};
use super::chunks::Entries;
use super::column::{Column, Reciprocals, Resource, ResourceColumns, Vector};
use super::mask::Mask;
use super::node::NodeEntry;
use super::surplus::Surplus;
use super::view::Slot;
use super::whole::{Exact, Whole, Wholes, beside, read};
use crate::engine::kernel::kernel;

/// Nodes in a chunk.
pub const CHUNK: usize = 256;

/// 256 consecutive slots of the node table.
#[derive(Clone, Debug)]
pub struct Chunk {
    number: u32,
    pub(super) columns: Vec<ResourceColumns>,
    entries: Entries,
    pub(super) live: Mask,
    pub(super) placeable: Mask,
    /// Nodes with an idle vector of their own.
    upstream: Mask,
    /// Of a chunk that stands in no View: whose places these are.
    pub(super) slots: Option<Box<[Slot; CHUNK]>>,
}

/// Where it stands does not matter.
impl PartialEq for Chunk {
    fn eq(&self, other: &Self) -> bool {
        let all = |chunk: &Self| (chunk.live, chunk.placeable, chunk.upstream);
        all(self) == all(other) && self.columns == other.columns && self.entries == other.entries
    }
}

impl Default for Chunk {
    fn default() -> Self {
        Self {
            number: Self::NOWHERE,
            columns: Vec::new(),
            entries: Entries::default(),
            live: Mask::NONE,
            placeable: Mask::NONE,
            upstream: Mask::NONE,
            slots: None,
        }
    }
}

impl Chunk {
    /// An empty chunk at its place among the chunks of a View.
    pub fn at(number: u32) -> Self {
        Self {
            number,
            ..Self::default()
        }
    }

    /// An empty chunk that stands in no View and says whose its places are.
    pub(super) fn of_places() -> Self {
        Self {
            slots: Some(Box::new([Slot::MAX; CHUNK])),
            ..Self::default()
        }
    }

    /// Number of a chunk that stands in no View: its places are no slots.
    pub const NOWHERE: u32 = u32::MAX;

    /// Its place: the first of its slots is 256 times that; or [`Self::NOWHERE`].
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The slot of the node at `offset`; of a chunk that stands in no View, only if it says so.
    pub fn slot(&self, offset: usize) -> Option<Slot> {
        match &self.slots {
            Some(slots) => slots.get(offset).copied(),
            None if self.number == Self::NOWHERE => None,
            None => Slot::try_from(self.number as usize * CHUNK + offset).ok(),
        }
    }

    /// Bytes that this chunk holds.
    pub fn bytes(&self) -> usize {
        self.bytes_beside(&Self::default())
    }

    /// Bytes that this chunk holds and the older one does not: what is shared costs nothing.
    pub(super) fn bytes_beside(&self, older: &Self) -> usize {
        let shared = |column: &Arc<Column>| {
            let olds = older.columns.iter().flat_map(|own| own.vectors.iter().flatten());
            olds.into_iter().any(|old| Arc::ptr_eq(old, column))
        };
        let columns = self.columns.iter().flat_map(|own| own.vectors.iter().flatten());
        let own = columns.filter(|column| !shared(column)).count();
        let held = |own: &Arc<Reciprocals>| {
            let olds = older.columns.iter().filter_map(|own| own.reciprocals.as_ref());
            olds.into_iter().any(|old| Arc::ptr_eq(old, own))
        };
        let reciprocals = self.columns.iter().filter_map(|own| own.reciprocals.as_ref());
        let reciprocals = reciprocals.filter(|own| !held(own)).count();
        size_of::<Self>()
            + size_of_val(&*self.columns)
            + own * size_of::<Column>()
            + reciprocals * size_of::<Reciprocals>()
            + self.entries.bytes_beside(&older.entries)
    }

    /// Slots that hold a node.
    pub fn live(&self) -> &Mask {
        &self.live
    }

    /// Of these, nodes on which something new may be placed: ready, not cordoned, valid.
    pub fn placeable(&self) -> &Mask {
        &self.placeable
    }

    /// The node at `offset`.
    pub fn entry(&self, offset: usize) -> Option<&Arc<NodeEntry>> {
        self.entries.get(offset)?.as_ref()
    }

    /// A resource's columns, for more than one look.
    pub(crate) fn resource(&self, id: ResourceId) -> Resource<'_> {
        let at = self.columns.binary_search_by_key(&id, |columns| columns.id);
        Resource(at.ok().and_then(|at| self.columns.get(at)))
    }

    /// A vector of a resource over the chunk; zeros, nowhere present, if no node has it.
    pub fn column(&self, id: ResourceId, vector: Vector) -> &Column {
        self.resource(id).column(vector)
    }

    /// Where more than nothing of a resource is allocatable.
    pub fn offered(&self, id: ResourceId) -> Mask {
        self.resource(id).offered()
    }

    /// Lets this chunk use the columns of allocatable amounts of another one, the first in which these are equal place
    /// by place: nodes come in pools of one kind, and what is shared stays near.
    pub(super) fn share(&mut self, others: &[Arc<Self>]) {
        for own in &mut self.columns {
            let id = own.id;
            own.share(others.iter().filter_map(|other| other.resource(id).0));
        }
    }

    /// A vector of a resource over the chunk as Kubernetes counts it. What does not fit in 64 bits is cut off by `narrow`.
    pub fn wholes(&self, id: ResourceId, whole: Whole, narrow: fn(i128) -> i64) -> Wholes {
        let floats = match whole {
            Whole::Allocatable => self.column(id, Vector::Allocatable),
            Whole::Requested => self.column(id, Vector::Used),
        };
        read(id, floats, self.exact(id, whole), narrow)
    }

    /// The same, if floats tell all of it: as they stand in the columns.
    pub(crate) fn whole_floats(&self, id: ResourceId, whole: Whole) -> Option<&[f64; CHUNK]> {
        let vector = match whole {
            Whole::Allocatable => Vector::Allocatable,
            Whole::Requested => Vector::Used,
        };
        self.exact(id, whole).is_none().then(|| &self.column(id, vector).values)
    }

    /// The value at one node.
    pub fn value(&self, id: ResourceId, vector: Vector, offset: usize) -> Option<f64> {
        self.column(id, vector).get(offset)
    }

    /// True if some node keeps an idle vector of its own, as in sessions under `compatibility: upstream`.
    pub fn keeps_idle(&self) -> bool {
        !self.upstream.is_empty()
    }

    /// allocatable − used over the chunk, with `present` where either is.
    pub fn idle(&self, id: ResourceId) -> Column {
        let (allocatable, used) = (self.column(id, Vector::Allocatable), self.column(id, Vector::Used));
        let mut idle = Column::EMPTY;
        idle.present = allocatable.present.or(&used.present);
        subtract(&allocatable.values, &used.values, &mut idle.values);
        let own = self.column(id, Vector::Idle);
        for offset in self.upstream.iter() {
            idle.present.set(offset, own.present.get(offset));
            if let (Some(value), Some(own)) = (idle.values.get_mut(offset), own.values.get(offset)) {
                *value = *own;
            }
        }
        idle
    }

    /// idle + releasing − pipelined over the chunk, with `present` where any of them is.
    pub fn future_idle(&self, id: ResourceId) -> Column {
        let mut future = self.idle(id);
        let (releasing, pipelined) = (self.column(id, Vector::Releasing), self.column(id, Vector::Pipelined));
        for (value, (releasing, pipelined)) in future
            .values
            .iter_mut()
            .zip(releasing.values.iter().zip(&pipelined.values))
        {
            *value = *value + releasing - pipelined;
        }
        future.present = future.present.or(&releasing.present).or(&pipelined.present);
        future
    }

    /// Resources that occur in any vector, of floats or integers, by id.
    pub fn resources(&self) -> impl Iterator<Item = ResourceId> + '_ {
        self.columns.iter().map(|columns| columns.id)
    }

    pub(super) fn stored(&self, id: ResourceId, vector: Vector) -> Option<&Column> {
        self.resource(id).stored(vector)
    }

    #[cfg(test)]
    pub(super) fn has_wholes(&self) -> bool {
        self.columns
            .iter()
            .any(|columns| columns.wholes.iter().any(Option::is_some))
    }

    pub(super) fn exact(&self, id: ResourceId, whole: Whole) -> Option<&Exact> {
        self.resource(id).0?.wholes.get(whole as usize)?.as_deref()
    }

    /// Puts a node in, changes it, or takes it out; columns follow.
    pub(crate) fn set_entry(&mut self, offset: usize, entry: Option<Arc<NodeEntry>>) {
        self.live.set(offset, entry.is_some());
        self.placeable
            .set(offset, entry.as_ref().is_some_and(|entry| entry.is_placeable()));
        self.upstream
            .set(offset, entry.as_ref().is_some_and(|entry| entry.upstream.is_some()));
        let mut ids: Vec<ResourceId> = self.columns.iter().map(|columns| columns.id).collect();
        if let Some(entry) = &entry {
            ids.extend(entry.resources());
            ids.sort_unstable();
            ids.dedup();
        }
        let surplus = entry.as_ref().map(|entry| entry.surplus()).unwrap_or_default();
        for id in ids {
            self.set_resource(offset, entry.as_deref(), &surplus, id);
        }
        if let Some(place) = self.entries.get_mut(offset) {
            *place = entry;
        }
    }

    /// Puts back a node of which nothing changed but what tasks with these requests take.
    pub(crate) fn change_usage(&mut self, offset: usize, entry: Arc<NodeEntry>, requests: &Amounts) {
        let surplus = entry.surplus();
        // Pods without requests of cpu and memory count some in Kubernetes.
        let plain = [ResourceId::CPU, ResourceId::MEMORY].into_iter();
        let others = requests.iter().map(|(id, _)| id).filter(|id| *id > ResourceId::MEMORY);
        for id in plain.chain(others) {
            self.set_resource(offset, Some(&*entry), &surplus, id);
        }
        self.put_back(offset, entry);
    }

    /// Puts back the entry of a node whose columns tell it already.
    pub(super) fn put_back(&mut self, offset: usize, entry: Arc<NodeEntry>) {
        if let Some(place) = self.entries.get_mut(offset) {
            *place = Some(entry);
        }
    }

    /// Writes one resource of a node; `surplus`: the node's.
    fn set_resource(&mut self, offset: usize, entry: Option<&NodeEntry>, surplus: &Surplus, id: ResourceId) {
        let value = |vector| entry.and_then(|entry| entry.value(id, vector));
        let wholes = entry.map(|entry| (entry.whole_allocatable(id), entry.whole_used(id, surplus)));
        let told = |vector, whole: Option<i128>| whole.and_then(|whole| beside(id, value(vector), whole));
        let allocatable = told(Vector::Allocatable, wholes.map(|(allocatable, _)| allocatable));
        self.set_whole(id, Whole::Allocatable, offset, allocatable);
        let used = told(Vector::Used, wholes.map(|(_, used)| used));
        self.set_whole(id, Whole::Requested, offset, used);
        for vector in [
            Vector::Allocatable,
            Vector::Used,
            Vector::Releasing,
            Vector::Pipelined,
            Vector::Idle,
        ] {
            self.set_value(id, vector, offset, value(vector));
        }
    }

    /// Takes a node's entry out for a moment; columns keep showing it. To be followed by [`Self::set_entry`],
    /// [`Self::change_usage`] or [`Self::put_back`].
    pub(crate) fn take_entry(&mut self, offset: usize) -> Option<Arc<NodeEntry>> {
        self.entries.get_mut(offset)?.take()
    }

    pub(super) fn set_value(&mut self, id: ResourceId, vector: Vector, offset: usize, value: Option<f64>) {
        let before = self.value(id, vector, offset);
        if before == value {
            return;
        }
        let Some(columns) = self.columns_of(id) else {
            return;
        };
        let Some(slot) = columns.vectors.get_mut(vector as usize) else {
            return;
        };
        let column = Arc::make_mut(slot.get_or_insert_with(|| Arc::new(Column::EMPTY)));
        column.present.set(offset, value.is_some());
        if let Some(place) = column.values.get_mut(offset) {
            *place = value.unwrap_or(0.0);
        }
        let is_empty = column.present.is_empty();
        if vector == Vector::Allocatable {
            columns.offer(offset, before.unwrap_or(0.0), value.unwrap_or(0.0));
        }
        // A column that nobody uses any more is dropped, so that a chunk equals one built anew.
        if is_empty {
            if let Some(slot) = columns.vectors.get_mut(vector as usize) {
                *slot = None;
            }
            if vector == Vector::Allocatable {
                columns.reciprocals = None;
            }
            self.columns.retain(|columns| columns.id != id || !columns.is_empty());
        }
    }

    pub(super) fn set_whole(&mut self, id: ResourceId, whole: Whole, offset: usize, value: Option<i128>) {
        let held = self.exact(id, whole);
        if held.map_or(value.is_none(), |exact| exact.get(offset) == value) {
            return;
        }
        let Some(slot) = self
            .columns_of(id)
            .and_then(|columns| columns.wholes.get_mut(whole as usize))
        else {
            return;
        };
        let exact = Arc::make_mut(slot.get_or_insert_with(|| Arc::new(Exact::EMPTY)));
        exact.set(offset, value);
        if exact.is_empty() {
            *slot = None;
            self.columns.retain(|columns| columns.id != id || !columns.is_empty());
        }
    }

    /// The columns of a resource, which are there from now on.
    fn columns_of(&mut self, id: ResourceId) -> Option<&mut ResourceColumns> {
        let at = match self.columns.binary_search_by_key(&id, |columns| columns.id) {
            Ok(found) => found,
            Err(place) => {
                self.columns.insert(place, ResourceColumns::new(id));
                place
            }
        };
        self.columns.get_mut(at)
    }
}

kernel! {
    fn subtract / subtract_plainly(from: &[f64; CHUNK], less: &[f64; CHUNK], rest: &mut [f64; CHUNK]) {
        for (rest, (from, less)) in rest.iter_mut().zip(from.iter().zip(less)) {
            *rest = from - less;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn every_processor_subtracts_the_same(
            nodes in prop::collection::vec((0_u64..1 << 60, 0_u64..1 << 60, 0_u32..60), CHUNK),
        ) {
            let column = |pick: fn(&(u64, u64, u32)) -> u64| std::array::from_fn(|offset| pick(&nodes[offset]) as f64);
            let (from, less) = (column(|node| node.0 >> node.2), column(|node| node.1 >> node.2));
            let [mut chosen, mut plain] = [[0.0; CHUNK]; 2];
            subtract(&from, &less, &mut chosen);
            subtract_plainly::<false>(&from, &less, &mut plain);
            for offset in 0..CHUNK {
                let expected = (from[offset] - less[offset]).to_bits();
                prop_assert_eq!((chosen[offset].to_bits(), plain[offset].to_bits()), (expected, expected));
            }
        }
    }
}
