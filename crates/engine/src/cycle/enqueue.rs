//! Jobs that are enqueued in a cycle, and jobs that wait again.

use std::sync::Arc;

use super::{ChangeOutcome, CycleState};
use crate::model::{ClusterState, ErrorCode, JobPhase, JobRecord, Problem, RecordKind, StoredRecord};
use crate::plugin_state::PlacementEvent;

impl CycleState {
    /// Enqueues a waiting job for good.
    pub(super) fn enqueue(&mut self, job: &str, field: &str, outcome: &mut ChangeOutcome) -> Result<(), Problem> {
        let Some(stored) = self.cluster_state.jobs().get(job).cloned() else {
            let message = format!("there is no job `{job}`; nothing was done");
            outcome
                .warnings
                .push(Problem::new(ErrorCode::JobUnknown, field, message));
            return Ok(());
        };
        if !matches!(stored.record.phase, JobPhase::Pending | JobPhase::Unspecified) {
            let phase = stored.record.phase;
            let message = format!("job `{job}` is {phase:?}, not Pending; nothing was done");
            outcome
                .warnings
                .push(Problem::new(ErrorCode::ChangeDoesNotFit, field, message));
            return Ok(());
        }
        self.touch(&[], job, outcome);
        put_phase(&mut self.cluster_state, &stored, JobPhase::Inqueue);
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
            put_phase(&mut self.cluster_state, &stored, JobPhase::Pending);
        }
        let moved = self
            .plugin_states
            .apply(&self.cluster_state, &[PlacementEvent::Dequeue(job)])?;
        self.touch_queues(&moved, outcome);
        Ok(())
    }
}

/// Puts a stored job in a phase.
pub(super) fn put_phase(cluster_state: &mut ClusterState, job: &StoredRecord<JobRecord>, phase: JobPhase) {
    let record = JobRecord {
        phase,
        ..job.record.clone()
    };
    cluster_state.put_job(record, &job.source);
}
