//! Relations between records of different batches: a changed priority class gives its jobs and tasks another priority, and
//! changed policies of a job give its tasks other groups.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::intake::batch::{BatchRecord, RecordLocation};
use crate::writer::Writer;
use pumice_engine::model::{ClusterState, RecordKind};

/// Records of a batch that others depend on.
#[derive(Debug, Default)]
pub(crate) struct RelationChanges {
    /// True if a priority class came, changed or went.
    classes: bool,
    /// Jobs that find, or found, the groups of their tasks.
    jobs: BTreeSet<Arc<str>>,
}

impl RelationChanges {
    /// Changes with known classes and unknown details.
    pub(crate) fn of_classes() -> Self {
        Self {
            classes: true,
            jobs: BTreeSet::new(),
        }
    }

    /// Notes a record that is put.
    pub(crate) fn note_put(&mut self, record: &BatchRecord, cluster_state: &ClusterState) {
        match record {
            BatchRecord::PriorityClass(_) => self.classes = true,
            BatchRecord::Job(job) if job.finds_groups() => {
                self.jobs.insert(Arc::clone(&job.name));
            }
            BatchRecord::Job(job) => self.note_removed(RecordKind::Job, &job.name, cluster_state),
            BatchRecord::Node(_) | BatchRecord::Queue(_) | BatchRecord::Task(_) | BatchRecord::Namespace(_) => {}
        }
    }

    /// Notes a record that is removed, or replaced by one without relations.
    pub(crate) fn note_removed(&mut self, kind: RecordKind, name: &Arc<str>, cluster_state: &ClusterState) {
        let found_groups = |name: &str| {
            cluster_state
                .jobs()
                .get(name)
                .is_some_and(|job| job.record.finds_groups())
        };
        match kind {
            RecordKind::PriorityClass => self.classes = true,
            RecordKind::Job if found_groups(name) => {
                self.jobs.insert(Arc::clone(name));
            }
            RecordKind::Job | RecordKind::Node | RecordKind::Queue | RecordKind::Task | RecordKind::Namespace => {}
        }
    }
}

impl Writer {
    /// Puts the records of a source again that the changes made outdated.
    pub(super) fn renew_related(&mut self, changes: &RelationChanges) {
        if changes.classes {
            for name in self.next.state.outdated_jobs() {
                let Some(stored) = self.next.state.jobs().get(&name).cloned() else {
                    continue;
                };
                self.renew(BatchRecord::Job(stored.record.clone()), &stored.source);
            }
        }
        if !changes.classes && changes.jobs.is_empty() {
            return;
        }
        for name in self.next.state.outdated_tasks(&changes.jobs) {
            let Some(stored) = self.next.state.tasks().get(&name).cloned() else {
                continue;
            };
            // An assumed task enters as its source reported it: its assumption goes on.
            let reported = self.arbiter.assumptions.reported_task(&name);
            let record = reported.unwrap_or(&stored.record).clone();
            self.renew(BatchRecord::Task(record), &stored.source);
        }
    }

    /// Puts a record again. Its mark stays, because its source did not send it.
    fn renew(&mut self, record: BatchRecord, source: &Arc<str>) {
        let (kind, name) = record.key();
        let (kind, name) = (kind, Arc::clone(name));
        let state = &self.next.state;
        let invalid = match kind {
            RecordKind::Job => state.jobs().get(&name).and_then(|stored| stored.invalid().cloned()),
            RecordKind::Task => state.tasks().get(&name).and_then(|stored| stored.invalid().cloned()),
            RecordKind::Node | RecordKind::Queue | RecordKind::Namespace | RecordKind::PriorityClass => None,
        };
        // There is room: only a number or the name of a group changes.
        drop(self.put_if_possible(record, RecordLocation::default(), source));
        if invalid.is_some() {
            self.next.state.set_invalid(kind, &name, invalid);
        }
    }
}
