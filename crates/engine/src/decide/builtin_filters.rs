//! Checks that belong to no plugin: the node's state, and the node's resources.

use std::borrow::Cow;
use std::sync::Arc;

use pumice_kernels::columns::at;
use pumice_kernels::shortage::{short, short_later, within};
use smallvec::SmallVec;

use super::query::ResourceFit;
use crate::model::constraints::ConstraintKind;
use crate::model::{CHUNK_SIZE, MIN_AMOUNT, NodeChunk, NodeMask, NodeVector, RequestedAmount, ResourceId, TaskClass};
use crate::plugin::{ChunkRejections, HookNumbers, Measurement, NodeFilter, Reason, Resolution};
use crate::policy::Policy;

/// Name in place of a plugin in reasons about the node itself.
pub const NODE_STATE: &str = "node-state";
/// Name in place of a plugin in reasons about the node's resources.
pub const RESOURCE_FIT: &str = "resource-fit";

/// Reason without measurements that no eviction removes.
pub(super) fn node_state_reason(code: &'static str, message: &str) -> Reason {
    Reason::new(NODE_STATE, code, message, Resolution::Unresolvable)
}

/// Filter that rejects nodes that are not ready, whose newest record was rejected, or that are cordoned.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeStateFilter {
    /// True if a plugin of the policy evaluates cordoned nodes: some pods tolerate them.
    leaves_cordoned: bool,
    /// True if nodes that are not ready pass: Volcano leaves them to their taints.
    leaves_unready: bool,
}

impl NodeStateFilter {
    /// Filter under a policy. A policy that names such a plugin and switches it off accepts cordoned nodes, as the
    /// reference does.
    pub(super) fn of(policy: &Policy) -> Self {
        let evaluated = policy.registered_constraints(&[]);
        Self {
            leaves_cordoned: evaluated.contains(ConstraintKind::Unschedulable),
            leaves_unready: policy.compatibility().is_upstream() && !policy.is_profile(),
        }
    }
}

/// Codes and messages by number of the reason.
const STATES: [(&str, &str); 3] = [
    ("NodeNotReady", "the node is not ready"),
    ("NodeUnschedulable", "the node is marked unschedulable"),
    ("NodeInvalid", "the node's newest record was rejected"),
];

impl NodeFilter for NodeStateFilter {
    fn filter(&self, chunk: &NodeChunk, among: &NodeMask, verdicts: &mut ChunkRejections) -> NodeMask {
        let accepted = match (self.leaves_unready, self.leaves_cordoned) {
            (true, leaves_cordoned) => chunk.valid(leaves_cordoned),
            (false, true) => *chunk.usable(),
            (false, false) => *chunk.placeable(),
        };
        let refused = among.and_not(&accepted);
        if verdicts.ignores_reasons() {
            return refused;
        }
        for offset in refused.iter() {
            let record = chunk.entry(offset).map(|entry| &entry.record);
            let number = match record {
                Some(record) if record.ready == Some(false) && !self.leaves_unready => 0,
                Some(record) if record.unschedulable && !self.leaves_cordoned => 1,
                _ => 2,
            };
            verdicts.reject(number, &NodeMask::single(offset));
        }
        refused
    }

    fn outside_inputs(&self) -> Option<HookNumbers> {
        Some(HookNumbers::new())
    }

    fn reason(&self, number: u16) -> Reason {
        let (code, message) = STATES.get(usize::from(number)).copied().unwrap_or_default();
        node_state_reason(code, message)
    }

    fn measurements(&self, _: &NodeChunk, _: usize, _: u16) -> Vec<Measurement> {
        Vec::new()
    }
}

/// Filter on the node's resources by Volcano's comparison: each requested amount must be below the available amount, or
/// within [`MIN_AMOUNT`] of it. For example, a request of 4.05 milli-cores fits 4 milli-cores.
///
/// Reason `2n`: too little of requested resource `n` is free now. Reason `2n + 1`: even the empty node has too little.
/// A node is rejected for the first reason of the second kind, because evictions cannot help, otherwise for the first
/// reason of the other kind.
#[derive(Debug)]
pub(super) struct ResourceFitFilter<'c> {
    requested: Cow<'c, [RequestedAmount]>,
    /// Largest amount of each resource that is too little, see [`bound`].
    bounds: SmallVec<[(ResourceId, f64); 8]>,
    future_idle: bool,
}

impl<'c> ResourceFitFilter<'c> {
    /// Filter of a class; `None`: the query asks for no check. Volcano compares cpu and memory even if nothing of them is
    /// requested, and each scalar that is written, also with 0: a node that lacks one of them is refused. kube-scheduler
    /// compares what is requested.
    pub(super) fn of(class: &'c TaskClass, fit: ResourceFit, policy: &Policy) -> Option<Self> {
        let future = match fit {
            ResourceFit::None => return None,
            ResourceFit::Idle => false,
            ResourceFit::FutureIdle => true,
        };
        let mut requested = Cow::Borrowed(class.requested.as_slice());
        if requested.iter().any(|own| policy.ignores_resource(&own.name)) {
            requested.to_mut().retain(|own| !policy.ignores_resource(&own.name));
        }
        if policy.compatibility().is_upstream() && !policy.is_profile() {
            let none = |id, name| RequestedAmount {
                id,
                name,
                amount: 0.0,
                whole: 0,
                counted: 0,
            };
            let plain = [(ResourceId::CPU, "cpu"), (ResourceId::MEMORY, "memory")].into_iter();
            let plain = plain.filter(|(id, _)| class.amount(*id) == 0.0);
            let plain = plain.map(|(id, name)| none(id, Arc::from(name)));
            let written = class
                .written_zeros
                .iter()
                .filter(|(_, name)| !policy.ignores_resource(name));
            let written = written.map(|(id, name)| none(*id, Arc::clone(name)));
            let more: Vec<RequestedAmount> = plain.chain(written).collect();
            if !more.is_empty() {
                requested.to_mut().extend(more);
            }
        }
        Some(Self {
            bounds: requested
                .iter()
                .map(|requested| (requested.id, bound(requested.amount)))
                .collect(),
            requested,
            future_idle: future,
        })
    }

    #[inline]
    fn supply<'k>(&self, chunk: &'k NodeChunk, id: ResourceId) -> ResourceSupply<'k> {
        let resource = chunk.resource(id);
        let values = |vector| &resource.column(vector).values;
        let there = |vector| !resource.is_absent(vector);
        let moving = self.future_idle && (there(NodeVector::Releasing) || there(NodeVector::Pipelined));
        let own = |moving| Box::new(if moving { chunk.future_idle(id) } else { chunk.idle(id) }.values);
        let own = chunk.has_own_idle().then(|| own(moving));
        let moving = moving && own.is_none();
        ResourceSupply {
            allocatable: values(NodeVector::Allocatable),
            used: values(NodeVector::Used),
            own,
            moving: moving.then(|| [values(NodeVector::Releasing), values(NodeVector::Pipelined)]),
        }
    }
}

type SupplyValues = [f64; CHUNK_SIZE];

/// Amounts of one requested resource on the nodes of a chunk.
struct ResourceSupply<'k> {
    allocatable: &'k SupplyValues,
    used: &'k SupplyValues,
    /// Available amounts of a chunk in which some node has an idle vector of its own; they replace the other vectors.
    own: Option<Box<SupplyValues>>,
    /// Releasing and pipelined amounts, if they matter and exist.
    moving: Option<[&'k SupplyValues; 2]>,
}

impl ResourceSupply<'_> {
    fn available(&self, offset: usize) -> f64 {
        let at = |values: &SupplyValues| at(values, offset);
        let idle = match &self.own {
            Some(own) => at(own),
            None => at(self.allocatable) - at(self.used),
        };
        match self.moving {
            Some([releasing, pipelined]) => idle + at(releasing) - at(pipelined),
            None => idle,
        }
    }

    /// Nodes that have no more than this.
    #[inline]
    fn short_nodes(&self, bound: f64) -> NodeMask {
        match (&self.own, self.moving) {
            (None, None) => short(bound, self.allocatable, self.used),
            (None, Some(moving)) => short_later(bound, [self.allocatable, self.used], moving),
            (Some(_), _) => NodeMask::gather(|offset| self.available(offset) <= bound),
        }
    }
}

/// Volcano's comparison: the available amount is enough if it exceeds the requested one or is within the tolerance of
/// it.
fn is_short(requested: f64, available: f64) -> bool {
    requested - available >= MIN_AMOUNT
}

/// Largest amount that is too little for a request, to the last bit. The rounded difference never grows with the
/// available amount, so one comparison with this bound equals [`is_short`].
fn bound(requested: f64) -> f64 {
    // Bit patterns that order doubles as integers.
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

    fn outside_inputs(&self) -> Option<HookNumbers> {
        Some(HookNumbers::new())
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
