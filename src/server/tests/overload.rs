//! Overload: accepted work stays about as fast as without it, the rest is refused at once, and what waits for a disk holds
//! no worker.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tonic::{Code, Request};

use super::*;
use crate::limits::EdgeLimits;
use crate::server::worker_pool::{CancellationToken, HeldWorker};
use crate::server::{ServerContext, WorkerPool};
use crate::telemetry::Metrics;
use pumice_engine::model::LabelKinds;
use pumice_state::{SharedState, StateOptions, SystemClock};

/// Callers that ask at once, for one worker.
const CALLERS: usize = 24;
/// Duration of a piece of work, independent of the load of the machine.
const WORK: Duration = Duration::from_millis(25);

fn limits(worker_queue: usize) -> EdgeLimits {
    EdgeLimits {
        workers: 1,
        worker_queue,
        ..EdgeLimits::default()
    }
}

/// Times of the accepted pieces of work, in order, and the number of refused ones.
async fn ask(pool: &Arc<WorkerPool>, callers: usize, each: usize) -> (Vec<Duration>, usize) {
    let mut tasks = JoinSet::new();
    for _ in 0..callers {
        let pool = Arc::clone(pool);
        tasks.spawn(async move {
            let (mut accepted, mut refused) = (Vec::new(), 0);
            for _ in 0..each {
                let begun = Instant::now();
                let work = |_: &_| {
                    std::thread::sleep(WORK);
                    Ok(())
                };
                if let Err(failure) = pool.queries.run(work).await {
                    let status = Status::from(failure);
                    let retry = status.get_details_retry_info().unwrap().retry_delay.unwrap();
                    assert!(retry >= Duration::from_millis(20), "{retry:?}");
                    refused += 1;
                    tokio::time::sleep(WORK).await;
                } else {
                    accepted.push(begun.elapsed());
                }
            }
            (accepted, refused)
        });
    }
    let (mut accepted, mut refused) = (Vec::new(), 0);
    for (took, more) in tasks.join_all().await {
        accepted.extend(took);
        refused += more;
    }
    accepted.sort_unstable();
    (accepted, refused)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn accepted_work_stays_fast_under_overload() {
    let pool = Arc::new(WorkerPool::new(&EdgeLimits {
        worker_wait: Duration::from_millis(100),
        ..limits(64)
    }));
    let (normal, refused) = ask(&pool, 1, 10).await;
    assert!(normal.len() == 10 && refused == 0, "one caller is never refused");
    let (accepted, refused) = ask(&pool, CALLERS, 60).await;
    let medians = [&normal, &accepted].map(|times| times[times.len() / 2]);
    // In a queue of all callers each piece takes as long as those of all: 24 times as long.
    assert!(medians[1] < medians[0] * 8, "{medians:?}");
    assert!(
        accepted.len() > 20 && refused > accepted.len(),
        "{} {refused}",
        accepted.len()
    );
}

#[tokio::test]
async fn what_waits_for_the_disk_holds_no_worker() {
    let pool = Arc::new(WorkerPool::new(&limits(0)));
    let (began, started) = mpsc::channel();
    let (flush, flushed) = mpsc::channel();
    let waits = tokio::spawn({
        let pool = Arc::clone(&pool);
        async move {
            let commit = move |worker: HeldWorker, _: &CancellationToken| {
                drop(worker);
                began.send(()).unwrap();
                flushed.recv().unwrap();
                Ok(())
            };
            pool.queries.run_to_disk(commit).await
        }
    });
    tokio::task::spawn_blocking(move || started.recv().unwrap())
        .await
        .unwrap();
    assert_eq!((pool.queries.running(), pool.queries.waiting()), (0, 0));
    assert_eq!(pool.queries.run(|_| Ok(7)).await.unwrap(), 7);
    assert!(!waits.is_finished());
    flush.send(()).unwrap();
    waits.await.unwrap().unwrap();
}

#[tokio::test]
async fn documents_are_compiled_behind_a_gate() {
    let state = SharedState::start(StateOptions::default(), Arc::new(SystemClock::default())).unwrap();
    let (metrics, draining) = (Arc::new(Metrics::new()), watch::channel(false).1);
    let edge = ServerContext::new(state, metrics, limits(0), draining, 1, LabelKinds::default());
    let (end, ended) = mpsc::channel::<()>();
    let (began, started) = mpsc::channel();
    let busy = tokio::spawn({
        let edge = Arc::clone(&edge);
        async move {
            let compile = move |_: &_| {
                began.send(()).unwrap();
                ended.recv().unwrap();
                Ok(())
            };
            edge.workers().policies.run(compile).await
        }
    });
    tokio::task::spawn_blocking(move || started.recv().unwrap())
        .await
        .unwrap();
    let document = "actions: allocate\ntiers:\n- plugins:\n  - name: binpack\n";
    let refused = Arc::clone(&edge)
        .reload_policy(Request::new(reload(document, None)))
        .await
        .unwrap_err();
    assert_eq!(
        (refused.code(), refused.reason()),
        (Code::ResourceExhausted, "OVERLOADED")
    );
    end.send(()).unwrap();
    busy.await.unwrap().unwrap();
    edge.reload_policy(Request::new(reload(document, None))).await.unwrap();
}
