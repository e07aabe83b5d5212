//! Steps of the tests of the store: it is opened, followed, written and read on.

use std::sync::Arc;

use pumice_kubernetes_store::{KubernetesStore, KubernetesStoreOptions};
use pumice_state::store::testing::steps::followed;
use pumice_state::store::{LogHead, LogNews};

pub(crate) use pumice_state::store::testing::steps::{read_on, until, write};

/// Store that is not loaded yet.
pub(crate) fn open(options: &KubernetesStoreOptions) -> KubernetesStore {
    KubernetesStore::new(options.clone()).unwrap()
}

/// Store that is loaded and followed, and its news.
pub(crate) fn replica(options: &KubernetesStoreOptions) -> (KubernetesStore, LogHead, Arc<LogNews>) {
    followed(open(options))
}
