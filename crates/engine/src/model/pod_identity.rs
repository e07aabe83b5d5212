//! Identity of a pod, as terms about pods read it.

use std::sync::Arc;

use super::text_map::TextMap;

/// Namespace and labels of a pod, which terms about pods read.
#[derive(Clone, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodIdentity {
    /// Namespace of the pod, for terms without namespaces.
    pub namespace: Arc<str>,
    /// Labels of the pod, for selectors of other pods.
    pub labels: TextMap,
}
