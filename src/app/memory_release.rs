//! Returns freed memory of changes, sessions and calls to the system.
//!
//! The allocator holds freed memory for a second and returns it when a large block is freed later. An idle server does
//! not free large blocks, so it would hold the memory of a full sync or of a large response. The allocator also
//! processes memory that other threads freed only rarely: after ten thousand further allocations of the owner. This
//! module therefore allocates and frees a block on each kind of thread that owns much memory: the writer thread, call
//! threads and worker threads.

use std::hint::black_box;
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::telemetry::resident_bytes;
use pumice_state::SharedState;

/// Time between two looks, a little longer than the allocator holds freed memory.
const PURGE_DELAY: Duration = Duration::from_millis(1_100);

/// Number of purges after much memory was freed. The last purges run after idle worker threads have ended; any thread
/// can then return their memory.
const PURGES: usize = 16;

/// Bytes that are worth a purge.
const FREED_BYTES: usize = 8 << 20;

/// Number of records whose memory is worth a purge.
const FREED_RECORDS: usize = 10_000;

/// Bytes of a block that the allocator neither caches for a thread nor places among others.
const BLOCK_BYTES: usize = 8 << 20;

/// Number of blocks to free at once: each makes the allocator look at one of its regions of a gigabyte.
const BLOCK_COUNT: usize = 8;

/// Number of allocations, beyond the fast path, after which the allocator collects what others freed for a thread.
const COLLECT_ALLOCATIONS: usize = 10_000;
/// Bytes of an allocation beyond the fast path.
const COLLECT_BYTES: usize = 16 << 10;

/// Number of threads of each kind that are asked to purge at once. A new thread takes a megabyte itself.
const PURGED_THREADS: usize = 4;
/// Number of attempts to reach all async threads: a task runs on whichever is free.
const PURGE_ATTEMPTS: usize = 8;
/// Time for which a worker thread is held: the other purges then run on other threads.
const HELD_THREAD: Duration = Duration::from_millis(10);

/// Largest of the latest amounts.
#[derive(Debug, Default)]
struct PeakAmount(usize);

impl PeakAmount {
    /// Amount by which the present one is below the largest.
    fn fallen(&mut self, amount: usize) -> usize {
        self.0 = self.0.max(amount);
        self.0 - amount
    }
}

/// Amounts that show that memory was freed. Small changes, such as the heartbeats of a source, show nothing.
#[derive(Debug, Default)]
struct FreedMemory {
    records: PeakAmount,
    session_bytes: PeakAmount,
    /// Least memory of the process since the last purge.
    least_resident: Option<u64>,
}

impl FreedMemory {
    /// True if a purge may return much. `resident`: memory of the process, if it is known; what it has gained may have
    /// been needed for a moment only.
    fn is_worth_a_purge(&mut self, records: usize, session_bytes: usize, resident: Option<u64>) -> bool {
        let gained = resident.map_or(0, |resident| {
            let least = self.least_resident.unwrap_or(resident).min(resident);
            self.least_resident = Some(least);
            resident - least
        });
        let removed = self.records.fallen(records) >= FREED_RECORDS;
        let closed = self.session_bytes.fallen(session_bytes) >= FREED_BYTES;
        let worth = removed || closed || gained >= FREED_BYTES as u64;
        if worth {
            // The memory after the purges is the next one's measure.
            *self = Self::default();
        }
        worth
    }
}

fn record_count(state: &SharedState) -> usize {
    let cluster_state = &state.snapshot().state;
    let nodes = usize::try_from(cluster_state.node_count()).unwrap_or(usize::MAX);
    let others = cluster_state.queues().len() + cluster_state.jobs().len() + cluster_state.namespaces().len();
    nodes + others + cluster_state.tasks().len()
}

/// Makes the allocator return memory after changes of the state, sessions and calls that held much, as long as the state
/// takes changes. `freed` gives the bytes that calls have freed since it was last asked.
pub(super) async fn release_freed_memory(state: Arc<SharedState>, freed: impl Fn() -> usize + Send) {
    let (mut freed_memory, mut left) = (FreedMemory::default(), 0);
    // Whatever comes in the first second counts, too.
    freed_memory.is_worth_a_purge(record_count(&state), state.session_bytes(), resident_bytes());
    while state.is_alive() {
        tokio::time::sleep(PURGE_DELAY).await;
        let resident = pumice_state::tasks::run_blocking(resident_bytes).await.ok().flatten();
        let by_calls = freed() >= FREED_BYTES;
        if freed_memory.is_worth_a_purge(record_count(&state), state.session_bytes(), resident) || by_calls {
            left = PURGES;
        }
        if left == 0 {
            continue;
        }
        // Most of the state's memory belongs to the writer's thread.
        match state.try_run_on_writer(trigger_purge) {
            Ok(true) => left -= 1,
            // The writer is busy, or waits for the disk.
            Ok(false) => continue,
            Err(_) => return,
        }
        purge_async_threads(trigger_purge).await;
        let mut others = JoinSet::new();
        for _ in 0..PURGED_THREADS {
            others.spawn_blocking(|| {
                trigger_purge();
                std::thread::sleep(HELD_THREAD);
            });
        }
        while others.join_next().await.is_some() {}
    }
}

/// Purges on the async threads, which own the memory of connections and calls. Returns the number of reached threads.
async fn purge_async_threads(purge: fn()) -> usize {
    let threads = Handle::current().metrics().num_workers();
    let mut reached: Vec<ThreadId> = Vec::new();
    for _ in 0..PURGE_ATTEMPTS {
        let mut purges = JoinSet::new();
        for _ in 0..threads.max(PURGED_THREADS) {
            purges.spawn(async move {
                purge();
                std::thread::current().id()
            });
        }
        while let Some(ended) = purges.join_next().await {
            if let Ok(thread) = ended
                && !reached.contains(&thread)
            {
                reached.push(thread);
            }
        }
        if reached.len() >= threads {
            break;
        }
    }
    reached.len()
}

/// Makes the allocator collect what others freed for this thread, and return it.
fn trigger_purge() {
    for _ in 0..COLLECT_ALLOCATIONS {
        drop(black_box(Vec::<u8>::with_capacity(COLLECT_BYTES)));
    }
    // Blocks that are never written to take no memory.
    for _ in 0..BLOCK_COUNT {
        drop(black_box(Vec::<u8>::with_capacity(BLOCK_BYTES)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn each_async_thread_purges() {
        for _ in 0..3 {
            let reached = purge_async_threads(|| std::thread::sleep(Duration::from_millis(10))).await;
            assert_eq!(reached, 4);
        }
    }

    #[test]
    fn heartbeats_purge_nothing_and_what_is_freed_does() {
        let mut freed = FreedMemory::default();
        let heartbeats = |freed: &mut FreedMemory, records: usize, resident: u64| {
            for beat in 0..1_000 {
                // Memory rises and falls a little.
                let resident = resident * MIB + beat % 4 * MIB;
                assert!(!freed.is_worth_a_purge(records, 1 << 20, Some(resident)), "beat {beat}");
            }
        };
        heartbeats(&mut freed, 50_000, 100);
        // A full sync of the same records, which took memory for a moment.
        assert!(freed.is_worth_a_purge(50_000, 1 << 20, Some(150 * MIB)));
        heartbeats(&mut freed, 50_000, 105);
        assert!(freed.is_worth_a_purge(30_000, 1 << 20, Some(105 * MIB)), "records went");
        heartbeats(&mut freed, 30_000, 90);
        assert!(!freed.is_worth_a_purge(30_000, 20 << 20, None), "a session grew");
        assert!(freed.is_worth_a_purge(30_000, 1 << 20, None), "and was closed");
        heartbeats(&mut freed, 30_000, 90);
    }
}
