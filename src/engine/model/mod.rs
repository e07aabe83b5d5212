//! The words of scheduling: amounts, records, and the columnar View that decisions read.

mod amounts;
mod assumed;
mod bytes;
mod changes;
mod chunk;
mod class;
mod imagined;
mod mask;
mod node;
mod problem;
pub mod quantity;
mod records;
pub mod reservation;
pub mod resource_name;
mod surplus;
mod table;
mod view;
mod whole;

#[cfg(test)]
mod tests;

pub use amounts::{Amounts, ResourceId, ResourceTable, TooManyResourcesError, Total, Totals};
pub use changes::{Changed, ChangedNode, Changes};
pub use chunk::{CHUNK, Chunk, Column, Vector};
pub use class::{Charge, MIN_AMOUNT, Requested, TaskClass};
pub(crate) use imagined::{Imagined, Joining};
pub use mask::Mask;
pub use node::{NodeEntry, UpstreamNode, Usage};
pub use problem::{Problem, ProblemKind};
pub use records::{JobPhase, JobRecord, NodeRecord, QueueRecord, QueueState, TaskRecord, TaskStatus, Texts, text};
pub use reservation::{NamedAmounts, Reservation};
pub use surplus::Surplus;
pub use table::{Difference, Table};
pub use view::{Kind, NodeIndex, Slot, Stored, View};
pub use whole::{Whole, Wholes};
