//! Memory that changes freed goes back to the system.
//!
//! The allocator keeps what was freed for a second, in case it is asked for again, and gives it back when the next large
//! block is freed after that. A server at rest frees none, so that it would go on holding whatever a snapshot needed while
//! it was taken in. So it is asked, on a thread that nobody waits for.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::Revision;
use crate::state::{State, StateError};

/// A little longer than the allocator keeps what was freed.
const REST: Duration = Duration::from_millis(1_100);

/// How often it is asked after a change: old Worlds, and what threads hold, are freed later than the change.
const ROUNDS: usize = 2;

/// How long to wait for a change at a time.
const PATIENCE: Duration = Duration::from_hours(1);

/// Bytes of a block that the allocator neither keeps for a thread nor puts among others.
const BLOCK: usize = 8 << 20;

/// Blocks to free at a time: each lets the allocator look at one of its regions, of a gigabyte.
const BLOCKS: usize = 8;

/// Asks the allocator after changes of the state, as long as that is alive.
pub(super) async fn give_back(state: Arc<State>) {
    let mut seen = state.world().revision;
    loop {
        let next = Revision {
            number: seen.number + 1,
            ..seen
        };
        match state.world_at(Some(next), &[], PATIENCE).await {
            Ok(world) => seen = world.revision,
            Err(StateError::NotReached { .. }) => continue,
            Err(_) => return,
        }
        for _ in 0..ROUNDS {
            tokio::time::sleep(REST).await;
            if tokio::task::spawn_blocking(ask).await.is_err() {
                return;
            }
        }
    }
}

/// Frees blocks that were never written to, and so never took memory.
fn ask() {
    for _ in 0..BLOCKS {
        drop(black_box(Vec::<u8>::with_capacity(BLOCK)));
    }
}
