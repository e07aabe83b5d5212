//! Lane of placements that are committed at once: one thread chooses nodes for one call after the other, each in the state
//! that has the placements before it, and sends them to the writer together. So schedulers that place at once are never in
//! each other's way.
//!
//! Connections take turns, so that one which sends many calls delays another by one call. A call that takes long leaves the
//! lane: it goes on beside it, on a worker.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::ServerContext;
use super::pb;
use super::place_commit::{ChoiceState, CommitCall, CommitTries, PlacementChoice};
use super::status::CallError;
use pumice_state::{CommitOutcome, CommitRejection, PlacedCall};

/// Maximum number of tasks of a call in the lane.
pub(super) const MAX_LANE_TASKS: usize = 1_000;
/// Time after which a call leaves the lane.
const MAX_CALL_TIME: Duration = Duration::from_millis(10);
/// Time after which no more calls join a batch.
const MAX_BATCH_TIME: Duration = Duration::from_millis(3);
/// Maximum number of calls in a batch.
const MAX_BATCH_CALLS: usize = 64;

/// Reply of the lane to a call.
#[derive(Debug)]
pub(super) enum LaneReply {
    /// The response, or why there is none.
    Done(Box<Result<pb::PlaceResponse, CallError>>),
    /// The call takes too long for the lane, and nothing was done.
    TooLong,
}

/// Call that waits in the lane. Its place ends when its caller is gone.
#[derive(Debug)]
pub(super) struct LaneCall {
    call: Arc<CommitCall>,
    /// Number of its connection.
    connection: u64,
    tries: CommitTries,
    reply: oneshot::Sender<LaneReply>,
}

impl LaneCall {
    /// Call of a connection.
    pub(super) fn new(call: Arc<CommitCall>, connection: u64, reply: oneshot::Sender<LaneReply>) -> Self {
        Self {
            call,
            connection,
            tries: CommitTries::default(),
            reply,
        }
    }

    fn done(self, response: Result<pb::PlaceResponse, CallError>) {
        // A caller that is gone reads nothing.
        drop(self.reply.send(LaneReply::Done(Box::new(response))));
    }
}

/// Way into the lane, whose thread starts with the first call.
#[derive(Debug, Default)]
pub(super) struct PlaceLane(OnceLock<mpsc::UnboundedSender<LaneCall>>);

impl PlaceLane {
    /// Sends a call into the lane. The number of calls that wait there is bounded by that of calls that wait at all.
    ///
    /// # Errors
    /// The thread cannot be started, or has ended.
    pub(super) fn send(&self, edge: &Arc<ServerContext>, call: LaneCall) -> Result<(), CallError> {
        let lane = self.0.get_or_init(|| {
            let (calls, waiting) = mpsc::unbounded_channel();
            let edge = Arc::downgrade(edge);
            let thread = std::thread::Builder::new().name("pumice-placer".to_owned());
            if let Err(error) = thread.spawn(move || run_lane(&edge, waiting)) {
                tracing::error!(%error, "the thread of placements does not start");
            }
            calls
        });
        let sent = lane.send(call);
        sent.map_err(|_| CallError::internal("the lane of placements does not run"))
    }
}

/// Calls that wait, by connection.
#[derive(Debug, Default)]
struct LaneQueue {
    /// Calls that go on with the next batch, before all others.
    first: VecDeque<LaneCall>,
    waiting: BTreeMap<u64, VecDeque<LaneCall>>,
    /// Connection whose turn was last.
    last: u64,
}

impl LaneQueue {
    fn push(&mut self, call: LaneCall) {
        self.waiting.entry(call.connection).or_default().push_back(call);
    }

    fn is_empty(&self) -> bool {
        self.first.is_empty() && self.waiting.is_empty()
    }

    /// Next call: of the connection after the one whose turn was last.
    fn pop(&mut self) -> Option<LaneCall> {
        if let Some(call) = self.first.pop_front() {
            return Some(call);
        }
        let later = self.waiting.range(self.last.saturating_add(1)..).next();
        let (connection, _) = later.or_else(|| self.waiting.first_key_value())?;
        let connection = *connection;
        let calls = self.waiting.get_mut(&connection)?;
        let call = calls.pop_front();
        if calls.is_empty() {
            self.waiting.remove(&connection);
        }
        self.last = connection;
        call
    }
}

/// Serves the lane until the server's context is gone.
fn run_lane(edge: &Weak<ServerContext>, mut calls: mpsc::UnboundedReceiver<LaneCall>) {
    let mut queue = LaneQueue::default();
    loop {
        if queue.is_empty() {
            let Some(call) = calls.blocking_recv() else { return };
            queue.push(call);
        }
        while let Ok(call) = calls.try_recv() {
            queue.push(call);
        }
        // The context is held for one batch at a time: its end ends the lane.
        let Some(edge) = edge.upgrade() else { return };
        // A panic ends the calls of its batch, as it ends one call elsewhere; the others go on.
        let batch = AssertUnwindSafe(|| run_batch(&edge, &mut queue, &mut calls));
        if catch_unwind(batch).is_err() {
            tracing::error!("a batch of placements ended with a panic");
        }
    }
}

/// Call of a batch whose nodes are chosen.
struct ChosenCall {
    call: LaneCall,
    result: pb::PlaceResult,
}

/// Batch of calls under one policy.
struct LaneBatch<'e> {
    edge: &'e ServerContext,
    state: ChoiceState,
    chosen: Vec<ChosenCall>,
    placed: Vec<PlacedCall>,
}

/// Continuation of a batch after a call.
enum LaneStep {
    /// The batch goes on.
    Next,
    /// The batch ends before this call, which the next one begins with.
    EndBefore(LaneCall),
    /// The batch ends.
    End,
}

/// Chooses nodes for calls in their turns, and commits them together.
fn run_batch(edge: &ServerContext, queue: &mut LaneQueue, calls: &mut mpsc::UnboundedReceiver<LaneCall>) {
    let Some(first) = queue.pop() else { return };
    let state = match ChoiceState::newest(edge, &first.call) {
        Ok(state) => state,
        Err(error) => return first.done(Err(error)),
    };
    let policy = first.call.policy().clone();
    let mut batch = LaneBatch {
        edge,
        state,
        chosen: Vec::new(),
        placed: Vec::new(),
    };
    let begun = Instant::now();
    let mut next = Some(first);
    for _ in 0..MAX_BATCH_CALLS {
        let Some(call) = next.take().or_else(|| queue.pop()) else {
            break;
        };
        if *call.call.policy() != policy || batch.has_hold(call.call.hold()) {
            queue.first.push_front(call);
            break;
        }
        match batch.place(call) {
            LaneStep::Next => {}
            LaneStep::EndBefore(call) => {
                queue.first.push_front(call);
                break;
            }
            LaneStep::End => break,
        }
        if begun.elapsed() >= MAX_BATCH_TIME {
            break;
        }
        while let Ok(call) = calls.try_recv() {
            queue.push(call);
        }
    }
    batch.commit(queue);
}

impl LaneBatch<'_> {
    /// True if a call of the batch has the same key.
    fn has_hold(&self, hold: &Arc<str>) -> bool {
        self.placed.iter().any(|placed| placed.hold == *hold)
    }

    /// Chooses nodes for a call, which are taken for the calls after it.
    fn place(&mut self, mut call: LaneCall) -> LaneStep {
        if call.reply.is_closed() {
            return LaneStep::Next;
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
            Ok(Some(_)) | Err(_) if !self.placed.is_empty() => LaneStep::EndBefore(call),
            Ok(Some(PlacementChoice { placed: None, result })) => {
                let response = call.call.unplaced(self.edge, &self.state, result);
                call.done(Ok(response));
                LaneStep::Next
            }
            Ok(None) => {
                drop(call.reply.send(LaneReply::TooLong));
                LaneStep::Next
            }
            Err(error) => {
                call.done(Err(error));
                LaneStep::Next
            }
        }
    }

    /// Commits what was chosen. Calls whose placement does not hold go on with the next batch.
    fn commit(self, queue: &mut LaneQueue) {
        let Some(first) = self.chosen.first() else { return };
        let calls = first.call.call.placed_calls(self.placed);
        let outcome = match self.edge.state.commit_placed(calls, || ()) {
            Ok(outcome) => outcome,
            Err(error) => {
                let error = CallError::from(error);
                for chosen in self.chosen {
                    chosen.call.done(Err(error.clone()));
                }
                return;
            }
        };
        let mut again = VecDeque::new();
        let jobs = outcome.jobs.iter();
        for (chosen, own) in self.chosen.into_iter().zip(jobs) {
            if own.committed {
                reply_committed(self.edge, &self.state, chosen, &outcome);
            } else {
                self.edge.metrics.placements().record_conflict();
                again.extend(retry(chosen.call, own.rejections.clone()));
            }
        }
        again.append(&mut queue.first);
        queue.first = again;
    }
}

fn reply_committed(edge: &ServerContext, state: &ChoiceState, chosen: ChosenCall, outcome: &CommitOutcome) {
    let ChosenCall { call, result } = chosen;
    let response = call.call.committed(edge, state, (result, &call.tries), outcome);
    call.done(Ok(response));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn call(connection: u64, key: &str) -> LaneCall {
        let (reply, _) = oneshot::channel();
        LaneCall::new(Arc::new(CommitCall::for_tests(key)), connection, reply)
    }

    #[test]
    fn connections_take_turns_and_interrupted_calls_go_first() {
        let mut queue = LaneQueue::default();
        for number in 0..1_000 {
            queue.push(call(1, &format!("greedy-{number}")));
        }
        queue.push(call(2, "modest"));
        queue.push(call(9, "late"));
        let mut order = |count: usize| -> Vec<u64> { (0..count).map(|_| queue.pop().unwrap().connection).collect() };
        assert_eq!(order(5), [1, 2, 9, 1, 1]);
        queue.push(call(2, "modest again"));
        queue.first.push_front(call(1, "interrupted"));
        assert_eq!(queue.pop().unwrap().call.hold().as_ref(), "place/interrupted");
        assert_eq!(queue.pop().unwrap().connection, 2);
        let rest = std::iter::from_fn(|| queue.pop()).count();
        assert_eq!(rest, 997);
        assert!(queue.is_empty() && queue.pop().is_none());
    }
}
