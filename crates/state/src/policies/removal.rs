//! Deletion of a policy: its versions leave the history, the store and the snapshot together.

use std::sync::Arc;

use super::draft::PolicyDraft;
use super::stored::{ActivePolicies, version_writes};
use super::writer::PolicyWriter;
use crate::error::PolicyError;
use crate::policies::{PolicyHistory, PolicyVersion};
use crate::store::{LedgerLog, StoreWrite};

/// Request to delete a policy.
#[derive(Clone, Debug)]
pub struct PolicyDeletion {
    /// Name of the policy to delete.
    pub name: Arc<str>,
    /// Version that must be active.
    pub expected_version: Option<u64>,
    /// Document to activate in its place. `None`: the policy is deleted completely.
    pub replacement: Option<Arc<str>>,
}

/// Policy that was deleted.
#[derive(Clone, Debug)]
pub struct DeletedPolicy {
    /// Version that was active.
    pub deleted: Arc<PolicyVersion>,
    /// Version that is now active in its place.
    pub replacement: Option<Arc<PolicyVersion>>,
}

/// A deletion on its way to the writer, its replacement compiled.
#[derive(Debug)]
pub(crate) struct PolicyRemoval {
    pub(crate) name: Arc<str>,
    pub(crate) expected_version: Option<u64>,
    pub(crate) replacement: Option<PolicyDraft>,
}

impl PolicyWriter {
    /// Deletes the policy if its active version is the expected version.
    ///
    /// # Errors
    /// The policy does not exist, another version is active, or the store failed. Nothing was deleted.
    pub(crate) fn remove(
        &mut self,
        removal: &PolicyRemoval,
        in_force: &mut Arc<ActivePolicies>,
        log: &mut LedgerLog,
    ) -> Result<DeletedPolicy, PolicyError> {
        let PolicyRemoval {
            name,
            expected_version,
            replacement,
        } = removal;
        let histories = self.registry.histories();
        let unknown = || PolicyError::UnknownPolicy { name: Arc::clone(name) };
        let history = histories.get(name).ok_or_else(unknown)?;
        let deleted = history.versions.back().cloned().ok_or_else(unknown)?;
        let active = deleted.in_force.version;
        if let Some(expected) = expected_version.filter(|expected| *expected != active) {
            let name = Arc::clone(name);
            return Err(PolicyError::VersionMismatch { name, active, expected });
        }
        let last = history.last;
        let dropped: Vec<Arc<PolicyVersion>> = history.versions.iter().cloned().collect();
        let replacement = replacement.as_ref().map(|draft| draft.to_version(last + 1));
        let mut writes: Vec<StoreWrite> = dropped
            .iter()
            .map(|old| StoreWrite::RemovePolicy {
                name: Arc::clone(name),
                version: old.in_force.version,
            })
            .collect();
        // A policy file that was accepted before counts as new at the next start.
        writes.push(StoreWrite::PolicyFile {
            name: Arc::clone(name),
            content: None,
        });
        if let Some(now) = &replacement {
            writes.extend(version_writes(now, false, &[], &now.origin, &Arc::default()));
        }
        self.pending_repair.write_with_repairs(&histories, log, writes)?;
        let policies = Arc::make_mut(in_force);
        if let Some(now) = &replacement {
            let mut history = PolicyHistory {
                last,
                ..PolicyHistory::default()
            };
            self.restore_version(&mut history, now);
            self.publish_history(&histories, name, Some(history));
            policies.insert(Arc::clone(name), Arc::clone(&now.in_force));
        } else {
            self.publish_history(&histories, name, None);
            policies.remove(name);
        }
        Ok(DeletedPolicy { deleted, replacement })
    }
}
