//! Removal of the records of a source: of records that its full sync leaves out, or of all records when the source is
//! forgotten.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Writer;
use super::command::WriterCommand;
use super::relations::RelationChanges;
use crate::SharedState;
use crate::error::StateError;
use crate::intake::batch::{BatchRecord, RecordLocation, RejectedRecord};
use crate::intake::source_forgetting::{ForgetSource, ForgottenSource};
use pumice_engine::model::{ClusterState, RecordKind, Uid};

impl Writer {
    /// Forgets a source, as if it had removed all its records and had never existed.
    ///
    /// # Errors
    /// The source does not exist and has no reservations, or it has sent a batch within `source_stale`.
    pub(super) fn forget_source(&mut self, forget: &ForgetSource) -> Result<ForgottenSource, StateError> {
        let ForgetSource { source, force } = forget;
        if let Err(error) = self.sources.forget(source, *force) {
            let never_came_back = matches!(error, StateError::SourceUnknown { .. });
            if !never_came_back || !self.keeps_promises_to(source) {
                return Err(error);
            }
        }
        let reservations = self.next.state.reservations().len();
        let own = self.records_of(source);
        let records = own.len();
        for (kind, name) in own {
            self.remove_record(kind, &name);
        }
        self.renew_related(&RelationChanges::of_classes());
        self.arbiter.assumptions.retain_reported(source, |_| false);
        self.ledger.forget_source(&mut self.next.state, source);
        self.unreadable.forget_source(source);
        self.unreadable.mark_nodes(&mut self.next.state);
        Arc::make_mut(&mut self.next.positions).remove(source);
        self.show_dropped_labels();
        self.changed = true;
        Ok(ForgottenSource {
            revision: self.next.revision,
            records,
            reservations: reservations.saturating_sub(self.next.state.reservations().len()),
        })
    }

    /// True if jobs or tasks that the source reported, perhaps before a restart, have a reservation or an assumed placement.
    fn keeps_promises_to(&self, source: &str) -> bool {
        let mut reservations = self.next.state.reservations().iter();
        reservations.any(|(_, row)| *row.source == *source) || self.arbiter.assumptions.awaits_source(source)
    }

    /// Removes the records of a source that its full sync leaves out. Records that the source lists as unreadable stay.
    #[expect(
        clippy::disallowed_types,
        reason = "asked for names, never walked: no order can show"
    )]
    pub(super) fn remove_absent(
        &mut self,
        source: &Arc<str>,
        put: &[(BatchRecord, RecordLocation)],
        refused: &[RejectedRecord],
        related: &mut RelationChanges,
    ) {
        let own = all_records(&self.next.state);
        let mut own = own.filter(|(.., owner)| *owner == source).peekable();
        // Most snapshots are a source's first, and nobody waits for its tasks.
        if own.peek().is_none() && !self.arbiter.assumptions.awaits_source(source) {
            return;
        }
        let keys = put.iter().map(|(record, _)| record.key());
        let mut named: std::collections::HashSet<(RecordKind, &str)> =
            keys.map(|(kind, name)| (kind, &**name)).collect();
        named.extend(refused.iter().map(|rejected| (rejected.key.0, &*rejected.key.1)));
        let absent: Vec<(RecordKind, Arc<str>)> = own
            .filter(|(kind, name, _)| !named.contains(&(*kind, &***name)))
            .map(|(kind, name, _)| (kind, Arc::clone(name)))
            .collect();
        let is_reported = |task: &str| named.contains(&(RecordKind::Task, task));
        self.arbiter.assumptions.retain_reported(source, is_reported);
        for (kind, name) in absent {
            related.note_removed(kind, &name, &self.next.state);
            self.remove_record(kind, &name);
        }
    }

    /// Removes the records that a source names, if they are its own. Of a name with an incarnation, another one stays.
    pub(super) fn remove_named(
        &mut self,
        source: &Arc<str>,
        names: Vec<(RecordKind, Arc<str>)>,
        uids: &BTreeMap<(RecordKind, Arc<str>), Uid>,
        related: &mut RelationChanges,
    ) {
        for key in names {
            if uids.get(&key).is_some_and(|uid| !self.is_incarnation(&key, uid)) {
                continue;
            }
            let (kind, name) = key;
            related.note_removed(kind, &name, &self.next.state);
            if kind == RecordKind::Task {
                self.unreadable.forget_own(source, &name);
            }
            if self.owns(source, kind, &name) {
                self.remove_record(kind, &name);
            } else if kind == RecordKind::Task {
                self.arbiter.assumptions.unreported_task_removed(source, &name);
            }
        }
    }

    /// True if the stored record of a name may be of this incarnation.
    fn is_incarnation(&self, (kind, name): &(RecordKind, Arc<str>), uid: &Uid) -> bool {
        let state = &self.next.state;
        let stored = match *kind {
            RecordKind::Node => state.node_by_name(name).map(|entry| (&*entry.record.uid).into()),
            RecordKind::Queue => state.queues().get(name).map(|stored| (&*stored.record.uid).into()),
            RecordKind::Job => state.jobs().get(name).map(|stored| (&*stored.record.uid).into()),
            RecordKind::Task => state.tasks().get(name).map(|stored| stored.record.uid.clone()),
            RecordKind::Namespace | RecordKind::PriorityClass => None,
        };
        stored.is_none_or(|stored: Uid| stored.may_equal(uid))
    }

    fn records_of(&self, source: &Arc<str>) -> Vec<(RecordKind, Arc<str>)> {
        let own = all_records(&self.next.state).filter(|(.., owner)| *owner == source);
        own.map(|(kind, name, _)| (kind, Arc::clone(name))).collect()
    }
}

/// Kind, name and source of each record.
fn all_records(state: &ClusterState) -> impl Iterator<Item = (RecordKind, &Arc<str>, &Arc<str>)> {
    let nodes = state.nodes();
    let queues = state.queues().iter();
    let jobs = state.jobs().iter();
    let tasks = state.tasks().iter();
    let namespaces = state.namespaces().iter();
    let classes = state.priority_classes().iter();
    (nodes.map(|(_, entry)| (RecordKind::Node, &entry.record.name, &entry.source)))
        .chain(queues.map(|(name, stored)| (RecordKind::Queue, name, &*stored.source)))
        .chain(jobs.map(|(name, stored)| (RecordKind::Job, name, &*stored.source)))
        .chain(tasks.map(|(name, stored)| (RecordKind::Task, name, &*stored.source)))
        .chain(namespaces.map(|(name, stored)| (RecordKind::Namespace, name, &*stored.source)))
        .chain(classes.map(|(name, stored)| (RecordKind::PriorityClass, name, &*stored.source)))
}

impl SharedState {
    /// Forgets a source. Returns when its records are removed from the newest snapshot, and its durable state from the
    /// store.
    ///
    /// # Errors
    /// The source does not exist, or it has sent a batch within `source_stale`.
    pub async fn forget_source(&self, forget: ForgetSource) -> Result<ForgottenSource, StateError> {
        self.ask(|reply| WriterCommand::Forget(Box::new(forget), reply)).await?
    }
}
