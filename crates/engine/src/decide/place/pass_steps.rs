//! Steps of a pass: the best node takes a task, and then the best node after that.

use super::admission::GroupAdmitter;
use super::pass::PlacePass;
use super::peer_picker::PeerPicker;
use super::peers::{PeerChoice, PeerRanking};
use super::picker::{NodePicker, NodeTaskCounts};
use super::ranking::NodeRanking;
use crate::decide::candidates::NodeCandidates;
use crate::model::{NodeSlot, Problem};

/// Number of tasks between two checks for cancellation.
const CANCEL_CHECK_INTERVAL: usize = 256;

/// Reason why a pass ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlacePassEnd {
    /// Every task of the group is placed.
    AllPlaced,
    /// No node has enough in this gradient.
    NoNodeLeft,
    /// Admission rejects the next task, or the nodes must be evaluated again.
    Rejudge,
    /// The execution was cancelled.
    Cancelled,
    /// Sums of scores are not exact: all nodes must be evaluated again after each task.
    Inexact,
}

impl PlacePassEnd {
    /// End after a step that no other may follow at once.
    fn of_last_step(admitter: &GroupAdmitter<'_>, count: usize) -> Self {
        if admitter.placed_count == count {
            Self::AllPlaced
        } else {
            Self::Rejudge
        }
    }
}

impl PlacePass<'_> {
    /// Places up to `count` tasks. `put` receives each placement and returns whether the next task may follow at once.
    pub(super) fn place_tasks(
        &mut self,
        candidates: &NodeCandidates<'_>,
        count: usize,
        admitter: &mut GroupAdmitter<'_>,
        stop: &dyn Fn() -> bool,
        put: &mut dyn FnMut(NodeSlot, &mut GroupAdmitter<'_>) -> Result<bool, Problem>,
    ) -> Result<(PlacePassEnd, NodeTaskCounts), Problem> {
        if self.follows_peers() {
            return self.place_by_peers(candidates, count, admitter, stop, put);
        }
        let want = count.saturating_sub(admitter.placed_count);
        let want = if self.rescores_all() { want.min(1) } else { want };
        let Some(keys) = self.rank_keys(candidates, want, stop)? else {
            return Ok((PlacePassEnd::Cancelled, Vec::new()));
        };
        let pass = &*self;
        let mut field = NodePicker::new(pass, NodeRanking::best(keys, want));
        let mut steps = 0;
        let ended = loop {
            if steps == want {
                break PlacePassEnd::of_last_step(admitter, count);
            }
            if steps % CANCEL_CHECK_INTERVAL == CANCEL_CHECK_INTERVAL - 1 && stop() {
                break PlacePassEnd::Cancelled;
            }
            let Some(slot) = field.pick(want - steps - 1) else {
                break PlacePassEnd::NoNodeLeft;
            };
            steps += 1;
            // Scores that are relative to the best candidate may change when that one is full.
            let rejudge = field.last_is_full() && pass.leave(slot);
            if !put(slot, admitter)? || rejudge {
                break PlacePassEnd::of_last_step(admitter, count);
            }
        };
        Ok((ended, field.task_counts()))
    }

    /// Places tasks like [`Self::place_tasks`], of a class whose tasks change the verdicts on other nodes.
    fn place_by_peers(
        &mut self,
        candidates: &NodeCandidates<'_>,
        count: usize,
        admitter: &mut GroupAdmitter<'_>,
        stop: &dyn Fn() -> bool,
        put: &mut dyn FnMut(NodeSlot, &mut GroupAdmitter<'_>) -> Result<bool, Problem>,
    ) -> Result<(PlacePassEnd, NodeTaskCounts), Problem> {
        let hooks = self.split_peers();
        let Some(passing) = self.own_scores(candidates) else {
            return Ok((PlacePassEnd::Inexact, Vec::new()));
        };
        let Some(ranking) = PeerRanking::new(self.state().ranks(), &hooks, &passing) else {
            return Ok((PlacePassEnd::Inexact, Vec::new()));
        };
        let mut picker = PeerPicker::new(self, hooks, ranking);
        let want = count.saturating_sub(admitter.placed_count);
        let mut steps = 0;
        let ended = loop {
            if steps % CANCEL_CHECK_INTERVAL == CANCEL_CHECK_INTERVAL - 1 && stop() {
                break PlacePassEnd::Cancelled;
            }
            steps += 1;
            match picker.pick(want.saturating_sub(steps))? {
                PeerChoice::Node(slot) if put(slot, admitter)? => {}
                PeerChoice::Node(_) => break PlacePassEnd::of_last_step(admitter, count),
                PeerChoice::NoneFits => break PlacePassEnd::NoNodeLeft,
                PeerChoice::Inexact => break PlacePassEnd::Inexact,
            }
        };
        Ok((ended, picker.task_counts()))
    }
}
