//! Clusters, histories and a plain model for the tests of both plugins.

pub(crate) mod cluster;
pub(crate) mod histories;
pub(crate) mod plain;
