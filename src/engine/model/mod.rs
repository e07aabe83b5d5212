//! The words of scheduling: amounts, records, and the columnar View that decisions read.

mod amounts;
mod chunk;
mod class;
mod node;
mod problem;
pub mod quantity;
mod records;
pub mod resource_name;
mod table;
mod view;

#[cfg(test)]
mod tests;

pub use amounts::{Amounts, ResourceId, ResourceTable, TooManyResourcesError, Total, Totals};
pub use chunk::{CHUNK, Chunk, Column, Mask, Vector};
pub use class::{MIN_AMOUNT, Requested, TaskClass};
pub use node::{NodeEntry, UpstreamNode, Usage};
pub use problem::{Problem, ProblemKind};
pub use records::{JobPhase, JobRecord, NodeRecord, QueueRecord, QueueState, TaskRecord, TaskStatus, Texts, text};
pub use table::Table;
pub use view::{Kind, NodeIndex, Slot, Stored, View};
