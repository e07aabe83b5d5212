//! The writer's part of the policies: it puts versions in force and deletes them, in the store first and then for
//! readers.

use std::sync::Arc;

use super::error::{PolicyError, StateError};
use super::limits::StateLimits;
use super::policies::{PolicyHistories, PolicyHistory, PolicyInstall, PolicyRegistry, PolicyVersion, ReloadedPolicy};
use super::policy_store::{self, ActivePolicies, PendingRepair};
use super::sources::limit_error;
use crate::store::{Store, StoreWrite};
use pumice_engine::policy::emit;

/// Writer of policies. It alone changes the registry, so it needs no lock while the store writes.
#[derive(Debug)]
pub(super) struct PolicyWriter {
    max_names: usize,
    max_versions: usize,
    max_bytes: usize,
    pub(super) registry: Arc<PolicyRegistry>,
    pub(super) pending_repair: PendingRepair,
}

impl PolicyWriter {
    pub(super) fn new(limits: &StateLimits) -> Self {
        Self {
            max_names: limits.policy_names,
            max_versions: limits.policy_versions,
            max_bytes: limits.policy_history_bytes,
            registry: Arc::default(),
            pending_repair: PendingRepair::default(),
        }
    }

    /// Puts a version in force by compare-and-swap with the expected version. No other code changes a policy.
    ///
    /// # Errors
    /// Another version is in force, there are too many policies, or the store failed: nothing changed.
    pub(super) fn install(
        &mut self,
        install: PolicyInstall,
        in_force: &mut Arc<ActivePolicies>,
        store: &mut dyn Store,
    ) -> Result<ReloadedPolicy, PolicyError> {
        let histories = self.registry.histories();
        let name = Arc::clone(&install.name);
        if !histories.contains_key(&name) && histories.len() >= self.max_names {
            let message = format!("`{name}` would be one more policy");
            return Err(limit_error("policy_names", self.max_names, message).into());
        }
        let history = histories.get(&name);
        let active = history.and_then(|history| history.versions.back()).cloned();
        let number = active.as_ref().map_or(0, |active| active.in_force.version);
        if let Some(expected) = install.expected_version.filter(|expected| *expected != number) {
            return Err(PolicyError::VersionMismatch {
                name,
                active: number,
                expected,
            });
        }
        let dry_run = install.dry_run;
        let before = active.as_ref().map_or("", |active| &*active.effective_document);
        let difference = emit::unified_diff(before, &install.version.effective_document);
        let reloaded = |version, unchanged| ReloadedPolicy {
            version,
            unchanged,
            difference,
            queue_problems: Vec::new(),
            dry_run,
        };
        if let Some(active) = active.filter(|active| install.is_in_force(active)) {
            if !dry_run {
                self.confirm_unchanged(&histories, &install, &active, store)?;
            }
            return Ok(reloaded(active, true));
        }
        if dry_run {
            return Ok(reloaded(install.into_version(0), false));
        }
        let version = self.write_version(&histories, install, store)?;
        Arc::make_mut(in_force).insert(name, Arc::clone(&version.in_force));
        Ok(reloaded(version, false))
    }

    /// Writes a new version to the store, and then shows it to readers.
    fn write_version(
        &mut self,
        histories: &PolicyHistories,
        install: PolicyInstall,
        store: &mut dyn Store,
    ) -> Result<Arc<PolicyVersion>, StateError> {
        let name = Arc::clone(&install.name);
        let mut history = histories
            .get(&name)
            .map_or_else(PolicyHistory::default, |history| PolicyHistory::clone(history));
        let content = Arc::clone(&install.fingerprint);
        let version = install.into_version(history.last + 1);
        let dropped = history.accept(&version, self.max_versions, self.max_bytes);
        let writes = policy_store::version_writes(&version, false, &dropped, &version.origin, &content);
        let file = writes
            .iter()
            .any(|write| matches!(write, StoreWrite::PolicyFile { .. }));
        self.pending_repair.write_with_repairs(histories, store, writes)?;
        if file {
            history.file_fingerprint = Some(content);
        }
        self.publish_history(histories, &name, Some(history));
        Ok(version)
    }

    /// Records that a policy file, or a caller, sent the policy that is in force already.
    fn confirm_unchanged(
        &mut self,
        histories: &PolicyHistories,
        install: &PolicyInstall,
        active: &PolicyVersion,
        store: &mut dyn Store,
    ) -> Result<(), StateError> {
        let (origin, content) = (&install.version.origin, &install.fingerprint);
        let history = histories.get(&install.name);
        let file = history.and_then(|history| history.file_fingerprint.as_ref());
        let writes = if file == Some(content) {
            Vec::new()
        } else {
            policy_store::version_writes(active, true, &[], origin, content)
        };
        let file = !writes.is_empty();
        // A pending repair may contradict what this call confirms.
        if file || self.pending_repair.is_needed() {
            self.pending_repair.write_with_repairs(histories, store, writes)?;
        }
        if let Some(history) = history.filter(|_| file) {
            let mut history = PolicyHistory::clone(history);
            history.file_fingerprint = Some(Arc::clone(content));
            self.publish_history(histories, &install.name, Some(history));
        }
        self.registry.clear_rejection(&install.name);
        Ok(())
    }

    /// Shows readers another history of a policy, or none. The policy has no rejected document then.
    pub(super) fn publish_history(&self, histories: &PolicyHistories, name: &Arc<str>, history: Option<PolicyHistory>) {
        let mut histories = histories.clone();
        match history {
            Some(history) => histories.insert(Arc::clone(name), Arc::new(history)),
            None => histories.remove(name),
        };
        self.registry.publish(histories);
        self.registry.clear_rejection(name);
    }

    /// Restores a stored version.
    pub(super) fn restore_version(&self, history: &mut PolicyHistory, version: &Arc<PolicyVersion>) {
        history.accept(version, self.max_versions, self.max_bytes);
    }

    /// True if the store may differ from memory.
    pub(super) fn needs_repair(&self) -> bool {
        self.pending_repair.is_needed()
    }

    /// Writes that repair the store; call [`Self::repaired`] once they are written.
    pub(super) fn repair_writes(&self) -> Vec<StoreWrite> {
        self.pending_repair.writes(&self.registry.histories())
    }

    /// Marks the pending repairs as written.
    pub(super) fn repaired(&mut self) {
        self.pending_repair.clear();
    }
}
