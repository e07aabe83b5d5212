//! Entries of other servers, applied to the writer's own state.

use std::slice;

use crate::error::{PolicyError, StateError};
use crate::policies::ReloadedPolicy;
use crate::policies::reload::CompiledReload;
use crate::policies::removal::{DeletedPolicy, PolicyRemoval};
use crate::store::{LogRead, MAX_APPEND_ATTEMPTS, StoreError, StoreWrite, StoredState};
use crate::writer::Writer;
use pumice_engine::plugin_state::PlacementEvent;

impl Writer {
    /// Applies what others appended since the writer last read the log.
    ///
    /// # Errors
    /// The log cannot be read.
    pub(crate) fn catch_up(&mut self) -> Result<(), StoreError> {
        let (entries, head) = match self.ledger.log().read_on()? {
            None | Some(LogRead::Unacknowledged(_)) => return Ok(()),
            Some(LogRead::Entries(entries, head)) => (entries, head),
            Some(LogRead::Content(content, head)) => (vec![self.replacing_writes(*content)], head),
        };
        if !self.changed {
            self.plugin_states = self.publisher.newest().plugin_state_cache.ready();
        }
        for write in entries.iter().flatten() {
            self.replay(write);
        }
        self.policies.replay(entries.iter().flatten(), &mut self.next.policies);
        self.ledger.log().applied(head);
        self.store_fails = false;
        Ok(())
    }

    /// Puts a policy in force, in the log first.
    pub(super) fn install_policy(&mut self, reload: &CompiledReload) -> Result<ReloadedPolicy, PolicyError> {
        self.retry_stale(|writer| {
            let (policies, log) = (&mut writer.next.policies, writer.ledger.log());
            writer.policies.install(reload, policies, log)
        })
    }

    /// Deletes a policy, in the log first.
    pub(super) fn remove_policy(&mut self, removal: &PolicyRemoval) -> Result<DeletedPolicy, PolicyError> {
        self.retry_stale(|writer| {
            let (policies, log) = (&mut writer.next.policies, writer.ledger.log());
            writer.policies.remove(removal, policies, log)
        })
    }

    /// Repeats an attempt to write to the log until no other server appends first.
    fn retry_stale<T>(
        &mut self,
        mut attempt: impl FnMut(&mut Self) -> Result<T, PolicyError>,
    ) -> Result<T, PolicyError> {
        let mut result = attempt(self);
        for _ in 1..MAX_APPEND_ATTEMPTS {
            match &result {
                Err(PolicyError::State(StateError::Store(error))) if error.is_stale() => {
                    self.catch_up().map_err(StateError::Store)?;
                    result = attempt(self);
                }
                Ok(_) | Err(_) => break,
            }
        }
        result
    }

    /// Applies a write of another server, apart from those about policies.
    fn replay(&mut self, write: &StoreWrite) {
        self.changed = true;
        let state = &mut self.next.state;
        match write {
            StoreWrite::Job {
                job,
                reservation,
                tombstone,
            } => {
                self.ledger
                    .replay_job(state, job, reservation.as_ref(), tombstone.as_ref());
                let event = [PlacementEvent::Reserve(job)];
                self.plugin_states
                    .retain(|_, plugin_states| plugin_states.apply(state, &event).is_ok());
            }
            StoreWrite::Task {
                task,
                assumption,
                is_reported,
            } => {
                let assumptions = &mut self.arbiter.assumptions;
                assumptions.replay_task(task, assumption.as_ref(), *is_reported, state);
                self.unreadable.recheck(state);
                self.plugin_states.clear();
            }
            StoreWrite::Source { .. } => self.sources.written(slice::from_ref(write)),
            StoreWrite::Policy(_) | StoreWrite::RemovePolicy { .. } | StoreWrite::PolicyFile { .. } => {
                self.plugin_states.clear();
            }
        }
    }

    /// Writes that lead from what is in memory to a whole content.
    fn replacing_writes(&self, content: StoredState) -> Vec<StoreWrite> {
        let mut writes = self.ledger.clearing_writes(&self.next.state);
        writes.extend(self.arbiter.assumptions.clearing_writes());
        writes.extend(self.policies.clearing_writes());
        writes.extend(content.into_writes());
        writes
    }
}
