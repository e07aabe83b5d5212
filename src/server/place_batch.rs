//! Batch of the lane: calls whose nodes are chosen one after the other, and which the writer commits together.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::ServerContext;
use super::pb;
use super::place_choice::{ChoiceState, PlacementChoice};
use super::place_lane::{LaneCall, LaneReply, LaneThread};
use super::status::{CallError, RpcResult};
use pumice_engine::{PolicyInForce, Snapshot};
use pumice_state::{CommitRejection, CommitUnderWay, PlacedCall};

/// Time after which a call leaves the lane.
const MAX_CALL_TIME: Duration = Duration::from_millis(10);
/// Time after which no more calls join a batch.
const MAX_BATCH_TIME: Duration = Duration::from_millis(3);
/// Maximum number of calls in a batch.
const MAX_BATCH_CALLS: usize = 64;

/// Call of a batch whose nodes are chosen.
#[derive(Debug)]
struct ChosenCall {
    call: LaneCall,
    result: pb::PlaceResult,
}

/// Batch of calls under one policy.
pub(super) struct LaneBatch<'e> {
    edge: &'e Arc<ServerContext>,
    /// State with the placements of the batches that the writer has, and of this one.
    state: ChoiceState,
    policy: (Arc<str>, Arc<str>),
    /// Placements of the batches that the writer has.
    sent: Vec<Arc<Vec<PlacedCall>>>,
    chosen: Vec<ChosenCall>,
    placed: Vec<PlacedCall>,
}

/// Continuation of a batch after a call.
enum LaneStep {
    /// The batch continues.
    Next,
    /// The batch ends before this call, which waits until the placements before it are committed.
    WaitBefore(LaneCall),
    /// The batch ends.
    End,
}

impl<'e> LaneBatch<'e> {
    /// Batch that starts with a call, in the latest state after the batches that the writer has.
    ///
    /// # Errors
    /// The policy of the call is not active, or the state is not available.
    pub(super) fn begin(
        edge: &'e Arc<ServerContext>,
        first: &LaneCall,
        sent: Vec<Arc<Vec<PlacedCall>>>,
    ) -> RpcResult<Self> {
        let mut state = ChoiceState::newest(edge, &first.call)?;
        // The newest state has some of them already.
        for placed in sent.iter().flat_map(|batch| batch.iter()) {
            placed.count(&mut state.cluster_state, &mut state.plugin_states)?;
        }
        Ok(Self {
            edge,
            state,
            policy: first.call.policy().clone(),
            sent,
            chosen: Vec::new(),
            placed: Vec::new(),
        })
    }

    /// Chooses nodes for calls in their turns, and sends their placements to the writer.
    pub(super) fn run(mut self, lane: &mut LaneThread, first: LaneCall) {
        let begun = Instant::now();
        let mut next = Some(first);
        for _ in 0..MAX_BATCH_CALLS {
            let Some(call) = next.take().or_else(|| lane.queue.pop()) else {
                break;
            };
            if *call.call.policy() != self.policy {
                lane.queue.first.push_front(call);
                break;
            }
            match self.place(call) {
                LaneStep::Next => {}
                LaneStep::WaitBefore(call) => {
                    lane.wait_for_commits(call);
                    break;
                }
                LaneStep::End => break,
            }
            lane.take_messages();
            // A writer that has nothing to do gets what there is; while it commits, more calls join.
            let has_work = !self.placed.is_empty() && lane.is_writer_idle();
            if has_work || begun.elapsed() >= MAX_BATCH_TIME {
                break;
            }
        }
        self.send(lane);
    }

    /// True if the state has placements that may not be committed after all.
    fn is_tentative(&self) -> bool {
        !self.sent.is_empty() || !self.placed.is_empty()
    }

    /// True if a call whose placement is not committed yet has the same key.
    fn has_hold(&self, hold: &Arc<str>) -> bool {
        let sent = self.sent.iter().flat_map(|batch| batch.iter());
        sent.chain(&self.placed).any(|placed| placed.hold == *hold)
    }

    /// Chooses nodes for a call, which are taken for the calls after it.
    fn place(&mut self, mut call: LaneCall) -> LaneStep {
        if call.is_abandoned() {
            return LaneStep::Next;
        }
        if self.has_hold(call.call.hold()) {
            return LaneStep::WaitBefore(call);
        }
        let begun = Instant::now();
        let is_over = || begun.elapsed() >= MAX_CALL_TIME;
        let choice = call.call.choose(self.edge, &self.state, &is_over);
        match choice {
            Ok(Some(PlacementChoice {
                placed: Some(placed),
                result,
            })) => {
                let state = &mut self.state;
                if let Err(problem) = placed.count(&mut state.cluster_state, &mut state.plugin_states) {
                    // Parts of it are counted: nobody else may be placed in this state.
                    call.done(Err(problem.into()));
                    return LaneStep::End;
                }
                call.tries.count += 1;
                self.placed.push(placed);
                self.chosen.push(ChosenCall { call, result });
                LaneStep::Next
            }
            // Nothing is refused because of placements that may not be committed after all.
            Ok(Some(_)) | Err(_) if self.is_tentative() => LaneStep::WaitBefore(call),
            Ok(Some(PlacementChoice { placed: None, result })) => {
                let response = call.call.unplaced(self.edge, &self.state, result);
                call.done(Ok(response));
                LaneStep::Next
            }
            Ok(None) => {
                call.reply(LaneReply::TooLong);
                LaneStep::Next
            }
            Err(error) => {
                call.done(Err(error));
                LaneStep::Next
            }
        }
    }

    /// Sends what was chosen to the writer.
    fn send(self, lane: &mut LaneThread) {
        let Some(first) = self.chosen.first() else { return };
        let placed = Arc::new(self.placed);
        let calls = first.call.call.placed_calls(Arc::clone(&placed));
        match self.edge.state.begin_commit_placed(calls) {
            Ok(commit) => {
                let batch = SentBatch {
                    origin: (self.state.snapshot, self.state.policy),
                    chosen: self.chosen,
                    placed,
                    commit,
                };
                lane.follow(self.edge, batch);
            }
            Err(error) => fail(self.chosen, &CallError::from(error)),
        }
    }
}

/// Batch that the writer has.
#[derive(Debug)]
pub(super) struct SentBatch {
    /// Snapshot and policy by which nodes were chosen.
    origin: (Arc<Snapshot>, Arc<PolicyInForce>),
    chosen: Vec<ChosenCall>,
    placed: Arc<Vec<PlacedCall>>,
    commit: CommitUnderWay,
}

impl SentBatch {
    /// Placements of the batch.
    pub(super) fn placed(&self) -> Arc<Vec<PlacedCall>> {
        Arc::clone(&self.placed)
    }

    /// Replies to its calls once the commit has ended. Returns the calls whose placement does not hold, to be placed once more.
    pub(super) async fn reply(self, edge: &ServerContext) -> Vec<LaneCall> {
        let outcome = match self.commit.outcome().await {
            Ok(outcome) => outcome,
            Err(error) => {
                for ChosenCall { call, .. } in self.chosen {
                    let own = error.clone().about(call.call.hold());
                    call.done(Err(own.into()));
                }
                return Vec::new();
            }
        };
        let mut again = Vec::new();
        for (chosen, own) in self.chosen.into_iter().zip(&outcome.jobs) {
            if own.committed {
                let ChosenCall { call, result } = chosen;
                let origin = (&self.origin.0, &self.origin.1);
                let response = call.call.committed(edge, origin, (result, &call.tries), &outcome);
                call.done(Ok(response));
            } else {
                edge.metrics.placements.record_conflict();
                again.extend(retry(chosen.call, own.rejections.clone()));
            }
        }
        again
    }
}

fn fail(chosen: Vec<ChosenCall>, error: &CallError) {
    for chosen in chosen {
        chosen.call.done(Err(error.clone()));
    }
}

/// Call that is placed once more; `None`: it has had its tries.
fn retry(mut call: LaneCall, rejections: Vec<CommitRejection>) -> Option<LaneCall> {
    match call.tries.conflicted(rejections) {
        Ok(()) => Some(call),
        Err(error) => {
            call.done(Err(error));
            None
        }
    }
}
