//! Single records of the next cluster state: put and removed together with what the writer knows about them.

use std::sync::Arc;

use super::Writer;
use crate::intake::batch::BatchRecord;
use crate::intake::record_bytes::stored_bytes;
use pumice_engine::model::{JobRecord, RecordKind};

impl Writer {
    pub(crate) fn put_record(&mut self, record: BatchRecord, source: &Arc<str>, is_new: bool) {
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

    /// Tells the ledger about a changed job, since a reservation ends with its job.
    fn job_changed(&mut self, name: &str, before: Option<&JobRecord>) {
        let after = self.next.state.jobs().get(name).cloned();
        let after = after.as_ref().map(|after| &after.record);
        self.ledger.job_changed(&mut self.next.state, before, after);
    }

    pub(crate) fn remove_record(&mut self, kind: RecordKind, name: &str) {
        if let Some(owner) = self.next.state.source_of(kind, name) {
            let bytes = stored_bytes(&self.next.state, kind, name);
            self.source_bytes.remove(owner, bytes);
        }
        let job = match kind {
            RecordKind::Job => self.next.state.jobs().get(name).cloned(),
            RecordKind::Node
            | RecordKind::Queue
            | RecordKind::Task
            | RecordKind::Namespace
            | RecordKind::PriorityClass => None,
        };
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
}
