//! The writer's first step: batches, each applied to the next snapshot as a whole.

use std::sync::Arc;

use super::Writer;
use super::relations::RelationChanges;
use crate::error::StateError;
use crate::intake::batch::{Batch, BatchKind, BatchRecord, ReadingRules, RejectedRecord};
use crate::intake::batch_outcome::BatchOutcome;
use crate::intake::outcome_problems::truncate_problems;
use crate::intake::record_rules;
use crate::intake::sources::IntakeResult;
use crate::intake::unreadable::uncounted_warning;
use pumice_engine::SourcePosition;
use pumice_engine::model::{Problem, RecordKind};

impl Writer {
    /// Applies a batch. Later batches of the group are evaluated after it.
    pub(super) fn apply_to_source(&mut self, batch: Batch) -> BatchOutcome {
        let (kind, basis) = (batch.kind, batch.basis);
        let outcome = self.apply_batch(batch);
        self.changed = true;
        let bytes = self.source_bytes.of(&outcome.position.source);
        self.sources.applied(kind, &outcome, bytes, basis);
        self.show_dropped_labels();
        outcome
    }

    pub(super) fn intake(&mut self, mut batch: Batch) -> Result<IntakeResult, StateError> {
        self.check_names(&batch)?;
        batch.names = None;
        self.sources
            .intake(batch, self.visible_revision(), self.reading_rules())
    }

    /// By what records are read under the policies of the next snapshot.
    pub(super) fn reading_rules(&self) -> ReadingRules {
        ReadingRules {
            labels: self.next.read_labels(),
            offers: self.names.current_table().offers(),
            pod_release: self.next.pod_release(),
        }
    }

    /// Stores in the next snapshot which labels its records lack.
    pub(super) fn show_dropped_labels(&mut self) {
        let dropped = self.sources.dropped_labels();
        if dropped != *self.next.state.dropped_labels() {
            self.next.state.set_dropped_labels(dropped);
        }
    }

    /// Applies a batch to the next snapshot.
    fn apply_batch(&mut self, mut batch: Batch) -> BatchOutcome {
        let watch = record_rules::judge_queues(&mut batch, &self.next.state, &self.next.policies);
        let Batch {
            source,
            source_epoch,
            sequence,
            kind,
            part: _,
            mut put,
            rejected,
            remove,
            removed_uids,
            mut warnings,
            source_kind: _,
            changes_missing: _,
            names: _,
            bytes: _,
            basis: _,
            connection: _,
        } = batch;
        self.next.state.set_resources(self.names.current_table());
        let (mut problems, mut related) = (Vec::new(), RelationChanges::default());
        if kind == BatchKind::FullSyncLast {
            self.remove_absent(&source, &put, &rejected, &mut related);
            self.unreadable.forget_source(&source);
        }
        self.remove_named(&source, remove, &removed_uids, &mut related);
        // Tasks come last: their priorities and groups follow from classes and jobs.
        let is_task = |(record, _): &(BatchRecord, _)| matches!(record, BatchRecord::Task(_));
        if !put.is_sorted_by_key(is_task) {
            put.sort_by_key(is_task);
        }
        for (record, place) in put {
            related.note_put(&record, &self.next.state);
            problems.extend(self.put_if_possible(record, place, &source));
        }
        self.renew_related(&related);
        problems.extend(self.reject_records(&source, rejected, &mut warnings));
        self.sources.registry.add_record_problems(problems.len());
        warnings.extend(record_rules::contradictions(&watch, &self.next.state));
        let position = SourcePosition {
            source: Arc::clone(&source),
            source_epoch,
            sequence,
        };
        Arc::make_mut(&mut self.next.positions).insert(source, position.clone());
        BatchOutcome {
            position,
            revision: self.next.revision,
            rejected: truncate_problems(problems),
            warnings: truncate_problems(warnings),
            resync: None,
        }
    }

    /// Rejects records; their problems.
    fn reject_records(
        &mut self,
        source: &Arc<str>,
        rejected: Vec<RejectedRecord>,
        warnings: &mut Vec<Problem>,
    ) -> Vec<Problem> {
        let mut problems = Vec::new();
        for record in rejected {
            warnings.extend(self.reject_record(source, &record));
            problems.extend(record.problems);
        }
        self.unreadable.mark_nodes(&mut self.next.state);
        problems
    }

    /// Marks the last good record of a rejected record, if there is one. Returns a warning if the resources of the
    /// rejected record are not accounted for.
    fn reject_record(&mut self, source: &Arc<str>, rejected: &RejectedRecord) -> Option<Problem> {
        let (kind, name) = &rejected.key;
        match self.next.state.source_of(*kind, name) {
            Some(owner) if owner != source => return None,
            Some(_) => {
                let problems = rejected.problems.clone().into();
                self.next.state.set_invalid(*kind, name, Some(problems));
            }
            None => {}
        }
        match kind {
            RecordKind::Node => self.unreadable.recheck_node(name),
            RecordKind::Task if self.record_count() < self.sources.max_records() => {
                self.unreadable.insert(source, rejected);
            }
            RecordKind::Task
            | RecordKind::Queue
            | RecordKind::Job
            | RecordKind::Namespace
            | RecordKind::PriorityClass => {}
        }
        uncounted_warning(&self.next.state, rejected)
    }
}
