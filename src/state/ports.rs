//! Where the writer meets the threads around it: what it is told, whom it answers, what it shows. Seams, so that a model
//! checker can stand there instead.

use std::fmt::{self, Debug};
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::writer::WriterCommand;
use crate::engine::Snapshot;

/// Where commands come from.
pub(super) trait CommandInbox {
    /// The next one, waited for; `None`: there will be no more.
    fn wait(&mut self) -> Option<WriterCommand>;

    /// The next one, if it is there.
    fn take(&mut self) -> Option<WriterCommand>;
}

impl CommandInbox for mpsc::Receiver<WriterCommand> {
    fn wait(&mut self) -> Option<WriterCommand> {
        self.blocking_recv()
    }

    fn take(&mut self) -> Option<WriterCommand> {
        self.try_recv().ok()
    }
}

/// Where snapshots are shown.
pub(super) trait SnapshotPublisher: Debug + Send + Sync {
    /// The newest snapshot.
    fn newest(&self) -> Arc<Snapshot>;

    /// Makes a snapshot the newest.
    fn publish(&self, snapshot: Snapshot);
}

/// Who waits for an answer.
pub(super) struct CommandReply<T>(Box<dyn FnOnce(T) + Send>);

impl<T> CommandReply<T> {
    /// Calls this with the answer.
    pub(super) fn to(result: impl FnOnce(T) + Send + 'static) -> Self {
        Self(Box::new(result))
    }

    /// Answers.
    pub(super) fn send(self, result: T) {
        (self.0)(result);
    }
}

impl<T> Debug for CommandReply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reply")
    }
}

impl<T: Send + 'static> From<oneshot::Sender<T>> for CommandReply<T> {
    fn from(sender: oneshot::Sender<T>) -> Self {
        // A caller that has gone away does not want its answer any more.
        Self::to(move |result| drop(sender.send(result)))
    }
}
