//! Nodes of revocable zones: filter and score of one task class.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::record_values::RecordValues;
use super::arguments::ZoneWindow;
use super::{NAME, ZONE};
use crate::model::{ClusterState, NodeChunk, NodeMask};
use crate::plugin::{
    ChunkRejections, ChunkScores, DecisionTime, Measurement, NodeFilter, NodeScorer, Reason, Resolution,
};
use crate::policy::Compatibility;

/// Score of an open revocable node for a task that may use it.
pub(super) const OPEN_SCORE: f64 = 100.0;
/// Score that is out of range: the reference scores no node for the task.
const UNSCORED: f64 = -1.0;

/// Number of the reason of a task that may not use revocable nodes; the reasons of closed zones follow it.
const NOT_ALLOWED: u16 = 0;

/// Zones and the time at which they are open or closed.
#[derive(Clone, Copy, Debug)]
pub(super) struct RevocableNodes<'a> {
    pub(super) zones: &'a BTreeMap<String, ZoneWindow>,
    pub(super) now: Option<DecisionTime>,
    pub(super) compatibility: Compatibility,
}

impl RevocableNodes<'_> {
    /// Code and message of why a zone is closed; `None`: it is open, or no zone (empty). Without a time each window is open.
    pub(super) fn closed(self, zone: &str) -> Option<(&'static str, String)> {
        if zone.is_empty() {
            return None;
        }
        let Some(own) = self.zones.get(zone) else {
            return Some(("RevocableZoneUnknown", format!("revocable zone {zone} not support")));
        };
        let Some(window) = own.window else {
            return Some((
                "RevocableZoneInvalid",
                format!("revocable zone {} format error", own.written.trim()),
            ));
        };
        // The reference forgets at midnight that a window began the day before.
        let from_yesterday = self.compatibility == Compatibility::Corrected;
        let is_open = self.now.is_none_or(|now| window.includes(now, from_yesterday));
        let closed = || {
            let message = format!("current time beyond revocable zone {zone}:{}", own.written);
            ("RevocableZoneClosed", message)
        };
        (!is_open).then(closed)
    }
}

/// Filter of one task class.
pub(super) struct ZoneFilter<'a> {
    nodes: RevocableNodes<'a>,
    cluster_state: &'a ClusterState,
    /// True if the task may use revocable nodes while they are open.
    may_use: bool,
    /// Closed zones of all nodes, in order. The numbers of reasons follow it.
    closed: OnceCell<Vec<Arc<str>>>,
}

impl<'a> ZoneFilter<'a> {
    pub(super) fn new(nodes: RevocableNodes<'a>, cluster_state: &'a ClusterState, may_use: bool) -> Self {
        Self {
            nodes,
            cluster_state,
            may_use,
            closed: OnceCell::new(),
        }
    }

    fn closed_zones(&self) -> &[Arc<str>] {
        self.closed.get_or_init(|| {
            let chunks = self.cluster_state.chunks().iter();
            let zones: BTreeSet<&Arc<str>> = chunks.flat_map(|chunk| chunk.attributes().label_values(ZONE)).collect();
            let closed = zones.into_iter().filter(|zone| self.nodes.closed(zone).is_some());
            closed.map(Arc::clone).collect()
        })
    }

    fn number_of(&self, zone: &str) -> Option<u16> {
        let place = self
            .closed_zones()
            .binary_search_by(|own| own.as_ref().cmp(zone))
            .ok()?;
        // Zones beyond the numbers share the last one.
        Some(u16::try_from(place + 1).unwrap_or(u16::MAX))
    }
}

impl NodeFilter for ZoneFilter<'_> {
    fn filter(&self, chunk: &NodeChunk, among: &NodeMask, verdicts: &mut ChunkRejections) -> NodeMask {
        if chunk.is_detached() {
            // Nodes of a detached chunk passed, and tasks do not change their zones.
            return NodeMask::NONE;
        }
        let attributes = chunk.attributes();
        let mut closed = NodeMask::NONE;
        for (number, nodes) in attributes.group_label(ZONE, |zone| self.number_of(zone)) {
            let nodes = nodes.and(among);
            verdicts.reject(number, &nodes);
            closed = closed.or(&nodes);
        }
        if self.may_use {
            return closed;
        }
        let open = attributes
            .select_label(ZONE, |zone| !zone.is_empty())
            .and(among)
            .and_not(&closed);
        verdicts.reject(NOT_ALLOWED, &open);
        closed.or(&open)
    }

    fn reason(&self, number: u16) -> Reason {
        let zone = usize::from(number)
            .checked_sub(1)
            .and_then(|at| self.closed_zones().get(at));
        let (code, message) = zone.and_then(|zone| self.nodes.closed(zone)).unwrap_or_else(|| {
            let message = "not allow to dispatch to revocable node";
            ("RevocableNodeNotAllowed", message.to_owned())
        });
        Reason::new(NAME, code, message, Resolution::Unresolvable)
    }

    fn has_lasting_reasons(&self) -> bool {
        true
    }

    fn measurements(&self, _: &NodeChunk, _: usize, _: u16) -> Vec<Measurement> {
        Vec::new()
    }
}

/// Score of one task class.
struct ZoneScorer<'a, F> {
    values: RecordValues<'a, F>,
    is_upstream: bool,
}

/// Scorer of a task that may use revocable nodes or may not.
pub(super) fn zone_scorer<'a>(
    nodes: RevocableNodes<'a>,
    cluster_state: &'a ClusterState,
    may_use: bool,
) -> impl NodeScorer + 'a {
    let is_upstream = nodes.compatibility.is_upstream();
    let compute = move |chunk: &NodeChunk, values: &mut ChunkScores| {
        let score = |zone: &str| match nodes.closed(zone) {
            Some(_) if is_upstream => UNSCORED,
            None if may_use && !zone.is_empty() => OPEN_SCORE,
            _ => 0.0,
        };
        chunk.attributes().map_label(ZONE, score, values);
        None
    };
    ZoneScorer {
        values: RecordValues::new(cluster_state, compute),
        is_upstream,
    }
}

impl<F: Fn(&NodeChunk, &mut ChunkScores) -> Option<f64>> NodeScorer for ZoneScorer<'_, F> {
    fn score(&self, chunk: &NodeChunk, parts: &mut [ChunkScores]) {
        if let Some(scores) = parts.first_mut() {
            self.values.fill(chunk, scores);
        }
    }

    fn range(&self) -> Option<(f64, f64)> {
        self.is_upstream.then_some((0.0, OPEN_SCORE))
    }
}
