//! Rankings of nodes during a cycle: a class of tasks is evaluated on all nodes once, and then only on changed nodes.

use std::sync::Arc;

use pumice_kernels::selection::best_totals;

use super::choose::NodeChooser;
use super::lookahead::{LookaheadBatch, LookaheadSpare};
use super::pass::{ArrivingTask, PlacePass};
use super::peers::{OwnScore, PeerHooks};
use super::ranking::rank_score;
use crate::decide::candidates::NodeCandidates;
use crate::decide::class_scorers::ScoreScratch;
use crate::decide::classes::ClassLookup;
use crate::model::{
    CHUNK_SIZE, ClusterState, NodeMask, NodeSlot, Problem, StoredRecord, TaskClass, TaskRecord, TaskStatus,
};
use crate::plugin::{ChunkScores, PeerKey, PluginContext};
use crate::policy::Policy;

/// Bytes that rankings may hold, about.
const MAX_BYTES: usize = 64 << 20;

/// Rankings by class.
#[derive(Default)]
pub(crate) struct NodeRankings {
    /// Rankings in the order of the keys of their classes.
    classes: Vec<ClassRanking>,
    spare: LookaheadSpare,
}

/// Best node with enough idle, by a ranking.
pub(crate) enum IdleChoice {
    /// Best node.
    Node(NodeSlot),
    /// No node passes every filter with enough idle.
    NoneIdle,
    /// Several nodes pass, and a plugin cannot score them for the task.
    Unscored(Problem),
    /// The class has no ranking: its nodes must be evaluated again.
    Unranked,
}

/// Ranking of the nodes for one class of tasks.
struct ClassRanking {
    /// First task of the class.
    first: Arc<StoredRecord<TaskRecord>>,
    class: TaskClass,
    arriving_task: ArrivingTask,
    /// Verdicts; `None`: they depend on more than the nodes' own states.
    verdicts: Option<NodeVerdicts>,
    /// Number of changes that the verdicts show.
    seen: usize,
}

/// Verdicts on all nodes.
struct NodeVerdicts {
    hooks: PeerHooks,
    /// Keys of peers, each with the number of candidates.
    peers: Vec<(PeerKey, usize)>,
    chunks: Vec<RankedChunk>,
}

/// Verdicts on the nodes of one chunk.
struct RankedChunk {
    /// Nodes that pass with enough idle.
    candidates: NodeMask,
    /// Nodes that passed once: their records pass.
    known: NodeMask,
    /// Scores from the node's own state: the sum of the parts that are summed node by node, and the sum of the other
    /// parts.
    by_node: ChunkScores,
    batch: ChunkScores,
    /// Number of the peers of each node.
    homes: [u32; CHUNK_SIZE],
}

impl NodeChooser<'_> {
    /// Best of the nodes with enough idle for a task. `changes` are the slots of all nodes that changed since the rankings
    /// were made, in the order of the changes.
    pub(crate) fn best_idle(
        &self,
        rankings: &mut NodeRankings,
        context: PluginContext<'_>,
        task: &Arc<StoredRecord<TaskRecord>>,
        changes: &[NodeSlot],
    ) -> IdleChoice {
        let lookup = ClassLookup::of(context.cluster_state, self.policy, &[]);
        let asked = lookup.key(&task.record, None);
        let classes = &rankings.classes;
        let found = classes.binary_search_by(|own| lookup.key(&own.first.record, None).cmp(&asked));
        let at = found.unwrap_or_else(|at| {
            let most = MAX_BYTES / (size_of::<RankedChunk>() * context.cluster_state.chunks().len().max(1));
            if rankings.classes.len() > most {
                rankings.classes.clear();
            }
            let at = at.min(rankings.classes.len());
            let ranking = ClassRanking::new(context, self.policy, &lookup, task, changes.len());
            rankings.classes.insert(at, ranking);
            at
        });
        let Some(ranking) = rankings.classes.get_mut(at) else {
            return IdleChoice::Unranked;
        };
        ranking.follow(context, self.policy, changes, &mut rankings.spare);
        let verdicts = ranking.verdicts.as_mut();
        verdicts.map_or(IdleChoice::Unranked, |verdicts| verdicts.best(context.cluster_state))
    }
}

impl ClassRanking {
    fn new(
        context: PluginContext<'_>,
        policy: &Policy,
        lookup: &ClassLookup<'_>,
        task: &Arc<StoredRecord<TaskRecord>>,
        seen: usize,
    ) -> Self {
        let state = context.cluster_state;
        let class = lookup.class_of(&task.record, state.resources());
        let arriving_task = ArrivingTask::new(&task.record, TaskStatus::Allocated, policy);
        let verdicts = if lookup.is_judged_by_columns(&class) {
            NodeVerdicts::new(context, policy, &class, &arriving_task)
        } else {
            None
        };
        Self {
            first: Arc::clone(task),
            class,
            arriving_task,
            verdicts,
            seen,
        }
    }

    /// Evaluates the changed nodes.
    fn follow(
        &mut self,
        context: PluginContext<'_>,
        policy: &Policy,
        changes: &[NodeSlot],
        spare: &mut LookaheadSpare,
    ) {
        let Some(verdicts) = &mut self.verdicts else { return };
        let new = changes.get(self.seen..).unwrap_or_default();
        self.seen = changes.len();
        if !new.is_empty() && !verdicts.judge_changed(context, policy, &self.class, &self.arriving_task, new, spare) {
            self.verdicts = None;
        }
    }
}

impl NodeVerdicts {
    /// Verdicts on all nodes; `None`: they depend on more than the nodes' own states.
    fn new(context: PluginContext<'_>, policy: &Policy, class: &TaskClass, arriving: &ArrivingTask) -> Option<Self> {
        let state = context.cluster_state;
        let mut pass = PlacePass::of_idle(context, policy, class, arriving).ok()?;
        if !state.has_no_terms() || pass.rescores_all() {
            return None;
        }
        let hooks = pass.split_peers();
        if !hooks.are_static() {
            return None;
        }
        let empty = |_| RankedChunk {
            candidates: NodeMask::NONE,
            known: NodeMask::NONE,
            by_node: [f64::NEG_INFINITY; CHUNK_SIZE],
            batch: [0.0; CHUNK_SIZE],
            homes: [0; CHUNK_SIZE],
        };
        let mut verdicts = Self {
            hooks,
            peers: Vec::new(),
            chunks: state.chunks().iter().map(empty).collect(),
        };
        let mut scratch = ScoreScratch::new();
        for slice in &NodeCandidates::of(state, None).slices {
            verdicts.find_peers(slice.first_slot, &slice.candidates);
            let (passed, exact) = pass.score_chunk_apart(slice.chunk, &slice.candidates, &mut scratch);
            for offset in passed.iter() {
                verdicts.set(slice.slot(offset), Some(scratch.score_apart(offset)));
            }
            if !exact {
                return None;
            }
        }
        Some(verdicts)
    }

    /// Finds the peers of the nodes of a chunk.
    fn find_peers(&mut self, first_slot: NodeSlot, nodes: &NodeMask) {
        let Some(chunk) = self.chunks.get_mut(first_slot as usize / CHUNK_SIZE) else {
            return;
        };
        let mut key = PeerKey::new();
        for (slot, (offset, home)) in (first_slot..).zip(chunk.homes.iter_mut().enumerate()) {
            if !nodes.get(offset) {
                continue;
            }
            self.hooks.key_of(slot, &mut key);
            let known = self.peers.iter().position(|(own, _)| *own == key);
            let number = known.unwrap_or_else(|| {
                self.peers.push((key.clone(), 0));
                self.peers.len() - 1
            });
            *home = u32::try_from(number).unwrap_or(u32::MAX);
        }
    }

    /// Sets the verdict on a node: its score, or `None` if it does not pass.
    fn set(&mut self, slot: NodeSlot, score: Option<OwnScore>) {
        let (number, offset) = (slot as usize / CHUNK_SIZE, slot as usize % CHUNK_SIZE);
        let Some(chunk) = self.chunks.get_mut(number) else {
            return;
        };
        let home = chunk.homes.get(offset).copied().unwrap_or(0) as usize;
        if let Some((_, count)) = self.peers.get_mut(home) {
            *count -= usize::from(chunk.candidates.get(offset));
            *count += usize::from(score.is_some());
        }
        chunk.candidates.set(offset, score.is_some());
        if score.is_some() {
            chunk.known.set(offset, true);
        }
        let (by_node, batch) = score.unwrap_or((f64::NEG_INFINITY, 0.0));
        if let Some(place) = chunk.by_node.get_mut(offset) {
            *place = by_node;
        }
        if let Some(place) = chunk.batch.get_mut(offset) {
            *place = batch;
        }
    }

    /// Evaluates changed nodes again. Returns false if their verdicts depend on more than their own states.
    fn judge_changed(
        &mut self,
        context: PluginContext<'_>,
        policy: &Policy,
        class: &TaskClass,
        arriving: &ArrivingTask,
        changes: &[NodeSlot],
        spare: &mut LookaheadSpare,
    ) -> bool {
        let state = context.cluster_state;
        let Ok(mut pass) = PlacePass::of_idle(context, policy, class, arriving) else {
            return false;
        };
        if !state.has_no_terms() || pass.drop_peers() != self.hooks.len() {
            return false;
        }
        let mut masks = vec![NodeMask::NONE; self.chunks.len()];
        for slot in changes {
            if let Some(mask) = masks.get_mut(*slot as usize / CHUNK_SIZE) {
                mask.set(*slot as usize % CHUNK_SIZE, true);
            }
        }
        self.judge_known(&pass, &masks, spare) && self.judge_others(&pass, state, &masks)
    }

    /// Evaluates changed nodes whose records pass, many of them in one hypothetical chunk.
    fn judge_known(&mut self, pass: &PlacePass<'_>, masks: &[NodeMask], spare: &mut LookaheadSpare) -> bool {
        let known = self.chunks.iter().zip(masks).map(|(chunk, mask)| chunk.known.and(mask));
        let slots = (0..).step_by(CHUNK_SIZE).zip(known).flat_map(|(first, mask)| {
            let offsets = mask.iter();
            offsets.filter_map(move |offset| Some(first + NodeSlot::try_from(offset).ok()?))
        });
        let slots: Vec<NodeSlot> = slots.collect();
        if slots.is_empty() {
            return true;
        }
        let mut batch = LookaheadBatch::with_spare(pass, spare);
        let mut exact = true;
        for some in slots.chunks(CHUNK_SIZE) {
            batch.clear();
            for slot in some {
                batch.add_present(*slot);
            }
            exact &= batch.score_apart(pass, |slot, score| self.set(slot, score));
        }
        *spare = batch.into_spare();
        exact
    }

    /// Evaluates the other changed nodes, chunk by chunk.
    fn judge_others(&mut self, pass: &PlacePass<'_>, state: &ClusterState, masks: &[NodeMask]) -> bool {
        let mut scratch = None;
        for (number, mask) in masks.iter().enumerate() {
            let (Some(own), Some(chunk)) = (self.chunks.get(number), state.chunks().get(number)) else {
                continue;
            };
            let among = mask.and_not(&own.known).and(chunk.live());
            if among.is_empty() {
                continue;
            }
            let scratch = scratch.get_or_insert_with(ScoreScratch::new);
            let (passed, exact) = pass.score_chunk_apart(chunk, &among, scratch);
            for offset in passed.iter() {
                if let Some(slot) = chunk.slot(offset) {
                    self.set(slot, Some(scratch.score_apart(offset)));
                }
            }
            if !exact {
                return false;
            }
        }
        true
    }

    /// Best candidate: the highest total, then the first name.
    fn best(&mut self, state: &ClusterState) -> IdleChoice {
        let count: usize = self.peers.iter().map(|(_, count)| count).sum();
        if count == 0 {
            return IdleChoice::NoneIdle;
        }
        // The reference does not score a node that has no competitor.
        if count == 1 {
            let numbered = (0..).step_by(CHUNK_SIZE).zip(&self.chunks);
            let mut only = numbered.filter_map(|(first, chunk)| {
                let offset = chunk.candidates.iter().next()?;
                Some(first + NodeSlot::try_from(offset).ok()?)
            });
            return only.next().map_or(IdleChoice::NoneIdle, IdleChoice::Node);
        }
        let there = self.peers.iter().filter(|(_, count)| *count > 0);
        if let Err(problem) = self.hooks.survey(&there.map(|(key, count)| (&**key, *count))) {
            return IdleChoice::Unscored(problem);
        }
        let points = self.peers.iter().map(|(key, count)| {
            let of_key = || self.hooks.points(key);
            if *count > 0 { of_key() } else { Some(0.0) }
        });
        let Some(points) = points.collect::<Option<Vec<f64>>>() else {
            return IdleChoice::Unranked;
        };
        self.best_with(&points, state.ranks())
    }

    /// Best candidate with the points of all peers.
    fn best_with(&self, points: &[f64], ranks: &[u32]) -> IdleChoice {
        let first_points = points.first().copied().unwrap_or(0.0);
        let is_uniform = points.iter().all(|own| *own == first_points);
        let mut of_nodes = [first_points; CHUNK_SIZE];
        let mut totals = [0.0; CHUNK_SIZE];
        let mut best: Option<(u64, u32, NodeSlot)> = None;
        for (first, chunk) in (0..).step_by(CHUNK_SIZE).zip(&self.chunks) {
            if chunk.candidates.is_empty() {
                continue;
            }
            if !is_uniform {
                for (place, home) in of_nodes.iter_mut().zip(&chunk.homes) {
                    *place = points.get(*home as usize).copied().unwrap_or(0.0);
                }
            }
            let (most, nodes) = best_totals(&chunk.by_node, &chunk.batch, &of_nodes, &mut totals);
            let score = rank_score(most);
            if best.is_some_and(|(other, ..)| other < score) {
                continue;
            }
            for offset in nodes.and(&chunk.candidates).iter() {
                let slot = NodeSlot::try_from(offset).map_or(first, |offset| first + offset);
                let rank = ranks.get(slot as usize).copied().unwrap_or(u32::MAX);
                let own = (score, rank, slot);
                best = Some(best.map_or(own, |best| best.min(own)));
            }
        }
        best.map_or(IdleChoice::Unranked, |(_, _, slot)| IdleChoice::Node(slot))
    }
}
