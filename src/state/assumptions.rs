//! Assumptions: committed placements that count until their source tells of them, someone releases them, or their lease
//! ends.
//!
//! The store keeps them, because nobody would send them again: after a restart each waits for its task and counts from the
//! batch on that tells of it. What commits and releases make of them is a [`Draft`] until it is written; what a source
//! shows, and leases that end, hold at once, and the store learns of it later: what it has too much ends when its task is
//! told again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::ledger::Leases;
use super::limits::Limits;
use crate::engine::model::{Kind, TaskRecord, TaskStatus, View};
use crate::store::{Kept, StoredAssumption, Write};

/// How long what was restored waits for a source that is not heard: leases stand still meanwhile, and a source that has got
/// another name would never come.
const WAITS: Duration = Duration::from_hours(24);

/// One committed placement.
#[derive(Clone, Debug)]
struct Assumption {
    /// What is kept of it.
    kept: Arc<StoredAssumption>,
    /// The task as its source tells of it; `None`: it has not, since the server started.
    told: Option<TaskRecord>,
}

/// All assumptions; the View shows their effect.
#[derive(Debug)]
pub(super) struct Assumptions {
    lease: Duration,
    by_task: BTreeMap<Arc<str>, Assumption>,
    by_session: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// Of tasks.
    leases: Leases,
    /// Tasks that have not been told since the server started, by source.
    waiting: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// When the server first looked at the clock.
    began: Option<Duration>,
    /// Tasks of which the store may hold something else than is true.
    dirty: BTreeSet<Arc<str>>,
}

/// What commits and releases make of assumptions, before it is true: by task, `None`: no more.
#[derive(Debug, Default)]
pub(super) struct Draft(BTreeMap<Arc<str>, Option<Assumption>>);

impl Draft {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Assumptions {
    /// Those that are kept, each with a full lease.
    pub(super) fn open(limits: &Limits, kept: &Kept) -> Self {
        let mut own = Self {
            lease: limits.assumption_lease,
            by_task: BTreeMap::new(),
            by_session: BTreeMap::new(),
            leases: Leases::default(),
            waiting: BTreeMap::new(),
            began: None,
            dirty: BTreeSet::new(),
        };
        for kept in &kept.assumptions {
            own.waiting
                .entry(Arc::clone(&kept.source))
                .or_default()
                .insert(Arc::clone(&kept.task));
            let restored = Assumption {
                kept: Arc::clone(kept),
                told: None,
            };
            own.insert(restored);
        }
        if !own.by_task.is_empty() {
            tracing::info!(
                assumptions = own.by_task.len(),
                "committed placements wait for their tasks"
            );
        }
        own
    }

    /// How many there would be.
    pub(super) fn len(&self, draft: &Draft) -> usize {
        let more = |task: &Arc<str>, now: &Option<Assumption>| {
            isize::from(now.is_some()) - isize::from(self.by_task.contains_key(task))
        };
        let more: isize = draft.0.iter().map(|(task, now)| more(task, now)).sum();
        self.by_task.len().saturating_add_signed(more)
    }

    /// Lets time pass, and ends what is over. `heard`: sources whose leases run. True if that changed the View.
    pub(super) fn pass(&mut self, now: Duration, heard: BTreeSet<Arc<str>>, view: &mut View) -> bool {
        let began = *self.began.get_or_insert(now);
        let mut over = Vec::new();
        if now.saturating_sub(began) >= WAITS {
            let unheard = self.waiting.iter().filter(|(source, _)| !heard.contains(*source));
            over.extend(unheard.flat_map(|(_, tasks)| tasks.iter().cloned()));
            if !over.is_empty() {
                tracing::warn!(
                    assumptions = over.len(),
                    "committed placements end: their sources did not come back"
                );
            }
        }
        self.leases.pass(now, heard);
        over.extend(self.leases.over());
        let mut changed = false;
        for task in &over {
            if let Some(own) = self.forget(task) {
                changed |= withdraw(own, view);
            }
        }
        changed
    }

    /// Puts a task's record, as its source now tells of it. One that shows neither a node nor an end does not end the
    /// assumption.
    pub(super) fn put(&mut self, record: TaskRecord, source: &Arc<str>, view: &mut View) {
        let (name, uid) = (Arc::clone(&record.name), record.uid.clone());
        let stays = self.by_task.get(&name).is_some_and(|own| own.stays(&record));
        view.put_task(record, source);
        if !stays {
            self.forget(&name);
            return;
        }
        let Some(own) = self.by_task.get_mut(&name) else { return };
        own.told = view.assume(&name, &own.kept.node, &own.kept.card);
        let told_by = Arc::clone(&own.kept.source);
        if *told_by != **source || own.kept.uid.is_empty() && !uid.is_empty() {
            own.kept = Arc::new(StoredAssumption {
                uid,
                source: Arc::clone(source),
                ..StoredAssumption::clone(&own.kept)
            });
            self.dirty.insert(Arc::clone(&name));
        }
        if *told_by != **source {
            self.leases.start(&name, source, self.lease);
        }
        self.waits_no_more(&told_by, &name);
    }

    /// The task is gone: so is its assumption.
    pub(super) fn gone(&mut self, task: &str) {
        self.forget(task);
    }

    /// A source deletes a task that it has not told since the server started.
    pub(super) fn gone_untold(&mut self, source: &str, task: &str) {
        if self.waiting.get(source).is_some_and(|tasks| tasks.contains(task)) {
            self.forget(task);
        }
    }

    /// Does anything of an earlier process wait for tasks of this source?
    pub(super) fn wait_for(&self, source: &str) -> bool {
        self.waiting.get(source).is_some_and(|tasks| !tasks.is_empty())
    }

    /// A source has told of all its tasks: what still waits for one that is not `among` them ends.
    pub(super) fn gone_but(&mut self, source: &str, among: impl Fn(&str) -> bool) {
        let waiting = self.waiting.get(source).into_iter().flatten();
        let gone: Vec<Arc<str>> = waiting.filter(|task| !among(task)).cloned().collect();
        for task in gone {
            self.forget(&task);
        }
    }

    /// Drafts a placement that `view` shows already. `told`: the record as its source has it.
    pub(super) fn make(draft: &mut Draft, told: TaskRecord, view: &View, session: &Arc<str>) {
        let Some(stored) = view.tasks().get(&told.name) else {
            return;
        };
        let kept = StoredAssumption {
            task: Arc::clone(&told.name),
            uid: told.uid.clone(),
            node: Arc::clone(&stored.record.node),
            card: Arc::clone(&stored.record.card),
            session: Arc::clone(session),
            source: Arc::clone(&stored.source),
        };
        let assumption = Assumption {
            kept: Arc::new(kept),
            told: Some(told),
        };
        draft.0.insert(Arc::clone(&assumption.kept.task), Some(assumption));
    }

    /// Drafts the end of assumptions that were made by this session's commit (empty: by any): of these tasks, or (none
    /// named) of all of them. Answers which.
    pub(super) fn release(
        &self,
        draft: &mut Draft,
        session: &str,
        tasks: &[Arc<str>],
        view: &mut View,
    ) -> Vec<Arc<str>> {
        let named: BTreeSet<Arc<str>> = if tasks.is_empty() {
            let drafted = draft.0.keys();
            let known = self.by_session.get(session).into_iter().flatten();
            known.chain(drafted).cloned().collect()
        } else {
            tasks.iter().cloned().collect()
        };
        let own = |draft: &Draft, task: &Arc<str>| {
            let own = self.get(draft, task);
            own.is_some_and(|own| session.is_empty() || *own.kept.session == *session)
        };
        let mut released = Vec::new();
        for task in named {
            if own(draft, &task) {
                self.end(draft, &task, view);
                released.push(task);
            }
        }
        released
    }

    /// Drafts the end of the assumption that a task is on this node, if there is one.
    pub(super) fn release_from(&self, draft: &mut Draft, task: &Arc<str>, node: &str, view: &mut View) -> bool {
        let there = self.get(draft, task).is_some_and(|own| *own.kept.node == *node);
        if there {
            self.end(draft, task, view);
        }
        there
    }

    /// What is to be written, so that the store holds what is true with the draft.
    pub(super) fn writes(&self, draft: &Draft) -> Vec<Write> {
        let tasks: BTreeSet<&Arc<str>> = self.dirty.iter().chain(draft.0.keys()).collect();
        let write = |task: &Arc<str>| Write::Task {
            task: Arc::clone(task),
            assumption: self.get(draft, task).map(|own| Arc::clone(&own.kept)),
        };
        tasks.into_iter().map(write).collect()
    }

    /// The draft is written, and with it what was owed.
    pub(super) fn settle(&mut self, draft: Draft) {
        for (task, now) in draft.0 {
            self.forget(&task);
            if let Some(now) = now {
                self.insert(now);
            }
        }
        self.dirty.clear();
    }

    /// The draft could not be written: what may be there of it all the same is owed.
    pub(super) fn drop_draft(&mut self, draft: Draft) {
        self.dirty.extend(draft.0.into_keys());
    }

    /// True if the store may hold something that is not true.
    pub(super) fn owe(&self) -> bool {
        !self.dirty.is_empty()
    }

    fn get<'a>(&'a self, draft: &'a Draft, task: &str) -> Option<&'a Assumption> {
        match draft.0.get(task) {
            Some(now) => now.as_ref(),
            None => self.by_task.get(task),
        }
    }

    /// The task is again what its source tells.
    fn end(&self, draft: &mut Draft, task: &Arc<str>, view: &mut View) {
        let own = self.get(draft, task).cloned();
        draft.0.insert(Arc::clone(task), None);
        if let Some(own) = own {
            withdraw(own, view);
        }
    }

    fn insert(&mut self, own: Assumption) {
        let kept = &own.kept;
        self.leases.start(&kept.task, &kept.source, self.lease);
        self.by_session
            .entry(Arc::clone(&kept.session))
            .or_default()
            .insert(Arc::clone(&kept.task));
        self.by_task.insert(Arc::clone(&kept.task), own);
    }

    /// There is none of this task any more. The store is told with the next write.
    fn forget(&mut self, task: &str) -> Option<Assumption> {
        let own = self.by_task.remove(task)?;
        let kept = &own.kept;
        self.leases.stop(&kept.task);
        take_from(&mut self.by_session, &kept.session, task);
        self.waits_no_more(&kept.source, task);
        self.dirty.insert(Arc::clone(&kept.task));
        Some(own)
    }

    fn waits_no_more(&mut self, source: &str, task: &str) {
        take_from(&mut self.waiting, source, task);
    }
}

/// Takes a name out of a set, and the set out of its map when that was the last.
fn take_from(sets: &mut BTreeMap<Arc<str>, BTreeSet<Arc<str>>>, of: &str, name: &str) {
    if let Some(set) = sets.get_mut(of) {
        set.remove(name);
        if set.is_empty() {
            sets.remove(of);
        }
    }
}

/// The View shows the task again as its source tells of it. False if it tells of none.
fn withdraw(own: Assumption, view: &mut View) -> bool {
    let Some(told) = own.told else { return false };
    let task = Arc::clone(&told.name);
    let Some(stored) = view.tasks().get(&task).cloned() else {
        return false;
    };
    view.put_task(told, &stored.source);
    if stored.invalid().is_some() {
        view.set_invalid(Kind::Task, &task, stored.invalid().cloned());
    }
    true
}

impl Assumption {
    /// True if a record that the source sends does not end it.
    fn stays(&self, record: &TaskRecord) -> bool {
        let over = matches!(record.status, TaskStatus::Succeeded | TaskStatus::Failed);
        self.kept.uid.may_be(&record.uid) && record.node.is_empty() && !over
    }
}
