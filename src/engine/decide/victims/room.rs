//! What a preemptor lacks on its node, and which victims make up for it.

use std::collections::BTreeSet;

use super::{Candidate, VictimGroup};
use crate::engine::model::{Problem, ProblemKind, ResourceId, Vector, View};
use crate::engine::plugin::Lack;

/// What is missing; at most 0: nothing.
#[derive(Clone, Debug)]
pub(super) struct Room<'a> {
    group: &'a VictimGroup,
    missing: Vec<(ResourceId, i128)>,
    /// What plugins say is missing besides.
    lacks: Vec<Lack>,
}

impl<'a> Room<'a> {
    /// What the preemptor lacks of what is idle and what is being released already, besides what plugins say; `None`: the
    /// group names no node.
    ///
    /// # Errors
    /// There is no such node.
    pub(super) fn of(group: &'a VictimGroup, view: &View, lacks: Vec<Lack>) -> Result<Option<Self>, Problem> {
        if group.node.is_empty() {
            return Ok(None);
        }
        let Some(node) = view.node_named(&group.node) else {
            let message = format!("there is no node `{}`", group.node);
            return Err(Problem::new(ProblemKind::NotFound, "NODE_NOT_FOUND", "node", message));
        };
        let exact = |id, vector| node.exact(id, vector).unwrap_or(0);
        let idle = |id| match node.upstream {
            Some(_) => exact(id, Vector::Idle),
            None => exact(id, Vector::Allocatable) - exact(id, Vector::Used),
        };
        let wanted = group.preemptor.requests.iter().filter(|(_, amount)| *amount > 0);
        let missing = wanted.map(|(id, amount)| {
            let free = idle(id) + exact(id, Vector::Releasing) - exact(id, Vector::Pipelined);
            (id, i128::from(amount) - free)
        });
        Ok(Some(Self {
            group,
            missing: missing.collect(),
            lacks,
        }))
    }

    /// True if these victims together do not make up for what plugins say is missing.
    pub(super) fn is_vain(&self, victims: &[Candidate<'_>]) -> bool {
        let mut gone = BTreeSet::new();
        let mut room = self.clone();
        for victim in victims.iter().filter(|victim| gone.insert(victim.identity())) {
            room.take(victim);
        }
        room.lacks.iter().any(|lack| lack.missing > 0)
    }

    /// True if nothing is missing.
    pub(super) fn is_enough(&self) -> bool {
        self.missing.iter().all(|(_, amount)| *amount <= 0) && self.lacks.iter().all(|lack| lack.missing <= 0)
    }

    fn is_here(&self, victim: &Candidate<'_>) -> bool {
        *victim.task.node == *self.group.node && victim.task.status.is_allocated()
    }

    /// True if a victim gives something back when it goes.
    pub(super) fn gains_by(&self, victim: &Candidate<'_>) -> bool {
        self.is_here(victim) || self.lacks.iter().any(|lack| gain(lack, victim) > 0)
    }

    /// What a victim gives back of a resource of the node.
    fn given(&self, victim: &Candidate<'_>, id: ResourceId) -> i128 {
        let given = || i128::from(victim.task.requests.get(id).unwrap_or(0));
        if self.is_here(victim) { given() } else { 0 }
    }

    /// A victim goes.
    pub(super) fn take(&mut self, victim: &Candidate<'_>) {
        self.count(victim, -1);
    }

    fn count(&mut self, victim: &Candidate<'_>, sign: i128) {
        let given: Vec<i128> = self.missing.iter().map(|(id, _)| self.given(victim, *id)).collect();
        for ((_, amount), given) in self.missing.iter_mut().zip(given) {
            *amount += given * sign;
        }
        for lack in &mut self.lacks {
            lack.missing += gain(lack, victim) * sign;
        }
    }

    /// A victim stays after all, if there is still nothing missing then.
    pub(super) fn spare(&mut self, victim: &Candidate<'_>) -> bool {
        self.count(victim, 1);
        let enough = self.is_enough();
        if !enough {
            self.count(victim, -1);
        }
        enough
    }

    /// Takes victims until nothing is missing; answers how many that took. One that stands twice goes once.
    pub(super) fn filled_after(&mut self, victims: &[Candidate<'_>]) -> Option<usize> {
        if self.is_enough() {
            return Some(0);
        }
        let mut gone = BTreeSet::new();
        for (number, victim) in victims.iter().enumerate() {
            if self.gains_by(victim) && gone.insert(victim.identity()) {
                self.take(victim);
            }
            if self.is_enough() {
                return Some(number + 1);
            }
        }
        None
    }
}

fn gain(lack: &Lack, victim: &Candidate<'_>) -> i128 {
    lack.gains.get(victim.position).copied().unwrap_or(0)
}
