//! Why a job or a task is refused: the five reasons of the field and two more, with the figures compared.

use std::sync::Arc;

use crate::model::quantity::readable_bytes;
use crate::plugin::{Measurement, Reason, Resolution};

/// Reason if it cannot be found out what is asked for.
pub const REQUEST_FAILED: &str = "GetTaskRequestResourceFailed";
/// Nothing says what the queue may hold.
pub const EMPTY_CAPABILITY: &str = "EmptyQueueCapability";
/// The queue would exceed its capability of cpu.
pub const INSUFFICIENT_CPU: &str = "InsufficientCPUQuota";
/// The queue would exceed its capability of memory.
pub const INSUFFICIENT_MEMORY: &str = "InsufficientMemoryQuota";
/// The queue would exceed its quota of a kind of cards.
pub const INSUFFICIENT_CARD: &str = "InsufficientScalarQuota";
/// A node has none of the cards that would do.
pub const CARD_NOT_ON_NODE: &str = "CardNotOnNode";
/// The queues above a queue cannot be found out.
pub const PATH_INVALID: &str = "QueuePathInvalid";
/// The queue takes nothing now. The reference only logs it.
pub const QUEUE_NOT_OPEN: &str = "QueueNotOpen";

/// Resource that was short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaDimension<'a> {
    /// Milli-cores.
    Cpu,
    /// Bytes.
    Memory,
    /// Thousandths of a card, or of several acceptable ones.
    Card(&'a str),
}

/// Three amounts that were compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaComparison {
    /// Asked for.
    pub requested: i128,
    /// Amount that the queue would hold with it.
    pub total: i128,
    /// Amount that the queue may hold.
    pub capability: i128,
}

impl QuotaComparison {
    /// True if the queue would hold more than it may.
    pub fn is_short(&self) -> bool {
        self.total > self.capability
    }

    /// True if the reference rejects: something is requested, and the queue would hold more than it may.
    pub fn rejects(&self) -> bool {
        self.requested > 0 && self.is_short()
    }
}

/// A reason with its figures.
#[derive(Clone, Debug, PartialEq)]
pub struct QuotaRejection {
    /// Code, message and resource.
    pub reason: Reason,
    /// The figures, in the order that the message names them.
    pub measurements: Vec<Measurement>,
}

fn rejection(code: &'static str, message: String, resource: &str, resolution: Resolution) -> QuotaRejection {
    QuotaRejection {
        reason: Reason {
            plugin: Arc::from(super::PLUGIN),
            code,
            message,
            resolution,
            resource: Arc::from(resource),
        },
        measurements: Vec::new(),
    }
}

/// The queue takes nothing now.
pub fn queue_not_open(queue: &str) -> QuotaRejection {
    let message = format!("Queue <{queue}> is not open");
    rejection(QUEUE_NOT_OPEN, message, "", Resolution::Unresolvable)
}

/// Nothing says what the queue may hold.
pub fn empty_capability(queue: &str) -> QuotaRejection {
    let message = format!("Queue <{queue}> has no capability and no card quota");
    rejection(EMPTY_CAPABILITY, message, "", Resolution::Unresolvable)
}

/// The queues above it cannot be found out.
pub fn path_invalid(queue: &str, why: &str) -> QuotaRejection {
    let message = format!("Queue <{queue}> has no place in the hierarchy: {why}");
    rejection(PATH_INVALID, message, "", Resolution::Unresolvable)
}

/// A node has none of the cards that would do.
pub fn card_not_on_node(choice: &str) -> QuotaRejection {
    let message = format!("the node has no card <{choice}>");
    rejection(CARD_NOT_ON_NODE, message, choice, Resolution::Unresolvable)
}

/// Rejection if it cannot be found out what is asked for.
pub fn request_failed(queue: &str, error: &dyn std::fmt::Display) -> QuotaRejection {
    let message = format!("Get request resource failed, Queue <{queue}>, error: <{error}>");
    rejection(REQUEST_FAILED, message, "", Resolution::Unresolvable)
}

impl QuotaDimension<'_> {
    /// Code of a rejection for this resource, such as `InsufficientCPUQuota`.
    fn code(self) -> &'static str {
        match self {
            Self::Cpu => INSUFFICIENT_CPU,
            Self::Memory => INSUFFICIENT_MEMORY,
            Self::Card(_) => INSUFFICIENT_CARD,
        }
    }

    /// Name of the resource, or of the cards.
    fn resource(&self) -> &str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Card(name) => name,
        }
    }

    /// The resource in a message, cards in angle brackets.
    pub(super) fn label(self) -> String {
        match self {
            Self::Cpu => "CPU".to_owned(),
            Self::Memory => "memory".to_owned(),
            Self::Card(name) => format!("<{name}>"),
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::Cpu => "cores",
            Self::Memory => "bytes",
            Self::Card(_) => "cards",
        }
    }

    /// An amount in the unit of figures.
    fn measurement_value(self, amount: i128) -> f64 {
        match self {
            Self::Memory => amount as f64,
            Self::Cpu | Self::Card(_) => amount as f64 / 1000.0,
        }
    }

    /// An amount for people.
    fn format_amount(self, amount: i128) -> String {
        let unit = match self {
            Self::Memory => return readable_bytes(amount as f64),
            Self::Cpu => "core",
            Self::Card(_) => "card",
        };
        let value = self.measurement_value(amount);
        let plural = if value == 1.0 { "" } else { "s" };
        format!("{value} {unit}{plural}")
    }
}

/// Rejection with this message, and with the amounts that were compared as its measurements.
pub(super) fn by_quota(
    dimension: QuotaDimension<'_>,
    compared: QuotaComparison,
    message: String,
    resolution: Resolution,
) -> QuotaRejection {
    let measurement = |name: &str, amount| Measurement {
        name: name.to_owned(),
        value: dimension.measurement_value(amount),
        unit: dimension.unit(),
    };
    QuotaRejection {
        measurements: vec![
            measurement("requested", compared.requested),
            measurement("total", compared.total),
            measurement("capability", compared.capability),
        ],
        ..rejection(dimension.code(), message, dimension.resource(), resolution)
    }
}

/// Rejection for too little quota, in cores, bytes and cards. `note` is appended to the message; it may be empty.
pub fn insufficient(
    queue: &str,
    dimension: QuotaDimension<'_>,
    compared: QuotaComparison,
    note: &str,
) -> QuotaRejection {
    let what = dimension.label();
    let message = format!(
        "Queue <{queue}> has insufficient {what} quota: requested <{}>, total would be <{}>, but capability is <{}>{note}",
        dimension.format_amount(compared.requested),
        dimension.format_amount(compared.total),
        dimension.format_amount(compared.capability),
    );
    let resolution = if compared.requested > compared.capability {
        Resolution::Unresolvable
    } else {
        Resolution::Unschedulable
    };
    by_quota(dimension, compared, message, resolution)
}
