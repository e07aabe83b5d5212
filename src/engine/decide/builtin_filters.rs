//! The two checks that belong to no plugin: the node's state, and room for what the task requests.

use std::sync::Arc;

use smallvec::SmallVec;

use super::query::ResourceFit;
use crate::engine::kernel::kernel;
use crate::engine::model::{
    CHUNK_SIZE, MIN_AMOUNT, NodeChunk, NodeMask, NodeVector, RequestedAmount, ResourceId, TaskClass,
};
use crate::engine::plugin::{ChunkRejections, Measurement, NodeFilter, Reason, Resolution};

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
pub(super) struct NodeStateFilter;

/// By number.
const STATES: [(&str, &str); 3] = [
    ("NodeNotReady", "the node is not ready"),
    ("NodeUnschedulable", "the node is marked unschedulable"),
    ("NodeInvalid", "the node's newest record was refused"),
];

impl NodeFilter for NodeStateFilter {
    fn filter(&self, chunk: &NodeChunk, among: &NodeMask, verdicts: &mut ChunkRejections) -> NodeMask {
        let refused = among.and_not(chunk.placeable());
        if verdicts.ignores_reasons() {
            return refused;
        }
        for offset in refused.iter() {
            let record = chunk.entry(offset).map(|entry| &entry.record);
            let number = match record {
                Some(record) if record.ready == Some(false) => 0,
                Some(record) if record.unschedulable => 1,
                _ => 2,
            };
            verdicts.reject(number, &NodeMask::single(offset));
        }
        refused
    }

    fn reason(&self, number: u16) -> Reason {
        let (code, message) = STATES.get(usize::from(number)).copied().unwrap_or_default();
        node_state_reason(code, message)
    }

    fn measurements(&self, _: &NodeChunk, _: usize, _: u16) -> Vec<Measurement> {
        Vec::new()
    }
}

/// Room, in Volcano's terms: each requested amount below what is there, or nearer to it than [`MIN_AMOUNT`].
///
/// Reason `2n` is requested resource `n` that is short now; `2n + 1` one that the node could not offer even when empty.
/// A node is refused for the first of the second kind, for no eviction helps; if there is none, for the first that is
/// short.
#[derive(Debug)]
pub(super) struct ResourceFitFilter<'c> {
    requested: &'c [RequestedAmount],
    /// Of each, the most that is too little, see [`bound`].
    bounds: SmallVec<[(ResourceId, f64); 8]>,
    future_idle: bool,
}

impl<'c> ResourceFitFilter<'c> {
    /// The check, if it is asked for.
    pub(super) fn of(class: &'c TaskClass, fit: ResourceFit) -> Option<Self> {
        let future = match fit {
            ResourceFit::None => return None,
            ResourceFit::Idle => false,
            ResourceFit::FutureIdle => true,
        };
        Some(Self {
            requested: &class.requested,
            bounds: class
                .requested
                .iter()
                .map(|requested| (requested.id, bound(requested.amount)))
                .collect(),
            future_idle: future,
        })
    }

    #[inline]
    fn supply<'k>(&self, chunk: &'k NodeChunk, id: ResourceId) -> ResourceSupply<'k> {
        let resource = chunk.resource(id);
        let values = |vector| &resource.column(vector).values;
        let there = |vector| !resource.is_absent(vector);
        let moving = self.future_idle && (there(NodeVector::Releasing) || there(NodeVector::Pipelined));
        ResourceSupply {
            allocatable: values(NodeVector::Allocatable),
            used: values(NodeVector::Used),
            idle: chunk.has_own_idle().then(|| Box::new(chunk.idle(id).values)),
            moving: moving.then(|| [values(NodeVector::Releasing), values(NodeVector::Pipelined)]),
        }
    }
}

type SupplyValues = [f64; CHUNK_SIZE];

/// What the nodes of a chunk have of one requested resource.
struct ResourceSupply<'k> {
    allocatable: &'k SupplyValues,
    used: &'k SupplyValues,
    /// Instead of allocatable − used, where some node keeps an idle vector of its own.
    idle: Option<Box<SupplyValues>>,
    /// Releasing and pipelined, if they are asked for and there are any.
    moving: Option<[&'k SupplyValues; 2]>,
}

impl ResourceSupply<'_> {
    fn available(&self, offset: usize) -> f64 {
        let at = |values: &SupplyValues| at(values, offset);
        let idle = match &self.idle {
            Some(own) => at(own),
            None => at(self.allocatable) - at(self.used),
        };
        match self.moving {
            Some([releasing, pipelined]) => idle + at(releasing) - at(pipelined),
            None => idle,
        }
    }

    /// Where there is no more than this.
    #[inline]
    fn short_nodes(&self, bound: f64) -> NodeMask {
        match (&self.idle, self.moving) {
            (None, None) => short(bound, self.allocatable, self.used),
            (None, Some(moving)) => short_later(bound, [self.allocatable, self.used], moving),
            (Some(_), _) => NodeMask::gather(|offset| self.available(offset) <= bound),
        }
    }
}

kernel! {
    /// As [`Stock::short`], out of what is idle.
    fn short / short_portable(bound: f64, allocatable: &SupplyValues, used: &SupplyValues) -> NodeMask {
        NodeMask::gather(|offset| at(allocatable, offset) - at(used, offset) <= bound)
    }
}

kernel! {
    /// As [`Stock::short`], out of what will be idle: of what is allocatable and used, and what is releasing and pipelined.
    fn short_later / short_later_portable(bound: f64, now: [&SupplyValues; 2], moving: [&SupplyValues; 2]) -> NodeMask {
        let ([allocatable, used], [releasing, pipelined]) = (now, moving);
        NodeMask::gather(|offset| {
            let idle = at(allocatable, offset) - at(used, offset);
            idle + at(releasing, offset) - at(pipelined, offset) <= bound
        })
    }
}

kernel! {
    /// Where even the empty node would have no more than that.
    fn within / within_portable(bound: f64, allocatable: &SupplyValues) -> NodeMask {
        NodeMask::gather(|offset| at(allocatable, offset) <= bound)
    }
}

#[expect(clippy::inline_always, reason = "it is compiled with the features of its kernel")]
#[inline(always)]
fn at(values: &SupplyValues, offset: usize) -> f64 {
    values.get(offset).copied().unwrap_or(0.0)
}

/// Volcano's comparison: enough is more than requested, or nearer to it than the tolerance.
fn is_short(requested: f64, available: f64) -> bool {
    requested - available >= MIN_AMOUNT
}

/// The most that is still too little of what is requested, to the last bit: the difference, rounded as it is, never grows
/// with what is available, so that one comparison says as much as [`is_short`].
fn bound(requested: f64) -> f64 {
    // Doubles in order, as whole numbers in order.
    let number = |double: f64| {
        let bits = double.to_bits().cast_signed();
        bits ^ (bits >> 63 & i64::MAX)
    };
    let double = |number: i64| f64::from_bits((number ^ (number >> 63 & i64::MAX)).cast_unsigned());
    let short = |at: i64| is_short(requested, double(at));
    let near = number(requested - MIN_AMOUNT);
    let (mut low, mut high, mut step) = (near, near, 1_i64);
    while !short(low) {
        (high, low) = (low, low.saturating_sub(step).max(number(f64::NEG_INFINITY)));
        step = step.saturating_mul(2);
    }
    while short(high) {
        (low, high) = (high, high.saturating_add(step).min(number(f64::INFINITY)));
        step = step.saturating_mul(2);
    }
    while high - low > 1 {
        let middle = i64::midpoint(low, high);
        if short(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    double(low)
}

impl NodeFilter for ResourceFitFilter<'_> {
    fn filter(&self, chunk: &NodeChunk, among: &NodeMask, verdicts: &mut ChunkRejections) -> NodeMask {
        let mut refused = NodeMask::NONE;
        let mut short: SmallVec<[NodeMask; 8]> = SmallVec::new();
        for (id, bound) in &self.bounds {
            let mask = self.supply(chunk, *id).short_nodes(*bound).and(among);
            refused = refused.or(&mask);
            short.push(mask);
        }
        if refused.is_empty() || verdicts.ignores_reasons() {
            return refused;
        }
        let mut left = refused;
        let mut refuse = |number, nodes: &NodeMask| {
            verdicts.reject(number, &left.and(nodes));
            left = left.and_not(nodes);
        };
        for (number, (id, bound)) in (1..).step_by(2).zip(&self.bounds) {
            let resource = chunk.resource(*id);
            if !resource.all_above(*bound, &refused) {
                let allocatable = &resource.column(NodeVector::Allocatable).values;
                refuse(number, &within(*bound, allocatable));
            }
        }
        for (number, nodes) in (0..).step_by(2).zip(&short) {
            refuse(number, nodes);
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

    fn measurements(&self, chunk: &NodeChunk, offset: usize, number: u16) -> Vec<Measurement> {
        let Some(requested) = self.requested.get(usize::from(number / 2)) else {
            return Vec::new();
        };
        let stock = self.supply(chunk, requested.id);
        let measurement = |name, amount| Measurement::of_resource(name, &requested.name, amount);
        let name = if self.future_idle { "future idle" } else { "idle" };
        let mut measurements = vec![
            measurement("requested", requested.amount),
            measurement(name, stock.available(offset)),
        ];
        if !number.is_multiple_of(2) {
            let allocatable = stock.allocatable.get(offset).copied().unwrap_or(0.0);
            measurements.push(measurement("allocatable", allocatable));
        }
        measurements
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn every_processor_finds_the_same_shortage(
            values in prop::collection::vec(prop::collection::vec(0_u32..9, CHUNK_SIZE), 4),
            requested in 0_u32..9,
        ) {
            let columns: Vec<SupplyValues> = values
                .iter()
                .map(|values| std::array::from_fn(|offset| f64::from(values[offset])))
                .collect();
            let (requested, [a, u, r, p]) = (f64::from(requested), [0, 1, 2, 3].map(|column| &columns[column]));
            let bound = bound(requested);
            prop_assert_eq!(short(bound, a, u), short_portable::<false>(bound, a, u));
            let later = short_later(bound, [a, u], [r, p]);
            prop_assert_eq!(later, short_later_portable::<false>(bound, [a, u], [r, p]));
            prop_assert_eq!(within(bound, a), within_portable::<false>(bound, a));
            for offset in 0..CHUNK_SIZE {
                let available = a[offset] - u[offset] + r[offset] - p[offset];
                prop_assert_eq!(later.get(offset), requested - available >= MIN_AMOUNT);
            }
        }

        #[test]
        fn one_comparison_decides_shortage(
            requested in prop_oneof![0_i64..2_000, any::<i64>(), Just(0), Just(i64::MAX)],
            available in prop_oneof![any::<f64>(), (-5_000_i64..5_000).prop_map(|some| some as f64 / 10.0)],
            near in -3_i64..4,
        ) {
            let requested = requested as f64;
            let most = bound(requested);
            prop_assert!(is_short(requested, most) && !is_short(requested, most.next_up()));
            let beside = requested - MIN_AMOUNT + near as f64 * MIN_AMOUNT;
            for available in [available, -available, beside, 0.0, -0.0, f64::MIN_POSITIVE, f64::INFINITY, f64::NEG_INFINITY] {
                prop_assert_eq!(available <= most, is_short(requested, available), "{} {}", requested, available);
            }
        }
    }
}
