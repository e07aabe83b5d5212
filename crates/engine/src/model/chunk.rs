//! Chunks: 256 consecutive nodes in columns, one per resource and vector. Clones share a column until one of them
//! changes it.

use std::sync::{Arc, OnceLock};

use super::amount_delta::AmountDelta;
use super::amounts::{ResourceAmounts, ResourceId};
use super::chunk_attributes::ChunkAttributes;
use super::chunk_images::ChunkImages;
use super::chunk_ports::KnownPorts;
use super::chunks::NodeEntries;
use super::cluster_state::NodeSlot;
use super::column::{ChunkColumn, ChunkResource, NodeVector, ReciprocalColumn, ResourceColumns};
use super::integer_column::{ExactIntegers, IntegerColumn, WholeVector, integer_override, read_integers};
use super::mask::NodeMask;
use super::node::NodeEntry;
use super::pod_sums::AddedPodSums;
use crate::kernel::kernel;

/// Number of nodes in a chunk.
pub const CHUNK_SIZE: usize = 256;

/// Columns and entries of 256 consecutive slots of the node table.
#[derive(Clone, Debug)]
pub struct NodeChunk {
    number: u32,
    pub(super) columns: Vec<ResourceColumns>,
    entries: NodeEntries,
    pub(super) live: NodeMask,
    pub(super) placeable: NodeMask,
    /// Nodes with fields that no record carries, or that a policy may not evaluate.
    unevaluated: NodeMask,
    /// Nodes that have an idle vector of their own.
    upstream: NodeMask,
    /// Ready nodes with valid records, cordoned or not.
    pub(super) usable: NodeMask,
    /// Nodes with tasks that take ports.
    pub(super) with_ports: NodeMask,
    /// The ports, from the first question about them.
    pub(super) ports: KnownPorts,
    /// Nodes whose sums over pods the columns do not show.
    pub(super) with_pod_sums: NodeMask,
    /// Tasks that hypothetical nodes have more, if columns do not show all of them.
    pub(super) added_pod_sums: Option<Box<AddedPodSums>>,
    /// Labels and taints in columns, from the first question about them. Copies of a chunk share them.
    attributes: Arc<OnceLock<ChunkAttributes>>,
    /// Images, from the first question about them; likewise.
    images: Arc<OnceLock<ChunkImages>>,
    /// Slots of the nodes in a detached chunk, which belongs to no cluster state.
    pub(super) slots: Option<Box<[NodeSlot; CHUNK_SIZE]>>,
}

/// Equality ignores the position of the chunk.
impl PartialEq for NodeChunk {
    fn eq(&self, other: &Self) -> bool {
        let all = |chunk: &Self| (chunk.live, chunk.placeable, chunk.usable, chunk.upstream);
        all(self) == all(other) && self.columns == other.columns && self.entries == other.entries
    }
}

impl Default for NodeChunk {
    fn default() -> Self {
        Self {
            number: Self::DETACHED,
            columns: Vec::new(),
            entries: NodeEntries::default(),
            live: NodeMask::NONE,
            placeable: NodeMask::NONE,
            usable: NodeMask::NONE,
            with_ports: NodeMask::NONE,
            ports: KnownPorts::default(),
            with_pod_sums: NodeMask::NONE,
            added_pod_sums: None,
            attributes: Arc::default(),
            images: Arc::default(),
            unevaluated: NodeMask::NONE,
            upstream: NodeMask::NONE,
            slots: None,
        }
    }
}

impl NodeChunk {
    /// Empty chunk with its position among the chunks of a cluster state.
    pub fn at(number: u32) -> Self {
        Self {
            number,
            ..Self::default()
        }
    }

    /// Empty detached chunk, which records the slot of each of its nodes.
    pub(crate) fn detached() -> Self {
        Self {
            slots: Some(Box::new([NodeSlot::MAX; CHUNK_SIZE])),
            ..Self::default()
        }
    }

    /// Records the slot of a node of a detached chunk.
    pub(crate) fn set_slot(&mut self, offset: usize, slot: NodeSlot) {
        if let Some(own) = self.slots.as_mut().and_then(|slots| slots.get_mut(offset)) {
            *own = slot;
        }
    }

    /// Number of a detached chunk: its offsets give no slots.
    pub const DETACHED: u32 = u32::MAX;

    /// Position of the chunk: its first slot is 256 times this number; or [`Self::DETACHED`].
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Slot of the node at `offset`; `None` in a detached chunk that does not record it.
    pub fn slot(&self, offset: usize) -> Option<NodeSlot> {
        match &self.slots {
            Some(slots) => slots.get(offset).copied(),
            None if self.number == Self::DETACHED => None,
            None => NodeSlot::try_from(self.number as usize * CHUNK_SIZE + offset).ok(),
        }
    }

    /// Bytes that this chunk holds.
    pub fn bytes(&self) -> usize {
        self.unshared_bytes(&Self::default())
    }

    /// Bytes that this chunk holds and does not share with the older one.
    pub(super) fn unshared_bytes(&self, older: &Self) -> usize {
        let shared = |column: &Arc<ChunkColumn>| {
            let olds = older.columns.iter().flat_map(|own| own.vectors.iter().flatten());
            olds.into_iter().any(|old| Arc::ptr_eq(old, column))
        };
        let columns = self.columns.iter().flat_map(|own| own.vectors.iter().flatten());
        let own = columns.filter(|column| !shared(column)).count();
        let held = |own: &Arc<ReciprocalColumn>| {
            let olds = older.columns.iter().filter_map(|own| own.reciprocals.as_ref());
            olds.into_iter().any(|old| Arc::ptr_eq(old, own))
        };
        let reciprocals = self.columns.iter().filter_map(|own| own.reciprocals.as_ref());
        let reciprocals = reciprocals.filter(|own| !held(own)).count();
        size_of::<Self>()
            + size_of_val(&*self.columns)
            + own * size_of::<ChunkColumn>()
            + reciprocals * size_of::<ReciprocalColumn>()
            + self.entries.unshared_bytes(&older.entries)
            + self.unshared_attributes(older)
            + self.unshared_port_bytes(older)
    }

    fn unshared_attributes(&self, older: &Self) -> usize {
        let is_shared = Arc::ptr_eq(&self.attributes, &older.attributes);
        let own = self.attributes.get().filter(|_| !is_shared);
        let images_shared = Arc::ptr_eq(&self.images, &older.images);
        let images = self.images.get().filter(|_| !images_shared);
        own.map_or(0, ChunkAttributes::bytes) + images.map_or(0, ChunkImages::bytes)
    }

    /// Images of the nodes. A detached chunk without entries has none.
    pub fn images(&self) -> &ChunkImages {
        self.images.get_or_init(|| ChunkImages::of(self))
    }

    /// Labels and taints in columns. A detached chunk without entries has none.
    pub fn attributes(&self) -> &ChunkAttributes {
        self.attributes.get_or_init(|| ChunkAttributes::of(self))
    }

    /// True if the chunk belongs to no cluster state: it holds nodes as they would be after more tasks.
    pub fn is_detached(&self) -> bool {
        self.number == Self::DETACHED
    }

    /// Live slots whose node is ready and has a valid record, cordoned or not.
    pub fn usable(&self) -> &NodeMask {
        &self.usable
    }

    /// Slots that hold a node.
    pub fn live(&self) -> &NodeMask {
        &self.live
    }

    /// Live slots whose node may take a new task: ready, not cordoned, and with a valid record.
    pub fn placeable(&self) -> &NodeMask {
        &self.placeable
    }

    /// Nodes whose records name unevaluated fields, or have taints that a policy may not evaluate.
    pub fn unevaluated(&self) -> &NodeMask {
        &self.unevaluated
    }

    /// The node at `offset`.
    pub fn entry(&self, offset: usize) -> Option<&Arc<NodeEntry>> {
        self.entries.get(offset)?.as_ref()
    }

    /// Columns of a resource, for a caller that reads several of them.
    pub(crate) fn resource(&self, id: ResourceId) -> ChunkResource<'_> {
        let at = self.columns.binary_search_by_key(&id, |columns| columns.id);
        ChunkResource(at.ok().and_then(|at| self.columns.get(at)))
    }

    /// Column of a vector of a resource; zeros without presence if no node has it.
    pub fn column(&self, id: ResourceId, vector: NodeVector) -> &ChunkColumn {
        self.resource(id).column(vector)
    }

    /// Nodes that have more than nothing of a resource allocatable.
    pub fn offered(&self, id: ResourceId) -> NodeMask {
        self.resource(id).offered()
    }

    /// Shares the columns of allocatable amounts with the first of these chunks whose columns are equal. Nodes come in
    /// pools of one kind, and a shared column stays in the cache.
    pub(super) fn share_columns(&mut self, others: &[Arc<Self>]) {
        for own in &mut self.columns {
            let id = own.id;
            own.share_columns(others.iter().filter_map(|other| other.resource(id).0));
        }
    }

    /// Column of a vector in Kubernetes' integers. `narrow` cuts an amount that does not fit in 64 bits.
    pub fn integer_column(&self, id: ResourceId, whole: WholeVector, narrow: fn(i128) -> i64) -> IntegerColumn {
        let floats = match whole {
            WholeVector::Allocatable => self.column(id, NodeVector::Allocatable),
            WholeVector::Requested => self.column(id, NodeVector::Used),
        };
        read_integers(id, floats, self.exact_integers(id, whole), narrow)
    }

    /// Kubernetes' integers as floats, if the column of floats shows all of them exactly; else `None`.
    pub(crate) fn integers_as_floats(&self, id: ResourceId, whole: WholeVector) -> Option<&[f64; CHUNK_SIZE]> {
        let vector = match whole {
            WholeVector::Allocatable => NodeVector::Allocatable,
            WholeVector::Requested => NodeVector::Used,
        };
        self.exact_integers(id, whole)
            .is_none()
            .then(|| &self.column(id, vector).values)
    }

    /// Value of a vector at one node.
    pub fn value(&self, id: ResourceId, vector: NodeVector, offset: usize) -> Option<f64> {
        self.column(id, vector).get(offset)
    }

    /// Nodes with vectors of their own, as in sessions under `compatibility: upstream`.
    pub fn own_vectors(&self) -> &NodeMask {
        &self.upstream
    }

    /// True if some node has an idle vector of its own, as in sessions under `compatibility: upstream`.
    pub fn has_own_idle(&self) -> bool {
        !self.upstream.is_empty()
    }

    /// Column of allocatable − used, present where either is.
    pub fn idle(&self, id: ResourceId) -> ChunkColumn {
        let (allocatable, used) = (
            self.column(id, NodeVector::Allocatable),
            self.column(id, NodeVector::Used),
        );
        let mut idle = ChunkColumn::EMPTY;
        idle.present = allocatable.present.or(&used.present);
        subtract(&allocatable.values, &used.values, &mut idle.values);
        let own = self.column(id, NodeVector::Idle);
        for offset in self.upstream.iter() {
            idle.present.set(offset, own.present.get(offset));
            if let (Some(value), Some(own)) = (idle.values.get_mut(offset), own.values.get(offset)) {
                *value = *own;
            }
        }
        idle
    }

    /// Column of idle + releasing − pipelined, present where any of them is. Under `compatibility: upstream` a node whose
    /// idle and releasing amounts have no scalar keeps none: the reference subtracts scalars only from scalars.
    pub fn future_idle(&self, id: ResourceId) -> ChunkColumn {
        let mut future = self.idle(id);
        let (releasing, pipelined) = (
            self.column(id, NodeVector::Releasing),
            self.column(id, NodeVector::Pipelined),
        );
        for (value, (releasing, pipelined)) in future
            .values
            .iter_mut()
            .zip(releasing.values.iter().zip(&pipelined.values))
        {
            *value = *value + releasing - pipelined;
        }
        future.present = future.present.or(&releasing.present).or(&pipelined.present);
        let scalarless = |offset: &usize| self.entry(*offset).is_some_and(|entry| entry.lacks_future(id));
        for offset in self.upstream.iter().filter(scalarless) {
            future.present.set(offset, false);
            if let Some(value) = future.values.get_mut(offset) {
                *value = 0.0;
            }
        }
        future
    }

    /// Resources that occur in any vector, of floats or integers, by id.
    pub fn resources(&self) -> impl Iterator<Item = ResourceId> + '_ {
        self.columns.iter().map(|columns| columns.id)
    }

    pub(super) fn stored(&self, id: ResourceId, vector: NodeVector) -> Option<&ChunkColumn> {
        self.resource(id).stored(vector)
    }

    #[cfg(test)]
    pub(super) fn has_exact_integers(&self) -> bool {
        self.columns
            .iter()
            .any(|columns| columns.integers.iter().any(Option::is_some))
    }

    pub(super) fn exact_integers(&self, id: ResourceId, whole: WholeVector) -> Option<&ExactIntegers> {
        self.resource(id).0?.integers.get(whole as usize)?.as_deref()
    }

    /// Puts, changes or removes the entry of a node, and updates the columns.
    pub(crate) fn set_entry(&mut self, offset: usize, entry: Option<Arc<NodeEntry>>) {
        self.live.set(offset, entry.is_some());
        self.placeable
            .set(offset, entry.as_ref().is_some_and(|entry| entry.is_placeable()));
        self.usable
            .set(offset, entry.as_ref().is_some_and(|entry| entry.is_usable()));
        self.set_ports(offset, entry.as_deref());
        let differs = |entry: &Arc<NodeEntry>| !entry.pod_sum_delta().is_empty();
        self.with_pod_sums.set(offset, entry.as_ref().is_some_and(differs));
        self.keep_attributes(offset, entry.as_deref());
        self.upstream
            .set(offset, entry.as_ref().is_some_and(|entry| entry.upstream.is_some()));
        let named =
            |entry: &Arc<NodeEntry>| !entry.record.unevaluated_fields.is_empty() || entry.record.has_rejecting_taint();
        self.unevaluated.set(offset, entry.as_ref().is_some_and(named));
        let mut ids: Vec<ResourceId> = self.columns.iter().map(|columns| columns.id).collect();
        if let Some(entry) = &entry {
            ids.extend(entry.resources());
            ids.sort_unstable();
            ids.dedup();
        }
        let delta = entry.as_ref().map(|entry| entry.kubernetes_delta()).unwrap_or_default();
        for id in ids {
            self.set_resource(offset, entry.as_deref(), &delta, id);
        }
        if let Some(place) = self.entries.get_mut(offset) {
            *place = entry;
        }
    }

    /// Drops the columns of labels and taints if they do not show this node.
    fn keep_attributes(&mut self, offset: usize, entry: Option<&NodeEntry>) {
        // Without a node the columns may show anything.
        let shown = |own: &ChunkAttributes| entry.is_none_or(|entry| own.shows(offset, entry));
        if !self.attributes.get().is_none_or(shown) {
            self.attributes = Arc::default();
        }
        let shown = |own: &ChunkImages| entry.map_or_else(|| !own.has(offset), |entry| own.shows(offset, entry));
        if !self.images.get().is_none_or(shown) {
            self.images = Arc::default();
        }
    }

    /// Puts back the entry of a node whose usage changed by tasks with these requests, and by nothing else.
    pub(crate) fn change_usage(&mut self, offset: usize, entry: Arc<NodeEntry>, requests: &ResourceAmounts) {
        let delta = entry.kubernetes_delta();
        // Kubernetes counts some cpu and memory for pods that request none.
        let plain = [ResourceId::CPU, ResourceId::MEMORY].into_iter();
        let others = requests.iter().map(|(id, _)| id).filter(|id| *id > ResourceId::MEMORY);
        for id in plain.chain(others) {
            self.set_resource(offset, Some(&*entry), &delta, id);
        }
        self.restore_entry(offset, entry);
    }

    /// Puts back the entry of a node whose columns already show it.
    pub(super) fn restore_entry(&mut self, offset: usize, entry: Arc<NodeEntry>) {
        self.set_ports(offset, Some(&entry));
        self.with_pod_sums.set(offset, !entry.pod_sum_delta().is_empty());
        if let Some(place) = self.entries.get_mut(offset) {
            *place = Some(entry);
        }
    }

    /// Writes one resource of a node; `delta` is the node's delta.
    fn set_resource(&mut self, offset: usize, entry: Option<&NodeEntry>, delta: &AmountDelta, id: ResourceId) {
        let value = |vector| entry.and_then(|entry| entry.value(id, vector));
        let integers = entry.map(|entry| (entry.integer_allocatable(id), entry.integer_used(id, delta)));
        let integer_to_store =
            |vector, whole: Option<i128>| whole.and_then(|whole| integer_override(id, value(vector), whole));
        let allocatable = integer_to_store(NodeVector::Allocatable, integers.map(|(allocatable, _)| allocatable));
        self.set_integer(id, WholeVector::Allocatable, offset, allocatable);
        let used = integer_to_store(NodeVector::Used, integers.map(|(_, used)| used));
        self.set_integer(id, WholeVector::Requested, offset, used);
        for vector in [
            NodeVector::Allocatable,
            NodeVector::Used,
            NodeVector::Releasing,
            NodeVector::Pipelined,
            NodeVector::Idle,
        ] {
            self.set_value(id, vector, offset, value(vector));
        }
    }

    /// Removes a node's entry for a moment, while the columns still show it. The caller then calls [`Self::set_entry`],
    /// [`Self::change_usage`] or [`Self::restore_entry`].
    pub(crate) fn take_entry(&mut self, offset: usize) -> Option<Arc<NodeEntry>> {
        self.entries.get_mut(offset)?.take()
    }

    pub(super) fn set_value(&mut self, id: ResourceId, vector: NodeVector, offset: usize, value: Option<f64>) {
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
        let column = Arc::make_mut(slot.get_or_insert_with(|| Arc::new(ChunkColumn::EMPTY)));
        column.present.set(offset, value.is_some());
        if let Some(place) = column.values.get_mut(offset) {
            *place = value.unwrap_or(0.0);
        }
        let is_empty = column.present.is_empty();
        if vector == NodeVector::Allocatable {
            columns.record_allocatable(offset, before.unwrap_or(0.0), value.unwrap_or(0.0));
        }
        // An unused column is dropped, so that a chunk equals one that is built from the same nodes.
        if is_empty {
            if let Some(slot) = columns.vectors.get_mut(vector as usize) {
                *slot = None;
            }
            if vector == NodeVector::Allocatable {
                columns.reciprocals = None;
            }
            self.columns.retain(|columns| columns.id != id || !columns.is_empty());
        }
    }

    pub(super) fn set_integer(&mut self, id: ResourceId, whole: WholeVector, offset: usize, value: Option<i128>) {
        let held = self.exact_integers(id, whole);
        if held.map_or(value.is_none(), |exact| exact.get(offset) == value) {
            return;
        }
        let Some(slot) = self
            .columns_of(id)
            .and_then(|columns| columns.integers.get_mut(whole as usize))
        else {
            return;
        };
        let exact = Arc::make_mut(slot.get_or_insert_with(|| Arc::new(ExactIntegers::EMPTY)));
        exact.set(offset, value);
        if exact.is_empty() {
            *slot = None;
            self.columns.retain(|columns| columns.id != id || !columns.is_empty());
        }
    }

    /// Columns of a resource, created if the chunk does not have them yet.
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
    fn subtract / subtract_portable(from: &[f64; CHUNK_SIZE], less: &[f64; CHUNK_SIZE], rest: &mut [f64; CHUNK_SIZE]) {
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
            nodes in prop::collection::vec((0_u64..1 << 60, 0_u64..1 << 60, 0_u32..60), CHUNK_SIZE),
        ) {
            let column = |pick: fn(&(u64, u64, u32)) -> u64| std::array::from_fn(|offset| pick(&nodes[offset]) as f64);
            let (from, less) = (column(|node| node.0 >> node.2), column(|node| node.1 >> node.2));
            let [mut chosen, mut plain] = [[0.0; CHUNK_SIZE]; 2];
            subtract(&from, &less, &mut chosen);
            subtract_portable::<false>(&from, &less, &mut plain);
            for offset in 0..CHUNK_SIZE {
                let expected = (from[offset] - less[offset]).to_bits();
                prop_assert_eq!((chosen[offset].to_bits(), plain[offset].to_bits()), (expected, expected));
            }
        }
    }
}
