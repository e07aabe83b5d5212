//! Votes on jobs in a tree of queues with quotas of cards, against a search that tries everything.

use crate::choices::draw;

#[path = "../../../../tests/recorded/capacity_card/case.rs"]
mod case;
#[path = "../../../../tests/recorded/capacity_card/model.rs"]
mod model;
#[path = "../../../../tests/recorded/capacity_card/steps.rs"]
mod steps;
#[path = "../../../../tests/recorded/capacity_card/tree_model.rs"]
mod tree_model;

/// Votes on the jobs of a tree.
pub fn compare_card_tree(data: &[u8]) {
    if let Some(tree) = draw(&tree_model::tree(), data) {
        tree_model::check_votes(&tree).unwrap();
    }
}
