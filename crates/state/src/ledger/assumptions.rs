//! Assumptions: committed placements. An assumption ends when its source reports the task as placed or ended, when a
//! caller releases it, or when its lease ends. For example, with the default lease of five minutes a bind that never
//! happens frees the node after five minutes.
//!
//! The store holds assumptions because sources do not send them again. After a restart each assumption waits for the
//! batch that reports its task, and takes effect then.
//!
//! Commits and releases are drafted ([`AssumptionDraft`]) and take effect once they are written. Records of sources and
//! expired leases take effect at once, and the next write brings the store up to date. If the process dies before that
//! write, the surplus assumption ends when its task is reported again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::ledger::LeaseTable;
use crate::limits::StateLimits;
use crate::store::{StoreWrite, StoredAssumption, StoredState};
use pumice_engine::cycle::TaskPlacement;
use pumice_engine::model::{ClusterState, RecordKind, TaskRecord, TaskStatus};

/// Longest wait of a restored assumption for a source that is silent.
///
/// Leases pause while a source is silent, so a source that was renamed would keep its assumptions forever.
const RESTORED_MAX_WAIT: Duration = Duration::from_hours(24);

/// One assumption: a committed placement and the task's own record.
#[derive(Clone, Debug)]
struct AssumedPlacement {
    /// Durable part: the placement.
    stored: Arc<StoredAssumption>,
    /// Task as its source reports it; `None`: not reported since the server started.
    reported: Option<TaskRecord>,
    /// Lease: maximum time of the assumption without an event that ends it.
    lease: Duration,
    /// True if another server has received the outcome of the placement and has removed the assumption from the log,
    /// and this server has not received it.
    ended_elsewhere: bool,
}

/// All assumptions. The cluster state shows their effect.
#[derive(Debug)]
pub(crate) struct AssumedPlacements {
    lease: Duration,
    by_task: BTreeMap<Arc<str>, AssumedPlacement>,
    by_session: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// Leases by task.
    leases: LeaseTable,
    /// Tasks that have not been reported since the server started, by source.
    unreported: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// Time at which the server first read the clock.
    started: Option<Duration>,
    /// Tasks whose assumption in the store may differ from the one in memory; true: because a source showed what became of it.
    dirty: BTreeMap<Arc<str>, bool>,
}

/// Changes to assumptions that are not written yet, by task; `None`: the assumption ends.
#[derive(Debug, Default)]
pub(crate) struct AssumptionDraft(BTreeMap<Arc<str>, Option<AssumedPlacement>>);

impl AssumptionDraft {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl AssumedPlacements {
    /// Restores the stored assumptions, each with a full lease.
    pub(crate) fn open(limits: &StateLimits, stored_state: &StoredState) -> Self {
        let mut own = Self {
            lease: limits.assumption_lease,
            by_task: BTreeMap::new(),
            by_session: BTreeMap::new(),
            leases: LeaseTable::default(),
            unreported: BTreeMap::new(),
            started: None,
            dirty: BTreeMap::new(),
        };
        for stored in &stored_state.assumptions {
            own.unreported
                .entry(Arc::clone(&stored.source))
                .or_default()
                .insert(Arc::clone(&stored.task));
            let restored = AssumedPlacement {
                stored: Arc::clone(stored),
                reported: None,
                lease: limits.assumption_lease,
                ended_elsewhere: false,
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

    /// Assumed tasks as their sources reported them.
    pub(crate) fn reported_tasks(&self) -> impl Iterator<Item = &TaskRecord> {
        self.by_task.values().filter_map(|assumed| assumed.reported.as_ref())
    }

    /// Assumed task as its source reported it; `None`: the task is not assumed, or was not reported.
    pub(crate) fn reported_task(&self, task: &str) -> Option<&TaskRecord> {
        self.by_task.get(task)?.reported.as_ref()
    }

    /// Number of assumptions once the draft is applied.
    pub(crate) fn len_with(&self, draft: &AssumptionDraft) -> usize {
        let more = |task: &Arc<str>, now: &Option<AssumedPlacement>| {
            isize::from(now.is_some()) - isize::from(self.by_task.contains_key(task))
        };
        let more: isize = draft.0.iter().map(|(task, now)| more(task, now)).sum();
        self.by_task.len().saturating_add_signed(more)
    }

    /// Advances the clock and ends expired assumptions. True if that changed the cluster state.
    ///
    /// `heard`: sources whose leases run.
    pub(crate) fn advance_clock(
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
                    "committed placements have ended: their sources did not come back"
                );
            }
        }
        self.leases.advance_clock(now, heard);
        over.extend(self.leases.expired());
        let mut changed = false;
        for task in &over {
            if let Some(own) = self.forget(task, false) {
                changed |= restore_reported(own, cluster_state);
            }
        }
        changed
    }

    /// Puts a task's record, as its source now reports it. A record with neither a node nor an end does not end the
    /// assumption.
    pub(crate) fn put_task(&mut self, record: TaskRecord, source: &Arc<str>, cluster_state: &mut ClusterState) {
        let (name, uid) = (Arc::clone(&record.name), record.uid.clone());
        let stays = self.by_task.get(&name).is_some_and(|own| own.survives(&record));
        let mut record = record;
        let own = self
            .by_task
            .get(&name)
            .filter(|_| !stays && record.assigned_devices() == 0);
        if let Some(own) = own.filter(|own| record.status.is_on_node() && own.stored.node == record.node) {
            // Most sources do not say which devices a task has.
            record.assign_devices(own.stored.devices);
        }
        cluster_state.put_task(record, source);
        if !stays {
            self.forget(&name, true);
            return;
        }
        let Some(own) = self.by_task.get_mut(&name) else { return };
        own.reported = cluster_state.assume(&name, &own.stored.node, &own.stored.card, own.stored.devices);
        let reporter = Arc::clone(&own.stored.source);
        if *reporter != **source || own.stored.uid.is_empty() && !uid.is_empty() {
            own.stored = Arc::new(StoredAssumption {
                uid,
                source: Arc::clone(source),
                ..StoredAssumption::clone(&own.stored)
            });
            if !own.ended_elsewhere {
                self.dirty.insert(Arc::clone(&name), false);
            }
        }
        if *reporter != **source {
            self.leases.start(&name, source, own.lease);
        }
        self.stop_waiting(&reporter, &name);
    }

    /// Ends the assumption of a task that was removed.
    pub(crate) fn task_removed(&mut self, task: &str) {
        self.forget(task, true);
    }

    /// Ends the assumption of a task that its source deletes without having reported it since the server started.
    pub(crate) fn unreported_task_removed(&mut self, source: &str, task: &str) {
        if self.unreported.get(source).is_some_and(|tasks| tasks.contains(task)) {
            self.forget(task, true);
        }
    }

    /// True if restored assumptions wait for tasks of this source.
    pub(crate) fn awaits_source(&self, source: &str) -> bool {
        self.unreported.get(source).is_some_and(|tasks| !tasks.is_empty())
    }

    /// Ends the restored assumptions of a source that has reported all its tasks, except assumptions of tasks for which
    /// `among` returns true.
    pub(crate) fn retain_reported(&mut self, source: &str, among: impl Fn(&str) -> bool) {
        let waiting = self.unreported.get(source).into_iter().flatten();
        let gone: Vec<Arc<str>> = waiting.filter(|task| !among(task)).cloned().collect();
        for task in gone {
            self.forget(&task, true);
        }
    }

    /// Drafts a placement that `cluster_state` shows already. `reported`: the record as its source has it. No lease: the
    /// usual one.
    pub(crate) fn draft_placement(
        &self,
        draft: &mut AssumptionDraft,
        reported: TaskRecord,
        cluster_state: &ClusterState,
        (session, lease): (&Arc<str>, Option<Duration>),
    ) {
        let Some(stored) = cluster_state.tasks().get(&reported.name) else {
            return;
        };
        let assumed = StoredAssumption {
            task: Arc::clone(&reported.name),
            uid: reported.uid.clone(),
            node: Arc::clone(&stored.record.node),
            card: Arc::clone(&stored.record.card),
            devices: stored.record.assigned_devices(),
            session: Arc::clone(session),
            source: Arc::clone(&stored.source),
        };
        let assumption = AssumedPlacement {
            stored: Arc::new(assumed),
            reported: Some(reported),
            lease: lease.unwrap_or(self.lease),
            ended_elsewhere: false,
        };
        draft.0.insert(Arc::clone(&assumption.stored.task), Some(assumption));
    }

    /// Placements that are held under a name, by task.
    pub(crate) fn held_under(&self, draft: &AssumptionDraft, session: &str) -> Vec<TaskPlacement> {
        let known = self.by_session.get(session).into_iter().flatten();
        let tasks: BTreeSet<&Arc<str>> = known.chain(draft.0.keys()).collect();
        let own = |task: &Arc<str>| {
            let stored = &self.get(draft, task)?.stored;
            (*stored.session == *session).then(|| TaskPlacement {
                task: Arc::clone(&stored.task),
                node: Arc::clone(&stored.node),
                card: Arc::clone(&stored.card),
                devices: stored.devices,
            })
        };
        tasks.into_iter().filter_map(own).collect()
    }

    /// Drafts the end of assumptions that this session's commit made (empty: any commit): of the named tasks, or of all
    /// if none is named. Returns the tasks whose assumption ends.
    pub(crate) fn draft_release(
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

    /// Drafts the end of a session's earlier placements: the whole commit is then evaluated again. Returns the tasks
    /// whose assumption ends.
    pub(crate) fn draft_repeat(
        &self,
        draft: &mut AssumptionDraft,
        session: &str,
        cluster_state: &mut ClusterState,
    ) -> Vec<Arc<str>> {
        if !self.by_session.contains_key(session) {
            return Vec::new();
        }
        self.draft_release(draft, session, &[], cluster_state)
    }

    /// Drafts the end of a task's assumption if it is on this node. True if there was one.
    pub(crate) fn draft_release_from(
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

    /// Writes that make the store hold the assumptions as they are with the draft applied.
    pub(crate) fn writes(&self, draft: &AssumptionDraft) -> Vec<StoreWrite> {
        let tasks: BTreeSet<&Arc<str>> = self.dirty.keys().chain(draft.0.keys()).collect();
        let write = |task: &Arc<str>| StoreWrite::Task {
            task: Arc::clone(task),
            assumption: self
                .get(draft, task)
                .filter(|own| !own.ended_elsewhere)
                .map(|own| Arc::clone(&own.stored)),
            is_reported: !draft.0.contains_key(task) && self.dirty.get(task).is_some_and(|is_reported| *is_reported),
        };
        tasks.into_iter().map(write).collect()
    }

    /// Applies a draft that was written. The same write has made all pending repairs.
    pub(crate) fn apply_draft(&mut self, draft: AssumptionDraft) {
        for (task, now) in draft.0 {
            self.forget(&task, false);
            if let Some(now) = now {
                self.insert(now);
            }
        }
        self.dirty.clear();
    }

    /// Drops a draft whose write failed. The store may hold it all the same, so its tasks wait for a repair.
    pub(crate) fn fail_draft(&mut self, draft: AssumptionDraft) {
        self.dirty.extend(draft.0.into_keys().map(|task| (task, false)));
    }

    /// True if the store may differ from memory.
    pub(crate) fn needs_repair(&self) -> bool {
        !self.dirty.is_empty()
    }

    fn get<'a>(&'a self, draft: &'a AssumptionDraft, task: &str) -> Option<&'a AssumedPlacement> {
        match draft.0.get(task) {
            Some(now) => now.as_ref(),
            None => self.by_task.get(task),
        }
    }

    /// Drafts the end of an assumption: the task is again as its source reports it.
    fn draft_end(&self, draft: &mut AssumptionDraft, task: &Arc<str>, cluster_state: &mut ClusterState) {
        let own = self.get(draft, task).cloned();
        draft.0.insert(Arc::clone(task), None);
        if let Some(own) = own {
            restore_reported(own, cluster_state);
        }
    }

    fn insert(&mut self, own: AssumedPlacement) {
        let stored = &own.stored;
        self.leases.start(&stored.task, &stored.source, own.lease);
        self.by_session
            .entry(Arc::clone(&stored.session))
            .or_default()
            .insert(Arc::clone(&stored.task));
        self.by_task.insert(Arc::clone(&stored.task), own);
    }

    /// Removes the assumption of a task. The next write removes it from the store. `is_reported`: a source showed what became
    /// of it.
    fn forget(&mut self, task: &str, is_reported: bool) -> Option<AssumedPlacement> {
        let own = self.by_task.remove(task)?;
        let stored = &own.stored;
        self.leases.stop(&stored.task);
        remove_from_set(&mut self.by_session, &stored.session, task);
        self.stop_waiting(&stored.source, task);
        if !own.ended_elsewhere {
            self.dirty.insert(Arc::clone(&stored.task), is_reported);
        }
        Some(own)
    }

    /// Records that the log no longer has the assumption, although it still takes effect here.
    pub(super) fn mark_ended_elsewhere(&mut self, task: &str) {
        self.dirty.remove(task);
        if let Some(own) = self.by_task.get_mut(task) {
            own.ended_elsewhere = true;
        }
    }

    /// Ends an assumption that the log does not name any more: the task is again as its source reports it.
    pub(super) fn end(&mut self, task: &str, cluster_state: &mut ClusterState) {
        if let Some(own) = self.forget(task, false) {
            restore_reported(own, cluster_state);
        }
        self.dirty.remove(task);
    }

    /// Assumes a placement that another server committed.
    pub(super) fn assume_stored(&mut self, stored: &Arc<StoredAssumption>, cluster_state: &mut ClusterState) {
        let task = &stored.task;
        let own = AssumedPlacement {
            stored: Arc::clone(stored),
            reported: None,
            lease: self.lease,
            ended_elsewhere: false,
        };
        // A record of another incarnation may be older than the placement.
        let known = cluster_state.tasks().get(task).map(|known| &known.record);
        let known = known.filter(|record| own.stored.uid.may_equal(&record.uid));
        let is_waiting = known.is_none();
        if known.is_some_and(|record| !own.survives(record)) {
            self.dirty.insert(Arc::clone(task), true);
            return;
        }
        self.insert(own);
        if is_waiting {
            let waiting = self.unreported.entry(Arc::clone(&stored.source)).or_default();
            waiting.insert(Arc::clone(task));
            return;
        }
        let reported = cluster_state.assume(task, &stored.node, &stored.card, stored.devices);
        if let Some(own) = self.by_task.get_mut(task) {
            own.reported = reported;
        }
    }

    /// Tasks that are assumed.
    pub(super) fn tasks(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_task.keys()
    }

    fn stop_waiting(&mut self, source: &str, task: &str) {
        remove_from_set(&mut self.unreported, source, task);
    }
}

/// Removes a name from its set, and an empty set from its map.
fn remove_from_set(sets: &mut BTreeMap<Arc<str>, BTreeSet<Arc<str>>>, of: &str, name: &str) {
    if let Some(set) = sets.get_mut(of) {
        set.remove(name);
        if set.is_empty() {
            sets.remove(of);
        }
    }
}

/// Makes the cluster state show the task as its source reports it. False if no source has reported it.
fn restore_reported(own: AssumedPlacement, cluster_state: &mut ClusterState) -> bool {
    own.reported
        .is_some_and(|reported| restore_task(reported, cluster_state))
}

/// Restores the record of a task as it was before its placement. Whether it is marked as invalid stays as it is now. False if the
/// task is gone.
pub(crate) fn restore_task(before: TaskRecord, cluster_state: &mut ClusterState) -> bool {
    let task = Arc::clone(&before.name);
    let Some(stored) = cluster_state.tasks().get(&task).cloned() else {
        return false;
    };
    cluster_state.put_task(before, &stored.source);
    if stored.invalid().is_some() {
        cluster_state.set_invalid(RecordKind::Task, &task, stored.invalid().cloned());
    }
    true
}

impl AssumedPlacement {
    /// True if this record of the source leaves the assumption in force.
    fn survives(&self, record: &TaskRecord) -> bool {
        let over = matches!(record.status, TaskStatus::Succeeded | TaskStatus::Failed);
        self.stored.uid.may_equal(&record.uid) && record.node.is_empty() && !over
    }
}
