//! Conversion from the wire to the model and back. Every message is destructured: a new field breaks the build until it
//! is handled.

pub mod accounts;
pub mod admit;
pub mod amounts;
pub mod batch;
pub mod commit;
mod constraint_messages;
mod constraints;
pub mod evaluation_ref;
pub mod inline;
pub mod listing;
pub mod nodes;
pub mod not_evaluated;
mod objects;
pub mod order;
pub mod place;
pub mod place_result;
pub mod policy;
pub mod query;
pub mod reader;
mod records;
pub mod result;
pub mod victims;

use crate::server::pb;
use pumice_engine::{Revision, SourcePosition};
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

/// Revision as the wire has it.
pub fn revision(revision: Revision) -> pb::Revision {
    let Revision { epoch, number } = revision;
    pb::Revision { epoch, number }
}

/// Position of a source as the wire has it.
pub fn position(position: &SourcePosition) -> pb::SourcePosition {
    let SourcePosition {
        source,
        source_epoch,
        sequence,
    } = position;
    pb::SourcePosition {
        source: source.to_string(),
        source_epoch: *source_epoch,
        sequence: *sequence,
    }
}
