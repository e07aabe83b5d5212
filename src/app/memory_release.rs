//! Memory that changes freed goes back to the system.
//!
//! The allocator keeps what was freed for a second, in case it is asked for again, and gives it back when the next large
//! block is freed after that. A server at rest frees none, so that it would go on holding whatever a snapshot needed while
//! it was taken in. So it is asked, on a thread that nobody waits for.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::Revision;
use crate::state::{SharedState, StateError};

/// A little longer than the allocator keeps what was freed.
const PURGE_DELAY: Duration = Duration::from_millis(1_100);

/// How often it is asked after a change: old snapshots, and what threads hold, are freed later than the change.
const PURGE_ROUNDS: usize = 2;

/// How long to wait for a change at a time.
const CHANGE_TIMEOUT: Duration = Duration::from_hours(1);

/// Bytes of a block that the allocator neither keeps for a thread nor puts among others.
const BLOCK_BYTES: usize = 8 << 20;

/// Blocks to free at a time: each lets the allocator look at one of its regions, of a gigabyte.
const BLOCK_COUNT: usize = 8;

/// Asks the allocator after changes of the state, as long as that is alive.
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
