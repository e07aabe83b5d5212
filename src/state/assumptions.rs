//! Assumptions: committed placements that count until their source tells of them, someone releases them, or their lease
//! ends.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::ledger::Leases;
use crate::engine::model::{Kind, TaskRecord, TaskStatus, View};

/// What the clock says, as data: the writer reads none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tick {
    /// Monotonic.
    pub(super) now: Duration,
    /// Sources that are heard: leases of what others own stand still.
    pub(super) heard: BTreeSet<Arc<str>>,
}

/// One committed placement.
#[derive(Clone, Debug)]
struct Assumption {
    /// The task as its source tells of it.
    told: TaskRecord,
    /// Whose commit made it.
    session: Arc<str>,
}

/// All assumptions; the View shows their effect.
#[derive(Debug)]
pub(super) struct Assumptions {
    lease: Duration,
    by_task: BTreeMap<Arc<str>, Assumption>,
    by_session: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// Of tasks.
    leases: Leases,
}

impl Assumptions {
    pub(super) fn new(lease: Duration) -> Self {
        Self {
            lease,
            by_task: BTreeMap::new(),
            by_session: BTreeMap::new(),
            leases: Leases::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_task.len()
    }

    /// Lets time pass, and ends what is over. True if something was.
    pub(super) fn tick(&mut self, tick: Tick, view: &mut View) -> bool {
        self.leases.pass(tick.now, tick.heard);
        let over = self.leases.over();
        for task in &over {
            self.withdraw(task, view);
        }
        !over.is_empty()
    }

    /// Remembers a placement that `view` shows already. `told`: the record as its source has it.
    pub(super) fn make(&mut self, told: TaskRecord, view: &View, session: &Arc<str>) {
        let Some(stored) = view.tasks().get(&told.name) else {
            return;
        };
        let task = Arc::clone(&told.name);
        self.leases.start(&task, &stored.source, self.lease);
        self.by_session
            .entry(Arc::clone(session))
            .or_default()
            .insert(Arc::clone(&task));
        let assumption = Assumption {
            told,
            session: Arc::clone(session),
        };
        self.by_task.insert(task, assumption);
    }

    /// Puts a task's record, as its source now tells of it. One that shows neither a node nor an end does not end the
    /// assumption.
    pub(super) fn put(&mut self, record: TaskRecord, source: &Arc<str>, view: &mut View) {
        let stays = self.by_task.get(&record.name).is_some_and(|own| own.stays(&record));
        if !stays {
            self.forget(&record.name);
            view.put_task(record, source);
            return;
        }
        let name = Arc::clone(&record.name);
        let Some(stored) = view.tasks().get(&name).cloned() else {
            return;
        };
        view.put_task(record, source);
        let told = view.assume(&name, &stored.record.node, &stored.record.card);
        if let (Some(own), Some(told)) = (self.by_task.get_mut(&name), told) {
            own.told = told;
        }
    }

    /// The task is gone: so is its assumption.
    pub(super) fn forget(&mut self, task: &str) {
        self.take(task);
    }

    /// Ends assumptions that were made by this session's commit (empty: by any): of these tasks, or (none named) all of
    /// them. Answers which.
    pub(super) fn release(&mut self, session: &str, tasks: &[Arc<str>], view: &mut View) -> Vec<Arc<str>> {
        let named: BTreeSet<Arc<str>> = if tasks.is_empty() {
            self.by_session.get(session).cloned().unwrap_or_default()
        } else {
            tasks.iter().cloned().collect()
        };
        let mut released = Vec::new();
        for task in named {
            let own = self.by_task.get(&task);
            if own.is_some_and(|own| session.is_empty() || *own.session == *session) {
                self.withdraw(&task, view);
                released.push(task);
            }
        }
        released
    }

    /// Ends the assumption that a task is on this node, if there is one.
    pub(super) fn release_from(&mut self, task: &str, node: &str, view: &mut View) -> bool {
        let there = |view: &View| {
            view.tasks()
                .get(task)
                .is_some_and(|stored| *stored.record.node == *node)
        };
        let ends = self.by_task.contains_key(task) && there(view);
        if ends {
            self.withdraw(task, view);
        }
        ends
    }

    /// The task is again what its source tells.
    fn withdraw(&mut self, task: &str, view: &mut View) {
        let Some(own) = self.take(task) else { return };
        let Some(stored) = view.tasks().get(task).cloned() else {
            return;
        };
        view.put_task(own.told, &stored.source);
        if stored.invalid.is_some() {
            view.set_invalid(Kind::Task, task, stored.invalid.clone());
        }
    }

    fn take(&mut self, task: &str) -> Option<Assumption> {
        let own = self.by_task.remove(task)?;
        let name = Arc::clone(&own.told.name);
        self.leases.stop(&name);
        if let Some(tasks) = self.by_session.get_mut(&own.session) {
            tasks.remove(&name);
            if tasks.is_empty() {
                self.by_session.remove(&own.session);
            }
        }
        Some(own)
    }
}

impl Assumption {
    /// True if a record that the source sends does not end it.
    fn stays(&self, record: &TaskRecord) -> bool {
        let over = matches!(record.status, TaskStatus::Succeeded | TaskStatus::Failed);
        self.told.uid.may_be(&record.uid) && record.node.is_empty() && !over
    }
}
