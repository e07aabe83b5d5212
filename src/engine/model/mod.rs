//! The words of scheduling: amounts, records, and the columnar View that decisions read.

mod amounts;
mod arrivals;
mod assumed;
mod bytes;
mod changes;
mod chunk;
mod chunks;
mod class;
mod column;
mod imagined;
mod joining;
mod mask;
mod node;
mod problem;
pub mod quantity;
mod records;
pub mod reservation;
pub mod resource_name;
mod stored;
mod surplus;
mod table;
mod uid;
mod view;
mod whole;

#[cfg(test)]
mod tests;

pub use amounts::{Amounts, ResourceId, ResourceTable, TooManyResourcesError, Totals};
pub(crate) use arrivals::Arrival;
pub use changes::{Changed, ChangedNode, Changes};
pub use chunk::{CHUNK, Chunk};
pub use chunks::Chunks;
pub use class::{Charge, MIN_AMOUNT, Requested, TaskClass};
pub(crate) use column::Resource;
pub use column::{Column, Vector};
pub(crate) use imagined::Imagined;
pub(crate) use joining::Joining;
pub use mask::Mask;
pub use node::{NodeEntry, UpstreamNode, Usage};
pub use problem::{Problem, ProblemKind};
pub use records::{
    JobPhase, JobRecord, NodeRecord, QueueRecord, QueueState, TaskFields, TaskRecord, TaskShape, TaskStatus, Texts,
    text,
};
pub use reservation::{NamedAmounts, Reservation};
pub use stored::{Faults, Kind, NodeIndex, Owner, Stored};
pub use surplus::Surplus;
pub(crate) use table::Near;
pub use table::{Difference, Spot, Table};
pub use uid::{Time, Uid};
pub use view::{Slot, View};
pub use whole::{Whole, Wholes};
