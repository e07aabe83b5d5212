//! What a preemptor lacks on its node, and which victims make up for it.

use std::collections::BTreeSet;

use super::{VictimCandidate, VictimGroup};
use crate::engine::model::{ClusterState, NodeVector, Problem, ProblemKind, ResourceId};
use crate::engine::plugin::Shortfall;

/// What is missing; at most 0: nothing.
#[derive(Clone, Debug)]
pub(super) struct PreemptorShortfall<'a> {
    group: &'a VictimGroup,
    missing: Vec<(ResourceId, i128)>,
    /// What plugins say is missing besides.
    plugin_shortfalls: Vec<Shortfall>,
}

impl<'a> PreemptorShortfall<'a> {
    /// What the preemptor lacks of what is idle and what is being released already, besides what plugins say; `None`: the
    /// group names no node.
    ///
    /// # Errors
    /// There is no such node.
    pub(super) fn of(
        group: &'a VictimGroup,
        cluster_state: &ClusterState,
        lacks: Vec<Shortfall>,
    ) -> Result<Option<Self>, Problem> {
        if group.node.is_empty() {
            return Ok(None);
        }
        let Some(node) = cluster_state.node_by_name(&group.node) else {
            let message = format!("there is no node `{}`", group.node);
            return Err(Problem::new(ProblemKind::NotFound, "NODE_NOT_FOUND", "node", message));
        };
        let exact = |id, vector| node.exact(id, vector).unwrap_or(0);
        let idle = |id| match node.upstream {
            Some(_) => exact(id, NodeVector::Idle),
            None => exact(id, NodeVector::Allocatable) - exact(id, NodeVector::Used),
        };
        let wanted = group.preemptor.requests.iter().filter(|(_, amount)| *amount > 0);
        let missing = wanted.map(|(id, amount)| {
            let free = idle(id) + exact(id, NodeVector::Releasing) - exact(id, NodeVector::Pipelined);
            (id, i128::from(amount) - free)
        });
        Ok(Some(Self {
            group,
            missing: missing.collect(),
            plugin_shortfalls: lacks,
        }))
    }

    /// True if these victims together do not make up for what plugins say is missing.
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

    /// True if a victim gives something back when it goes.
    pub(super) fn gains_from(&self, victim: &VictimCandidate<'_>) -> bool {
        self.is_on_node(victim) || self.plugin_shortfalls.iter().any(|lack| quota_gain(lack, victim) > 0)
    }

    /// What a victim gives back of a resource of the node.
    fn freed_amount(&self, victim: &VictimCandidate<'_>, id: ResourceId) -> i128 {
        let given = || i128::from(victim.task.requests.get(id).unwrap_or(0));
        if self.is_on_node(victim) { given() } else { 0 }
    }

    /// A victim goes.
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

    /// A victim stays after all, if there is still nothing missing then.
    pub(super) fn try_spare(&mut self, victim: &VictimCandidate<'_>) -> bool {
        self.adjust(victim, 1);
        let enough = self.is_covered();
        if !enough {
            self.adjust(victim, -1);
        }
        enough
    }

    /// Takes victims until nothing is missing; answers how many that took. One that stands twice goes once.
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
