//! Values that the model and the wire have alike, both ways.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::nodes::NodeEncoding;
use crate::server::pb;
use crate::server::status::{CallError, RpcResult};
use pumice_engine::cycle::TaskPlacement;
use pumice_engine::decide::{FilterDetail, ResourceFit};
use pumice_engine::devices::{DeviceMask, MAX_DEVICES, device_indices};
use pumice_engine::model::constraints::{
    DeviceRequest, HostPort, LabelSelector, NodeDevices, NodeImage, NodeSelectorTerm, PodAffinityTerm, PodTerms,
    PreferredTerm, SelectorRequirement, Toleration, WeightedPodTerm,
};
use pumice_engine::model::{JobPhase, NodeGroupLists, PreemptionPolicy, QosClass, QueueState, TaskStatus, TextMap};
use pumice_engine::{Revision, SourcePosition};
use pumice_state::{BatchKind, SourceKind};

/// Value of the model that is a `T` on the wire.
pub(in crate::server) trait Wire<T> {
    /// Value from the wire.
    fn read(wire: T) -> Self;
    /// Value as the wire has it.
    fn write(&self) -> T;
}

/// Declares values that the wire has as they are.
macro_rules! wire_values {
    ($($value:ty),*) => {$(
        impl Wire<$value> for $value {
            fn read(wire: $value) -> Self {
                wire
            }

            fn write(&self) -> $value {
                *self
            }
        }
    )*};
}

/// Declares structs whose fields have the same names in the message.
macro_rules! wire_structs {
    ($($model:ident = $message:ident { $($field:ident),* })*) => {$(
        impl Wire<pb::$message> for $model {
            fn read(message: pb::$message) -> Self {
                let pb::$message { $($field),* } = message;
                Self { $($field: Wire::read($field)),* }
            }

            fn write(&self) -> pb::$message {
                let Self { $($field),* } = self;
                pb::$message { $($field: $field.write()),* }
            }
        }
    )*};
}

/// Declares enumerations: each value with its name on the wire, and other names that are read as well.
macro_rules! wire_enums {
    ($($model:ident { $($value:ident = $wire:ident $(| $other:ident)?),* })*) => {$(
        impl Wire<pb::$model> for $model {
            fn read(wire: pb::$model) -> Self {
                match wire {
                    $(pb::$model::$wire $(| pb::$model::$other)? => Self::$value,)*
                }
            }

            fn write(&self) -> pb::$model {
                match self {
                    $(Self::$value => pb::$model::$wire,)*
                }
            }
        }
    )*};
}

/// Declares structs with a weight and a part that a message may lack.
macro_rules! wire_weighted {
    ($($model:ident = $message:ident { $field:ident })*) => {$(
        impl Wire<pb::$message> for $model {
            fn read(message: pb::$message) -> Self {
                let pb::$message { weight, $field: part } = message;
                Self { weight, term: Wire::read(part.unwrap_or_default()) }
            }

            fn write(&self) -> pb::$message {
                let Self { weight, term } = self;
                pb::$message { weight: *weight, $field: Some(term.write()) }
            }
        }
    )*};
}

wire_values!(i32, i64, u32, u64, f64);

wire_structs! {
    DeviceRequest = DeviceRequest { count, milli, memory_mib, models, assigned }
    HostPort = HostPort { protocol, host_ip, port }
    LabelSelector = LabelSelector { match_labels, match_expressions }
    NodeDevices = NodeDevices { model, count, memory_mib }
    NodeGroupLists = NodeGroupLists { required, preferred }
    NodeImage = NodeImage { names, size_bytes }
    NodeSelectorTerm = NodeSelectorTerm { match_expressions, match_fields }
    PodAffinityTerm = PodAffinityTerm { label_selector, namespaces, namespace_selector, topology_key }
    PodTerms = PodAffinity { required, preferred }
    Revision = Revision { epoch, number }
    SelectorRequirement = SelectorRequirement { key, operator, values }
    SourcePosition = SourcePosition { source, source_epoch, sequence }
    TaskPlacement = TaskPlacement { task, node, card, devices }
    Toleration = Toleration { key, operator, value, effect }
}

wire_weighted! {
    PreferredTerm = PreferredNodeTerm { preference }
    WeightedPodTerm = WeightedPodAffinityTerm { term }
}

wire_enums! {
    BatchKind { Delta = Delta | Unspecified, FullSyncPart = FullSyncPart, FullSyncLast = FullSyncLast }
    FilterDetail { Nodes = Nodes | Unspecified, Samples = Samples, Counts = Counts }
    JobPhase {
        Unspecified = Unspecified, Pending = Pending, Inqueue = Inqueue, Running = Running, Unknown = Unknown,
        Completed = Completed
    }
    NodeEncoding { Names = Names | Unspecified, Slots = Slots }
    PreemptionPolicy { OfClass = Unspecified, Never = Never, LowerPriority = LowerPriority }
    QosClass { Burstable = Burstable | Unspecified, BestEffort = BestEffort, Guaranteed = Guaranteed }
    QueueState { Unspecified = Unspecified, Open = Open, Closed = Closed, Closing = Closing, Unknown = Unknown }
    ResourceFit { FutureIdle = FutureIdle | Unspecified, Idle = Idle, None = None }
    SourceKind { Live = Live | Unspecified, File = File }
    TaskStatus {
        Pending = Pending | Unspecified, Allocated = Allocated, Pipelined = Pipelined, Binding = Binding,
        Bound = Bound, Running = Running, Releasing = Releasing, Succeeded = Succeeded, Failed = Failed,
        Unknown = Unknown
    }
}

/// Reads an enumeration of a request, by the number on the wire. `field`: its place in the request.
///
/// # Errors
/// This server does not know the number.
pub(super) fn read_known<E: TryFrom<i32>, M: Wire<E>>(field: &str, number: i32) -> RpcResult<M> {
    let known = E::try_from(number).map(M::read);
    known.map_err(|_| CallError::unknown_value(field, number))
}

impl Wire<String> for Arc<str> {
    fn read(text: String) -> Self {
        if text.is_empty() { Self::default() } else { text.into() }
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

impl Wire<BTreeMap<String, String>> for TextMap {
    fn read(texts: BTreeMap<String, String>) -> Self {
        if texts.is_empty() {
            return Self::default();
        }
        let texts = texts.into_iter();
        texts.map(|(name, text)| (name.into(), text.into())).collect()
    }

    fn write(&self) -> BTreeMap<String, String> {
        let texts = self.iter();
        texts.map(|(name, text)| (name.to_string(), text.to_string())).collect()
    }
}

/// Numbers that no device has are left out.
impl Wire<Vec<u32>> for DeviceMask {
    fn read(numbers: Vec<u32>) -> Self {
        let known = numbers.iter().filter(|number| (**number as usize) < MAX_DEVICES);
        known.fold(0, |mask, number| mask | 1 << number)
    }

    fn write(&self) -> Vec<u32> {
        device_indices(*self).collect()
    }
}

impl<T, M: Wire<T>> Wire<Vec<T>> for Vec<M> {
    fn read(list: Vec<T>) -> Self {
        list.into_iter().map(M::read).collect()
    }

    fn write(&self) -> Vec<T> {
        self.iter().map(M::write).collect()
    }
}

impl<T, M: Wire<T>> Wire<Option<T>> for Option<M> {
    fn read(part: Option<T>) -> Self {
        part.map(M::read)
    }

    fn write(&self) -> Option<T> {
        self.as_ref().map(M::write)
    }
}
