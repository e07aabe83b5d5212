//! Place with effect COMMIT: the server chooses nodes from the latest state, and the writer evaluates the choice again
//! at the commit. An invalid choice is made again.

use std::sync::Arc;

use tokio::time::Instant;

use super::ServerContext;
use super::connection::CallerConnection;
use super::convert::evaluation_ref::{EvaluationRef, RefTarget, read_ref};
use super::convert::place::PlaceCall;
use super::decision_call::cancelled;
use super::pb;
use super::place_choice::{ChoiceState, CommitCall, CommitTries};
use super::place_lane::{LaneCall, LaneReply, MAX_LANE_TASKS};
use super::response_room::ResponseRoom;
use super::status::{CallError, RpcResult};
use super::worker_pool::{CancellationToken, HeldWorker};
use crate::telemetry::PlacementOutcome;
use pumice_engine::model::ErrorCode;

/// Outcome of a call for metrics, with the number of placed tasks.
fn placement_outcome(response: Option<&pb::PlaceResponse>) -> (PlacementOutcome, u32) {
    let Some(response) = response else {
        return (PlacementOutcome::failed, 0);
    };
    let count = response.result.as_ref().map_or(0, |result| result.placed_count);
    match &response.commit {
        Some(commit) if commit.repeated => (PlacementOutcome::repeated, count),
        Some(_) => (PlacementOutcome::committed, count),
        None => (PlacementOutcome::unplaced, 0),
    }
}

/// True if the result lists a task of the call that is already placed, perhaps by an earlier call with the same key.
fn names_placed_task(response: &pb::PlaceResponse) -> bool {
    let groups = response.result.iter().flat_map(|result| &result.groups);
    groups
        .filter_map(|group| group.problem.as_ref())
        .any(|problem| problem.reason == ErrorCode::TaskNotPending.name())
}

impl ServerContext {
    /// Places groups of tasks and commits the placement.
    pub(super) async fn place_and_commit(
        self: &Arc<Self>,
        against: Option<pb::EvaluationRef>,
        call: PlaceCall,
    ) -> RpcResult<pb::PlaceResponse> {
        let room = ResponseRoom::of_call();
        let EvaluationRef {
            target,
            node_table: table,
            now,
        } = read_ref(against, &self.read_options.limits)?;
        let RefTarget::Latest(latest) = target else {
            let message = "effect: COMMIT writes to shared state: `against` has to be `latest`";
            return Err(CallError::new(ErrorCode::CommitAgainst, message));
        };
        self.resolve_latest(&latest).await?;
        let tasks = call.tasks;
        let call = Arc::new(CommitCall::new(call, table, (latest, now)));
        let placed = self.commit_first(&call, tasks).await;
        let placed = match placed {
            Ok(response) if names_placed_task(&response) => Ok(self.recall(&call).await?.unwrap_or(response)),
            other => other,
        };
        let (outcome, count) = placement_outcome(placed.as_ref().ok());
        self.metrics.placements.record(outcome, count);
        let placed = placed?;
        room.reserve(&placed, tasks).await?;
        Ok(placed)
    }

    /// Places a small call in the lane, and any other on a worker of its own.
    async fn commit_first(self: &Arc<Self>, call: &Arc<CommitCall>, tasks: usize) -> RpcResult<pb::PlaceResponse> {
        if tasks <= MAX_LANE_TASKS {
            let _place = self.waiting_place()?;
            let (reply, replied) = tokio::sync::oneshot::channel();
            let queued = LaneCall::new(
                Arc::clone(call),
                CallerConnection::of_work(Instant::now()).connection,
                reply,
            );
            self.place_lane.send(self, queued)?;
            match replied.await {
                Ok(LaneReply::Done(response)) => return *response,
                Ok(LaneReply::TooLong) => {}
                Err(_) => return Err(CallError::internal("the lane of placements stopped")),
            }
        }
        self.place_alone(call).await
    }

    /// Places a call outside the lane, on a worker. Concurrent commits may conflict with it.
    async fn place_alone(self: &Arc<Self>, call: &Arc<CommitCall>) -> RpcResult<pb::PlaceResponse> {
        let mut tries = CommitTries::default();
        loop {
            tries.count += 1;
            let (edge, call) = (Arc::clone(self), Arc::clone(call));
            let work = move |worker: HeldWorker, stop: &CancellationToken| {
                let state = ChoiceState::newest(&edge, &call)?;
                let choice = call
                    .choose(&edge, &state, &|| stop.is_cancelled())?
                    .ok_or_else(cancelled)?;
                let Some(placed) = choice.placed else {
                    return Ok(Ok(call.unplaced(&edge, &state, choice.result)));
                };
                let calls = call.placed_calls(Arc::new(vec![placed]));
                let mut outcome = edge.state.commit_placed(calls, || drop(worker))?;
                let own = outcome.jobs.pop();
                match own.map(|own| (own.committed, own.rejections)) {
                    Some((true, _)) => {
                        let origin = (&state.snapshot, &state.policy);
                        Ok(Ok(call.committed(&edge, origin, (choice.result, &tries), &outcome)))
                    }
                    refused => {
                        let rejections = refused.map(|(_, rejections)| rejections).unwrap_or_default();
                        edge.metrics.placements.record_conflict();
                        tries.conflicted(rejections)?;
                        Ok(Err(tries))
                    }
                }
            };
            match self.workers.queries.run_to_disk(work).await? {
                Ok(response) => return Ok(response),
                Err(again) => tries = again,
            }
        }
    }

    /// Response to a repeated call whose placement is held; `None`: none is.
    async fn recall(&self, call: &CommitCall) -> RpcResult<Option<pb::PlaceResponse>> {
        let _place = self.waiting_place()?;
        let held = self.state.held_placements(Arc::clone(call.hold())).await?;
        if held.is_empty() {
            return Ok(None);
        }
        call.repeated(self, &held)
    }
}
