//! Lane of placements that are committed at once. One thread chooses nodes for one call after the other, each in the
//! state after the earlier placements, and sends them to the writer together. Concurrent schedulers therefore never
//! conflict. While the writer commits a batch, the lane chooses nodes for the next batch.
//!
//! Connections take turns: a connection with many calls delays another connection by one call only. A slow call leaves
//! the lane and continues on a worker.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock, Weak};

use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use super::ServerContext;
use super::pb;
use super::place_batch::{LaneBatch, SentBatch};
use super::place_choice::{CommitCall, CommitTries};
use super::status::{CallError, RpcResult};
use pumice_state::PlacedCall;

/// Maximum number of tasks of a call in the lane.
pub(super) const MAX_LANE_TASKS: usize = 1_000;
/// Maximum number of batches that the writer has at once: the batch in progress and the next batch.
const MAX_SENT_BATCHES: usize = 2;

/// Reply of the lane to a call.
#[derive(Debug)]
pub(super) enum LaneReply {
    /// The response, or why there is none.
    Done(Box<RpcResult<pb::PlaceResponse>>),
    /// The call takes too long for the lane, and nothing was done.
    TooLong,
}

/// Call that waits in the lane. Its place ends when its caller is gone.
#[derive(Debug)]
pub(super) struct LaneCall {
    pub(super) call: Arc<CommitCall>,
    /// Number of its connection.
    connection: u64,
    pub(super) tries: CommitTries,
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

    /// True if the caller no longer waits for the reply.
    pub(super) fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }

    pub(super) fn reply(self, reply: LaneReply) {
        // A caller that is gone reads nothing.
        drop(self.reply.send(reply));
    }

    pub(super) fn done(self, response: RpcResult<pb::PlaceResponse>) {
        self.reply(LaneReply::Done(Box::new(response)));
    }
}

/// Message to the thread of the lane.
#[derive(Debug)]
pub(super) enum LaneMessage {
    Call(LaneCall),
    /// The commit of the batch that was sent first has ended; these calls are placed once more.
    Ended(Vec<LaneCall>),
}

/// Way into the lane, whose thread starts with the first call.
#[derive(Debug, Default)]
pub(super) struct PlaceLane(OnceLock<mpsc::UnboundedSender<LaneMessage>>);

impl PlaceLane {
    /// Sends a call into the lane. The limit of waiting calls also bounds the lane.
    ///
    /// # Errors
    /// The thread cannot be started, or has ended.
    pub(super) fn send(&self, edge: &Arc<ServerContext>, call: LaneCall) -> RpcResult<()> {
        let lane = self.0.get_or_init(|| {
            let (sender, messages) = mpsc::unbounded_channel();
            let lane = LaneThread {
                edge: Arc::downgrade(edge),
                runtime: Handle::current(),
                sender: sender.downgrade(),
                messages,
                queue: LaneQueue::default(),
                sent: VecDeque::new(),
                waits_for_commits: false,
            };
            let thread = std::thread::Builder::new().name("pumice-placer".to_owned());
            if let Err(error) = thread.spawn(move || lane.run()) {
                tracing::error!(%error, "the thread of placements does not start");
            }
            sender
        });
        let sent = lane.send(LaneMessage::Call(call));
        sent.map_err(|_| CallError::internal("the lane of placements does not run"))
    }
}

/// Calls that wait, by connection.
#[derive(Debug, Default)]
pub(super) struct LaneQueue {
    /// Calls that go on with the next batch, before all others.
    pub(super) first: VecDeque<LaneCall>,
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
    pub(super) fn pop(&mut self) -> Option<LaneCall> {
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

/// Thread that chooses nodes.
#[derive(Debug)]
pub(super) struct LaneThread {
    edge: Weak<ServerContext>,
    /// Runtime on which commits are waited for.
    runtime: Handle,
    sender: mpsc::WeakUnboundedSender<LaneMessage>,
    messages: mpsc::UnboundedReceiver<LaneMessage>,
    pub(super) queue: LaneQueue,
    /// Placements of the batches that the writer has, batch by batch.
    sent: VecDeque<Arc<Vec<PlacedCall>>>,
    /// True if the next call may be answered only in a state that has no placements which may not be committed after all.
    waits_for_commits: bool,
}

impl LaneThread {
    /// Serves the lane until the server's context is gone.
    fn run(mut self) {
        loop {
            while !self.may_begin() {
                let Some(message) = self.messages.blocking_recv() else {
                    return;
                };
                self.take(message);
            }
            self.take_messages();
            // The context is held for one batch at a time: its end ends the lane.
            let Some(edge) = self.edge.upgrade() else { return };
            // A panic ends the calls of its batch, as it ends one call elsewhere; the others go on.
            let batch = AssertUnwindSafe(|| self.run_batch(&edge));
            if catch_unwind(batch).is_err() {
                tracing::error!("a batch of placements ended with a panic");
            }
        }
    }

    /// True if there is a call whose nodes may be chosen now.
    fn may_begin(&self) -> bool {
        let most = if self.waits_for_commits { 1 } else { MAX_SENT_BATCHES };
        !self.queue.is_empty() && self.sent.len() < most
    }

    fn take(&mut self, message: LaneMessage) {
        match message {
            LaneMessage::Call(call) => self.queue.push(call),
            LaneMessage::Ended(again) => {
                self.sent.pop_front();
                for call in again.into_iter().rev() {
                    self.queue.first.push_front(call);
                }
            }
        }
    }

    /// True if the writer has no batch.
    pub(super) fn is_writer_idle(&self) -> bool {
        self.sent.is_empty()
    }

    /// Takes what has arrived.
    pub(super) fn take_messages(&mut self) {
        while let Ok(message) = self.messages.try_recv() {
            self.take(message);
        }
    }

    /// Chooses nodes for calls in their turns, and sends their placements to the writer.
    fn run_batch(&mut self, edge: &Arc<ServerContext>) {
        let Some(first) = self.queue.pop() else { return };
        self.waits_for_commits = false;
        match LaneBatch::begin(edge, &first, self.sent.iter().cloned().collect()) {
            Ok(batch) => batch.run(self, first),
            // Nothing is refused because of placements that may not be committed after all.
            Err(_) if !self.sent.is_empty() => self.wait_for_commits(first),
            Err(error) => first.done(Err(error)),
        }
    }

    /// Lets a call wait until no placement is uncommitted.
    pub(super) fn wait_for_commits(&mut self, call: LaneCall) {
        self.queue.first.push_front(call);
        self.waits_for_commits = true;
    }

    /// Waits for the commit of a batch beside the lane; its calls have their replies once it has ended.
    pub(super) fn follow(&mut self, edge: &Arc<ServerContext>, batch: SentBatch) {
        let Some(lane) = self.sender.upgrade() else { return };
        self.sent.push_back(batch.placed());
        let edge = Arc::clone(edge);
        self.runtime.spawn(async move {
            let mut end = BatchEnd {
                lane,
                again: Vec::new(),
            };
            end.again = batch.reply(&edge).await;
        });
    }
}

/// Signals the end of a batch to the lane, even if its replies panic.
struct BatchEnd {
    lane: mpsc::UnboundedSender<LaneMessage>,
    again: Vec<LaneCall>,
}

impl Drop for BatchEnd {
    fn drop(&mut self) {
        let again = std::mem::take(&mut self.again);
        // The lane ends with the server only.
        drop(self.lane.send(LaneMessage::Ended(again)));
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
