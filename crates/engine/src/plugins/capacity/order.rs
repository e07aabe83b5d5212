//! Order of queues: by priority, then by shares, in a tree at the fork of the two paths.

use std::sync::Arc;

use super::super::queue_accounts::QuotaState;
use super::state::QueueCapacityState;
use crate::model::Problem;
use crate::plugin::{OrderKey, QueueComparison};
use crate::policy::Compatibility;

/// Rank of a queue among its siblings: a smaller share first, then one that deserves something.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct SiblingRank {
    /// Largest part of a deserved amount that is held; 1 if nothing is deserved.
    share: f64,
    /// True if the queue deserves nothing.
    deserves_nothing: bool,
}

impl SiblingRank {
    fn compare(self, other: Self) -> i64 {
        if self.share != other.share {
            return if self.share < other.share { -1 } else { 1 };
        }
        i64::from(self.deserves_nothing) - i64::from(other.deserves_nothing)
    }
}

/// Place of a queue in the tree, for comparisons.
#[derive(Clone, Debug)]
struct TreePlace {
    priority: i32,
    is_leaf: bool,
    /// Numbers of the queues on the path, from the root to the queue, with their ranks.
    path: Vec<(usize, SiblingRank)>,
}

/// Comparison of queues in a tree under `upstream`.
#[derive(Debug)]
pub(super) struct TreeComparison {
    places: Vec<TreePlace>,
    is_total: bool,
}

impl QueueCapacityState {
    fn sibling_rank(&self, queue: &str) -> SiblingRank {
        let account = self.accounts.account(queue);
        account.map_or_else(SiblingRank::default, |account| SiblingRank {
            share: account.share,
            deserves_nothing: account.deserved.is_empty(),
        })
    }

    /// Order key of a queue: −priority, then share and whether it deserves nothing (0 or 1), under `corrected` of each queue on its path
    /// below the root.
    ///
    /// # Errors
    /// The errors of [`Self::known_account`].
    pub(super) fn order_key(&self, queue: &str) -> OrderKey {
        let account = self.known_account(queue)?;
        let mut key = vec![-f64::from(account.limits.priority)];
        let path = match &self.tree {
            Some(tree) if self.compatibility() == Compatibility::Corrected => tree.path(queue),
            _ => vec![queue],
        };
        for queue in path
            .into_iter()
            .filter(|queue| self.tree.is_none() || *queue != super::tree::ROOT)
        {
            let rank = self.sibling_rank(queue);
            key.extend([rank.share, f64::from(u8::from(rank.deserves_nothing))]);
        }
        Ok::<_, Problem>(key)
    }

    /// Comparison of queues in a tree under `upstream`; `None`: keys tell.
    pub(super) fn tree_comparison(&self, queues: &[Arc<str>]) -> Option<TreeComparison> {
        let tree = self.tree.as_ref()?;
        if self.compatibility() == Compatibility::Corrected {
            return None;
        }
        let mut numbers = std::collections::BTreeMap::new();
        let places = queues.iter().map(|queue| {
            let path = tree.path(queue).into_iter().map(|name| {
                let next = numbers.len();
                (*numbers.entry(name).or_insert(next), self.sibling_rank(name))
            });
            TreePlace {
                path: path.collect(),
                priority: self
                    .accounts
                    .account(queue)
                    .map_or(0, |account| account.limits.priority),
                is_leaf: tree.is_leaf(queue),
            }
        });
        let places: Vec<TreePlace> = places.collect();
        let is_total = is_total(&places);
        Some(TreeComparison { places, is_total })
    }
}

/// True if all are leaves, and no two inner queues of one parent have equal ranks: then equal queues are siblings, and the
/// comparison is a total order.
fn is_total(places: &[TreePlace]) -> bool {
    let mut inner: Vec<(usize, usize, u64, bool)> = Vec::new();
    let mut leaves: Vec<(usize, u64, bool)> = Vec::new();
    for place in places {
        if !place.is_leaf {
            return false;
        }
        for (depth, pair) in place.path.windows(2).enumerate() {
            let [(parent, _), (queue, rank)] = pair else { continue };
            if rank.share.is_nan() {
                return false;
            }
            let share = (rank.share + 0.0).to_bits();
            if depth + 2 < place.path.len() {
                inner.push((*parent, *queue, share, rank.deserves_nothing));
            } else {
                leaves.push((*parent, share, rank.deserves_nothing));
            }
        }
    }
    inner.sort_unstable();
    inner.dedup();
    let mut ranks: Vec<(usize, u64, bool)> = inner
        .into_iter()
        .map(|(parent, _, share, undeserving)| (parent, share, undeserving))
        .collect();
    ranks.sort_unstable();
    let repeats = ranks
        .windows(2)
        .any(|pair| matches!(pair, [one, other] if one == other));
    !repeats && !leaves.iter().any(|leaf| ranks.binary_search(leaf).is_ok())
}

impl QueueComparison for TreeComparison {
    fn compare(&self, left: usize, right: usize) -> i64 {
        let (Some(left), Some(right)) = (self.places.get(left), self.places.get(right)) else {
            return 0;
        };
        if left.priority != right.priority {
            return i64::from(right.priority) - i64::from(left.priority);
        }
        let own = |place: &TreePlace| place.path.last().map(|(_, rank)| *rank).unwrap_or_default();
        match (left.is_leaf, right.is_leaf) {
            (true, false) => -1,
            (false, true) => 1,
            (false, false) => own(left).compare(own(right)),
            (true, true) => {
                // The path has the queue itself at its end, which is no queue above it.
                let above = |place: &'_ TreePlace| place.path.len().saturating_sub(1);
                let pairs = left
                    .path
                    .iter()
                    .take(above(left))
                    .zip(right.path.iter().take(above(right)));
                let common = pairs.take_while(|((one, _), (other, _))| one == other).count().max(1);
                let at = |place: &TreePlace| place.path.get(common).map_or_else(|| own(place), |(_, rank)| *rank);
                at(left).compare(at(right))
            }
        }
    }

    fn is_total(&self) -> bool {
        self.is_total
    }

    /// Without equal ranks of queues of one parent, ranks from the root down tell what those at the fork tell.
    fn key(&self, position: usize) -> Option<Vec<f64>> {
        let place = self.places.get(position).filter(|_| self.is_total)?;
        let mut key = vec![-f64::from(place.priority)];
        for (_, rank) in place.path.iter().skip(1) {
            key.extend([rank.share, f64::from(u8::from(rank.deserves_nothing))]);
        }
        Some(key)
    }
}
