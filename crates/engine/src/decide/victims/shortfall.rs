//! Shortfall of a preemptor on its node, and the victims that cover it.

use std::collections::BTreeSet;

use super::{VictimCandidate, VictimGroup};
use crate::model::{ClusterState, ErrorCode, Problem, ResourceId};
use crate::plugin::Shortfall;
use crate::policy::Compatibility;

/// Missing amounts; at most 0: nothing is missing.
#[derive(Clone, Debug)]
pub(super) struct PreemptorShortfall<'a> {
    group: &'a VictimGroup,
    missing: Vec<(ResourceId, i128)>,
    /// Shortfalls that plugins report.
    plugin_shortfalls: Vec<Shortfall>,
}

impl<'a> PreemptorShortfall<'a> {
    /// Shortfall beyond the idle and releasing amounts of the node, with the plugins' shortfalls. `None`: the group
    /// does not name a node.
    ///
    /// # Errors
    /// The node does not exist.
    pub(super) fn of(
        group: &'a VictimGroup,
        cluster_state: &ClusterState,
        lacks: Vec<Shortfall>,
        compatibility: Compatibility,
    ) -> Result<Option<Self>, Problem> {
        if group.node.is_empty() {
            return Ok(None);
        }
        let Some(node) = cluster_state.node_by_name(&group.node) else {
            let message = format!("there is no node `{}`", group.node);
            return Err(Problem::new(ErrorCode::NodeUnknown, "node", message));
        };
        // The reference compares what is written, also with 0.
        let counts = |amount: i64| amount > 0 || compatibility.is_upstream();
        let wanted = group.preemptor.requests.iter().filter(|(_, amount)| counts(*amount));
        let missing = wanted.map(|(id, amount)| (id, i128::from(amount) - node.exact_idle(id, true)));
        Ok(Some(Self {
            group,
            missing: missing.collect(),
            plugin_shortfalls: lacks,
        }))
    }

    /// True if these victims together do not cover the plugins' shortfalls.
    pub(super) fn leaves_shortfall(&self, victims: &[VictimCandidate<'_>]) -> bool {
        let mut gone = BTreeSet::new();
        let mut room = self.clone();
        for victim in victims.iter().filter(|victim| gone.insert(victim.identity())) {
            room.evict(victim);
        }
        room.plugin_shortfalls.iter().any(|lack| lack.missing > 0)
    }

    /// True if nothing is missing.
    pub(super) fn is_covered(&self) -> bool {
        self.missing.iter().all(|(_, amount)| *amount <= 0)
            && self.plugin_shortfalls.iter().all(|lack| lack.missing <= 0)
    }

    fn is_on_node(&self, victim: &VictimCandidate<'_>) -> bool {
        *victim.task.node == *self.group.node && victim.task.status.is_allocated()
    }

    /// True if the eviction of a victim covers some of the shortfall.
    pub(super) fn gains_from(&self, victim: &VictimCandidate<'_>) -> bool {
        self.is_on_node(victim) || self.plugin_shortfalls.iter().any(|lack| quota_gain(lack, victim) > 0)
    }

    /// Amount of a node's resource that the eviction of a victim frees.
    fn freed_amount(&self, victim: &VictimCandidate<'_>, id: ResourceId) -> i128 {
        let given = || i128::from(victim.task.requests.get(id).unwrap_or(0));
        if self.is_on_node(victim) { given() } else { 0 }
    }

    /// Subtracts a victim's amounts from the shortfall.
    pub(super) fn evict(&mut self, victim: &VictimCandidate<'_>) {
        self.adjust(victim, -1);
    }

    fn adjust(&mut self, victim: &VictimCandidate<'_>, sign: i128) {
        let given: Vec<i128> = self
            .missing
            .iter()
            .map(|(id, _)| self.freed_amount(victim, *id))
            .collect();
        for ((_, amount), given) in self.missing.iter_mut().zip(given) {
            *amount += given * sign;
        }
        for lack in &mut self.plugin_shortfalls {
            lack.missing += quota_gain(lack, victim) * sign;
        }
    }

    /// Spares a victim if nothing is missing without it.
    pub(super) fn try_spare(&mut self, victim: &VictimCandidate<'_>) -> bool {
        self.adjust(victim, 1);
        let enough = self.is_covered();
        if !enough {
            self.adjust(victim, -1);
        }
        enough
    }

    /// Evicts victims until nothing is missing, and returns their number. A repeated victim is evicted once.
    pub(super) fn covered_after(&mut self, victims: &[VictimCandidate<'_>]) -> Option<usize> {
        if self.is_covered() {
            return Some(0);
        }
        let mut gone = BTreeSet::new();
        for (number, victim) in victims.iter().enumerate() {
            if self.gains_from(victim) && gone.insert(victim.identity()) {
                self.evict(victim);
            }
            if self.is_covered() {
                return Some(number + 1);
            }
        }
        None
    }
}

fn quota_gain(lack: &Shortfall, victim: &VictimCandidate<'_>) -> i128 {
    lack.gains.get(victim.position).copied().unwrap_or(0)
}
