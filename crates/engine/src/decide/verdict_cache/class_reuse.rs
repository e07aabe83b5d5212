//! Verdicts of one class in one query: reused verdicts, and computed verdicts to store.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::class_verdicts::{
    ChunkVerdict, ClassVerdicts, FilteredChunk, JudgedTasks, ScoredChunk, StoredKey, VerdictKey,
};
use super::{VerdictCache, VerdictReuse};
use crate::decide::candidates::ChunkSlice;
use crate::decide::hook_inputs::HookInputs;
use crate::decide::query::NodeQuery;
use crate::decide::rejections::SliceRejection;
use crate::model::{CHUNK_SIZE, ClusterState, NodeMask, TaskClass};
use crate::plugin::{ChunkScores, HookNumbers};
use crate::policy::Policy;

/// Verdicts of one class in one query.
pub(in crate::decide) struct ClassReuse<'a> {
    cache: &'a VerdictCache,
    state: &'a ClusterState,
    fingerprint: u64,
    key: Arc<StoredKey>,
    /// Stored verdicts whose filters have the same inputs.
    older: Option<Arc<ClassVerdicts>>,
    filter_inputs: HookInputs,
    /// Inputs of the scores that the query stores; `None`: it uses and stores no scores.
    score_inputs: Option<HookInputs>,
    score_version: u64,
    /// New verdicts by number of the chunk.
    changed: BTreeMap<usize, ChunkVerdict>,
    reused: u64,
    judged: u64,
}

impl<'a> VerdictReuse<'a> {
    /// Verdicts of a class whose filters have these inputs; `None`: they are not stored.
    pub(in crate::decide) fn open(
        self,
        state: &'a ClusterState,
        policy: &Policy,
        query: &NodeQuery,
        tasks: JudgedTasks,
        class: &TaskClass,
        filter_inputs: Option<HookInputs>,
    ) -> Option<ClassReuse<'a>> {
        let filter_inputs = filter_inputs?;
        // The place of the best node needs complete ranks.
        if !std::ptr::eq(Arc::as_ptr(self.policy), policy) || state.ranks().len() != state.slots() as usize {
            return None;
        }
        let key = VerdictKey {
            policy: self.policy,
            lineage: self.lineage,
            plugins: &query.plugins,
            resource_fit: query.resource_fit,
            tasks,
            class,
        };
        let fingerprint = key.fingerprint();
        let found = self.cache.find(&key, fingerprint);
        if found.is_none() && !self.cache.was_asked(fingerprint) {
            return None;
        }
        let stored = found.as_ref().map(|found| Arc::clone(&found.key));
        let is_same = |found: &Arc<ClassVerdicts>| {
            std::ptr::eq(found.resources.as_ptr(), Arc::as_ptr(state.resources()))
                && found.filter_inputs == filter_inputs.0
        };
        Some(ClassReuse {
            cache: self.cache,
            state,
            fingerprint,
            key: stored.unwrap_or_else(|| Arc::new(key.to_stored())),
            older: found.filter(is_same),
            filter_inputs,
            score_inputs: None,
            score_version: 0,
            changed: BTreeMap::new(),
            reused: 0,
            judged: 0,
        })
    }
}

/// Number of a slice's chunk.
fn number(slice: &ChunkSlice<'_>) -> usize {
    slice.first_slot as usize / CHUNK_SIZE
}

/// True if all nodes of the chunk are candidates.
fn is_whole(slice: &ChunkSlice<'_>) -> bool {
    slice.candidates == *slice.chunk.live()
}

impl ClassReuse<'_> {
    /// Verdict on the chunk of a slice, if all its nodes are candidates.
    fn row(&self, slice: &ChunkSlice<'_>) -> Option<&ChunkVerdict> {
        if !is_whole(slice) {
            return None;
        }
        if let Some(new) = self.changed.get(&number(slice)) {
            return Some(new);
        }
        let old = self.older.as_ref()?.rows.get(number(slice))?.as_deref();
        old.filter(|old| old.is_of(slice.chunk))
    }

    /// Verdict of [`Self::row`], to be changed; `None`: the filters were not stored.
    fn row_mut(&mut self, slice: &ChunkSlice<'_>) -> Option<&mut ChunkVerdict> {
        if !self.changed.contains_key(&number(slice)) {
            let old = self.row(slice)?.clone();
            self.changed.insert(number(slice), old);
        }
        self.changed.get_mut(&number(slice)).filter(|_| is_whole(slice))
    }

    /// Filters of a chunk.
    pub(in crate::decide) fn filtered(&self, slice: &ChunkSlice<'_>) -> Option<&FilteredChunk> {
        Some(&self.row(slice)?.filtered)
    }

    /// Stores the filters of a chunk.
    pub(in crate::decide) fn put_filtered(
        &mut self,
        slice: &ChunkSlice<'_>,
        passed: NodeMask,
        rejections: &[SliceRejection],
    ) {
        if let Some(chunk) = self.state.chunks().get(number(slice)).filter(|_| is_whole(slice)) {
            let filtered = FilteredChunk {
                passed,
                rejections: rejections.into(),
            };
            self.changed.insert(number(slice), ChunkVerdict::new(chunk, filtered));
            self.judged += 1;
        }
    }

    /// Numbers that the scorers took from a chunk.
    pub(in crate::decide) fn surveyed(&self, slice: &ChunkSlice<'_>) -> Option<&[HookNumbers]> {
        self.row(slice)?.survey.as_deref()
    }

    /// Stores the numbers that the scorers took from a chunk.
    pub(in crate::decide) fn put_survey(&mut self, slice: &ChunkSlice<'_>, numbers: Vec<HookNumbers>) {
        if let Some(row) = self.row_mut(slice) {
            row.survey = Some(numbers.into());
        }
    }

    /// Sets the inputs of the scores from outside of chunks, before any score is read; `None`: no score is stored.
    pub(in crate::decide) fn set_score_inputs(&mut self, inputs: Option<HookInputs>) {
        let older = self
            .older
            .as_ref()
            .map(|older| (&older.score_inputs, older.score_version));
        self.score_version = match (older, &inputs) {
            (Some((old, version)), Some(new)) if *old == new.0 => version,
            (older, _) => older.map_or(1, |(_, version)| version + 1),
        };
        self.score_inputs = inputs;
    }

    /// Scores of a chunk.
    pub(in crate::decide) fn scored(&self, slice: &ChunkSlice<'_>) -> Option<&ScoredChunk> {
        self.score_inputs.as_ref()?;
        let scored = self.row(slice)?.scored.as_deref()?;
        (scored.version == self.score_version).then_some(scored)
    }

    /// True if the scores of a chunk can be stored.
    pub(in crate::decide) fn stores_scores(&self, slice: &ChunkSlice<'_>) -> bool {
        self.score_inputs.is_some() && is_whole(slice)
    }

    /// Stores the scores of a chunk, and the place of the best node that passes.
    pub(in crate::decide) fn put_scores(&mut self, slice: &ChunkSlice<'_>, totals: &ChunkScores, head: usize) {
        let version = self.score_version;
        if !self.stores_scores(slice) {
            return;
        }
        if let Some(row) = self.row_mut(slice) {
            row.scored = Some(Arc::new(ScoredChunk {
                totals: *totals,
                head,
                version,
            }));
            self.judged += 1;
        }
    }

    /// Adds a chunk with reused filters or scores to the statistics.
    pub(in crate::decide) fn count_reused(&mut self) {
        self.reused += 1;
    }

    /// Stores the new verdicts beside the older ones of chunks that are the same.
    pub(in crate::decide) fn finish(self) {
        self.cache.count_chunks(self.reused, self.judged);
        if self.changed.is_empty() {
            return;
        }
        let older = self.older.as_ref();
        let mut rows = older.map_or_else(Vec::new, |older| older.rows.clone());
        rows.resize(self.state.chunks().len(), None);
        for (number, row) in self.changed {
            if let Some(place) = rows.get_mut(number) {
                *place = Some(Arc::new(row));
            }
        }
        // A query that reads no scores leaves those that are stored as they are.
        let (score_inputs, score_version) = match (self.score_inputs, older) {
            (Some(inputs), _) => (inputs.0, self.score_version),
            (None, Some(older)) => (older.score_inputs.clone(), older.score_version),
            (None, None) => (Vec::new(), 0),
        };
        let verdicts = ClassVerdicts {
            key: self.key,
            resources: Arc::downgrade(self.state.resources()),
            filter_inputs: self.filter_inputs.0,
            score_inputs,
            score_version,
            rows,
        };
        self.cache.store(self.fingerprint, verdicts);
    }
}
