//! What a preemptor lacks on its node, and which victims make up for it.

use std::collections::BTreeSet;

use super::{Candidate, VictimGroup};
use crate::engine::model::{Problem, ProblemKind, ResourceId, TaskRecord, Vector, View};

/// What is missing; at most 0: nothing.
#[derive(Clone, Debug)]
pub(super) struct Room<'a> {
    group: &'a VictimGroup,
    missing: Vec<(ResourceId, i128)>,
}

impl<'a> Room<'a> {
    /// What the preemptor lacks of what is idle and what is being released already; `None`: the group names no node.
    ///
    /// # Errors
    /// There is no such node.
    pub(super) fn of(group: &'a VictimGroup, view: &View) -> Result<Option<Self>, Problem> {
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
        }))
    }

    /// True if nothing is missing.
    pub(super) fn is_enough(&self) -> bool {
        self.missing.iter().all(|(_, amount)| *amount <= 0)
    }

    /// True if a victim gives something back here when it goes.
    pub(super) fn gains_by(&self, victim: &TaskRecord) -> bool {
        *victim.node == *self.group.node && victim.status.is_allocated()
    }

    /// A victim goes.
    pub(super) fn take(&mut self, victim: &TaskRecord) {
        for (id, amount) in &mut self.missing {
            *amount -= i128::from(victim.requests.get(*id).unwrap_or(0));
        }
    }

    /// A victim stays after all, if there is still nothing missing then.
    pub(super) fn spare(&mut self, victim: &TaskRecord) -> bool {
        let given = |id: &ResourceId| i128::from(victim.requests.get(*id).unwrap_or(0));
        let enough = self.missing.iter().all(|(id, amount)| *amount + given(id) <= 0);
        if enough {
            self.missing.iter_mut().for_each(|(id, amount)| *amount += given(id));
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
            if self.gains_by(victim.task) && gone.insert(victim.identity()) {
                self.take(victim.task);
            }
            if self.is_enough() {
                return Some(number + 1);
            }
        }
        None
    }
}
