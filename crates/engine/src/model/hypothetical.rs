//! Hypothetical chunk: nodes after more tasks of one kind. Kernels evaluate many such states at once.

use std::sync::Arc;

use super::amounts::ResourceId;
use super::chunk::{NodeChunk, NodeChunks};
use super::cluster_state::ClusterState;
use super::column::{ChunkColumn, NodeVector, ResourceColumns};
use super::integer_column::{DENSE_INTEGER_LIMIT, ExactIntegers, WholeVector, integer_override};
use super::mask::{CHUNK_SIZE, NodeMask};
use super::pod_sum_delta::AddedPodSums;
use super::stored::NodeSlot;
use super::uniform_arrival::{UniformArrival, dense_sum};

/// Source of one vector of one resource.
#[derive(Debug)]
struct ColumnSource<'v> {
    /// Position of the resource among the columns.
    resource_index: usize,
    id: ResourceId,
    vector: NodeVector,
    /// Amount that each task adds; `None`: tasks add nothing, and the node has the vector only if it had it before.
    added: Option<i64>,
    /// Column of each chunk of the cluster state.
    chunk_columns: Vec<Option<&'v ChunkColumn>>,
}

/// Node, and the number of tasks that it has more.
#[derive(Clone, Copy, Debug)]
struct HypotheticalNode {
    chunk: u32,
    offset: u8,
    added_tasks: u32,
}

/// Nodes in their hypothetical states, one after the other.
#[derive(Debug)]
pub(crate) struct HypotheticalNodes<'v> {
    chunks: &'v NodeChunks,
    arrival: &'v UniformArrival,
    sources: Vec<ColumnSource<'v>>,
    /// True if the floats of some node do not show its integers exactly.
    has_exact_integers: bool,
    chunk: NodeChunk,
    nodes: Vec<HypotheticalNode>,
}

impl<'v> HypotheticalNodes<'v> {
    /// Empty list. Tasks are added as in a cycle under `compatibility: corrected`. `spare` is the chunk of an earlier
    /// list, whose columns are reused.
    pub(crate) fn new(cluster_state: &'v ClusterState, arrival: &'v UniformArrival, spare: Option<NodeChunk>) -> Self {
        let chunks = cluster_state.chunks();
        let mut ids = arrival.resources();
        ids.extend(chunks.iter().flat_map(|chunk| chunk.resources()));
        ids.sort_unstable();
        ids.dedup();
        let mut chunk = spare.unwrap_or_else(NodeChunk::detached);
        chunk.added_pod_sums = None;
        let mut spare_columns = std::mem::take(&mut chunk.columns);
        let mut sources = Vec::new();
        for (at, id) in ids.into_iter().enumerate() {
            let known = spare_columns.iter_mut().find(|own| own.id == id);
            let mut known = known.map(|own| std::mem::take(&mut own.vectors)).unwrap_or_default();
            let mut columns = ResourceColumns::new(id);
            for vector in [
                NodeVector::Allocatable,
                NodeVector::Used,
                NodeVector::Releasing,
                NodeVector::Pipelined,
            ] {
                let of: Vec<Option<&ChunkColumn>> = chunks.iter().map(|chunk| chunk.stored(id, vector)).collect();
                let added = arrival.added(id, vector);
                let slot = columns.vectors.get_mut(vector as usize);
                if let Some(slot) = slot.filter(|_| added.is_some() || of.iter().any(Option::is_some)) {
                    let known = known.get_mut(vector as usize).and_then(Option::take);
                    *slot = Some(known.unwrap_or_else(|| Arc::new(ChunkColumn::EMPTY)));
                    sources.push(ColumnSource {
                        resource_index: at,
                        id,
                        vector,
                        added,
                        chunk_columns: of,
                    });
                }
            }
            chunk.columns.push(columns);
        }
        let mut columns = chunks.iter().flat_map(|chunk| &chunk.columns);
        Self {
            chunks,
            arrival,
            sources,
            has_exact_integers: columns.any(|columns| columns.integers.iter().any(Option::is_some)),
            chunk,
            nodes: Vec::with_capacity(CHUNK_SIZE),
        }
    }

    /// Chunk that another list may use again.
    pub(crate) fn into_chunk(self) -> NodeChunk {
        self.chunk
    }

    /// Removes all nodes.
    pub(crate) fn clear(&mut self) {
        self.nodes.clear();
    }

    /// Appends a node with this many tasks more; a full chunk stays unchanged.
    pub(crate) fn add(&mut self, slot: NodeSlot, more: u32) {
        let at = self.nodes.len();
        if let Some(own) = self.chunk.slots.as_mut().and_then(|slots| slots.get_mut(at)) {
            *own = slot;
            self.nodes.push(HypotheticalNode {
                chunk: slot >> 8,
                offset: slot.to_le_bytes()[0],
                added_tasks: more,
            });
        }
    }

    /// Chunk of all appended nodes, in their order.
    pub(crate) fn chunk(&mut self) -> (&NodeChunk, NodeMask) {
        let among = NodeMask::first_n(self.nodes.len());
        let mut dense = true;
        for source in &self.sources {
            let columns = self.chunk.columns.get_mut(source.resource_index);
            let Some(columns) = columns else { continue };
            let slot = columns.vectors.get_mut(source.vector as usize);
            let Some(column) = slot.and_then(Option::as_mut).and_then(Arc::get_mut) else {
                continue;
            };
            dense &= source.fill(&self.nodes, self.chunks, column);
            if source.vector == NodeVector::Allocatable {
                let values = column.values.iter().take(self.nodes.len());
                columns.offered = NodeMask::from_leading(values.map(|value| *value > 0.0)).and(&column.present);
                // The property is not worth computing for a chunk that is read once.
                columns.least_offered = 0.0;
            }
        }
        if self.has_exact_integers || !self.arrival.same_in_kubernetes || !dense {
            self.fill_integers();
        } else {
            // Integers of an earlier chunk do not belong to these nodes.
            for columns in &mut self.chunk.columns {
                columns.integers.fill(None);
            }
        }
        if !self.arrival.pod_sums.is_empty() {
            let mut added_tasks = [0; CHUNK_SIZE];
            for (own, node) in added_tasks.iter_mut().zip(&self.nodes) {
                *own = node.added_tasks;
            }
            self.chunk.added_pod_sums = Some(Box::new(AddedPodSums {
                delta: self.arrival.pod_sums.clone(),
                added_tasks,
            }));
        }
        self.chunk.live = among;
        self.chunk.placeable = NodeMask::NONE;
        self.chunk.usable = NodeMask::NONE;
        self.chunk.unready = [NodeMask::NONE; 2];
        self.chunk.with_pod_sums = NodeMask::NONE;
        for (at, place) in self.nodes.iter().enumerate() {
            let from = self.chunks.get(place.chunk as usize);
            let placeable = from.is_some_and(|from| from.placeable.get(usize::from(place.offset)));
            self.chunk.placeable.set(at, placeable);
            let usable = from.is_some_and(|from| from.usable.get(usize::from(place.offset)));
            self.chunk.usable.set(at, usable);
            for (own, number) in self.chunk.unready.iter_mut().zip(0..) {
                let masks = from.and_then(|from| from.unready.get(number));
                own.set(at, masks.is_some_and(|mask| mask.get(usize::from(place.offset))));
            }
            let has_sums = from.is_some_and(|from| from.with_pod_sums.get(usize::from(place.offset)));
            self.chunk.with_pod_sums.set(at, has_sums);
        }
        (&self.chunk, among)
    }

    /// Fills in Kubernetes' integers that floats do not show exactly.
    fn fill_integers(&mut self) {
        for columns in &mut self.chunk.columns {
            let id = columns.id;
            let used = columns
                .vectors
                .get(NodeVector::Used as usize)
                .and_then(Option::as_deref);
            let [mut allocatable, mut requested] = [ExactIntegers::EMPTY; 2];
            for (at, place) in self.nodes.iter().enumerate() {
                let Some(from) = self.chunks.get(place.chunk as usize) else {
                    continue;
                };
                let offset = usize::from(place.offset);
                let held = from.exact_integers(id, WholeVector::Allocatable);
                allocatable.set(at, held.and_then(|exact| exact.get(offset)));
                let before = from.integer(id, WholeVector::Requested, offset);
                let after = before + i128::from(self.arrival.integer(id)) * i128::from(place.added_tasks);
                let shown = used.and_then(|used| used.values.get(at)).copied();
                requested.set(at, integer_override(id, shown, after));
            }
            for (whole, exact) in [
                (WholeVector::Allocatable, allocatable),
                (WholeVector::Requested, requested),
            ] {
                if let Some(slot) = columns.integers.get_mut(whole as usize) {
                    *slot = (!exact.is_empty()).then(|| Arc::new(exact));
                }
            }
        }
    }
}

impl NodeChunk {
    /// Number of leading places that kernels must compute: all, or of a detached chunk those up to the last node, and a few
    /// more.
    pub(crate) fn lanes(&self) -> usize {
        const STEP: usize = 16;
        if !self.is_detached() {
            return CHUNK_SIZE;
        }
        let words = self.live().words();
        let last = words.iter().rposition(|word| *word != 0);
        last.map_or(0, |last| {
            let word = words.get(last).copied().unwrap_or(0);
            let count = last * 64 + (64 - word.leading_zeros() as usize);
            count.next_multiple_of(STEP).min(CHUNK_SIZE)
        })
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "integers within 2^53 are no longer than that"
)]
fn integer(dense: f64) -> i128 {
    i128::from(dense as i64)
}

impl ColumnSource<'_> {
    /// Fills the column; false: some float skips integers.
    fn fill(&self, places: &[HypotheticalNode], chunks: &NodeChunks, column: &mut ChunkColumn) -> bool {
        let mut dense = true;
        let each = column.values.iter_mut().zip(places);
        let present = each.map(|(value, place)| {
            let offset = usize::from(place.offset);
            let from = self.chunk_columns.get(place.chunk as usize).copied().flatten();
            let before = from.and_then(|from| from.values.get(offset)).copied().unwrap_or(0.0);
            *value = before;
            let mut present = from.is_some_and(|from| from.present.get(offset));
            if let Some(added) = self.added {
                let after = dense_sum(before, added, place.added_tasks);
                dense &= after.is_some();
                *value = after.unwrap_or_else(|| self.exact_sum(*place, chunks, before, added));
                present |= place.added_tasks > 0;
            }
            present
        });
        column.present = NodeMask::from_leading(present);
        dense
    }

    /// Sum from the node's exact integers. Tasks that were added to columns alone are in no entry, but only where
    /// floats are exact.
    fn exact_sum(&self, place: HypotheticalNode, chunks: &NodeChunks, shown: f64, added: i64) -> f64 {
        let entry = chunks.get(place.chunk as usize);
        let entry = entry.and_then(|chunk| chunk.entry(usize::from(place.offset)));
        let exact = || entry.and_then(|entry| entry.exact(self.id, self.vector)).unwrap_or(0);
        let before = if shown.abs() < DENSE_INTEGER_LIMIT {
            integer(shown)
        } else {
            exact()
        };
        (before + i128::from(added) * i128::from(place.added_tasks)) as f64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::{
        NodeEntry, NodeRecord, PodSum, ResourceAmounts, ResourceTable, SortedTable, TaskFields, TaskRecord, TaskStatus,
    };

    const NODES: NodeSlot = 600;

    /// Amounts near the limits where floats, or Volcano's units, stop showing Kubernetes' integers exactly.
    fn amounts() -> impl Strategy<Value = ResourceAmounts> {
        let amount = prop_oneof![
            4 => 0..5_000_i64,
            1 => Just(16_000_000),
            1 => Just(1 << 53),
            1 => Just((1 << 53) - 3),
            1 => Just(i64::MAX / 5),
        ];
        prop::collection::vec(prop::option::of(amount), 5).prop_map(|amounts| {
            let ids = (0..).map(ResourceId::from_index);
            let mut amounts: ResourceAmounts = ids.zip(amounts).filter_map(|(id, own)| Some((id, own?))).collect();
            if amounts.get(ResourceId::from_index(4)) == Some(i64::MAX / 5) {
                amounts.set_whole_units(ResourceId::from_index(4), i64::MAX / 7);
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
            let (mut index, mut resources) = (SortedTable::default(), ResourceTable::default());
            for slot in 0..NODES {
                index.insert(format!("n{slot}").into(), slot);
            }
            for name in ["a.b/c", "d.e/f"] {
                resources.intern(name, 9).unwrap();
            }
            let mut cluster_state = ClusterState::new(Arc::new(index), 1);
            cluster_state.set_resources(Arc::new(resources));
            let source = Arc::from("s");
            for (slot, allocatable, used) in &nodes {
                let record = NodeRecord {
                    name: format!("n{slot}").into(),
                    allocatable: allocatable.clone(),
                    unattributed_used: used.clone(),
                    unschedulable: slot % 3 == 0,
                    ..NodeRecord::default()
                };
                cluster_state.put_node(Arc::new(record), &source);
            }
            for (number, (on, task)) in there.iter().enumerate() {
                let name = format!("t{number}").into();
                let node = format!("n{}", on.get(&nodes).0).into();
                cluster_state.put_task(TaskRecord { name, node, ..task.clone() }, &source);
            }
            let arrival = UniformArrival::of(&joins);
            let mut hypothetical = HypotheticalNodes::new(&cluster_state, &arrival, None);
            // Values of an earlier chunk must leave nothing behind.
            for (slot, _, _) in &nodes {
                hypothetical.add(*slot, 1 << 30);
            }
            hypothetical.chunk();
            hypothetical.clear();
            let mut plain = NodeChunk::default();
            for (at, (on, more)) in asked.iter().enumerate() {
                let slot = on.get(&nodes).0;
                hypothetical.add(slot, *more);
                let mut entry = (**cluster_state.node(slot).unwrap()).clone();
                (0..*more).for_each(|_| entry.usage.count_task(&joins, true));
                plain.set_entry(at, Some(Arc::new(entry)));
            }
            let (chunk, among) = hypothetical.chunk();
            prop_assert_eq!((among.count() as usize, chunk.live(), chunk.placeable()), (asked.len(), plain.live(), plain.placeable()));
            for id in (0..5).map(ResourceId::from_index) {
                for at in 0..asked.len() {
                    for vector in [NodeVector::Allocatable, NodeVector::Used, NodeVector::Releasing, NodeVector::Pipelined] {
                        let [own, plain] = [chunk, &plain].map(|chunk| chunk.value(id, vector, at).map(f64::to_bits));
                        prop_assert_eq!(own, plain);
                    }
                    prop_assert_eq!(chunk.offered(id).get(at), plain.offered(id).get(at));
                    for whole in [WholeVector::Allocatable, WholeVector::Requested] {
                        let narrow = |wide: i128| i64::try_from(wide).unwrap_or(i64::MAX);
                        prop_assert_eq!(chunk.integer_column(id, whole, narrow)[at], plain.integer_column(id, whole, narrow)[at]);
                    }
                }
                for sum in [PodSum::Requests, PodSum::NonzeroRequests] {
                    let (integers, mut room) = (chunk.pod_sums(&cluster_state, id, sum), [0.0; CHUNK_SIZE]);
                    let shown = chunk.shown_pod_floats(id, sum).copied();
                    let computed = chunk.pod_sums_as_floats(&cluster_state, id, sum, &mut room).copied();
                    for floats in shown.into_iter().chain(computed) {
                        let (floats, integers) = (floats.map(f64::floor), integers.map(|integer| integer as f64));
                        prop_assert_eq!(&floats[..asked.len()], &integers[..asked.len()]);
                    }
                }
                let (whole, mut room) = (chunk.integer_column(id, WholeVector::Allocatable, |_| i64::MAX), [0.0; CHUNK_SIZE]);
                let shown = chunk.shown_capacities(id).copied();
                let computed = chunk.capacities_as_floats(id, &mut room).copied();
                for floats in shown.into_iter().chain(computed) {
                    let whole = whole.map(|integer| integer as f64);
                    prop_assert_eq!(&floats[..asked.len()], &whole[..asked.len()]);
                }
            }
        }
    }

    #[test]
    fn integers_of_an_earlier_chunk_are_gone() {
        let (mut index, mut resources) = (SortedTable::default(), ResourceTable::default());
        index.insert("n".into(), 0);
        let storage = resources.intern("a.b/c", 9).unwrap();
        let mut cluster_state = ClusterState::new(Arc::new(index), 1);
        cluster_state.set_resources(Arc::new(resources));
        let record = NodeRecord {
            name: "n".into(),
            allocatable: ResourceAmounts::from_iter([(storage, 64_000_000)]),
            ..NodeRecord::default()
        };
        cluster_state.put_node(Arc::new(record), &Arc::from("s"));
        let arrival = UniformArrival::of(&TaskRecord::from(TaskFields {
            requests: ResourceAmounts::from_iter([(storage, 16_000_000)]),
            nonzero_requests: Some(Box::default()),
            status: TaskStatus::Allocated,
            ..TaskFields::default()
        }));
        let mut hypothetical = HypotheticalNodes::new(&cluster_state, &arrival, None);
        for (more, whole) in [(1 << 30, 16_000 << 30), (2, 32_000)] {
            hypothetical.clear();
            hypothetical.add(0, more);
            let (chunk, _) = hypothetical.chunk();
            assert_eq!(chunk.integer(storage, WholeVector::Requested, 0), whole);
        }
    }

    proptest! {
        #[test]
        fn columns_with_added_tasks_equal_those_of_the_node(
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
                usage: super::super::NodeUsage::default(),
                invalid: None,
                upstream: None,
            };
            let mut joined = NodeChunk::default();
            joined.set_entry(7, Some(Arc::new(entry.clone())));
            for (task, times) in steps {
                let (arrival, mut plain) = (UniformArrival::of(&task), NodeChunk::default());
                (0..times).for_each(|_| entry.usage.count_task(&task, true));
                plain.set_entry(7, Some(Arc::new(entry.clone())));
                if !joined.add_uniform(7, &arrival, times) {
                    joined.set_entry(7, Some(Arc::new(entry.clone())));
                }
                let columns = |chunk: &NodeChunk| format!("{:?}", chunk.columns);
                prop_assert_eq!(columns(&joined), columns(&plain));
            }
        }
    }
}
