//! Signal that is given once, to one task.

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;

/// Signal that is given once, and that one task waits for.
#[derive(Debug, Default)]
pub(super) struct TaskSignal {
    given: AtomicBool,
    waker: AtomicWaker,
}

impl TaskSignal {
    /// Gives the signal, which wakes the task.
    pub(super) fn give(&self) {
        self.given.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// True once the signal is given.
    pub(super) fn is_given(&self) -> bool {
        self.given.load(Ordering::Acquire)
    }

    /// Ready once the signal is given.
    pub(super) fn poll(&self, context: &Context<'_>) -> Poll<()> {
        self.waker.register(context.waker());
        if self.is_given() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}
