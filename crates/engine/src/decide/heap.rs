//! Binary heap with the steps of Go's container/heap. The order of equal items, and of items whose keys changed while
//! in the heap, depends on these steps.

/// Heap whose comparison is passed to each call. The comparison can therefore read the present state.
#[derive(Clone, Debug, Default)]
pub(crate) struct SchedulingHeap<T> {
    items: Vec<T>,
}

impl<T: Copy> SchedulingHeap<T> {
    /// Heap without items.
    pub(crate) fn new() -> Self {
        Self { items: Vec::new() }
    }

    /// True if the heap has no items.
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Adds an item.
    pub(crate) fn push(&mut self, item: T, mut less: impl FnMut(T, T) -> bool) {
        self.items.push(item);
        let mut at = self.items.len() - 1;
        while at > 0 {
            let parent = (at - 1) / 2;
            if !self.is_before(at, parent, &mut less) {
                break;
            }
            self.items.swap(at, parent);
            at = parent;
        }
    }

    /// Removes the first item.
    pub(crate) fn pop(&mut self, mut less: impl FnMut(T, T) -> bool) -> Option<T> {
        let last = self.items.len().checked_sub(1)?;
        self.items.swap(0, last);
        let mut at = 0;
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            if left >= last {
                break;
            }
            let child = if right < last && self.is_before(right, left, &mut less) {
                right
            } else {
                left
            };
            if !self.is_before(child, at, &mut less) {
                break;
            }
            self.items.swap(at, child);
            at = child;
        }
        self.items.pop()
    }

    fn is_before(&self, left: usize, right: usize, less: &mut impl FnMut(T, T) -> bool) -> bool {
        match (self.items.get(left), self.items.get(right)) {
            (Some(left), Some(right)) => less(*left, *right),
            _ => false,
        }
    }
}
