//! Forgetting of resource names that no record uses: by call, and by age once half of the places are taken.
//!
//! A name and its place are removed at once. The id is reused only when the old name is unreachable: no snapshot,
//! session, query or batch holds a table of an era in which the id had the old name.

use std::sync::Arc;

use super::Writer;
use super::command::{DurableCommand, WriterCommand};
use crate::SharedState;
use crate::error::StateError;
use crate::intake::batch::{Batch, BatchRecord};
use crate::intake::source_forgetting::ForgetSource;
use pumice_engine::Revision;
use pumice_engine::model::{ResourceAmounts, ResourceId};

/// Number of records that an error names.
const NAMED_USERS: usize = 3;

impl Writer {
    /// Forgets a resource name.
    ///
    /// # Errors
    /// The name is unknown, or records use it.
    pub(crate) fn forget_resource(&mut self, name: &Arc<str>) -> Result<Revision, StateError> {
        let Some(id) = self.names.current_table().get(name) else {
            return Err(StateError::ResourceUnknown { name: Arc::clone(name) });
        };
        let users = if id <= ResourceId::PODS {
            Some("every cluster".to_owned())
        } else {
            self.users_of(id)
        };
        if let Some(users) = users {
            return Err(StateError::ResourceInUse {
                name: Arc::clone(name),
                users,
            });
        }
        self.forget_names(vec![id]);
        Ok(self.next.revision)
    }

    /// Forgets sources that have been silent for long enough, and unused names if their places become scarce.
    pub(crate) fn forget_by_age(&mut self, durable: &mut Vec<DurableCommand>) {
        let now = self.clock.monotonic();
        for source in self.sources.give_up(now) {
            let waited = self.sources.limits().source_return.as_secs();
            tracing::warn!(
                source = &*source,
                waited,
                "source given up: it had synced before the start, and has not since"
            );
        }
        if !self.unused_names.begin_look(now) {
            return;
        }
        for source in self.sources.over_age(now) {
            let forget = ForgetSource { source, force: true };
            if let Ok(forgotten) = self.forget_source(&forget) {
                let (source, records) = (&*forget.source, forgotten.records);
                tracing::warn!(source, records, "source forgotten: it was silent for `source_age_ms`");
                durable.push(DurableCommand::ExpireLeases(None));
            }
        }
        self.free_ids();
        let limits = self.sources.limits();
        let age = limits.resource_name_age;
        let table = self.names.current_table();
        if table.name_count() <= limits.resource_names / 2 {
            self.unused_names.clear();
            return;
        }
        let used = self.used_ids(table.len());
        let names = table.names().map(|(id, _)| id).filter(|id| *id > ResourceId::PODS);
        let unused = names.filter(|id| !used.get(id.index()).copied().unwrap_or_default());
        let old = self.unused_names.take_old(unused, now, age);
        if !old.is_empty() {
            tracing::info!(names = old.len(), "unused resource names forgotten");
            self.forget_names(old);
        }
    }

    /// Checks that each id in a batch still has the name that it had when the batch was read.
    ///
    /// # Errors
    /// A name was forgotten meanwhile: the batch has to be read again.
    pub(crate) fn check_names(&self, batch: &Batch) -> Result<(), StateError> {
        let Some(read_with) = &batch.names else { return Ok(()) };
        let table = self.names.current_table();
        if read_with.is_of_same_era(&table) {
            return Ok(());
        }
        let mut same = true;
        for (record, _) in &batch.put {
            for_each_amounts(record, |amounts| {
                same &= amounts.iter().all(|(id, _)| read_with.name(id) == table.name(id));
            });
        }
        if same { Ok(()) } else { Err(StateError::NamesForgotten) }
    }

    fn forget_names(&mut self, ids: Vec<ResourceId>) {
        let era = self.names.change(|table| table.forget(ids.iter().copied()));
        self.unused_names.end_era(era, ids);
        self.next.state.set_resources(self.names.current_table());
        self.changed = true;
    }

    /// Frees the ids whose old names are unreachable.
    fn free_ids(&mut self) {
        let ids = self.unused_names.take_free();
        if !ids.is_empty() {
            self.names.change(|table| table.free(ids.iter().copied()));
        }
    }

    /// Sentence part that names records with an amount of this resource; `None`: there is none.
    fn users_of(&self, id: ResourceId) -> Option<String> {
        let (mut named, mut count) = (Vec::new(), 0_usize);
        self.for_each_user(|kind, name, amounts| {
            if amounts.get(id).is_some() {
                count += 1;
                let user = format!("{kind} {name}");
                if named.len() < NAMED_USERS && !named.contains(&user) {
                    named.push(user);
                }
            }
        });
        let others = count.saturating_sub(named.len());
        match (count, others) {
            (0, _) => None,
            (_, 0) => Some(named.join(", ")),
            _ => Some(format!("{}, and in {others} more places", named.join(", "))),
        }
    }

    fn used_ids(&self, ids: usize) -> Vec<bool> {
        let mut used = vec![false; ids];
        self.for_each_user(|_, _, amounts| {
            for (id, _) in amounts.iter() {
                if let Some(used) = used.get_mut(id.index()) {
                    *used = true;
                }
            }
        });
        used
    }

    /// Visits all amounts of records: of the state, of assumed tasks as their sources reported them, and of full syncs that
    /// are being sent.
    fn for_each_user(&self, mut visit: impl FnMut(&str, &str, &ResourceAmounts)) {
        let state = &self.next.state;
        for (_, entry) in state.nodes() {
            let record = &entry.record;
            record
                .amounts()
                .for_each(|amounts| visit("node", &record.name, amounts));
        }
        for (name, stored) in state.queues().iter() {
            stored
                .record
                .amounts()
                .for_each(|amounts| visit("queue", name, amounts));
        }
        for (name, stored) in state.jobs().iter() {
            stored.record.amounts().for_each(|amounts| visit("job", name, amounts));
        }
        for (name, stored) in state.tasks().iter() {
            stored.record.amounts().for_each(|amounts| visit("task", name, amounts));
        }
        for task in self.arbiter.assumptions.reported_tasks() {
            task.amounts().for_each(|amounts| visit("task", &task.name, amounts));
        }
        for (record, _) in self.sources.staged().flat_map(|batch| &batch.put) {
            let (kind, name) = record.key();
            for_each_amounts(record, |amounts| visit(kind.name(), name, amounts));
        }
    }
}

fn for_each_amounts(record: &BatchRecord, visit: impl FnMut(&ResourceAmounts)) {
    match record {
        BatchRecord::Node(record) => record.amounts().for_each(visit),
        BatchRecord::Queue(record) => record.amounts().for_each(visit),
        BatchRecord::Job(record) => record.amounts().for_each(visit),
        BatchRecord::Task(record) => record.amounts().for_each(visit),
        BatchRecord::Namespace(_) | BatchRecord::PriorityClass(_) => {}
    }
}

impl SharedState {
    /// Forgets a resource name. Returns the first revision without it.
    ///
    /// # Errors
    /// The name is unknown, or records use it.
    pub async fn forget_resource(&self, name: Arc<str>) -> Result<Revision, StateError> {
        self.ask(|reply| WriterCommand::ForgetResource(name, reply)).await?
    }
}
