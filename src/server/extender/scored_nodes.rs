//! Nodes of one query, filtered and scored, by slot: node names are never looked up or copied twice.

use std::cmp::Ordering;
use std::sync::Arc;

use super::asked_nodes::AskedNodes;
use super::kube_scores::ScoreScale;
use super::node_verdicts::{NodeVerdict, RequestVerdicts};
use super::offers::SlotScores;
use super::requests::reason_text;
use crate::server::convert::nodes::{NodeSetReader, bitmap};
use crate::server::pb;
use crate::server::status::{CallError, RpcResult};
use pumice_engine::Snapshot;
use pumice_engine::model::{ErrorCode, NodeSlot};

/// Nodes of one question, filtered and scored.
#[derive(Debug)]
pub(super) struct ScoredNodes {
    /// Snapshot in which the nodes were looked up.
    snapshot: Arc<Snapshot>,
    /// Slot of each node of the request; `None`: no source has reported it.
    pub(super) slots: Vec<Option<NodeSlot>>,
    /// Result of the question.
    pub(super) item: pb::ScoreItem,
}

impl ScoredNodes {
    /// Looks the nodes of a request up.
    ///
    /// # Errors
    /// The request names a node twice.
    pub(super) fn find(snapshot: Arc<Snapshot>, nodes: &AskedNodes) -> RpcResult<Self> {
        let slots: Vec<Option<NodeSlot>> = nodes.names().map(|name| snapshot.state.slot_of(name)).collect();
        let mut seen = vec![false; snapshot.state.slots() as usize];
        for (slot, name) in slots.iter().zip(nodes.names()) {
            let seen = slot.and_then(|slot| seen.get_mut(slot as usize));
            if seen.is_some_and(|seen| std::mem::replace(seen, true)) {
                let message = format!("node `{name}` is named twice");
                return Err(CallError::new(ErrorCode::NodeDuplicate, message));
            }
        }
        Ok(Self {
            snapshot,
            slots,
            item: pb::ScoreItem::default(),
        })
    }

    /// Nodes to ask about; `None`: no source has reported one of them.
    pub(super) fn candidates(&self) -> Option<pb::NodeSet> {
        let known: Vec<NodeSlot> = self.slots.iter().flatten().copied().collect();
        (!known.is_empty()).then(|| pb::NodeSet {
            bitmap: bitmap(&known).into(),
            ..pb::NodeSet::default()
        })
    }

    /// Table that the slots belong to.
    pub(super) fn table(&self) -> pb::NodeTableVersion {
        let reader = NodeSetReader::new(&self.snapshot.state, self.snapshot.revision.epoch);
        reader.table_version()
    }

    /// Fitting nodes with their scores, by slot.
    pub(super) fn fitting(&self) -> impl Iterator<Item = (NodeSlot, f64)> {
        let slots = self.item.nodes.iter().flat_map(slots_of);
        slots.zip(self.item.totals.iter().copied())
    }

    pub(super) fn slot_of(&self, node: &str) -> Option<NodeSlot> {
        self.snapshot.state.slot_of(node)
    }

    /// True if this node fits.
    pub(super) fn fits(&self, node: &str) -> bool {
        let slot = self.slot_of(node);
        self.fitting().any(|(fitting, _)| Some(fitting) == slot)
    }

    /// Best fitting nodes, at most so many, the best first, ties by name.
    pub(super) fn best(&self, most: usize) -> Vec<Arc<str>> {
        let name = |slot: NodeSlot| self.snapshot.state.node(slot).map(|entry| &entry.record.name);
        let order = |(slot, score): &(NodeSlot, f64), (other, its): &(NodeSlot, f64)| -> Ordering {
            its.total_cmp(score).then_with(|| name(*slot).cmp(&name(*other)))
        };
        let mut all: Vec<(NodeSlot, f64)> = self.fitting().collect();
        if all.len() > most {
            all.select_nth_unstable_by(most, order);
            all.truncate(most);
        }
        all.sort_by(order);
        all.into_iter().filter_map(|(slot, _)| name(slot).cloned()).collect()
    }

    /// Scores as kube-scheduler takes them.
    pub(super) fn scaled(&self, scale: ScoreScale) -> SlotScores {
        let scale = scale.fit_to(&self.item.totals);
        let mut by_slot = vec![-1; self.snapshot.state.slots() as usize];
        for (slot, score) in self.fitting() {
            if let Some(own) = by_slot.get_mut(slot as usize) {
                *own = scale.of(score);
            }
        }
        SlotScores {
            generation: self.snapshot.state.generation(),
            by_slot,
        }
    }

    /// Verdicts on the nodes of the request.
    pub(super) fn verdicts(&self) -> RequestVerdicts {
        let mut verdicts = RequestVerdicts::new(self.slots.clone(), self.snapshot.state.slots());
        for rejection in self.item.filter.iter().flat_map(|filter| &filter.rejections) {
            let reason = rejection.reason.clone().unwrap_or_default();
            let text: Arc<str> = reason_text(&reason).into();
            let verdict = if reason.resolution() == pb::Resolution::Unresolvable {
                NodeVerdict::NeverFits(text)
            } else {
                NodeVerdict::Fails(text)
            };
            verdicts.reject(verdict, rejection.nodes.iter().flat_map(slots_of));
        }
        verdicts.accept(self.fitting().map(|(slot, _)| slot));
        verdicts
    }
}

/// Slots of a bitmap, ascending.
fn slots_of(set: &pb::NodeSet) -> impl Iterator<Item = NodeSlot> {
    (0..).step_by(8).zip(&set.bitmap).flat_map(|(first, byte)| {
        let bits = (0..8).filter(move |bit| byte >> bit & 1 == 1);
        bits.map(move |bit: NodeSlot| first + bit)
    })
}
