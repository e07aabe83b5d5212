//! Chunks: 256 consecutive nodes in columns, one per resource and vector. Clones share a column until one of them
//! changes it.

mod attributes;
mod changes;
#[cfg(test)]
mod copies_tests;
mod images;
mod list;
mod ports;

use std::sync::Arc;

use pumice_kernels::columns::{IntegerColumn, subtract};

pub use self::attributes::ChunkAttributes;
pub use self::images::ChunkImages;
pub use self::list::NodeChunks;
use self::list::NodeEntries;
use self::ports::ChunkPorts;
use super::amounts::ResourceId;
use super::column::{ChunkColumn, ChunkResource, NodeVector, ResourceColumns};
use super::integer_column::{ExactIntegers, WholeVector, read_integers};
use super::lazy_value::LazyValue;
use super::mask::{CHUNK_SIZE, NodeMask};
use super::node::NodeEntry;
use super::pod_sum_delta::AddedPodSums;
use super::stored::NodeSlot;
use crate::held_bytes::HeldMemory;

/// Columns and entries of 256 consecutive slots of the node table.
#[derive(Clone, Debug, Default)]
pub struct NodeChunk {
    /// Position among the chunks of a cluster state; `None`: detached.
    number: Option<u32>,
    pub(super) columns: Vec<ResourceColumns>,
    entries: NodeEntries,
    pub(super) live: NodeMask,
    pub(super) placeable: NodeMask,
    /// Nodes with fields that no record carries, or that a policy may not evaluate.
    unevaluated: NodeMask,
    /// Nodes that have an idle vector of their own.
    own_idle: NodeMask,
    /// Ready nodes with valid records, cordoned or not.
    pub(super) usable: NodeMask,
    /// Nodes that would be usable if they were ready, and those among them that are not cordoned.
    pub(super) unready: [NodeMask; 2],
    /// Nodes with tasks that take ports.
    pub(super) with_ports: NodeMask,
    /// The ports, from the first question about them.
    pub(super) ports: LazyValue<ChunkPorts>,
    /// Nodes whose sums over pods the columns do not show.
    pub(super) with_pod_sums: NodeMask,
    /// Tasks that hypothetical nodes have more, if columns do not show all of them.
    pub(super) added_pod_sums: Option<Box<AddedPodSums>>,
    /// Labels and taints in columns, from the first question about them. Copies of a chunk share them.
    attributes: LazyValue<ChunkAttributes>,
    /// Images, from the first question about them; likewise.
    images: LazyValue<ChunkImages>,
    /// Slots of the nodes in a detached chunk, which belongs to no cluster state.
    pub(super) slots: Option<Box<[NodeSlot; CHUNK_SIZE]>>,
}

/// Equality ignores the position of the chunk.
impl PartialEq for NodeChunk {
    fn eq(&self, other: &Self) -> bool {
        let all = |chunk: &Self| (chunk.live, chunk.placeable, chunk.usable, chunk.own_idle);
        all(self) == all(other) && self.columns == other.columns && self.entries == other.entries
    }
}

impl HeldMemory for NodeChunk {
    fn held_bytes(&self, older: Option<&Self>) -> usize {
        let columns = self.columns.iter().map(|own| {
            let mut olds = older.into_iter().flat_map(|older| &older.columns);
            own.held_bytes(olds.find(|old| old.id == own.id))
        });
        size_of_val(&*self.columns)
            + columns.sum::<usize>()
            + self.entries.held_bytes(older.map(|older| &older.entries))
            + self.attributes.held_bytes(older.map(|older| &older.attributes))
            + self.images.held_bytes(older.map(|older| &older.images))
            + self.ports.held_bytes(older.map(|older| &older.ports))
    }
}

impl NodeChunk {
    /// Empty chunk with its position among the chunks of a cluster state.
    pub fn at(number: u32) -> Self {
        Self {
            number: Some(number),
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

    /// Position of the chunk: its first slot is 256 times this number; `u32::MAX`: detached.
    pub fn number(&self) -> u32 {
        self.number.unwrap_or(u32::MAX)
    }

    /// Slot of the node at `offset`; `None` in a detached chunk that does not record it.
    pub fn slot(&self, offset: usize) -> Option<NodeSlot> {
        match &self.slots {
            Some(slots) => slots.get(offset).copied(),
            None => NodeSlot::try_from(self.number? as usize * CHUNK_SIZE + offset).ok(),
        }
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
        self.number.is_none()
    }

    /// Live slots whose node is ready and has a valid record, cordoned or not.
    pub fn usable(&self) -> &NodeMask {
        &self.usable
    }

    /// Live slots whose node has a valid record, ready or not. With `cordoned`, slots of cordoned nodes are included.
    pub fn valid(&self, cordoned: bool) -> NodeMask {
        let [usable, placeable] = &self.unready;
        if cordoned {
            self.usable.or(usable)
        } else {
            self.placeable.or(placeable)
        }
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

    /// Offsets at which the entries of another chunk may differ.
    pub(super) fn changed_offsets<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = usize> + 'a {
        self.entries.unshared_offsets(&other.entries)
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

    /// Shares the columns of allocatable amounts with the first of these chunks with equal columns. Clusters have pools
    /// of equal nodes, and a shared column stays in the cache.
    pub(super) fn share_columns(&mut self, others: &[Arc<Self>]) {
        for own in &mut self.columns {
            let id = own.id;
            own.share_columns(others.iter().filter_map(|other| other.resource(id).0));
        }
    }

    /// Column of a vector in Kubernetes' integers. `narrow` cuts an amount that does not fit in 64 bits.
    pub fn integer_column(&self, id: ResourceId, whole: WholeVector, narrow: fn(i128) -> i64) -> IntegerColumn {
        let floats = self.column(id, whole.shown());
        read_integers(id, floats, self.exact_integers(id, whole), narrow)
    }

    /// Kubernetes' integers as floats, if the column of floats shows all of them exactly; else `None`.
    pub(crate) fn integers_as_floats(&self, id: ResourceId, whole: WholeVector) -> Option<&[f64; CHUNK_SIZE]> {
        let exact = self.exact_integers(id, whole);
        exact.is_none().then(|| &self.column(id, whole.shown()).values)
    }

    /// Value of a vector at one node.
    pub fn value(&self, id: ResourceId, vector: NodeVector, offset: usize) -> Option<f64> {
        self.column(id, vector).get(offset)
    }

    /// Nodes with vectors of their own, as a session may give it.
    pub fn own_vectors(&self) -> &NodeMask {
        &self.own_idle
    }

    /// True if some node has an idle vector of its own, as a session may give it.
    pub fn has_own_idle(&self) -> bool {
        !self.own_idle.is_empty()
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
        for offset in self.own_idle.iter() {
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
        for offset in self.own_idle.iter().filter(scalarless) {
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
}
