//! The writer's part of the policies: it activates and deletes versions, first in the store and then for readers.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::draft::PolicyDraft;
use super::reload::CompiledReload;
use super::stored::{ActivePolicies, PendingRepair, StoredPolicyError, compile_versions, version_writes};
use crate::error::{PolicyError, StateError, limit_error};
use crate::limits::StateLimits;
use crate::policies::{PolicyHistories, PolicyHistory, PolicyRegistry, PolicyVersion, ReloadedPolicy};
use crate::store::{LedgerLog, StoreWrite, StoredState};
use pumice_engine::policy::{YamlLimits, emit};

/// Writer of policies. It alone changes the registry, so it needs no lock while the store writes.
#[derive(Debug)]
pub(crate) struct PolicyWriter {
    max_names: usize,
    max_versions: usize,
    max_bytes: usize,
    pub(super) document_limits: YamlLimits,
    pub(crate) registry: Arc<PolicyRegistry>,
    pub(crate) pending_repair: PendingRepair,
}

impl PolicyWriter {
    pub(crate) fn new(limits: &StateLimits) -> Self {
        Self {
            max_names: limits.policy_names,
            max_versions: limits.policy_versions,
            max_bytes: limits.policy_history_bytes,
            document_limits: limits.document_limits(),
            registry: Arc::default(),
            pending_repair: PendingRepair::default(),
        }
    }

    /// Stored policies, and those in force.
    ///
    /// # Errors
    /// This program rejects a version that was in force. An earlier version that it rejects is left out.
    pub(crate) fn open(
        limits: &StateLimits,
        stored_state: &StoredState,
    ) -> Result<(Self, ActivePolicies), StoredPolicyError> {
        let policies = Self::new(limits);
        let mut histories: BTreeMap<Arc<str>, PolicyHistory> = BTreeMap::new();
        let mut in_force = ActivePolicies::new();
        for version in compile_versions(&stored_state.policies, limits.document_limits()) {
            let version = version?;
            let name = &version.in_force.name;
            in_force.insert(Arc::clone(name), Arc::clone(&version.in_force));
            let history = histories.entry(Arc::clone(name)).or_default();
            policies.restore_version(history, &version);
        }
        for (name, content) in &stored_state.policy_files {
            if let Some(history) = histories.get_mut(name) {
                history.file_fingerprint = Some(Arc::clone(content));
            }
        }
        let histories = histories.into_iter().map(|(name, history)| (name, Arc::new(history)));
        policies.registry.publish(histories.collect());
        Ok((policies, in_force))
    }

    /// Puts a version in force by compare-and-swap with the expected version. No other code changes a policy.
    ///
    /// # Errors
    /// Another version is in force, there are too many policies, or the store failed: nothing changed.
    pub(crate) fn install(
        &mut self,
        reload: &CompiledReload,
        in_force: &mut Arc<ActivePolicies>,
        log: &mut LedgerLog,
    ) -> Result<ReloadedPolicy, PolicyError> {
        let CompiledReload {
            draft,
            expected_version,
            dry_run,
        } = reload;
        let dry_run = *dry_run;
        let histories = self.registry.histories();
        let name = Arc::clone(draft.name());
        if !histories.contains_key(&name) && histories.len() >= self.max_names {
            let message = format!("`{name}` would be one more policy");
            return Err(limit_error("policy_names", self.max_names, message).into());
        }
        let history = histories.get(&name);
        let active = history.and_then(|history| history.versions.back()).cloned();
        let number = active.as_ref().map_or(0, |active| active.in_force.version);
        if let Some(expected) = expected_version.filter(|expected| *expected != number) {
            return Err(PolicyError::VersionMismatch {
                name,
                active: number,
                expected,
            });
        }
        let before = active.as_ref().map_or("", |active| &*active.effective_document);
        let difference = emit::unified_diff(before, &draft.version.effective_document);
        let reloaded = |version, unchanged| ReloadedPolicy {
            version,
            unchanged,
            difference,
            queue_problems: Vec::new(),
            awaited_sources: Vec::new(),
            dry_run,
        };
        if let Some(active) = active.filter(|active| draft.is_in_force(active)) {
            if !dry_run {
                self.confirm_unchanged(&histories, draft, &active, log)?;
            }
            return Ok(reloaded(active, true));
        }
        if dry_run {
            return Ok(reloaded(draft.to_version(0), false));
        }
        let version = self.write_version(&histories, draft, log)?;
        Arc::make_mut(in_force).insert(name, Arc::clone(&version.in_force));
        Ok(reloaded(version, false))
    }

    /// Writes a new version to the store, and then shows it to readers.
    fn write_version(
        &mut self,
        histories: &PolicyHistories,
        draft: &PolicyDraft,
        log: &mut LedgerLog,
    ) -> Result<Arc<PolicyVersion>, StateError> {
        let name = Arc::clone(draft.name());
        let mut history = histories
            .get(&name)
            .map_or_else(PolicyHistory::default, |history| PolicyHistory::clone(history));
        let content = Arc::clone(&draft.fingerprint);
        let version = draft.to_version(history.last + 1);
        let dropped = history.accept(&version, self.max_versions, self.max_bytes);
        let writes = version_writes(&version, false, &dropped, &version.origin, &content);
        let file = writes
            .iter()
            .any(|write| matches!(write, StoreWrite::PolicyFile { .. }));
        self.pending_repair.write_with_repairs(histories, log, writes)?;
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
        draft: &PolicyDraft,
        active: &PolicyVersion,
        log: &mut LedgerLog,
    ) -> Result<(), StateError> {
        let (origin, content) = (&draft.version.origin, &draft.fingerprint);
        let history = histories.get(draft.name());
        let file = history.and_then(|history| history.file_fingerprint.as_ref());
        let writes = if file == Some(content) {
            Vec::new()
        } else {
            version_writes(active, true, &[], origin, content)
        };
        let file = !writes.is_empty();
        // A pending repair may contradict what this call confirms.
        if file || self.pending_repair.is_needed() {
            self.pending_repair.write_with_repairs(histories, log, writes)?;
        }
        if let Some(history) = history.filter(|_| file) {
            let mut history = PolicyHistory::clone(history);
            history.file_fingerprint = Some(Arc::clone(content));
            self.publish_history(histories, draft.name(), Some(history));
        }
        self.registry.clear_rejection(draft.name());
        Ok(())
    }

    /// Shows readers another history of a policy, or none. The policy has no rejected document then.
    pub(crate) fn publish_history(&self, histories: &PolicyHistories, name: &Arc<str>, history: Option<PolicyHistory>) {
        let mut histories = histories.clone();
        match history {
            Some(history) => histories.insert(Arc::clone(name), Arc::new(history)),
            None => histories.remove(name),
        };
        self.registry.publish(histories);
        self.registry.clear_rejection(name);
    }

    /// Restores a stored version.
    pub(crate) fn restore_version(&self, history: &mut PolicyHistory, version: &Arc<PolicyVersion>) {
        history.accept(version, self.max_versions, self.max_bytes);
    }

    /// True if the store may differ from memory.
    pub(crate) fn needs_repair(&self) -> bool {
        self.pending_repair.is_needed()
    }

    /// Writes that repair the store; call [`Self::repaired`] once they are written.
    pub(crate) fn repair_writes(&self) -> Vec<StoreWrite> {
        self.pending_repair.writes(&self.registry.histories())
    }

    /// Marks the pending repairs as written.
    pub(crate) fn repaired(&mut self) {
        self.pending_repair.clear();
    }
}
