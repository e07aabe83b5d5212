//! Assumptions: committed placements that count until their source tells of them, someone releases them, or their lease
//! ends.
//!
//! The store keeps them, because nobody would send them again: after a restart each waits for its task and counts from the
//! batch on that tells of it. What commits and releases make of them is a [`AssumptionDraft`] until it is written; what a source
//! shows, and leases that end, hold at once, and the store learns of it later: what it has too much ends when its task is
//! told again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::ledger::LeaseTable;
use super::limits::StateLimits;
use crate::engine::model::{ClusterState, RecordKind, TaskRecord, TaskStatus};
use crate::store::{StoreWrite, StoredAssumption, StoredState};

/// How long what was restored waits for a source that is not heard: leases stand still meanwhile, and a source that has got
/// another name would never come.
const RESTORED_MAX_WAIT: Duration = Duration::from_hours(24);

/// One committed placement.
#[derive(Clone, Debug)]
struct AssumedPlacement {
    /// What is kept of it.
    stored: Arc<StoredAssumption>,
    /// The task as its source tells of it; `None`: it has not, since the server started.
    reported: Option<TaskRecord>,
}

/// All assumptions; the cluster state shows their effect.
#[derive(Debug)]
pub(super) struct AssumedPlacements {
    lease: Duration,
    by_task: BTreeMap<Arc<str>, AssumedPlacement>,
    by_session: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// Of tasks.
    leases: LeaseTable,
    /// Tasks that have not been told since the server started, by source.
    unreported: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// When the server first looked at the clock.
    started: Option<Duration>,
    /// Tasks of which the store may hold something else than is true.
    dirty: BTreeSet<Arc<str>>,
}

/// What commits and releases make of assumptions, before it is true: by task, `None`: no more.
#[derive(Debug, Default)]
pub(super) struct AssumptionDraft(BTreeMap<Arc<str>, Option<AssumedPlacement>>);

impl AssumptionDraft {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl AssumedPlacements {
    /// Those that are kept, each with a full lease.
    pub(super) fn open(limits: &StateLimits, kept: &StoredState) -> Self {
        let mut own = Self {
            lease: limits.assumption_lease,
            by_task: BTreeMap::new(),
            by_session: BTreeMap::new(),
            leases: LeaseTable::default(),
            unreported: BTreeMap::new(),
            started: None,
            dirty: BTreeSet::new(),
        };
        for kept in &kept.assumptions {
            own.unreported
                .entry(Arc::clone(&kept.source))
                .or_default()
                .insert(Arc::clone(&kept.task));
            let restored = AssumedPlacement {
                stored: Arc::clone(kept),
                reported: None,
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
    pub(super) fn len_with(&self, draft: &AssumptionDraft) -> usize {
        let more = |task: &Arc<str>, now: &Option<AssumedPlacement>| {
            isize::from(now.is_some()) - isize::from(self.by_task.contains_key(task))
        };
        let more: isize = draft.0.iter().map(|(task, now)| more(task, now)).sum();
        self.by_task.len().saturating_add_signed(more)
    }

    /// Lets time pass, and ends what is over. `heard`: sources whose leases run. True if that changed the cluster state.
    pub(super) fn advance_clock(
        &mut self,
        now: Duration,
        heard: BTreeSet<Arc<str>>,
        cluster_state: &mut ClusterState,
    ) -> bool {
        let began = *self.started.get_or_insert(now);
        let mut over = Vec::new();
        if now.saturating_sub(began) >= RESTORED_MAX_WAIT {
            let unheard = self.unreported.iter().filter(|(source, _)| !heard.contains(*source));
            over.extend(unheard.flat_map(|(_, tasks)| tasks.iter().cloned()));
            if !over.is_empty() {
                tracing::warn!(
                    assumptions = over.len(),
                    "committed placements end: their sources did not come back"
                );
            }
        }
        self.leases.advance_clock(now, heard);
        over.extend(self.leases.expired());
        let mut changed = false;
        for task in &over {
            if let Some(own) = self.forget(task) {
                changed |= restore_reported(own, cluster_state);
            }
        }
        changed
    }

    /// Puts a task's record, as its source now tells of it. One that shows neither a node nor an end does not end the
    /// assumption.
    pub(super) fn put_task(&mut self, record: TaskRecord, source: &Arc<str>, cluster_state: &mut ClusterState) {
        let (name, uid) = (Arc::clone(&record.name), record.uid.clone());
        let stays = self.by_task.get(&name).is_some_and(|own| own.survives(&record));
        cluster_state.put_task(record, source);
        if !stays {
            self.forget(&name);
            return;
        }
        let Some(own) = self.by_task.get_mut(&name) else { return };
        own.reported = cluster_state.assume(&name, &own.stored.node, &own.stored.card);
        let told_by = Arc::clone(&own.stored.source);
        if *told_by != **source || own.stored.uid.is_empty() && !uid.is_empty() {
            own.stored = Arc::new(StoredAssumption {
                uid,
                source: Arc::clone(source),
                ..StoredAssumption::clone(&own.stored)
            });
            self.dirty.insert(Arc::clone(&name));
        }
        if *told_by != **source {
            self.leases.start(&name, source, self.lease);
        }
        self.stop_waiting(&told_by, &name);
    }

    /// The task is gone: so is its assumption.
    pub(super) fn task_removed(&mut self, task: &str) {
        self.forget(task);
    }

    /// A source deletes a task that it has not told since the server started.
    pub(super) fn unreported_task_removed(&mut self, source: &str, task: &str) {
        if self.unreported.get(source).is_some_and(|tasks| tasks.contains(task)) {
            self.forget(task);
        }
    }

    /// Does anything of an earlier process wait for tasks of this source?
    pub(super) fn awaits_source(&self, source: &str) -> bool {
        self.unreported.get(source).is_some_and(|tasks| !tasks.is_empty())
    }

    /// A source has told of all its tasks: what still waits for one that is not `among` them ends.
    pub(super) fn retain_reported(&mut self, source: &str, among: impl Fn(&str) -> bool) {
        let waiting = self.unreported.get(source).into_iter().flatten();
        let gone: Vec<Arc<str>> = waiting.filter(|task| !among(task)).cloned().collect();
        for task in gone {
            self.forget(&task);
        }
    }

    /// Drafts a placement that `view` shows already. `told`: the record as its source has it.
    pub(super) fn draft_placement(
        draft: &mut AssumptionDraft,
        told: TaskRecord,
        cluster_state: &ClusterState,
        session: &Arc<str>,
    ) {
        let Some(stored) = cluster_state.tasks().get(&told.name) else {
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
        let assumption = AssumedPlacement {
            stored: Arc::new(kept),
            reported: Some(told),
        };
        draft.0.insert(Arc::clone(&assumption.stored.task), Some(assumption));
    }

    /// Drafts the end of assumptions that were made by this session's commit (empty: by any): of these tasks, or (none
    /// named) of all of them. Answers which.
    pub(super) fn draft_release(
        &self,
        draft: &mut AssumptionDraft,
        session: &str,
        tasks: &[Arc<str>],
        cluster_state: &mut ClusterState,
    ) -> Vec<Arc<str>> {
        let named: BTreeSet<Arc<str>> = if tasks.is_empty() {
            let drafted = draft.0.keys();
            let known = self.by_session.get(session).into_iter().flatten();
            known.chain(drafted).cloned().collect()
        } else {
            tasks.iter().cloned().collect()
        };
        let own = |draft: &AssumptionDraft, task: &Arc<str>| {
            let own = self.get(draft, task);
            own.is_some_and(|own| session.is_empty() || *own.stored.session == *session)
        };
        let mut released = Vec::new();
        for task in named {
            if own(draft, &task) {
                self.draft_end(draft, &task, cluster_state);
                released.push(task);
            }
        }
        released
    }

    /// Drafts the end of the assumption that a task is on this node, if there is one.
    pub(super) fn draft_release_from(
        &self,
        draft: &mut AssumptionDraft,
        task: &Arc<str>,
        node: &str,
        cluster_state: &mut ClusterState,
    ) -> bool {
        let there = self.get(draft, task).is_some_and(|own| *own.stored.node == *node);
        if there {
            self.draft_end(draft, task, cluster_state);
        }
        there
    }

    /// What is to be written, so that the store holds what is true with the draft.
    pub(super) fn writes(&self, draft: &AssumptionDraft) -> Vec<StoreWrite> {
        let tasks: BTreeSet<&Arc<str>> = self.dirty.iter().chain(draft.0.keys()).collect();
        let write = |task: &Arc<str>| StoreWrite::Task {
            task: Arc::clone(task),
            assumption: self.get(draft, task).map(|own| Arc::clone(&own.stored)),
        };
        tasks.into_iter().map(write).collect()
    }

    /// The draft is written, and with it what was owed.
    pub(super) fn apply_draft(&mut self, draft: AssumptionDraft) {
        for (task, now) in draft.0 {
            self.forget(&task);
            if let Some(now) = now {
                self.insert(now);
            }
        }
        self.dirty.clear();
    }

    /// The draft could not be written: what may be there of it all the same is owed.
    pub(super) fn fail_draft(&mut self, draft: AssumptionDraft) {
        self.dirty.extend(draft.0.into_keys());
    }

    /// True if the store may hold something that is not true.
    pub(super) fn needs_repair(&self) -> bool {
        !self.dirty.is_empty()
    }

    fn get<'a>(&'a self, draft: &'a AssumptionDraft, task: &str) -> Option<&'a AssumedPlacement> {
        match draft.0.get(task) {
            Some(now) => now.as_ref(),
            None => self.by_task.get(task),
        }
    }

    /// The task is again what its source tells.
    fn draft_end(&self, draft: &mut AssumptionDraft, task: &Arc<str>, cluster_state: &mut ClusterState) {
        let own = self.get(draft, task).cloned();
        draft.0.insert(Arc::clone(task), None);
        if let Some(own) = own {
            restore_reported(own, cluster_state);
        }
    }

    fn insert(&mut self, own: AssumedPlacement) {
        let kept = &own.stored;
        self.leases.start(&kept.task, &kept.source, self.lease);
        self.by_session
            .entry(Arc::clone(&kept.session))
            .or_default()
            .insert(Arc::clone(&kept.task));
        self.by_task.insert(Arc::clone(&kept.task), own);
    }

    /// There is none of this task any more. The store is told with the next write.
    fn forget(&mut self, task: &str) -> Option<AssumedPlacement> {
        let own = self.by_task.remove(task)?;
        let kept = &own.stored;
        self.leases.stop(&kept.task);
        remove_from_set(&mut self.by_session, &kept.session, task);
        self.stop_waiting(&kept.source, task);
        self.dirty.insert(Arc::clone(&kept.task));
        Some(own)
    }

    fn stop_waiting(&mut self, source: &str, task: &str) {
        remove_from_set(&mut self.unreported, source, task);
    }
}

/// Takes a name out of a set, and the set out of its map when that was the last.
fn remove_from_set(sets: &mut BTreeMap<Arc<str>, BTreeSet<Arc<str>>>, of: &str, name: &str) {
    if let Some(set) = sets.get_mut(of) {
        set.remove(name);
        if set.is_empty() {
            sets.remove(of);
        }
    }
}

/// The cluster state shows the task again as its source tells of it. False if it tells of none.
fn restore_reported(own: AssumedPlacement, cluster_state: &mut ClusterState) -> bool {
    let Some(told) = own.reported else { return false };
    let task = Arc::clone(&told.name);
    let Some(stored) = cluster_state.tasks().get(&task).cloned() else {
        return false;
    };
    cluster_state.put_task(told, &stored.source);
    if stored.invalid().is_some() {
        cluster_state.set_invalid(RecordKind::Task, &task, stored.invalid().cloned());
    }
    true
}

impl AssumedPlacement {
    /// True if a record that the source sends does not end it.
    fn survives(&self, record: &TaskRecord) -> bool {
        let over = matches!(record.status, TaskStatus::Succeeded | TaskStatus::Failed);
        self.stored.uid.may_equal(&record.uid) && record.node.is_empty() && !over
    }
}
