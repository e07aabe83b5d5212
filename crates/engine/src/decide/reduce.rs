//! Reductions of several plugins' results to one: Volcano's tiers, over results given as data.
//!
//! "In order" means tier by tier, and in a tier plugin by plugin, for plugins that are switched on and have the hook
//! ([`Policy::filters`](crate::policy::Policy::filters)). An iterator is read only as far as the reduction needs.

use crate::model::NodeMask;

/// Nodes that pass all filters. Filters run in order, each on the nodes that earlier filters passed; `refused` runs one
/// filter and returns the rejected nodes.
pub(super) fn conjunction<F>(
    filters: impl IntoIterator<Item = F>,
    among: &NodeMask,
    mut refused: impl FnMut(F, &NodeMask) -> NodeMask,
) -> NodeMask {
    let mut left = *among;
    if left.is_empty() {
        return left;
    }
    for filter in filters {
        left = left.and_not(&refused(filter, &left));
        if left.is_empty() {
            break;
        }
    }
    left
}
