//! Why a job or a task is refused: the five reasons of the field and two more, with the figures compared.

use std::sync::Arc;

use super::counts::Counts;
use super::number::{go_float, go_format};
use crate::engine::plugin::{Figure, Reason, Resolution};

/// It cannot be found out what is asked for.
pub const REQUEST_FAILED: &str = "GetTaskRequestResourceFailed";
/// Nothing says what the queue may hold.
pub const EMPTY_CAPABILITY: &str = "EmptyQueueCapability";
/// Cpu.
pub const INSUFFICIENT_CPU: &str = "InsufficientCPUQuota";
/// Memory.
pub const INSUFFICIENT_MEMORY: &str = "InsufficientMemoryQuota";
/// A card.
pub const INSUFFICIENT_CARD: &str = "InsufficientScalarQuota";
/// A node has none of the cards that would do.
pub const CARD_NOT_ON_NODE: &str = "CardNotOnNode";
/// The queues above a queue cannot be found out.
pub const PATH_INVALID: &str = "QueuePathInvalid";
/// The queue takes nothing now. The reference only logs it.
pub const QUEUE_NOT_OPEN: &str = "QueueNotOpen";

/// What was short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dimension<'a> {
    /// Milli-cores.
    Cpu,
    /// Bytes.
    Memory,
    /// Thousandths of a card, or of several acceptable ones.
    Card(&'a str),
}

/// Who asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// A job, to be enqueued.
    Job,
    /// A task, to be allocated.
    Task,
}

/// Three amounts that were compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compared {
    /// Asked for.
    pub requested: i128,
    /// What the queue would hold with it.
    pub total: i128,
    /// What it may hold.
    pub capability: i128,
}

/// A reason with its figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// The reason.
    pub reason: Reason,
    /// The figures, in the order that the message names them.
    pub figures: Vec<Figure>,
}

fn refusal(code: &'static str, message: String, resource: &str, resolution: Resolution) -> Refusal {
    Refusal {
        reason: Reason {
            plugin: Arc::from(super::PLUGIN),
            code,
            message,
            resolution,
            resource: Arc::from(resource),
        },
        figures: Vec::new(),
    }
}

/// The queue takes nothing now.
pub fn not_open(queue: &str) -> Refusal {
    let message = format!("Queue <{queue}> is not open");
    refusal(QUEUE_NOT_OPEN, message, "", Resolution::Unresolvable)
}

/// Nothing says what the queue may hold.
pub fn empty_capability(queue: &str) -> Refusal {
    let message = format!("Queue <{queue}> has no capability and no card quota");
    refusal(EMPTY_CAPABILITY, message, "", Resolution::Unresolvable)
}

/// The queues above it cannot be found out.
pub fn path_broken(queue: &str, why: &str) -> Refusal {
    let message = format!("Queue <{queue}> has no place in the hierarchy: {why}");
    refusal(PATH_INVALID, message, "", Resolution::Unresolvable)
}

/// A node has none of the cards that would do.
pub fn not_on_node(choice: &str) -> Refusal {
    let message = format!("the node has no card <{choice}>");
    refusal(CARD_NOT_ON_NODE, message, choice, Resolution::Unresolvable)
}

/// It cannot be found out what is asked for.
pub fn request_failed(queue: &str, error: &dyn std::fmt::Display) -> Refusal {
    let message = format!("Get request resource failed, Queue <{queue}>, error: <{error}>");
    refusal(REQUEST_FAILED, message, "", Resolution::Unresolvable)
}

impl Dimension<'_> {
    fn code(self) -> &'static str {
        match self {
            Self::Cpu => INSUFFICIENT_CPU,
            Self::Memory => INSUFFICIENT_MEMORY,
            Self::Card(_) => INSUFFICIENT_CARD,
        }
    }

    fn resource(&self) -> &str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Card(name) => name,
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
    fn figure(self, amount: i128) -> f64 {
        match self {
            Self::Memory => amount as f64,
            Self::Cpu | Self::Card(_) => amount as f64 / 1000.0,
        }
    }

    /// An amount for people.
    fn shown(self, amount: i128) -> String {
        const MEBI: f64 = 1024.0 * 1024.0;
        match self {
            Self::Memory => format!("{} Mi", amount as f64 / MEBI),
            Self::Cpu => format!("{} cores", self.figure(amount)),
            Self::Card(_) => format!("{} cards", self.figure(amount)),
        }
    }
}

fn with_figures(mut refusal: Refusal, dimension: Dimension<'_>, compared: Compared) -> Refusal {
    let figure = |name: &str, amount| Figure {
        name: name.to_owned(),
        value: dimension.figure(amount),
        unit: dimension.unit(),
    };
    refusal.figures = vec![
        figure("requested", compared.requested),
        figure("total", compared.total),
        figure("capability", compared.capability),
    ];
    refusal
}

/// Too little, in the words of the reference.
pub fn insufficient_upstream(queue: &str, asker: Asker, dimension: Dimension<'_>, compared: Compared) -> Refusal {
    let (what, unit, scale) = match dimension {
        Dimension::Cpu => ("CPU".to_owned(), "", 1.0),
        Dimension::Memory => ("memory".to_owned(), " Mi", 1024.0),
        Dimension::Card(name) => (format!("<{name}>"), "", 1.0),
    };
    let shown = |amount: i128| go_float(amount as f64 / scale / scale);
    let queue = match (dimension, asker) {
        (Dimension::Memory, Asker::Job) => queue.to_owned(),
        _ => format!("<{queue}>"),
    };
    let message = format!(
        "Queue {queue} has insufficient {what} quota: requested <{}{unit}>, total would be <{}{unit}>, but capability is <{}{unit}>",
        shown(compared.requested),
        shown(compared.total),
        shown(compared.capability),
    );
    let message = match asker {
        Asker::Job => go_format(&message),
        Asker::Task => message,
    };
    let refusal = refusal(
        dimension.code(),
        message,
        dimension.resource(),
        Resolution::Unschedulable,
    );
    with_figures(refusal, dimension, compared)
}

/// Too little, in cores, Mi and cards; `note` says what else there is to know, and may be empty.
pub fn insufficient(queue: &str, dimension: Dimension<'_>, compared: Compared, note: &str) -> Refusal {
    let what = match dimension {
        Dimension::Cpu => "CPU".to_owned(),
        Dimension::Memory => "memory".to_owned(),
        Dimension::Card(name) => format!("<{name}>"),
    };
    let message = format!(
        "Queue <{queue}> has insufficient {what} quota: requested <{}>, total would be <{}>, but capability is <{}>{note}",
        dimension.shown(compared.requested),
        dimension.shown(compared.total),
        dimension.shown(compared.capability),
    );
    let resolution = if compared.requested > compared.capability {
        Resolution::Unresolvable
    } else {
        Resolution::Unschedulable
    };
    let refusal = refusal(dimension.code(), message, dimension.resource(), resolution);
    with_figures(refusal, dimension, compared)
}

/// The amounts of cpu, then of memory: requested, total, capability.
pub(super) fn plain(requested: &Counts, total: &Counts, capability: &Counts) -> [(Dimension<'static>, Compared); 2] {
    let compared = |requested, total, capability| Compared {
        requested,
        total,
        capability,
    };
    [
        (Dimension::Cpu, compared(requested.cpu, total.cpu, capability.cpu)),
        (
            Dimension::Memory,
            compared(requested.memory, total.memory, capability.memory),
        ),
    ]
}
