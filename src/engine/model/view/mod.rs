//! The View: frozen state in columns. Clones share everything; a change copies only what it touches.

mod tasks;

use std::sync::Arc;

use smallvec::SmallVec;

use super::amounts::{ResourceTable, Totals};
use super::chunk::{CHUNK, Chunk};
use super::chunks::Chunks;
use super::joining::Joining;
use super::mask::Mask;
use super::node::{NodeEntry, Usage};
use super::records::{JobRecord, NodeRecord, QueueRecord, TaskRecord};
use super::reservation::Reservation;
use super::stored::{Faults, Kind, NodeIndex, Owner, Stored};
use super::table::Table;

/// Position of a node in the node table: chunk `slot / 256`, offset `slot % 256`.
pub type Slot = u32;

const CHUNK_SLOTS: Slot = 256;
const _: () = assert!(CHUNK_SLOTS as usize == CHUNK);

/// Rank of a slot without a node.
const NO_RANK: u32 = u32::MAX;

/// Frozen state.
#[derive(Clone, Debug)]
pub struct View {
    resources: Arc<ResourceTable>,
    index: Arc<dyn NodeIndex>,
    generation: u64,
    slots: Slot,
    pub(super) chunks: Chunks,
    nodes: u32,
    ranks: Arc<[u32]>,
    /// Usage of nodes that tasks name and that are not there.
    homeless: Table<Arc<Usage>>,
    queues: Table<Arc<Stored<QueueRecord>>>,
    jobs: Table<Arc<Stored<JobRecord>>>,
    pub(super) tasks: Table<Arc<Stored<TaskRecord>>>,
    /// Requests of each job's tasks in Allocated, Binding, Bound and Running, whether or not the job is there.
    pub(super) allocated: Table<Arc<Totals>>,
    /// By job, whether or not it is there.
    reservations: Table<Arc<Reservation>>,
    /// Whoever owned a record; as few as there are sources.
    owners: Arc<Vec<Owner>>,
    /// Tasks whose node is assumed.
    pub(super) assumed: Table<()>,
}

impl View {
    /// An empty View over a node table.
    pub fn new(index: Arc<dyn NodeIndex>, generation: u64) -> Self {
        Self {
            resources: Arc::default(),
            index,
            generation,
            slots: 0,
            chunks: Chunks::default(),
            nodes: 0,
            ranks: Arc::default(),
            homeless: Table::default(),
            queues: Table::default(),
            jobs: Table::default(),
            tasks: Table::default(),
            allocated: Table::default(),
            reservations: Table::default(),
            owners: Arc::default(),
            assumed: Table::default(),
        }
    }

    /// Names of resources.
    pub fn resources(&self) -> &Arc<ResourceTable> {
        &self.resources
    }

    /// Takes a table in which more names are known; ids keep their meaning.
    pub fn set_resources(&mut self, resources: Arc<ResourceTable>) {
        debug_assert!(resources.len() >= self.resources.len(), "a resource table only grows");
        self.resources = resources;
    }

    /// Generation of the node table: slots of another one mean other nodes.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Length of the node table; slots of removed nodes count.
    pub fn slots(&self) -> Slot {
        self.slots
    }

    /// Chunks in slot order; the last one may reach beyond [`Self::slots`].
    pub fn chunks(&self) -> &Chunks {
        &self.chunks
    }

    /// Number of nodes.
    pub fn node_count(&self) -> u32 {
        self.nodes
    }

    /// The node at a slot.
    pub fn node(&self, slot: Slot) -> Option<&Arc<NodeEntry>> {
        let (chunk, offset) = place(slot);
        self.chunks.get(chunk)?.entry(offset)
    }

    /// The name of a slot, also while its node is away: when it comes back, it has its slot again.
    pub fn name_of(&self, slot: Slot) -> Option<Arc<str>> {
        match self.node(slot) {
            Some(entry) => Some(Arc::clone(&entry.record.name)),
            None => self.index.name(slot),
        }
    }

    /// The slot of a node that is there.
    pub fn slot_of(&self, name: &str) -> Option<Slot> {
        let slot = self.index.slot(name)?;
        (*self.node(slot)?.record.name == *name).then_some(slot)
    }

    /// The node of a name.
    pub fn node_named(&self, name: &str) -> Option<&Arc<NodeEntry>> {
        self.node(self.slot_of(name)?)
    }

    /// All nodes with their slots, by slot.
    pub fn nodes(&self) -> impl Iterator<Item = (Slot, &Arc<NodeEntry>)> {
        (0..).zip(self.chunks.iter()).flat_map(|(number, chunk): (Slot, _)| {
            chunk.live().iter().filter_map(move |offset| {
                let slot = number * CHUNK_SLOTS + Slot::try_from(offset).ok()?;
                Some((slot, chunk.entry(offset)?))
            })
        })
    }

    /// Position of each slot's node among all names, sorted: how ties break. Complete after [`Self::refresh_ranks`].
    pub fn ranks(&self) -> &[u32] {
        &self.ranks
    }

    /// Queues by name.
    pub fn queues(&self) -> &Table<Arc<Stored<QueueRecord>>> {
        &self.queues
    }

    /// Jobs by name.
    pub fn jobs(&self) -> &Table<Arc<Stored<JobRecord>>> {
        &self.jobs
    }

    /// Tasks by name.
    pub fn tasks(&self) -> &Table<Arc<Stored<TaskRecord>>> {
        &self.tasks
    }

    /// What the tasks of a job hold: those in Allocated, Binding, Bound and Running.
    pub fn job_allocated(&self, job: &str) -> Option<&Totals> {
        self.allocated.get(job).map(|totals| &**totals)
    }

    /// Who owns a record.
    pub fn source_of(&self, kind: Kind, name: &str) -> Option<&Arc<str>> {
        match kind {
            Kind::Node => self.node_named(name).map(|entry| &entry.source),
            Kind::Queue => self.queues.get(name).map(|stored| &*stored.source),
            Kind::Job => self.jobs.get(name).map(|stored| &*stored.source),
            Kind::Task => self.tasks.get(name).map(|stored| &*stored.source),
        }
    }

    /// Puts a node in the place of the one of its name. The name must be in the index; otherwise nothing changes and
    /// the answer is false.
    pub fn put_node(&mut self, record: Arc<NodeRecord>, source: &Arc<str>) -> bool {
        let Some(slot) = self.index.slot(&record.name) else {
            return false;
        };
        let usage = match self.node(slot) {
            Some(old) => old.usage.clone(),
            None => self
                .homeless
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
        self.nodes += u32::from(self.node(slot).is_none());
        let (chunk, offset) = place(slot);
        for number in self.chunks.len()..=chunk {
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            self.chunks.push(Arc::new(Chunk::at(number)));
        }
        if let Some(chunk) = self.chunks.get_mut(chunk) {
            Arc::make_mut(chunk).set_entry(offset, Some(entry));
        }
        self.slots = self.slots.max(slot + 1);
        self.share_columns(chunk);
        true
    }

    /// Lets a full chunk use the columns of a neighbour where they are equal.
    fn share_columns(&mut self, number: usize) {
        if self.chunks.get(number).is_none_or(|chunk| *chunk.live() != Mask::ALL) {
            return;
        }
        let neighbours = [number.checked_sub(1), Some(number + 1)].into_iter().flatten();
        let neighbours: SmallVec<[Arc<Chunk>; 2]> = neighbours
            .filter_map(|number| self.chunks.get(number).cloned())
            .collect();
        if let Some(chunk) = self.chunks.get_mut(number) {
            Arc::make_mut(chunk).share(&neighbours);
        }
    }

    /// Puts a node as it would stand in the place of the one at a slot; tasks do not follow.
    pub(crate) fn set_node(&mut self, slot: Slot, entry: Arc<NodeEntry>) {
        let (chunk, offset) = place(slot);
        if let Some(chunk) = self.chunks.get_mut(chunk) {
            Arc::make_mut(chunk).set_entry(offset, Some(entry));
        }
    }

    /// Counts tasks in the columns of a node, and nowhere else. False: nothing is done, they do not tell all of it.
    pub(crate) fn join(&mut self, slot: Slot, joining: &Joining, times: u32) -> bool {
        let (chunk, offset) = place(slot);
        let chunk = self.chunks.get_mut(chunk).map(Arc::make_mut);
        chunk.is_some_and(|chunk| chunk.join(offset, joining, times))
    }

    /// Takes a node away. What its tasks use is kept until it comes back.
    pub fn remove_node(&mut self, name: &str) -> bool {
        let Some(slot) = self.slot_of(name) else {
            return false;
        };
        if let Some(entry) = self.node(slot).filter(|entry| !entry.usage.is_empty()) {
            let usage = Arc::new(entry.usage.clone());
            self.homeless.insert(Arc::from(name), usage);
        }
        let (chunk, offset) = place(slot);
        if let Some(chunk) = self.chunks.get_mut(chunk) {
            Arc::make_mut(chunk).set_entry(offset, None);
            self.nodes -= 1;
        }
        true
    }

    /// Brings [`Self::ranks`] up to date; needed once after nodes were put whose names are new.
    pub fn refresh_ranks(&mut self) {
        if self.ranks.len() == self.slots as usize {
            return;
        }
        let mut names: Vec<(&str, Slot)> = self.nodes().map(|(slot, entry)| (&*entry.record.name, slot)).collect();
        names.sort_unstable();
        let mut ranks = vec![NO_RANK; self.slots as usize];
        for (rank, (_, slot)) in (0..).zip(names) {
            if let Some(place) = ranks.get_mut(slot as usize) {
                *place = rank;
            }
        }
        self.ranks = ranks.into();
    }

    /// The same state over another node table, which must have all its nodes.
    #[must_use]
    pub fn moved_to(&self, index: Arc<dyn NodeIndex>) -> Self {
        let mut moved = Self {
            index,
            generation: self.generation + 1,
            slots: 0,
            chunks: Chunks::default(),
            nodes: 0,
            ranks: Arc::default(),
            ..self.clone()
        };
        for (_, entry) in self.nodes() {
            moved.put_entry(Arc::clone(entry));
        }
        moved.refresh_ranks();
        moved
    }

    /// Puts a queue in the place of the one of its name.
    pub fn put_queue(&mut self, record: QueueRecord, source: &Arc<str>) {
        let stored = self.stored(record, source);
        self.queues.insert(Arc::clone(&stored.record.name), stored);
    }

    /// Takes a queue away.
    pub fn remove_queue(&mut self, name: &str) -> bool {
        self.queues.remove(name).is_some()
    }

    /// Puts a job in the place of the one of its name.
    pub fn put_job(&mut self, record: JobRecord, source: &Arc<str>) {
        let stored = self.stored(record, source);
        self.jobs.insert(Arc::clone(&stored.record.name), stored);
    }

    /// What the admission ledger holds, by job; the job may not be there.
    pub fn reservations(&self) -> &Table<Arc<Reservation>> {
        &self.reservations
    }

    /// Puts a reservation in the place of the one of its job.
    pub fn put_reservation(&mut self, row: Arc<Reservation>) {
        self.reservations.insert(Arc::clone(&row.job), row);
    }

    /// Takes a reservation away.
    pub fn remove_reservation(&mut self, job: &str) -> Option<Arc<Reservation>> {
        self.reservations.remove(job)
    }

    /// Takes a job away.
    pub fn remove_job(&mut self, name: &str) -> bool {
        self.jobs.remove(name).is_some()
    }

    /// Marks the record of a name, if there is one, as outdated by a refused one (`Some`), or as good again (`None`).
    pub fn set_invalid(&mut self, kind: Kind, name: &str, problems: Option<Faults>) {
        fn mark<R: Clone>(
            table: &mut Table<Arc<Stored<R>>>,
            name: &str,
            invalid: Option<Faults>,
            owners: &mut Arc<Vec<Owner>>,
        ) {
            let Some(old) = table.get(name) else { return };
            let source = match invalid {
                Some(faults) => old.source.refused(faults),
                None if old.invalid().is_none() => return,
                None => owner(owners, &old.source),
            };
            let marked = Stored {
                source,
                ..Stored::clone(old)
            };
            if let Some(place) = table.get_mut(name) {
                *place = Arc::new(marked);
            }
        }
        match kind {
            Kind::Node => self.change_node(name, |entry| entry.invalid = problems),
            Kind::Queue => mark(&mut self.queues, name, problems, &mut self.owners),
            Kind::Job => mark(&mut self.jobs, name, problems, &mut self.owners),
            Kind::Task => mark(&mut self.tasks, name, problems, &mut self.owners),
        }
    }

    /// Changes a node that is there.
    pub(crate) fn change_node(&mut self, name: &str, change: impl FnOnce(&mut NodeEntry)) {
        let Some(slot) = self.slot_of(name) else {
            return;
        };
        let (chunk, offset) = place(slot);
        let Some(chunk) = self.chunks.get_mut(chunk).map(Arc::make_mut) else {
            return;
        };
        if let Some(mut entry) = chunk.take_entry(offset) {
            change(Arc::make_mut(&mut entry));
            chunk.set_entry(offset, Some(entry));
        }
    }

    /// A record as it is kept.
    fn stored<R>(&mut self, record: R, source: &Arc<str>) -> Arc<Stored<R>> {
        let source = owner(&mut self.owners, source);
        Arc::new(Stored { record, source })
    }
}

/// The owner of a source's good records, who becomes known.
fn owner(owners: &mut Arc<Vec<Owner>>, source: &Arc<str>) -> Owner {
    let known = owners.iter().find(|owner| ***owner == *source).cloned();
    known.unwrap_or_else(|| {
        let owner = Owner::new(source);
        Arc::make_mut(owners).push(owner.clone());
        owner
    })
}

fn place(slot: Slot) -> (usize, usize) {
    (slot as usize / CHUNK, slot as usize % CHUNK)
}
