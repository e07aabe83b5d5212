//! Shares in a tree of queues against a tree that is computed completely after each change.

pub(crate) use pumice_engine::plugins::drf::{DrfState, HIERARCHY, NAME, WEIGHTS};

mod hierarchy;
mod tests;

use pumice_engine::policy::Compatibility;
use tests::tree_changes::{SeededNumbers, check_random_changes, full_cluster_state, random_cluster_state};

/// Number of changes of a case: few, so that cases are many.
const STEPS: usize = 6;

/// Changes a random cluster.
pub fn compare_share_tree(data: &[u8]) {
    let mut seed = [0; 8];
    for (to, byte) in seed.iter_mut().zip(data.iter().skip(1)) {
        *to = *byte;
    }
    let choice = data.first().copied().unwrap_or(0);
    let compatibility = Compatibility::KINDS[usize::from(choice) % Compatibility::KINDS.len()];
    let mut numbers = SeededNumbers::new(u64::from_le_bytes(seed));
    let state = if choice < 252 {
        random_cluster_state(&mut numbers)
    } else {
        full_cluster_state(&mut numbers)
    };
    check_random_changes(state, (&mut numbers, STEPS), compatibility).unwrap();
}
