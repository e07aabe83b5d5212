//! Returns memory that changes have freed to the system.
//!
//! The allocator holds freed memory for a second, in case it is needed again, and returns it when a large block is
//! freed after that. An idle server frees no large block, so it would hold whatever a full sync needed while it was
//! applied. This module therefore frees such blocks, on a thread that nothing waits for.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::Revision;
use crate::state::{SharedState, StateError};

/// Delay after a change, a little longer than the allocator holds freed memory.
const PURGE_DELAY: Duration = Duration::from_millis(1_100);

/// Number of rounds after a change: old snapshots, and memory held by threads, are freed later than the change.
const PURGE_ROUNDS: usize = 2;

/// Longest wait for one change.
const CHANGE_TIMEOUT: Duration = Duration::from_hours(1);

/// Bytes of a block that the allocator neither caches for a thread nor places among others.
const BLOCK_BYTES: usize = 8 << 20;

/// Number of blocks to free at once: each makes the allocator look at one of its regions of a gigabyte.
const BLOCK_COUNT: usize = 8;

/// Makes the allocator return memory after changes of the state, as long as the state exists.
pub(super) async fn release_freed_memory(state: Arc<SharedState>) {
    let mut seen = state.snapshot().revision;
    loop {
        let next = Revision {
            number: seen.number + 1,
            ..seen
        };
        match state.snapshot_at(Some(next), &[], CHANGE_TIMEOUT).await {
            Ok(snapshot) => seen = snapshot.revision,
            Err(StateError::NotReached { .. }) => continue,
            Err(_) => return,
        }
        for _ in 0..PURGE_ROUNDS {
            tokio::time::sleep(PURGE_DELAY).await;
            if tokio::task::spawn_blocking(trigger_purge).await.is_err() {
                return;
            }
        }
    }
}

/// Frees blocks that were never written to, and so never took memory.
fn trigger_purge() {
    for _ in 0..BLOCK_COUNT {
        drop(black_box(Vec::<u8>::with_capacity(BLOCK_BYTES)));
    }
}
