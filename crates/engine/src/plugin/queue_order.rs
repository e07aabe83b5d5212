//! Orders of queues and of victims that keys cannot tell.

use std::fmt;

/// Comparison of queues by their positions in a list.
pub trait QueueComparison {
    /// Negative if the left queue comes first, positive if the right one does, 0 if the plugin holds them equal.
    fn compare(&self, left: usize, right: usize) -> i64;

    /// True if the comparison, with ties by creation time and name, is a total order on these queues.
    fn is_total(&self) -> bool;

    /// Key of the queue at a position, which tells what the comparison tells; `None`: no keys do.
    fn key(&self, position: usize) -> Option<Vec<f64>>;
}

/// Order in which candidates would be evicted by the whole policy, computed on demand.
#[derive(Clone, Copy, Default)]
pub struct EvictionOrder<'a>(Option<&'a dyn Fn() -> Vec<usize>>);

impl fmt::Debug for EvictionOrder<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = if self.0.is_some() { "by the policy" } else { "as listed" };
        out.debug_tuple("EvictionOrder").field(&known).finish()
    }
}

impl<'a> EvictionOrder<'a> {
    /// Order that this function computes.
    pub fn new(order: &'a dyn Fn() -> Vec<usize>) -> Self {
        Self(Some(order))
    }

    /// Positions of so many candidates in this order; by default as they are listed.
    pub fn positions(&self, count: usize) -> Vec<usize> {
        self.0.map_or_else(|| (0..count).collect(), |order| order())
    }
}
