//! Cluster state: immutable state in columns. Clones share everything, and a change copies only the parts that it
//! touches.

mod relations;
mod tasks;

use std::sync::Arc;

use smallvec::SmallVec;

use super::amounts::ResourceTotals;
use super::chunk::{NodeChunk, NodeChunks};
use super::label_kinds::{DroppedLabels, LabelKinds};
use super::mask::{CHUNK_SIZE, NodeMask};
use super::namespace::{NamespaceRecord, NamespaceTable};
use super::node::{NodeEntry, NodeUsage};
use super::pods::{PodBook, TopologyCache};
use super::priority_classes::{PriorityClassRecord, PriorityClasses};
use super::records::{JobRecord, NodeRecord, QueueRecord, TaskRecord};
use super::reservation::Reservation;
use super::resource_table::ResourceTable;
use super::stored::{NodeIndex, NodeSlot, RecordKind, RecordOwner, RecordProblems, StoredRecord};
use super::table::SortedTable;
use super::uniform_arrival::UniformArrival;

const CHUNK_SLOTS: NodeSlot = 256;
const _: () = assert!(CHUNK_SLOTS as usize == CHUNK_SIZE);

/// Rank of a slot without a node.
const NO_RANK: u32 = u32::MAX;

/// Immutable state of nodes, queues, jobs, tasks and reservations.
#[derive(Clone, Debug)]
pub struct ClusterState {
    resources: Arc<ResourceTable>,
    index: Arc<dyn NodeIndex>,
    generation: u64,
    slots: NodeSlot,
    pub(super) chunks: NodeChunks,
    node_count: u32,
    ranks: Arc<[u32]>,
    /// Usage of absent nodes that tasks name.
    orphan_usage: SortedTable<Arc<NodeUsage>>,
    queues: SortedTable<Arc<StoredRecord<QueueRecord>>>,
    jobs: SortedTable<Arc<StoredRecord<JobRecord>>>,
    pub(super) tasks: SortedTable<Arc<StoredRecord<TaskRecord>>>,
    namespaces: NamespaceTable,
    /// Priority classes with their owners, and their values by name.
    priority_classes: SortedTable<Arc<StoredRecord<PriorityClassRecord>>>,
    class_values: Arc<PriorityClasses>,
    /// Number of jobs that find the groups of their tasks by labels.
    group_finders: usize,
    /// Requests of each job's tasks in Allocated, Binding, Bound and Running, whether or not the job's record exists.
    pub(super) allocated: SortedTable<Arc<ResourceTotals>>,
    /// Reservations by job, whether or not the job's record exists.
    reservations: SortedTable<Arc<Reservation>>,
    /// Owners of records, one per source.
    owners: Arc<Vec<RecordOwner>>,
    /// Tasks whose node is assumed.
    pub(super) assumed: SortedTable<()>,
    /// Pods by class, and topology domains.
    pub(super) pod_book: PodBook,
    /// Labels that the records lack, because no policy read them when they came.
    dropped_labels: DroppedLabels,
}

impl ClusterState {
    /// Empty cluster state over a node table.
    pub fn new(index: Arc<dyn NodeIndex>, generation: u64) -> Self {
        Self {
            resources: Arc::default(),
            index,
            generation,
            slots: 0,
            chunks: NodeChunks::default(),
            node_count: 0,
            ranks: Arc::default(),
            orphan_usage: SortedTable::default(),
            queues: SortedTable::default(),
            jobs: SortedTable::default(),
            tasks: SortedTable::default(),
            namespaces: SortedTable::default(),
            priority_classes: SortedTable::default(),
            class_values: Arc::default(),
            group_finders: 0,
            allocated: SortedTable::default(),
            reservations: SortedTable::default(),
            owners: Arc::default(),
            assumed: SortedTable::default(),
            pod_book: PodBook::default(),
            dropped_labels: DroppedLabels::default(),
        }
    }

    /// Names of resources.
    pub fn resources(&self) -> &Arc<ResourceTable> {
        &self.resources
    }

    /// Replaces the resource table by another one of its lineage, in which every id that the state uses has the same name.
    pub fn set_resources(&mut self, resources: Arc<ResourceTable>) {
        debug_assert!(
            resources.len() >= self.resources.len(),
            "a resource table keeps its ids"
        );
        self.resources = resources;
    }

    /// Generation of the node table: slots of another generation mean other nodes.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Length of the node table, with the slots of removed nodes.
    pub fn slots(&self) -> NodeSlot {
        self.slots
    }

    /// Chunks in slot order; the last one may reach beyond [`Self::slots`].
    pub fn chunks(&self) -> &NodeChunks {
        &self.chunks
    }

    /// Number of nodes.
    pub fn node_count(&self) -> u32 {
        self.node_count
    }

    /// The node at a slot.
    pub fn node(&self, slot: NodeSlot) -> Option<&Arc<NodeEntry>> {
        let (chunk, offset) = slot_position(slot);
        self.chunks.get(chunk)?.entry(offset)
    }

    /// True if some node has fields that a policy may not evaluate.
    pub fn has_unevaluated_nodes(&self) -> bool {
        self.chunks.iter().any(|chunk| !chunk.unevaluated().is_empty())
    }

    /// The node at a slot, if it has fields that a policy may not evaluate.
    pub fn unevaluated_node(&self, slot: NodeSlot) -> Option<&Arc<NodeEntry>> {
        let (chunk, offset) = slot_position(slot);
        let chunk = self.chunks.get(chunk)?;
        chunk.unevaluated().get(offset).then(|| chunk.entry(offset)).flatten()
    }

    /// Name of a slot, even while its node is absent: a returning node gets its slot back.
    pub fn name_of(&self, slot: NodeSlot) -> Option<Arc<str>> {
        match self.node(slot) {
            Some(entry) => Some(Arc::clone(&entry.record.name)),
            None => self.index.name(slot),
        }
    }

    /// Slot of a present node.
    pub fn slot_of(&self, name: &str) -> Option<NodeSlot> {
        let slot = self.index.slot(name)?;
        (*self.node(slot)?.record.name == *name).then_some(slot)
    }

    /// Node with this name. `None`: the node does not exist.
    pub fn node_by_name(&self, name: &str) -> Option<&Arc<NodeEntry>> {
        self.node(self.slot_of(name)?)
    }

    /// All nodes with their slots, by slot.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeSlot, &Arc<NodeEntry>)> {
        (0..)
            .zip(self.chunks.iter())
            .flat_map(|(number, chunk): (NodeSlot, _)| {
                chunk.live().iter().filter_map(move |offset| {
                    let slot = number * CHUNK_SLOTS + NodeSlot::try_from(offset).ok()?;
                    Some((slot, chunk.entry(offset)?))
                })
            })
    }

    /// Position of each slot's node among all names, sorted: the tie break. Complete after [`Self::refresh_ranks`].
    pub fn ranks(&self) -> &[u32] {
        &self.ranks
    }

    /// Rank of a node; `u32::MAX`: unknown.
    pub(crate) fn rank(&self, slot: NodeSlot) -> u32 {
        self.ranks.get(slot as usize).copied().unwrap_or(NO_RANK)
    }

    /// Queues by name.
    pub fn queues(&self) -> &SortedTable<Arc<StoredRecord<QueueRecord>>> {
        &self.queues
    }

    /// Jobs by name.
    pub fn jobs(&self) -> &SortedTable<Arc<StoredRecord<JobRecord>>> {
        &self.jobs
    }

    /// Tasks by name.
    pub fn tasks(&self) -> &SortedTable<Arc<StoredRecord<TaskRecord>>> {
        &self.tasks
    }

    /// Namespaces by name.
    pub fn namespaces(&self) -> &NamespaceTable {
        &self.namespaces
    }

    /// Labels that the records of sources lack, because no policy read them when they came.
    pub fn dropped_labels(&self) -> &DroppedLabels {
        &self.dropped_labels
    }

    /// Replaces [`Self::dropped_labels`].
    pub fn set_dropped_labels(&mut self, dropped: DroppedLabels) {
        self.dropped_labels = dropped;
    }

    /// Sources whose records lack labels of at least one kind in `labels`.
    pub fn sources_without(&self, labels: LabelKinds) -> impl Iterator<Item = &Arc<str>> {
        let sources = self.dropped_labels.iter();
        sources.filter_map(move |(source, dropped)| dropped.intersects(labels).then_some(source))
    }

    /// Requests that the tasks of a job hold: those in Allocated, Binding, Bound and Running.
    pub fn job_allocated(&self, job: &str) -> Option<&ResourceTotals> {
        self.allocated.get(job).map(|totals| &**totals)
    }

    /// Source that owns a record.
    pub fn source_of(&self, kind: RecordKind, name: &str) -> Option<&Arc<str>> {
        match kind {
            RecordKind::Node => self.node_by_name(name).map(|entry| &entry.source),
            RecordKind::Queue => self.queues.get(name).map(|stored| &*stored.source),
            RecordKind::Job => self.jobs.get(name).map(|stored| &*stored.source),
            RecordKind::Task => self.tasks.get(name).map(|stored| &*stored.source),
            RecordKind::Namespace => self.namespaces.get(name).map(|stored| &*stored.source),
            RecordKind::PriorityClass => self.priority_classes.get(name).map(|stored| &*stored.source),
        }
    }

    /// Puts a node, replacing the one of its name. False: the name is not in the index, and nothing changes.
    pub fn put_node(&mut self, record: Arc<NodeRecord>, source: &Arc<str>) -> bool {
        let Some(slot) = self.index.slot(&record.name) else {
            return false;
        };
        let usage = match self.node(slot) {
            Some(old) => old.usage.clone(),
            None => self
                .orphan_usage
                .remove(&record.name)
                .map(Arc::unwrap_or_clone)
                .unwrap_or_default(),
        };
        self.put_entry(Arc::new(NodeEntry {
            record,
            source: Arc::clone(source),
            usage,
            invalid: None,
            upstream: None,
        }))
    }

    fn put_entry(&mut self, entry: Arc<NodeEntry>) -> bool {
        let Some(slot) = self.index.slot(&entry.record.name) else {
            return false;
        };
        if self.ranks.get(slot as usize).is_none_or(|rank| *rank == NO_RANK) {
            self.ranks = Arc::default();
        }
        let before = self.node(slot);
        if before.is_none_or(|before| before.record.labels != entry.record.labels) {
            self.pod_book.topologies = TopologyCache::default();
        }
        if self.node(slot).is_none() {
            self.node_count += 1;
            self.pod_book.forget_orphans();
        }
        let (chunk, offset) = slot_position(slot);
        for number in self.chunks.len()..=chunk {
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            self.chunks.push(Arc::new(NodeChunk::at(number)));
        }
        if let Some(chunk) = self.chunks.get_mut(chunk) {
            Arc::make_mut(chunk).set_entry(offset, Some(entry));
        }
        self.slots = self.slots.max(slot + 1);
        self.share_columns(chunk);
        true
    }

    /// Shares equal columns of a full chunk with a neighbour.
    fn share_columns(&mut self, number: usize) {
        if self
            .chunks
            .get(number)
            .is_none_or(|chunk| *chunk.live() != NodeMask::ALL)
        {
            return;
        }
        let neighbours = [number.checked_sub(1), Some(number + 1)].into_iter().flatten();
        let neighbours: SmallVec<[Arc<NodeChunk>; 2]> = neighbours
            .filter_map(|number| self.chunks.get(number).cloned())
            .collect();
        if let Some(chunk) = self.chunks.get_mut(number) {
            Arc::make_mut(chunk).share_columns(&neighbours);
        }
    }

    /// Puts a hypothetical entry at a slot, replacing the one there; tasks stay unchanged.
    pub(crate) fn set_node(&mut self, slot: NodeSlot, entry: Arc<NodeEntry>) {
        let (chunk, offset) = slot_position(slot);
        if let Some(chunk) = self.chunks.get_mut(chunk) {
            Arc::make_mut(chunk).set_entry(offset, Some(entry));
        }
    }

    /// Adds tasks to the columns of a node, and nowhere else. False: floats do not show the sums exactly, and nothing
    /// changes.
    pub(crate) fn add_uniform(&mut self, slot: NodeSlot, arrival: &UniformArrival, times: u32) -> bool {
        let (chunk, offset) = slot_position(slot);
        let chunk = self.chunks.get_mut(chunk).map(Arc::make_mut);
        chunk.is_some_and(|chunk| chunk.add_uniform(offset, arrival, times))
    }

    /// Removes a node. The usage by its tasks is stored until the node returns.
    pub fn remove_node(&mut self, name: &str) -> bool {
        let Some(slot) = self.slot_of(name) else {
            return false;
        };
        if let Some(entry) = self.node(slot).filter(|entry| !entry.usage.is_empty()) {
            let usage = Arc::new(entry.usage.clone());
            self.orphan_usage.insert(Arc::from(name), usage);
        }
        let (chunk, offset) = slot_position(slot);
        if let Some(chunk) = self.chunks.get_mut(chunk) {
            Arc::make_mut(chunk).set_entry(offset, None);
            self.node_count -= 1;
            self.pod_book.topologies = TopologyCache::default();
            self.pod_book.forget();
        }
        true
    }

    /// Updates [`Self::ranks`]; needed once after nodes with new names were put.
    pub fn refresh_ranks(&mut self) {
        if self.ranks.len() == self.slots as usize {
            return;
        }
        let mut names: Vec<(&str, NodeSlot)> = self.nodes().map(|(slot, entry)| (&*entry.record.name, slot)).collect();
        names.sort_unstable();
        let mut ranks = vec![NO_RANK; self.slots as usize];
        for (rank, (_, slot)) in (0..).zip(names) {
            if let Some(place) = ranks.get_mut(slot as usize) {
                *place = rank;
            }
        }
        self.ranks = ranks.into();
    }

    /// Same state over another node table, which must have all its nodes.
    #[must_use]
    pub fn with_index(&self, index: Arc<dyn NodeIndex>) -> Self {
        let mut moved = Self {
            index,
            generation: self.generation + 1,
            slots: 0,
            chunks: NodeChunks::default(),
            node_count: 0,
            ranks: Arc::default(),
            ..self.clone()
        };
        moved.pod_book.forget();
        for (_, entry) in self.nodes() {
            moved.put_entry(Arc::clone(entry));
        }
        moved.refresh_ranks();
        moved
    }

    /// Puts a queue, replacing the one of its name.
    pub fn put_queue(&mut self, record: QueueRecord, source: &Arc<str>) {
        let stored = self.store_record(record, source);
        self.queues.insert(Arc::clone(&stored.record.name), stored);
    }

    /// Removes a queue. Returns false if it does not exist.
    pub fn remove_queue(&mut self, name: &str) -> bool {
        self.queues.remove(name).is_some()
    }

    /// Puts a namespace, replacing the one of its name.
    pub fn put_namespace(&mut self, record: NamespaceRecord, source: &Arc<str>) {
        let stored = self.store_record(record, source);
        self.namespaces.insert(Arc::clone(&stored.record.name), stored);
    }

    /// Removes a namespace. Returns false if it does not exist.
    pub fn remove_namespace(&mut self, name: &str) -> bool {
        self.namespaces.remove(name).is_some()
    }

    /// Puts a job, replacing the one of its name.
    pub fn put_job(&mut self, record: JobRecord, source: &Arc<str>) {
        let stored = self.store_record(record, source);
        self.group_finders += usize::from(stored.record.finds_groups());
        let replaced = self.jobs.insert(Arc::clone(&stored.record.name), stored);
        self.forget_group_finder(replaced.as_deref());
    }

    /// Reservations of the admission ledger, by job; the job's record may be absent.
    pub fn reservations(&self) -> &SortedTable<Arc<Reservation>> {
        &self.reservations
    }

    /// Puts a reservation, replacing the one of its job.
    pub fn put_reservation(&mut self, row: Arc<Reservation>) {
        self.reservations.insert(Arc::clone(&row.job), row);
    }

    /// Removes the reservation of a job. Returns the reservation, if there was one.
    pub fn remove_reservation(&mut self, job: &str) -> Option<Arc<Reservation>> {
        self.reservations.remove(job)
    }

    /// Removes a job; its tasks stay. Returns false if it does not exist.
    pub fn remove_job(&mut self, name: &str) -> bool {
        let removed = self.jobs.remove(name);
        self.forget_group_finder(removed.as_deref());
        removed.is_some()
    }

    /// Marks an existing record as outdated by a rejected one (`Some`), or as valid again (`None`).
    pub fn set_invalid(&mut self, kind: RecordKind, name: &str, problems: Option<RecordProblems>) {
        fn mark<R: Clone>(
            table: &mut SortedTable<Arc<StoredRecord<R>>>,
            name: &str,
            invalid: Option<RecordProblems>,
            owners: &mut Arc<Vec<RecordOwner>>,
        ) {
            let Some(old) = table.get(name) else { return };
            let source = match invalid {
                Some(problems) => old.source.with_problems(problems),
                None if old.invalid().is_none() => return,
                None => owner_of_source(owners, &old.source),
            };
            let marked = StoredRecord {
                source,
                ..StoredRecord::clone(old)
            };
            if let Some(place) = table.get_mut(name) {
                *place = Arc::new(marked);
            }
        }
        match kind {
            RecordKind::Node => self.change_node(name, |entry| entry.invalid = problems),
            RecordKind::Queue => mark(&mut self.queues, name, problems, &mut self.owners),
            RecordKind::Job => mark(&mut self.jobs, name, problems, &mut self.owners),
            RecordKind::Task => mark(&mut self.tasks, name, problems, &mut self.owners),
            RecordKind::Namespace => mark(&mut self.namespaces, name, problems, &mut self.owners),
            RecordKind::PriorityClass => mark(&mut self.priority_classes, name, problems, &mut self.owners),
        }
    }

    /// Changes a present node.
    pub(crate) fn change_node(&mut self, name: &str, change: impl FnOnce(&mut NodeEntry)) {
        let Some(slot) = self.slot_of(name) else {
            return;
        };
        let (chunk, offset) = slot_position(slot);
        let Some(chunk) = self.chunks.get_mut(chunk).map(Arc::make_mut) else {
            return;
        };
        if let Some(mut entry) = chunk.take_entry(offset) {
            change(Arc::make_mut(&mut entry));
            chunk.set_entry(offset, Some(entry));
        }
    }

    /// Stored form of a record.
    fn store_record<R>(&mut self, record: R, source: &Arc<str>) -> Arc<StoredRecord<R>> {
        let source = owner_of_source(&mut self.owners, source);
        Arc::new(StoredRecord { record, source })
    }
}

/// Owner of a source's valid records, registered if it is new.
fn owner_of_source(owners: &mut Arc<Vec<RecordOwner>>, source: &Arc<str>) -> RecordOwner {
    let known = owners.iter().find(|owner| ***owner == *source).cloned();
    known.unwrap_or_else(|| {
        let owner = RecordOwner::new(source);
        Arc::make_mut(owners).push(owner.clone());
        owner
    })
}

fn slot_position(slot: NodeSlot) -> (usize, usize) {
    (slot as usize / CHUNK_SIZE, slot as usize % CHUNK_SIZE)
}
