//! The two checks that belong to no plugin: the node's state, and room for what the task requests.

use std::sync::Arc;

use super::question::ResourceFit;
use crate::engine::model::{CHUNK, Chunk, Column, MIN_AMOUNT, Mask, Requested, ResourceId, TaskClass, Vector};
use crate::engine::plugin::{Figure, Filterer, Reason, Resolution, Verdicts};

/// Stands for a plugin in reasons about the node itself.
pub const NODE_STATE: &str = "node-state";
/// Stands for a plugin in reasons about room.
pub const RESOURCE_FIT: &str = "resource-fit";

/// A reason that has no figures and that no eviction removes.
pub(super) fn node_state_reason(code: &'static str, message: &str) -> Reason {
    Reason {
        plugin: Arc::from(NODE_STATE),
        code,
        message: message.to_owned(),
        resolution: Resolution::Unresolvable,
        resource: Arc::from(""),
    }
}

/// Nothing new goes onto nodes that are not ready, cordoned, or whose newest record was refused.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeState;

/// By number.
const STATES: [(&str, &str); 3] = [
    ("NodeNotReady", "the node is not ready"),
    ("NodeUnschedulable", "the node is marked unschedulable"),
    ("NodeInvalid", "the node's newest record was refused"),
];

impl Filterer for NodeState {
    fn filter(&self, chunk: &Chunk, among: &Mask, verdicts: &mut Verdicts) -> Mask {
        let refused = among.and_not(chunk.placeable());
        for offset in refused.iter() {
            let record = chunk.entry(offset).map(|entry| &entry.record);
            let number = match record {
                Some(record) if record.ready == Some(false) => 0,
                Some(record) if record.unschedulable => 1,
                _ => 2,
            };
            if let Some(verdict) = verdicts.get_mut(offset) {
                *verdict = number;
            }
        }
        refused
    }

    fn reason(&self, number: u16) -> Reason {
        let (code, message) = STATES.get(usize::from(number)).copied().unwrap_or_default();
        node_state_reason(code, message)
    }

    fn figures(&self, _: &Chunk, _: usize, _: u16) -> Vec<Figure> {
        Vec::new()
    }
}

/// Room, in Volcano's terms: each requested amount below what is there, or nearer to it than [`MIN_AMOUNT`].
///
/// Reason `2n` is requested resource `n` that is short now; `2n + 1` one that the node could not offer even when empty.
/// A node is refused for the first of the second kind, for no eviction helps; if there is none, for the first that is
/// short.
#[derive(Debug)]
pub(super) struct Room<'c> {
    requested: &'c [Requested],
    future: bool,
}

impl<'c> Room<'c> {
    /// The check, if it is asked for.
    pub(super) fn of(class: &'c TaskClass, fit: ResourceFit) -> Option<Self> {
        let future = match fit {
            ResourceFit::None => return None,
            ResourceFit::Idle => false,
            ResourceFit::FutureIdle => true,
        };
        Some(Self {
            requested: &class.requested,
            future,
        })
    }

    fn available(&self, chunk: &Chunk, id: ResourceId) -> Column {
        if self.future {
            chunk.future_idle(id)
        } else {
            chunk.idle(id)
        }
    }
}

fn exceeds(requested: f64, available: &[f64; CHUNK]) -> Mask {
    let mut short = [false; CHUNK];
    for (short, &available) in short.iter_mut().zip(available) {
        *short = !((requested < available) | ((requested - available).abs() < MIN_AMOUNT));
    }
    Mask::from_bools(&short)
}

impl Filterer for Room<'_> {
    fn filter(&self, chunk: &Chunk, among: &Mask, verdicts: &mut Verdicts) -> Mask {
        let mut refused = Mask::NONE;
        let mut mark = |nodes: &Mask, number: u16| {
            for offset in nodes.iter() {
                if let Some(verdict) = verdicts.get_mut(offset) {
                    *verdict = number;
                }
            }
        };
        for (number, requested) in (0_u16..).step_by(2).zip(self.requested) {
            let available = self.available(chunk, requested.id);
            let short = exceeds(requested.amount, &available.values)
                .and(among)
                .and_not(&refused);
            mark(&short, number);
            refused = refused.or(&short);
        }
        let mut open = refused;
        for (number, requested) in (1_u16..).step_by(2).zip(self.requested) {
            if open.is_empty() {
                break;
            }
            let allocatable = chunk.column(requested.id, Vector::Allocatable);
            let hopeless = exceeds(requested.amount, &allocatable.values).and(&open);
            mark(&hopeless, number);
            open = open.and_not(&hopeless);
        }
        refused
    }

    fn reason(&self, number: u16) -> Reason {
        let requested = self.requested.get(usize::from(number / 2));
        let resource = requested.map_or_else(|| Arc::from(""), |requested| Arc::clone(&requested.name));
        let (message, resolution) = if number.is_multiple_of(2) {
            (format!("insufficient {resource}"), Resolution::Unschedulable)
        } else {
            (
                format!("insufficient {resource}, even if the node were empty"),
                Resolution::Unresolvable,
            )
        };
        Reason {
            plugin: Arc::from(RESOURCE_FIT),
            code: "InsufficientResource",
            message,
            resolution,
            resource,
        }
    }

    fn figures(&self, chunk: &Chunk, offset: usize, number: u16) -> Vec<Figure> {
        let Some(requested) = self.requested.get(usize::from(number / 2)) else {
            return Vec::new();
        };
        let at = |column: &Column| column.values.get(offset).copied().unwrap_or(0.0);
        let figure = |name, amount| Figure::of_resource(name, &requested.name, amount);
        let available = at(&self.available(chunk, requested.id));
        let mut figures = vec![
            figure("requested", requested.amount),
            figure(if self.future { "future idle" } else { "idle" }, available),
        ];
        if !number.is_multiple_of(2) {
            let allocatable = at(chunk.column(requested.id, Vector::Allocatable));
            figures.push(figure("allocatable", allocatable));
        }
        figures
    }
}
