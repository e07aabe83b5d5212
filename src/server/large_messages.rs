//! Large messages are decoded on workers: probes and small requests do not wait for them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use axum::http::{HeaderMap, Request, Response};
use http_body::Body as _;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;
use tonic::Status;
use tonic::body::Body;
use tower::Service;

use super::connection::CallScope;
use super::request_body::ENCODING;
use super::worker_pool::{CancellationToken, WorkerPool};

/// Bytes of a message above which a worker decodes it: at some 5 ns each, a third of a millisecond.
pub(super) const LARGE_MESSAGE: usize = 64 << 10;

/// Largest number of bytes that one compressed byte can stand for.
const INFLATED_BYTES: u64 = 1_032;

/// Bytes of a batch from which on it waits for room: records of objects take several times the bytes of their message.
const HUGE_BATCH: usize = 4 << 20;
/// Bytes of such batches that are read or applied at once. One alone is always read.
const BATCH_ROOM: usize = 48 << 20;
/// Bytes that one permit of the room stands for.
const ROOM_UNIT: usize = 1 << 20;
/// End of the path of the call that applies a batch. It waits for the writer only.
const APPLY: &str = "/Apply";

/// Permits of a batch of this size; `None`: it is read at once.
fn room_units(bytes: u64) -> Option<u32> {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    let units = bytes.min(BATCH_ROOM).div_ceil(ROOM_UNIT);
    (bytes > HUGE_BATCH).then(|| u32::try_from(units).unwrap_or(1))
}

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

/// Gate of calls with large messages, which begin on a worker.
#[derive(Debug)]
pub(super) struct LargeMessageGate {
    workers: Arc<WorkerPool>,
    /// Room of huge batches.
    room: Arc<Semaphore>,
}

/// True if a message of this many bytes takes long to decode. A compressed byte can stand for a thousand.
fn is_large(bytes: u64, headers: &HeaderMap) -> bool {
    let large = LARGE_MESSAGE as u64;
    bytes > large || (bytes.saturating_mul(INFLATED_BYTES) > large && headers.contains_key(&ENCODING))
}

impl LargeMessageGate {
    /// Gate to these workers.
    pub(super) fn new(workers: Arc<WorkerPool>) -> Self {
        Self {
            workers,
            room: Arc::new(Semaphore::new(BATCH_ROOM / ROOM_UNIT)),
        }
    }

    /// Calls a service, on a worker until the message is decoded if that takes long.
    pub(super) async fn call<S>(&self, service: &mut S, request: Request<Body>) -> Result<Response<Body>, S::Error>
    where
        S: Service<Request<Body>, Response = Response<Body>, Future: Send + 'static, Error: Send + 'static>,
    {
        // Only a body that is all there has an exact size: its message is decoded as soon as the call is polled.
        let size = request.body().size_hint().exact().unwrap_or(0);
        let large = is_large(size, request.headers());
        let units = room_units(size).filter(|_| request.uri().path().ends_with(APPLY));
        let call = service.call(request);
        if !large {
            return call.await;
        }
        Box::pin(self.begin(call, units)).await
    }

    async fn begin<E: Send + 'static>(
        &self,
        call: impl Future<Output = Result<Response<Body>, E>> + Send + 'static,
        units: Option<u32>,
    ) -> Result<Response<Body>, E> {
        // Its records are there until it is applied, so it gives the room back with its response. The room is never closed.
        let _room = match units {
            Some(units) => Arc::clone(&self.room).acquire_many_owned(units).await.ok(),
            None => None,
        };
        let scope = CallScope::current();
        let decode = move |_: &CancellationToken| Ok(CallScope::work_for(scope, || begin(call)));
        match self.workers.messages.run(decode).await {
            Ok(Ok(done)) => done,
            Ok(Err(pending)) => pending.await,
            Err(failure) => Ok(Status::from(failure).into_http()),
        }
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
    use tower::service_fn;

    use super::*;
    use crate::limits::EdgeLimits;

    fn body(bytes: usize) -> Body {
        Body::new(axum::body::Body::from(vec![0; bytes]))
    }

    #[test]
    fn huge_batches_share_one_room() {
        let most = u32::try_from(BATCH_ROOM / ROOM_UNIT).unwrap();
        assert_eq!([0, LARGE_MESSAGE as u64, HUGE_BATCH as u64].map(room_units), [None; 3]);
        assert_eq!(room_units(24 << 20), Some(24));
        assert_eq!([BATCH_ROOM as u64, u64::MAX].map(room_units), [Some(most); 2]);
    }

    #[tokio::test]
    async fn huge_batches_wait_for_each_other_and_other_calls_do_not() {
        let (begun, mut begins) = mpsc::unbounded_channel::<String>();
        let service = service_fn(move |request: Request<Body>| {
            let begun = begun.clone();
            async move {
                begun.send(request.uri().path().to_owned()).unwrap();
                tokio::time::sleep(Duration::from_millis(100)).await;
                Ok::<_, Infallible>(Response::new(Body::default()))
            }
        });
        let gate = LargeMessageGate::new(Arc::new(WorkerPool::new(&EdgeLimits::default())));
        let call = async |path: &str, bytes: usize| {
            let request = Request::builder().uri(path).body(body(bytes)).unwrap();
            gate.call(&mut service.clone(), request).await
        };
        let (_, _, ()) = tokio::join!(call("/a/Apply", BATCH_ROOM), call("/b/Apply", BATCH_ROOM), async {
            call("/small/Apply", HUGE_BATCH).await.unwrap();
            call("/c/Score", BATCH_ROOM).await.unwrap();
        });
        let mut order = Vec::new();
        while let Ok(path) = begins.try_recv() {
            order.push(path);
        }
        let at = |path: &str| order.iter().position(|own| own == path).unwrap();
        assert!(
            at("/a/Apply") < at("/b/Apply") && at("/small/Apply") < at("/b/Apply"),
            "{order:?}"
        );
        assert_eq!(order.len(), 4);
    }

    #[tokio::test]
    async fn large_messages_are_decoded_off_the_async_threads() {
        let (polled, mut threads) = mpsc::unbounded_channel::<ThreadId>();
        let service = service_fn(move |_: Request<Body>| {
            let polled = polled.clone();
            async move {
                polled.send(std::thread::current().id()).unwrap();
                // The rest of the call waits on the async threads again.
                tokio::time::sleep(Duration::from_millis(1)).await;
                polled.send(std::thread::current().id()).unwrap();
                Ok::<_, Infallible>(Response::new(Body::default()))
            }
        });
        let gate = LargeMessageGate::new(Arc::new(WorkerPool::new(&EdgeLimits::default())));
        let here = std::thread::current().id();
        for (bytes, is_large) in [(LARGE_MESSAGE, false), (LARGE_MESSAGE + 1, true)] {
            gate.call(&mut service.clone(), Request::new(body(bytes)))
                .await
                .unwrap();
            assert_eq!(threads.recv().await.unwrap() != here, is_large, "{bytes} bytes");
            assert_eq!(threads.recv().await.unwrap(), here);
        }
    }
}
