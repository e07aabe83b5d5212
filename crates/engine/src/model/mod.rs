//! Data model of scheduling: amounts, records, and the columnar cluster state that decisions read.

mod amount_delta;
mod amounts;
mod assumed;
mod bytes;
mod chunk;
mod chunk_attributes;
mod chunk_devices;
mod chunk_images;
mod chunk_ports;
mod chunks;
mod class;
mod cluster_state;
mod column;
pub mod constraints;
mod devices;
mod gang;
mod hypothetical;
mod integer_column;
mod label_kinds;
mod mask;
pub mod negative_amounts;
mod node;
mod node_groups;
mod placed_tasks;
mod pod_sums;
mod pods;
mod port_counts;
mod problem;
pub mod quantity;
mod records;
pub mod reservation;
pub mod resource_name;
mod resource_table;
mod resource_vector;
mod state_diff;
mod stored;
mod table;
mod uid;
mod unevaluated;
mod uniform_arrival;

#[cfg(test)]
mod tests;

pub use amount_delta::AmountDelta;
pub use amounts::{ResourceAmounts, ResourceId, ResourceTotals};
pub(crate) use bytes::COUNT_BYTES;
pub use chunk::{CHUNK_SIZE, NodeChunk};
pub use chunk_attributes::ChunkAttributes;
pub use chunk_devices::{ChunkDevices, DeviceQuery};
pub use chunk_images::ChunkImages;
pub use chunks::NodeChunks;
pub use class::{ChargedAccount, MIN_AMOUNT, PodIdentity, RequestedAmount, TaskClass};
pub use cluster_state::{ClusterState, NamespaceTable, NodeSlot};
pub(crate) use column::ChunkResource;
pub use column::{ChunkColumn, NodeVector};
pub use devices::{DeviceRequest, DeviceUsage, NodeDevices};
pub use gang::{GangMember, GangMinimums, SubGroupPolicy};
pub(crate) use hypothetical::HypotheticalNodes;
pub use integer_column::{IntegerColumn, WholeVector};
pub use label_kinds::{DroppedLabels, LabelKinds};
pub use mask::NodeMask;
pub use node::{NodeEntry, NodeUsage, UpstreamNode};
pub use node_groups::{NodeGroupLists, QueueAffinity};
pub(crate) use placed_tasks::PlacedTask;
pub use pod_sums::{PodSum, PodSumDelta};
pub(crate) use pod_sums::{SMALL_LIMIT, are_small};
pub use pods::{PodClass, PodIndex, TopologyDomains};
pub use port_counts::PortCounts;
pub use problem::{Problem, ProblemKind};
pub use records::{
    JobPhase, JobRecord, NamespaceRecord, NodeRecord, QueueRecord, QueueState, TaskFields, TaskRecord, TaskShape,
    TaskStatus, TextMap, find_text,
};
pub use reservation::{NamedAmounts, Reservation};
pub use resource_table::{NameEra, ResourceTable, TooManyResourcesError};
pub(crate) use resource_vector::UNLIMITED_MARK;
pub use resource_vector::{ResourceVector, UNLIMITED_AMOUNT, UNLIMITED_SCALAR};
pub use state_diff::{NodeChange, RecordChange, StateDiff};
pub use stored::{NodeIndex, RecordKind, RecordOwner, RecordProblems, StoredRecord};
pub use table::TableCursor;
pub use table::{EntryDifference, SortedTable, TableHandle};
pub use uid::{CreationTime, Uid};
pub use unevaluated::UnevaluatedFields;
pub(crate) use uniform_arrival::UniformArrival;
