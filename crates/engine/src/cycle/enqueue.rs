//! Jobs that are enqueued in a cycle, and jobs that wait again.

use std::sync::Arc;

use super::{ChangeOutcome, CycleState, problem};
use crate::model::{ErrorCode, JobPhase, JobRecord, Problem, RecordKind};
use crate::plugin_state::PlacementEvent;

impl CycleState {
    /// Enqueues a waiting job for good.
    pub(super) fn enqueue(&mut self, job: &str, field: &str, outcome: &mut ChangeOutcome) -> Result<(), Problem> {
        let Some(stored) = self.cluster_state.jobs().get(job).cloned() else {
            let message = format!("there is no job `{job}`; nothing was done");
            outcome.warnings.push(problem(ErrorCode::JobUnknown, field, message));
            return Ok(());
        };
        if !matches!(stored.record.phase, JobPhase::Pending | JobPhase::Unspecified) {
            let message = format!(
                "job `{job}` is {:?}, not Pending; nothing was done",
                stored.record.phase
            );
            outcome
                .warnings
                .push(problem(ErrorCode::ChangeDoesNotFit, field, message));
            return Ok(());
        }
        self.touch(&[], job, outcome);
        self.cluster_state.put_job(
            JobRecord {
                phase: JobPhase::Inqueue,
                ..stored.record.clone()
            },
            &stored.source,
        );
        if stored.invalid().is_some() {
            self.cluster_state
                .set_invalid(RecordKind::Job, job, stored.invalid().cloned());
        }
        Arc::make_mut(&mut self.enqueued).push(Arc::clone(&stored.record.name));
        let moved = self
            .plugin_states
            .apply(&self.cluster_state, &[PlacementEvent::Enqueue(job)]);
        self.touch_queues(&moved.map_err(|problem| problem.within(field))?, outcome);
        Ok(())
    }

    /// Returns a job that was enqueued in this cycle to waiting.
    pub(super) fn dequeue(&mut self, job: &Arc<str>, outcome: &mut ChangeOutcome) -> Result<(), Problem> {
        let Some(stored) = self.cluster_state.jobs().get(job).cloned() else {
            return Ok(());
        };
        if stored.record.phase == JobPhase::Inqueue {
            self.touch(&[], job, outcome);
            let record = JobRecord {
                phase: JobPhase::Pending,
                ..stored.record.clone()
            };
            self.cluster_state.put_job(record, &stored.source);
        }
        let moved = self
            .plugin_states
            .apply(&self.cluster_state, &[PlacementEvent::Dequeue(job)])?;
        self.touch_queues(&moved, outcome);
        Ok(())
    }
}
