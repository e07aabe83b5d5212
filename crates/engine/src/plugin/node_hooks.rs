//! Hooks that evaluate nodes, prepared for one task class. They fill columns of one chunk at a time.

use smallvec::SmallVec;

use super::{ChunkScores, Measurement, PeerFilter, PeerScorer, Reason};
use crate::model::{NodeChunk, NodeMask, NodeSlot, Problem};

/// How a filter that judges all tasks of a template by the first one finds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TemplateRule {
    /// Annotation that names the template of a task.
    pub annotation: &'static str,
    /// True if a task whose required terms name no node in common is refused before, and tells nothing of its template.
    pub skips_conflicts: bool,
}

/// Largest number of parts that a plugin's score may have.
pub const MAX_PARTS: usize = 8;

/// Numbers that a hook reads or gathers.
pub type HookNumbers = SmallVec<[u64; 6]>;

/// Hook that is prepared for one task class.
pub type PreparedHook<H> = Result<Option<Box<H>>, Problem>;

/// Prepared score of one task class.
pub trait NodeScorer {
    /// Names of the score's parts in the order of their sum, at most [`MAX_PARTS`]; one empty name: the whole plugin.
    fn parts(&self) -> &[&'static str] {
        &[""]
    }

    /// Fills one column per part. Places without a node may get any finite value.
    fn score(&self, chunk: &NodeChunk, parts: &mut [ChunkScores]);

    /// Number of leading parts that the reference sums node by node over all plugins. It sums the parts after them,
    /// which it computes for all candidates together, also over all plugins, and adds that sum at the end.
    fn node_parts(&self) -> usize {
        MAX_PARTS
    }

    /// True if scores depend on the candidates, such as a score relative to the best candidate. The caller then passes
    /// all candidates to [`Self::survey`] and calls [`Self::finish_survey`] before it computes scores.
    fn needs_survey(&self) -> bool {
        false
    }

    /// Sees the candidates of one chunk of the cluster state. Returns the numbers that the survey took from them, if they are
    /// all that it took: [`Self::survey_again`] takes them instead of the chunk.
    fn survey(&mut self, chunk: &NodeChunk, candidates: &NodeMask) -> Option<HookNumbers> {
        let _ = (chunk, candidates);
        None
    }

    /// Sees the candidates of a chunk by the numbers that [`Self::survey`] took from them.
    fn survey_again(&mut self, numbers: &[u64]) {
        let _ = numbers;
    }

    /// Ends the survey.
    ///
    /// # Errors
    /// The candidates cannot be scored.
    fn finish_survey(&mut self) -> Result<(), Problem> {
        Ok(())
    }

    /// Inputs of the scores that are not in the chunk, read after the survey. `Some`: the scores of a chunk depend only
    /// on the chunk, the class, the policy, the table of resource names, and these numbers. A caller may then reuse
    /// scores of the same chunk. `None`: the scores have further inputs.
    fn outside_inputs(&self) -> Option<HookNumbers> {
        None
    }

    /// Removes a surveyed node from the candidates. Returns true if this changes the scores of other nodes: the caller
    /// then surveys the candidates again.
    fn leave(&self, slot: NodeSlot) -> bool {
        let _ = slot;
        false
    }

    /// Splits off the parts that depend on other nodes or on the candidates, each with its weight: from then on the scorer has
    /// only the other parts, and needs no survey.
    fn split_peers(&mut self) -> Vec<(i64, Box<dyn PeerScorer>)> {
        Vec::new()
    }

    /// Leaves out the parts that [`Self::split_peers`] splits off, and returns their number.
    fn drop_peers(&mut self) -> usize {
        self.split_peers().len()
    }

    /// Bounds of the plugin's score; a queried node outside them makes the task fail. `None`: no score can leave its
    /// bounds.
    fn range(&self) -> Option<(f64, f64)> {
        None
    }

    /// Warnings about the class, such as an annotation that the reference ignores.
    fn warnings(&self) -> Vec<Problem> {
        Vec::new()
    }
}

/// Prepared filter of one task class.
pub trait NodeFilter {
    /// Evaluates the nodes of the chunk that are in `among`. Returns the rejected nodes, and records a reason for each
    /// if reasons are read.
    fn filter(&self, chunk: &NodeChunk, among: &NodeMask, verdicts: &mut ChunkRejections) -> NodeMask;

    /// Inputs of the verdicts that are not in the chunk. `Some`: the verdicts on a chunk depend only on the chunk, the
    /// class, the policy, the table of resource names, `after_release`, and these numbers. A caller may then reuse
    /// verdicts on the same chunk. `None`: the verdicts have further inputs. A plugin with such a filter for a class
    /// must have it on every state with the same table of names.
    fn outside_inputs(&self) -> Option<HookNumbers> {
        None
    }

    /// Splits off the checks that depend on other nodes. The filter no longer performs them.
    fn split_peers(&mut self) -> Vec<Box<dyn PeerFilter>> {
        Vec::new()
    }

    /// Reason of this number, without measurements.
    fn reason(&self, number: u16) -> Reason;

    /// True if the filter rejects nodes for reasons that evictions cannot remove, such as a taint. Such a reason has
    /// precedence over a reason that evictions can remove.
    fn has_lasting_reasons(&self) -> bool {
        false
    }

    /// Measurements that a reason compared at one node, in the order of its message.
    fn measurements(&self, chunk: &NodeChunk, offset: usize, number: u16) -> Vec<Measurement>;
}

/// Rejected nodes of one chunk, grouped by the number of the filter's reason.
#[derive(Clone, Debug, Default)]
pub struct ChunkRejections {
    groups: SmallVec<[(u16, NodeMask); 8]>,
    ignore_reasons: bool,
}

impl ChunkRejections {
    /// Rejections for a caller that reads only which nodes are rejected.
    pub fn without_reasons() -> Self {
        Self {
            ignore_reasons: true,
            ..Self::default()
        }
    }

    /// True if reasons are not read. The filter then need not determine them.
    pub fn ignores_reasons(&self) -> bool {
        self.ignore_reasons
    }

    /// Records that these nodes are rejected for this reason. A filter that collects reasons, as the reference does, may
    /// record a node for several; others record it for one.
    pub fn reject(&mut self, number: u16, nodes: &NodeMask) {
        if self.ignore_reasons || nodes.is_empty() {
            return;
        }
        match self.groups.iter_mut().find(|(other, _)| *other == number) {
            Some((_, group)) => *group = group.or(nodes),
            None => self.groups.push((number, *nodes)),
        }
    }

    /// Removes and returns the groups of rejected nodes.
    pub fn drain(&mut self) -> impl Iterator<Item = (u16, NodeMask)> + '_ {
        self.groups.drain(..)
    }
}
