//! Large messages are decoded on workers: probes and small requests do not wait for them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use axum::http::{Request, Response};
use tokio::runtime::{Handle, RuntimeFlavor};
use tonic::Status;
use tonic::body::Body;
use tower::{Layer, Service};

use super::connection::CallerConnection;
use super::worker_pool::{CancellationToken, WorkerPool};

/// Bytes of a message above which a worker decodes it: at some 5 ns each, a third of a millisecond.
pub(super) const LARGE_MESSAGE: usize = 64 << 10;

/// Result of work on a message. If the message is large, other threads take over the tasks of this one meanwhile, unless
/// the runtime has no others.
pub(super) fn work_beside_tasks<T>(large: bool, work: impl FnOnce() -> T) -> T {
    let can_block =
        || Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
    if large && can_block() {
        tokio::task::block_in_place(work)
    } else {
        work()
    }
}

/// Layer whose calls with large messages begin on a worker.
#[derive(Clone, Debug)]
pub struct LargeMessageLayer(Arc<WorkerPool>);

impl LargeMessageLayer {
    /// Layer over these workers.
    pub fn new(workers: Arc<WorkerPool>) -> Self {
        Self(workers)
    }
}

impl<S> Layer<S> for LargeMessageLayer {
    type Service = LargeMessageService<S>;

    fn layer(&self, inner: S) -> LargeMessageService<S> {
        LargeMessageService {
            inner,
            workers: Arc::clone(&self.0),
        }
    }
}

/// Service whose calls with large messages begin on a worker.
#[derive(Clone, Debug)]
pub struct LargeMessageService<S> {
    inner: S,
    workers: Arc<WorkerPool>,
}

type DecodedFuture<E> = Pin<Box<dyn Future<Output = Result<Response<Body>, E>> + Send>>;

impl<S, B> Service<Request<B>> for LargeMessageService<S>
where
    B: http_body::Body,
    S: Service<Request<B>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = DecodedFuture<S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // Only a body that is all there has an exact size: its message is decoded as soon as the call is polled.
        let large = request
            .body()
            .size_hint()
            .exact()
            .is_some_and(|bytes| bytes > LARGE_MESSAGE as u64);
        let call = self.inner.call(request);
        if !large {
            return Box::pin(call);
        }
        let workers = Arc::clone(&self.workers);
        Box::pin(async move {
            let caller = CallerConnection::current();
            let decode = move |_: &CancellationToken| Ok(CallerConnection::work_for(caller, || begin(call)));
            match workers.messages.run(decode).await {
                Ok(Ok(done)) => done,
                Ok(Err(pending)) => pending.await,
                Err(failure) => Ok(Status::from(failure).into_http()),
            }
        })
    }
}

/// Polls a call once, which decodes its message. Returns the call's result, or the call.
fn begin<F: Future>(call: F) -> Result<F::Output, Pin<Box<F>>> {
    let mut call = Box::pin(call);
    // Whatever wakes the call meanwhile is noticed when it is polled again at once.
    match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => Ok(done),
        Poll::Pending => Err(call),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::thread::ThreadId;
    use std::time::Duration;

    use tokio::sync::mpsc;
    use tower::{ServiceExt as _, service_fn};

    use super::*;
    use crate::limits::EdgeLimits;

    #[tokio::test]
    async fn large_messages_are_decoded_off_the_async_threads() {
        let (polled, mut threads) = mpsc::unbounded_channel::<ThreadId>();
        let service = service_fn(move |_: Request<axum::body::Body>| {
            let polled = polled.clone();
            async move {
                polled.send(std::thread::current().id()).unwrap();
                // The rest of the call waits on the async threads again.
                tokio::time::sleep(Duration::from_millis(1)).await;
                polled.send(std::thread::current().id()).unwrap();
                Ok::<_, Infallible>(Response::new(Body::default()))
            }
        });
        let layer = LargeMessageLayer::new(Arc::new(WorkerPool::new(&EdgeLimits::default())));
        let here = std::thread::current().id();
        for (bytes, is_large) in [(LARGE_MESSAGE, false), (LARGE_MESSAGE + 1, true)] {
            let request = Request::new(axum::body::Body::from(vec![0; bytes]));
            layer.layer(service.clone()).oneshot(request).await.unwrap();
            assert_eq!(threads.recv().await.unwrap() != here, is_large, "{bytes} bytes");
            assert_eq!(threads.recv().await.unwrap(), here);
        }
    }
}
