//! Comparisons of fast code with plain, separately written versions: those of the property tests, which the bytes of an input drive.

mod card_tree;
mod divisions;
mod kernels;
mod order;
mod place;
mod share_tree;
mod table;

pub use card_tree::compare_card_tree;
pub use divisions::compare_divisions;
pub use kernels::compare_kernels;
pub use order::compare_order;
pub use place::{compare_changes, compare_place};
pub use share_tree::compare_share_tree;
pub use table::compare_table;
