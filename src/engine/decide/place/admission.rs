//! Whether the next task of a group may be allocated at all, and what its queue knows of those before it.

use std::sync::Arc;

use super::PlaceGroup;
use crate::engine::decide::admit::{self, Admission};
use crate::engine::derived::{DerivedSet, Movement, TaskMove};
use crate::engine::model::{Problem, ProblemKind, Slot, TaskRecord, TaskStatus, View};
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
    /// So many of the next tasks are permitted like the last one that was asked about, and plugins are told of all at once.
    alike: u64,
    /// Tasks that plugins are still to be told of, and their status.
    untold: (u64, TaskStatus),
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
            alike: 0,
            untold: (0, TaskStatus::Allocated),
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
        Arc::new(imagined(self.number, self.given, &self.group.task))
    }

    /// Asks about the next task.
    pub(super) fn next(&mut self, view: &View, derived: &mut DerivedSet) -> Result<Next, Problem> {
        if self.alike > 0 || (!self.each && (self.given > 0 || self.group.task.job.is_empty())) {
            return Ok(Next::Go);
        }
        self.tell(view, derived)?;
        let task = self.task(view);
        if view.jobs().get(&task.job).is_none() {
            return Err(self.jobless(&task.job));
        }
        let admission = admit::admit_task(view, self.policy, derived, &task).map_err(|mut problem| {
            if problem.field == "queue" {
                problem.field = self.job_field();
            }
            problem
        })?;
        if !admission.permitted {
            return Ok(Next::Refused(admission));
        }
        let cards: Vec<Arc<str>> = admission.cards.into_iter().map(|(card, _)| card).collect();
        if self.each && cards.is_empty() && !self.unheard {
            self.alike = self.in_a_row(view, derived, &task);
        }
        if cards == self.cards && !(self.unheard && self.given > 0) {
            return Ok(Next::Go);
        }
        self.cards = cards;
        Ok(Next::Changed)
    }

    /// Where the group says whose its tasks are.
    fn job_field(&self) -> String {
        let named = !self.group.names.is_empty();
        (if named { "names" } else { "task.job" }).to_owned()
    }

    fn jobless(&self, job: &str) -> Problem {
        let message = if job.is_empty() {
            "the tasks are of no job, and this policy admits tasks by their jobs".to_owned()
        } else {
            format!("there is no job `{job}`, and nothing else says what it would be")
        };
        Problem::new(ProblemKind::NotFound, "UNKNOWN_JOB", self.job_field(), message)
    }

    /// True if nodes must be judged anew after each task.
    pub(super) fn looks_anew(&self) -> bool {
        self.unheard
    }

    /// How many tasks like this one are permitted in a row and can be told of at once; 0: each is to be asked about.
    fn in_a_row(&self, view: &View, derived: &DerivedSet, task: &TaskRecord) -> u64 {
        let Some(job) = view.jobs().get(&task.job) else {
            return 0;
        };
        let queue = &job.record.queue;
        let plugins = self.policy.allocators().iter().flatten();
        let least = plugins
            .map(|hook| hook.plugin.admits_in_a_row(derived, view, queue, task))
            .min();
        least.filter(|least| *least > 1).unwrap_or(0)
    }

    /// Tells plugins of the tasks that they have not been told of.
    pub(super) fn tell(&mut self, view: &View, derived: &mut DerivedSet) -> Result<(), Problem> {
        let (times, status) = std::mem::take(&mut self.untold);
        if times > 0 {
            let before = &self.group.task;
            let after = TaskRecord {
                status,
                ..TaskRecord::clone(before)
            };
            derived.follow_alike(view, &movement(before, &after, ""), times)?;
        }
        Ok(())
    }

    /// The next task goes to a node; the card that it uses there, if a plugin gives any.
    pub(super) fn put(
        &mut self,
        view: &View,
        derived: &mut DerivedSet,
        slot: Slot,
        status: TaskStatus,
    ) -> Result<Option<Arc<str>>, Problem> {
        let mut card = None;
        if self.alike > 0 {
            if self.untold.1 != status {
                self.tell(view, derived)?;
            }
            self.untold = (self.untold.0 + 1, status);
            self.alike -= 1;
        } else if self.each {
            let node = view.node(slot).map(|entry| Arc::clone(&entry.record.name));
            let node = node.unwrap_or_default();
            let before = self.task(view);
            let mut plugins = self.policy.allocators().iter().flatten();
            card = plugins.find_map(|hook| hook.plugin.card_on(derived, &before, &node, &self.cards));
            let after = TaskRecord {
                node,
                status,
                ..TaskRecord::clone(&before)
            };
            derived.follow(view, &movement(&before, &after, card.as_deref().unwrap_or_default()))?;
        }
        self.given += 1;
        Ok(card)
    }
}

/// One of the tasks of a group that nobody has stored.
pub(super) fn imagined(group: usize, place: usize, task: &TaskRecord) -> TaskRecord {
    TaskRecord {
        // No name of a pod: it cannot be that of another task.
        name: Arc::from(format!("#{group}.{place}")),
        ..TaskRecord::clone(task)
    }
}

fn movement<'a>(before: &'a TaskRecord, after: &'a TaskRecord, card: &'a str) -> Movement<'a> {
    let moved = TaskMove { before, after, card };
    if after.status == TaskStatus::Pipelined {
        Movement::Pipeline(moved)
    } else {
        Movement::Allocate(moved)
    }
}
