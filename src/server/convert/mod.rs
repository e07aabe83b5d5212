//! Conversion from the wire to the model and back. Every message is destructured or written with all its fields: a new field
//! breaks the build until it is handled.

pub(super) mod accounts;
pub(super) mod admit;
pub(super) mod amounts;
pub(super) mod batch;
pub(super) mod commit;
mod constraints;
pub mod evaluation_ref;
pub mod inline;
pub(super) mod listing;
pub(super) mod nodes;
pub(super) mod not_evaluated;
mod objects;
pub(super) mod order;
pub(super) mod place;
pub(super) mod place_result;
pub mod policy;
pub(super) mod query;
pub mod reader;
mod records;
pub(super) mod result;
pub(super) mod victims;
pub(super) mod wire;

use crate::server::pb;
use pumice_state::store::Durability;

/// Durability of a write.
pub fn durability(durability: Durability) -> pb::Durability {
    match durability {
        Durability::Memory => pb::Durability::Memory,
        Durability::Disk => pb::Durability::Disk,
        Durability::Etcd => pb::Durability::Etcd,
        Durability::Kubernetes => pb::Durability::Kubernetes,
    }
}
