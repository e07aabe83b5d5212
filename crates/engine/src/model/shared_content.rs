//! Memory of shared content in bytes.

use std::sync::Arc;

/// Bytes of the reference counts before shared content.
pub(crate) const COUNT_BYTES: usize = 2 * size_of::<usize>();
/// Bytes to which allocators round small blocks.
pub(super) const BLOCK_BYTES: usize = 16;

/// One holder's share of the bytes of shared content. The shares of all holders sum to the bytes.
pub(super) fn held_share<T: ?Sized>(content: &Arc<T>, bytes: usize) -> usize {
    (bytes + COUNT_BYTES).next_multiple_of(BLOCK_BYTES) / Arc::strong_count(content).max(1)
}
