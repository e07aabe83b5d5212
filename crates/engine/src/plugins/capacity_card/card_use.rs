//! Cards that tasks of a job use, of those that they may use.

use crate::held_bytes::held_bytes;
use std::sync::Arc;

/// A card that tasks of a job use, of those that they may use, and how many tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CardUse {
    /// The cards of the choice, sorted.
    pub(super) choice: Arc<str>,
    pub(super) card: Arc<str>,
    pub(super) task_count: u32,
}

held_bytes! { CardUse { choice, card; task_count } }
