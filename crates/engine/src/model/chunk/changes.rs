//! Changes of a chunk: the entry of a node and the columns that show it, always together.

use std::sync::Arc;

use super::NodeChunk;
use super::attributes::ChunkAttributes;
use super::images::ChunkImages;
use crate::model::amount_delta::AmountDelta;
use crate::model::amounts::{ResourceAmounts, ResourceId};
use crate::model::column::{ChunkColumn, NodeVector, ResourceColumns};
use crate::model::integer_column::{ExactIntegers, WholeVector, integer_override};
use crate::model::node::NodeEntry;

impl NodeChunk {
    /// Puts, changes or removes the entry of a node, and updates the columns.
    pub(crate) fn set_entry(&mut self, offset: usize, entry: Option<Arc<NodeEntry>>) {
        self.live.set(offset, entry.is_some());
        self.placeable
            .set(offset, entry.as_ref().is_some_and(|entry| entry.is_placeable()));
        self.usable
            .set(offset, entry.as_ref().is_some_and(|entry| entry.is_usable()));
        let unready = entry.as_ref().filter(|entry| entry.is_valid() && !entry.is_usable());
        let [usable, placeable] = &mut self.unready;
        usable.set(offset, unready.is_some());
        placeable.set(offset, unready.is_some_and(|entry| !entry.record.unschedulable));
        self.set_ports(offset, entry.as_deref());
        let differs = |entry: &Arc<NodeEntry>| !entry.pod_sum_delta().is_empty();
        self.with_pod_sums.set(offset, entry.as_ref().is_some_and(differs));
        self.keep_attributes(offset, entry.as_deref());
        self.own_idle
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
            self.set_allocatable(offset, entry.as_deref(), id);
            self.set_usage(offset, entry.as_deref(), &delta, id);
        }
        if let Some(place) = self.entries.get_mut(offset) {
            *place = entry;
        }
    }

    /// Drops the columns of labels and taints if they do not show this node.
    fn keep_attributes(&mut self, offset: usize, entry: Option<&NodeEntry>) {
        // Without a node the columns may show anything.
        let shown = |own: &ChunkAttributes| entry.is_none_or(|entry| own.shows(offset, entry));
        self.attributes.retain(shown);
        let shown = |own: &ChunkImages| entry.map_or_else(|| !own.has(offset), |entry| own.shows(offset, entry));
        self.images.retain(shown);
    }

    /// Puts back the entry of a node whose usage changed by tasks with these requests, and by nothing else.
    pub(crate) fn change_usage(&mut self, offset: usize, entry: Arc<NodeEntry>, requests: &ResourceAmounts) {
        let delta = entry.kubernetes_delta();
        // Kubernetes counts some cpu and memory for pods that request none.
        let plain = [ResourceId::CPU, ResourceId::MEMORY].into_iter();
        let others = requests.iter().map(|(id, _)| id).filter(|id| *id > ResourceId::MEMORY);
        for id in plain.chain(others) {
            self.set_usage(offset, Some(&*entry), &delta, id);
        }
        self.restore_entry(offset, entry);
    }

    /// Puts back the entry of a node whose columns already show it.
    pub(in crate::model) fn restore_entry(&mut self, offset: usize, entry: Arc<NodeEntry>) {
        self.set_ports(offset, Some(&entry));
        self.with_pod_sums.set(offset, !entry.pod_sum_delta().is_empty());
        if let Some(place) = self.entries.get_mut(offset) {
            *place = Some(entry);
        }
    }

    /// Writes the allocatable amount of one resource of a node.
    fn set_allocatable(&mut self, offset: usize, entry: Option<&NodeEntry>, id: ResourceId) {
        let shown = entry.and_then(|entry| entry.value(id, NodeVector::Allocatable));
        let exact = entry.and_then(|entry| integer_override(id, shown, entry.integer_allocatable(id)));
        self.set_integer(id, WholeVector::Allocatable, offset, exact);
        self.set_value(id, NodeVector::Allocatable, offset, shown);
    }

    /// Writes what tasks change of one resource of a node; `delta` is the node's delta.
    fn set_usage(&mut self, offset: usize, entry: Option<&NodeEntry>, delta: &AmountDelta, id: ResourceId) {
        let used = entry.and_then(|entry| entry.value(id, NodeVector::Used));
        let exact = entry.and_then(|entry| integer_override(id, used, entry.integer_used(id, delta)));
        self.set_integer(id, WholeVector::Requested, offset, exact);
        self.set_value(id, NodeVector::Used, offset, used);
        for vector in [NodeVector::Releasing, NodeVector::Pipelined, NodeVector::Idle] {
            let value = entry.and_then(|entry| entry.value(id, vector));
            self.set_value(id, vector, offset, value);
        }
    }

    /// Removes a node's entry for a moment, while the columns still show it. The caller then calls [`Self::set_entry`],
    /// [`Self::change_usage`] or [`Self::restore_entry`].
    pub(crate) fn take_entry(&mut self, offset: usize) -> Option<Arc<NodeEntry>> {
        self.entries.get_mut(offset)?.take()
    }

    pub(in crate::model) fn set_value(
        &mut self,
        id: ResourceId,
        vector: NodeVector,
        offset: usize,
        value: Option<f64>,
    ) {
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

    pub(in crate::model) fn set_integer(
        &mut self,
        id: ResourceId,
        whole: WholeVector,
        offset: usize,
        value: Option<i128>,
    ) {
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
