//! Whether the next task of a group may be allocated at all, and what its queue knows of those before it.

use std::sync::Arc;

use super::PlaceGroup;
use crate::engine::decide::admit::{self, Admission};
use crate::engine::derived::{DerivedSet, Movement, TaskMove};
use crate::engine::model::{Problem, TaskRecord, TaskStatus, View};
use crate::engine::policy::Policy;

/// What becomes of the next task before any node is looked at.
pub(super) enum Next {
    /// It may be allocated.
    Go,
    /// So it may, but other cards would do than before: plugins that read accounts judge nodes anew.
    Changed,
    /// It may not.
    Refused(Admission),
}

/// Admission of the tasks of one group, one after the other.
pub(super) struct Gate<'q> {
    policy: &'q Policy,
    group: &'q PlaceGroup,
    /// Which group it is.
    number: usize,
    /// Every task is asked about, and plugins are told of each: the verdict may change.
    each: bool,
    /// Filters read accounts of plugins that nobody asks for admission: each placement may change their verdicts.
    unheard: bool,
    /// Tasks that found a place.
    pub(super) given: usize,
    /// The cards that would do for the next task.
    cards: Vec<Arc<str>>,
}

fn unheard(policy: &Policy) -> bool {
    let mut readers = policy.filters().iter().chain(policy.scorers());
    let asked = |name: &str| policy.allocators().iter().flatten().any(|hook| *hook.name == *name);
    readers.any(|hook| hook.plugin.hooks().accounts && !asked(&hook.name))
}

impl<'q> Gate<'q> {
    pub(super) fn new(policy: &'q Policy, number: usize, group: &'q PlaceGroup) -> Self {
        Self {
            policy,
            group,
            number,
            each: policy.reads_accounts(&[]) || policy.allocators().iter().any(|tier| !tier.is_empty()),
            unheard: unheard(policy),
            given: 0,
            cards: Vec::new(),
        }
    }

    /// The next task: as it is stored, or a pod like the others.
    fn task(&self, view: &View) -> Arc<TaskRecord> {
        let named = self.group.names.get(self.given);
        if let Some(stored) = named.and_then(|name| view.tasks().get(name)) {
            return Arc::new(stored.record.clone());
        }
        if !self.each {
            return Arc::clone(&self.group.task);
        }
        Arc::new(TaskRecord {
            // No name of a pod: it cannot be that of another task.
            name: Arc::from(format!("#{}.{}", self.number, self.given)),
            ..TaskRecord::clone(&self.group.task)
        })
    }

    /// Asks about the next task.
    pub(super) fn next(&mut self, view: &View, derived: &DerivedSet) -> Result<Next, Problem> {
        if !self.each && (self.given > 0 || self.group.task.job.is_empty()) {
            return Ok(Next::Go);
        }
        let admission = admit::admit_task(view, self.policy, derived, &self.task(view))?;
        if !admission.permitted {
            return Ok(Next::Refused(admission));
        }
        let cards: Vec<Arc<str>> = admission.cards.into_iter().map(|(card, _)| card).collect();
        if cards == self.cards && !(self.unheard && self.given > 0) {
            return Ok(Next::Go);
        }
        self.cards = cards;
        Ok(Next::Changed)
    }

    /// The next task goes to a node; the card that it uses there, if a plugin gives any.
    pub(super) fn put(
        &mut self,
        view: &View,
        derived: &mut DerivedSet,
        node: &Arc<str>,
        status: TaskStatus,
    ) -> Result<Option<Arc<str>>, Problem> {
        let mut card = None;
        if self.each {
            let before = self.task(view);
            let mut plugins = self.policy.allocators().iter().flatten();
            card = plugins.find_map(|hook| hook.plugin.card_on(derived, &before, node, &self.cards));
            let after = TaskRecord {
                status,
                node: Arc::clone(node),
                ..TaskRecord::clone(&before)
            };
            let moved = TaskMove {
                before: &before,
                after: &after,
                card: card.as_deref().unwrap_or_default(),
            };
            let movement = if status == TaskStatus::Pipelined {
                Movement::Pipeline(moved)
            } else {
                Movement::Allocate(moved)
            };
            derived.follow(view, &movement)?;
        }
        self.given += 1;
        Ok(card)
    }
}
