//! Where the writer meets the threads around it: what it is told, whom it answers, what it shows. Seams, so that a model
//! checker can stand there instead.

use std::fmt::{self, Debug};
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::writer::Command;
use crate::engine::World;

/// Where commands come from.
pub(super) trait Inbox {
    /// The next one, waited for; `None`: there will be no more.
    fn wait(&mut self) -> Option<Command>;

    /// The next one, if it is there.
    fn take(&mut self) -> Option<Command>;
}

impl Inbox for mpsc::Receiver<Command> {
    fn wait(&mut self) -> Option<Command> {
        self.blocking_recv()
    }

    fn take(&mut self) -> Option<Command> {
        self.try_recv().ok()
    }
}

/// Where Worlds are shown.
pub(super) trait Publish: Debug + Send + Sync {
    /// The newest World.
    fn newest(&self) -> Arc<World>;

    /// Makes a World the newest.
    fn publish(&self, world: World);
}

/// Who waits for an answer.
pub(super) struct Reply<T>(Box<dyn FnOnce(T) + Send>);

impl<T> Reply<T> {
    /// Calls this with the answer.
    pub(super) fn to(answer: impl FnOnce(T) + Send + 'static) -> Self {
        Self(Box::new(answer))
    }

    /// Answers.
    pub(super) fn send(self, answer: T) {
        (self.0)(answer);
    }
}

impl<T> Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reply")
    }
}

impl<T: Send + 'static> From<oneshot::Sender<T>> for Reply<T> {
    fn from(sender: oneshot::Sender<T>) -> Self {
        // A caller that has gone away does not want its answer any more.
        Self::to(move |answer| drop(sender.send(answer)))
    }
}
