//! Votes on jobs in a tree of queues with quotas of cards, against a search that tries everything.

use crate::choices::draw;

#[path = "../../../../tests/it/capacity_card/case.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod case;
#[path = "../../../../tests/it/capacity_card/model.rs"]
#[expect(dead_code, unused_imports, reason = "its own tests use the rest")]
mod model;
#[path = "../../../../tests/it/capacity_card/steps.rs"]
mod steps;
#[path = "../../../../tests/it/capacity_card/tree_model.rs"]
#[expect(unused_imports, reason = "its own tests use the rest")]
mod tree_model;

/// Votes on the jobs of a tree.
pub fn compare_card_tree(data: &[u8]) {
    if let Some(tree) = draw(&tree_model::tree(), data) {
        tree_model::check_votes(&tree).unwrap();
    }
}
