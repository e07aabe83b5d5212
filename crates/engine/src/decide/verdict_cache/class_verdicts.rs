//! Verdicts of one task class, and what they belong to.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Weak};

use crate::decide::query::ResourceFit;
use crate::decide::rejections::SliceRejection;
use crate::model::{NodeChunk, NodeMask, ResourceTable, TaskClass};
use crate::plugin::{ChunkScores, HookNumbers};
use crate::policy::Policy;

/// Tasks that verdicts are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::decide) enum JudgedTasks {
    /// Tasks that ask for nodes: all candidates are scored.
    Unfiltered,
    /// Tasks that ask for nodes that pass the filters.
    Filtered,
    /// Tasks that get a place on idle amounts, or on amounts that are being released.
    Placed {
        /// True for amounts that are being released.
        after_release: bool,
    },
}

/// Parts of a query that identify its verdicts.
#[derive(Clone, Copy, Debug)]
pub(super) struct VerdictKey<'q> {
    pub(super) policy: &'q Arc<Policy>,
    pub(super) lineage: &'q str,
    pub(super) plugins: &'q [Arc<str>],
    pub(super) resource_fit: ResourceFit,
    pub(super) tasks: JudgedTasks,
    pub(super) class: &'q TaskClass,
}

/// Key of stored verdicts. It does not keep the policy in memory, and no other policy gets its address meanwhile.
#[derive(Debug)]
pub(super) struct StoredKey {
    policy: Weak<Policy>,
    lineage: Box<str>,
    plugins: Vec<Arc<str>>,
    resource_fit: ResourceFit,
    tasks: JudgedTasks,
    class: TaskClass,
}

impl VerdictKey<'_> {
    /// Number that equal keys have in common.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let Self {
            policy,
            lineage,
            plugins,
            resource_fit,
            tasks,
            class,
        } = *self;
        (Arc::as_ptr(policy).addr(), lineage, plugins).hash(&mut hasher);
        (resource_fit as u8, tasks, class).hash(&mut hasher);
        // 0 marks an empty place.
        hasher.finish().max(1)
    }

    /// True if these are verdicts of this key.
    pub(super) fn is_of(&self, verdicts: &ClassVerdicts) -> bool {
        let stored = &*verdicts.key;
        std::ptr::eq(stored.policy.as_ptr(), Arc::as_ptr(self.policy))
            && *stored.lineage == *self.lineage
            && stored.plugins == self.plugins
            && (stored.resource_fit, stored.tasks) == (self.resource_fit, self.tasks)
            && stored.class == *self.class
    }

    pub(super) fn to_stored(self) -> StoredKey {
        StoredKey {
            policy: Arc::downgrade(self.policy),
            lineage: self.lineage.into(),
            plugins: self.plugins.to_vec(),
            resource_fit: self.resource_fit,
            tasks: self.tasks,
            class: self.class.clone(),
        }
    }
}

/// Verdicts of a class on the chunks of cluster states. A value never changes; the next one shares the rows of chunks that
/// are the same.
#[derive(Debug)]
pub(super) struct ClassVerdicts {
    pub(super) key: Arc<StoredKey>,
    /// Table of resource names that the hooks read. It may go: its ids may then get other names, but no other table has its
    /// address.
    pub(super) resources: Weak<ResourceTable>,
    /// Inputs of the filters from outside of chunks.
    pub(super) filter_inputs: Vec<u64>,
    /// Inputs of the scores from outside of chunks.
    pub(super) score_inputs: Vec<u64>,
    /// Version of the score inputs in the history of the rows.
    pub(super) score_version: u64,
    /// Verdicts by number of the chunk.
    pub(super) rows: Vec<Option<Arc<ChunkVerdict>>>,
}

impl ClassVerdicts {
    /// Bytes that the verdicts hold, with what weak pointers hold.
    pub(super) fn bytes(&self) -> usize {
        let rows = self.rows.iter().flatten().map(|row| row.bytes());
        let inputs = (self.filter_inputs.len() + self.score_inputs.len()) * size_of::<u64>();
        let rows = size_of_val(&*self.rows) + rows.sum::<usize>();
        size_of::<Self>() + size_of::<StoredKey>() + size_of::<ResourceTable>() + inputs + rows + self.key.bytes()
    }
}

impl StoredKey {
    /// Bytes of the lists and texts.
    fn bytes(&self) -> usize {
        let texts = |texts: &[(Arc<str>, Arc<str>)]| -> usize {
            let pairs = texts.iter().map(|(name, text)| name.len() + text.len() + 64);
            pairs.sum()
        };
        let class = &self.class;
        let pod = class.pod.as_ref().map_or(0, |pod| texts(&pod.labels));
        let constraints = class.constraints.iter().chain(&class.template_constraints);
        let constraints: usize = constraints.map(|own| own.text_bytes()).sum();
        self.lineage.len() + size_of_val(&*class.requested) + texts(&class.annotations) + pod + constraints
    }
}

/// Verdict of a class on the nodes of one chunk.
#[derive(Clone, Debug)]
pub(super) struct ChunkVerdict {
    /// Evaluated chunk. While this pointer exists, no other chunk has its address, and its chunk never changes.
    chunk: Weak<NodeChunk>,
    pub(super) filtered: Arc<FilteredChunk>,
    /// Numbers that the scorers took from the nodes that pass, scorer by scorer.
    pub(super) survey: Option<Arc<[HookNumbers]>>,
    pub(super) scored: Option<Arc<ScoredChunk>>,
}

impl ChunkVerdict {
    pub(super) fn new(chunk: &Arc<NodeChunk>, filtered: FilteredChunk) -> Self {
        Self {
            chunk: Arc::downgrade(chunk),
            filtered: Arc::new(filtered),
            survey: None,
            scored: None,
        }
    }

    /// True if the verdict is about this very chunk.
    pub(super) fn is_of(&self, chunk: &NodeChunk) -> bool {
        std::ptr::eq(self.chunk.as_ptr(), chunk)
    }

    fn bytes(&self) -> usize {
        let survey = self.survey.as_deref().map_or(0, size_of_val);
        let scored = self.scored.as_ref().map_or(0, |_| size_of::<ScoredChunk>());
        let rejections = size_of_val(&*self.filtered.rejections);
        size_of::<Self>() + size_of::<NodeChunk>() + size_of::<FilteredChunk>() + rejections + survey + scored
    }
}

/// Filters of a class on one chunk.
#[derive(Debug)]
pub(in crate::decide) struct FilteredChunk {
    /// Nodes that pass.
    pub(in crate::decide) passed: NodeMask,
    pub(in crate::decide) rejections: Box<[SliceRejection]>,
}

/// Scores of a class on one chunk.
#[derive(Debug)]
pub(in crate::decide) struct ScoredChunk {
    /// Sums over plugins.
    pub(in crate::decide) totals: ChunkScores,
    /// Place of the best node that passes. The order of names never changes in a chunk, so it stays the best one.
    pub(in crate::decide) head: usize,
    /// Number of the inputs that the scores are of.
    pub(super) version: u64,
}
