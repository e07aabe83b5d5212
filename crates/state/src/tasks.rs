//! Tasks of tokio without their types. tokio compiles some 70 functions for each type of a task, and a sixth of the functions of the service
//! were such copies.

use std::error::Error;
use std::fmt;
use std::pin::Pin;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Work that panicked, or that began after the end of its runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkStopped;

impl fmt::Display for WorkStopped {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a thread of the runtime stopped before the end of its work")
    }
}

impl Error for WorkStopped {}

/// Runs work on a blocking thread of this runtime. The work goes on if nobody waits for it.
///
/// # Errors
/// The work did not end.
pub async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, WorkStopped> {
    let (sender, result) = oneshot::channel();
    // Nobody may wait any more.
    spawn_blocking(Box::new(move || drop(sender.send(work()))));
    result.await.map_err(|_| WorkStopped)
}

fn spawn_blocking(work: Box<dyn FnOnce() + Send>) {
    drop(tokio::task::spawn_blocking(work));
}

/// Starts a task of this runtime.
pub fn spawn<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    let task: Pin<Box<dyn Future<Output = T> + Send>> = Box::pin(task);
    tokio::spawn(task)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_ends_with_its_result_or_says_that_it_stopped() {
        assert_eq!(run_blocking(|| 7).await, Ok(7));
        assert_eq!(
            run_blocking(|| std::panic::panic_any("on purpose")).await,
            Err::<(), _>(WorkStopped)
        );
        assert_eq!(spawn(async { 7 }).await.unwrap(), 7);
    }
}
