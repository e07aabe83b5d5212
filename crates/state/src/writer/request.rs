//! Requests to the writer and their replies.

use std::fmt::{self, Debug};

use tokio::sync::oneshot;

use crate::error::StateError;

/// Reply that waits for the publication.
pub(crate) type PendingReply = Box<dyn FnOnce()>;

/// Reply to a command: sends the result to the waiting caller.
pub(crate) struct CommandReply<T>(Box<dyn FnOnce(T) + Send>);

impl<T> CommandReply<T> {
    /// Reply that calls this function with the result.
    pub(crate) fn to(result: impl FnOnce(T) + Send + 'static) -> Self {
        Self(Box::new(result))
    }

    /// Sends the result.
    pub(crate) fn send(self, result: T) {
        (self.0)(result);
    }

    /// Reply that is going to send this result.
    pub(crate) fn later(self, result: T) -> PendingReply
    where
        T: 'static,
    {
        Box::new(move || self.send(result))
    }
}

/// Request to the writer: what is asked, how its group decides it, and the reply.
#[derive(Debug)]
pub(crate) struct WriterRequest<Q, T> {
    pub(crate) asked: Q,
    outcome: Option<Result<T, StateError>>,
    reply: CommandReply<Result<T, StateError>>,
}

impl<Q, T> WriterRequest<Q, T> {
    pub(crate) fn new(asked: Q, reply: impl Into<CommandReply<Result<T, StateError>>>) -> Self {
        Self {
            asked,
            outcome: None,
            reply: reply.into(),
        }
    }

    /// Sets the outcome of the reply if the group is written. A group that is drafted again sets it again.
    pub(crate) fn decide(&mut self, outcome: Result<T, StateError>) {
        self.outcome = Some(outcome);
    }

    /// True if the request was decided, and waits for the group to be written.
    pub(crate) fn waits(&self) -> bool {
        matches!(self.outcome, Some(Ok(_)))
    }

    /// Sends the outcome, with what the publication adds to it.
    pub(crate) fn reply(self, published: impl FnOnce(T) -> T) {
        let outcome = self.outcome.unwrap_or(Err(StateError::ShuttingDown));
        self.reply.send(outcome.map(published));
    }

    /// Reports that the group was not written: what was decided had no effect.
    pub(crate) fn reply_error(self, error: StateError) {
        self.reply.send(match self.outcome {
            Some(Err(own)) => Err(own),
            Some(Ok(_)) | None => Err(error),
        });
    }
}

impl<T> Debug for CommandReply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reply")
    }
}

impl<T: Send + 'static> From<oneshot::Sender<T>> for CommandReply<T> {
    fn from(sender: oneshot::Sender<T>) -> Self {
        // The result is dropped if the caller has gone away.
        Self::to(move |result| drop(sender.send(result)))
    }
}
