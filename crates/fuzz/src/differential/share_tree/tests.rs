//! Modules of the engine's property tests.

#[path = "../../../../engine/src/plugins/drf/tests/cluster.rs"]
pub(super) mod cluster;
#[path = "../../../../engine/src/plugins/drf/tests/plain_tree.rs"]
pub(super) mod plain_tree;
#[path = "../../../../engine/src/plugins/drf/tests/tree_changes.rs"]
pub(super) mod tree_changes;
