//! Single records of the next cluster state: put and removed together with the writer's own data about them.

use std::sync::Arc;

use super::Writer;
use crate::intake::batch::{BatchRecord, RecordLocation};
use crate::intake::outcome_problems::{foreign_record, too_many_bytes, too_many_records};
use crate::intake::record_bytes::{record_bytes, stored_bytes};
use pumice_engine::model::{JobRecord, Problem, RecordKind};

impl Writer {
    /// Puts a record, unless another source owns it or the limit of records is reached.
    pub(super) fn put_if_possible(
        &mut self,
        mut record: BatchRecord,
        place: RecordLocation,
        source: &Arc<str>,
    ) -> Option<Problem> {
        let (kind, name) = record.key();
        let known = self.next.state.source_of(kind, name);
        match known {
            Some(owner) if owner != source => return Some(foreign_record(name, owner, &place.field_path(kind))),
            None if self.record_count() >= self.sources.max_records() => {
                return Some(too_many_records(self.sources.max_records(), &place.field_path(kind)));
            }
            Some(_) | None => {}
        }
        let is_new = known.is_none();
        match &mut record {
            BatchRecord::Job(job) => self.next.state.relate_job(job),
            BatchRecord::Task(task) => self.next.state.relate_task(task),
            BatchRecord::Node(_)
            | BatchRecord::Queue(_)
            | BatchRecord::Namespace(_)
            | BatchRecord::PriorityClass(_) => {}
        }
        let (kind, name) = record.key();
        let before = if is_new {
            0
        } else {
            stored_bytes(&self.next.state, kind, name)
        };
        let limits = self.sources.limits();
        if let Err(limit) = self.source_bytes.replace(source, before, record_bytes(&record), limits) {
            let problem = too_many_bytes(limit, source, &place.field_path(kind));
            if !is_new {
                // The last good record goes on counting.
                let problems = vec![problem.clone()].into();
                self.next.state.set_invalid(kind, name, Some(problems));
            }
            return Some(problem);
        }
        self.put_record(record, source, is_new);
        None
    }

    fn put_record(&mut self, record: BatchRecord, source: &Arc<str>, is_new: bool) {
        match record {
            BatchRecord::Node(record) => {
                let record = self.interner.intern_node(record, &self.next.state);
                self.node_table.assign_slot(&record.name);
                self.unreadable.recheck_node(&record.name);
                self.next.state.put_node(record, source);
            }
            BatchRecord::Queue(record) => self.next.state.put_queue(record, source),
            BatchRecord::Namespace(record) => self.next.state.put_namespace(record, source),
            BatchRecord::PriorityClass(record) => self.next.state.put_priority_class(record, source),
            BatchRecord::Job(mut record) => {
                self.interner.intern_job(&mut record);
                let (before, name) = (
                    self.next.state.jobs().get(&record.name).cloned(),
                    Arc::clone(&record.name),
                );
                self.next.state.put_job(record, source);
                self.job_changed(&name, before.as_ref().map(|before| &before.record));
            }
            BatchRecord::Task(mut record) => {
                self.interner.intern_task(&mut record, is_new);
                self.unreadable.forget(&record.name);
                self.arbiter.assumptions.put_task(record, source, &mut self.next.state);
            }
        }
    }

    /// Passes a changed job to the ledger, because a reservation ends with its job.
    fn job_changed(&mut self, name: &str, before: Option<&JobRecord>) {
        let after = self.next.state.jobs().get(name).cloned();
        let after = after.as_ref().map(|after| &after.record);
        self.ledger.job_changed(&mut self.next.state, before, after);
    }

    pub(super) fn remove_record(&mut self, kind: RecordKind, name: &str) {
        if let Some(owner) = self.next.state.source_of(kind, name) {
            let bytes = stored_bytes(&self.next.state, kind, name);
            self.source_bytes.remove(owner, bytes);
        }
        let jobs = (kind == RecordKind::Job).then(|| self.next.state.jobs());
        let job = jobs.and_then(|jobs| jobs.get(name)).cloned();
        match kind {
            RecordKind::Node => self.next.state.remove_node(name),
            RecordKind::Queue => self.next.state.remove_queue(name),
            RecordKind::Namespace => self.next.state.remove_namespace(name),
            RecordKind::Job => self.next.state.remove_job(name),
            RecordKind::PriorityClass => self.next.state.remove_priority_class(name),
            RecordKind::Task => {
                self.arbiter.assumptions.task_removed(name);
                self.next.state.remove_task(name)
            }
        };
        if let Some(job) = job {
            self.job_changed(name, Some(&job.record));
        }
    }

    pub(super) fn owns(&self, source: &Arc<str>, kind: RecordKind, name: &str) -> bool {
        self.next
            .state
            .source_of(kind, name)
            .is_some_and(|owner| owner == source)
    }

    /// Number of records of all kinds, including removed nodes until the node table is rebuilt.
    pub(super) fn record_count(&self) -> usize {
        let cluster_state = &self.next.state;
        cluster_state.slots() as usize
            + cluster_state.queues().len()
            + cluster_state.jobs().len()
            + cluster_state.tasks().len()
            + cluster_state.namespaces().len()
            + cluster_state.priority_classes().len()
            + self.unreadable.len()
    }
}
