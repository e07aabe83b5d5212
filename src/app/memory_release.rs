//! Returns memory that changes and calls have freed to the system.
//!
//! The allocator holds freed memory for a second, in case it is needed again, and returns it when a large block is
//! freed after that. An idle server frees no large block, so it would hold whatever a full sync needed while it was
//! applied, or a large response while it was sent. The allocator also notices only now and then that other threads have
//! freed what one allocated: when the owner has allocated ten thousand times more. This module therefore allocates and
//! frees, on each kind of thread that owns much: the writer's, those of calls, and those of work.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::engine::Revision;
use crate::state::{SharedState, StateError};

/// Delay after a change, a little longer than the allocator holds freed memory.
const PURGE_DELAY: Duration = Duration::from_millis(1_100);

/// Number of purges after a change or a large call: old snapshots, and memory held by threads, are freed later than the
/// change.
const PURGES: usize = 3;

/// Bytes of requests and responses that are worth a purge.
const FREED_BYTES: usize = 8 << 20;

/// Bytes of a block that the allocator neither caches for a thread nor places among others.
const BLOCK_BYTES: usize = 8 << 20;

/// Number of blocks to free at once: each makes the allocator look at one of its regions of a gigabyte.
const BLOCK_COUNT: usize = 8;

/// Number of allocations, beyond the fast path, after which the allocator collects what others freed for a thread.
const COLLECT_ALLOCATIONS: usize = 10_000;
/// Bytes of an allocation beyond the fast path.
const COLLECT_BYTES: usize = 16 << 10;

/// Number of threads of each kind that are asked to purge at once.
const PURGED_THREADS: usize = 4;

/// Makes the allocator return memory after changes of the state, and after calls that held much, as long as the state
/// exists. `freed` gives the bytes that calls have freed since it was last asked.
pub(super) async fn release_freed_memory(state: Arc<SharedState>, freed: impl Fn() -> usize + Send) {
    let mut seen = state.snapshot().revision;
    let mut left = 0;
    loop {
        let next = Revision {
            number: seen.number + 1,
            ..seen
        };
        match state.snapshot_at(Some(next), &[], PURGE_DELAY).await {
            Ok(snapshot) => {
                (seen, left) = (snapshot.revision, PURGES);
                tokio::time::sleep(PURGE_DELAY).await;
            }
            Err(StateError::NotReached { .. }) if freed() >= FREED_BYTES => left = PURGES,
            Err(StateError::NotReached { .. }) if left == 0 => continue,
            Err(StateError::NotReached { .. }) => {}
            Err(_) => return,
        }
        left -= 1;
        // Most of the state's memory belongs to the writer's thread.
        if state.run_on_writer(trigger_purge).await.is_err() {
            return;
        }
        // They run at once, so that each takes another thread.
        let mut others = JoinSet::new();
        for _ in 0..PURGED_THREADS {
            others.spawn(async { trigger_purge() });
            others.spawn_blocking(trigger_purge);
        }
        while others.join_next().await.is_some() {}
    }
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
