//! Why it is not known what a task needs.

use std::sync::Arc;

/// Why the amounts of a task are unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CardRequestError {
    /// No node has the card.
    #[error("no resource name found for card <{card}>")]
    UnknownCard {
        /// Name that no node has, such as `NVIDIA-H100-80GB`.
        card: String,
    },
    /// The task does not ask for the card's resource.
    #[error("no resource <{resource}> defined in requests/limits for card <{card}>")]
    NotRequested {
        /// Name in the annotation, such as `NVIDIA-H100-80GB`.
        card: String,
        /// Resource that stands for it, such as `nvidia.com/gpu`.
        resource: Arc<str>,
    },
    /// The node that the task is on is not there.
    #[error("failed to get node <{node}> for task <{task}>: node \"{node}\" not found")]
    UnknownNode {
        /// Name that no record has.
        node: Arc<str>,
        /// Name, as `namespace/name`.
        task: Arc<str>,
    },
    /// The node that the task is on has none of the acceptable cards.
    #[error("no valid card found on node <{node}> for task <{task}> with multi-card name <{choice}>")]
    NotOnNode {
        /// Name in `spec.nodeName`.
        node: Arc<str>,
        /// Name, as `namespace/name`.
        task: Arc<str>,
        /// The acceptable cards.
        choice: String,
    },
}
