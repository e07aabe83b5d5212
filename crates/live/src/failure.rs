//! Panics as errors. A watch whose task ended silently would look like a watch without changes.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use tokio::sync::mpsc;

use crate::resource_watch::WatchMessage;

/// Result of a future.
///
/// # Errors
/// The future panicked; the error is the message of the panic.
pub(crate) async fn caught<T>(future: impl Future<Output = T>) -> Result<T, String> {
    let mut future = pin!(future);
    // A caller lists everything again before it uses what the future has borrowed.
    poll_fn(
        |context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(polled) => polled.map(Ok),
            Err(payload) => Poll::Ready(Err(message(&*payload))),
        },
    )
    .await
}

/// Runs a task of a watch, and sends its failure.
pub(crate) async fn reporting(task: impl Future<Output = ()>, messages: mpsc::Sender<WatchMessage>) {
    if let Err(panic) = caught(task).await {
        drop(messages.send(WatchMessage::Failed(panic)).await);
    }
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a panic without a message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_is_reported() {
        let (sender, mut messages) = mpsc::channel(1);
        let late = async {
            tokio::task::yield_now().await;
            panic!("no {}", "number");
        };
        reporting(late, sender.clone()).await;
        let Some(WatchMessage::Failed(reason)) = messages.recv().await else {
            panic!("nothing was sent");
        };
        assert_eq!(reason, "no number");
        reporting(async {}, sender).await;
        assert!(messages.recv().await.is_none(), "a task that has ended");
        assert_eq!(caught(async { 7 }).await, Ok(7));
    }
}
